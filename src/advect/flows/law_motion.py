"""How Gaussian label laws move under jd-fl and jd-vl (paper, section 5.1; algorithms 2 and 3).

The paper takes the step  μ ← μ − τ ∇_μ F ,  S ← S − τ ∇_S F.  The representation of the covariance S decides
what moves in its place:

euclidean   S ← (S + ΔS)₊ , the step of the paper and the nearest positive semi-definite matrix
bures       S ← (S^½ + V)ᵀ(S^½ + V) with V = −τ S^½ G , G = 2 ∂F/∂S ÷ mass: the Wasserstein step among Gaussians
factored    A ← A + ΔA with S = AᵀA; as ∂F/∂A = 2 A ∂F/∂S, this is the Bures step without d × d matrices
diagonal    s ← |s + Δs| for standard deviations s, the Bures step among diagonal laws
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from advect.data.laws import Covariance, Diagonal, Factored, Full, Gaussians, symmetric_root

Tensors = dict[str, Tensor]  # what moves, by name


@dataclass(frozen=True)
class LawMotion:
    """The representation in which covariances move: one tensor, and what a displacement does to it.

    Attributes:
        name: name of the moving tensor, for integrators and checkpoints.
        attribute: attribute of the covariance that holds it.
        represent: gives the covariances of laws in this representation.
        project: maps a moved tensor back into this representation.
    """

    name: str
    attribute: str
    represent: Callable[[Gaussians], Covariance]
    project: Callable[[Tensor], Tensor] = lambda values: values

    def start(self, laws: Gaussians) -> Gaussians:
        """The laws in the representation that moves."""
        return Gaussians(laws.means, self.represent(laws))

    def parameters(self, laws: Gaussians) -> Tensors:
        """The tensors that move."""
        return {"mean": laws.means, self.name: laws.covariance.tensors()[self.attribute]}

    def attach(self, laws: Gaussians, parameters: Tensors) -> Gaussians:
        """The laws with these tensors."""
        tensors = {"means": parameters["mean"], self.attribute: parameters[self.name]}
        return laws.with_tensors(tensors)

    def velocity(self, laws: Gaussians, velocity: Tensors) -> Tensors:
        """−gradient ÷ mass as a velocity in the coordinates of displacements."""
        return velocity

    def move(self, laws: Gaussians, displacement: Tensors) -> Gaussians:
        """The laws after a displacement."""
        # μ ← μ + Δμ, and S through the tensor that represents it (algorithms 2 and 3).
        moved = {name: value + displacement[name] for name, value in self.parameters(laws).items()}
        moved[self.name] = self.project(moved[self.name])
        return self.attach(laws, moved)


class BuresMotion(LawMotion):
    """S ← (S^½ + V)ᵀ(S^½ + V): full covariances along Wasserstein geodesics, at constant rank.

    Displacements are those of the root S^½: one of length v moves a law by at most v in W₂, so that
    momentum keeps its meaning when a tight law becomes wide.
    """

    def velocity(self, laws: Gaussians, velocity: Tensors) -> Tensors:
        # With S = R², a change V of R changes F by ⟨R (G + Gᵀ)/2 · 2, V⟩ for G = ∂F/∂S.
        root, slope = symmetric_root(laws.covariances()), velocity["covariance"]
        return {**velocity, "covariance": root @ (slope + slope.mT)}  # −S^½ G, G = 2 ∂F/∂S ÷ mass

    def move(self, laws: Gaussians, displacement: Tensors) -> Gaussians:
        # (R + V)ᵀ(R + V) is positive semi-definite for every V: no projection is needed.
        factor = symmetric_root(laws.covariances()) + displacement["covariance"]
        return Gaussians(laws.means + displacement["mean"], Full(factor.mT @ factor))


def _full(laws: Gaussians) -> Full:
    return Full(laws.covariances())


def _factored(laws: Gaussians) -> Factored:
    factors = laws.covariance.compressed  # at most d rows for each law
    return Factored(factors.rows.to(laws.means.dtype), factors.sizes)


def _nearest_psd(matrices: Tensor) -> Tensor:
    """The nearest positive semi-definite matrices: negative eigenvalues become zero."""
    symmetric = (matrices + matrices.mT) / 2
    values, vectors = torch.linalg.eigh(symmetric.double())
    if bool((values >= 0).all()):
        return symmetric
    return ((vectors * values.clamp_min(0)[..., None, :]) @ vectors.mT).to(matrices.dtype)


MOTIONS: dict[str, LawMotion] = {
    "factored": LawMotion("factor", "rows", _factored),
    "bures": BuresMotion("covariance", "matrices", _full),
    # A standard deviation that passes zero continues as its absolute value.
    "diagonal": LawMotion(
        "deviation", "deviations", lambda laws: Diagonal(laws.covariance.scales()), torch.abs
    ),
    "euclidean": LawMotion("covariance", "matrices", _full, _nearest_psd),
}
