"""Potential energies V(ρ) = ∫ V(z) dρ(z) (paper, eq. 10 and section 4), and ready-made potentials.

A potential is a function v(x, y) of features (n, d) and class positions (n,) with one value for
each sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from advect._util import check_non_negative, refuse_if
from advect.data.dataset import LabeledDataset
from advect.functionals.base import Functional

PotentialFunction = Callable[[Tensor, Tensor], Tensor]


class Potential(Functional):
    """∫ v(x, y) dρ = Σ w_i v(x_i, y_i).

    Args:
        v: a differentiable function of features (n, d) and class positions (n,), returning (n,).

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[1.0, 0.0], [0.0, 3.0]], ["a", "b"])
        >>> ad.Potential(lambda x, y: x.square().sum(1))(data).item()
        5.0
    """

    def __init__(self, v: PotentialFunction) -> None:
        refuse_if(
            not callable(v),
            "a potential must be callable",
            type(v).__name__,
            "Pass a function v(x, y) with a value for each sample.",
        )
        self.v = v

    def __call__(self, rho: LabeledDataset) -> Tensor:
        values = self.v(rho.x, rho.y)
        refuse_if(
            values.shape != (len(rho),),
            f"v(x, y) must return {len(rho)} values",
            f"shape {tuple(values.shape)}",
            "One for each sample: sum over axis 1.",
        )
        return (rho.weights * values).sum()


def norm() -> PotentialFunction:
    """V = ‖x‖.

    Example:
        >>> import advect as ad
        >>> ad.Potential(ad.norm())(ad.LabeledDataset([[3.0, 4.0]], ["a"])).item()
        5.0
    """
    return lambda x, y: torch.linalg.vector_norm(x, dim=1)


def affine_norm(
    matrix: Any, offset: Any = None, *, classes: Sequence[int] | None = None
) -> PotentialFunction:
    """V = ‖A x − b‖, or ‖A_y x − b_y‖ with one matrix and offset for each class.

    Args:
        matrix: A (e, d), or (k, e, d) with one for each class.
        offset: b (e,), or (k, e) with one for each class; zero by default.
        classes: class positions it acts on; V = 0 for the others. All by default.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[3.0, 0.0], [0.0, 5.0]], ["a", "b"])
        >>> ad.Potential(ad.affine_norm([[1.0, 0.0], [0.0, 1.0]], [0.0, 1.0], classes=[1]))(data).item()
        2.0
    """
    a = torch.as_tensor(matrix)
    b = torch.zeros(a.shape[:-1], dtype=a.dtype) if offset is None else torch.as_tensor(offset)
    refuse_if(
        a.ndim not in (2, 3) or b.ndim not in (1, 2) or a.shape[-2] != b.shape[-1],
        "matrix must be (e, d) or (k, e, d) and offset (e,) or (k, e)",
        f"shapes {tuple(a.shape)} and {tuple(b.shape)}",
        "Give both the same e.",
    )

    def v(x: Tensor, y: Tensor) -> Tensor:
        a_x, b_x = a.to(x), b.to(x)
        if a.ndim == 3 or b.ndim == 2:
            _check_labeled("affine_norm with one matrix or offset for each class", y)
        image = x @ a_x.T if a.ndim == 2 else torch.einsum("ned,nd->ne", a_x[y], x)
        values = torch.linalg.vector_norm(image - (b_x if b.ndim == 1 else b_x[y]), dim=1)
        return values if classes is None else values * _is_among(y, classes)

    return v


def ball(centre: Any, radius: float) -> PotentialFunction:
    """V = (‖x − x₀‖ − τ)₊: the distance to the ball of radius τ around x₀ (paper, appendix D).

    Args:
        centre: x₀ (d,).
        radius: τ.

    Example:
        >>> import advect as ad
        >>> ad.Potential(ad.ball([0.0, 0.0], radius=2.0))(ad.LabeledDataset([[3.0, 4.0]], ["a"])).item()
        3.0
    """
    point, radius = torch.as_tensor(centre), check_non_negative("radius", radius)
    return lambda x, y: (torch.linalg.vector_norm(x - point.to(x), dim=1) - radius).clamp_min(0)


def hinge(
    direction: Any, offset: float = 0.0, *, margin: float = 0.0, positive: Sequence[int] = (1,)
) -> PotentialFunction:
    """V = max{0, margin + s_y (xᵀw − b)}, s_y = 1 for the ``positive`` class positions, −1 for the
    others (paper, section 4).

    Its minimisers have the positive classes where xᵀw ≤ b − margin and the others beyond b +
    margin: linearly separated.

    Args:
        direction: w (d,).
        offset: b.
        margin: minimal distance of the classes from the plane.
        positive: positions of the classes on one side.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[2.0], [2.0]], ["no", "yes"])
        >>> ad.Potential(ad.hinge([1.0]))(data).item()       # "yes" is 2 on the wrong side, with half the mass
        1.0
    """
    w, margin = torch.as_tensor(direction), check_non_negative("margin", margin)

    def v(x: Tensor, y: Tensor) -> Tensor:
        _check_labeled("hinge", y)
        sign = 2 * _is_among(y, positive).to(x.dtype) - 1
        return (margin + sign * (x @ w.to(x) - offset)).clamp_min(0)

    return v


def collapse(dimension: int, value: float = 0.0) -> PotentialFunction:
    """V = ½ (x_k − value)²: flattens the data along one dimension k.

    Args:
        dimension: k.
        value: the coordinate that the data moves to.

    Example:
        >>> import advect as ad
        >>> ad.Potential(ad.collapse(1))(ad.LabeledDataset([[3.0, 4.0]], ["a"])).item()
        8.0
    """
    return lambda x, y: (x[:, dimension] - value).square() / 2


def _check_labeled(who: str, y: Tensor) -> None:
    missing = int((y < 0).sum())
    refuse_if(
        missing,
        f"{who} needs a label for each sample",
        f"{missing} without",
        "Label them, or remove them first.",
    )


def _is_among(y: Tensor, classes: Sequence[int]) -> Tensor:
    return torch.isin(y, torch.as_tensor(list(classes), dtype=y.dtype, device=y.device))
