"""What a careful user would want to know of a distance or a flow, in plain sentences, each with a
remedy.

Nothing here is computed unless it is asked for, and nothing takes longer than a look at some
thousand samples: a note is said where it can be seen cheaply that something needs care; none does
not mean that all is well."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

from advect.cost.names import strangers
from advect.data.dataset import LabeledDataset

# in the last place of the features' dtype: what a value may be off by, next to the largest one seen
_UNITS = 16
_FORGIVEN = 1e-3  # of a value, whatever rounding could be
_BACK = 0.01  # of the whole fall: a value that ends higher above its lowest than this has risen
_DOMINANT = 0.8  # of squared distances, by one of many columns
_DOMINANT_OF_FEW, _FEW_COLUMNS = 0.99, 5  # with fewer columns, one may well be most of a difference
_CHANGE = 0.02  # of mass: class shares that differ by less do not matter
_LEFT, _MOST = 0.01, 0.5  # of mass that is left behind: worth a word; nothing is compared with much
_MIXED = 0.2  # of samples, whose nearest neighbour was of their class at first and is not any more
_GROWN = 3.0  # times its first value: more than noise
_SOME = 2000  # rows to look at
_SHOWN = 5  # names of classes in a sentence
_NEIGHBOURS = 600  # rows to look for neighbours of


@dataclass(frozen=True)
class Note:
    """One thing worth knowing.

    Attributes:
        what: a sentence.  remedy: another, on what to do about it.
        on_command_line: the remedy in the words of the command line, where they differ.

    Example:
        >>> print(Note("The solver did not converge in 3 of 10 steps.", "Raise max_iter."))
        The solver did not converge in 3 of 10 steps. Raise max_iter.
    """

    what: str
    remedy: str
    on_command_line: str = ""

    def __str__(self) -> str:
        return f"{self.what} {self.remedy}"

    @property
    def for_command_line(self) -> Note:
        """The same with the remedy as options of the command line."""
        return Note(self.what, self.on_command_line or self.remedy)


class _Compared(Protocol):
    """What a ground cost tells about itself."""

    @property
    def by_columns(self) -> bool: ...

    @property
    def estimates_covariances(self) -> bool: ...

    @property
    def has_labels(self) -> bool: ...

    @property
    def names_count(self) -> bool: ...


def rounding(dtype: torch.dtype, largest: float, size: float) -> float:
    """What a value of this size, computed in a precision next to values as large as ``largest``,
    may be off by.

    Terms of a value may cancel, so rounding goes by the largest; but no more than a thousandth of
    what stands here is forgiven to a precision that a functional need not have used.

    Example:
        >>> rounding(torch.float64, 1.0, 1.0) < 1e-14, rounding(torch.float32, 1e6, 1e-3) <= 1e-6
        (True, True)
    """
    units = [_UNITS * torch.finfo(kind).eps * largest for kind in (torch.float64, dtype)]
    return max(units[0], min(units[1], _FORGIVEN * size))


def ended_above(values: Sequence[float], dtype: torch.dtype) -> str:
    """How a value ended above its lowest: by a hundredth of its fall, or twice as high; empty if it
    did not.

    Example:
        >>> ended_above([8.0, 2.0, 3.0], torch.float64), ended_above([8.0, 2.0, 2.01], torch.float64)
        ('the value ended at 3, above its lowest of 2', '')
        >>> ended_above([1e6, 0.01, 0.9], torch.float64)
        'the value ended at 0.9, above its lowest of 0.01'
    """
    lowest = min(values)
    noise = rounding(dtype, max(map(abs, values)), abs(values[-1]))
    allowed = max(noise, min(_BACK * (values[0] - lowest), abs(lowest)))
    return (
        f"the value ended at {values[-1]:.6g}, above its lowest of {lowest:.6g}"
        if values[-1] - lowest > allowed
        else ""
    )


def rises(
    values: Sequence[float], first: int, dtype: torch.dtype, sizes: Sequence[float] | None = None
) -> list[int]:
    """The steps in which a value rose by more than rounding; ``first`` is the index of the first one.

    Example:
        >>> rises([8.0, 2.0, 3.0, 3.0], 0, torch.float64)
        [2]
    """
    largest, sizes = (
        max(map(abs, values)),
        [abs(value) for value in values] if sizes is None else sizes,
    )
    steps = enumerate(zip(pairwise(values), sizes[1:], strict=True), start=first + 1)
    return [step for step, ((a, b), size) in steps if b - a > rounding(dtype, largest, size)]


def of_values(
    values: Sequence[float], first: int, dtype: torch.dtype, sizes: Sequence[float] | None = None
) -> list[Note]:
    """Where a value without noise rose by more than rounding; ``first`` is the index of the first
    one.

    ``sizes`` are those of the terms that the values are the sums of.

    Example:
        >>> of_values([8.0, 2.0, 3.0], 0, torch.float64)[0].what
        'The value rose in 1 of 2 steps, first at step 2, and ended at 3, above its lowest of 2 at step 1.'
    """
    rose = rises(values, first, dtype, sizes)
    if not rose:
        return []
    lowest = min(values)
    at = first + list(values).index(lowest)
    end = f"ended at {values[-1]:.6g}"
    end += (
        f", above its lowest of {lowest:.6g} at step {at}"
        if at != first + len(values) - 1
        else ", its lowest"
    )
    what = f"The value rose in {len(rose)} of {len(values) - 1} steps, first at step {rose[0]}, and {end}."
    remedy = "Take result.best, a smaller step_size, or control=ad.Backtracking() with the exact gradient."
    command = (
        "Take a smaller --integrator.step-size, or --control backtracking with the exact gradient "
        "(--dynamics.through-laws)."
    )
    return [Note(what, remedy, command)]


def of_noise(names: Sequence[str]) -> list[Note]:
    """Steps and values that are random.

    Example:
        >>> of_noise(["SlicedOTDD"])[0].what
        'SlicedOTDD is random: single values are noisy, and steps are not controlled.'
    """
    if not names:
        return []
    are = "is" if len(names) == 1 else "are"
    what = f"{' and '.join(names)} {are} random: single values are noisy, and steps are not controlled."
    remedy = "Judge the end by a distance without noise: ad.otdd(result.dataset, target)."
    return [
        Note(
            what,
            remedy,
            "Judge the end by a distance without noise: advect distance run:DIRECTORY@-1 TARGET.",
        )
    ]


def of_growth(values: Sequence[float]) -> list[Note]:
    """Random values through an embedding that ended far above the first, beyond any noise: steps that
    are too long for a network, and that no control makes smaller.

    Example:
        >>> of_growth([3.0, 50.0, 4e5])[0].what
        'The value grew from 3 to 4e+05: the steps are too long for the embedding.'
        >>> of_growth([3.0, 5.0])
        []
    """
    if len(values) < 2 or not values[-1] > _GROWN * abs(values[0]):
        return []
    what = f"The value grew from {values[0]:.3g} to {values[-1]:.3g}: the steps are too long for the embedding."
    remedy = (
        "Take a smaller step_size, or a solver without draws, with which steps are controlled; or "
        "flow in the features: ad.harmonize(…, encoder=…)."
    )
    command = (
        "Take a smaller --integrator.step-size, or a --solver without draws, with which steps are "
        "controlled; or flow in the features: --space.encoder."
    )
    return [Note(what, remedy, command)]


def of_solver(unconverged: int, n: int) -> list[Note]:
    """Steps in which a solver did not meet its tolerance.

    Example:
        >>> of_solver(3, 10)[0].what
        'The transport solver did not converge in 3 of 10 evaluations: values and velocities there are approximate.'
    """
    if not unconverged:
        return []
    where = (
        f" in {unconverged} of {n} evaluations: values and velocities there are"
        if n > 1
        else ": the value is"
    )
    what = f"The transport solver did not converge{where} approximate."
    remedy = "If epsilon is above the costs, lower it; else raise it or max_iter, loosen tol, or use float64."
    command = (
        "If --solver.epsilon is above the costs, lower it; else raise it or --solver.max-iter, "
        "loosen --solver.tol, or use "
        "--dtype float64."
    )
    return [Note(what, remedy, command)]


def of_unresolved(energy: float, error: float, epsilon: float, largest: float | None) -> list[Note]:
    """Solved problems whose difference is lost in rounding; ``largest`` bounds the costs, where
    that is known.

    Example:
        >>> print(of_unresolved(0.0, 67.5, 1e15, 40.0)[0])
        The energy is 0, known to 6.8e+01 only. Lower epsilon (now 1e+15): costs are no larger than 40.
    """
    what = f"The energy is {energy:.3g}, known to {error:.1e} only."
    if largest is not None and epsilon > largest:
        lower = f"(now {epsilon:.3g}): costs are no larger than {largest:.3g}."
        return [Note(what, f"Lower epsilon {lower}", f"Lower --solver.epsilon {lower}")]
    remedy = (
        "Use float64 and no tol, or ad.ExactOT(); datasets still closer than that count as equal."
    )
    command = "Use --dtype float64 and no --solver.tol, or --solver.name exact; datasets still closer than that count as equal."
    return [Note(what, remedy, command)]


def of_parts(standard_error: float) -> list[Note]:
    """An energy that is a mean over random parts of the samples.

    Example:
        >>> of_parts(0.25)[0].what[:70]
        'The energy is a mean over random parts of the samples, with a standard'
    """
    noise = (
        f"with a standard error of {standard_error:.2g}"
        if math.isfinite(standard_error)
        else "of one part only"
    )
    what = (
        f"The energy is a mean over random parts of the samples, {noise}; it is larger on average "
        "than that of all samples, "
        "and the error does not say by how much."
    )
    remedy = "Use a larger size (less bias), more batches (less noise), or all samples: ad.Sinkhorn() with a memory_limit."
    command = (
        "Use a larger --solver.size (less bias), more --solver.batches (less noise), or all "
        "samples: --solver.name sinkhorn "
        "with --memory-limit."
    )
    return [Note(what, remedy, command)]


def of_reach(mass_left: float) -> list[Note]:
    """Mass that a reach leaves behind.

    Example:
        >>> of_reach(0.253)[0].what
        '25% of the mass is left behind: nothing is within reach of it.'
    """
    if not mass_left > _LEFT:
        return []
    what = f"{_percent(mass_left)} of the mass is left behind: nothing is within reach of it."
    if mass_left > _MOST:
        more = "That is most of it: raise"
        return [Note(what, f"{more} reach.", f"{more} --solver.reach.")]
    remedy = "left_in_source and left_in_target of the distance say of which classes; a larger reach carries more."
    command = "advect distance says of which classes; a larger --solver.reach carries more."
    return [Note(what, remedy, command)]


def of_pair(
    source: LabeledDataset, target: LabeledDataset, cost: _Compared, *, leaves_mass: bool = False
) -> list[Note]:
    """What two datasets that are compared are like: columns, samples for each class, class
    shares (which need not be met where mass may be left behind).
    """
    notes = _columns(source, target) if cost.by_columns else []
    if cost.estimates_covariances:
        notes += _few_samples(source, target)
    if cost.names_count:
        notes += _names(source, target)
    return notes + (_shares(source, target) if cost.has_labels and not leaves_mass else [])


def of_doubt(floor: float) -> list[Note]:
    """Labels with doubt whose cost may fall below zero; ``floor`` bounds it."""
    if floor >= 0:
        return []
    what = (
        f"The cost of labels with doubt may be as low as {floor:.2g}: distances of full covariances "
        "are not those of points, and mixtures of classes can be nearer than nothing."
    )
    remedy = "It changes no plan. Where it matters use ad.Bures(diagonal=True) or ad.MeansOnly()."
    return [Note(what, remedy, "It changes no plan. Where it matters use --cost.diagonal.")]


def _names(source: LabeledDataset, target: LabeledDataset) -> list[Note]:
    """Classes that the other dataset has no class of the same name for, where names cost something."""
    alone = [strangers(source, target), strangers(target, source)]
    if not any(alone):
        return []
    if len(alone[0]) == len(_counts(source)):
        few = [_listed([str(name) for name in data.classes]) for data in (source, target)]
        what = (
            f"No class name of the source is in the target ({few[0]} and {few[1]}): the penalty is the "
            "same for every pair, and decides nothing."
        )
        remedy = "Rename classes, data.replace(classes=(…)), or compare them by their laws: label=ad.Bures()."
        command = "Rename classes, or compare them by their laws: --cost.label bures."
        return [Note(what, remedy, command)]
    sides = [
        f"{_listed(names)} of the {side}"
        for side, names in zip(("source", "target"), alone, strict=True)
        if names
    ]
    what = (
        f"Classes without a namesake: {' and '.join(sides)}. They cost the penalty to every class: "
        "the rest of the cost decides where they go."
    )
    remedy = "Rename them if they are the same as others; with ad.ByName(plus=ad.Bures()) their laws count too."
    command = (
        "Rename them if they are the same as others; with --cost.plus bures their laws count too."
    )
    return [Note(what, remedy, command)]


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")


def _columns(source: LabeledDataset, target: LabeledDataset) -> list[Note]:
    """One column that carries most of the squared distances between samples."""
    if source.dim < 2 or source.dim != target.dim:
        return []
    (mean, spread), (other, width) = _moments(source), _moments(target)
    parts = spread + width + (mean - other).square()  # E (x_j − x'_j)² of independent samples
    share, column = (parts / parts.sum()).max(dim=0)
    if not float(share) >= (_DOMINANT if source.dim >= _FEW_COLUMNS else _DOMINANT_OF_FEW):
        return []
    name = source.columns[int(column)] if source.columns else f"feature {int(column) + 1}"
    what = (
        f"Column {name!r} carries {_percent(float(share))} of the squared distances between "
        "samples: the others count little."
    )
    remedy = (
        'Bring columns to one scale, as with ad.harmonize(…, scale="standardize"), or leave it out.'
    )
    return [
        Note(
            what,
            remedy,
            "Bring columns to one scale with --space.scale standardize, or leave it out.",
        )
    ]


def _moments(data: LabeledDataset) -> tuple[Tensor, Tensor]:
    """Mean and variance of each column by weight, of some samples."""
    rows = _some(data.weights > 0, _SOME)
    x, mass = data.x.detach()[rows].double(), data.weights[rows].double()[:, None]
    mean = (mass * x).sum(dim=0) / mass.sum()
    return mean, (mass * (x - mean).square()).sum(dim=0) / mass.sum()


def _some(having: Tensor, most: int) -> Tensor:
    """At most so many of the rows that have mass, at random but always the same: labels may come in
    any regular order.
    """
    rows = having.nonzero()[:, 0]
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:most]
    return rows[order.to(rows.device)]


def _few_samples(source: LabeledDataset, target: LabeledDataset) -> list[Note]:
    """Classes whose covariance is estimated from fewer samples than dimensions."""
    found, least = [], 0
    for name, data in (("source", source), ("target", target)):
        counts = _counts(data) if data.law is None else []
        few = [count for count in counts if count <= data.dim]
        if few:
            found.append(f"{len(few)} of {len(counts)} classes of the {name}")
            least = min(few) if len(found) == 1 else min(least, *few)
    if not found:
        return []
    what = (
        f"The laws of {' and '.join(found)} are estimated from no more samples ({least} at the "
        "least) than there are "
        f"dimensions ({source.dim}): their covariances are rough."
    )
    command = "Use more samples, --cost.diagonal, or fewer dimensions (--space.project)."
    return [Note(what, "Use more samples, ad.Bures(diagonal=True), or fewer dimensions.", command)]


def _counts(data: LabeledDataset) -> list[int]:
    """How many samples with mass each class has that has any; of labels with doubt, how many are
    to be expected.
    """
    if data.probabilities is not None:
        expected = data.probabilities[data.weights > 0].sum(dim=0).tolist()
        return [max(1, round(count)) for count in expected if count > 0]
    return [
        count for count in data.y[data.labeled & (data.weights > 0)].bincount().tolist() if count
    ]


def _shares(source: LabeledDataset, target: LabeledDataset) -> list[Note]:
    """Mass that must change its class whichever class becomes which, since class shares differ."""
    if not source.classes or not target.classes:
        return []
    a, b = (data.class_mass.double().cpu().sort(descending=True)[0] for data in (source, target))
    width = max(len(a), len(b))
    a, b = (torch.nn.functional.pad(part / part.sum(), (0, width - len(part))) for part in (a, b))
    change = float((a - b).abs().sum()) / 2  # the least over all ways to match classes
    if change <= _CHANGE:
        return []
    what = f"Class shares differ: at least {_percent(change)} of the mass must change its class, whichever class becomes which."
    remedy = (
        "Draw equally many of each class, or weight samples, if shares are not part of the "
        "question: docs/imbalanced.md."
    )
    return [
        Note(
            what,
            remedy,
            "Draw equally many of each class (--balanced), if shares are not part of the question.",
        )
    ]


def of_mixing(
    before: LabeledDataset, after: LabeledDataset, target: LabeledDataset | None = None
) -> list[Note]:
    """Classes that were apart and are so no longer, by the nearest neighbours of some samples.

    Nothing is said where the ``target`` asks for it: classes overlap there as much, or are fewer.
    """
    if len(before) != len(after) or len(before.classes) < 2 or len(before) < 4:
        return []
    if target is not None and len(_counts(target)) < len(_counts(before)):
        return []
    rows = _some(before.labeled & (before.weights > 0) & (after.weights > 0), _NEIGHBOURS)
    if len(rows) < 4:
        return []
    pure, still = (_purity(data, rows) for data in (before, after))
    aim = (
        1.0
        if target is None
        else _purity(target, _some(target.labeled & (target.weights > 0), len(rows)))
    )
    if min(pure, aim) - still <= _MIXED:
        return []
    what = (
        f"Classes have mixed: the nearest neighbour is of the same class for {_percent(still)} of "
        "the samples, and was for "
        f"{_percent(pure)} at the start"
        + (f" (in the target {_percent(aim)})." if target is not None else ".")
    )
    if target is None:
        command = "Stop earlier (--stop.tol), or use more samples of each class."
        return [Note(what, "Stop earlier, or use more samples of each class.", command)]
    command = (
        "Raise --cost.label-weight, stop earlier (--stop.tol), or use more samples of each class."
    )
    return [
        Note(what, "Raise label_weight, stop earlier, or use more samples of each class.", command)
    ]


def _purity(data: LabeledDataset, rows: Tensor) -> float:
    x, y = data.x.detach()[rows].double(), data.y[rows]
    distances = torch.cdist(x, x).fill_diagonal_(torch.inf)
    return float((y[distances.argmin(dim=1)] == y).double().mean())


def _percent(share: float) -> str:
    return f"{share:.0%}" if share < 0.995 else f"{share:.1%}"
