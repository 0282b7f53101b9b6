"""Did the law of the data change, and in which class: ``ad.drift``."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from advect._util.checks import check_count, check_kind, check_positive
from advect._util.progress import Progress, track
from advect.classes.embedding import Embedded, points_of
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.questions.drift_classes import class_drifts, trades_of
from advect.questions.drift_kernels import (
    BANDWIDTHS,
    centres,
    disagreement,
    distances,
    gaussian,
    same_class,
    strata,
)
from advect.questions.drift_permutations import (
    above_mean,
    holm,
    label_counts,
    labels_apart,
    largest,
    p_value,
    pairs_apart,
    permuted,
    quadratic,
    settled,
    ways,
)
from advect.questions.drift_result import QUESTIONS, ClassDrift, Drift, DriftTest, Trade

GROUP = 10  # samples of a group within which labels are compared
_SUSPECT = 0.1  # p-values above which a class is not looked at again
_MOST_PERMUTATIONS = 50_000
MOST_TRADING = 60  # classes up to which all pairs are looked at


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
    """Whether a window of data still has the law P(x, y) of a reference, and which class changed.

    For data that comes in windows (a day, a batch) while a model stays as it is. Labels may be late:
    samples without one take part in the test of the features, and only there. Five questions are
    asked, each with a permutation test, whose p-value is exact where samples are exchangeable under
    the null hypothesis, that is independent draws of one law:

    - ``joint``: did the law of (x, y) change? MMD with Gaussian kernels of x times [y = y'], and the
      statistics of ``labels``; the largest, each in units of its deviation over permutations.
    - ``features``: did the law of x change? Energy distance and MMD, over all samples.
    - ``shares``: did the frequencies of classes change? The χ² statistic.
    - ``labels``: did y change, given x? How labels differ within groups of like samples, and how
      often they disagree with those of their neighbours, in all and for each pair. Sides change only
      within groups: exact where nothing changed, and nearly so where only x did.
    - ``classes``: did x change within some class? The energy distance of each class, sides changing
      within the class; Holm's rule over classes.

    p-values are adjusted by Holm's rule over these five, so that ``drifted`` is wrong with a chance
    of at most ``level`` where nothing changed. Which classes changed, and which trade places, is
    said only then. Samples that depend on their neighbours in time are not exchangeable: p-values
    are then too small.

    Use ``ad.otdd`` to know *how far* two datasets are, and ``ad.DriftMonitor`` for windows that come
    one after the other.

    Args:
        reference: what the window is compared with; labels may be missing.
        window: as many or fewer samples; labels may be missing, all of them too.
        level: the chance of finding a drift where there is none.
        embedding: where distances are measured, as in ``ad.pseudo_labels``. ``"auto"``: up to 50
            principal components of images; tables with each column standardized. What is fitted is
            fitted to both sides together.
        n_permutations: of each test; those of classes have as many as Holm's rule needs, or more.
        max_samples: of each side; more are drawn from at random, which a note says.
        seed: of permutations and draws: the same seed gives the same answer.
        progress: None shows it on stderr when it takes long, False is silent, a function is called
            with (done, total).

    Raises:
        InputError: samples of other shapes; too few permutations for the level.

    Example:
        >>> import torch, advect as ad
        >>> digits = ad.datasets.load("digits", n=600)
        >>> before, after = digits.split(0.5, generator=torch.Generator().manual_seed(0))
        >>> ad.drift(before, after).drifted
        False
        >>> y = torch.where(after.y == 3, 5, torch.where(after.y == 5, 3, after.y))
        >>> found = ad.drift(before, after.replace(y=y))
        >>> found.drifted, [(one.first, one.second) for one in found.traded]
        (True, [(3, 5)])
    """
    sides = _Sides.of(reference, window, level, n_permutations, max_samples, seed)
    rng = np.random.default_rng(seed)
    n_rounds = n_permutations * (3 if sides.has_labels else 1)
    with track(n_rounds, "permutations", progress) as advance:
        pooled = _Pool.of(sides, sides.rows_all, embedding, seed)
        tests = {"features": _features(pooled, n_permutations, rng, advance)}
        classes, trades = class_drifts(sides.codes_by_side(), sides.names, None, None), ()
        if sides.has_labels:
            if not sides.all_labeled:
                pooled = _Pool.of(sides, sides.rows_labeled, embedding, seed)
            tests["joint"], tests["shares"] = _joint(pooled, n_permutations, rng, advance)
            tests["labels"], trades = _labels(pooled, sides, n_permutations, rng, advance)
            tests["classes"], classes = _classes(pooled, sides, n_permutations, level, rng)
    names = [name for name in QUESTIONS if name in tests]
    adjusted = holm([tests[name].p_value for name in names])
    ordered = tuple(
        replace(tests[name], adjusted=float(value))
        for name, value in zip(names, adjusted, strict=True)
    )
    return Drift(
        tests=ordered,
        classes=classes,
        trades=trades,
        level=level,
        reference=reference,
        window=window,
        labels_reference=int(reference.labeled.sum()),
        labels_window=int(window.labeled.sum()),
        n_permutations=n_permutations,
        seed=seed,
        notes=sides.notes,
    )


@dataclass(frozen=True)
class _Sides:
    """Both datasets with one list of classes, and the rows of them that take part."""

    x: torch.Tensor
    like: LabeledDataset
    codes: np.ndarray  # of the rows of the reference, then of the window; −1 without a label
    is_window: np.ndarray
    names: tuple
    rows_all: np.ndarray
    rows_labeled: np.ndarray
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls,
        reference: LabeledDataset,
        window: LabeledDataset,
        level: float,
        n_permutations: int,
        max_samples: int,
        seed: int,
    ) -> _Sides:
        remedy = "Wrap features and labels as ad.LabeledDataset(x, y)."
        for name, side in (("reference", reference), ("window", window)):
            check_kind(f"{name} must be a LabeledDataset", side, LabeledDataset, remedy)
        if reference.sample_shape != window.sample_shape:
            raise InputError(
                "reference and window must have samples of one shape",
                f"{reference.sample_shape} and {window.sample_shape}",
                "Bring them into one feature space first: ad.harmonize(reference, window).",
            )
        _check_columns(reference, window)
        if check_positive("level", level) >= 1:
            raise InputError("level is a probability", level, "Pass 0.05, for instance.")
        check_count("n_permutations", n_permutations)
        least = math.ceil(len(QUESTIONS) / level) - 1
        if n_permutations < least:
            raise InputError(
                f"{n_permutations} permutations can find nothing at level {level:g}",
                f"p-values of at least {len(QUESTIONS)} / {n_permutations + 1}",
                f"Pass n_permutations={least} or more.",
            )
        check_count("max_samples", max_samples, least=2)
        check_count("seed", seed, least=0)
        names = tuple(dict.fromkeys([*reference.classes, *window.classes]))
        place = {name: code for code, name in enumerate(names)}
        parts = []
        for side in (reference, window):
            own = np.array([*(place[name] for name in side.classes), -1])
            parts.append(own[side.y.cpu().numpy()])
        codes = np.concatenate(parts)
        used = [code for code in range(len(names)) if (codes == code).any()]
        codes = np.where(codes < 0, -1, np.searchsorted(used, codes)) if used else codes
        is_window = np.arange(len(codes)) >= len(reference)
        draw = np.random.default_rng([seed, 1])
        rows_all, cut = _some(np.arange(len(codes)), is_window, max_samples, draw)
        rows_labeled, cut_labeled = _some(np.flatnonzero(codes >= 0), is_window, max_samples, draw)
        if (codes >= 0).all():
            rows_labeled = rows_all
        notes = _notes(reference, window, cut or cut_labeled, max_samples, level)
        device = reference.x.device
        x = torch.cat([reference.x.detach().double(), window.x.detach().double().to(device)])
        kept = tuple(names[code] for code in used)
        return cls(x, reference, codes, is_window, kept, rows_all, rows_labeled, notes)

    @property
    def has_labels(self) -> bool:
        """Whether both sides have labels."""
        sides = self.is_window[self.rows_labeled]
        return bool(sides.any() and not sides.all())

    @property
    def all_labeled(self) -> bool:
        return self.rows_labeled is self.rows_all

    def codes_by_side(self) -> tuple[np.ndarray, np.ndarray]:
        """Labels of the reference and of the window, all of them."""
        known = self.codes >= 0
        return self.codes[known & ~self.is_window], self.codes[known & self.is_window]


@dataclass(frozen=True)
class _Pool:
    """Samples of both sides that take part in some tests."""

    points: np.ndarray
    apart: np.ndarray
    codes: np.ndarray
    window: np.ndarray
    k: int
    seed: int

    @cached_property
    def groups(self) -> np.ndarray:
        """Groups of like samples."""
        return strata(self.points, GROUP, self.seed)

    @cached_property
    def between_groups(self) -> np.ndarray:
        """A kernel between groups."""
        return gaussian(distances(centres(self.points, self.groups)), BANDWIDTHS[0])

    @cached_property
    def pairs(self) -> np.ndarray:
        """Pairs of labels that are looked at, (pairs, 2)."""
        return np.stack(np.triu_indices(self.k if self.k <= MOST_TRADING else 0, 1), axis=1)

    @cached_property
    def disagreement(self) -> np.ndarray:
        """Of each sample with its neighbours, in all and for each pair, (n, 1 + pairs)."""
        return disagreement(self.apart, self.codes, self.groups, self.k, self.pairs)

    def label_changes(self, u: np.ndarray) -> np.ndarray:
        """How labels given features differ between the sides, (2 + pairs, b).

        The first row is a squared distance, large where labels turn into other ones in the same
        places. The others say by how much samples of one side disagree more often with their
        neighbours, in all and for each pair of labels: what a few mislabeled samples change.
        """
        counted = label_counts(u, self.codes, self.groups, self.k)
        squares = labels_apart(*counted, self.between_groups)
        return np.concatenate([squares[None], np.abs(self.disagreement.T @ u)])

    @classmethod
    def of(cls, sides: _Sides, rows: np.ndarray, embedding: Embedded, seed: int) -> _Pool:
        x = sides.x[torch.as_tensor(rows, device=sides.x.device)]
        even = torch.full((len(rows),), 1 / len(rows), dtype=torch.float64, device=x.device)
        data = sides.like.replace(
            x=x, y=even.new_full((len(rows),), -1).long(), weights=even, law=None, law_index=None
        )
        if isinstance(embedding, str) and embedding == "auto" and len(data.sample_shape) < 2:
            embedding = "standardized"
        points = points_of(data, embedding, seed)
        codes = sides.codes[rows]
        apart = distances(points)
        return cls(points, apart, codes, sides.is_window[rows], len(sides.names), seed)

    def test(
        self, name: str, statistics: np.ndarray, size: float, p: float | None = None
    ) -> DriftTest:
        """A test of a statistic whose first value is the observed one."""
        n_window = int(self.window.sum())
        return DriftTest(
            name,
            float(size),
            above_mean(statistics) if len(statistics) > 1 else math.nan,
            p_value(statistics) if p is None else p,
            math.nan,
            len(self.window) - n_window,
            n_window,
            statistics[1:],
        )


def _features(
    pool: _Pool, n_permutations: int, rng: np.random.Generator, advance: Any
) -> DriftTest:
    kernels = [-pool.apart, *(gaussian(pool.apart, width) for width in BANDWIDTHS)]

    def measure(u: np.ndarray) -> np.ndarray:
        return np.stack([quadratic(kernel, u) for kernel in kernels])

    found = permuted(measure, pool.window, n_permutations, rng, advance=advance)
    return pool.test("features", largest([*found]), found[0, 0])


def _joint(
    pool: _Pool, n_permutations: int, rng: np.random.Generator, advance: Any
) -> tuple[DriftTest, DriftTest]:
    same = same_class(pool.codes)
    kernels = [gaussian(pool.apart, width) * same for width in BANDWIDTHS]
    counts = np.bincount(pool.codes, minlength=pool.k)
    indicator = np.eye(pool.k)[pool.codes].T / np.sqrt(counts.clip(1))[:, None]

    def measure(u: np.ndarray) -> np.ndarray:
        shares = np.square(settled(indicator @ u, 2 * float(indicator.max()))).sum(
            axis=0
        )  # χ² but for a factor
        together = [quadratic(kernel, u) for kernel in kernels]
        return np.concatenate([[shares, *together], pool.label_changes(u)])

    found = permuted(measure, pool.window, n_permutations, rng, advance=advance)
    n, m = (~pool.window).sum(), pool.window.sum()
    chi_square = found[0] * n * m
    last = 1 + len(kernels)
    both = largest([*found[1:last], *_three(found[last:])])
    return pool.test("joint", both, found[1, 0]), pool.test(
        "shares", chi_square, chi_square[0] / (n + m)
    )


def _labels(
    pool: _Pool, sides: _Sides, n_permutations: int, rng: np.random.Generator, advance: Any
) -> tuple[DriftTest, tuple[Trade, ...]]:
    n_pairs = len(pool.pairs)

    def measure(u: np.ndarray) -> np.ndarray:
        counted = label_counts(u, pool.codes, pool.groups, pool.k)
        traded = pairs_apart(*counted, pool.between_groups, pool.pairs)
        return np.concatenate([pool.label_changes(u), traded])

    found = permuted(measure, pool.window, n_permutations, rng, pool.groups, advance)
    changes, traded = found[: 2 + n_pairs], found[2 + n_pairs :]
    trades = trades_of(traded, pool.pairs, pool.apart, pool.codes, pool.window, sides.names)
    return pool.test("labels", largest(_three(changes)), found[0, 0]), trades


def _three(changes: np.ndarray) -> list[np.ndarray]:
    """``label_changes`` with one row for all pairs: the one that differs most."""
    return [*changes[:2], *([largest([*changes[2:]])] if len(changes) > 2 else [])]


def _classes(
    pool: _Pool, sides: _Sides, n_permutations: int, level: float, rng: np.random.Generator
) -> tuple[DriftTest, tuple[ClassDrift, ...]]:
    """Each class by itself; one that looks changed once more, with enough permutations for Holm's
    rule over classes and tests. The second look replaces the first: a p-value above ``_SUSPECT``
    comes from the first alone, one below from the second alone, and either is exact.
    """
    enough = math.ceil(2 * len(QUESTIONS) * pool.k / level)
    more = min(max(n_permutations, enough), max(n_permutations, _MOST_PERMUTATIONS))
    found: dict[int, np.ndarray] = {}
    for code in range(pool.k):
        rows = np.flatnonzero(pool.codes == code)
        m = int(pool.window[rows].sum())
        if ways(len(rows), m) < 1 / level:
            continue  # no p-value of so few samples is as small as the level
        kernel = -pool.apart[np.ix_(rows, rows)]
        for count in (n_permutations, more):
            found[code] = permuted(
                lambda u, kernel=kernel: quadratic(kernel, u), pool.window[rows], count, rng
            )
            if p_value(found[code]) > _SUSPECT:
                break
    p = {code: p_value(statistics) for code, statistics in found.items()}
    by_side = sides.codes_by_side()
    classes = class_drifts(by_side, sides.names, p, pool)
    adjusted = [one.adjusted for one in classes if not math.isnan(one.adjusted)]
    most = max(found, key=lambda code: (-p[code], above_mean(found[code])), default=None)
    if most is None:
        return pool.test("classes", np.zeros(1), math.nan, math.nan), classes
    statistics = found[most]
    return pool.test("classes", statistics, statistics[0], min(adjusted)), classes


def _some(
    rows: np.ndarray, is_window: np.ndarray, most: int, rng: np.random.Generator
) -> tuple[np.ndarray, bool]:
    """At most so many rows of each side, in order."""
    parts = [rows[~is_window[rows]], rows[is_window[rows]]]
    cut = any(len(part) > most for part in parts)
    kept = [
        part if len(part) <= most else np.sort(rng.choice(part, most, replace=False))
        for part in parts
    ]
    return np.concatenate(kept), cut


def _check_columns(reference: LabeledDataset, window: LabeledDataset) -> None:
    if None in (reference.columns, window.columns) or reference.columns == window.columns:
        return
    raise InputError(
        "reference and window must have the same columns in the same order",
        f"{reference.columns} and {window.columns}",
        "Bring them together first: ad.harmonize(reference, window).",
    )


def _notes(
    reference: LabeledDataset, window: LabeledDataset, cut: bool, most: int, level: float
) -> tuple[str, ...]:
    notes = []
    n, m = (int(side.labeled.sum()) for side in (reference, window))
    if not m or not n:
        whose = "window" if n else "reference" if m else "data"
        notes.append(f"Only the features were tested, since the {whose} has no labels.")
    elif m < len(window) or n < len(reference):
        notes.append(
            f"{m} of {len(window)} samples of the window have a label, and {n} of "
            f"{len(reference)} of the reference; the others took part in the test of the features "
            "alone. If labels come first for samples of one kind, the tests with labels see that "
            "as drift."
        )
    if cut:
        notes.append(f"Of a side with more than {most} samples so many were drawn at random.")
    uneven = [
        name
        for name, side in (("reference", reference), ("window", window))
        if float(side.weights.max() - side.weights.min()) > 1e-12
    ]
    if uneven:
        notes.append(
            f"Weights of the {' and the '.join(uneven)} were not used: samples count once."
        )
    if ways(len(reference) + len(window), len(window)) < len(QUESTIONS) / level:
        notes.append("There are too few samples to find any drift at this level.")
    return tuple(notes)
