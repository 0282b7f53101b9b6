"""Exact optimal transport by the network simplex of POT (paper, eqs. 1 and 3), in float64 on the CPU."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from advect._util import ConvergenceWarning, InputError, check_count, check_finite, readable
from advect.ot.cost import Cost, DenseCost
from advect.ot.divergence import Support
from advect.ot.plan import ScatteredPlan, SparsePlan
from advect.ot.solver import AnyCost, Mass, Solution, Solver, Start, check_problem

# of float64 and the size of the cost that the simplex needs: costs, their copy in its unit, flows,
# plan
_MATRICES = 4


@dataclass(frozen=True)
class ExactOT(Solver):
    """Exact transport: min ⟨P, C⟩ over plans with marginals a and b.

    Time grows like n³ in bad cases. Use it for a few thousand samples, and ``Sinkhorn`` beyond.

    Args:
        max_iter: pivots before it stops with a warning.

    Example:
        >>> import torch, advect as ad
        >>> cost = torch.tensor([[0.0, 4.0], [1.0, 1.0]])
        >>> ad.ExactOT().solve(cost, torch.tensor([0.5, 0.5]), torch.tensor([0.25, 0.75])).value
        1.5
    """

    max_iter: int = 10_000_000
    # the simplex works in float64, and d(A, A) = 0 needs an exactly zero diagonal
    dtype = torch.float64

    def __post_init__(self) -> None:
        check_count("max_iter", self.max_iter)

    def solve(self, cost: AnyCost, a: Mass = None, b: Mass = None, init: Start = None) -> Solution:
        """The exact solution; ``init`` is ignored."""
        import ot  # POT takes seconds to import

        cost, a, b = check_problem(cost, a, b)
        matrix = _whole(cost)
        check_finite("the cost", matrix, "Check the features and the cost function.")
        support = Support(DenseCost(matrix), a, b)
        part, p, q = support.problem()
        inner = part.dense().double()
        least, most = torch.stack(torch.aminmax(inner)).tolist()
        largest = max(abs(least), abs(most))
        # The simplex compares costs with absolute thresholds: give it costs of order 1. Points
        # without mass do not set the unit.
        unit = largest or 1.0
        scaled, masses = inner.cpu().numpy() / unit, (p.cpu().numpy(), q.cpu().numpy())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # replaced by the warning below, which has a remedy
            plan, log = ot.emd(*masses, scaled, numItermax=self.max_iter, log=True)
        if log["warning"] is not None:
            warnings.warn(
                f"exact transport stopped early ({log['warning']}). Raise "
                f"max_iter={self.max_iter}, or use Sinkhorn.",
                ConvergenceWarning,
                stacklevel=2,
            )
        marginal = float(abs(plan.sum(axis=1) - masses[0]).sum())
        marginal += float(abs(plan.sum(axis=0) - masses[1]).sum())
        f, g = (torch.as_tensor(log[name] * unit, dtype=torch.float64).to(p) for name in "uv")
        value = float(log["cost"]) * unit
        # Strong duality, as far as it holds: the gap to the dual value of feasible potentials
        # bounds the error.
        gap = abs(value - float(p @ f + q @ g)) + _violation(inner, f, g)
        rounding = torch.finfo(torch.float64).eps * (8 + math.sqrt(max(inner.shape))) * largest
        # with costs of at least 0, a value of 0 is optimal
        error = 0.0 if value == 0 and least >= 0 else gap + marginal * largest + rounding
        rows, columns = support.rows, support.columns
        g = _extended(g, columns, lambda: (matrix.double()[rows] - f[:, None]).amin(dim=0))
        f = _extended(f, rows, lambda: (matrix.double() - g).amin(dim=1))
        return Solution(
            value=value,
            potentials=(f, g),
            epsilon=0.0,
            converged=log["warning"] is None,
            n_iter=0,
            marginal_error=marginal + torch.finfo(cost.dtype).eps,
            coupling=ScatteredPlan(
                [(1.0, *support.positions, _sparse(torch.from_numpy(plan).to_sparse(), cost))],
                cost.shape,
            ),
            value_error=error,
        )

    def solve_self(self, cost: AnyCost, a: Mass = None, init: Tensor | None = None) -> Solution:
        """Value 0 and the plan diag(a), where staying in place costs nothing."""
        cost, a, _ = check_problem(cost, a, None)
        parts = [cost.rows(block)[:, block].diagonal() for block in cost.blocks()]
        diagonal, (least, most) = float(torch.cat(parts).abs().max()), cost.extremes()
        if diagonal > 1e-6 * most or least < -diagonal:
            # a user-defined cost whose diagonal is not zero or not minimal
            return self.solve(cost, a, a)
        zero, places = torch.zeros_like(a), torch.arange(len(a), device=a.device).expand(2, -1)
        plan = torch.sparse_coo_tensor(places, a, cost.shape, check_invariants=True)
        coupling = _sparse(plan, cost)
        return Solution(0.0, (zero, zero), 0.0, True, 0, 0.0, coupling, value_error=diagonal)


def _sparse(plan: Tensor, cost: Cost) -> SparsePlan:
    """The plan with its at most n + m − 1 entries, in the dtype of the cost."""
    return SparsePlan(plan.coalesce().to(device=cost.device, dtype=cost.dtype))


def _violation(cost: Tensor, f: Tensor, g: Tensor) -> float:
    """The largest f_i + g_j − C_ij: potentials lowered by it are feasible."""
    parts = zip(cost.split(1024), f.split(1024), strict=True)
    return max(0.0, -min(float((rows - own[:, None] - g).min()) for rows, own in parts))


def _extended(potential: Tensor, present: Tensor, others: Callable[[], Tensor]) -> Tensor:
    """Potentials of points with mass, and feasible ones for the others."""
    if bool(present.all()):
        return potential
    return others().masked_scatter_(present, potential)


def _whole(cost: Cost) -> Tensor:
    """The cost as a matrix, if it fits."""
    needed = _MATRICES * 8 * cost.shape[0] * cost.shape[1]
    if cost.matrix is None and cost.room is not None and needed > cost.room:
        raise InputError(
            f"exact transport of {cost.shape[0]} to {cost.shape[1]} samples needs "
            f"{readable(needed)}",
            f"{readable(cost.room)} of room",
            "Raise memory_limit, use ad.Sinkhorn(), or ad.MiniBatch(ad.ExactOT()).",
        )
    return cost.dense()
