"""Entropic transport with the rows of the cost on several ranks.

A rank holds its rows of the cost and of the kernel K = exp((f ⊕ g − C)/ε), and all vectors. ``ShardedKernel`` has the products
that the iterations of ``advect.ot.iteration`` ask for: K v is gathered from the ranks' rows (n numbers), Kᵀ u is a sum over
ranks (m numbers), a sum in the log domain takes a maximum and a sum. The iterations themselves run on every rank, on the same
vectors, and take the same decisions. Each rank's part may be a matrix or come in blocks (``advect.ot.kernel``).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from advect.distributed.ranks import Group
from advect.errors import ConvergenceWarning, InputError
from advect.ot import BlockedCost, Relative, Sinkhorn
from advect.ot.iteration import Iteration, Symmetric
from advect.ot.kernel import BlockedKernel, DenseKernel, ScaledKernel, fill_kernel
from advect.ot.sinkhorn import mean_cost
from advect.ot.solution import Cost, Potentials

_BASE_TOL = {torch.float32: 1e-5, torch.float64: 1e-8}
_SMALL = 250_000  # entries of the whole matrix up to which float32 problems are solved in float64


class ShardedKernel:
    """The kernel of a problem (n, m) by the ranks' kernels of their rows; vectors are whole on every rank."""

    def __init__(self, own: DenseKernel | BlockedKernel, n: int, group: Group) -> None:
        self.own, self.group, self.rows = own, group, group.rows(n)
        self.shape, self.dtype, self.n = (n, own.shape[1]), own.dtype, n
        self.costly = False

    def most(self) -> float:
        return self.group.largest(self.own.most())

    def fill(self, f: Tensor, g: Tensor, epsilon: float, *, last: bool = True) -> None:
        self.own.fill(f[self.rows], g, epsilon, last=last)
        self.costly = self.group.largest(float(self.own.costly)) > 0  # ranks with a row more may have no room

    def times(self, v: Tensor) -> Tensor:
        return self.group.gather(self.own.times(v), self.n)

    def transposed(self, u: Tensor) -> Tensor:
        return self.group.sum(self.own.transposed(u[self.rows]))

    def sweep(self, v: Tensor, between: Callable[[Tensor, slice], Tensor]) -> tuple[Tensor, Tensor]:
        first = self.rows.start

        def shifted(product: Tensor, block: slice) -> Tensor:
            start, stop, _ = block.indices(self.rows.stop - first)
            return between(product, slice(first + start, first + stop))

        product, total = self.own.sweep(v, shifted)
        whole = product.new_zeros(self.n)
        whole[self.rows] = product
        product, total = self.group.sum(torch.cat([whole, total])).split(self.shape)  # one message instead of two
        return product, total

    def pieces(self) -> Iterator[tuple[slice, Tensor]]:
        """All rows on every rank: asked for when there are few columns, and seldom."""
        yield slice(None), self.group.gather(torch.cat([part.clone() for _, part in self.own.pieces()]), self.n)

    def softmins(self, g: Tensor, a: Tensor, b: Tensor, epsilon: float) -> Potentials:
        f, part = self.own.softmins(g, a[self.rows], b, epsilon)
        logs = -part / epsilon  # of this rank's share of the column sums
        top = self.group.max(logs)
        return self.group.gather(f, self.n), -epsilon * (top + self.group.sum(torch.exp(logs - top)).log())

    def widened(self) -> ShardedKernel:
        return ShardedKernel(self.own.widened(), self.n, self.group)


@dataclass(frozen=True, eq=False)
class Problem:
    """This rank's rows of a cost (n, m), the weights of all rows and columns (all of them positive), and the ranks."""

    cost: Cost
    a: Tensor
    b: Tensor
    group: Group

    def kernel(self, wide: bool) -> ShardedKernel:
        """Small problems in float64 if ``wide``: it costs nothing, and connects distant groups of few points."""
        dtype = torch.float64 if wide and len(self.a) * len(self.b) <= _SMALL else self.cost.dtype
        own = BlockedKernel(self.cost, dtype) if isinstance(self.cost, BlockedCost) else DenseKernel(self.cost.to(dtype))
        return ShardedKernel(own, len(self.a), self.group)

    def rounding(self, epsilon: float) -> float:
        """A marginal error that the dtype can reach; an error on every rank if the cost of one is not finite."""
        most = self.group.largest(self._extreme())
        if not most < torch.inf:
            raise InputError("the cost must be finite", "NaN or infinite entries", "Check the features and the cost function.")
        return max(_BASE_TOL[self.cost.dtype], torch.finfo(self.cost.dtype).eps * most / epsilon)

    def _extreme(self) -> float:
        """The largest size of an entry on this rank; infinite if one is no number."""
        try:
            least, most = self.cost.extremes() if isinstance(self.cost, BlockedCost) else torch.aminmax(self.cost)
        except InputError:
            return torch.inf
        return max(-float(least), float(most)) if least <= most else torch.inf  # NaN is not


@dataclass(frozen=True, eq=False)
class RowSolution:
    """A solved problem: value and potentials of the whole, the plan at this rank's rows (in the memory of its cost)."""

    value: float
    potentials: Potentials
    n_iter: int
    plan: Tensor | ScaledKernel
    converged: bool


def prepared(solver: Sinkhorn, problem: Problem) -> Sinkhorn:
    """The solver with a relative epsilon turned into a number for this problem."""
    if not isinstance(solver.epsilon, Relative):
        return solver
    mine = problem.a[problem.group.rows(len(problem.a))]
    part = torch.tensor([mean_cost(problem.cost, mine, problem.b)], dtype=torch.float64, device=mine.device)
    mean = float(problem.group.sum(part))
    return solver.with_epsilon(solver.epsilon.share * mean if mean > 0 else 1e-20)


def solve(solver: Sinkhorn, problem: Problem, init: Potentials | None = None) -> RowSolution:
    """Transport a to b, from potentials if given."""
    epsilon = _number(solver)
    rounding = problem.rounding(epsilon)
    tol = rounding if solver.tol is None else solver.tol
    state = Iteration(problem.kernel(wide=True), problem.a, problem.b, epsilon)  # pyright: ignore[reportArgumentType]
    met = state.solve(init, tol, solver.max_iter)
    if not met:
        _warn(problem.group, state.error, tol, state.n_iter)
    f, g = state.potentials()
    scalings = state.a * state.u, state.b * state.v
    return _solution(problem, f, g, epsilon, state.n_iter, state.kernel, scalings, met)  # pyright: ignore[reportArgumentType]


def solve_self(solver: Sinkhorn, problem: Problem, init: Tensor | None = None) -> RowSolution:
    """Transport a to itself: one potential, one gathering of row sums for each iteration."""
    epsilon = _number(solver)
    rounding = problem.rounding(epsilon)
    aim = max(rounding / 100, 8 * torch.finfo(problem.cost.dtype).eps)  # halving is cheap: as close as it gets
    state = Symmetric(problem.kernel(wide=False), problem.a, epsilon, init)  # pyright: ignore[reportArgumentType]
    f, n_iter, error = state.run(aim, solver.max_iter)
    tol = max(rounding if solver.tol is None else solver.tol, aim)
    met = error <= tol
    if not met:
        _warn(problem.group, error, tol, n_iter)
    scaling = state.a * state.u
    return _solution(problem, f, f, epsilon, n_iter, state.kernel, (scaling, scaling), met)  # pyright: ignore[reportArgumentType]


def _solution(
    problem: Problem,
    f: Tensor,
    g: Tensor,
    epsilon: float,
    n_iter: int,
    kernel: ShardedKernel,
    scalings: tuple[Tensor, Tensor],
    converged: bool,
) -> RowSolution:
    a, b, cost, rows = problem.a, problem.b, problem.cost, kernel.rows
    if isinstance(cost, BlockedCost):
        assert isinstance(kernel.own, BlockedKernel)
        plan = ScaledKernel(kernel.own, scalings[0][rows], scalings[1])
    else:
        plan = fill_kernel(cost, (f + epsilon * a.log())[rows], g + epsilon * b.log(), epsilon, cost)
    return RowSolution(float(a @ f + b @ g), (f, g), n_iter, plan, converged)


def _number(solver: Sinkhorn) -> float:
    assert not isinstance(solver.epsilon, Relative), "prepared() turns a relative epsilon into a number"
    return float(solver.epsilon)


def _warn(group: Group, error: float, tol: float, n_iter: int) -> None:
    if group.rank == 0:
        warnings.warn(
            f"Sinkhorn stopped after {n_iter} iterations with marginal error {error:.2e} where {tol:.2e} was asked for. "
            "Raise epsilon or max_iter, loosen tol, use float64.",
            ConvergenceWarning,
            stacklevel=4,
        )
