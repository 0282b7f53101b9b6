"""Samples drawn again from a dataset, for the bootstrap of a distance."""

from __future__ import annotations

import torch

from advect.data.dataset import LabeledDataset
from advect.errors import InputError


def varies(data: LabeledDataset, within_classes: bool) -> bool:
    """Whether ``redrawn`` can give anything but the dataset: some class, or else the whole, has
    two samples with weight.
    """
    codes = data.y[data.weights > 0]
    return len(codes) > (len(codes.unique()) if within_classes else 1)


def check_varies(source: LabeledDataset, target: LabeledDataset, within_classes: bool) -> None:
    """An error where every draw would be the datasets themselves."""
    if any(varies(data, within_classes) for data in (source, target)):
        return
    where = "class of both datasets" if within_classes else "dataset"
    more = '; in Python class_shares="drawn" draws across classes.' if within_classes else "."
    raise InputError(
        "a standard error needs samples that can be drawn in place of others",
        f"one sample with weight in each {where}",
        f"Take more samples of each class{more}",
    )


def redrawn(
    data: LabeledDataset, within_classes: bool, generator: torch.Generator | None
) -> LabeledDataset:
    """As many samples again, drawn by weight from those that there are; of each class as many, and
    of the same mass.
    """
    weights = data.weights.to("cpu" if generator is None else generator.device)
    codes = (
        data.y.to(weights.device) if within_classes else torch.zeros_like(weights, dtype=torch.long)
    )
    rows, masses = [], []
    for code in codes.unique().tolist():
        members = ((codes == code) & (weights > 0)).nonzero()[:, 0]
        if len(members):
            rows.append(
                members[
                    torch.multinomial(
                        weights[members], len(members), replacement=True, generator=generator
                    )
                ]
            )
            masses.append(weights[members].sum().expand(len(members)) / len(members))
    return data.subset(torch.cat(rows).to(data.x.device)).replace(
        weights=torch.cat(masses).to(data.weights)
    )
