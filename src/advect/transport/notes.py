"""Notes on distances and flows: warnings in plain sentences, each with a remedy.

A note is made only if it can be seen cheaply, from some thousand samples, that something needs
care. No note does not mean that all is well. Remedies name Python parameters; the command line
uses the same names (``n_steps`` is ``--n-steps``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from advect.cost import GroundCost, PairCost, same_names, unmatched_classes
from advect.data.dataset import LabeledDataset
from advect.transport.matchings import Matchings
from advect.transport.transport import rounding

_RISE = 0.01  # of the whole fall: a last value that is higher above the lowest has risen
_DOMINANT = 0.8  # share of squared distances of one column
_DOMINANT_OF_FEW, _FEW_COLUMNS = 0.99, 5
_MOST, _FEW_OF_MANY = (
    0.95,
    0.1,
)  # share of several columns, if they are fewer than this share of all
_SHORT, _GAIN = 0.1, 0.1  # mean share of the step size, and of the fall
_CLASS_CHANGE = 0.02  # mass: smaller differences of class proportions do not matter
_MASS_LEFT, _MOST_MASS = 0.01, 0.5
_MIXED = 0.2  # share of samples whose nearest neighbor is no longer of their class
_MAX_ROWS, _MAX_NEIGHBORS, _MAX_NAMES = 2000, 600, 5


@dataclass(frozen=True)
class Note:
    """A sentence (``what``) and what to do about it (``remedy``)."""

    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what} {self.remedy}"


def ended_above(values: Sequence[float], dtype: torch.dtype) -> str:
    """A sentence if the last value is above the lowest by more than noise, else ''."""
    lowest = min(values)
    noise = rounding(dtype, max(map(abs, values)), abs(values[-1]))
    allowed = max(noise, min(_RISE * (values[0] - lowest), abs(lowest)))
    if values[-1] - lowest <= allowed:
        return ""
    return f"the value ended at {values[-1]:.6g}, above its lowest of {lowest:.6g}"


def rises(
    values: Sequence[float], first: int, dtype: torch.dtype, sizes: Sequence[float] | None = None
) -> list[int]:
    """The steps in which a value rose by more than rounding; ``first`` is the index of values[0]."""
    largest = max(map(abs, values))
    sizes = [abs(value) for value in values] if sizes is None else sizes
    steps = enumerate(zip(pairwise(values), sizes[1:], strict=True), start=first + 1)
    return [step for step, ((a, b), size) in steps if b - a > rounding(dtype, largest, size)]


def of_values(
    values: Sequence[float], first: int, dtype: torch.dtype, sizes: Sequence[float] | None = None
) -> list[Note]:
    """A deterministic value that rose; ``sizes`` are those of the terms that it sums."""
    rose = rises(values, first, dtype, sizes)
    if not rose:
        return []
    lowest = min(values)
    at = first + list(values).index(lowest)
    end = ", its lowest"
    if at != first + len(values) - 1:
        end = f", above its lowest of {lowest:.6g} at step {at}"
    what = (
        f"The value rose in {len(rose)} of {len(values) - 1} steps, first at step {rose[0]}, and "
        f"ended at {values[-1]:.6g}{end}."
    )
    remedy = (
        "Use result.best, a smaller step_size, or control=ad.Backtracking() with the exact gradient "
        "(through_laws=True)."
    )
    return [Note(what, remedy)]


def of_steps(share: float, values: Sequence[float]) -> list[Note]:
    """Steps that step control cut to a small share of their size, in a flow that had not ended."""
    # what as many steps of full size would still gain, by the last one
    gain, last = values[0] - values[-1], values[-2:][0] - values[-1]
    if share >= _SHORT or last * len(values) <= share * _GAIN * gain:
        return []
    what = f"Step control cut the steps to {_percent(share)} of step_size on average, and the flow had not ended."
    return [Note(what, "Make more steps, or give terms with large gradients a smaller weight.")]


def of_noise(names: Sequence[str]) -> list[Note]:
    """Functionals that are random."""
    if not names:
        return []
    are = "is" if len(names) == 1 else "are"
    what = f"{' and '.join(names)} {are} random: values are noisy, and steps are not controlled."
    remedy = "Judge the result by a distance without noise: ad.otdd(result.dataset, target)."
    return [Note(what, remedy)]


def of_solver(unconverged: int, n: int) -> list[Note]:
    """Evaluations in which a solver did not meet its tolerance."""
    if not unconverged:
        return []
    where = ": the value is"
    if n > 1:
        where = f" in {unconverged} of {n} evaluations: values and velocities there are"
    remedy = (
        "If epsilon is above the costs, lower it; else raise it or max_iter, loosen tol, or use "
        "float64."
    )
    return [Note(f"The transport solver did not converge{where} approximate.", remedy)]


def of_unresolved(energy: float, error: float, epsilon: float, largest: float | None) -> list[Note]:
    """Solved problems whose difference is lost in rounding; ``largest`` bounds the costs."""
    what = f"The energy is {energy:.3g}, with a numerical error of up to {error:.1e}."
    if largest is not None and epsilon > largest:
        bound = f"costs are no larger than {largest:.3g}"
        return [Note(what, f"Lower epsilon (now {epsilon:.3g}): {bound}.")]
    remedy = (
        "Use float64 without tol, or ad.ExactOT(). If the note remains, the datasets are equal up to "
        "rounding."
    )
    return [Note(what, remedy)]


def of_batches(standard_error: float) -> list[Note]:
    """An energy that is a mean over random batches."""
    noise = "here one batch"
    if math.isfinite(standard_error):
        noise = f"with a standard error of {standard_error:.2g}"
    what = (
        f"The energy is a mean over random batches, {noise}. Its expected value is above the energy "
        "of all samples; the standard error does not include this bias."
    )
    remedy = (
        "Use a larger size (less bias), more batches (less noise), or all samples: ad.Sinkhorn() "
        "with a memory_limit."
    )
    return [Note(what, remedy)]


def of_reach(mass_left: float) -> list[Note]:
    """Mass that a reach leaves behind."""
    if not mass_left > _MASS_LEFT:
        return []
    remedy = (
        "left_in_source and left_in_target of the distance show the mass by class. Raise reach to "
        "transport more."
    )
    if mass_left > _MOST_MASS:
        remedy = "Raise reach."
    what = f"{_percent(mass_left)} of the mass is not transported, because it costs more than reach allows."
    return [Note(what, remedy)]


def of_soft_labels(floor: float) -> list[Note]:
    """Soft labels whose cost may be negative; ``floor`` bounds it."""
    if floor >= 0:
        return []
    what = (
        f"The cost of soft labels may be as low as {floor:.2g}, because distances between full "
        "covariances are not Euclidean."
    )
    remedy = (
        "Transport plans are not affected. ad.Bures(diagonal=True) and ad.MeansOnly() avoid it."
    )
    return [Note(what, remedy)]


def of_pair(
    source: LabeledDataset, target: LabeledDataset, cost: GroundCost, *, leaves_mass: bool = False
) -> list[Note]:
    """Columns, samples per class, names and class proportions of two datasets.

    Proportions need not agree if mass may be left behind.
    """
    notes = _columns(source, target) if cost.by_columns else []
    if cost.estimates_covariances:
        notes += _few_samples(source, target)
    if cost.names_count:
        notes += _names(source, target)
    return notes + (_proportions(source, target) if cost.has_labels and not leaves_mass else [])


def of_matching(pair: PairCost) -> list[Note]:
    """Equal names that the best class matching does not follow, and a second matching as good as the best."""
    found = None if pair.label_cost.names_count or not pair.has_labels else Matchings.of(pair)
    if found is None:
        return []
    notes, names = [], found.by_names()
    moved = found.text(found.best, names) if same_names(pair.source, pair.target) else ""
    if moved:
        what = f"Class names agree, but the class matching does not follow them: {moved}."
        notes.append(Note(what, "If equal names mean the same, use label=ad.ByName()."))
    if found.is_within_noise(found.second):
        ways = f"{found.text(found.best, found.second)} or {found.text(found.second, found.best)}"
        what = f"The costs of the two best class matchings differ by no more than noise: {ways}."
        notes.append(
            Note(what, "Use more samples, or label=ad.ByName() if equal names mean the same.")
        )
    return notes


def _names(source: LabeledDataset, target: LabeledDataset) -> list[Note]:
    """Classes without a class of the same name in the other dataset."""
    alone = [unmatched_classes(source, target), unmatched_classes(target, source)]
    if not any(alone):
        return []
    if len(alone[0]) == len(_counts(source)):
        names = [_listed([str(name) for name in data.classes]) for data in (source, target)]
        what = (
            f"No class name of the source is in the target ({names[0]} and {names[1]}): the penalty "
            "is the same for every pair and has no effect."
        )
        remedy = "Rename classes, data.replace(classes=(…)), or compare class distributions: label=ad.Bures()."
        return [Note(what, remedy)]
    sides = zip(("source", "target"), alone, strict=True)
    listed = [f"{_listed(names)} of the {side}" for side, names in sides if names]
    what = (
        f"Classes without a class of the same name: {' and '.join(listed)}. Their label cost is "
        "the same for every class, so the features decide their matching."
    )
    remedy = "Rename classes that mean the same, or also compare distributions: ad.ByName(plus=ad.Bures())."
    return [Note(what, remedy)]


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_MAX_NAMES]) + (", …" if len(names) > _MAX_NAMES else "")


def _columns(source: LabeledDataset, target: LabeledDataset) -> list[Note]:
    """One column that carries most of the squared distances between samples."""
    if source.dim < 2 or source.dim != target.dim:
        return []
    (mean, variance), (other_mean, other_variance) = _moments(source), _moments(target)
    # E (x_j − x'_j)² of independent samples is the sum of variances and squared gap of means.
    parts = variance + other_variance + (mean - other_mean).square()
    shares, order = (parts / parts.sum()).sort(descending=True)
    count = 1
    if not float(shares[0]) >= (_DOMINANT if source.dim >= _FEW_COLUMNS else _DOMINANT_OF_FEW):
        # the fewest columns that carry most; more than there are for NaN
        count += source.dim - int((shares.cumsum(dim=0) >= _MOST).sum())
        if count >= _FEW_OF_MANY * source.dim:
            return []
    names = [source.columns[i] if source.columns else f"feature {i + 1}" for i in order[:count]]
    carry = f"Column {names[0]!r} carries" if count == 1 else f"Columns {_listed(names)} carry"
    what = (
        f"{carry} {_percent(float(shares[:count].sum()))} of the squared distances between "
        "samples, so the other columns have little influence."
    )
    remedy = 'Standardize the columns, ad.harmonize(…, scale="auto"), or leave these columns out.'
    return [Note(what, remedy)]


def _moments(data: LabeledDataset) -> tuple[Tensor, Tensor]:
    """Weighted mean and variance of each column, from some samples."""
    rows = _some(data.weights > 0, _MAX_ROWS)
    x, mass = data.x.detach()[rows].double(), data.weights[rows].double()[:, None]
    mean = (mass * x).sum(dim=0) / mass.sum()
    return mean, (mass * (x - mean).square()).sum(dim=0) / mass.sum()


def _some(mask: Tensor, most: int) -> Tensor:
    """At most ``most`` of the marked rows, at random but always the same."""
    rows = mask.nonzero()[:, 0]
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:most]
    return rows[order.to(rows.device)]


def _few_samples(source: LabeledDataset, target: LabeledDataset) -> list[Note]:
    """Classes whose covariance is estimated from fewer samples than dimensions."""
    found, least = [], math.inf
    for name, data in (("source", source), ("target", target)):
        counts = _counts(data) if data.law is None else []
        few = [count for count in counts if count <= data.dim]
        if few:
            found.append(f"{len(few)} of {len(counts)} classes of the {name}")
            least = min(least, *few)
    if not found:
        return []
    what = (
        f"The covariances of {' and '.join(found)} are inaccurate: there are as few as {least} "
        f"samples for {source.dim} dimensions."
    )
    return [Note(what, "Use more samples, ad.Bures(diagonal=True), or fewer dimensions.")]


def _counts(data: LabeledDataset) -> list[int]:
    """Samples with mass of each class that has any; expected numbers for soft labels."""
    if data.probabilities is not None:
        expected = data.probabilities[data.weights > 0].sum(dim=0).tolist()
        return [max(1, round(count)) for count in expected if count > 0]
    counts = data.y[data.labeled & (data.weights > 0)].bincount().tolist()
    return [count for count in counts if count]


def _proportions(source: LabeledDataset, target: LabeledDataset) -> list[Note]:
    """Mass that changes its class under any matching, because class proportions differ."""
    if not source.classes or not target.classes:
        return []
    a, b = (data.class_mass.double().cpu().sort(descending=True)[0] for data in (source, target))
    width = max(len(a), len(b))
    a, b = (torch.nn.functional.pad(part / part.sum(), (0, width - len(part))) for part in (a, b))
    # Total variation of the sorted proportions, the least over all matchings of classes.
    change = float((a - b).abs().sum()) / 2
    if change <= _CLASS_CHANGE:
        return []
    what = (
        f"Class proportions differ: at least {_percent(change)} of the mass changes its class, for "
        "any class matching."
    )
    remedy = (
        "If proportions should not count, use equal class weights (data.balanced()); see "
        "docs/class-matching.md."
    )
    return [Note(what, remedy)]


def of_mixing(
    before: LabeledDataset, after: LabeledDataset, target: LabeledDataset | None = None
) -> list[Note]:
    """Classes that were separated and have mixed, by nearest neighbors of some samples.

    There is no note if classes overlap as much in the ``target``, or are fewer there.
    """
    if len(before) != len(after) or len(before.classes) < 2 or len(before) < 4:
        return []
    if target is not None and len(_counts(target)) < len(_counts(before)):
        return []
    rows = _some(before.labeled & (before.weights > 0) & (after.weights > 0), _MAX_NEIGHBORS)
    if len(rows) < 4:
        return []
    start, end = (_purity(data, rows) for data in (before, after))
    goal, in_target = 1.0, ""
    if target is not None:
        goal = _purity(target, _some(target.labeled & (target.weights > 0), len(rows)))
        in_target = f" (in the target {_percent(goal)})"
    if min(start, goal) - end <= _MIXED:
        return []
    what = (
        f"Classes have mixed: {_percent(end)} of the samples have a nearest neighbor of their own "
        f"class, {_percent(start)} at the start{in_target}."
    )
    remedy = "Stop earlier, or use more samples of each class."
    return [Note(what, remedy if target is None else f"Raise label_weight. {remedy}")]


def _purity(data: LabeledDataset, rows: Tensor) -> float:
    x, y = data.x.detach()[rows].double(), data.y[rows]
    # share of samples whose nearest neighbor has their class
    distances = torch.cdist(x, x).fill_diagonal_(torch.inf)
    return float((y[distances.argmin(dim=1)] == y).double().mean())


def _percent(share: float) -> str:
    return f"{share:.0%}" if share < 0.995 else f"{share:.1%}"
