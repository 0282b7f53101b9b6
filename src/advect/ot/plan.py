"""Transport plans as linear operators: a matrix, or a mean of plans between parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from advect._util import InputError, check_room

Index = slice | Tensor
Maybe = Tensor | None


class Plan(ABC):
    """A plan P (n, m) as a linear operator: ``plan @ v`` for v (m, p) and ``plan.T @ u`` for u (n, p).

    A subclass defines ``shape``, ``dtype``, ``device`` and ``pieces``.
    """

    shape: tuple[int, int]
    dtype: torch.dtype
    device: torch.device

    @abstractmethod
    def pieces(self) -> Iterator[tuple[Index, Index, Tensor]]:
        """(rows, columns, plan there) for parts that add up to the plan."""

    def times(self, v: Tensor) -> Tensor:
        """P v, in the dtype of v."""
        out = v.new_zeros(self.shape[0], *v.shape[1:])
        for rows, columns, part in self.pieces():
            out[rows] += part.to(v.dtype) @ v[columns]
        return out

    def transposed(self, u: Tensor) -> Tensor:
        """Pᵀ u, in the dtype of u."""
        out = u.new_zeros(self.shape[1], *u.shape[1:])
        for rows, columns, part in self.pieces():
            out[columns] += part.T.to(u.dtype) @ u[rows]
        return out

    def __matmul__(self, v: Tensor) -> Tensor:
        return self.times(v)

    @property
    def T(self) -> TransposedPlan:  # as tensors have it
        return TransposedPlan(self)

    def dense(self) -> Tensor:
        """The plan as a matrix, if it fits into memory."""
        self.check_room()
        out = torch.zeros(self.shape, dtype=self.dtype, device=self.device)
        places = [torch.arange(size, device=self.device) for size in self.shape]
        for rows, columns, part in self.pieces():
            at = (places[0][rows][:, None], places[1][columns])
            out.index_put_(at, part.to(self.dtype), accumulate=True)
        return out

    def entries(self) -> tuple[Tensor, Tensor, Tensor]:
        """Rows, columns and masses (float64) of the pairs that have mass.

        Example:
            >>> import torch, advect as ad
            >>> plan = ad.ExactOT().solve(torch.tensor([[0.0, 1.0], [1.0, 0.0]])).coupling
            >>> [part.tolist() for part in plan.entries()]
            [[0, 1], [0, 1], [0.5, 0.5]]
        """
        every = [torch.arange(size, device=self.device) for size in self.shape]
        places, masses = [], []
        for rows, columns, part in self.pieces():
            at, onto = part.nonzero().T
            places.append(torch.stack([every[0][rows][at], every[1][columns][onto]]))
            masses.append(part[at, onto].double())
        found = torch.sparse_coo_tensor(
            torch.cat(places, dim=1), torch.cat(masses), self.shape, check_invariants=True
        ).coalesce()
        return found.indices()[0], found.indices()[1], found.values()

    def check_room(self) -> None:
        """Raise an error if the matrix does not fit into memory."""
        check_room(
            "the plan",
            self.shape[0] * self.shape[1] * self.dtype.itemsize,
            "Use products with it (solution.coupling @ v), or class_coupling.",
            self.device,
        )

    def release(self) -> None:
        """Free matrices that can be computed again."""
        return


class TransposedPlan:
    """The transpose of a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.shape = plan, (plan.shape[1], plan.shape[0])

    def __matmul__(self, u: Tensor) -> Tensor:
        return self.plan.transposed(u)


class DensePlan(Plan):
    """A plan that is a matrix."""

    def __init__(self, matrix: Tensor) -> None:
        self.matrix = matrix.detach()
        self.shape = (matrix.shape[0], matrix.shape[1])
        self.dtype, self.device = matrix.dtype, matrix.device

    def pieces(self) -> Iterator[tuple[slice, slice, Tensor]]:
        yield slice(None), slice(None), self.matrix

    def dense(self) -> Tensor:
        return self.matrix


class SparsePlan(DensePlan):
    """A plan with few entries, in coordinates."""

    def times(self, v: Tensor) -> Tensor:
        return torch.sparse.mm(self.matrix.to(v.dtype), v)

    def transposed(self, u: Tensor) -> Tensor:
        return torch.sparse.mm(self.matrix.to(u.dtype).T, u)

    def pieces(self) -> Iterator[tuple[slice, slice, Tensor]]:
        yield slice(None), slice(None), self.dense()

    def entries(self) -> tuple[Tensor, Tensor, Tensor]:
        found = self.matrix.coalesce()
        return found.indices()[0], found.indices()[1], found.values().double()

    def dense(self) -> Tensor:
        return self.matrix.to_dense()


class NoPlan(Plan):
    """Stands for a plan that was not stored; using it raises an error."""

    shape, dtype, device = (0, 0), torch.float64, torch.device("cpu")

    def pieces(self) -> Iterator[tuple[Index, Index, Tensor]]:
        raise InputError(
            "the plan of a step of a flow is not stored",
            "a request for it",
            "Take ad.otdd(source, target).plan().",
        )


class ScatteredPlan(Plan):
    """Σ_k share_k P_k, where each P_k is between some rows and some columns."""

    def __init__(
        self, parts: list[tuple[float, Tensor, Tensor, Plan]], shape: tuple[int, int]
    ) -> None:
        self.parts, self.shape = parts, shape
        self.dtype, self.device = parts[0][3].dtype, parts[0][3].device

    def times(self, v: Tensor) -> Tensor:
        out = v.new_zeros(self.shape[0], *v.shape[1:])
        for share, rows, columns, plan in self.parts:
            out.index_add_(0, rows, plan @ v[columns], alpha=share)
        return out

    def transposed(self, u: Tensor) -> Tensor:
        out = u.new_zeros(self.shape[1], *u.shape[1:])
        for share, rows, columns, plan in self.parts:
            out.index_add_(0, columns, plan.T @ u[rows], alpha=share)
        return out

    def pieces(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        for share, rows, columns, plan in self.parts:
            for at, onto, part in plan.pieces():
                yield rows[at], columns[onto], share * part

    def release(self) -> None:
        for *_, plan in self.parts:
            plan.release()
