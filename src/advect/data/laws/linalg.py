"""Principal axes of points that come in blocks."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


def principal_axes(blocks: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Directions (r, d) along which centred rows vary most, and their singular values (r,), in float64.

    Of rows that come in blocks only the triangular factor R of x = QR is kept: moments xᵀx would lose
    half the digits of small singular values. The largest loading of each direction is positive.
    """
    kept = None
    for block in blocks:
        block = block.double()
        rows = block if kept is None else torch.cat([kept, block])
        kept = torch.linalg.qr(rows, mode="r")[1] if len(rows) > rows.shape[1] else rows
    assert kept is not None, "principal axes of no rows"
    frame, square = torch.linalg.qr(kept.mT)  # (d, r) and (r, r): of few rows, far less to factor
    _, singular, axes = torch.linalg.svd(square.mT)
    axes = axes @ frame.mT
    size = axes.abs()
    # the first of loadings that are equal up to rounding decides
    near = size >= size.amax(dim=1, keepdim=True) * (1 - 1e-9)
    return singular, axes * axes.gather(1, near.int().argmax(dim=1, keepdim=True)).sign()
