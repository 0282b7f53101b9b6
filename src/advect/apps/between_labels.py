"""What samples between several datasets have for labels: shares of the classes of all of them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from advect.data.dataset import LabeledDataset

_TIE = 1e-9  # shares that differ by less are equal


@dataclass(frozen=True, eq=False)
class SoftLabels:
    """Shares of classes for each sample.

    Attributes:
        probabilities: (n, k), float64; rows sum to one, or to less where labels are missing.
        classes: k names.

    Example:
        >>> import torch
        >>> soft = SoftLabels.of([torch.tensor([[0.6, 0.0]]), torch.tensor([[0.1, 0.3]])], [("a", "b"), ("b", "c")])
        >>> soft.classes, soft.probabilities.round(decimals=3).tolist(), soft.most_likely().tolist()
        (('a', 'b', 'c'), [[0.6, 0.1, 0.3]], [0])
    """

    probabilities: Tensor
    classes: tuple[Hashable, ...]

    @classmethod
    def of(cls, shares: Sequence[Tensor], names: Sequence[Sequence[Hashable]]) -> SoftLabels:
        """From shares (n, k_s) of the classes of several datasets; equal names are one class."""
        classes = tuple(dict.fromkeys(name for own in names for name in own))
        found = shares[0].new_zeros(len(shares[0]), len(classes), dtype=torch.float64)
        for part, own in zip(shares, names, strict=True):
            places = torch.tensor([classes.index(name) for name in own], dtype=torch.long)
            found.index_add_(1, places.to(found.device), part.double())
        return cls(found, classes)

    def most_likely(self) -> Tensor:
        """The class with the largest share, of equal ones the first; −1 where more is unknown."""
        known = self.probabilities
        if not known.shape[1]:
            return torch.full((len(known),), -1, device=known.device)
        every = torch.cat([known, 1 - known.sum(dim=1, keepdim=True)], dim=1)
        best = (every >= every.amax(dim=1, keepdim=True) - _TIE).to(torch.int64)
        places = torch.arange(every.shape[1], device=known.device)
        first = torch.where(best > 0, places, every.shape[1]).amin(dim=1)
        return torch.where(first == known.shape[1], -1, first)


def class_shares(data: LabeledDataset, rows: Tensor) -> Tensor:
    """Labels of some samples as shares of classes, (n, k): one-hot, their probabilities where there
    is doubt, zeros where there is no label.
    """
    if data.has_doubt:
        return data.memberships[rows].double()
    codes = data.y[rows]
    width = max(len(data.classes), 1)
    found = one_hot(codes.clamp_min(0), width).double() * (codes >= 0)[:, None]
    return found[:, : len(data.classes)]


def class_name(data: LabeledDataset, code: int) -> Hashable:
    """Of a class; None for none."""
    return None if code < 0 else data.classes[code]


def with_soft_labels(data: LabeledDataset, probabilities: Tensor) -> LabeledDataset:
    """A dataset with these probabilities as its labels, and no laws but those of its classes."""
    return data.replace(law=None, law_index=None).with_probabilities(probabilities)
