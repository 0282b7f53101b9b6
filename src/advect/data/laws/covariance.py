"""Covariances of k laws in one of three forms: full matrices, factors A with S = AᵀA, or standard deviations.

``Covariance`` is their common interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from advect._util.threads import side_by_side
from advect.errors import InputError

_SMALL_ENTRIES = 10_000  # numbers of factors that are compressed in one batch


def root(values: Tensor) -> Tensor:
    """√ of each number, with derivative 0 at 0."""
    positive = values > 0
    return torch.where(positive, torch.where(positive, values, 1).sqrt(), 0)


@dataclass(frozen=True, eq=False)
class Covariance(ABC):
    """The covariances S_1, …, S_k of k laws, (d, d) each.

    A kind is a frozen dataclass whose first field is a tensor. A file names it by its class.
    """

    kinds: ClassVar[dict[str, Callable[..., Covariance]]] = {}
    # numbers of laws and of features, set by the constructor
    count: ClassVar[int]
    dim: ClassVar[int]
    kind: ClassVar[str]  # the name in files
    # whether all matrices are diagonal, so that W₂ is Euclidean in means and ``scales``
    is_diagonal: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.kind = cls.__name__.lower()
        Covariance.kinds[cls.kind] = cls

    def __post_init__(self) -> None:
        first = next(iter(self.tensors().values()))
        vars(self).update(count=len(first), dim=first.shape[-1])

    @abstractmethod
    def dense(self) -> Tensor:
        """The matrices, (k, d, d)."""

    def tensors(self) -> dict[str, Tensor]:
        """The fields that are tensors: what moves, is stored, and has a device."""
        return {name: value for name, value in self._fields() if torch.is_tensor(value)}

    def facts(self) -> dict[str, Any]:
        """The other fields, for the header of a file."""
        return {name: value for name, value in self._fields() if not torch.is_tensor(value)}

    def with_tensors(self, tensors: dict[str, Tensor]) -> Self:
        """The same with other tensors in place of some."""
        return replace(self, **tensors)

    def _fields(self) -> list[tuple[str, Any]]:
        return [(field.name, getattr(self, field.name)) for field in fields(self)]

    def __len__(self) -> int:
        return self.count

    def take(self, rows: Tensor) -> Covariance:
        """Those of the laws at these positions."""
        return self.with_tensors({name: value[rows] for name, value in self.tensors().items()})

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> Covariance:
        """On another device or in another floating dtype."""
        moved = {name: value.to(device, dtype) for name, value in self.tensors().items()}
        return self.with_tensors(moved)

    def parts(self) -> Sequence[Tensor]:
        """The numbers of each law: equal laws have equal ones."""
        return torch.cat([t.reshape(len(self), -1) for t in self.tensors().values()], 1).unbind()

    def each_row(self, values: Tensor) -> Tensor:
        """Repeat numbers of laws (k,) for the rows of the tensors."""
        return values

    def scales(self) -> Tensor:
        """Standard deviations along the axes, (k, d)."""
        return root(self.dense().diagonal(dim1=1, dim2=2))

    def traces(self) -> Tensor:
        """tr S, (k,)."""
        return self.dense().diagonal(dim1=1, dim2=2).sum(dim=1)

    def along(self, directions: Tensor) -> Tensor:
        """Variances θᵀSθ along the columns of ``directions`` (d, p): (p, k), in their dtype."""
        return torch.einsum("dp,kde,ep->pk", directions, self.dense().to(directions), directions)

    @abstractmethod
    def joined(self, groups: Tensor, shares: Tensor, gaps: Tensor, n_groups: int) -> Covariance:
        """Σ p_i (S_i + δ_i δ_iᵀ) over the laws of each group, for shares p and gaps δ; float64."""

    @cached_property
    @abstractmethod
    def compressed(self) -> Factored:
        """Factors of at most d rows for each law, in float64."""


@dataclass(frozen=True, eq=False)
class Full(Covariance):
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
        super().__post_init__()

    def dense(self) -> Tensor:
        return self.matrices

    def joined(self, groups: Tensor, shares: Tensor, gaps: Tensor, n_groups: int) -> Full:
        spread = gaps[:, :, None] * gaps[:, None, :]
        matrices = shares[:, None, None] * (self.matrices.double() + spread)
        return Full(matrices.new_zeros(n_groups, self.dim, self.dim).index_add(0, groups, matrices))

    @cached_property
    def compressed(self) -> Factored:
        """Symmetric roots, stacked, in float64."""
        roots = symmetric_root(self.matrices, torch.float64)
        return Factored(roots.reshape(-1, self.dim), (self.dim,) * len(self))


@dataclass(frozen=True, eq=False)
class Factored(Covariance):
    """Covariances S_i = A_iᵀ A_i, the factors A_i (r_i, d) stacked in ``rows`` (Σ r_i, d) with
    ``sizes`` (r_1, …, r_k): for laws with fewer samples than dimensions.

    Example:
        >>> import torch
        >>> Factored(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), (1, 1)).dense().tolist()
        [[[4.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]]
    """

    rows: Tensor
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        vars(self).update(sizes=tuple(self.sizes), count=len(self.sizes))
        if self.rows.ndim != 2 or sum(self.sizes) != len(self.rows):
            raise InputError(
                "factor rows must have shape (sum of sizes, d)",
                f"shape {tuple(self.rows.shape)} for sizes summing to {sum(self.sizes)}",
                "Stack the factors A_i of S_i = A_iᵀ A_i and give their row counts.",
            )
        object.__setattr__(self, "dim", self.rows.shape[1])

    def dense(self) -> Tensor:
        return torch.stack([block.mT @ block for block in self.parts()])

    def parts(self) -> Sequence[Tensor]:
        return self.rows.split(self.sizes)

    def take(self, rows: Tensor) -> Factored:
        blocks = self.parts()
        chosen = [blocks[k] for k in rows.tolist()]
        return Factored(torch.cat([self.rows[:0], *chosen]), tuple(len(block) for block in chosen))

    def each_row(self, values: Tensor) -> Tensor:
        sizes = torch.tensor(self.sizes, device=values.device, dtype=torch.long)
        return values.repeat_interleave(sizes, output_size=len(self.rows))

    def scales(self) -> Tensor:
        return torch.stack([torch.linalg.vector_norm(block, dim=0) for block in self.parts()])

    def traces(self) -> Tensor:
        squares = torch.linalg.vector_norm(self.rows, dim=1).square()
        if len(set(self.sizes)) == 1:
            return squares.reshape(len(self.sizes), -1).sum(dim=1)
        return torch.stack([block.sum() for block in squares.split(self.sizes)])

    def padded(self) -> Tensor:
        """The factors as one tensor (k, r, d), with rows of zeros where there are fewer than r."""
        if len(set(self.sizes)) == 1:
            return self.rows.reshape(len(self.sizes), -1, self.dim)
        return pad_sequence(list(self.rows.split(self.sizes)), batch_first=True)

    def along(self, directions: Tensor) -> Tensor:
        squares = (self.rows.to(directions) @ directions).square().T  # (p, rows)
        return torch.stack([part.sum(dim=1) for part in squares.split(self.sizes, dim=1)], dim=1)

    def joined(self, groups: Tensor, shares: Tensor, gaps: Tensor, n_groups: int) -> Factored:
        owner = self.each_row(torch.arange(len(self), device=groups.device))
        own = shares[owner, None].sqrt() * self.rows.double()
        rows = torch.cat([own, shares[:, None].sqrt() * gaps])
        return _stacked(rows, torch.cat([groups[owner], groups]), n_groups)

    @cached_property
    def compressed(self) -> Factored:
        """The same covariances with at most d rows each, in float64."""
        blocks = list(self.rows.double().split(self.sizes))
        tall = [k for k, size in enumerate(self.sizes) if size > self.dim]
        if not tall:
            return Factored(self.rows.double(), self.sizes)
        if len(tall) == len(blocks) and len(self.rows) * self.dim <= _SMALL_ENTRIES:
            padded = self.padded().double()  # one call instead of one for each law
            rows = torch.linalg.qr(padded.detach())[0].mT @ padded
            return Factored(rows.reshape(-1, self.dim), (self.dim,) * len(blocks))
        bases = side_by_side(lambda k: torch.linalg.qr(blocks[k])[0], tall, rows=self.dim)
        for k, basis in zip(tall, bases, strict=True):
            blocks[k] = basis.mT @ blocks[k]
        return Factored(torch.cat(blocks), tuple(len(block) for block in blocks))


@dataclass(frozen=True, eq=False)
class Diagonal(Covariance):
    """Diagonal covariances by their standard deviations (k, d): W₂ is then Euclidean in means and
    deviations. For many laws in many dimensions.

    Example:
        >>> import torch
        >>> Diagonal(torch.tensor([[1.0, 3.0]])).dense().tolist()
        [[[1.0, 0.0], [0.0, 9.0]]]
    """

    deviations: Tensor
    is_diagonal = True

    def dense(self) -> Tensor:
        return torch.diag_embed(self.deviations.square())

    def scales(self) -> Tensor:
        return self.deviations

    def traces(self) -> Tensor:
        return self.deviations.square().sum(dim=1)

    def along(self, directions: Tensor) -> Tensor:
        return directions.square().T @ self.deviations.to(directions).square().T

    def joined(self, groups: Tensor, shares: Tensor, gaps: Tensor, n_groups: int) -> Factored:
        variances = shares[:, None] * self.deviations.double().square()
        variances = variances.new_zeros(n_groups, self.dim).index_add(0, groups, variances)
        # The spread of means is not diagonal; factors hold both.
        own = torch.diag_embed(root(variances)).reshape(-1, self.dim)
        every = torch.arange(n_groups, device=groups.device).repeat_interleave(self.dim)
        rows = torch.cat([own, shares[:, None].sqrt() * gaps])
        return _stacked(rows, torch.cat([every, groups]), n_groups)

    @cached_property
    def compressed(self) -> Factored:
        """One diagonal factor for each law, in float64."""
        rows = torch.diag_embed(self.deviations.double()).reshape(-1, self.dim)
        return Factored(rows, (self.dim,) * len(self))


def _stacked(rows: Tensor, groups: Tensor, n_groups: int) -> Factored:
    """Factor rows, in any order, gathered by the covariance that each belongs to."""
    order = torch.argsort(groups, stable=True)
    return Factored(rows[order], tuple(torch.bincount(groups, minlength=n_groups).tolist()))


class _SymmetricRoot(torch.autograd.Function):
    """S ↦ S^½ for batches of semi-definite matrices; its derivative solves X S^½ + S^½ X = dS."""

    @staticmethod
    def forward(ctx, matrices: Tensor, eigenvalues: Tensor, vectors: Tensor) -> Tensor:
        roots = eigenvalues.sqrt()
        ctx.save_for_backward(roots, vectors)
        return (vectors * roots[..., None, :]) @ vectors.mT

    @staticmethod
    def backward(ctx, *grads: Tensor):
        (grad,), (roots, vectors) = grads, ctx.saved_tensors
        sums = roots[..., :, None] + roots[..., None, :]
        # the null space has no derivative: take 0 there
        floor = sums.amax(dim=(-2, -1), keepdim=True) * 1e-12
        inverse = torch.where(sums > floor, 1 / sums.clamp_min(torch.finfo(sums.dtype).tiny), 0)
        inner = vectors.mT @ ((grad + grad.mT) / 2) @ vectors
        return vectors @ (inner * inverse) @ vectors.mT, None, None


def symmetric_root(matrices: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Symmetric square roots S^½ of positive semi-definite matrices (k, d, d), computed in float64.

    Eigenvalues that rounding cannot tell from zero are zero, and the derivative is taken as zero on the
    null space.
    """
    dtype = dtype or matrices.dtype
    symmetric = ((matrices + matrices.mT) / 2).double()
    values, vectors = torch.linalg.eigh(symmetric.detach())
    # The root of an eigenvalue of 1e-16 is 1e-8: without the threshold, directions that are pure
    # rounding would enter the gradient and raise the rank of a law that moves.
    noise = matrices.shape[-1] * torch.finfo(matrices.dtype).eps * values[..., -1:]
    values = torch.where(values > noise, values, 0)
    roots: Any = _SymmetricRoot.apply(symmetric, values, vectors)
    return roots.to(dtype)
