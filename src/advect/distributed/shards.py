"""Which rows are whose, and a dataset cut to them."""

from __future__ import annotations

import torch
from torch import Tensor

from advect.data.dataset import LabeledDataset


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
            "law": data.law.take(index),
            "law_index": torch.arange(len(index), device=index.device),
        }
    return data.replace(**changes)


def moving(data: LabeledDataset) -> dict[str, Tensor]:
    """The tensors of a dataset in which a gradient is wanted."""
    named = {"x": data.x}
    if data.law is not None:
        named |= {f"law.{name}": value for name, value in data.law.tensors().items()}
    return {name: value for name, value in named.items() if value.requires_grad}


def on_leaves(data: LabeledDataset, leaves: dict[str, Tensor]) -> LabeledDataset:
    """The dataset without a graph, but for the given tensors in place of its own."""
    law = data.law
    if law is not None:
        own = law.tensors().items()
        law = law.with_tensors({k: leaves.get(f"law.{k}", value.detach()) for k, value in own})
    return data.replace(x=leaves.get("x", data.x.detach()), law=law)
