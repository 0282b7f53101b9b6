"""The sampling error of a distance, computed without another solve.

To first order the energy S(A, B) is a mean over samples of its first variation, so that its variance
over draws is that of a mean: Var[ψ(z)]/n + Var[χ(z')]/m (del Barrio, González-Sanz, Loubes and
Niles-Weed 2023; Goldfeld, Kato, Rioux and Sadhu 2024, for entropic transport). Here

    ψ(x, y) = f(x, y) − f_aa(x, y) + (φ_y(x) − ⟨α_y, φ_y⟩) / p_y

The first two are dual potentials. The last is the effect of other samples on the label laws, which the
cost depends on: φ_y is the first variation of ⟨P, C⟩ in the law α_y, of a class of mass p_y. Its
gradient at the samples is that of the cost through the laws, and along the line from the mean μ_y to x
the trapezoid rule gives φ_y(x) − φ_y(μ_y) = ½ (∇φ_y(x) + mean of ∇φ_y)·(x − μ_y): exact where φ_y is
quadratic, as it is for laws that are means and covariances.

Terms of higher order are neglected: the bias of small samples, and the whole variance between two samples
of one distribution, for which ψ vanishes in the limit. Class proportions are treated as fixed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from advect._util import check_number, refuse_if
from advect.cost import PairCost
from advect.data.dataset import LabeledDataset
from advect.ot import Divergence

Pairs = tuple[PairCost, PairCost, PairCost]

_LIGHT = 1e-3  # of the mass of a law: pairs of laws with less do not move the variance
_TAILS = 2  # weight of fourth moments in degrees of freedom, by coverage for Student's t
_STEEP = 1 + math.sqrt(2)  # of the value, beyond which the root bounds the error of it


def check_level(level: float, freedom: float = math.inf) -> float:
    """How many standard deviations on either side have this confidence, for a variance that is itself
    estimated, with so many degrees of freedom.
    """
    refuse_if(
        not 0 < check_number("level", level) < 1,
        "level must be between 0 and 1",
        repr(level),
        "Take 0.95.",
    )
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + float(level)) / 2))


def value_error(value: float, error: float) -> float:
    """The standard error of √(2 E) from that of E: first order, at most √(2 (E + error))."""
    bound = math.sqrt(value**2 + 2 * error)
    return min(error / value, bound) if value != 0 else bound


def energy_error_of(value: float, error: float) -> float:
    """The standard error of E that ``value_error`` was given."""
    return value * error if error <= _STEEP * value else (error**2 - value**2) / 2


def between_values(squared: float, away: float) -> tuple[float, float]:
    """√(squared ∓ 2 away), from 0; NaN where one of them is."""
    if math.isnan(squared + away):
        return math.nan, math.nan
    return math.sqrt(max(0.0, squared - 2 * away)), math.sqrt(squared + 2 * away)


def energy_error(divergence: Divergence, pairs: Pairs) -> tuple[float, float]:
    """The standard deviation of the energy over new samples of the same size of each class, to first order,
    and its degrees of freedom. Raises an error if the first order is not known.
    """
    sides = pairs[0].source, pairs[0].target
    reason = _missing_reason(sides, divergence)
    refuse_if(
        reason,
        "this distance has no standard error",
        reason,
        "Compare distances of several draws: data.sample(n).",
    )
    parts = zip(sides, divergence.contributions, _through_laws(divergence, pairs), strict=True)
    # ψ up to a constant: what a little more mass at a sample adds to the energy
    return _deviation(sides, [part.double() / data.weights + laws for data, part, laws in parts])


def class_cost_error(pair: PairCost, table: Tensor) -> float:
    """The standard deviation of ⟨table, D⟩ over other draws of as many samples of each class, to first
    order; D are the squared distances between class laws.
    """
    sides = [side._replace(x=side.x.detach().requires_grad_()) for side in pair.sides]
    with torch.enable_grad():
        total = (table * pair.label_cost(*sides).double().cpu()).sum()
    return _deviation(sides, _potentials(total, sides))[0]


def _deviation(
    sides: Sequence[LabeledDataset], variations: Sequence[Tensor]
) -> tuple[float, float]:
    """The standard deviation of a number with these first variations at the samples of both sides, and its
    degrees of freedom.

    They are those of Welch and Satterthwaite for classes of unequal variance, and fewer for heavy tails,
    1/ν = Σ s_c⁴/(n_c − 1) / (Σ s_c²)² + 2 Σ z⁴ / (Σ s_c²)²  with  z = w (ψ − mean of the class).
    """
    parts = []
    for data, variation in zip(sides, variations, strict=True):
        weights = data.weights.double()
        rows = weights > 0
        parts.append(_moments(variation[rows], weights[rows], data.y[rows] + 1))  # −1: no class
    variance, squares, tails = (float(sum(part)) for part in zip(*parts, strict=True))
    inverse = (squares + _TAILS * tails) / variance**2 if variance else 0.0
    return math.sqrt(variance), 1 / inverse if inverse else math.inf


def _missing_reason(sides: tuple[LabeledDataset, LabeledDataset], divergence: Divergence) -> str:
    """Why there is no first-order standard error; empty where there is one."""
    if divergence.sampled:
        return "a solver with random batches"
    if divergence.cross.reach is not None:
        return "a solver with a reach"
    if any(data.has_soft_labels for data in sides):
        return "soft labels"
    codes = [data.y[data.weights > 0] for data in sides]
    if all(len(part) == len(part.unique()) for part in codes):
        return "one sample with weight in each class"
    return ""


def _moments(values: Tensor, weights: Tensor, groups: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Σ s_c², Σ s_c⁴/(n_c − 1) and Σ z⁴ with z = w (ψ − mean of the group) and s_c² = Σ z² n_c/(n_c − 1)."""
    groups = groups.unique(return_inverse=True)[1]

    def by_group(rows: Tensor) -> Tensor:
        return rows.new_zeros(int(groups.max()) + 1).index_add_(0, groups, rows)

    counts = torch.bincount(groups).double()
    z = weights * (values - (by_group(weights * values) / by_group(weights))[groups])
    others = (counts - 1).clamp_min(1)
    variances = by_group(z.square()) * counts / others
    return variances.sum(), (variances.square() / others).sum(), z.pow(4).sum()


def _through_laws(divergence: Divergence, pairs: Pairs) -> list[Tensor]:
    """The last part of ψ for the samples of the source and of the target."""
    zeros = [torch.zeros_like(data.weights) for data in (pairs[0].source, pairs[0].target)]
    if not pairs[0].has_labels or all(side.law is not None for side in pairs[0].sides):
        return zeros
    first, second = (  # laws that a dataset carries do not depend on its samples
        side._replace(x=side.x.detach().requires_grad_(side.law is None)) for side in pairs[0].sides
    )
    sides = first, second
    datasets = ((sides[0], sides[1]), (sides[0], sides[0]), (sides[1], sides[1]))
    label, total = pairs[0].label_cost, torch.zeros((), dtype=torch.float64)
    with torch.enable_grad():
        tables = label.together(*sides) or (None, None, None)
    # ⟨M, D⟩ of the three problems with fixed class plans M, as a function of the samples through D
    problems = zip((1.0, -0.5, -0.5), datasets, tables, pairs, divergence.solutions, strict=True)
    for share, (source, target), table, pair, solution in problems:
        assert pair.labels is not None
        plan = pair.labels.class_plan(solution.coupling).double()
        least = torch.minimum(plan.sum(dim=1, keepdim=True), plan.sum(dim=0, keepdim=True))
        counts = plan > _LIGHT * least
        if source is target:  # a law is at distance 0 from itself
            counts = counts.fill_diagonal_(False)
        if not bool(counts.any()):
            continue
        with torch.enable_grad():
            distances = label(source, target) if table is None else table
            total = total + share * pairs[0].label_weight / 2 * (plan * distances.double()).sum()
    return _potentials(total, sides)


def _potentials(total: Tensor, sides: Sequence[LabeledDataset]) -> list[Tensor]:
    """``_potential`` of each side for a number that depends on its samples through label laws."""
    if total.requires_grad:  # not for distances by name, which do not depend on samples
        total.backward()
    return [
        torch.zeros_like(side.weights) if grad is None else _potential(side, grad.double())
        for side, grad in zip(sides, [side.x.grad for side in sides], strict=True)
    ]


def _potential(data: LabeledDataset, gradient: Tensor) -> Tensor:
    """(φ_y(x) − ⟨α_y, φ_y⟩) / p_y of each sample, from the gradient in the samples of the cost of the
    laws of their classes.
    """
    size, y, weights = len(data.classes), data.y, data.weights.double()
    masses = weights.new_zeros(size).index_add_(0, y, weights)[y]
    has_mass = weights > 0
    share, x = torch.where(has_mass, weights / masses, 0.0), data.x.detach().double()

    def by_class(rows: Tensor) -> Tensor:
        return rows.new_zeros(size, *rows.shape[1:]).index_add_(0, y, rows)[y]

    # φ_y is quadratic: its value at x follows from its gradients at x and at the mean, by the
    # trapezoid rule. The gradient of sample i is w_i/p_y ∇φ_y(x_i).
    away = x - by_class(share[:, None] * x)
    slopes = torch.where(has_mass[:, None], gradient / share[:, None], 0.0)
    values = ((slopes + by_class(gradient)) * away).sum(dim=1) / 2
    return torch.where(has_mass, (values - by_class(share * values)) / masses, 0.0)
