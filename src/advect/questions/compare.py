"""Compare synthetic samples with real ones, class by class, with noise floors.

frechet     W₂²(N(μ, S), N(μ', S')) of Gaussians with the moments of the samples (Dowson and Landau
            1982; Heusel et al. 2017)
coverage    share of real samples with a synthetic one within the distance of their k-th nearest
            real neighbour; density: number of such balls around a synthetic sample, divided by k
            (Naeem et al. 2020)
memorised   share of synthetic samples that are nearer to a training sample than the 1 % quantile
            of held-out real samples
confusion   share of a class that transport by features alone sends to other classes, with the
            class proportions of the real data
otdd        the joint distance
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from advect._util.checks import check_count, check_positive
from advect._util.progress import Progress, track
from advect.cost import GroundCost, NoLabels, SquaredEuclidean
from advect.cost.ground import check_cost, check_features
from advect.data.class_table import ClassTable
from advect.data.dataset import LabeledDataset, require_labels
from advect.data.laws import bures, estimate_gaussians
from advect.errors import ConvergenceWarning, InputError
from advect.questions.compare_result import TITLES, Column, Compared, Draws, Sense, judge
from advect.transport.distance import otdd
from advect.transport.transport import check_dataset

_CLASS_COLUMNS = ("frechet", "coverage", "density")
_SHARE_COLUMNS = ("share", "confusion", "coverage", "memorised")
_SENSES: dict[str, Sense] = {"coverage": "low", "share": "both", "density": "both"}  # others: high
_N_NEIGHBORS = 5  # of coverage and density
_QUANTILE = 0.01  # of the distances of held-out samples to the training data
_N_FAST_DRAWS = 200  # draws of shares and copies
_FEW = 10  # samples of a class below which a note is added


def compare(
    synthetic: LabeledDataset,
    real: LabeledDataset,
    held_out: LabeledDataset | None = None,
    *,
    cost: GroundCost | None = None,
    repeats: int = 20,
    max_samples: int = 300,
    level: float = 0.05,
    seed: int = 0,
    progress: Progress = None,
) -> Compared:
    """Compare synthetic samples with real ones, class by class.

    Use it for labeled data from a generator, a simulator or an augmentation. Columns: ``frechet``
    (mean and covariance of a class), ``share`` (class proportions), ``confusion`` (do labels fit the
    samples?), ``coverage`` and ``density`` (variety), ``memorised`` (copies of training samples), and
    ``otdd`` (all at once). Values are means over ``repeats`` draws of half of the samples, with 95 %
    intervals. Each has a noise floor, the same number between two halves of the real data. For the
    distance of two different datasets, use ``ad.otdd``.

    Args:
        synthetic: the samples to be judged, in the feature space of ``real`` (``ad.harmonize``).
        real: real samples, on which the generator was trained. Classes may be missing on a side.
        held_out: real samples that the generator has not seen; by default each real sample in turn.
        cost: ground cost of the joint distance. All columns are computed in its feature space; use
            ``ad.GroundCost(feature=ad.Embedding(network))`` for photographs.
        repeats: number of draws, at least two.
        max_samples: maximal number of samples of a draw, for each class and for the joint distance.
        level: probability of a false alarm in a column, for fresh real samples.
        seed: seed of the draws.
        progress: None shows slow progress, False is silent, a function gets (done, total).

    Returns:
        A ``Compared``: a table, a report, and the columns beyond their floors.

    Example:
        >>> import torch, advect as ad
        >>> digits = ad.datasets.load("digits", n=900)
        >>> real, fresh = digits.split(0.5, generator=torch.Generator().manual_seed(0))
        >>> faded = fresh.replace(x=fresh.x * 0.6)
        >>> result = ad.compare(faded, real, repeats=5, max_samples=100, progress=False)
        >>> result.verdicts["frechet"], result.verdicts["share"]
        ('beyond the floor', 'within the floor')
    """
    repeats = check_count("repeats", repeats, least=2)
    max_samples = check_count("max_samples", max_samples)
    seed = check_count("seed", seed, least=0)
    if check_positive("level", level) >= 1:
        raise InputError("level must be between 0 and 1", level, "Pass 0.05, for instance.")
    ground = check_cost(cost) or GroundCost()
    sides = _Sides.of(synthetic, real, held_out, ground)
    rng = np.random.default_rng(seed)
    size = _half_size(len(sides.synthetic.codes), len(sides.real.codes), max_samples)
    with track(2 * repeats + len(sides.names) + 1, "comparing", progress) as advance:
        copies, cutoff, copy_draws = _copies(sides, rng)
        advance(1)
        draws = _class_columns(sides, max_samples, repeats, rng, advance)
        joint, split, unsolved = [], [], 0
        for _ in range(repeats):
            fake, true = sides.synthetic.data, sides.real.data
            s, r = rng.permutation(len(fake))[:size], rng.permutation(len(true))[:size]
            order = rng.permutation(len(true))
            one, two = true.subset(order[:size]), true.subset(order[size : 2 * size])
            for results, pair in ((joint, (fake.subset(s), true.subset(r))), (split, (one, two))):
                value, coupling, converged = _joint(*pair, sides.cost)
                results.append((value, coupling))
                unsolved += not converged
                advance(1)
    couplings, split_couplings = (np.array([one[1] for one in part]) for part in (joint, split))
    confusion = [1 - np.diagonal(part, axis1=1, axis2=2) for part in (couplings, split_couplings)]
    sizes = np.minimum(sides.synthetic.counts, sides.real.counts) / 2
    draws |= {
        "otdd": Draws(*(np.array([[one[0]] for one in part]) for part in (joint, split))),
        "confusion": Draws(
            *_with_mean(confusion[0], confusion[1], sides.real.proportions),
            sizes=np.array([sizes.sum(), *sizes]),
        ),
        "share": _shares(sides, rng),
        "memorised": copy_draws,
    }
    columns = {name: _column(name, draws[name], sides.names, level) for name in TITLES}
    counts = zip(sides.synthetic.counts.tolist(), sides.real.counts.tolist(), strict=True)
    return Compared(
        synthetic=synthetic,
        real=real,
        columns=columns,
        confusion=ClassTable(_nan_mean(couplings), sides.names, sides.names),
        counts=dict(zip(sides.names, counts, strict=True)),
        copies=copies,
        notes=_notes(columns, sides, cutoff, unsolved),
        settings={
            "repeats": repeats,
            "samples of a draw": size,
            "held out": "one real sample at a time" if held_out is None else len(held_out),
            "level": level,
            "seed": seed,
            "features": type(ground.feature_cost).__name__,
        },
    )


class Points(NamedTuple):
    """Points (n, d) float64, and their weights."""

    values: np.ndarray
    weights: np.ndarray

    def take(self, index: np.ndarray) -> Points:
        return Points(self.values[index], self.weights[index])


@dataclass(frozen=True, eq=False)
class _Side:
    """A dataset in the feature space of the cost, with common class codes and a common centre."""

    data: LabeledDataset
    points: Points
    rows: np.ndarray
    codes: np.ndarray

    @property
    def counts(self) -> np.ndarray:
        return np.bincount(self.codes, minlength=len(self.data.classes))

    @property
    def proportions(self) -> np.ndarray:
        return self.data.class_mass.cpu().numpy()

    @classmethod
    def of(cls, data: LabeledDataset, names: tuple[Hashable, ...], centre: np.ndarray) -> _Side:
        """Without rows of other classes and rows without weight."""
        position = {name: code for code, name in enumerate(names)}
        codes = torch.tensor([position.get(name, -1) for name in data.classes])
        y = codes.to(data.x.device)[data.y]
        rows = ((y >= 0) & (data.weights > 0)).nonzero()[:, 0]
        if not len(rows):
            what, got = "held_out must have classes of the real data", str(data.classes[:5])
            raise InputError(what, got, "Use the same class names.")
        data = data.replace(y=y, classes=names).subset(rows)
        values = data.x.double().cpu().numpy() - centre
        points = Points(values, data.weights.cpu().numpy())
        return cls(data, points, rows.cpu().numpy(), data.y.cpu().numpy())


@dataclass(frozen=True, eq=False)
class _Sides:
    """The datasets, the cost between embedded samples, and the names of all classes."""

    synthetic: _Side
    real: _Side
    held_out: _Side | None
    cost: GroundCost
    names: tuple[Hashable, ...]

    @classmethod
    def of(
        cls,
        synthetic: LabeledDataset,
        real: LabeledDataset,
        held_out: LabeledDataset | None,
        cost: GroundCost,
    ) -> _Sides:
        sets = {"synthetic": synthetic, "real": real}
        sets |= {} if held_out is None else {"held_out": held_out}
        sets = {name: check_dataset(name, data).hard() for name, data in sets.items()}
        real = sets["real"]
        for name, data in sets.items():
            require_labels(data, f"a comparison ({name})")
            if cost.feature_cost.one_space:
                check_features(data, real)
        if (weighted := int((real.weights > 0).sum())) < 2:
            what = "real must have at least two samples with weight"
            raise InputError(what, weighted, "Add real samples.")
        names = dict.fromkeys(
            name
            for data in (real, sets["synthetic"])
            for name, mass in zip(data.classes, data.class_mass.tolist(), strict=True)
            if mass > 0
        )
        bare = {
            name: data.replace(x=data.x.detach(), law=None, law_index=None)
            for name, data in sets.items()
        }
        fitted = cost.fitted(bare["synthetic"], bare["real"])
        feature = fitted.feature_cost
        with torch.no_grad():
            embedded = {
                name: feature.carry(data, feature.points(data).detach())
                for name, data in bare.items()
            }
        if any(embedded[name].x is not data.x for name, data in bare.items()):
            fitted = replace(fitted, feature=SquaredEuclidean())
        target = embedded["real"]
        centre = target.x[target.weights > 0].double().mean(dim=0).cpu().numpy()
        made = {name: _Side.of(data, tuple(names), centre) for name, data in embedded.items()}
        return cls(made["synthetic"], made["real"], made.get("held_out"), fitted, tuple(names))


def class_draws(
    synthetic: Points, real: Points, size: int, repeats: int, rng: np.random.Generator
) -> np.ndarray:
    """Values and floors of Fréchet distance, coverage and density of one class, (2, repeats, 3).

    NaN where there are too few samples; without synthetic samples the coverage is 0.
    """
    draws, n_real = np.full((2, repeats, 3), np.nan), len(real.values)
    n_synthetic = len(synthetic.values)
    draws[0, :, 1] = np.nan if n_synthetic else 0.0
    within = _distances(real.values, real.values)
    across = _distances(real.values, synthetic.values)
    for b in range(repeats):
        if n_synthetic:
            s, r = rng.permutation(n_synthetic)[:size], rng.permutation(n_real)[:size]
            near = within[np.ix_(r, r)], across[np.ix_(r, s)]
            draws[0, b] = _class_statistics(real.take(r), synthetic.take(s), *near)
        if n_real >= 2 * size:
            order = rng.permutation(n_real)
            r, s = order[:size], order[size : 2 * size]
            near = within[np.ix_(r, r)], within[np.ix_(r, s)]
            draws[1, b] = _class_statistics(real.take(r), real.take(s), *near)
    return draws


def _class_columns(
    sides: _Sides, most: int, repeats: int, rng: np.random.Generator, advance: Callable[[int], Any]
) -> dict[str, Draws]:
    """Draws of the columns of single classes."""
    results, sizes = [], np.ones(len(sides.names))
    for code in range(len(sides.names)):
        rows = [np.flatnonzero(side.codes == code) for side in (sides.synthetic, sides.real)]
        size = _half_size(len(rows[0]), len(rows[1]), most)
        sizes[code] = size
        rows = [
            part if len(part) <= 2 * most else part[np.sort(rng.permutation(len(part))[: 2 * most])]
            for part in rows
        ]
        fake, true = sides.synthetic.points.take(rows[0]), sides.real.points.take(rows[1])
        results.append(class_draws(fake, true, size, repeats, rng))
        advance(1)
    found, proportions = np.stack(results, axis=-1), sides.real.proportions  # (2, repeats, 3, k)
    of = np.array([sizes[proportions > 0].sum(), *sizes])
    draws = {}
    for column, name in enumerate(_CLASS_COLUMNS):
        pair = _with_mean(found[0, :, column], found[1, :, column], proportions)
        draws[name] = Draws(*pair, sizes=of if name in _SHARE_COLUMNS else None)
    return draws


def _half_size(n_synthetic: int, n_real: int, most: int) -> int:
    """Samples of each side of a draw: half of the smaller side."""
    smaller = min(n_synthetic, n_real) if n_synthetic else n_real
    return max(1, min(smaller // 2, most))


def _class_statistics(
    real: Points, synthetic: Points, within: np.ndarray, across: np.ndarray
) -> tuple[float, float, float]:
    """Fréchet distance, coverage and density, with distances (n, n) and (n, m)."""
    laws = [
        estimate_gaussians(
            torch.from_numpy(points.values),
            torch.zeros(len(points.values), dtype=torch.long),
            torch.from_numpy(points.weights),
            1,
        )
        for points in (synthetic, real)
    ]
    frechet, n = float(bures(*laws)), len(within)
    if n < 2:
        return frechet, np.nan, np.nan
    k = min(_N_NEIGHBORS, n - 1)
    others = within + np.diag(np.full(n, np.inf))
    radii = np.partition(others, k - 1, axis=1)[:, k - 1]
    inside = across <= radii[:, None]
    a, b = (points.weights / points.weights.sum() for points in (real, synthetic))
    return frechet, float(a @ inside.any(axis=1)), float(n * (a @ inside @ b) / k)


def _distances(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Euclidean distances by differences, so that copies are at exactly 0."""
    from scipy.spatial.distance import cdist

    return cdist(one, other) if len(one) and len(other) else np.zeros((len(one), len(other)))


def _joint(
    one: LabeledDataset, other: LabeledDataset, cost: GroundCost
) -> tuple[float, np.ndarray, bool]:
    """OTDD, the row-normalized class coupling by features alone (k, k), and convergence.

    Labels in the cost would reduce the confusion, and different class proportions would move mass
    across classes, so the first dataset gets the proportions of the second.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # reported once by ``compare``
        distance = otdd(one, other, cost=cost)
        converged = distance.converged or distance.divergence.met
        coupling = np.full((len(one.classes),) * 2, np.nan)
        mass, wanted = one.class_mass, other.class_mass
        both = (mass > 0) & (wanted > 0)
        if bool(both.any()):
            factor = torch.where(both, wanted / torch.where(both, mass, 1), 0)
            matched = one.replace(weights=one.weights * factor[one.y]).subset(both[one.y])
            by_features = replace(cost, label=NoLabels())
            plan = otdd(matched, other.subset(both[other.y]), cost=by_features)
            rows, values = both.cpu().numpy(), plan.class_coupling.values
            coupling[rows] = values[rows] / values[rows].sum(axis=1, keepdims=True)
    return distance.value, coupling, converged


def _shares(sides: _Sides, rng: np.random.Generator) -> Draws:
    """Differences of class proportions between halves, synthetic − real; first half their L1 norm."""
    fake, true, k = sides.synthetic, sides.real, len(sides.names)
    size = _half_size(len(fake.codes), len(true.codes), len(true.codes))

    def proportions(side: _Side, rows: np.ndarray) -> np.ndarray:
        mass = np.bincount(side.codes[rows], side.points.weights[rows], minlength=k)
        return mass / mass.sum()

    gaps = np.zeros((2, _N_FAST_DRAWS, k))
    for b in range(_N_FAST_DRAWS):
        s, r, order = (rng.permutation(len(side.codes)) for side in (fake, true, true))
        gaps[0, b] = proportions(fake, s[:size]) - proportions(true, r[:size])
        halves = order[:size], order[size : 2 * size]
        gaps[1, b] = proportions(true, halves[0]) - proportions(true, halves[1])
    total = np.abs(gaps).sum(axis=2, keepdims=True) / 2
    return Draws(*np.concatenate([total, gaps], axis=2))


def _copies(sides: _Sides, rng: np.random.Generator) -> tuple[np.ndarray, float, Draws]:
    """Rows of copies and their training samples (c, 2), the cutoff, and draws of the shares.

    In the floor, one half of the held-out samples gives the quantile and the other half the share.
    """
    synthetic, codes, k = sides.synthetic.points, sides.synthetic.codes, len(sides.names)
    held = sides.held_out or sides.real
    others, other_codes = held.points, held.codes
    distance, which = _nearest(synthetic.values, sides.real.points.values)
    reference = None if sides.held_out is None else sides.real.points.values
    away, _ = _nearest(others.values, reference)
    cutoff = _quantile(away, others.weights)
    mass = np.bincount(codes, synthetic.weights, minlength=k)
    values, floors = np.full((2, _N_FAST_DRAWS, k + 1), np.nan)
    for b in range(_N_FAST_DRAWS):
        rows = _half(codes, rng)
        weights = synthetic.weights[rows]
        values[b] = _copy_shares(distance[rows] <= cutoff, weights, codes[rows], k, mass)
        if len(other_codes) < 2:
            continue
        one = _half(other_codes, rng)
        inside = away[~one] <= _quantile(away[one], others.weights[one])
        floors[b] = _copy_shares(inside, others.weights[~one], other_codes[~one], k, mass)
    # halves have the spread of the whole, but classes of one sample are in one half only
    whole = _copy_shares(distance <= cutoff, synthetic.weights, codes, k, mass)
    values = np.where(np.isnan(values), whole, values)
    values += whole - values.mean(axis=0)
    counts, sizes = np.bincount(codes, minlength=k), np.bincount(other_codes, minlength=k) / 2
    sizes, counts = np.array([sizes.sum(), *sizes]), np.array([counts.sum(), *counts])
    order = np.argsort(distance, kind="stable")
    order = order[distance[order] <= cutoff]
    pairs = np.stack([sides.synthetic.rows[order], sides.real.rows[which][order]], axis=1)
    return pairs, cutoff, Draws(values, floors, sizes, counts)


def _nearest(points: np.ndarray, others: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Distance and position of the nearest other point; None: among the same points."""
    from sklearn.neighbors import NearestNeighbors

    among = points if others is None else others
    search = NearestNeighbors(n_neighbors=2 if others is None else 1, algorithm="brute")
    found = search.fit(among).kneighbors(points, return_distance=False)
    which = found[:, 0]
    if others is None:
        which = np.where(which == np.arange(len(points)), found[:, 1], which)
    # by differences: distances from products are not 0 for a copy
    return np.linalg.norm(points - among[which], axis=1), which


def _half(codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Mask of half of the samples of each class."""
    mask = np.zeros(len(codes), dtype=bool)
    for code in np.unique(codes):
        rows = rng.permutation(np.flatnonzero(codes == code))
        mask[rows[: (len(rows) + rng.integers(2)) // 2]] = True
    if len(codes) > 1 and (mask.all() or not mask.any()):  # classes of one sample
        mask[rng.permutation(len(codes))[: len(codes) // 2]] ^= True
    return mask


def _quantile(distances: np.ndarray, weights: np.ndarray) -> float:
    order = np.argsort(distances, kind="stable")
    reached = np.cumsum(weights[order]) / weights.sum()
    return float(distances[order][min(np.searchsorted(reached, _QUANTILE), len(order) - 1)])


def _copy_shares(
    inside: np.ndarray, weights: np.ndarray, codes: np.ndarray, k: int, mass: np.ndarray
) -> np.ndarray:
    """Share of all samples and of each class, (k + 1,); classes count by their synthetic mass."""
    total = np.bincount(codes, weights, minlength=k)
    present = total > 0
    shares = np.full(k, np.nan)
    shares[present] = np.bincount(codes, weights * inside, minlength=k)[present] / total[present]
    counted = np.where(present, mass, 0)
    whole = np.nansum(counted * shares) / counted.sum() if counted.sum() > 0 else np.nan
    return np.array([whole, *shares])


def _with_mean(
    values: np.ndarray, floors: np.ndarray, mass: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(B, k) each, with a first column: the mean over classes with value and floor, by real mass."""
    known = np.isfinite(values).any(axis=0) & np.isfinite(floors).any(axis=0)

    def extended(draws: np.ndarray) -> np.ndarray:
        counted = np.where(np.isnan(draws), 0, np.where(known, mass, 0))
        total = counted.sum(axis=1)
        summed = (counted * np.nan_to_num(draws)).sum(axis=1)
        whole = np.where(total > 0, summed / np.where(total > 0, total, 1), np.nan)
        return np.column_stack([whole, draws])

    return extended(values), extended(floors)


def _nan_mean(draws: np.ndarray) -> np.ndarray:
    """Mean over draws with a number; NaN without any."""
    count = (~np.isnan(draws)).sum(axis=0)
    return np.where(count > 0, np.nan_to_num(draws).sum(axis=0) / np.maximum(count, 1), np.nan)


def _column(name: str, draws: Draws, names: tuple[Hashable, ...], level: float) -> Column:
    sense = _SENSES.get(name, "high")
    first: Sense = "high" if name == "share" else sense  # an L1 norm
    entries = judge(draws, [first, *[sense] * (draws.values.shape[1] - 1)], level)
    by_class = dict(zip(names, entries[1:], strict=True)) if len(entries) > 1 else {}
    return Column(name, TITLES[name], entries[0], by_class, name in _SHARE_COLUMNS)


def _notes(
    columns: dict[str, Column], sides: _Sides, cutoff: float, unsolved: int
) -> tuple[str, ...]:
    fake, true, notes = sides.synthetic.counts, sides.real.counts, []
    names = np.array([str(name) for name in sides.names], dtype=object)

    def listed(which: Any) -> str:
        more = f" and {len(which) - 8} more" if len(which) > 8 else ""
        return ", ".join(map(str, which[:8])) + more

    smaller = np.minimum(fake, true)
    if not (smaller > 0).any():
        notes.append(
            "No class name occurs on both sides; only the joint distance and the copies are "
            "meaningful. Rename the classes of one side (see class_matching of ad.otdd)."
        )
    else:
        if len(dropped := names[(fake == 0) & (true > 0)]):
            notes.append(f"Classes without synthetic samples: {listed(dropped)}.")
        if len(new := names[(true == 0) & (fake > 0)]):
            notes.append(f"Classes without real samples: {listed(new)}.")
    for column in columns.values():
        if column.verdict == "beyond the floor":
            where = listed(column.beyond) or "all classes together, none alone"
            notes.append(f"Beyond its floor: {column.title} ({where}).")
    if len(small := names[(smaller < _FEW) & (smaller > 0)]):
        notes.append(f"Classes with fewer than {_FEW} samples on a side: {listed(small)}.")
    if cutoff == 0:
        notes.append("Held-out real samples have exact copies; memorised counts exact copies only.")
    if unsolved:
        notes.append(f"The transport problems of {unsolved} draws did not converge.")
    return tuple(notes)
