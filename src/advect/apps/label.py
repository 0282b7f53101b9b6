"""Label a pool of samples from a few labeled ones, with calibrated probabilities."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from advect._util import Progress, Result, Table, check_count, check_known, refuse_if, track
from advect.apps.label_methods import (
    METHODS,
    Calibration,
    Candidate,
    Comparison,
    KnownLabels,
    LabelMethod,
    all_scores,
    calibrated,
    choose_method,
    embeddings_to_compare,
    held_out_scores,
    part_to_compare,
)
from advect.apps.training import check_one_space, joined, renamed, sample_figures
from advect.classes.embedding import Embedded
from advect.classes.pseudo import one_hot
from advect.data import LabeledDataset, require_classes
from advect.data.coerce import as_probabilities
from advect.data.size import refuse_large
from advect.spaces.steps import listed
from advect.transport.transport import check_dataset

_FEW = 20  # held-out labels below which their accuracy is a rough estimate


@dataclass(frozen=True, eq=False)
class LabeledPool(Result):
    """A labeled pool, of ``ad.apps.label``.

    Attributes:
        dataset: the pool with a label for each sample; labels that it had are kept.
        probabilities: of each class, (n, k).
        known: which samples had a label, (n,) bool.
        method: how the others were labeled.
        calibration: how reliable probabilities are, on held-out labels.
        compared: the methods that were compared, the chosen one first.
    """

    title = "Labels of a pool"
    dataset: LabeledDataset
    probabilities: np.ndarray
    known: np.ndarray
    method: LabelMethod
    calibration: Calibration
    compared: tuple[Candidate, ...] = ()
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.dataset)

    def _summary(self) -> dict[str, Any]:
        return {
            "samples": len(self),
            "known labels": int(self.known.sum()),
            "method": str(self.method),
            "held-out labels": self.calibration.n_held_out,
            "accuracy on held-out labels": self.accuracy,
        }

    def _tables(self) -> list[Table]:
        rows, codes = [], self.dataset.y.cpu().numpy()
        for code, name in enumerate(self.dataset.classes):
            members = codes == code
            mean = float(self.confidence[members].mean()) if members.any() else None
            rows.append([str(name), int(members.sum()), int((members & self.known).sum()), mean])
        classes = Table("Classes", ("class", "samples", "known", "mean confidence"), rows)
        compared = [[str(c.method), c.accuracy, c.log_likelihood] for c in self.compared]
        columns = ("method", "accuracy", "mean log-likelihood")
        methods = Table("Methods on held-out labels", columns, compared)
        return [classes, methods] if compared else [classes]

    def figures(self) -> dict[str, Any]:
        unsure = self.dataset.subset(torch.as_tensor(self.unsure(10)))
        return sample_figures("Samples to label next", [unsure], ["sample"]) if len(unsure) else {}

    @property
    def labels(self) -> list[Hashable]:
        """The class name of each sample."""
        return self.dataset.labels

    @property
    def confidence(self) -> np.ndarray:
        """The probability of each sample's label, (n,); 1 for known labels."""
        codes = self.dataset.y.cpu().numpy()
        return self.probabilities[np.arange(len(codes)), codes]

    @property
    def accuracy(self) -> float | None:
        """The estimated accuracy of the labels, on held-out ones; None if none could be held out."""
        return self.calibration.accuracy

    def soft(self) -> LabeledDataset:
        """The pool with soft labels, for distances and flows that take uncertainty into account."""
        soft_labels = as_probabilities(self.probabilities, self.dataset.x)
        return self.dataset.replace(y=self.dataset.y, probabilities=soft_labels)

    def unsure(self, n: int = 20) -> np.ndarray:
        """Positions of up to n samples to label next, by the margin of the two most probable classes."""
        ordered = np.sort(self.probabilities, axis=1)
        margin = np.where(self.known, np.inf, ordered[:, -1] - ordered[:, -2])
        order = np.argsort(margin, kind="stable")
        return order[: min(check_count("n", n), int((~self.known).sum()))]


def label(
    pool: LabeledDataset,
    few: LabeledDataset | None = None,
    *,
    embedding: Embedded = "auto",
    method: str = "auto",
    max_samples: int | None = None,
    seed: int = 0,
    progress: Progress = None,
) -> LabeledPool:
    """Label a pool of samples from a few labeled ones, with calibrated probabilities.

    Labels spread over the graph of nearest neighbours of all samples. Known labels are held out in
    turn: they choose the method with the highest likelihood, fit the temperature of the probabilities,
    and estimate the accuracy. Use ``ad.apps.transfer`` with a large labeled dataset of *another* task,
    and ``ad.apps.repurpose`` with a trained model of another task.

    Args:
        pool: samples without labels, or with some, which are kept.
        few: labeled samples in the same feature space (``ad.harmonize``); None for those of the pool
            that have labels. Unlabeled samples of it take part, and are not returned.
        embedding: where distances are measured. ``"auto"``: oriented gradients of images; of
            tables, raw and standardized columns are compared. None: the features;
            otherwise as for ``ad.pseudo_labels``.
        method: ``"propagate"`` spreads labels over the graph; ``"refine"`` does so once more over a
            graph with separated classes; ``"auto"`` compares both.
        max_samples: largest size of a pool, above which an error is raised at once; by default what
            takes about a minute.
        seed: seed for the folds and for sampling.
        progress: None shows long runs on stderr, False is silent, a function gets (done, total).

    Example:
        >>> import advect as ad
        >>> pool = ad.datasets.load("moons", n=300)
        >>> known = [label if row % 30 < 2 else None for row, label in enumerate(pool.labels)]
        >>> made = ad.apps.label(ad.LabeledDataset(pool.x, known))
        >>> made.accuracy, made.method.method, len(made)
        (1.0, 'propagate', 300)
    """
    check_known("method", method, ("auto", *METHODS))
    seed = check_count("seed", seed, least=0)
    together = _together(pool, few)
    refuse_large("labeling", [len(pool)], "search", max_samples)
    codes, k = together.y.cpu().numpy(), len(together.classes)
    known, embeddings = KnownLabels(codes, k, seed), embeddings_to_compare(together, embedding)
    with track(len(embeddings) + 3, "labeling", progress) as advance:
        comparison = Comparison(*part_to_compare(together, known), embeddings)
        chosen, compared = choose_method(comparison, method, len(together), advance)
        if comparison.data is not together:
            comparison = Comparison(together, known, embeddings)
        points = comparison.points(chosen.embedding)
        advance(1)
        held_out = held_out_scores(chosen, points, known)
        calibration = calibrated(held_out, codes[known.held_out], chosen.prior_temperature)
        scores = calibration(all_scores(chosen, points, codes, k))[: len(pool)]
        advance(1)
    codes = codes[: len(pool)]
    labeled = codes >= 0
    probabilities = np.where(labeled[:, None], one_hot(codes, k), scores)
    y = torch.as_tensor(probabilities.argmax(axis=1), device=pool.y.device)
    dataset = pool.replace(y=y, classes=together.classes, law=None, law_index=None)
    notes = _notes(calibration, known, together.classes)
    return LabeledPool(dataset, probabilities, labeled, chosen, calibration, compared, notes)


def _together(pool: LabeledDataset, few: LabeledDataset | None) -> LabeledDataset:
    """Pool and few as one dataset, the pool first, with those classes that have labels."""
    parts = [pool] if few is None else [pool, few]
    for name, data in zip(("pool", "few"), parts, strict=False):
        require_classes(check_dataset(name, data), "label")
    check_one_space("pool", pool, parts[-1])
    refuse_if(
        bool(pool.labeled.all()),
        "nothing to label in the pool",
        f"{len(pool)} labels",
        "Pass ad.LabeledDataset(pool.samples), or --relabel in a shell.",
    )
    names = dict.fromkeys(
        name for part in reversed(parts) for name, count in part.counts.items() if count
    )
    refuse_if(
        len(names) <= 1,
        "labels of at least two classes are needed",
        ", ".join(map(repr, names)) or "none",
        "Label a few samples of each class; ad.pseudo_labels needs no labels.",
    )
    return joined([renamed(part, {name: name for name in names}, tuple(names)) for part in parts])


def _notes(
    calibration: Calibration, known: KnownLabels, classes: tuple[Hashable, ...]
) -> tuple[str, ...]:
    if calibration.accuracy is None or calibration.interval is None:
        return (
            "Each class has only one label, so no label can be held out. The accuracy is unknown, and "
            "probabilities are not calibrated on this data. Label two samples of each class.",
        )
    low, high = calibration.interval
    rough = " (a rough estimate)" if calibration.n_held_out < _FEW else ""
    notes = [
        f"{calibration.accuracy:.0%} of {calibration.n_held_out} held-out labels were predicted "
        f"correctly. If samples with known labels are typical, {low:.0%} to {high:.0%} of the new "
        f"labels are correct{rough}."
    ]
    counts = one_hot(known.codes, known.k).sum(axis=0)
    single = [name for name, count in zip(classes, counts, strict=True) if count == 1]
    if single:
        notes.append(f"The accuracy is unknown for classes with one label: {listed(single)}.")
    return tuple(notes)
