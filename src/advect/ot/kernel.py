"""The kernel K = exp((f ⊕ g − C)/ε) of an entropic problem, as the products that an iteration asks
for.

``DenseKernel`` has C and K in memory. ``BlockedKernel`` keeps what its cost has room for: both; or
one matrix, which holds C as long as ε is annealed (an exponential at each use is twenty times
cheaper than a cost from features) and K afterwards, written over it; or nothing, and each pass
computes rows anew. ``sweep`` is K and Kᵀ in one pass, for that case."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Protocol

import torch
from torch import Tensor

from advect._util.memory import check_room
from advect.ot.blocks import BlockedCost, Extremes

_CACHED_ENTRIES = 1_000_000  # of a block whose exponentials are taken while it is in the cache


class DenseKernel:
    """Cost and kernel as matrices."""

    def __init__(self, cost: Tensor, dtype: torch.dtype | None = None) -> None:
        self.cost = cost
        self.values = torch.empty_like(cost, dtype=dtype)
        self.shape, self.dtype = cost.shape, self.values.dtype

    @property
    def costly(self) -> bool:
        """Whether a product is dear enough to be joined with the next."""
        return False

    def most(self) -> float:
        return float(self.cost.max())

    def fill(self, f: Tensor, g: Tensor, epsilon: float, *, last: bool = True) -> None:
        """K for these potentials; ``last`` says that this epsilon is the final one."""
        fill_kernel(self.cost, f, g, epsilon, self.values)

    def times(self, v: Tensor) -> Tensor:
        return self.values @ v

    def transposed(self, u: Tensor) -> Tensor:
        return self.values.T @ u

    def sweep(self, v: Tensor, between: Callable[[Tensor, slice], Tensor]) -> tuple[Tensor, Tensor]:
        """K v, and Kᵀ of what ``between`` makes of its rows."""
        product = self.values @ v
        return product, self.values.T @ between(product, slice(None))

    def pieces(self) -> Iterator[tuple[slice, Tensor]]:
        yield slice(None), self.values

    def softmins(self, g: Tensor, a: Tensor, b: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
        """f = T(g), then g = T(f), in the log domain; what K held is lost."""
        f = softmin(self.cost, g, b, epsilon, 1, self.values)
        return f, softmin(self.cost, f, a, epsilon, 0, self.values)

    def widened(self) -> DenseKernel:
        """The same in float64."""
        return DenseKernel(self.cost, torch.float64)

    def free(self) -> None:
        """Let go of K, which cost and potentials make again when a plan is asked for."""
        self.values = self.values.new_empty(0)


class BlockedKernel:
    """The kernel of a cost that comes in blocks of rows; ``room`` overrides how much is kept."""

    def __init__(
        self, cost: BlockedCost, dtype: torch.dtype | None = None, room: int | None = None
    ) -> None:
        self.source, self.shape, self.dtype, self.device = (
            cost,
            cost.shape,
            dtype or cost.dtype,
            cost.device,
        )
        room = cost.room if room is None else room
        scratch = 3 * cost.block_rows * self.shape[1] * self.dtype.itemsize
        matrices = (room - scratch) // max(1, cost.bytes(self.dtype))
        self._fits, self._copies = matrices >= 1, matrices >= 2
        self._matrix: Tensor | None = None
        self._costs: Tensor | None = None  # a second matrix, where it fits
        self._holds = "nothing"
        self._scratch: Tensor | None = None

    @property
    def cost_dtype(self) -> torch.dtype:
        """That of the costs, and of plans."""
        return self.source.dtype

    @property
    def kept(self) -> bool:
        """Whether a matrix is kept between products."""
        return self._fits

    @property
    def costly(self) -> bool:
        return self._holds != "kernel"

    def most(self) -> float:
        if self._fits:
            self._load()
        return self.source.extremes()[1]

    def fill(self, f: Tensor, g: Tensor, epsilon: float, *, last: bool = True) -> None:
        self.f, self.g, self.epsilon = f, g, epsilon
        if not self._fits:
            return
        if not last and not self._copies:
            self._load()
            return
        if self._copies:
            self._load()
        matrix, notes = self._space(), Extremes()
        for block in self._blocks():
            part = matrix[block]
            costs = self._cost_rows(block, part)
            if self._holds == "nothing":
                notes.add(costs)
            fill_kernel(costs, f[block], g, epsilon, part)
        if self._holds == "nothing":
            self.source.note(notes)
        self._holds = "kernel"

    def times(self, v: Tensor) -> Tensor:
        if not self.costly and self._matrix is not None:
            return self._matrix @ v
        return torch.cat([rows @ v for _, rows in self.pieces()])

    def transposed(self, u: Tensor) -> Tensor:
        if not self.costly and self._matrix is not None:
            return self._matrix.T @ u
        total = torch.zeros(self.shape[1], *u.shape[1:], dtype=self.dtype, device=self.device)
        for block, rows in self.pieces():
            total += rows.T @ u[block]
        return total

    def sweep(self, v: Tensor, between: Callable[[Tensor, slice], Tensor]) -> tuple[Tensor, Tensor]:
        if not self.costly and self._matrix is not None:
            product = self._matrix @ v
            return product, self._matrix.T @ between(product, slice(None))
        products, total = [], torch.zeros(self.shape[1], dtype=self.dtype, device=self.device)
        for block, rows in self.pieces():
            products.append(rows @ v)
            total += rows.T @ between(products[-1], block)
        return torch.cat(products), total

    def pieces(self) -> Iterator[tuple[slice, Tensor]]:
        """(rows, K at these rows), one block after the other; a block is overwritten by the
        next.
        """
        for block in self._blocks():
            if not self.costly and self._matrix is not None:
                yield block, self._matrix[block]
            else:
                out = self._scratch_rows(block)
                yield (
                    block,
                    fill_kernel(
                        self._cost_rows(block, out), self.f[block], self.g, self.epsilon, out
                    ),
                )

    def softmins(self, g: Tensor, a: Tensor, b: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
        """Both in one pass: a block of rows has its f, which is all that its share of the column
        sums needs.
        """
        if self._fits:
            self._load()
        f, columns = [], ColumnSums(self.shape[1], self.device)
        for block in self._blocks():
            costs, out = self._costs_apart(block)
            f.append(softmin(costs, g, b, epsilon, 1, out))
            columns.add(costs, f[-1], a[block], epsilon, out)
        return torch.cat(f), columns.softmin(epsilon)

    def widened(self) -> BlockedKernel:
        """The same in float64, where one matrix takes the room of two."""
        self.release()
        return BlockedKernel(self.source, torch.float64)

    def free(self) -> None:
        """Kept: a plan is asked for by products; ``release`` lets go."""

    def release(self) -> None:
        """Let go of the matrices; products still work, from rows computed anew."""
        self._matrix = self._costs = self._scratch = None
        self._holds, self._fits, self._copies = "nothing", False, False
        self.source.release()

    def _space(self) -> Tensor:
        if self._matrix is None:
            self._matrix = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        return self._matrix

    def _load(self) -> None:
        """Costs into the matrix that is meant for them."""
        if self._copies:
            if self._costs is None:
                self._costs, notes = (
                    torch.empty(self.shape, dtype=self.source.dtype, device=self.device),
                    Extremes(),
                )
                for block in self.source.blocks():
                    notes.add(self.source.rows(block, self._costs[block]))
                self.source.note(notes)
                self.source.release()
        elif self._holds != "cost":
            matrix, notes = self._space(), Extremes()
            for block in self.source.blocks():
                part = matrix[block]
                if self.dtype == self.source.dtype:
                    self.source.rows(block, part)
                else:
                    part.copy_(self.source.rows(block))
                notes.add(part)
            self.source.note(notes)
            self._holds = "cost"

    def _blocks(self) -> Iterator[slice]:
        """Few rows where their costs are kept; enough for an efficient product where they are
        computed.
        """
        kept = self._costs is not None or self._holds == "cost"
        return self.source.blocks(max(1, _CACHED_ENTRIES // self.shape[1]) if kept else None)

    def _cost_rows(self, block: slice, out: Tensor) -> Tensor:
        """Costs of these rows, in ``out`` or where they are kept."""
        if self._costs is not None:
            return self._costs[block]
        if self._holds == "cost" and self._matrix is not None:
            return self._matrix[block]
        return self.source.rows(block, out if out.dtype == self.source.dtype else None)

    def _costs_apart(self, block: slice) -> tuple[Tensor, Tensor]:
        """Costs of these rows, and space of the same shape that is not theirs."""
        out = self._scratch_rows(block)
        if self._costs is not None or self._holds == "cost":
            return self._cost_rows(block, out), out
        return self.source.rows(block), out

    def _scratch_rows(self, block: slice) -> Tensor:
        rows = block.stop - block.start
        if self._scratch is None or len(self._scratch) < rows:
            self._scratch = torch.empty(rows, self.shape[1], dtype=self.dtype, device=self.device)
        return self._scratch[:rows]


class Products(Protocol):
    """What a plan asks of a kernel."""

    shape: tuple[int, int]
    dtype: torch.dtype

    @property
    def cost_dtype(self) -> torch.dtype: ...

    def times(self, v: Tensor) -> Tensor: ...

    def transposed(self, u: Tensor) -> Tensor: ...

    def pieces(self) -> Iterator[tuple[slice, Tensor]]: ...

    def release(self) -> None: ...


class ScaledKernel:
    """The plan diag(left) K diag(right) as products, ``plan @ v`` and ``plan.T @ u``, without the
    matrix.
    """

    def __init__(self, kernel: Products, left: Tensor, right: Tensor) -> None:
        self.kernel, self.left, self.right = kernel, left, right
        self.shape, self.dtype = kernel.shape, kernel.cost_dtype

    def __matmul__(self, v: Tensor) -> Tensor:
        return (
            self.left[:, None] * self.kernel.times(self.right[:, None] * v.to(self.kernel.dtype))
        ).to(v.dtype)

    @property
    def T(self) -> TransposedKernel:  # as tensors have it
        return TransposedKernel(self)

    def pieces(self) -> Iterator[tuple[slice, slice, Tensor]]:
        """(rows, columns, plan there), block by block."""
        for block, rows in self.kernel.pieces():
            yield block, slice(None), (self.left[block, None] * rows * self.right).to(self.dtype)

    def dense(self, out: Tensor | None = None) -> Tensor:
        """The plan as a matrix."""
        if out is None:
            size = self.shape[0] * self.shape[1] * self.dtype.itemsize
            check_room(
                "the plan",
                size,
                "Use products with it (solution.coupling @ v), or class_coupling.",
                self.left.device,
            )
            out = torch.empty(self.shape, dtype=self.dtype, device=self.left.device)
        for block, _, rows in self.pieces():
            out[block] = rows
        return out

    def release(self) -> None:
        self.kernel.release()


class TransposedKernel:
    """The transpose of a plan, as a product."""

    def __init__(self, plan: ScaledKernel) -> None:
        self.plan = plan

    def __matmul__(self, v: Tensor) -> Tensor:
        kernel, (left, right) = self.plan.kernel, (self.plan.left, self.plan.right)
        return (right[:, None] * kernel.transposed(left[:, None] * v.to(kernel.dtype))).to(v.dtype)


def fill_kernel(cost: Tensor, f: Tensor, g: Tensor, epsilon: float, out: Tensor) -> Tensor:
    """exp((f_i + g_j − C_ij)/ε) written into ``out``, which may be the cost, without
    temporaries.
    """
    torch.add((g / epsilon).to(out.dtype)[None, :], cost, alpha=-1 / epsilon, out=out)
    return exp_(out.add_((f / epsilon).to(out.dtype)[:, None]))


def exp_(values: Tensor) -> Tensor:
    """exp in place, with 0 for what would be below the normal range: exponentials that underflow
    take twenty times as long.
    """
    least = math.log(torch.finfo(values.dtype).tiny) + 0.1
    return torch.threshold_(values.clamp_min_(least).exp_(), 1.01 * math.exp(least), 0.0)


def softmin(
    cost: Tensor,
    potential: Tensor,
    weights: Tensor,
    epsilon: float,
    dim: int,
    out: Tensor | None = None,
) -> Tensor:
    """T(g)_i = −ε log Σ_j w_j exp((g_j − C_ij)/ε) along ``dim``, stable for any epsilon; ``out`` is
    scratch space.
    """
    out = torch.empty_like(cost) if out is None else out
    shift = (potential / epsilon + weights.log()).to(out.dtype)
    torch.add(shift[None, :] if dim == 1 else shift[:, None], cost, alpha=-1 / epsilon, out=out)
    top = out.amax(dim=dim, keepdim=True)
    sums = exp_(out.sub_(top)).sum(dim=dim)
    return -epsilon * (top.squeeze(dim).double() + sums.double().log())


class ColumnSums:
    """log Σ_i a_i exp((f_i − C_ij)/ε) for each column, over blocks of rows that come one after the
    other.
    """

    def __init__(self, columns: int, device: torch.device) -> None:
        self.top = torch.full((columns,), -math.inf, dtype=torch.float64, device=device)
        self.sums = torch.zeros(columns, dtype=torch.float64, device=device)

    def add(self, costs: Tensor, f: Tensor, a: Tensor, epsilon: float, out: Tensor) -> None:
        torch.add(
            (f / epsilon + a.log()).to(out.dtype)[:, None], costs, alpha=-1 / epsilon, out=out
        )
        top = torch.maximum(
            self.top, out.amax(dim=0).double()
        )  # of numbers in the dtype of ``out``: it fits there again
        shift = top.to(out.dtype).nan_to_num(
            neginf=0.0
        )  # no row with mass yet: nothing to subtract
        sums = exp_(out.sub_(shift)).sum(dim=0).double()
        self.sums = sums + torch.where(self.sums > 0, self.sums * torch.exp(self.top - top), 0.0)
        self.top = top

    def softmin(self, epsilon: float) -> Tensor:
        return -epsilon * (self.top + self.sums.log())
