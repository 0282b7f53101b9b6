"""How Gaussian laws move and stay laws: covariances are positive semi-definite by construction.

Euclidean   S ← (S + ΔS)₊ , the paper's step (section 5.1) followed by the nearest positive semi-definite matrix
Bures       S ← (S^½ + V)ᵀ(S^½ + V) with V = −τ S^½ G , G = 2 ∂F/∂S ÷ mass: the Wasserstein step among Gaussians
Factored    A ← A + ΔA with S = AᵀA; as ∂F/∂A = 2 A ∂F/∂S, this is the Bures step without d × d matrices
Diagonal    s ← |s + Δs| for standard deviations s, the Bures step among diagonal laws
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from advect._util.linalg import symmetric_root
from advect.data.laws import Covariance, Diagonal, Factored, Full, Gaussians

Tensors = dict[str, Tensor]  # what moves, by name


class LawMotion(ABC):
    """The form in which covariances move: one tensor, and what a displacement does to it.

    A motion of one's own says its ``form`` and, where not every sum is one, what is ``kept`` of a
    moved tensor.
    """

    name: ClassVar[str]  # of the moving tensor, for integrators and checkpoints
    field: ClassVar[str]  # of the covariance that holds it
    # whether the tensor has as many rows for each law, so that every particle may have one
    even: ClassVar[bool] = True

    @abstractmethod
    def form(self, laws: Gaussians) -> Covariance:
        """The covariances as the kind that moves."""

    def kept(self, values: Tensor) -> Tensor:
        """What a moved tensor becomes, so that it still is one of covariances."""
        return values

    def start(self, laws: Gaussians) -> Gaussians:
        """The laws in the form that moves."""
        return Gaussians(laws.means, self.form(laws))

    def parameters(self, laws: Gaussians) -> Tensors:
        """The tensors that move."""
        return {"mean": laws.means, self.name: laws.covariance.tensors()[self.field]}

    def attach(self, laws: Gaussians, parameters: Tensors) -> Gaussians:
        """The laws with given tensors in place of their own."""
        return laws.with_tensors({"means": parameters["mean"], self.field: parameters[self.name]})

    def mass(self, laws: Gaussians, mass: Tensor, name: str) -> Tensor:
        """The mass of each row of a tensor."""
        return laws.covariance.each_row(mass) if name == self.name else mass

    def velocity(self, laws: Gaussians, velocity: Tensors) -> Tensors:
        """−gradient ÷ mass as a velocity of what displacements are added to."""
        return velocity

    def move(self, laws: Gaussians, displacement: Tensors) -> Gaussians:
        """The laws after a displacement."""
        now = self.parameters(laws)
        moved = {name: value + displacement[name] for name, value in now.items()}
        return self.attach(laws, {**moved, self.name: self.kept(moved[self.name])})

    def pulled(self, laws: Gaussians, displacement: Tensors, velocity: Tensors) -> Tensors:
        """A velocity at the laws after a displacement, as a change of that displacement."""
        return velocity


@dataclass(frozen=True)
class EuclideanMotion(LawMotion):
    """S ← nearest positive semi-definite matrix to S + ΔS: the paper's gradient step on full
    covariances. To repeat the paper; ``BuresMotion`` is the stable one.

    Example:
        >>> import torch, advect as ad
        >>> laws = ad.Gaussians(torch.zeros(1, 1), ad.Full(torch.ones(1, 1, 1)))
        >>> moved = ad.EuclideanMotion().move(laws, {"mean": torch.ones(1, 1), "covariance": torch.full((1, 1, 1), -3.0)})
        >>> moved.covariances().item()                       # 1 − 3 is no variance
        0.0
    """

    name, field = "covariance", "matrices"

    def form(self, laws: Gaussians) -> Covariance:
        return Full(laws.covariances())

    def kept(self, values: Tensor) -> Tensor:
        return _nearest_psd(values)


@dataclass(frozen=True)
class BuresMotion(EuclideanMotion):
    """S ← (S^½ + V)ᵀ(S^½ + V): moves full covariances along Wasserstein geodesics and keeps their
    rank. For few dimensions; ``FactoredMotion`` does the same in many.

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
        root, slope = symmetric_root(laws.covariances()), velocity["covariance"]
        return {**velocity, "covariance": root @ (slope + slope.mT)}  # −S^½ G, G = 2 ∂F/∂S ÷ mass

    def move(self, laws: Gaussians, displacement: Tensors) -> Gaussians:
        factor = symmetric_root(laws.covariances()) + displacement["covariance"]
        return Gaussians(laws.means + displacement["mean"], Full(factor.mT @ factor))

    def pulled(self, laws: Gaussians, displacement: Tensors, velocity: Tensors) -> Tensors:
        """A velocity of the new root is one of the factor S^½ + V that it is a rotation of."""
        factor = symmetric_root(laws.covariances()) + displacement["covariance"]
        left, sizes, right = torch.linalg.svd(factor.double())
        least = torch.finfo(factor.dtype).eps * sizes[..., :1]  # where there is no direction
        turn = (left * (sizes > least)[..., None, :]) @ right
        return {**velocity, "covariance": turn.to(factor.dtype) @ velocity["covariance"]}


@dataclass(frozen=True)
class FactoredMotion(LawMotion):
    """A ← A + ΔA for factors with S = AᵀA: the Bures step at the price of the factors, in any
    dimension.

    Example:
        >>> import torch, advect as ad
        >>> laws = ad.Gaussians(torch.zeros(1, 1), ad.Factored(torch.full((1, 1), 2.0), (1,)))
        >>> moved = ad.FactoredMotion().move(laws, {"mean": torch.zeros(1, 1), "factor": torch.full((1, 1), -1.0)})
        >>> moved.covariances().item()
        1.0
    """

    name, field = "factor", "rows"
    even = False

    def form(self, laws: Gaussians) -> Covariance:
        factors = laws.covariance.compressed  # at most d rows for each law
        return Factored(factors.rows.to(laws.means.dtype), factors.sizes)


@dataclass(frozen=True)
class DiagonalMotion(LawMotion):
    """``s ← |s + Δs|`` for standard deviations: laws with diagonal covariances, for many laws in many
    dimensions.

    Example:
        >>> import torch, advect as ad
        >>> laws = ad.Gaussians(torch.zeros(1, 2), ad.Diagonal(torch.ones(1, 2)))
        >>> moved = ad.DiagonalMotion().move(laws, {"mean": torch.zeros(1, 2), "deviation": torch.tensor([[1.0, -0.5]])})
        >>> moved.covariance.deviations.tolist()
        [[2.0, 0.5]]
    """

    name, field = "deviation", "deviations"

    def form(self, laws: Gaussians) -> Covariance:
        return Diagonal(laws.covariance.scales())

    def kept(self, values: Tensor) -> Tensor:
        return values.abs()

    def pulled(self, laws: Gaussians, displacement: Tensors, velocity: Tensors) -> Tensors:
        moved = self.parameters(laws)[self.name] + displacement[self.name]
        back = torch.where(moved < 0, -velocity[self.name], velocity[self.name])
        return {**velocity, self.name: back}


def _nearest_psd(matrices: Tensor) -> Tensor:
    """The nearest positive semi-definite matrices: negative eigenvalues become zero."""
    symmetric = (matrices + matrices.mT) / 2
    values, vectors = torch.linalg.eigh(symmetric.double())
    if bool((values >= 0).all()):
        return symmetric
    return ((vectors * values.clamp_min(0)[..., None, :]) @ vectors.mT).to(matrices.dtype)
