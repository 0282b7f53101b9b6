"""Entropic transport with the rows of the cost on several ranks.

A rank holds its rows of the cost and of the kernel K = exp((f ⊕ g − C)/ε), and all vectors.
``ShardedKernel`` has the products that the iterations of ``advect.ot.iteration`` ask for: K v is
gathered from the ranks' rows (n numbers), Kᵀ u is a sum over ranks (m numbers), a sum in the log
domain takes a maximum and a sum. The iterations themselves run on every rank, on the same vectors,
and take the same decisions. Each rank's part may be a matrix or come in blocks
(``advect.ot.kernel``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from advect._util.ranks import Group
from advect.errors import InputError
from advect.ot import BlockedCost, Relative, Sinkhorn
from advect.ot.certificate import Scale
from advect.ot.iteration import Iteration, Symmetric
from advect.ot.kernel import BlockedKernel, DenseKernel, ScaledKernel
from advect.ot.sinkhorn import judged, mean_cost
from advect.ot.solution import Cost, Potentials
from advect.ot.support import Scaled, Support


class ShardedKernel:
    """The kernel of a problem (n, m) by the ranks' kernels of their rows; vectors are whole on
    every rank.
    """

    def __init__(self, own: DenseKernel | BlockedKernel, n: int, group: Group) -> None:
        self.own, self.group, self.rows = own, group, group.rows(n)
        self.shape, self.dtype, self.n = (n, own.shape[1]), own.dtype, n
        self.costly = False

    def most(self) -> float:
        return self.group.largest(self.own.most())

    def fill(self, f: Tensor, g: Tensor, epsilon: float, *, last: bool = True) -> None:
        self.own.fill(f[self.rows], g, epsilon, last=last)
        self.costly = (
            self.group.largest(float(self.own.costly)) > 0
        )  # ranks with a row more may have no room

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
        product, total = self.group.sum(torch.cat([whole, total])).split(
            self.shape
        )  # one message instead of two
        return product, total

    def pieces(self) -> Iterator[tuple[slice, Tensor]]:
        """All rows on every rank: asked for when there are few columns, and seldom."""
        yield (
            slice(None),
            self.group.gather(torch.cat([part.clone() for _, part in self.own.pieces()]), self.n),
        )

    def softmins(self, g: Tensor, a: Tensor, b: Tensor, epsilon: float) -> Potentials:
        f, part = self.own.softmins(g, a[self.rows], b, epsilon)
        logs = -part / epsilon  # of this rank's share of the column sums
        top = self.group.max(logs)
        return self.group.gather(f, self.n), -epsilon * (
            top + self.group.sum(torch.exp(logs - top)).log()
        )

    def widened(self) -> ShardedKernel:
        return ShardedKernel(self.own.widened(), self.n, self.group)


@dataclass(frozen=True, eq=False)
class Problem:
    """This rank's rows of a cost (n, m), the weights of all rows and columns (all of them
    positive), and the ranks.
    """

    cost: Cost
    a: Tensor
    b: Tensor
    group: Group

    def kernel(self, dtype: torch.dtype) -> ShardedKernel:
        """The kernel to iterate with, in this dtype."""
        own = (
            BlockedKernel(self.cost, dtype)
            if isinstance(self.cost, BlockedCost)
            else DenseKernel(self.cost, dtype)
        )
        return ShardedKernel(own, len(self.a), self.group)

    def scale(self, epsilon: float) -> Scale:
        """The scale of the whole problem; an error on every rank if the cost of one is not
        finite.
        """
        least, most = self._extremes()
        most, least = self.group.largest(most), -self.group.largest(-least)
        if not (most < torch.inf and least > -torch.inf):
            raise InputError(
                "the cost must be finite",
                "NaN or infinite entries",
                "Check the features and the cost function.",
            )
        scale = Scale((len(self.a), len(self.b)), least, most, epsilon)
        scale.check_epsilon()
        return scale

    def _extremes(self) -> tuple[float, float]:
        """Least and largest entry on this rank; infinite if one is no number."""
        try:
            least, most = (
                self.cost.extremes()
                if isinstance(self.cost, BlockedCost)
                else torch.aminmax(self.cost)
            )
        except InputError:
            return -torch.inf, torch.inf
        return (
            (float(least), float(most)) if least <= most else (-torch.inf, torch.inf)
        )  # NaN is not


@dataclass(frozen=True, eq=False)
class RowSolution:
    """A solved problem: value and potentials of the whole, the plan at this rank's rows (in the
    memory of its cost).
    """

    value: float
    potentials: Potentials
    n_iter: int
    plan: Tensor | ScaledKernel
    converged: bool
    value_error: float


def prepared(solver: Sinkhorn, problem: Problem) -> Sinkhorn:
    """The solver with a relative epsilon turned into a number for this problem."""
    if not isinstance(solver.epsilon, Relative):
        return solver
    mine = problem.a[problem.group.rows(len(problem.a))]
    part = torch.tensor(
        [mean_cost(problem.cost, mine, problem.b)], dtype=torch.float64, device=mine.device
    )
    mean = float(problem.group.sum(part))
    if not math.isfinite(mean):
        raise InputError(
            "the cost must be finite",
            f"a mean of {mean}",
            "Check the features and the cost function.",
        )
    return solver.with_epsilon(solver.epsilon.share * mean if mean > 0 else 1e-20)


def solve(solver: Sinkhorn, problem: Problem, init: Potentials | None = None) -> RowSolution:
    """Transport a to b, from potentials if given."""
    epsilon = _number(solver)
    scale = problem.scale(epsilon)
    dtype = scale.arithmetic(problem.cost.dtype, solver.tol)
    tol = scale.tolerance(problem.cost.dtype, dtype) if solver.tol is None else solver.tol
    state = Iteration(problem.kernel(dtype), problem.a, problem.b, epsilon)  # pyright: ignore[reportArgumentType]
    met = state.solve(init, tol, solver.max_iter)
    f, g = state.potentials()
    error = scale.value_error(state.kernel.dtype, state.error, f, g)
    converged = _judged(
        problem.group,
        met,
        state.error,
        tol,
        state.n_iter,
        scale.objection(state.kernel.dtype, error, tol),
    )
    scalings = state.a * state.u, state.b * state.v
    plan = _plan(problem, state.kernel, (state.f, state.g), epsilon, scalings)  # pyright: ignore[reportArgumentType]
    return RowSolution(
        float(problem.a @ f + problem.b @ g), (f, g), state.n_iter, plan, converged, error
    )


def solve_self(solver: Sinkhorn, problem: Problem, init: Tensor | None = None) -> RowSolution:
    """Transport a to itself: one potential, one gathering of row sums for each iteration."""
    epsilon = _number(solver)
    scale = problem.scale(epsilon)
    dtype = scale.arithmetic(problem.cost.dtype, solver.tol)
    state = Symmetric(problem.kernel(dtype), problem.a, epsilon, init)  # pyright: ignore[reportArgumentType]
    f, n_iter, residual = state.run(
        16 * torch.finfo(dtype).eps, solver.max_iter
    )  # halving is cheap: as close as it gets
    tol = (
        scale.tolerance(problem.cost.dtype, dtype)
        if solver.tol is None
        else max(solver.tol, scale.least_tolerance(dtype))
    )
    error = scale.value_error(dtype, residual, f, f, matched=False)
    converged = _judged(
        problem.group, residual <= tol, residual, tol, n_iter, scale.objection(dtype, 0.0, tol)
    )
    scaling = state.a * state.u
    plan = _plan(problem, state.kernel, (state.f, state.f), epsilon, (scaling, scaling))  # pyright: ignore[reportArgumentType]
    return RowSolution(2 * float(problem.a @ f), (f, f), n_iter, plan, converged, error)


def _plan(
    problem: Problem,
    kernel: ShardedKernel,
    potentials: Potentials,
    epsilon: float,
    scalings: Potentials,
) -> Tensor | ScaledKernel:
    """This rank's rows of the plan whose marginals the iteration has measured; of a matrix, in the
    memory of its cost.
    """
    (f, g), (left, right), rows = potentials, scalings, kernel.rows
    scaled = Scaled(kernel.own, f[rows], g, epsilon, left[rows], right)
    if isinstance(problem.cost, BlockedCost):
        return scaled.products()
    kernel.own.free()
    return scaled.plan(Support(problem.a[rows], problem.b), problem.cost.dtype, problem.cost)


def _number(solver: Sinkhorn) -> float:
    assert not isinstance(solver.epsilon, Relative), (
        "prepared() turns a relative epsilon into a number"
    )
    return float(solver.epsilon)


def _judged(
    group: Group, met: bool, error: float, tol: float, n_iter: int, objection: str | None
) -> bool:
    """Whether a solve has converged; a warning of the first rank if it has not."""
    if group.rank == 0:
        return judged(met, error, tol, n_iter, objection, stacklevel=5)
    return met and objection is None
