"""Test whether the distribution of the data changed, and in which class."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from advect._util import Progress, Result, Table, check_count, refuse_if, track
from advect.classes.embedding import Embedded, points_of
from advect.cost import check_features
from advect.data.dataset import LabeledDataset
from advect.questions import permutations as perm
from advect.questions.permutations import DriftTest
from advect.questions.shared import check_level, class_codes, class_names, joined_features
from advect.spaces.fitting import choose_scale
from advect.transport.transport import check_dataset

QUESTIONS = {
    "features": "P(x) unchanged",
    "shares": "P(y) unchanged",
    "labels": "P(y|x) unchanged",
    "classes": "P(x|y) unchanged",
}


def drift(
    reference: LabeledDataset,
    window: LabeledDataset,
    *,
    level: float = 0.05,
    embedding: Embedded = "auto",
    n_permutations: int = 999,
    max_samples: int = 1500,
    seed: int = 0,
    progress: Progress = None,
) -> Drift:
    """Test whether a window of data has the distribution of a reference, and which class changed.

    Use it for data that arrives in windows. Samples without a label are used in the test of the
    features only. There are four permutation tests, exact if samples are exchangeable:

    - ``features``: distribution of x. Energy distance and MMD.
    - ``shares``: class proportions. χ² statistic.
    - ``labels``: y given x. Differences of labels within groups of similar samples, and disagreement
      of labels with those of their neighbours. Permutations within groups: exact if nothing changed,
      nearly so if only x did.
    - ``classes``: x within a class. Energy distance of each class, Holm's rule over classes.

    p-values are adjusted by Holm's rule over the tests, so ``drifted`` is wrong with a probability of
    at most ``level`` if nothing changed. Samples that depend on one another have too small p-values.
    For k successive windows, pass ``level=0.05 / k`` (Bonferroni) and as many permutations as it needs.
    Use ``ad.otdd`` for the distance of two datasets.

    Args:
        reference: the dataset to compare with; labels may be missing.
        window: as many or fewer samples; labels may be missing.
        level: probability of finding a drift if there is none.
        embedding: representation in which distances are computed, as in ``ad.pseudo_labels``.
            ``"auto"``: up to 50 principal components, of standardized columns if these have different
            units (``harmonize(scale="auto")``).
        n_permutations: number of permutations of each test.
        max_samples: maximal number of samples of each side; more are subsampled.
        seed: seed of permutations and subsamples.
        progress: None shows slow progress, False is silent, a function gets (done, total).

    Example:
        >>> import torch, advect as ad
        >>> digits = ad.datasets.load("digits", n=600)
        >>> before, after = digits.split(0.5, generator=torch.Generator().manual_seed(0))
        >>> ad.drift(before, after).drifted
        False
        >>> y = torch.where(after.y == 3, 5, torch.where(after.y == 5, 3, after.y))
        >>> result = ad.drift(before, after.replace(y=y))
        >>> result.drifted, result.changed_classes
        (True, (3, 5))
    """
    sides = {"reference": reference, "window": window}
    check_features(*(check_dataset(name, side) for name, side in sides.items()))
    check_level(level)
    least = math.ceil(len(QUESTIONS) / level) - 1
    refuse_if(
        check_count("n_permutations", n_permutations) < least,
        f"level {level:g} needs at least {least} permutations",
        n_permutations,
        f"Pass n_permutations={least} or more.",
    )
    check_count("max_samples", max_samples, least=2)
    check_count("seed", seed, least=0)
    names = class_names(reference, window)
    codes = np.concatenate([class_codes(side, names) for side in sides.values()])
    is_window = np.arange(len(codes)) >= len(reference)
    draw = np.random.default_rng([seed, 1])
    rows = _subsample(np.arange(len(codes)), is_window, max_samples, draw)
    labeled_rows = _subsample(np.flatnonzero(codes >= 0), is_window, max_samples, draw)
    labeled_rows = rows if (codes >= 0).all() else labeled_rows
    has_labels = len(np.unique(is_window[labeled_rows])) == 2
    data, rng = joined_features(reference, window), np.random.default_rng(seed)
    scale, reason = "none", "an embedding was given"
    if embedding == "auto":
        scale, reason = choose_scale([data.x], data.sample_shape)
        embedding = "standardized" if scale == "pooled" else "auto"
    with track(n_permutations * (3 if has_labels else 1), "permutations", progress) as advance:

        def pool_of(rows: np.ndarray) -> perm.Pool:
            points = points_of(data.subset(rows), embedding, seed)
            side = points, codes[rows], is_window[rows], len(names)
            return perm.Pool(*side, seed, n_permutations, rng, advance)

        pool, by_class = pool_of(rows), {}
        tests = {"features": pool.test_features()}
        if has_labels:
            pool = pool if labeled_rows is rows else pool_of(labeled_rows)
            tests["shares"] = pool.test_shares()
            tests["labels"] = pool.test_labels()
            enough = math.ceil(2 * len(QUESTIONS) * len(names) / level)
            tests["classes"], by_class = pool.test_classes(level, enough)
    asked = [tests[name] for name in QUESTIONS if name in tests]
    adjusted = perm.holm([test.p_value for test in asked]).tolist()
    return Drift(
        tests=tuple(replace(test, adjusted=p) for test, p in zip(asked, adjusted, strict=True)),
        classes=_class_drifts(codes, is_window, names, by_class),
        level=level,
        notes=_notes(sides, level, max_samples),
        settings={"permutations": n_permutations, "max_samples": max_samples, "seed": seed}
        | {"scale": f"{scale} ({reason})"},
    )


def _subsample(
    rows: np.ndarray, is_window: np.ndarray, most: int, rng: np.random.Generator
) -> np.ndarray:
    """At most so many rows of each side, in order."""
    sides = rows[~is_window[rows]], rows[is_window[rows]]
    draws = [s if len(s) <= most else np.sort(rng.choice(s, most, replace=False)) for s in sides]
    return np.concatenate(draws)


def _class_drifts(
    codes: np.ndarray,
    is_window: np.ndarray,
    names: tuple[Hashable, ...],
    statistics: dict[int, np.ndarray],
) -> tuple[ClassDrift, ...]:
    from scipy.stats import fisher_exact

    k = len(names)
    masks = (codes >= 0) & ~is_window, (codes >= 0) & is_window
    counts = np.stack([np.bincount(codes[mask], minlength=k) for mask in masks])
    totals = counts.sum(axis=1)
    shares = counts / totals.clip(1)[:, None]
    share_p = np.full(k, math.nan)
    if totals.all():
        tables = [np.stack([counts[:, code], totals - counts[:, code]]) for code in range(k)]
        share_p = np.array([np.asarray(fisher_exact(table))[1] for table in tables])
    p, size = np.full((2, k), math.nan)
    for code, values in statistics.items():
        p[code], size[code] = perm.p_value(values), values[0]
    columns = (*counts, *shares, share_p, perm.holm(share_p), size, p, perm.holm(p))
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return tuple(ClassDrift(name, *row) for name, row in zip(names, rows, strict=True))


def _notes(sides: Mapping[str, LabeledDataset], level: float, most: int) -> tuple[str, ...]:
    notes = []
    for name, side in sides.items():
        labeled = f"{int(side.labeled.sum())} of {len(side)} samples of the {name} have labels"
        uneven = float(side.weights.max() - side.weights.min()) > 1e-12
        conditions = {
            f"{labeled}; the others were used in the test of the features only. Tests with labels "
            "are biased unless the labeled samples are a random subset.": not side.labeled.all(),
            f"{most} of {len(side)} samples of the {name} were drawn at random.": len(side) > most,
            f"The weights of the {name} were not used.": uneven,
        }
        notes += [text for text, holds in conditions.items() if holds]
    n, m = map(len, sides.values())
    if perm.n_assignments(n + m, m) < len(QUESTIONS) / level:
        notes.append("There are too few samples to detect any drift at this level.")
    return tuple(notes)


@dataclass(frozen=True)
class ClassDrift:
    """A class on both sides: numbers of labeled samples, proportions (Fisher's exact test), and the
    test of the features, whose statistic is the energy distance divided by the median distance of
    samples. ``adjusted`` p-values are by Holm's rule over the classes; NaN if there are too few
    samples.
    """

    name: Hashable
    n_reference: int
    n_window: int
    share_reference: float
    share_window: float
    share_p_value: float
    share_adjusted: float
    statistic: float
    p_value: float
    adjusted: float


@dataclass(frozen=True, eq=False, repr=False)
class Drift(Result):
    """Tests of a window against a reference; returned by ``ad.drift``.

    Attributes:
        tests: the tests; ``result["features"]`` is one of them.
        classes: a row for each class.
        level: probability that any test finds a drift if there is none.

    Example:
        >>> import advect as ad
        >>> reference = ad.datasets.load("toy:gaussians?n=150&seed=0")
        >>> window = ad.datasets.load("toy:gaussians?n=150&seed=1&shift=3,0")
        >>> result = ad.drift(reference, window)
        >>> result.drifted, result["features"].p_value
        (True, 0.001)
    """

    title = "Drift"
    tests: tuple[DriftTest, ...]
    classes: tuple[ClassDrift, ...]
    level: float
    notes: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> DriftTest:
        return {test.name: test for test in self.tests}[name]

    @property
    def drifted(self) -> bool:
        """Whether any test finds a drift at the level."""
        return bool(self.found)

    @property
    def found(self) -> tuple[str, ...]:
        """Names of the tests that find a drift."""
        return tuple(test.name for test in self.tests if test.adjusted <= self.level)

    @property
    def changed_classes(self) -> tuple[Hashable, ...]:
        """Classes whose features changed; none without drift."""
        rows = self.classes if self.drifted else ()
        return tuple(row.name for row in rows if row.adjusted <= self.level)

    @property
    def changed_shares(self) -> tuple[Hashable, ...]:
        """Classes whose proportion changed; none without drift."""
        rows = self.classes if self.drifted else ()
        return tuple(row.name for row in rows if row.share_adjusted <= self.level)

    def _summary(self) -> dict[str, Any]:
        return {
            "drifted": self.drifted,
            "level": self.level,
            "found": self.found,
            "scale": self.settings.get("scale"),
            "changed_classes": self.changed_classes,
            "changed_shares": self.changed_shares,
        }

    def _tables(self) -> list[Table]:
        tests = [[*vars(test).values(), QUESTIONS[test.name]] for test in self.tests]
        heads = [*(column.name for column in fields(DriftTest)), "null hypothesis"]
        columns = [column.name for column in fields(ClassDrift)]
        rows = [list(vars(row).values()) for row in self.classes]
        return [Table("tests", heads, tests), *([Table("classes", columns, rows)] if rows else [])]
