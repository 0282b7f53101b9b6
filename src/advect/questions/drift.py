"""Test whether the distribution of the data changed, and in which class."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

from advect._util.checks import check_count, check_positive
from advect._util.progress import Progress, track
from advect.classes.embedding import Embedded, points_of
from advect.cost.ground import check_features
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.questions import permutations as perm
from advect.questions.drift_result import QUESTIONS, ClassDrift, Drift, DriftTest, Trade
from advect.transport.transport import check_dataset

_BANDWIDTHS = (0.5, 0.25)  # of Gaussian kernels, relative to the median distance
_GROUP_SIZE = 10  # of similar samples within which labels are compared
_SECOND_LOOK = 0.1  # p-value below which a class is tested again
_MAX_PERMUTATIONS = 50_000
_MAX_PAIR_CLASSES = 60  # number of classes up to which all pairs are tested
_N_NEIGHBORS = 5  # that give the label of the reference at a sample


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
    Use ``ad.otdd`` for the distance of two datasets, and ``ad.DriftMonitor`` for successive windows.

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
        >>> result.drifted, [(pair.first, pair.second) for pair in result.traded]
        (True, [(3, 5)])
    """
    for name, side in (("reference", reference), ("window", window)):
        check_dataset(name, side)
    if reference.sample_shape != window.sample_shape:
        shapes = f"{reference.sample_shape} and {window.sample_shape}"
        remedy = "Use ad.harmonize(reference, window) first."
        raise InputError("reference and window must have the same sample shape", shapes, remedy)
    check_features(reference, window)
    if check_positive("level", level) >= 1:
        raise InputError("level must be below 1", level, "Pass 0.05, for instance.")
    least = math.ceil(len(QUESTIONS) / level) - 1
    if check_count("n_permutations", n_permutations) < least:
        what = f"level {level:g} needs at least {least} permutations"
        raise InputError(what, n_permutations, f"Pass n_permutations={least} or more.")
    check_count("max_samples", max_samples, least=2)
    sides = _Sides.of(reference, window, max_samples, check_count("seed", seed, least=0))
    rng = np.random.default_rng(seed)
    n_rounds = n_permutations * (3 if sides.has_labels else 1)
    with track(n_rounds, "permutations", progress) as advance:
        rounds = _Rounds(n_permutations, rng, advance)
        pool = _Pool.of(sides, sides.rows, embedding, seed, rounds)
        tests = {"features": _test_features(pool)}
        classes, trades = _class_drifts(sides, {}, None), ()
        if sides.has_labels:
            if sides.labeled_rows is not sides.rows:
                pool = _Pool.of(sides, sides.labeled_rows, embedding, seed, rounds)
            tests["joint"], tests["shares"] = _test_joint(pool)
            tests["labels"], trades = _test_labels(pool)
            tests["classes"], classes = _test_classes(pool, sides, level)
    names = [name for name in QUESTIONS if name in tests]
    adjusted = perm.holm([tests[name].p_value for name in names])
    return Drift(
        tests=tuple(
            replace(tests[name], adjusted=float(value))
            for name, value in zip(names, adjusted, strict=True)
        ),
        classes=classes,
        trades=trades,
        level=level,
        reference=reference,
        window=window,
        caveats=_caveats(reference, window, sides.subsampled, max_samples, level),
        settings={"permutations": n_permutations, "max_samples": max_samples, "seed": seed},
    )


class _Rounds(NamedTuple):
    """Number of permutations, random generator, and progress."""

    n_permutations: int
    rng: np.random.Generator
    advance: Callable[[int], Any]


@dataclass(frozen=True)
class _Sides:
    """Both datasets with common class codes (−1 without a label), and the rows used in tests."""

    data: LabeledDataset  # features of the reference, then of the window
    codes: np.ndarray
    is_window: np.ndarray
    names: tuple[Hashable, ...]
    rows: np.ndarray
    labeled_rows: np.ndarray
    subsampled: bool

    @classmethod
    def of(
        cls, reference: LabeledDataset, window: LabeledDataset, max_samples: int, seed: int
    ) -> _Sides:
        names = tuple(dict.fromkeys([*reference.classes, *window.classes]))
        position = {name: code for code, name in enumerate(names)}
        parts = []
        for side in (reference, window):
            places = np.array([*(position[name] for name in side.classes), -1])
            parts.append(places[side.y.cpu().numpy()])
        codes = np.concatenate(parts)
        used = [code for code in range(len(names)) if (codes == code).any()]
        codes = np.where(codes < 0, -1, np.searchsorted(used, codes)) if used else codes
        is_window = np.arange(len(codes)) >= len(reference)
        rng = np.random.default_rng([seed, 1])
        rows, cut = _subsample(np.arange(len(codes)), is_window, max_samples, rng)
        labeled, cut_labeled = _subsample(np.flatnonzero(codes >= 0), is_window, max_samples, rng)
        labeled = rows if (codes >= 0).all() else labeled
        device = reference.x.device
        x = torch.cat([reference.x.detach().double(), window.x.detach().double().to(device)])
        even = torch.full((len(x),), 1 / len(x), dtype=torch.float64, device=device)
        y = torch.full((len(x),), -1, device=device)
        data = reference.replace(x=x, y=y, weights=even, law=None, law_index=None)
        kept = tuple(names[code] for code in used)
        return cls(data, codes, is_window, kept, rows, labeled, cut or cut_labeled)

    @property
    def has_labels(self) -> bool:
        """Whether both sides have labels."""
        sides = self.is_window[self.labeled_rows]
        return bool(sides.any() and not sides.all())


def _subsample(
    rows: np.ndarray, is_window: np.ndarray, most: int, rng: np.random.Generator
) -> tuple[np.ndarray, bool]:
    """At most so many rows of each side, in order, and whether rows were left out."""
    parts = [rows[~is_window[rows]], rows[is_window[rows]]]
    chosen = [
        part if len(part) <= most else np.sort(rng.choice(part, most, replace=False))
        for part in parts
    ]
    return np.concatenate(chosen), any(len(part) > most for part in parts)


@dataclass(frozen=True)
class _Pool:
    """The samples of both sides that are used in a test."""

    points: np.ndarray
    distances: np.ndarray
    codes: np.ndarray
    window: np.ndarray
    names: tuple[Hashable, ...]
    seed: int
    rounds: _Rounds

    @classmethod
    def of(
        cls, sides: _Sides, rows: np.ndarray, embedding: Embedded, seed: int, rounds: _Rounds
    ) -> _Pool:
        data = sides.data.subset(torch.as_tensor(rows, device=sides.data.x.device))
        is_auto = isinstance(embedding, str) and embedding == "auto"
        if is_auto and len(data.sample_shape) < 2:
            embedding = "standardized"
        points = points_of(data, embedding, seed)
        codes, window = sides.codes[rows], sides.is_window[rows]
        return cls(points, perm.distances(points), codes, window, sides.names, seed, rounds)

    def permuted(
        self, measure: Callable[[np.ndarray], np.ndarray], groups: np.ndarray | None = None
    ) -> np.ndarray:
        n, rng, advance = self.rounds
        return perm.permuted(measure, self.window, n, rng, groups, advance)

    @cached_property
    def groups(self) -> np.ndarray:
        return perm.strata(self.points, _GROUP_SIZE, self.seed)

    @cached_property
    def group_kernel(self) -> np.ndarray:
        return perm.gaussian(perm.distances(perm.centres(self.points, self.groups)), _BANDWIDTHS[0])

    @cached_property
    def pairs(self) -> np.ndarray:
        """Pairs of labels, (pairs, 2); none if there are many classes."""
        k = len(self.names)
        return np.stack(np.triu_indices(k if k <= _MAX_PAIR_CLASSES else 0, 1), axis=1)

    @cached_property
    def disagreement(self) -> np.ndarray:
        k = len(self.names)
        return perm.label_disagreement(self.distances, self.codes, self.groups, k, self.pairs)

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
        sizes = len(self.window) - m, m
        return DriftTest(name, float(size), excess, p, math.nan, *sizes, statistics[1:])


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


def _test_labels(pool: _Pool) -> tuple[DriftTest, tuple[Trade, ...]]:
    def measure(u: np.ndarray) -> np.ndarray:
        sums = perm.label_sums(u, pool.codes, pool.groups, len(pool.names))
        pairs = perm.pair_distances(*sums, pool.group_kernel, pool.pairs)
        return np.concatenate([pool.label_changes(u), pairs])

    statistics = pool.permuted(measure, pool.groups)
    first = 2 + len(pool.pairs)
    changes = perm.largest(_with_largest_pair(statistics[:first]))
    return pool.test("labels", changes, statistics[0, 0]), _trades(pool, statistics[first:])


def _with_largest_pair(changes: np.ndarray) -> list[np.ndarray]:
    """``label_changes`` with one row for all pairs."""
    return [*changes[:2], *([perm.largest([*changes[2:]])] if len(changes) > 2 else [])]


def _test_classes(
    pool: _Pool, sides: _Sides, level: float
) -> tuple[DriftTest, tuple[ClassDrift, ...]]:
    """Each class separately. A class with a small p-value is tested again with enough permutations
    for Holm's rule; the second test replaces the first, so either p-value is exact.
    """
    n_permutations, rng, _ = pool.rounds
    needed = math.ceil(2 * len(QUESTIONS) * len(pool.names) / level)
    more = min(max(n_permutations, needed), max(n_permutations, _MAX_PERMUTATIONS))
    statistics: dict[int, np.ndarray] = {}
    for code in range(len(pool.names)):
        rows = np.flatnonzero(pool.codes == code)
        side = pool.window[rows]
        if perm.n_assignments(len(rows), int(side.sum())) < 1 / level:
            continue  # too few samples for any p-value below the level
        kernel = -pool.distances[np.ix_(rows, rows)]
        for count in (n_permutations, more):
            statistics[code] = perm.permuted(
                lambda u, kernel=kernel: perm.quadratic(kernel, u), side, count, rng
            )
            if perm.p_value(statistics[code]) > _SECOND_LOOK:
                break
    p = {code: perm.p_value(each) for code, each in statistics.items()}
    classes = _class_drifts(sides, p, pool)
    if not statistics:
        return pool.test("classes", np.zeros(1), math.nan, math.nan), classes
    worst = max(statistics, key=lambda code: (-p[code], _excess(statistics[code])))
    adjusted = min(one.adjusted for one in classes if not math.isnan(one.adjusted))
    return pool.test("classes", statistics[worst], statistics[worst][0], adjusted), classes


def _class_drifts(
    sides: _Sides, p_values: Mapping[int, float], pool: _Pool | None
) -> tuple[ClassDrift, ...]:
    from scipy.stats import fisher_exact

    k, labeled = len(sides.names), sides.codes >= 0
    masks = labeled & ~sides.is_window, labeled & sides.is_window
    counts = np.stack([np.bincount(sides.codes[mask], minlength=k) for mask in masks])
    totals = counts.sum(axis=1)
    share_p = [math.nan] * k
    if totals.all():
        tables = [np.stack([counts[:, code], totals - counts[:, code]]) for code in range(k)]
        share_p = [float(np.asarray(fisher_exact(table))[1]) for table in tables]
    p = [p_values.get(code, math.nan) for code in range(k)]
    share_adjusted, adjusted = perm.holm(share_p), perm.holm(p)
    return tuple(
        ClassDrift(
            sides.names[code],
            n_reference=int(counts[0, code]),
            n_window=int(counts[1, code]),
            share_reference=int(counts[0, code]) / max(int(totals[0]), 1),
            share_window=int(counts[1, code]) / max(int(totals[1]), 1),
            share_p_value=share_p[code],
            share_adjusted=float(share_adjusted[code]),
            shift=math.nan if pool is None else _shift(pool, code),
            p_value=p[code],
            adjusted=float(adjusted[code]),
        )
        for code in range(k)
    )


def _shift(pool: _Pool, code: int) -> float:
    """Distance of the class means divided by the deviation of the class along it."""
    mine = pool.codes == code
    one, other = pool.points[mine & ~pool.window], pool.points[mine & pool.window]
    if not len(one) or not len(other):
        return math.nan
    step = other.mean(axis=0) - one.mean(axis=0)
    size = float(np.linalg.norm(step))
    if size == 0:
        return 0.0
    along = [part @ (step / size) for part in (one, other)]
    squares = sum(float(np.square(part - part.mean()).sum()) for part in along)
    deviation = math.sqrt(squares / max(len(one) + len(other) - 2, 1))
    return size / deviation if deviation > 1e-12 * size else math.nan


def _trades(pool: _Pool, statistics: np.ndarray) -> tuple[Trade, ...]:
    """Pairs of classes by p-value, from statistics (pairs, 1 + B)."""
    p_values = perm.p_values_of_largest(statistics)
    # the label of most of the nearest samples of the reference, other than the sample itself
    known = np.flatnonzero(~pool.window)
    to = pool.distances[:, known].copy()
    to[known, np.arange(len(known))] = np.inf
    k = min(_N_NEIGHBORS, max(len(known) - 1, 1))
    order = np.argsort(to, axis=1, kind="stable")[:, :k]
    rows = np.arange(len(pool.codes))
    votes = np.zeros((len(rows), int(pool.codes.max()) + 1))
    for column in range(k):
        votes[rows, pool.codes[known[order[:, column]]]] += 1 + 1e-3 * (k - column)
    place = votes.argmax(axis=1)

    def share(side: np.ndarray, a: int, b: int) -> float:
        """Share labeled b among samples of a side where the reference has a."""
        chosen = side & (place == a) & ((pool.codes == a) | (pool.codes == b))
        return float((pool.codes[chosen] == b).mean()) if chosen.any() else math.nan

    trades = []
    for index in np.argsort(p_values, kind="stable"):
        a, b = pool.pairs[index]
        both = (pool.window, ~pool.window)
        shares = [share(side, *pair) for pair in ((a, b), (b, a)) for side in both]
        trades.append(Trade(pool.names[a], pool.names[b], float(p_values[index]), *shares))
    return tuple(trades)


def _caveats(
    reference: LabeledDataset, window: LabeledDataset, subsampled: bool, most: int, level: float
) -> tuple[str, ...]:
    notes: list[str] = []
    sides = {"reference": reference, "window": window}
    n, m = (int(side.labeled.sum()) for side in sides.values())
    if not m or not n:
        which = "window" if n else "reference" if m else "data"
        notes.append(f"Only the features were tested, because the {which} has no labels.")
    elif m < len(window) or n < len(reference):
        notes.append(
            f"{m} of {len(window)} samples of the window and {n} of {len(reference)} of the "
            "reference have labels; the others were used in the test of the features only. Tests "
            "with labels are biased if the labeled samples are not a random subset."
        )
    if subsampled:
        notes.append(f"Sides with more than {most} samples were subsampled.")
    for name, side in sides.items():
        if float(side.weights.max() - side.weights.min()) > 1e-12:
            notes.append(f"The weights of the {name} were not used.")
    if perm.n_assignments(len(reference) + len(window), len(window)) < len(QUESTIONS) / level:
        notes.append("There are too few samples to find any drift at this level.")
    return tuple(notes)
