"""Which rows are whose, and a dataset cut to them."""

from __future__ import annotations

from dataclasses import fields, replace

import torch
from torch import Tensor

from advect.data.dataset import LabeledDataset
from advect.data.gaussians import Covariance, Factored, Gaussians
from advect.errors import InputError


def with_mass(data: LabeledDataset) -> Tensor:
    """Positions of the samples that have mass: the others have no part in a plan."""
    return (data.weights > 0).nonzero()[:, 0]


def cut(data: LabeledDataset, rows: slice | Tensor) -> LabeledDataset:
    """Some rows of a dataset, with their weights in the whole; laws of classes stay, laws of
    particles are cut as well.

    Example:
        >>> import advect as ad
        >>> cut(ad.LabeledDataset([[0.0], [1.0], [2.0]], ["a", "b", "a"]), slice(1, 3)).x.tolist()
        [[1.0], [2.0]]
    """
    changes = {"x": data.x[rows], "y": data.y[rows], "weights": data.weights[rows]}
    if data.law is not None and data.law_index is not None:
        index = data.law_index[rows]
        changes |= {
            "law": _taken(data.law, index),
            "law_index": torch.arange(len(index), device=index.device),
        }
    return data.replace(**changes)


def _taken(law: Gaussians, index: Tensor) -> Gaussians:
    if isinstance(law.covariance, Factored):
        raise InputError(
            "laws of particles cannot be cut by rows when they are factored",
            "Factored",
            "Use DiagonalMotion or BuresMotion.",
        )
    values = spread(law.covariance)
    return Gaussians(
        law.means[index], replace(law.covariance, **{_field(law.covariance): values[index]})
    )


def _field(covariance: Covariance) -> str:
    return fields(covariance)[0].name


def spread(covariance: Covariance) -> Tensor:
    """The numbers of a covariance, whatever its kind: matrices, rows of factors, or deviations."""
    return getattr(covariance, _field(covariance))


def moving(data: LabeledDataset) -> dict[str, Tensor]:
    """The tensors of a dataset in which a gradient is wanted."""
    named = {"x": data.x}
    if data.law is not None:
        named |= {"means": data.law.means, "covariance": spread(data.law.covariance)}
    return {name: value for name, value in named.items() if value.requires_grad}


def on_leaves(data: LabeledDataset, leaves: dict[str, Tensor]) -> LabeledDataset:
    """The dataset without a graph, but for the given tensors in place of its own."""
    law = data.law
    if law is not None:
        values = leaves.get("covariance", spread(law.covariance).detach())
        covariance = replace(law.covariance, **{_field(law.covariance): values})
        law = Gaussians(leaves.get("means", law.means.detach()), covariance)
    return data.replace(x=leaves.get("x", data.x.detach()), law=law)
