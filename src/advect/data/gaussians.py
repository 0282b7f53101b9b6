"""Gaussian label laws N(μ_y, S_y) and the Bures-Wasserstein distances between them (paper, section
2.3).

    W₂²(N(μ, S), N(μ', S')) = ‖μ − μ'‖² + tr S + tr S' − 2 tr (S^½ S' S^½)^½

A covariance is kept as what it is: full matrices, factors A with S = AᵀA, or standard deviations.
Which laws move, and how, is left to the dynamics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from advect._util.checks import check_finite
from advect._util.linalg import root, squared_gaps, symmetric_root
from advect._util.nuclear import nuclear_norms
from advect._util.threads import side_by_side
from advect.errors import InputError


@dataclass(frozen=True, eq=False)
class Full:
    """Covariances as (k, d, d) symmetric positive semi-definite matrices.

    Example:
        >>> import torch
        >>> Full(torch.eye(2).expand(3, 2, 2)).traces().tolist()
        [2.0, 2.0, 2.0]
    """

    matrices: Tensor

    def __post_init__(self) -> None:
        if self.matrices.ndim != 3 or self.matrices.shape[1] != self.matrices.shape[2]:
            raise InputError(
                "full covariances must have shape (k, d, d)",
                tuple(self.matrices.shape),
                "Stack one matrix for each law.",
            )

    def __len__(self) -> int:
        return len(self.matrices)

    @property
    def dim(self) -> int:
        return self.matrices.shape[1]

    def traces(self) -> Tensor:
        return self.matrices.diagonal(dim1=1, dim2=2).sum(dim=1)

    def dense(self) -> Tensor:
        return self.matrices

    def scales(self) -> Tensor:
        return root(self.matrices.diagonal(dim1=1, dim2=2))

    def parts(self) -> Sequence[Tensor]:
        return self.matrices.unbind()

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> Full:
        return Full(self.matrices.to(device=device, dtype=dtype))

    def take(self, rows: Tensor) -> Full:
        return Full(self.matrices[rows])

    def carried(self, basis: Tensor) -> Full:
        return Full(basis.mT @ self.matrices @ basis)

    def joined(self, groups: Tensor, shares: Tensor, gaps: Tensor, n_groups: int) -> Full:
        spread = gaps[:, :, None] * gaps[:, None, :]
        matrices = shares[:, None, None] * (self.matrices.double() + spread)
        return Full(matrices.new_zeros(n_groups, self.dim, self.dim).index_add(0, groups, matrices))

    @cached_property
    def compressed(self) -> Factored:
        """Symmetric roots, stacked, in float64."""
        roots = symmetric_root(self.matrices.double())
        return Factored(roots.reshape(-1, self.dim), (self.dim,) * len(self))


@dataclass(frozen=True, eq=False)
class Factored:
    """Covariances S_i = A_iᵀ A_i, the factors A_i (r_i, d) stacked in ``rows`` (Σ r_i, d) with
    ``sizes`` (r_1, …, r_k).

    Example:
        >>> import torch
        >>> Factored(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), (1, 1)).dense().tolist()
        [[[4.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]]
    """

    rows: Tensor
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.rows.ndim != 2 or sum(self.sizes) != len(self.rows):
            raise InputError(
                "factor rows must have shape (sum of sizes, d)",
                f"shape {tuple(self.rows.shape)} for sizes summing to {sum(self.sizes)}",
                "Stack the factors A_i of S_i = A_iᵀ A_i and give their row counts.",
            )

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def dim(self) -> int:
        return self.rows.shape[1]

    def _per_law(self, values: Tensor) -> Tensor:
        return torch.stack([block.sum(dim=0) for block in values.split(self.sizes)])

    def traces(self) -> Tensor:
        return self._per_law(self.rows.square().sum(dim=1))

    def dense(self) -> Tensor:
        return torch.stack([block.mT @ block for block in self.rows.split(self.sizes)])

    def scales(self) -> Tensor:
        return torch.stack(
            [torch.linalg.vector_norm(block, dim=0) for block in self.rows.split(self.sizes)]
        )

    def parts(self) -> Sequence[Tensor]:
        return self.rows.split(self.sizes)

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> Factored:
        return Factored(self.rows.to(device=device, dtype=dtype), self.sizes)

    def take(self, rows: Tensor) -> Factored:
        blocks = self.parts()
        chosen = [blocks[k] for k in rows.tolist()]
        return Factored(torch.cat([self.rows[:0], *chosen]), tuple(len(block) for block in chosen))

    def carried(self, basis: Tensor) -> Factored:
        return Factored(self.rows @ basis, self.sizes)

    def joined(self, groups: Tensor, shares: Tensor, gaps: Tensor, n_groups: int) -> Factored:
        owner = torch.arange(len(self), device=groups.device).repeat_interleave(
            torch.tensor(self.sizes, device=groups.device)
        )
        rows = torch.cat(
            [shares[owner, None].sqrt() * self.rows.double(), shares[:, None].sqrt() * gaps]
        )
        return _stacked(rows, torch.cat([groups[owner], groups]), n_groups)

    @cached_property
    def compressed(self) -> Factored:
        """The same covariances with at most d rows each, in float64."""
        blocks = list(self.rows.double().split(self.sizes))
        tall = [k for k, size in enumerate(self.sizes) if size > self.dim]
        bases = side_by_side(lambda k: torch.linalg.qr(blocks[k])[0], tall, rows=self.dim)
        for k, basis in zip(tall, bases, strict=True):
            blocks[k] = basis.mT @ blocks[k]
        rows = torch.cat(blocks) if tall else self.rows.double()
        return Factored(rows, tuple(len(block) for block in blocks))


@dataclass(frozen=True, eq=False)
class Diagonal:
    """Diagonal covariances by their standard deviations (k, d): W₂ is then Euclidean in means and
    deviations.

    Example:
        >>> import torch
        >>> Diagonal(torch.tensor([[1.0, 3.0]])).dense().tolist()
        [[[1.0, 0.0], [0.0, 9.0]]]
    """

    deviations: Tensor

    def __len__(self) -> int:
        return len(self.deviations)

    @property
    def dim(self) -> int:
        return self.deviations.shape[1]

    def traces(self) -> Tensor:
        return self.deviations.square().sum(dim=1)

    def dense(self) -> Tensor:
        return torch.diag_embed(self.deviations.square())

    def scales(self) -> Tensor:
        return self.deviations

    def parts(self) -> Sequence[Tensor]:
        return self.deviations.unbind()

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> Diagonal:
        return Diagonal(self.deviations.to(device=device, dtype=dtype))

    def take(self, rows: Tensor) -> Diagonal:
        return Diagonal(self.deviations[rows])

    def carried(self, basis: Tensor) -> Full:
        return Full(torch.einsum("kd,de,df->kef", self.deviations.square(), basis, basis))

    def joined(self, groups: Tensor, shares: Tensor, gaps: Tensor, n_groups: int) -> Factored:
        variances = shares[:, None] * self.deviations.double().square()
        variances = variances.new_zeros(n_groups, self.dim).index_add(0, groups, variances)
        own = torch.diag_embed(root(variances)).reshape(
            -1, self.dim
        )  # the spread of means is not diagonal: factors are
        every = torch.arange(n_groups, device=groups.device).repeat_interleave(self.dim)
        return _stacked(
            torch.cat([own, shares[:, None].sqrt() * gaps]), torch.cat([every, groups]), n_groups
        )

    @cached_property
    def compressed(self) -> Factored:
        """One diagonal factor for each law, in float64."""
        return Factored(
            torch.diag_embed(self.deviations.double()).reshape(-1, self.dim),
            (self.dim,) * len(self),
        )


Covariance = Full | Factored | Diagonal


def _stacked(rows: Tensor, groups: Tensor, n_groups: int) -> Factored:
    """Factor rows, in any order, gathered by the covariance that each belongs to."""
    order = torch.argsort(groups, stable=True)
    return Factored(rows[order], tuple(torch.bincount(groups, minlength=n_groups).tolist()))


@dataclass(frozen=True, eq=False)
class Gaussians:
    """k Gaussian laws: ``means`` (k, d) and a covariance object (``Full``, ``Factored`` or
    ``Diagonal``).

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

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient is wanted in any of their numbers."""
        return self.means.requires_grad or any(
            part.requires_grad for part in self.covariance.parts()
        )

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
        """Each different law once, in the order of first appearance, and for every law the position
        of its equal there.
        """
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


def bures(a: Gaussians, b: Gaussians, *, rtol: float = 0.0, wanted: Tensor | None = None) -> Tensor:
    """W₂²(a_i, b_j) for all pairs of laws, as a (k, k') matrix; zero on the diagonal when ``a is
    b``.

    Differentiable in means and covariances; safe for rank-deficient and zero covariances. Computed
    in float64.

    Args:
        a, b: the laws.
        rtol: relative error that a distance may have: products are then taken in float32 where that
            is certain to be enough (``advect._util.nuclear``). By default 0: exact to rounding in
            float64.
        wanted: (k, k') bool, the pairs that are asked for; distances of others mean nothing. When
            ``a is b``, those above the diagonal.

    Example:
        >>> import torch, advect as ad
        >>> near = ad.Gaussians(torch.zeros(1, 2), ad.Full(torch.eye(2)[None]))
        >>> far = ad.Gaussians(torch.tensor([[3.0, 4.0]]), ad.Full(4 * torch.eye(2)[None]))
        >>> round(ad.bures(near, far).item(), 6)    # 25 + 2 (2 - 1)^2
        27.0
    """
    if a.dim != b.dim:
        raise InputError(
            "laws must live in one feature space",
            f"dimensions {a.dim} and {b.dim}",
            "Bring both to one space with harmonize.",
        )
    dtype = torch.promote_types(a.means.dtype, b.means.dtype)
    means_a, means_b = a.means.double(), b.means.double()
    if isinstance(a.covariance, Diagonal) and isinstance(b.covariance, Diagonal):
        points_a = torch.cat([means_a, a.covariance.deviations.double()], dim=1)
        points_b = torch.cat([means_b, b.covariance.deviations.double()], dim=1)
        distances = squared_gaps(points_a, points_b)
    else:
        factors_a, factors_b = a.covariance.compressed, b.covariance.compressed
        apart = squared_gaps(means_a, means_b)
        traces = factors_a.traces()[:, None] + factors_b.traces()
        factors = factors_a.rows, factors_a.sizes, factors_b.rows, factors_b.sizes
        norms = nuclear_norms(*factors, near=apart + traces, rtol=rtol, wanted=wanted)
        distances = apart + (traces - 2 * norms).clamp_min(0)
    if a is b:
        distances = distances * (
            1 - torch.eye(len(a), dtype=distances.dtype, device=distances.device)
        )
    return distances.to(dtype)


def group_shares(groups: Tensor, mass: Tensor, n_groups: int) -> Tensor:
    """The mass of each row within its group, where that has any; else rows count alike."""
    whole = mass.new_zeros(n_groups).index_add_(0, groups, mass)[groups]
    alike = 1 / torch.bincount(groups, minlength=n_groups).to(mass)[groups]
    return torch.where(whole > 0, mass / torch.where(whole > 0, whole, 1), alike)
