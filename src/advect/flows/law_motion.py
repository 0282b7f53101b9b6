"""How Gaussian laws move, by the representation of their covariances.

euclidean   S ← (S + ΔS)₊ , the step of the paper (section 5.1) and the nearest positive semi-definite matrix
bures       S ← (S^½ + V)ᵀ(S^½ + V) with V = −τ S^½ G , G = 2 ∂F/∂S ÷ mass: the Wasserstein step among Gaussians
factored    A ← A + ΔA with S = AᵀA; as ∂F/∂A = 2 A ∂F/∂S, this is the Bures step without d × d matrices
diagonal    s ← |s + Δs| for standard deviations s, the Bures step among diagonal laws
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from advect.data.laws import Covariance, Diagonal, Factored, Full, Gaussians
from advect.data.laws.covariance import symmetric_root

Tensors = dict[str, Tensor]  # what moves, by name


@dataclass(frozen=True)
class LawMotion:
    """The form in which covariances move: one tensor, and what a displacement does to it.

    Attributes:
        name: of the moving tensor, for integrators and checkpoints.
        field: of the covariance that holds it.
        form: the covariances of laws in the representation that moves.
        kept: projects a moved tensor back to a representation of covariances.
    """

    name: str
    field: str
    form: Callable[[Gaussians], Covariance]
    kept: Callable[[Tensor], Tensor] = lambda values: values

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


def _nearest_psd(matrices: Tensor) -> Tensor:
    """The nearest positive semi-definite matrices: negative eigenvalues become zero."""
    symmetric = (matrices + matrices.mT) / 2
    values, vectors = torch.linalg.eigh(symmetric.double())
    if bool((values >= 0).all()):
        return symmetric
    return ((vectors * values.clamp_min(0)[..., None, :]) @ vectors.mT).to(matrices.dtype)


def _factors(laws: Gaussians) -> Factored:
    factors = laws.covariance.compressed  # at most d rows for each law
    return Factored(factors.rows.to(laws.means.dtype), factors.sizes)


_full = "covariance", "matrices", lambda laws: Full(laws.covariances())
MOTIONS: dict[str, LawMotion] = {
    "factored": LawMotion("factor", "rows", _factors),
    "bures": BuresMotion(*_full),
    # A standard deviation that passes zero comes back on the other side.
    "diagonal": LawMotion(
        "deviation", "deviations", lambda laws: Diagonal(laws.covariance.scales()), torch.abs
    ),
    "euclidean": LawMotion(*_full, _nearest_psd),
}
