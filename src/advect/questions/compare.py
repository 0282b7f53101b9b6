"""Is generated data any good, class by class? ``compare`` puts synthetic samples beside real ones, and
each number beside what two halves of the real data give.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np

from advect._util.checks import check_count, check_positive
from advect._util.progress import Progress, track
from advect.cost import GroundCost
from advect.cost.ground import check_cost
from advect.data.class_table import ClassTable
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.ot import Sinkhorn, Solver, check_solver
from advect.questions.compare_classes import NAMES, Cloud, class_draws, distances, half_size, radii
from advect.questions.compare_copies import copies
from advect.questions.compare_floor import Column, Drawn, Sense, judged
from advect.questions.compare_joint import Joint, joint
from advect.questions.compare_result import TITLES, Compared, Odd, notes_of
from advect.questions.compare_sides import Side, Sides

_SHARES = ("share", "confusion", "coverage", "memorised")
_SENSES: dict[str, Sense] = {"coverage": "low", "share": "both", "density": "both"}  # others: high
_CHEAP = 200  # draws of what takes no time: shares and copies
_KEPT = 24  # samples of each class that a page may show


def compare(
    synthetic: LabeledDataset,
    real: LabeledDataset,
    held_out: LabeledDataset | None = None,
    *,
    cost: GroundCost | None = None,
    solver: Solver | None = None,
    neighbors: int = 5,
    quantile: float = 0.01,
    repeats: int = 20,
    max_samples: int = 300,
    level: float = 0.05,
    seed: int = 0,
    progress: Progress = None,
) -> Compared:
    """Compare synthetic samples with the real ones they are to look like, class by class.

    For labeled data that a generator, a simulator or an augmentation made. Each column is a question:
    ``frechet`` (does a class have the mean and the spread of the real one?), ``share`` (does it come as
    often?), ``confusion`` (do labels fit the samples?), ``coverage`` and ``density`` (is the variety
    there, and is it in the right places?), ``memorised`` (are samples copies of training samples?), and
    ``otdd`` for all at once. Each number has an interval and a noise floor, which is the same number
    between two halves of the real data. Fréchet distances and OTDD of few samples are above 0 between
    equal laws; the floor is of as many samples, and has the same bias. To ask how far two different
    datasets are, use ``ad.otdd``.

    Numbers are means over ``repeats`` draws of half of the samples (of each class, of the smaller side);
    their 95 % intervals are the spread of these draws. A row is beyond its floor where that has a chance
    of about ``level`` for a fresh real sample, over all rows of the column together.

    Args:
        synthetic: what is to be judged, in the same feature space as ``real`` (``ad.harmonize``).
        real: what it is to look like, and what the generator was trained on. Classes that one side
            lacks are reported.
        held_out: real samples that the generator never saw, to tell copies from likeness; by default
            each real sample is held out in turn.
        cost: the ground cost of the joint distance. Its features are where every column is measured:
            ``ad.GroundCost(feature=ad.Embedding(network))`` for those of a network, which is best for
            photographs.
        solver: of the transport problems.
        neighbors: k of coverage and density.
        quantile: of the distances of held-out samples to their nearest training sample; who is nearer
            counts as memorised.
        repeats: how many draws, at least two.
        max_samples: that a draw takes at most, of one class, or of all for the joint distance.
        level: of false alarms in a column.
        seed: of the draws.
        progress: None shows it on stderr when it takes long, False is silent, a function is called
            with (done, total).

    Returns:
        A ``Compared``: a table, a page, and what is beyond its floor.

    Raises:
        InputError: samples without labels, other features, fewer than two real samples.

    Example:
        >>> import torch, advect as ad
        >>> digits = ad.datasets.load("digits", n=900)
        >>> real, fresh = digits.split(0.5, generator=torch.Generator().manual_seed(0))
        >>> faded = fresh.replace(x=fresh.x * 0.6)
        >>> found = ad.compare(faded, real, repeats=5, max_samples=100, progress=False)
        >>> found.verdicts["frechet"], found.verdicts["share"]
        ('beyond the floor', 'within the floor')
        >>> found.columns["memorised"].overall.value < 0.05
        True
    """
    options = _Options(neighbors, quantile, repeats, max_samples, level, seed)
    ground, solver = check_cost(cost) or GroundCost(), check_solver(solver or Sinkhorn())
    sides = Sides.of(synthetic, real, held_out, ground)
    rng = np.random.default_rng(options.seed)
    with track(2 * options.repeats + len(sides.names) + 1, "comparing", progress) as advance:
        near = copies(sides, options.quantile, _CHEAP, rng)
        advance(1)
        by_class, odd = _by_class(sides, options, rng, advance)
        together, apart = _together(sides, options, solver, rng, advance)
    drawn = by_class | _joint_columns(together, apart, sides)
    drawn |= {"share": _shares(sides, rng), "memorised": near.draws}
    columns = {name: _column(name, drawn[name], sides, options.level) for name in TITLES}
    couplings = np.array([one.coupling for one in together])
    return Compared(
        synthetic=synthetic,
        real=real,
        columns=columns,
        confusion=ClassTable(_mean(couplings), sides.names, sides.names),
        counts=dict(
            zip(
                sides.names,
                zip(sides.synthetic.counts.tolist(), sides.real.counts.tolist(), strict=True),
                strict=True,
            )
        ),
        copies=near.pairs(sides.synthetic.cloud.rows),
        odd=odd,
        notes=notes_of(
            columns, sides, near.within, sum(not one.converged for one in together + apart)
        ),
        settings={
            "draws": options.repeats,
            "samples of a draw": _joint_size(sides, options),
            "neighbours": options.neighbors,
            "quantile": options.quantile,
            "held out": "one real sample at a time" if held_out is None else f"{len(held_out):,}",
            "level": options.level,
            "seed": options.seed,
            "features": type(ground.feature_cost).__name__,
        },
    )


@dataclass(frozen=True)
class _Options:
    """Checked."""

    neighbors: int
    quantile: float
    repeats: int
    max_samples: int
    level: float
    seed: int

    def __post_init__(self) -> None:
        for name, least in (("neighbors", 1), ("repeats", 2), ("max_samples", 1), ("seed", 0)):
            object.__setattr__(self, name, check_count(name, getattr(self, name), least))
        for name in ("quantile", "level"):
            if check_positive(name, getattr(self, name)) >= 1:
                raise InputError(
                    f"{name} must lie between 0 and 1", getattr(self, name), "Pass 0.05, say."
                )


def _by_class(
    sides: Sides, options: _Options, rng: np.random.Generator, advance: Callable[[int], None]
) -> tuple[dict[str, Drawn], dict[Hashable, Odd]]:
    """The columns that are of each class on its own, and which samples are odd or missed."""
    k, found, odd = len(sides.names), [], {}
    sizes = np.ones(k)
    for code in range(k):
        fake, true = sides.synthetic.of_class(code), sides.real.of_class(code)
        sizes[code] = half_size(len(fake), len(true), options.max_samples)
        most = 2 * options.max_samples
        fake, true = fake.some(most, rng), true.some(most, rng)
        found.append(
            class_draws(fake, true, int(sizes[code]), options.neighbors, options.repeats, rng)
        )
        odd[sides.names[code]] = _odd(fake, true, options.neighbors)
        advance(1)
    drawn = {}
    for name in NAMES:
        values, floors = (np.stack([one[part][name] for one in found], axis=1) for part in (0, 1))
        of = np.array([sizes[sides.real.shares > 0].sum(), *sizes])
        pair = _with_whole(values, floors, sides.real.shares)
        drawn[name] = Drawn(*pair, of if name in _SHARES else None)
    return drawn, odd


def _odd(fake: Cloud, true: Cloud, k: int) -> Odd:
    """Synthetic samples that are far from all real ones of their class, and real ones that no
    synthetic one is near to, the worst first, as rows of the datasets.
    """
    across = distances(true.points, fake.points)
    if not across.size:
        return Odd(fake.rows[:_KEPT], true.rows[:_KEPT])
    far = np.argsort(-across.min(axis=0), kind="stable")
    reach = radii(distances(true.points, true.points), k) if len(true) > 1 else np.ones(1)
    nearest = across.min(axis=1)
    missed = nearest / np.where(reach > 0, reach, 1)
    order = np.argsort(-missed, kind="stable")
    uncovered = order[nearest[order] > reach[order]]
    return Odd(fake.rows[far[:_KEPT]], true.rows[uncovered[:_KEPT]])


def _joint_size(sides: Sides, options: _Options) -> int:
    n_real = len(sides.real.codes)
    return half_size(len(sides.synthetic.codes), n_real, options.max_samples)


def _together(
    sides: Sides,
    options: _Options,
    solver: Solver,
    rng: np.random.Generator,
    advance: Callable[[int], None],
) -> tuple[list[Joint], list[Joint]]:
    """The joint statistics of draws of both sides, and of splits of the real one."""
    size, together, apart = _joint_size(sides, options), [], []
    fake, true = sides.synthetic.data, sides.real.data
    for _ in range(options.repeats):
        s, r = rng.permutation(len(fake))[:size], rng.permutation(len(true))[:size]
        together.append(joint(fake.subset(s), true.subset(r), sides.cost, solver))
        advance(1)
        order = rng.permutation(len(true))
        one, two = true.subset(order[:size]), true.subset(order[size : 2 * size])
        apart.append(joint(one, two, sides.cost, solver))
        advance(1)
    return together, apart


def _shares(sides: Sides, rng: np.random.Generator) -> Drawn:
    """Gaps of class shares between halves, synthetic less real, and half the sum of their sizes."""
    fake, true, k = sides.synthetic, sides.real, len(sides.names)
    size = half_size(len(fake.codes), len(true.codes), len(true.codes))

    def mass(side: Side, rows: np.ndarray) -> np.ndarray:
        found = np.bincount(side.codes[rows], side.cloud.weights[rows], minlength=k)
        return found / found.sum()

    gaps = np.zeros((2, _CHEAP, k))
    for b in range(_CHEAP):
        s, r, order = (rng.permutation(len(side.codes)) for side in (fake, true, true))
        gaps[0, b] = mass(fake, s[:size]) - mass(true, r[:size])
        gaps[1, b] = mass(true, order[:size]) - mass(true, order[size : 2 * size])
    whole = np.abs(gaps).sum(axis=2, keepdims=True) / 2
    return Drawn(*np.concatenate([whole, gaps], axis=2))


def _joint_columns(together: list[Joint], apart: list[Joint], sides: Sides) -> dict[str, Drawn]:
    far, near = (np.array([[one.distance] for one in part]) for part in (together, apart))
    taken, floors = (np.array([one.confusion for one in part]) for part in (together, apart))
    taken, floors = _with_whole(taken, floors, sides.real.shares)
    sizes = np.minimum(sides.synthetic.counts, sides.real.counts) / 2
    confusion = Drawn(taken, floors, np.array([sizes.sum(), *sizes]))
    return {"otdd": Drawn(far, near), "confusion": confusion}


def _with_whole(
    values: np.ndarray, floors: np.ndarray, mass: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(B, k) each, with a first column for the whole: the mean over classes by their real mass, of
    those that have a value and a floor.
    """
    known = np.isfinite(values).any(axis=0) & np.isfinite(floors).any(axis=0)

    def added(draws: np.ndarray) -> np.ndarray:
        counted = np.where(np.isnan(draws), 0, np.where(known, mass, 0))
        total = counted.sum(axis=1)
        summed = (counted * np.nan_to_num(draws)).sum(axis=1)
        whole = np.where(total > 0, summed / np.where(total > 0, total, 1), np.nan)
        return np.column_stack([whole, draws])

    return added(values), added(floors)


def _mean(draws: np.ndarray) -> np.ndarray:
    """Over draws that have a number; NaN where none has."""
    there = ~np.isnan(draws)
    count = there.sum(axis=0)
    return np.where(count > 0, np.nan_to_num(draws).sum(axis=0) / np.maximum(count, 1), np.nan)


def _column(name: str, drawn: Drawn, sides: Sides, level: float) -> Column:
    sense = _SENSES.get(name, "high")
    whole: Sense = "high" if name == "share" else sense  # half the sum of absolute gaps
    rows = judged(drawn, [whole, *[sense] * (drawn.values.shape[1] - 1)], level)
    by_class = dict(zip(sides.names, rows[1:], strict=True)) if len(rows) > 1 else {}
    return Column(name, TITLES[name], rows[0], by_class, name in _SHARES)
