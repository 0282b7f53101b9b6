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
from typing import Any

import numpy as np
import torch

from advect._util import ConvergenceWarning, Progress, check_count, refuse_if, track
from advect.cost import GroundCost, NoLabels, SquaredEuclidean, check_cost, check_features
from advect.data.class_table import ClassTable
from advect.data.dataset import LabeledDataset, require_labels
from advect.data.laws import bures, estimate_gaussians
from advect.questions.compare_result import (
    SHARE_COLUMNS,
    TITLES,
    Column,
    Compared,
    Draws,
    compare_notes,
    mean,
    with_mean,
)
from advect.questions.shared import (
    Points,
    check_level,
    class_codes,
    distances,
    half_of_each,
    nearest,
    weighted_quantile,
)
from advect.spaces.fitting import choose_scale
from advect.spaces.steps import Scale
from advect.transport.distance import otdd
from advect.transport.transport import check_dataset

_CLASS_COLUMNS = ("frechet", "coverage", "density")
_N_NEIGHBORS = 5  # of coverage and density
_QUANTILE = 0.01  # of the distances of held-out samples to the training data
_N_FAST_DRAWS = 200  # draws of shares and copies


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
            ``ad.GroundCost(feature=ad.Embedding(network))`` for photographs. By default Euclidean
            features, standardised by the real data if their columns have different units
            (``harmonize(scale="auto")``).
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
        >>> "frechet" in result.beyond, "share" in result.beyond
        (True, False)
    """
    repeats = check_count("repeats", repeats, least=2)
    max_samples = check_count("max_samples", max_samples)
    rng = np.random.default_rng(check_count("seed", seed, least=0))
    check_level(level)
    ground = check_cost(cost) or GroundCost()
    sets = {"real": check_dataset("real", real), "synthetic": synthetic}
    sets |= {} if held_out is None else {"held_out": held_out}
    scale, reason = (
        choose_scale([real.x], real.sample_shape) if cost is None else ("none", "the cost is given")
    )
    sides, fitted = _sides(sets, ground, scale)
    fake, true, names = sides["synthetic"], sides["real"], sides["real"].data.classes
    size = _half_size(len(fake.codes), len(true.codes), max_samples)
    joint, split = [], []
    with track(2 * repeats + len(names) + 1, "comparing", progress) as advance:
        copies, cutoff, memorised = _copies(fake, true, sides.get("held_out"), rng)
        advance(1)
        draws = _class_columns(fake, true, max_samples, repeats, rng, advance)
        for _ in range(repeats):
            rows = _drawn_halves(fake, true, size, rng)
            for results, one, which in ((joint, fake, rows[:2]), (split, true, rows[2:])):
                pair = one.data.subset(which[0]), true.data.subset(which[1])
                results.append(_joint(*pair, fitted))
                advance(1)
    couplings = [np.array([coupling for _, coupling, _ in part]) for part in (joint, split)]
    confusion = [1 - np.diagonal(part, axis1=1, axis2=2) for part in couplings]
    sizes = np.minimum(fake.counts, true.counts) / 2
    draws |= {
        "otdd": Draws(*(np.array([[value] for value, *_ in part]) for part in (joint, split))),
        "confusion": Draws(
            *with_mean(confusion[0], confusion[1], true.proportions),
            sizes=np.array([sizes.sum(), *sizes]),
        ),
        "share": _shares(fake, true, rng),
        "memorised": memorised,
    }
    columns = {name: Column.of(name, draws[name], names, level) for name in TITLES}
    counts = zip(fake.counts.tolist(), true.counts.tolist(), strict=True)
    unsolved = sum(not converged for *_, converged in joint + split)
    return Compared(
        synthetic=synthetic,
        real=real,
        columns=columns,
        confusion=ClassTable(mean(couplings[0]), names, names),
        counts=dict(zip(names, counts, strict=True)),
        copies=copies,
        notes=compare_notes(names, fake.counts, true.counts, cutoff == 0, unsolved),
        settings={
            "repeats": repeats,
            "samples of a draw": size,
            "held out": "one real sample at a time" if held_out is None else len(held_out),
            "level": level,
            "seed": seed,
            "scale": f"{scale} ({reason})",
            "features": type(ground.feature_cost).__name__,
        },
    )


@dataclass(frozen=True, eq=False)
class _Side:
    """A dataset in the feature space of the cost, with common class codes and a common centre."""

    data: LabeledDataset
    points: Points
    rows: np.ndarray
    codes: np.ndarray

    @property
    def k(self) -> int:
        return len(self.data.classes)

    @property
    def counts(self) -> np.ndarray:
        return np.bincount(self.codes, minlength=self.k)

    @property
    def proportions(self) -> np.ndarray:
        return self.data.class_mass.cpu().numpy()

    @classmethod
    def of(cls, data: LabeledDataset, names: tuple[Hashable, ...], centre: np.ndarray) -> _Side:
        """Without rows of other classes and rows without weight."""
        codes, weights = class_codes(data, names), data.weights.cpu().numpy()
        rows = np.flatnonzero((codes >= 0) & (weights > 0))
        refuse_if(
            not len(rows),
            "held_out must have classes of the real data",
            str(data.classes[:5]),
            "Use the same class names.",
        )
        data = data.replace(y=torch.from_numpy(codes).to(data.y.device), classes=names).subset(rows)
        points = Points(data.x.double().cpu().numpy() - centre, data.weights.cpu().numpy())
        return cls(data, points, rows, codes[rows])


def _sides(
    sets: dict[str, LabeledDataset], cost: GroundCost, scale: str
) -> tuple[dict[str, _Side], GroundCost]:
    """The datasets in the feature space of the cost, and the cost between embedded samples."""
    for name, data in sets.items():
        data = check_dataset(name, data).hard()
        require_labels(data, f"a comparison ({name})")
        if cost.feature_cost.one_space:
            check_features(data, sets["real"])
        sets[name] = data.replace(x=data.x.detach(), law=None, law_index=None)
    if scale == "pooled":
        step = Scale.fit(sets["real"].x)
        sets = {name: data.replace(x=step.apply(data.x)) for name, data in sets.items()}
    n_weighted = int((sets["real"].weights > 0).sum())
    refuse_if(
        n_weighted <= 1,
        "real must have at least two samples with weight",
        n_weighted,
        "Add real samples.",
    )
    names = dict.fromkeys(
        name
        for data in (sets["real"], sets["synthetic"])
        for name, mass in zip(data.classes, data.class_mass.tolist(), strict=True)
        if mass > 0
    )
    fitted = cost.fitted(sets["synthetic"], sets["real"])
    feature = fitted.feature_cost
    with torch.no_grad():
        embedded = {
            name: feature.carry(data, feature.points(data).detach()) for name, data in sets.items()
        }
    if any(embedded[name].x is not data.x for name, data in sets.items()):
        fitted = replace(fitted, feature=SquaredEuclidean())
    real = embedded["real"]
    centre = real.x[real.weights > 0].double().mean(dim=0).cpu().numpy()
    return {name: _Side.of(data, tuple(names), centre) for name, data in embedded.items()}, fitted


def class_draws(
    synthetic: Points, real: Points, size: int, repeats: int, rng: np.random.Generator
) -> np.ndarray:
    """Values and floors of Fréchet distance, coverage and density of one class, (2, repeats, 3).

    NaN where there are too few samples; without synthetic samples the coverage is 0.
    """
    draws, n, m = np.full((2, repeats, 3), np.nan), len(synthetic.values), len(real.values)
    draws[0, :, 1] = np.nan if n else 0.0

    def statistics(one: Points, s: np.ndarray, r: np.ndarray) -> Any:
        fake, true = one.take(s), real.take(r)
        return class_statistics(fake, true, distances(true, true), distances(true, fake))

    for b in range(repeats):
        if n:
            s, r = rng.permutation(n)[:size], rng.permutation(m)[:size]
            draws[0, b] = statistics(synthetic, s, r)
        if m >= 2 * size:
            order = rng.permutation(m)
            draws[1, b] = statistics(real, order[size : 2 * size], order[:size])
    return draws


def class_statistics(
    synthetic: Points, real: Points, within: np.ndarray, across: np.ndarray
) -> tuple[float, float, float]:
    """Fréchet distance, coverage and density, with distances (n, n) and (n, m) to real samples."""
    laws = []
    for points in (synthetic, real):
        values, weights = map(torch.from_numpy, points)
        laws.append(
            estimate_gaussians(values, torch.zeros(len(values), dtype=torch.long), weights, 1)
        )
    frechet, n = float(bures(*laws)), len(real.values)
    if n < 2:
        return frechet, np.nan, np.nan
    k = min(_N_NEIGHBORS, n - 1)
    radii = np.partition(within + np.diag(np.full(n, np.inf)), k - 1, axis=1)[:, k - 1]
    inside = across <= radii[:, None]
    a, b = (points.weights / points.weights.sum() for points in (real, synthetic))
    return frechet, float(a @ inside.any(axis=1)), float(n * (a @ inside @ b) / k)


def _class_columns(
    fake: _Side,
    true: _Side,
    most: int,
    repeats: int,
    rng: np.random.Generator,
    advance: Callable[[int], Any],
) -> dict[str, Draws]:
    """Draws of the columns of single classes."""
    results, sizes = [], np.ones(fake.k)
    for code in range(fake.k):
        rows = [np.flatnonzero(side.codes == code) for side in (fake, true)]
        size = sizes[code] = _half_size(len(rows[0]), len(rows[1]), most)
        for side, part in enumerate(rows):
            if len(part) > 2 * most:
                rows[side] = part[np.sort(rng.permutation(len(part))[: 2 * most])]
        points = fake.points.take(rows[0]), true.points.take(rows[1])
        results.append(class_draws(*points, size, repeats, rng))
        advance(1)
    draws, proportions = np.stack(results, axis=-1), true.proportions  # (2, repeats, 3, k)
    sizes = np.array([sizes[proportions > 0].sum(), *sizes])
    return {
        name: Draws(
            *with_mean(draws[0, :, column], draws[1, :, column], proportions),
            sizes=sizes if name in SHARE_COLUMNS else None,
        )
        for column, name in enumerate(_CLASS_COLUMNS)
    }


def _half_size(n_synthetic: int, n_real: int, most: int) -> int:
    """Samples of each side of a draw: half of the smaller side."""
    smaller = min(n_synthetic, n_real) if n_synthetic else n_real
    return max(1, min(smaller // 2, most))


def _drawn_halves(
    fake: _Side, true: _Side, size: int, rng: np.random.Generator
) -> tuple[np.ndarray, ...]:
    """Rows of the synthetic and of the real data, and of two separate parts of the real data."""
    s, r, order = (rng.permutation(len(side.codes)) for side in (fake, true, true))
    return s[:size], r[:size], order[:size], order[size : 2 * size]


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
            plan = otdd(matched, other.subset(both[other.y]), cost=replace(cost, label=NoLabels()))
            rows, values = both.cpu().numpy(), plan.class_coupling.values
            coupling[rows] = values[rows] / values[rows].sum(axis=1, keepdims=True)
    return distance.value, coupling, converged


def _shares(fake: _Side, true: _Side, rng: np.random.Generator) -> Draws:
    """Differences of class proportions between halves, synthetic − real; first half their L1 norm."""
    size = _half_size(len(fake.codes), len(true.codes), len(true.codes))

    def proportions(side: _Side, rows: np.ndarray) -> np.ndarray:
        mass = np.bincount(side.codes[rows], side.points.weights[rows], minlength=fake.k)
        return mass / mass.sum()

    gaps = np.zeros((2, _N_FAST_DRAWS, fake.k))
    for b in range(_N_FAST_DRAWS):
        s, r, first, second = _drawn_halves(fake, true, size, rng)
        gaps[0, b] = proportions(fake, s) - proportions(true, r)
        gaps[1, b] = proportions(true, first) - proportions(true, second)
    return Draws(*np.concatenate([np.abs(gaps).sum(axis=2, keepdims=True) / 2, gaps], axis=2))


def _copies(
    fake: _Side, true: _Side, held_out: _Side | None, rng: np.random.Generator
) -> tuple[np.ndarray, float, Draws]:
    """Rows of copies and their training samples (c, 2), the cutoff, and draws of the shares.

    In the floor, one half of the held-out samples gives the quantile and the other half the share.
    """
    held, k, train = held_out or true, fake.k, true.points.values
    weights, held_weights = fake.points.weights, held.points.weights
    distance, which = nearest(fake.points.values, train)
    away, _ = nearest(held.points.values, None if held_out is None else train)
    cutoff = weighted_quantile(away, held_weights, _QUANTILE)
    mass = np.bincount(fake.codes, weights, minlength=k)

    def shares(inside: np.ndarray, weights: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Of all samples and of each class, (k + 1,); classes count by their synthetic mass."""
        total, hits = (np.bincount(codes, w, minlength=k) for w in (weights, weights * inside))
        by_class = np.where(total > 0, hits / np.where(total > 0, total, 1), np.nan)
        return np.append(mean(by_class, mass), by_class)

    values, floors = np.full((2, _N_FAST_DRAWS, k + 1), np.nan)
    for b in range(_N_FAST_DRAWS):
        half = half_of_each(fake.codes, rng)
        values[b] = shares(distance[half] <= cutoff, weights[half], fake.codes[half])
        if len(held.codes) > 1:
            half = half_of_each(held.codes, rng)
            inside = away[~half] <= weighted_quantile(away[half], held_weights[half], _QUANTILE)
            floors[b] = shares(inside, held_weights[~half], held.codes[~half])
    # halves have the spread of the whole, but classes of one sample are in one half only
    whole = shares(distance <= cutoff, weights, fake.codes)
    values = np.where(np.isnan(values), whole, values)
    values += whole - values.mean(axis=0)
    sizes = np.array([held.counts.sum(), *held.counts]) / 2
    order = np.argsort(distance, kind="stable")
    order = order[distance[order] <= cutoff]
    pairs = np.stack([fake.rows[order], true.rows[which][order]], axis=1)
    counts = np.array([fake.counts.sum(), *fake.counts])
    return pairs, cutoff, Draws(values, floors, sizes, counts)
