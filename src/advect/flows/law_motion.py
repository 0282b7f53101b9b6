"""How Gaussian laws move, by the representation of their covariances.

euclidean   S ← (S + ΔS)₊ , the step of the paper (section 5.1) and the nearest positive semi-definite matrix
bures       S ← (S^½ + V)ᵀ(S^½ + V) with V = −τ S^½ G , G = 2 ∂F/∂S ÷ mass: the Wasserstein step among Gaussians
factored    A ← A + ΔA with S = AᵀA; as ∂F/∂A = 2 A ∂F/∂S, this is the Bures step without d × d matrices
diagonal    s ← |s + Δs| for standard deviations s, the Bures step among diagonal laws
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from advect.data.laws import Covariance, Diagonal, Factored, Full, Gaussians
from advect.data.laws.linalg import symmetric_root

Tensors = dict[str, Tensor]  # what moves, by name


class LawMotion(ABC):
    """The form in which covariances move: one tensor, and what a displacement does to it."""

    name: ClassVar[str]  # of the moving tensor, for integrators and checkpoints
    field: ClassVar[str]  # of the covariance that holds it

    @abstractmethod
    def form(self, laws: Gaussians) -> Covariance:
        """The covariances in the representation that moves."""

    def kept(self, values: Tensor) -> Tensor:
        """A moved tensor projected back to a representation of covariances."""
        return values

    def start(self, laws: Gaussians) -> Gaussians:
        """The laws in the representation that moves."""
        return Gaussians(laws.means, self.form(laws))

    def parameters(self, laws: Gaussians) -> Tensors:
        """The tensors that move."""
        return {"mean": laws.means, self.name: laws.covariance.tensors()[self.field]}

    def attach(self, laws: Gaussians, parameters: Tensors) -> Gaussians:
        """The laws with these tensors."""
        return laws.with_tensors({"means": parameters["mean"], self.field: parameters[self.name]})

    def mass(self, laws: Gaussians, mass: Tensor, name: str) -> Tensor:
        """The mass of each row of a tensor."""
        return laws.covariance.each_row(mass) if name == self.name else mass

    def velocity(self, laws: Gaussians, velocity: Tensors) -> Tensors:
        """−gradient ÷ mass as a velocity in the coordinates of displacements."""
        return velocity

    def move(self, laws: Gaussians, displacement: Tensors) -> Gaussians:
        """The laws after a displacement."""
        now = self.parameters(laws)
        moved = {name: value + displacement[name] for name, value in now.items()}
        return self.attach(laws, {**moved, self.name: self.kept(moved[self.name])})


@dataclass(frozen=True)
class EuclideanMotion(LawMotion):
    """S ← nearest positive semi-definite matrix to S + ΔS: the step of the paper on full covariances."""

    name, field = "covariance", "matrices"

    def form(self, laws: Gaussians) -> Covariance:
        return Full(laws.covariances())

    def kept(self, values: Tensor) -> Tensor:
        return _nearest_psd(values)


@dataclass(frozen=True)
class BuresMotion(EuclideanMotion):
    """S ← (S^½ + V)ᵀ(S^½ + V): full covariances along Wasserstein geodesics, at constant rank.

    Displacements are those of the root S^½: one of length v moves a law by at most v in W₂, so that
    momentum keeps its meaning when a tight law becomes wide.
    """

    def velocity(self, laws: Gaussians, velocity: Tensors) -> Tensors:
        root, slope = symmetric_root(laws.covariances()), velocity["covariance"]
        return {**velocity, "covariance": root @ (slope + slope.mT)}  # −S^½ G, G = 2 ∂F/∂S ÷ mass

    def move(self, laws: Gaussians, displacement: Tensors) -> Gaussians:
        factor = symmetric_root(laws.covariances()) + displacement["covariance"]
        return Gaussians(laws.means + displacement["mean"], Full(factor.mT @ factor))


@dataclass(frozen=True)
class FactoredMotion(LawMotion):
    """A ← A + ΔA for factors with S = AᵀA: the Bures step at the cost of the factors."""

    name, field = "factor", "rows"

    def form(self, laws: Gaussians) -> Covariance:
        factors = laws.covariance.compressed  # at most d rows for each law
        return Factored(factors.rows.to(laws.means.dtype), factors.sizes)


@dataclass(frozen=True)
class DiagonalMotion(LawMotion):
    """``s ← |s + Δs|`` for standard deviations: many laws in many dimensions."""

    name, field = "deviation", "deviations"

    def form(self, laws: Gaussians) -> Covariance:
        return Diagonal(laws.covariance.scales())

    def kept(self, values: Tensor) -> Tensor:
        return values.abs()


def _nearest_psd(matrices: Tensor) -> Tensor:
    """The nearest positive semi-definite matrices: negative eigenvalues become zero."""
    symmetric = (matrices + matrices.mT) / 2
    values, vectors = torch.linalg.eigh(symmetric.double())
    if bool((values >= 0).all()):
        return symmetric
    return ((vectors * values.clamp_min(0)[..., None, :]) @ vectors.mT).to(matrices.dtype)


MOTIONS: dict[str, LawMotion] = {
    "factored": FactoredMotion(),
    "bures": BuresMotion(),
    "diagonal": DiagonalMotion(),
    "euclidean": EuclideanMotion(),
}
