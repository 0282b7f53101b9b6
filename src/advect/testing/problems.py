"""Small datasets to try things on, and the derivative of a function by differences."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from advect.data.dataset import LabeledDataset


def small_pair(n: int = 12, m: int = 9) -> tuple[LabeledDataset, LabeledDataset]:
    """Two labeled datasets of a few samples in three dimensions, float64, with unequal weights.

    Example:
        >>> source, target = small_pair()
        >>> len(source), len(target), source.classes, target.classes
        (12, 9, ('a', 'b'), ('u', 'v', 'w'))
    """
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(k, 3, generator=generator, dtype=torch.float64) for k in (n, m))
    source = LabeledDataset(x, [("a", "b")[i % 2] for i in range(n)], weights=1 + torch.arange(n))
    target = LabeledDataset(y + 2, [("u", "v", "w")[i % 3] for i in range(m)])
    return source, target


def slope(value: Callable[[Tensor], Tensor], x: Tensor, direction: Tensor) -> tuple[float, float]:
    """The derivative of ``value`` at ``x`` along a direction: by autograd, and by differences.

    Example:
        >>> x = torch.tensor([3.0], dtype=torch.float64)
        >>> [round(s, 6) for s in slope(lambda x: x.square().sum(), x, torch.ones_like(x))]
        [6.0, 6.0]
    """
    leaf = x.detach().clone().requires_grad_()
    out = value(leaf)
    gradient = torch.autograd.grad(out, leaf, allow_unused=True)[0] if out.requires_grad else None
    exact = 0.0 if gradient is None else float((gradient * direction).sum())
    h = 1e-5 * float(x.abs().max().clamp_min(1))
    with torch.no_grad():
        ahead, behind = (float(value(x + sign * h * direction)) for sign in (1, -1))
    return exact, (ahead - behind) / (2 * h)


def directions(x: Tensor, count: int = 2) -> list[Tensor]:
    """Random directions of the shape of ``x``, the same at each call."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(x.shape, generator=generator, dtype=x.dtype) for _ in range(count)]


def require(kept: bool, promise: str, got: object = "") -> None:
    """An ``AssertionError`` with the promise where it is not kept."""
    if not kept:
        raise AssertionError(f"{promise}{f'; got {got}' if got != '' else ''}")


def close(a: float, b: float, rtol: float, atol: float = 1e-12) -> bool:
    """Whether two numbers agree to a share of the larger."""
    return abs(a - b) <= atol + rtol * max(abs(a), abs(b))
