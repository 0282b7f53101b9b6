"""k Gaussian label laws N(μ_y, S_y), one for each class or for each sample (paper, section 2.3).

Which laws move, and how, is left to the dynamics."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from advect._util.checks import check_finite
from advect.data.laws.covariance import Covariance, Diagonal
from advect.errors import InputError


@dataclass(frozen=True, eq=False)
class Gaussians:
    """k Gaussian laws: ``means`` (k, d) and a covariance object (``Full``, ``Factored``,
    ``Diagonal``, or one's own kind of ``Covariance``).

    Example:
        >>> import torch, advect as ad
        >>> laws = ad.Gaussians(torch.zeros(2, 3), ad.Full(torch.eye(3).repeat(2, 1, 1)))
        >>> len(laws), laws.dim, laws.covariances().shape
        (2, 3, torch.Size([2, 3, 3]))
    """

    means: Tensor
    covariance: Covariance

    def __post_init__(self) -> None:
        if (
            self.means.ndim != 2
            or len(self.means) != len(self.covariance)
            or self.means.shape[1] != self.covariance.dim
        ):
            raise InputError(
                "means must have shape (k, d), matching the covariances",
                f"means {tuple(self.means.shape)}, {len(self.covariance)} covariances of dimension "
                f"{self.covariance.dim}",
                "Give one mean and one covariance for each law.",
            )
        check_finite("means", self.means, "Laws need finite moments.")

    def __len__(self) -> int:
        return len(self.means)

    @property
    def dim(self) -> int:
        return self.means.shape[1]

    def covariances(self) -> Tensor:
        """The covariances as dense (k, d, d) matrices."""
        return self.covariance.dense()

    def diagonal(self) -> Gaussians:
        """The same laws with everything off the diagonal dropped."""
        return Gaussians(self.means, Diagonal(self.covariance.scales()))

    def tensors(self) -> dict[str, Tensor]:
        """All their numbers: ``means``, and the tensors of the covariance under its names."""
        return {"means": self.means, **self.covariance.tensors()}

    def with_tensors(self, tensors: dict[str, Tensor]) -> Gaussians:
        """The same laws with other numbers in place of some, under the names of ``tensors``."""
        rest = {name: value for name, value in tensors.items() if name != "means"}
        return Gaussians(tensors.get("means", self.means), self.covariance.with_tensors(rest))

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient is wanted in any of their numbers."""
        return any(value.requires_grad for value in self.tensors().values())

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> Gaussians:
        """The laws on another device or in another floating dtype."""
        return Gaussians(
            self.means.to(device=device, dtype=dtype), self.covariance.to(device, dtype)
        )

    def take(self, rows: Tensor) -> Gaussians:
        """The laws at these positions."""
        return Gaussians(self.means[rows], self.covariance.take(rows))

    def carried(self, basis: Tensor) -> Gaussians:
        """Their images under the linear map x ↦ x B, B (d, e): N(Bᵀμ, BᵀSB), differentiable.

        Example:
            >>> import torch, advect as ad
            >>> laws = ad.Gaussians(torch.tensor([[1.0, 2.0]]), ad.Full(torch.eye(2)[None]))
            >>> image = laws.carried(torch.tensor([[1.0], [1.0]]))
            >>> image.means.tolist(), image.covariances().tolist()
            ([[3.0]], [[[2.0]]])
        """
        return Gaussians(self.means @ basis, self.covariance.carried(basis))

    def distinct(self) -> tuple[Gaussians, Tensor]:
        """Each different law once, in order of appearance, and where each law's equal is."""
        seen: dict[bytes, int] = {}
        first, places = [], []
        for k, values in enumerate(zip(self.means.detach(), self.covariance.parts(), strict=True)):
            key = b"|".join(value.detach().cpu().numpy().tobytes() for value in values)
            if key not in seen:
                seen[key] = len(first)
                first.append(k)
            places.append(seen[key])
        device = self.means.device
        return self.take(torch.tensor(first, device=device)), torch.tensor(places, device=device)

    def joined(self, groups: Tensor, mass: Tensor, n_groups: int) -> Gaussians:
        """Mean and covariance of the mixture that the laws of each group make, by mass:

            μ = Σ p_i μ_i ,   S = Σ p_i (S_i + (μ_i − μ)(μ_i − μ)ᵀ)        p = mass within the group

        Covariances keep their kind, but for diagonal ones, which the spread of means makes
        factored. A group without mass counts its laws alike; one without laws is a point at the
        origin.

        Args:
            groups: the group of each law, (k,), whole numbers below ``n_groups``.
            mass: of each law, (k,).
            n_groups: how many.

        Example:
            >>> import torch, advect as ad
            >>> laws = ad.Gaussians(torch.tensor([[0.0], [2.0]]), ad.Full(torch.ones(2, 1, 1)))
            >>> both = laws.joined(torch.tensor([0, 0]), torch.tensor([0.5, 0.5]), 1)
            >>> both.means.item(), both.covariances().item()     # 1 within, 1 between
            (1.0, 2.0)
        """
        shares = group_shares(groups, mass.double(), n_groups)
        means = self.means.double()
        middles = means.new_zeros(n_groups, self.dim).index_add(0, groups, shares[:, None] * means)
        covariance = self.covariance.joined(groups, shares, means - middles[groups], n_groups)
        return Gaussians(middles, covariance).to(dtype=self.means.dtype)


def group_shares(groups: Tensor, mass: Tensor, n_groups: int) -> Tensor:
    """The mass of each row within its group, where that has any; else rows count alike."""
    whole = mass.new_zeros(n_groups).index_add_(0, groups, mass)[groups]
    alike = 1 / torch.bincount(groups, minlength=n_groups).to(mass)[groups]
    return torch.where(whole > 0, mass / torch.where(whole > 0, whole, 1), alike)
