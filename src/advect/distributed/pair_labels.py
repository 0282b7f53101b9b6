"""Label distances with the pairs of classes dealt out to the ranks: decompositions are dear, k × k'
numbers are not.

A rank computes its own pairs, with a graph to whatever the laws come from; the sum over ranks is
the whole matrix. The energy that a plan summed by class, Π, has in the labels is ½ label_weight Σ
Π_ij D_ij: each rank differentiates the part that its own pairs make, and the gradients add up."""

from __future__ import annotations

import torch
from torch import Tensor

from advect._util.checks import check_finite
from advect._util.ranks import Group
from advect.cost import Bures, ExactLabelOT
from advect.cost.labels import LabelCost, law_distances
from advect.data.dataset import LabeledDataset


def own_distances(
    label: LabelCost, source: LabeledDataset, target: LabeledDataset, group: Group
) -> Tensor:
    """W₂² between classes for this rank's pairs, zero for the others; (k, k'), differentiable.

    ``Bures`` with full laws and ``ExactLabelOT`` compute no other pairs. Other label costs are
    cheap, or know no pairs: every rank computes them whole and keeps its part."""
    if isinstance(label, ExactLabelOT):
        shape, symmetric = (len(source.classes), len(target.classes)), source is target
        return _by_samples(label, source, target, _pairs(shape, symmetric, group, source.x.device))
    if isinstance(label, Bures) and not label.diagonal:
        laws = source.laws()
        others = laws if source is target else target.laws()
        if not laws.covariance.is_diagonal and not others.covariance.is_diagonal:
            own = _pairs((len(laws), len(others)), laws is others, group, laws.means.device)
            found = (
                law_distances(
                    laws, others, torch.promote_types(source.x.dtype, target.x.dtype), wanted=own
                )
                * own
            )
            return found + found.T if laws is others else found
    distances = label(source, target)
    return distances * _pairs(
        (distances.shape[0], distances.shape[1]), False, group, distances.device
    )


def whole_distances(own: Tensor, group: Group) -> Tensor:
    """The distances of all pairs, without a graph."""
    whole = group.sum(own.detach())
    check_finite("the label distances", whole, "Check the label laws.")
    return whole


def _pairs(shape: tuple[int, int], symmetric: bool, group: Group, device: torch.device) -> Tensor:
    """Which pairs are this rank's, (k, k') bool: in turn; of a symmetric matrix above the diagonal
    only.
    """
    wanted = torch.ones(shape, dtype=torch.bool, device=device)
    wanted = wanted.triu(diagonal=1) if symmetric else wanted
    turn = wanted.flatten().cumsum(dim=0).reshape(shape) - 1
    return wanted & (turn % group.size == group.rank)


def _by_samples(
    label: ExactLabelOT, source: LabeledDataset, target: LabeledDataset, own: Tensor
) -> Tensor:
    """An inner transport problem for each of the given pairs."""
    distances = source.x.new_zeros(own.shape)
    for i, j in own.nonzero().tolist():
        a, b = _class_alone(source, i), _class_alone(target, j)
        if len(a) and len(b):
            place = (torch.tensor([i], device=own.device), torch.tensor([j], device=own.device))
            distances = distances.index_put(place, label(a, b)[0].to(distances.dtype))
    return distances + distances.T if source is target else distances


def _class_alone(data: LabeledDataset, code: int) -> LabeledDataset:
    rows = data.y == code
    return data.replace(
        x=data.x[rows],
        y=data.y[rows] * 0,
        weights=data.weights[rows],
        classes=(data.classes[code],),
    )
