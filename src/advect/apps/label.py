"""A few labels and a pool of samples without any: labels for all of it, how sure each one is, and
what to label next.

What is chosen (where distances are measured, how labels spread) is chosen on known labels that are
held out in turn, and so is how far the answers can be believed."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from advect._util.checks import check_count, check_kind, check_known, check_number
from advect._util.html import facts_table
from advect._util.progress import Progress, track
from advect.apps.calibration import Calibration, calibrated
from advect.apps.label_choice import Compared, choose, ways_for
from advect.apps.label_ways import METHODS, Known, Way, held_out, scored
from advect.apps.pages import write_page
from advect.classes.embedding import Embedded
from advect.classes.spread import one_hot
from advect.data.dataset import LabeledDataset
from advect.data.doubt import as_probabilities
from advect.errors import InputError

_FEW = 20  # held-out labels below which their accuracy says little


@dataclass(frozen=True, eq=False)
class Labelled:
    """A pool with labels, and how sure they are; made by ``label``.

    Attributes:
        dataset: the pool, all labeled; labels that it had are kept.
        probabilities: of each class, (n, k), rows sum to one.
        known: which samples had a label, (n,) bool.
        way: how the others got theirs.
        calibration: how far probabilities can be believed, by labels that were held out.
        compared: the ways that were compared on these, the chosen one first; empty where there was
            nothing to choose, or nothing to choose by.
        notes: what is worth knowing, in sentences.

    Example:
        >>> import torch, advect as ad
        >>> digits = ad.datasets.load("digits", n=500)
        >>> few, rest = digits.split(0.1, generator=torch.Generator().manual_seed(0))
        >>> made = ad.apps.label(ad.LabeledDataset(rest.samples), few)
        >>> len(made.dataset), len(made.confident(0.9)) < len(made), made.unsure(3).shape
        (450, True, (3,))
        >>> float((made.dataset.y == rest.y).double().mean()) > 0.9
        True
    """

    dataset: LabeledDataset
    probabilities: np.ndarray
    known: np.ndarray
    way: Way
    calibration: Calibration
    compared: tuple[Compared, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.dataset)

    def __repr__(self) -> str:
        right = self.calibration.accuracy
        said = "unknown" if right is None else f"{right:.1%} of {self.calibration.n_held_out}"
        return (
            f"Labelled(n={len(self)}, classes={len(self.dataset.classes)}, known="
            f"{int(self.known.sum())}, held out: {said} right)"
        )

    def _repr_html_(self) -> str:
        facts = {"samples": f"{len(self):,}", "had a label": f"{int(self.known.sum()):,}"}
        facts |= {"labeled by": str(self.way), "worth knowing": " ".join(self.notes)}
        return facts_table("Labelled", facts)

    @property
    def labels(self) -> list[Hashable]:
        """The name of each sample's class."""
        return self.dataset.labels

    @property
    def confidence(self) -> np.ndarray:
        """The probability of each sample's label, (n,); 1 for those that were known."""
        codes = self.dataset.y.cpu().numpy()
        return self.probabilities[np.arange(len(codes)), codes]

    def with_doubt(self) -> LabeledDataset:
        """The pool with ``probabilities`` for labels, so that distances and flows know which are
        unsure.

        Example:
            >>> import advect as ad
            >>> data = ad.LabeledDataset([[0.0], [0.1], [5.0], [5.1]], ["a", None, "b", None])
            >>> ad.apps.label(data).with_doubt().has_doubt
            True
        """
        return self.dataset.replace(
            y=self.dataset.y,
            probabilities=as_probabilities(self.probabilities, self.dataset.x),
        )

    @property
    def accuracy(self) -> float | None:
        """The share of labels that should be right, by those that were held out; None where none
        could be.
        """
        return self.calibration.accuracy

    def confident(self, at_least: float = 0.9) -> LabeledDataset:
        """The samples whose labels are that sure, and those that were known.

        Raises:
            InputError: there is none, or ``at_least`` is no probability.
        """
        if not 0 <= check_number("at_least", at_least) <= 1:
            raise InputError("at_least is a probability", at_least, "Pass 0.9, for instance.")
        sure = self.confidence >= at_least
        if not sure.any():
            raise InputError(
                f"no label is sure enough for at_least={at_least:g}",
                f"{self.confidence.max():.3f} at most",
                "Ask for less, or label some of .unsure(20) and try again.",
            )
        return self.dataset.subset(torch.as_tensor(sure, device=self.dataset.x.device))

    def unsure(self, n: int = 20) -> np.ndarray:
        """Positions of the n samples that are worth labeling next: those whose two most probable
        classes are nearest to each other first. Fewer if fewer are unlabeled.
        """
        ordered = np.sort(self.probabilities, axis=1)
        margin = np.where(self.known, np.inf, ordered[:, -1] - ordered[:, -2])
        order = np.argsort(margin, kind="stable")
        return order[: min(check_count("n", n), int((~self.known).sum()))]

    def report(self, path: str | Path, **options: Any) -> Path:
        """Write a page of what is unsure, class by class, with the calibration and the classes; see
        ``advect.report.write_label_report`` for the options.

        Example:
            >>> import tempfile, advect as ad
            >>> data = ad.LabeledDataset([[0.0], [0.1], [5.0], [5.1]], ["a", None, "b", None])
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     ad.apps.label(data).report(f"{folder}/labels.html").name
            'labels.html'
        """
        return write_page("write_label_report", self, path, options)


def label(
    pool: LabeledDataset,
    few: LabeledDataset | None = None,
    *,
    embedding: Embedded = "auto",
    method: str = "auto",
    neighbors: int | None = None,
    alpha: float | None = None,
    seed: int = 0,
    progress: Progress = None,
) -> Labelled:
    """Label a pool of samples from a few labeled ones, and say how sure each label is.

    For one task of which a few samples are labeled and many are not. Labels spread over the graph of
    nearest neighbours of all samples, so that those without a label help too. With a large labeled
    dataset of *another* task use ``ad.apps.transfer``, with a trained model of another task
    ``ad.apps.repurpose``, or its body as ``embedding`` here.

    Known labels are held out in turn, labels of all classes at once. Where there is a choice, that
    whose held-out labels are most probable is taken; the same labels say how many of those given
    should be right (somewhat too many, where there was a choice and they are few), and scale
    probabilities by a temperature. Nothing else is used to choose.

    Args:
        pool: samples without labels, or with some, which are kept.
        few: labeled samples in the same feature space (``ad.harmonize``); samples of it without a
            label take part, and are not returned. None: those of the pool that have labels.
        embedding: where distances are measured. ``"auto"`` compares oriented gradients and principal
            components of images; features as they are and standardized columns of tables. None:
            features; else a torch module, an ONNX file, a transformer or a function, as in
            ``ad.pseudo_labels``.
        method: ``"propagate"`` spreads labels over the graph; ``"refine"`` does it once more over a
            graph where the classes of the surest samples are farther apart; ``"nearest"`` takes the
            label of the nearest labeled sample; ``"logistic"`` fits a logistic regression to the
            labeled ones; ``"auto"`` compares them (refinement up to 10,000 samples).
        neighbors: of each sample in the graph; None compares some numbers.
        alpha: below 1; the nearer to it, the farther labels spread. None compares some.
        seed: of the folds, of large pools' parts that ways are compared on, of a random embedding.
        progress: None shows it on stderr when it takes long, False is silent, a function is called
            with (done, total).

    Raises:
        InputError: fewer than two classes have labels; nothing is unlabeled; other features.

    Example:
        >>> import advect as ad
        >>> pool = ad.datasets.load("moons", n=300)
        >>> known = [label if row % 30 < 2 else None for row, label in enumerate(pool.labels)]
        >>> made = ad.apps.label(ad.LabeledDataset(pool.x, known))
        >>> made
        Labelled(n=300, classes=2, known=20, held out: 100.0% of 20 right)
        >>> made.way.method, float((made.dataset.y == pool.y).double().mean()) > 0.97
        ('propagate', True)
    """
    check_known("method to label", method, ("auto", *METHODS))
    seed = check_count("seed", seed, least=0)
    together, pool = _together(pool, few)
    ways = ways_for(together, embedding, method, neighbors, alpha)
    known = Known(together.y.cpu().numpy(), len(together.classes), seed)
    with track(ways.n_stages + 2, "labeling", progress) as advance:
        way, compared = choose(together, known, ways, seed, advance)
        points = ways.points(way, together, seed)
        advance(1)
        held = held_out(way, points, known)
        calibration = calibrated(held, known.codes[known.held], way.usual_temperature)
        scores = calibration(scored(way, points, known))[: len(pool)]
        advance(1)
    certain = one_hot(known.codes[: len(pool)], known.k)
    had = known.codes[: len(pool)] >= 0
    probabilities = np.where(had[:, None], certain, scores)
    y = torch.as_tensor(probabilities.argmax(axis=1), device=pool.y.device)
    dataset = pool.replace(y=y, classes=together.classes, law=None, law_index=None)
    notes = _notes(calibration, known, together.classes)
    return Labelled(dataset, probabilities, had, way, calibration, compared, notes)


def _together(
    pool: LabeledDataset, few: LabeledDataset | None
) -> tuple[LabeledDataset, LabeledDataset]:
    """Pool and few as one dataset, the pool first, with classes that have labels alone; and the
    pool.
    """
    remedy = "Wrap features as ad.LabeledDataset(x)."
    for name, data in (("pool", pool), ("few", few if few is not None else pool)):
        check_kind(f"{name} must be a LabeledDataset", data, LabeledDataset, remedy)
        data.require_classes("labelling")
    if pool.complete:
        raise InputError(
            "there is nothing to label: every sample of the pool has a label",
            f"{len(pool)} labels",
            "To label it anew, pass it without them: ad.LabeledDataset(pool.samples).",
        )
    parts = [pool] if few is None else [pool, few]
    if few is not None and (
        few.sample_shape != pool.sample_shape
        or (few.columns is not None and pool.columns is not None and few.columns != pool.columns)
    ):
        raise InputError(
            "pool and few must have the same features",
            f"samples of shape {pool.sample_shape} and {few.sample_shape}, or other columns",
            "Bring them together first: pool, few = ad.harmonize(pool, few).",
        )
    names = dict.fromkeys(
        name for part in reversed(parts) for name, count in part.counts.items() if count
    )
    if len(names) < 2:
        raise InputError(
            "labels of at least two classes are needed",
            ", ".join(map(repr, names)) or "none",
            "Label a few samples of each class; ad.pseudo_labels finds clusters without any.",
        )
    places = {name: place for place, name in enumerate(names)}
    codes = [-1 if name is None else places[name] for part in parts for name in part.labels]
    x = torch.cat([part.x.to(pool.x) for part in parts])
    uniform = torch.full((len(x),), 1 / len(x), dtype=pool.weights.dtype, device=x.device)
    together = pool.replace(
        x=x,
        y=torch.tensor(codes, device=x.device),
        classes=tuple(names),
        weights=uniform,
        law=None,
        law_index=None,
    )
    return together, pool


def _notes(
    calibration: Calibration, known: Known, classes: tuple[Hashable, ...]
) -> tuple[str, ...]:
    """What a careful user would want to know."""
    counts = np.bincount(known.codes[known.rows], minlength=known.k)
    single = [str(name) for name, count in zip(classes, counts, strict=True) if count == 1]
    if calibration.accuracy is None or calibration.interval is None:
        return (
            "Each class has one label, so that none can be held out: how many of the given labels "
            "are right cannot be estimated, and probabilities use the temperature that suited other "
            "data. Two labels of each class allow an estimate.",
        )
    low, high = calibration.interval
    notes = [
        f"Of {calibration.n_held_out} known labels, held out in turn, "
        f"{calibration.accuracy:.0%} came out right: expect {low:.0%} to {high:.0%} of the given "
        "labels to be right, if the known ones are like the others."
    ]
    if single:
        some = ", ".join(single[:5]) + (" and others" if len(single) > 5 else "")
        notes.append(f"Nothing is known about how sure these are, of one label each: {some}.")
    if calibration.n_held_out < _FEW:
        notes.append("So few labels make a rough estimate.")
    return tuple(notes)
