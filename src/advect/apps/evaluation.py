"""Does a flowed dataset help? Trainings with and without it, over several draws of the few samples
(paper, section 6.2).

Everything that is compared sees the same few samples and the same test part. Trainers are the
caller's (``advect.apps.training``): anything that has ``fit(x, y)`` and ``predict(x)``, and
``fine_tune(x, y)`` where fine-tuning is to be compared. Where ``fit`` takes a ``sample_weight``, the few samples keep a share
of the mass however many others join them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from advect._util.checks import check_count, one_or_more
from advect._util.progress import Progress, track
from advect.apps.pages import write_page
from advect.apps.training import check_classifier, fit_on, score, shared
from advect.apps.transfer import TransferOptions, Transferred, transfer
from advect.data.dataset import LabeledDataset
from advect.errors import InputError

_WAYS = ("target only", "+ recommended", "+ source", "+ final", "+ way", "+ mapped", "fine-tuned")


@dataclass(frozen=True, eq=False)
class TransferScores:
    """Accuracies on the test part, one for each draw.

    Attributes:
        accuracies: for each way of training, a list with one number for each draw.

    Example:
        >>> import advect as ad
        >>> scores = ad.apps.TransferScores({"target only": [0.5, 0.7], "final": [0.8, 0.8]})
        >>> scores.mean("final"), round(scores.interval("target only"), 3)
        (0.8, 1.271)
        >>> print(scores)
        target only   60.0 ± 127.1 % (2 draws)
        final         80.0 ± 0.0 % (2 draws)
    """

    accuracies: dict[str, list[float]]

    def mean(self, way: str) -> float:
        """Mean accuracy over the draws."""
        return float(np.mean(self.accuracies[way]))

    def interval(self, way: str) -> float:
        """Half the width of the 95 % confidence interval of the mean (Student's t); infinite for
        one draw.
        """
        return _half_width(self.accuracies[way])

    def gain(self, way: str, over: str = "target only") -> tuple[float, float]:
        """By how much a way is above another on the same draws: the mean, and half the width of its
        95 % interval.

        Both have seen the same shots from the same seed, so this tells more than two intervals side
        by side.

        Example:
            >>> import advect as ad
            >>> scores = ad.apps.TransferScores({"target only": [0.5, 0.7, 0.6], "+ final": [0.52, 0.71, 0.62]})
            >>> mean, half = scores.gain("+ final")
            >>> round(mean, 3), round(half, 3)
            (0.017, 0.014)
        """
        differences = np.subtract(self.accuracies[way], self.accuracies[over])
        return float(np.mean(differences)), _half_width(differences)

    def report(self, path: str | Path, **options: Any) -> Path:
        """Write a page: accuracies with their intervals, and gains over the few samples alone; see
        ``advect.report.write_scores_report`` for the options.
        """
        return write_page("write_scores_report", self, path, options)

    def __str__(self) -> str:
        return "\n".join(
            f"{way:13s} {100 * self.mean(way):.1f} ± {100 * self.interval(way):.1f} % "
            f"({len(values)} draws)"
            for way, values in self.accuracies.items()
        )


def _half_width(values: Any) -> float:
    """Half the width of the 95 % confidence interval of a mean (Student's t); infinite for one
    value.
    """
    if len(values) < 2:
        return math.inf
    from scipy.stats import t

    return float(t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values)))


def evaluate_transfer(
    source: LabeledDataset,
    target: LabeledDataset,
    test: LabeledDataset,
    classifier: Callable[[int], Any],
    *,
    shots: int,
    draws: int = 5,
    extra: LabeledDataset | None = None,
    options: TransferOptions | None = None,
    few_share: float | None = None,
    ways: Collection[str] | None = None,
    seed: int = 0,
    progress: Progress = None,
) -> TransferScores:
    """Train on k shots with and without what a source gives, and test.

    Ways of training: ``target only`` (the k shots of each class), ``+ recommended`` (and what
    ``transfer`` adds by the way that it chose with this classifier), ``+ source`` (and the source, its
    classes renamed by the matching), ``+ final`` (and the flowed source), ``+ way`` (and the states
    on the way), ``+ mapped`` (and extra samples carried by the map), ``fine-tuned`` (the source
    first, then the shots; for classifiers with ``fine_tune``).

    Args:
        source: labeled samples of another task.
        target: labeled samples to draw the shots from.
        test: labeled samples that nothing is trained on.
        classifier: from a seed to a new trainer with ``fit(x, y)`` and ``predict(x)`` on tensors:
            samples in their shape and positions of the target's classes.
        shots: how many of each class.  draws: how many times, each with its own shots and seed.
        extra: more source samples, for ``+ mapped``.
        options: of ``transfer``.
        few_share: mass of the few samples among those trained on, for classifiers whose ``fit``
            takes ``sample_weight``; by default that of the options.
        ways: which of the ways of training to compare; all that can be by default.
        seed: of the first draw.  progress: None, False or a function of (done, total).

    Example:
        >>> import torch, advect as ad
        >>> from sklearn.neighbors import KNeighborsClassifier
        >>> generator = torch.Generator().manual_seed(0)
        >>> source = ad.datasets.gaussians(60, generator=generator)
        >>> target, test = ad.datasets.gaussians(300, shift=(9.0, 0.0), rotation=0.3, generator=generator).split(0.5)
        >>> nearest = lambda seed: KNeighborsClassifier(1)
        >>> scores = ad.apps.evaluate_transfer(source, target, test, nearest, shots=2, draws=2, progress=False)
        >>> sorted(scores.accuracies)
        ['+ final', '+ recommended', '+ source', '+ way', 'target only']
    """
    shots, draws = check_count("shots", shots), check_count("draws", draws)
    chosen = options or TransferOptions()
    if few_share is not None:
        chosen = replace(chosen, few_share=few_share)
    wanted = _WAYS if ways is None else one_or_more(ways)
    strange = set(wanted) - set(_WAYS)
    if strange or not wanted:
        raise InputError(
            "ways of training to compare",
            f"{sorted(strange) or 'none'}",
            f"Take some of {', '.join(_WAYS)}.",
        )
    if test.classes != target.classes:
        raise InputError(
            "test and target must have the same classes in the same order",
            f"{test.classes} and {target.classes}",
            "Take both from one dataset, or pass classes=… when making them.",
        )
    test.require_classes("a test part")
    test.require_labels("a test part")
    _check_mapped(ways, extra)
    check_classifier(classifier)
    if "+ recommended" not in wanted:  # then nothing has to be chosen
        chosen = replace(chosen, among=("shots",))
    accuracies: dict[str, list[float]] = {}
    with track(draws, "draws", progress) as advance:
        for draw in range(draws):
            generator = torch.Generator().manual_seed(seed + draw)
            present = sum(count > 0 for count in target.counts.values())
            few = target.sample(shots * present, balanced=True, generator=generator)
            sets = transfer(source, few, extra=extra, options=chosen, classifier=classifier)
            for way, more in _parts(sets).items():
                if way in wanted:
                    model = classifier(seed + draw)
                    fit_on(model.fit, shared(few, more(), chosen.few_share))
                    accuracies.setdefault(way, []).append(score(model, test))
            model = classifier(seed + draw)
            if hasattr(model, "fine_tune") and "fine-tuned" in wanted:
                fit_on(model.fit, sets.relabeled(source))
                fit_on(model.fine_tune, few)
                accuracies.setdefault("fine-tuned", []).append(score(model, test))
            advance(1)
    return TransferScores(accuracies)


def _check_mapped(ways: Collection[str] | None, extra: LabeledDataset | None) -> None:
    """What the map carries is trained on only if it has labels."""
    asked = extra is not None if ways is None else "+ mapped" in ways
    if asked and not (isinstance(extra, LabeledDataset) and bool(extra.labeled.any())):
        raise InputError(
            "+ mapped needs extra samples with labels",
            "none",
            "Pass extra=…, labeled samples of the source, or leave + mapped out.",
        )


def _parts(sets: Transferred) -> dict[str, Callable[[], list[LabeledDataset]]]:
    """What each way of training adds to the few samples; flows run when they are asked for."""
    parts: dict[str, Callable[[], list[LabeledDataset]]] = {
        "target only": list,
        "+ recommended": lambda: [] if sets.added is None else [sets.added],
        "+ source": lambda: [sets.relabeled(sets.source)],
        "+ final": lambda: [sets.final],
        "+ way": lambda: [sets.way],
    }
    if sets.extra is not None:
        parts["+ mapped"] = lambda: [part for part in (sets.final, sets.mapped) if part is not None]
    return parts
