"""Whether two datasets are equal: the same samples with the same weights in the same classes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from advect.cost import spelled
from advect.data import LabeledDataset, memberships, occurring_classes

_APART = 1e-3  # of the largest feature: more than rounding of a mean in any dtype


def same_measure(
    a: LabeledDataset, b: LabeledDataset, *, labels: bool = True, names: bool = False
) -> bool:
    """Whether two datasets have the same samples with the same weights in the same classes, up to order and
    names.
    """
    if not labels:
        a, b = (
            data._replace(y=torch.zeros_like(data.y), law=None, law_index=None) for data in (a, b)
        )
    if a.dim != b.dim or a.law is not None or b.law is not None:
        return a is b
    if a.has_soft_labels or b.has_soft_labels:
        shares = [_canonical(data) for data in (a, b)]
        if shares[0].shape[1] != shares[1].shape[1]:
            return False
        pairs = [
            torch.cat([data.x.double(), p], dim=1) for data, p in zip((a, b), shares, strict=True)
        ]
        sides = [
            LabeledDataset(x, [0] * len(x), data.weights)
            for x, data in zip(pairs, (a, b), strict=True)
        ]
        return same_measure(*sides)
    (mean, size), (other, width) = (_middle(data) for data in (a, b))
    if bool(((mean - other).abs() > _APART * max(size, width)).any()):  # no sorting needed
        return False
    # Rows as bytes: equal samples get one number, and a class is the set of its numbers with masses.
    rows = (
        np.concatenate([data.x.detach().double().cpu().numpy() for data in (a, b)]) + 0.0
    )  # -0.0 is 0.0
    places = np.unique(
        np.ascontiguousarray(rows).view(f"V{rows.itemsize * rows.shape[1]}")[:, 0],
        return_inverse=True,
    )[1]
    sides = [
        _classes(data, part, names) for data, part in ((a, places[: len(a)]), (b, places[len(a) :]))
    ]
    if len(sides[0]) != len(sides[1]):
        return False
    pairs = zip(*sides, strict=True)
    return all(
        n == o and np.array_equal(i, j) and np.allclose(p, q, rtol=1e-12, atol=0)
        for (n, i, p), (o, j, q) in pairs
    )


def _canonical(data: LabeledDataset) -> Tensor:
    """Class probabilities of the samples, (n, k), in an order of classes that does not depend on names or
    on the order of samples. Classes without samples are left out.
    """
    # Classes are ordered by a sum over their samples that depends on the features in a generic way.
    shares = memberships(data)[:, occurring_classes(data)]
    numbers = torch.Generator().manual_seed(0)
    along = torch.randn(data.dim, dtype=torch.float64, generator=numbers).to(shares.device)
    marks = (data.weights * (1 + (data.x.detach().double() @ along).sin().square())) @ shares
    return shares[:, marks.argsort()]


def _middle(data: LabeledDataset) -> tuple[Tensor, float]:
    """The mean of the features, in their dtype, and how large they are."""
    x = data.x.detach()
    return (data.weights.to(x) @ x).double().cpu(), float(x.abs().max())


def _classes(
    data: LabeledDataset, places: np.ndarray, names: bool
) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """For each class with samples: its name, if names count, and the positions and weights of its samples,
    in a canonical order.
    """
    parts, weights = [], data.weights.double().cpu().numpy()
    for code in data.y.unique().tolist():
        own = (data.y == code).cpu().numpy() & (weights > 0)
        at, inverse = np.unique(places[own], return_inverse=True)
        name = spelled(data.classes[code]) if names else ""
        parts.append((name, at, np.bincount(inverse, weights[own], minlength=len(at))))
    return sorted(
        (part for part in parts if len(part[1])),
        key=lambda part: (part[0], part[1].tolist(), part[2].tolist()),
    )
