"""k Gaussian label laws N(μ_y, S_y), one for each class or for each sample (paper, section 2.3).

Which laws move, and how, is left to the dynamics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from advect._util.checks import check_finite
from advect.data.laws.covariance import Covariance, Diagonal
from advect.data.laws.shrinkage import aim, blended
from advect.errors import InputError


@dataclass(frozen=True, eq=False)
class Gaussians:
    """k Gaussian laws: ``means`` (k, d) and a covariance object (``Full``, ``Factored``
    or ``Diagonal``).

    Example:
        >>> import torch, advect as ad
        >>> from advect.data.laws import Full
        >>> laws = ad.Gaussians(torch.zeros(2, 3), Full(torch.eye(3).repeat(2, 1, 1)))
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
        """Their images under the linear map x ↦ x B, B (d, e): N(Bᵀμ, BᵀSB), differentiable."""
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
        """Mean and covariance of the mixture of the laws of each group, by mass:

            μ = Σ p_i μ_i ,   S = Σ p_i (S_i + (μ_i − μ)(μ_i − μ)ᵀ)        p = mass within the group

        A group without mass counts its laws alike; one without laws is a point at the origin.
        """
        shares = group_shares(groups, mass.double(), n_groups)
        means = self.means.double()
        middles = means.new_zeros(n_groups, self.dim).index_add(0, groups, shares[:, None] * means)
        covariance = self.covariance.joined(groups, shares, means - middles[groups], n_groups)
        return Gaussians(middles, covariance).to(dtype=self.means.dtype)

    def shrunk(
        self,
        toward: Gaussians | Literal["pooled", "spherical"] = "pooled",
        share: float | Tensor = 0.5,
        *,
        rescale: bool = False,
        mass: Tensor | None = None,
    ) -> Gaussians:
        """The same means with covariances shrunk toward others, S_i ↦ (1 − λ_i) S_i + λ_i T_i.

        Use it for laws of few samples, whose covariances are singular and narrow.
        ``ad.classes.shrunk_laws`` chooses λ from the samples.

        Args:
            toward: ``"pooled"``, the mean of the covariances; ``"spherical"``, (tr S_i/d) I; or other
                laws, one for each or one for all.
            share: λ, one number or one for each law, from 0 to 1. A law of a single sample takes
                T_i whole, unless its share is 0.
            rescale: give T_i the trace of S_i.
            mass: weight of each law in the pooled one, (k,); by default those with spread count
                alike.

        Example:
            >>> import torch, advect as ad
            >>> from advect.data.laws import Diagonal
            >>> laws = ad.Gaussians(torch.zeros(2, 2), Diagonal(torch.tensor([[1.0, 3.0], [0.0, 0.0]])))
            >>> laws.shrunk("spherical", 0.5).covariances()[0].diagonal().round().tolist()    # halfway to 5, 5
            [3.0, 7.0]
            >>> laws.shrunk("pooled", 0.5).covariances()[1].diagonal().round().tolist()
            [1.0, 9.0]
        """
        target = aim(self.covariance, toward, rescale=rescale, mass=mass)
        shares = self._shares(share)
        blank = (self.covariance.traces() == 0) & (shares > 0)
        shares = torch.where(blank, 1.0, shares)
        covariance = blended(self.covariance, 1 - shares, target, shares)
        return Gaussians(self.means, covariance.to(dtype=self.means.dtype))

    def _shares(self, share: Any) -> Tensor:
        """One number from 0 to 1 for each law, float64."""
        try:
            given = torch.as_tensor(share, dtype=torch.float64, device=self.means.device)
            shares = given.expand(len(self))
        except (TypeError, ValueError, RuntimeError):
            shares = self.means.new_full((1,), torch.nan)
        if not bool(((shares >= 0) & (shares <= 1)).all()):
            raise InputError(
                "share must be a number from 0 to 1, or one for each law",
                repr(share),
                "Estimates from samples, such as 'ledoit-wolf', need ad.classes.shrunk_laws(data, …).",
            )
        return shares

    def sample(
        self,
        rows: Tensor | Sequence[int],
        *,
        centred: bool = False,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """One draw of N(μ_i, S_i) for each position i in ``rows``, (n, d).

        Args:
            rows: the law of each draw.
            centred: draw from N(0, S_i) instead.
            generator: source of randomness, for repeatable draws.
        """
        index, along_axes = (
            torch.as_tensor(rows, device=self.means.device),
            self.covariance.is_diagonal,
        )
        spreads = self.covariance.scales() if along_axes else self.covariance.compressed.parts()
        draws = self.means.new_zeros(len(index), self.dim, dtype=torch.float64)
        for k in index.unique().tolist():
            mine, spread = (index == k).nonzero()[:, 0], spreads[k].detach().double()
            noise = torch.randn(
                len(mine), len(spread), generator=generator, dtype=torch.float64
            ).to(spread.device)
            draws[mine] = noise * spread if along_axes else noise @ spread
        return (draws if centred else draws + self.means[index]).to(self.means.dtype)


def group_shares(groups: Tensor, mass: Tensor, n_groups: int) -> Tensor:
    """The mass of each row within its group, where that has any; else rows count alike."""
    whole = mass.new_zeros(n_groups).index_add_(0, groups, mass)[groups]
    alike = (1 / group_counts(groups, n_groups).to(mass))[groups]
    return torch.where(whole > 0, mass / torch.where(whole > 0, whole, 1), alike)


def group_counts(groups: Tensor, n_groups: int) -> Tensor:
    """The number of rows of each group."""
    counts = groups.new_zeros(n_groups, dtype=torch.long)
    return counts.index_add_(0, groups, torch.ones_like(groups, dtype=torch.long))


def group_sizes(groups: Tensor, n_groups: int) -> tuple[int, ...]:
    """``group_counts`` as plain numbers."""
    return tuple(group_counts(groups, n_groups).tolist())
