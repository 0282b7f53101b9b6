"""How much a distance varies with the samples it was taken from, without another solve.

To first order the energy S(A, B) is a mean over samples of its first variation, so that its variance
over draws is that of a mean: Var[ψ(z)]/n + Var[χ(z')]/m (del Barrio, González-Sanz, Loubes and
Niles-Weed 2023; Goldfeld, Kato, Rioux and Sadhu 2024, for entropic transport). Here

    ψ(x, y) = f(x, y) − f_aa(x, y) + (φ_y(x) − ⟨α_y, φ_y⟩) / p_y

The first two are dual potentials. The last is what other samples would make of the laws of labels,
which the cost depends on: φ_y is the first variation of ⟨P, C⟩ in the law α_y, of a class of mass
p_y. Its gradient at the samples is that of the cost through the laws, and along the line from the
mean μ_y to x the trapezoid rule gives φ_y(x) − φ_y(μ_y) = ½ (∇φ_y(x) + mean of ∇φ_y)·(x − μ_y):
exact where φ_y is quadratic, as it is for laws that are means and covariances.

What is left out is of higher order: the bias of few samples, and all of the variance between two
draws of one law, where ψ vanishes in the limit."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from advect.cost import PairCost
from advect.data.dataset import LabeledDataset
from advect.ot.solver import Divergence
from advect.transport.redraw import varies

_LIGHT = 1e-3  # of the mass of a law: pairs of laws with less do not move the variance


def why_unknown(
    sides: tuple[LabeledDataset, LabeledDataset], divergence: Divergence, within_classes: bool
) -> str:
    """What is in the way of a first-order standard error; empty where nothing is."""
    if divergence.sampled:
        return "a solver with random batches"
    if divergence.cross.reach is not None:
        return "a solver with a reach"
    if any(data.has_soft_labels for data in sides):
        return "soft labels"
    if not any(varies(data, within_classes) for data in sides):
        return "one sample with weight in each " + ("class" if within_classes else "dataset")
    return ""


def energy_error(
    divergence: Divergence, pairs: tuple[PairCost, PairCost, PairCost], within_classes: bool
) -> float:
    """The standard deviation of the energy over other draws of as many samples, to first order;
    ``within_classes`` where equally many of each class would be drawn again.
    """
    total = 0.0
    sides = pairs[0].source, pairs[0].target
    for data, values in zip(sides, first_variation(divergence, pairs), strict=True):
        groups = data.y + 1 if within_classes else torch.zeros_like(data.y)  # −1 is no class
        rows = data.weights > 0
        total += float(_variance(values[rows], data.weights[rows].double(), groups[rows]))
    return math.sqrt(total)


def first_variation(
    divergence: Divergence, pairs: tuple[PairCost, PairCost, PairCost]
) -> tuple[Tensor, Tensor]:
    """ψ and χ at the samples, each up to a constant: what a little more mass at a sample adds to the
    energy, where epsilon and laws that datasets carry stay as they are; 0 for samples of no weight.
    """
    found = []
    for data, part, law in zip(
        (pairs[0].source, pairs[0].target),
        divergence.contributions,
        _through_laws(divergence, pairs),
        strict=True,
    ):
        weights = data.weights.double()
        found.append(torch.where(weights > 0, part.double() / weights, 0.0) + law)
    return found[0], found[1]


def _variance(values: Tensor, weights: Tensor, groups: Tensor) -> Tensor:
    """Σ w² (ψ − mean of the group)² n/(n − 1)."""
    groups = groups.unique(return_inverse=True)[1]
    masses, sums = (
        part.new_zeros(int(groups.max()) + 1).index_add_(0, groups, part)
        for part in (weights, weights * values)
    )
    counts = torch.bincount(groups).double()
    unbiased = (counts / (counts - 1).clamp_min(1))[groups]
    return (unbiased * (weights * (values - (sums / masses)[groups])).square()).sum()


def _through_laws(
    divergence: Divergence, pairs: tuple[PairCost, PairCost, PairCost]
) -> tuple[Tensor, Tensor]:
    """The last part of ψ for the samples of the source and of the target."""
    nothing = tuple(
        torch.zeros_like(data.weights, dtype=torch.float64)
        for data in (pairs[0].source, pairs[0].target)
    )
    if not pairs[0].has_labels or all(side.law is not None for side in pairs[0].sides):
        return nothing[0], nothing[1]
    sides = [  # laws that a dataset carries do not come of its samples
        side._replace(x=side.x.detach().requires_grad_(side.law is None)) for side in pairs[0].sides
    ]
    between = ((sides[0], sides[1]), (sides[0], sides[0]), (sides[1], sides[1]))
    label, total = pairs[0].label_cost, torch.zeros((), dtype=torch.float64)
    for share, (one, two), pair, part in zip(
        (1.0, -0.5, -0.5), between, pairs, divergence.solutions, strict=True
    ):
        plan = pair.class_plan(part.coupling).double()
        own = torch.minimum(plan.sum(dim=1, keepdim=True), plan.sum(dim=0, keepdim=True))
        wanted = plan > _LIGHT * own
        if one is two:  # a law is at distance 0 from itself, whatever it is
            wanted = (wanted | wanted.T).fill_diagonal_(False)
        if bool(wanted.any()):
            with torch.enable_grad():
                distances = label.of_pairs(one, two, wanted).double()
                total = (
                    total + share * pairs[0].label_weight / 2 * (plan * wanted * distances).sum()
                )
    if not total.requires_grad:  # distances that no sample moves, as those by name
        return nothing[0], nothing[1]
    total.backward()
    first, second = (
        zero if side.x.grad is None else _potential(side, side.x.grad.double())
        for side, zero in zip(sides, nothing, strict=True)
    )
    return first, second


def _potential(data: LabeledDataset, gradient: Tensor) -> Tensor:
    """(φ_y(x) − ⟨α_y, φ_y⟩) / p_y of each sample, from the gradient in the samples of what the laws
    of their classes cost.
    """
    size, y, weights = len(data.classes), data.y, data.weights.double()
    masses = weights.new_zeros(size).index_add_(0, y, weights)[y]
    has_mass = weights > 0
    share, x = torch.where(has_mass, weights / masses, 0.0), data.x.detach().double()

    def by_class(rows: Tensor) -> Tensor:
        return rows.new_zeros(size, *rows.shape[1:]).index_add_(0, y, rows)[y]

    away = x - by_class(share[:, None] * x)
    slopes = torch.where(has_mass[:, None], gradient / share[:, None], 0.0)
    values = ((slopes + by_class(gradient)) * away).sum(dim=1) / 2
    return torch.where(has_mass, (values - by_class(share * values)) / masses, 0.0)
