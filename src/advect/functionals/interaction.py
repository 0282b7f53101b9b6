"""Interaction energies W(ρ) = ½ ∬ W(z − z') dρ dρ (paper, eq. 11 and section 4), and ready-made ones.

Pairs are visited in blocks of rows, which are computed again in a backward pass, so that memory does not
grow with n²."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from advect._util import check_positive, refuse_if
from advect.data.dataset import LabeledDataset, require_labels
from advect.data.laws import mass_centre, root
from advect.functionals.base import Functional

PairFunction = Callable[[Tensor, Tensor], Tensor]
_BLOCK_ENTRIES = 4_000_000  # numbers in the largest temporary of a block


@dataclass(frozen=True)
class Differences:
    """A pair function of the differences x − x', given by its ``profile`` W(dx, same_label)."""

    profile: PairFunction

    def width(self, dim: int) -> int:
        """Numbers for each pair in the largest temporary."""
        return dim

    def between(self, left: Tensor, right: Tensor, same: Tensor) -> Tensor:
        """W for each pair of two sets of samples."""
        return self.profile(left[:, None, :] - right, same)


@dataclass(frozen=True)
class Radial(Differences):
    """A pair function of the squared distance, W = profile(‖x − x'‖², same_label): no (n, n, d)
    differences are formed. Use it wherever W has no direction.
    """

    def width(self, dim: int) -> int:
        return 1

    def between(self, left: Tensor, right: Tensor, same: Tensor) -> Tensor:
        squares = left.square().sum(1)[:, None] + right.square().sum(1) - 2 * left @ right.T
        return self.profile(squares.clamp_min(0), same)


class Interaction(Functional):
    """½ Σ_ij w_i w_j W(x_i − x_j, y_i = y_j), the pair (i, i) included.

    Args:
        w: W(dx, same_label) for differences (…, d) and booleans (…), returning (…); or a
            ``Radial``.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[0.0], [2.0]], ["a", "b"])
        >>> ad.Interaction(lambda dx, same: dx.abs().sum(-1))(data).item()   # ½ · ¼ · (2 + 2)
        0.5
    """

    def __init__(self, w: PairFunction | Differences) -> None:
        self.w, self._pairs = w, w if isinstance(w, Differences) else Differences(w)
        refuse_if(
            not callable(self._pairs.profile),
            "an interaction must be callable",
            type(w).__name__,
            "Pass a function w(dx, same_label).",
        )

    def __call__(self, rho: LabeledDataset) -> Tensor:
        require_labels(rho, "an interaction of classes")
        # Only differences count. Without a common centre, a large offset would cost digits.
        x = rho.x - mass_centre(rho.x.detach(), rho.weights)

        def energy(rows: Tensor) -> Tensor:
            same = rho.y[rows][:, None] == rho.y
            values = self._pairs.between(x[rows], x, same)
            refuse_if(
                values.shape != same.shape,
                f"w(dx, same) must return shape {tuple(same.shape)}",
                tuple(values.shape),
                "Sum over the last axis of dx.",
            )
            return 0.5 * (rho.weights[rows][:, None] * rho.weights * values).sum()

        width = len(rho) * self._pairs.width(rho.dim)
        blocks = torch.arange(len(rho), device=x.device).split(max(1, _BLOCK_ENTRIES // width))
        total = 0 * x.sum(dtype=torch.float64)  # has a gradient, even if w has none
        for rows in blocks:
            total = total + checkpoint(energy, rows, use_reentrant=False, preserve_rng_state=False)
        return total


def repulsion(length: float = 1.0) -> Radial:
    """W = exp(−‖x − x'‖ / length) for y ≠ y', 0 otherwise: different classes repel each other (paper, section 4).

    Args:
        length: range of the repulsion, in units of the features.

    Example:
        >>> import math, advect as ad
        >>> value = ad.Interaction(ad.repulsion())(ad.LabeledDataset([[0.0], [1.0]], ["a", "b"])).item()
        >>> round(value * 4, 6) == round(math.exp(-1), 6)
        True
    """
    length = check_positive("length", length)
    return Radial(lambda squared, same: torch.exp(-root(squared) / length) * ~same)


def spreading() -> Radial:
    """W = −‖x − x'‖² for y ≠ y', 0 otherwise: classes separate with increasing speed (paper, appendix D).

    Example:
        >>> import advect as ad
        >>> ad.Interaction(ad.spreading())(ad.LabeledDataset([[0.0], [2.0]], ["a", "b"])).item()
        -1.0
    """
    return Radial(lambda squared, same: -squared * ~same)


def attraction() -> Radial:
    """W = ½ ‖x − x'‖² for y = y', 0 otherwise: each class contracts to its mean.

    Example:
        >>> import advect as ad
        >>> ad.Interaction(ad.attraction())(ad.LabeledDataset([[0.0], [2.0]], ["a", "a"])).item()
        0.5
    """
    return Radial(lambda squared, same: squared / 2 * same)
