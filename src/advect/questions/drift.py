"""Test whether the distribution of the data changed, and in which class."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from advect._util.checks import check_count
from advect._util.progress import Progress, track
from advect.classes.embedding import Embedded, points_of
from advect.cost.ground import check_features
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.questions import permutations as perm
from advect.questions.drift_result import QUESTIONS, ClassDrift, Drift, DriftTest
from advect.questions.shared import check_level, class_codes, class_names, joined_features
from advect.transport.transport import check_dataset

_BANDWIDTHS = (0.5, 0.25)  # of Gaussian kernels, relative to the median distance
_GROUP_SIZE = 10  # of similar samples within which labels are compared
_SECOND_LOOK = 0.1  # p-value below which a class is tested again
_MAX_PERMUTATIONS = 50_000
_MAX_PAIR_CLASSES = 60  # number of classes up to which all pairs are tested


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
    features only. There are five permutation tests, exact if samples are exchangeable:

    - ``joint``: distribution of (x, y). MMD with Gaussian kernels times [y = y'], and the statistics
      of ``labels``; the largest of them, each standardized over permutations.
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
            ``"auto"``: up to 50 principal components of images; standardized columns of tables.
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
    for name, side in (("reference", reference), ("window", window)):
        check_dataset(name, side)
    check_features(reference, window)
    check_level(level)
    least = math.ceil(len(QUESTIONS) / level) - 1
    if check_count("n_permutations", n_permutations) < least:
        what = f"level {level:g} needs at least {least} permutations"
        raise InputError(what, n_permutations, f"Pass n_permutations={least} or more.")
    check_count("max_samples", max_samples, least=2)
    check_count("seed", seed, least=0)
    names = class_names(reference, window)
    codes = np.concatenate([class_codes(side, names) for side in (reference, window)])
    is_window = np.arange(len(codes)) >= len(reference)
    draw = np.random.default_rng([seed, 1])
    rows = _subsample(np.arange(len(codes)), is_window, max_samples, draw)
    labeled_rows = _subsample(np.flatnonzero(codes >= 0), is_window, max_samples, draw)
    labeled_rows = rows if (codes >= 0).all() else labeled_rows
    has_labels = len(np.unique(is_window[labeled_rows])) == 2
    data, rng = joined_features(reference, window), np.random.default_rng(seed)
    if isinstance(embedding, str) and embedding == "auto" and len(data.sample_shape) < 2:
        embedding = "standardized"
    with track(n_permutations * (3 if has_labels else 1), "permutations", progress) as advance:

        def pool_of(rows: np.ndarray) -> _Pool:
            points = points_of(data.subset(rows), embedding, seed)
            sides = points, codes[rows], is_window[rows], names
            return _Pool(*sides, seed, n_permutations, rng, advance)

        pool = pool_of(rows)
        tests = {"features": _test_features(pool)}
        by_class: dict[int, np.ndarray] = {}
        if has_labels:
            pool = pool if labeled_rows is rows else pool_of(labeled_rows)
            tests["joint"], tests["shares"] = _test_joint(pool)
            tests["labels"] = _test_labels(pool)
            tests["classes"], by_class = _test_classes(pool, level)
    asked = [name for name in QUESTIONS if name in tests]
    adjusted = perm.holm([tests[name].p_value for name in asked])
    return Drift(
        tests=tuple(
            replace(tests[name], adjusted=float(value))
            for name, value in zip(asked, adjusted, strict=True)
        ),
        classes=_class_drifts(codes, is_window, names, by_class),
        level=level,
        notes=_notes(reference, window, level, max_samples),
        settings={"permutations": n_permutations, "max_samples": max_samples, "seed": seed},
    )


def _subsample(
    rows: np.ndarray, is_window: np.ndarray, most: int, rng: np.random.Generator
) -> np.ndarray:
    """At most so many rows of each side, in order."""
    sides = [rows[~is_window[rows]], rows[is_window[rows]]]
    return np.concatenate(
        [
            side if len(side) <= most else np.sort(rng.choice(side, most, replace=False))
            for side in sides
        ]
    )


@dataclass(frozen=True)
class _Pool:
    """The samples of both sides that are used in a test, and its permutations."""

    points: np.ndarray
    codes: np.ndarray
    window: np.ndarray
    names: tuple[Hashable, ...]
    seed: int
    n_permutations: int
    rng: np.random.Generator
    advance: Callable[[int], Any]

    def permuted(
        self, measure: Callable[[np.ndarray], np.ndarray], groups: np.ndarray | None = None
    ) -> np.ndarray:
        options = self.n_permutations, self.rng, groups, self.advance
        return perm.permuted(measure, self.window, *options)

    @cached_property
    def distances(self) -> np.ndarray:
        return perm.distances(self.points)

    @cached_property
    def groups(self) -> np.ndarray:
        return perm.strata(self.points, _GROUP_SIZE, self.seed)

    @cached_property
    def group_kernel(self) -> np.ndarray:
        return perm.gaussian(perm.distances(perm.centres(self.points, self.groups)), _BANDWIDTHS[0])

    @cached_property
    def disagreement(self) -> np.ndarray:
        k = len(self.names)
        pairs = np.stack(np.triu_indices(k if k <= _MAX_PAIR_CLASSES else 0, 1), axis=1)
        return perm.label_disagreement(self.distances, self.codes, self.groups, k, pairs)

    def label_changes(self, u: np.ndarray) -> np.ndarray:
        """Differences of labels given features, (2 + pairs, b): a squared distance, large if labels
        are exchanged, and differences of the disagreement, overall and for each pair.
        """
        sums = perm.label_sums(u, self.codes, self.groups, len(self.names))
        squares = perm.label_distance(*sums, self.group_kernel)
        return np.concatenate([squares[None], np.abs(self.disagreement.T @ u)])

    def test(
        self, name: str, statistics: np.ndarray, size: float, p: float | None = None
    ) -> DriftTest:
        """A test from statistics whose first value is the observed one."""
        m = int(self.window.sum())
        excess = _excess(statistics) if len(statistics) > 1 else math.nan
        p = perm.p_value(statistics) if p is None else p
        return DriftTest(name, float(size), excess, p, math.nan, len(self.window) - m, m)


def _excess(statistics: np.ndarray) -> float:
    """Deviations by which the observed statistic exceeds the mean of the permuted ones."""
    return float(perm.standardized(statistics[1:], statistics[:1])[0])


def _test_features(pool: _Pool) -> DriftTest:
    kernels = [-pool.distances, *(perm.gaussian(pool.distances, width) for width in _BANDWIDTHS)]

    def measure(u: np.ndarray) -> np.ndarray:
        return np.stack([perm.quadratic(kernel, u) for kernel in kernels])

    statistics = pool.permuted(measure)
    return pool.test("features", perm.largest([*statistics]), statistics[0, 0])


def _test_joint(pool: _Pool) -> tuple[DriftTest, DriftTest]:
    """The tests of the joint distribution and of the class proportions."""
    same_label = (pool.codes[:, None] == pool.codes[None, :]).astype(float)
    kernels = [perm.gaussian(pool.distances, width) * same_label for width in _BANDWIDTHS]
    counts = np.bincount(pool.codes, minlength=len(pool.names))
    indicator = np.eye(len(pool.names))[pool.codes].T / np.sqrt(counts.clip(1))[:, None]

    def measure(u: np.ndarray) -> np.ndarray:
        sums = perm.without_noise(indicator @ u, 2 * float(indicator.max()))
        shares = np.square(sums).sum(axis=0)  # χ² up to a factor
        joint = [perm.quadratic(kernel, u) for kernel in kernels]
        return np.concatenate([[shares, *joint], pool.label_changes(u)])

    statistics = pool.permuted(measure)
    n, m = (~pool.window).sum(), pool.window.sum()
    chi_square = statistics[0] * n * m
    last = 1 + len(kernels)
    joint = perm.largest([*statistics[1:last], *_with_largest_pair(statistics[last:])])
    shares = pool.test("shares", chi_square, chi_square[0] / (n + m))
    return pool.test("joint", joint, statistics[1, 0]), shares


def _test_labels(pool: _Pool) -> DriftTest:
    statistics = pool.permuted(pool.label_changes, pool.groups)
    return pool.test("labels", perm.largest(_with_largest_pair(statistics)), statistics[0, 0])


def _with_largest_pair(changes: np.ndarray) -> list[np.ndarray]:
    """``label_changes`` with one row for all pairs."""
    return [*changes[:2], *([perm.largest([*changes[2:]])] if len(changes) > 2 else [])]


def _test_classes(pool: _Pool, level: float) -> tuple[DriftTest, dict[int, np.ndarray]]:
    """Each class separately, and the statistics by class. A class with a small p-value is tested again
    with enough permutations for Holm's rule; the second test replaces the first, so either p-value
    is exact.
    """
    enough = math.ceil(2 * len(QUESTIONS) * len(pool.names) / level)
    more = max(pool.n_permutations, min(enough, _MAX_PERMUTATIONS))
    statistics: dict[int, np.ndarray] = {}
    for code in range(len(pool.names)):
        rows = np.flatnonzero(pool.codes == code)
        side = pool.window[rows]
        if perm.n_assignments(len(rows), int(side.sum())) < 1 / level:
            continue  # too few samples for any p-value below the level
        measure = partial(perm.quadratic, -pool.distances[np.ix_(rows, rows)])
        for count in (pool.n_permutations, more):
            statistics[code] = perm.permuted(measure, side, count, pool.rng)
            if perm.p_value(statistics[code]) > _SECOND_LOOK:
                break
    p_values = {code: perm.p_value(values) for code, values in statistics.items()}
    if not statistics:
        return pool.test("classes", np.zeros(1), math.nan, math.nan), {}
    worst = max(statistics, key=lambda code: (-p_values[code], _excess(statistics[code])))
    adjusted = float(perm.holm([*p_values.values()]).min())
    return pool.test("classes", statistics[worst], statistics[worst][0], adjusted), statistics


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


def _notes(
    reference: LabeledDataset, window: LabeledDataset, level: float, most: int
) -> tuple[str, ...]:
    notes: list[str] = []
    sides = {"reference": reference, "window": window}
    for name, side in sides.items():
        n = int(side.labeled.sum())
        if n < len(side):
            notes.append(
                f"{n} of {len(side)} samples of the {name} have labels; the others were used in "
                "the test of the features only. Tests with labels are biased if the labeled "
                "samples are not a random subset."
            )
        if len(side) > most:
            notes.append(f"{most} of {len(side)} samples of the {name} were drawn at random.")
        if float(side.weights.max() - side.weights.min()) > 1e-12:
            notes.append(f"The weights of the {name} were not used.")
    if perm.n_assignments(len(reference) + len(window), len(window)) < len(QUESTIONS) / level:
        notes.append("There are too few samples to find any drift at this level.")
    return tuple(notes)
