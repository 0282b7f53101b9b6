"""How Gaussian laws move and stay laws: covariances are positive semi-definite by construction.

Euclidean   S ← (S + ΔS)₊ , the paper's step (section 5.1) followed by the nearest positive semi-definite matrix
Bures       S ← (S^½ + V)ᵀ(S^½ + V) with V = −τ S^½ G , G = 2 ∂F/∂S ÷ mass: the Wasserstein step among Gaussians
Factored    A ← A + ΔA with S = AᵀA; as ∂F/∂A = 2 A ∂F/∂S, this is the Bures step without d × d matrices
Diagonal    s ← |s + Δs| for standard deviations s, the Bures step among diagonal laws
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from advect._util.linalg import symmetric_root
from advect.data.gaussians import Diagonal, Factored, Full, Gaussians
from advect.flows.integrators import Tensors


class LawMotion(Protocol):
    """The moving form of laws: their tensors, and what displacements do to them."""

    def start(self, laws: Gaussians) -> Gaussians: ...
    def parameters(self, laws: Gaussians) -> Tensors: ...
    def attach(self, laws: Gaussians, parameters: Tensors) -> Gaussians: ...
    def mass(self, laws: Gaussians, mass: Tensor, name: str) -> Tensor: ...
    def velocity(self, laws: Gaussians, velocity: Tensors) -> Tensors: ...
    def move(self, laws: Gaussians, displacement: Tensors) -> Gaussians: ...


@dataclass(frozen=True)
class EuclideanMotion:
    """S ← nearest positive semi-definite matrix to S + ΔS: the paper's gradient step on full
    covariances.

    Example:
        >>> import torch, advect as ad
        >>> laws = ad.Gaussians(torch.zeros(1, 1), ad.Full(torch.ones(1, 1, 1)))
        >>> moved = ad.EuclideanMotion().move(laws, {"mean": torch.ones(1, 1), "covariance": torch.full((1, 1, 1), -3.0)})
        >>> moved.covariances().item()                       # 1 − 3 is no variance
        0.0
    """

    def start(self, laws: Gaussians) -> Gaussians:
        return Gaussians(laws.means, Full(laws.covariances()))

    def parameters(self, laws: Gaussians) -> Tensors:
        return {"mean": laws.means, "covariance": laws.covariance.dense()}

    def attach(self, laws: Gaussians, parameters: Tensors) -> Gaussians:
        return Gaussians(parameters["mean"], Full(parameters["covariance"]))

    def mass(self, laws: Gaussians, mass: Tensor, name: str) -> Tensor:
        return mass

    def velocity(self, laws: Gaussians, velocity: Tensors) -> Tensors:
        return velocity

    def move(self, laws: Gaussians, displacement: Tensors) -> Gaussians:
        covariances = laws.covariance.dense() + displacement["covariance"]
        return Gaussians(laws.means + displacement["mean"], Full(_nearest_psd(covariances)))


@dataclass(frozen=True)
class BuresMotion(EuclideanMotion):
    """S ← (S^½ + V)ᵀ(S^½ + V): moves full covariances along Wasserstein geodesics and keeps their
    rank.

    Displacements are those of the root S^½, so that one of length v moves a law by at most v in W₂:
    what an integrator remembers (momentum) keeps its meaning when a tight law has become wide. For
    one step, V = S^½ Δ is S ← (I + Δ) S (I + Δ).

    Example:
        >>> import torch, advect as ad
        >>> laws = ad.Gaussians(torch.zeros(1, 1), ad.Full(torch.full((1, 1, 1), 4.0)))
        >>> moved = ad.BuresMotion().move(laws, {"mean": torch.zeros(1, 1), "covariance": torch.full((1, 1, 1), -1.0)})
        >>> moved.covariances().item()                       # (2 − 1)²
        1.0
    """

    def velocity(self, laws: Gaussians, velocity: Tensors) -> Tensors:
        root, slope = symmetric_root(laws.covariance.dense()), velocity["covariance"]
        return {**velocity, "covariance": root @ (slope + slope.mT)}  # −S^½ G, G = 2 ∂F/∂S ÷ mass

    def move(self, laws: Gaussians, displacement: Tensors) -> Gaussians:
        factor = symmetric_root(laws.covariance.dense()) + displacement["covariance"]
        return Gaussians(laws.means + displacement["mean"], Full(factor.mT @ factor))


@dataclass(frozen=True)
class FactoredMotion:
    """A ← A + ΔA for factors with S = AᵀA: the Bures step at the price of the factors, in any
    dimension.

    Example:
        >>> import torch, advect as ad
        >>> laws = ad.Gaussians(torch.zeros(1, 1), ad.Factored(torch.full((1, 1), 2.0), (1,)))
        >>> moved = ad.FactoredMotion().move(laws, {"mean": torch.zeros(1, 1), "factor": torch.full((1, 1), -1.0)})
        >>> moved.covariances().item()
        1.0
    """

    def start(self, laws: Gaussians) -> Gaussians:
        compressed = laws.covariance.compressed  # at most d rows for each law
        return Gaussians(
            laws.means, Factored(compressed.rows.to(laws.means.dtype), compressed.sizes)
        )

    def parameters(self, laws: Gaussians) -> Tensors:
        return {"mean": laws.means, "factor": _factored(laws).rows}

    def attach(self, laws: Gaussians, parameters: Tensors) -> Gaussians:
        return Gaussians(parameters["mean"], Factored(parameters["factor"], _factored(laws).sizes))

    def mass(self, laws: Gaussians, mass: Tensor, name: str) -> Tensor:
        sizes = torch.tensor(_factored(laws).sizes, device=mass.device)
        return mass.repeat_interleave(sizes) if name == "factor" else mass

    def velocity(self, laws: Gaussians, velocity: Tensors) -> Tensors:
        return velocity

    def move(self, laws: Gaussians, displacement: Tensors) -> Gaussians:
        rows = _factored(laws).rows + displacement["factor"]
        return Gaussians(laws.means + displacement["mean"], Factored(rows, _factored(laws).sizes))


@dataclass(frozen=True)
class DiagonalMotion:
    """s ← |s + Δs| for standard deviations: laws with diagonal covariances, for many laws in many
    dimensions.

    Example:
        >>> import torch, advect as ad
        >>> laws = ad.Gaussians(torch.zeros(1, 2), ad.Diagonal(torch.ones(1, 2)))
        >>> moved = ad.DiagonalMotion().move(laws, {"mean": torch.zeros(1, 2), "deviation": torch.tensor([[1.0, -0.5]])})
        >>> moved.covariance.deviations.tolist()
        [[2.0, 0.5]]
    """

    def start(self, laws: Gaussians) -> Gaussians:
        return laws.diagonal()

    def parameters(self, laws: Gaussians) -> Tensors:
        return {"mean": laws.means, "deviation": laws.covariance.scales()}

    def attach(self, laws: Gaussians, parameters: Tensors) -> Gaussians:
        return Gaussians(parameters["mean"], Diagonal(parameters["deviation"]))

    def mass(self, laws: Gaussians, mass: Tensor, name: str) -> Tensor:
        return mass

    def velocity(self, laws: Gaussians, velocity: Tensors) -> Tensors:
        return velocity

    def move(self, laws: Gaussians, displacement: Tensors) -> Gaussians:
        deviations = (laws.covariance.scales() + displacement["deviation"]).abs()
        return Gaussians(laws.means + displacement["mean"], Diagonal(deviations))


def _factored(laws: Gaussians) -> Factored:
    assert isinstance(laws.covariance, Factored), "start() makes the laws factored"
    return laws.covariance


def _nearest_psd(matrices: Tensor) -> Tensor:
    """The nearest positive semi-definite matrices in Frobenius norm: negative eigenvalues become
    zero.
    """
    symmetric = (matrices + matrices.mT) / 2
    values, vectors = torch.linalg.eigh(symmetric.double())
    if bool((values >= 0).all()):
        return symmetric
    return ((vectors * values.clamp_min(0)[..., None, :]) @ vectors.mT).to(matrices.dtype)
