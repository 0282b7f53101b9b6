"""What every transport solver promises: a plan with its marginals, a value with its error."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from advect.ot.exact import ExactOT
from advect.ot.solution import Solution
from advect.ot.solver import Solver, check_solver as as_solver
from advect.testing.problems import close, require


def check_solver(solver: Solver, *, tol: float = 1e-3) -> None:
    """Try a transport solver of one's own on small problems: plan, potentials, value, symmetry.

    Args:
        solver: what to try; a class with ``solve`` and ``solve_self`` is enough.
        tol: how far marginals may be off, and values relative to the costs, where the solver says
            that it has converged.

    Raises:
        AssertionError: says which promise is broken.

    Example:
        >>> import advect as ad
        >>> ad.testing.check_solver(ad.ExactOT())
        >>> ad.testing.check_solver(ad.Sinkhorn(epsilon=0.1))
    """
    solver = as_solver(solver)
    for cost, a, b in _problems():
        prepared = solver.prepare(cost, a, b)
        solution = prepared.solve(cost, a, b)
        _check_plan(solution, cost, a, b, tol)
        _check_value(solution, cost, a, b, tol)
        _check_order(prepared, solution, cost, a, b, tol)
    _check_self(solver, tol)


def _problems() -> list[tuple[Tensor, Tensor, Tensor]]:
    """Costs ½‖x − y‖² with weights: plain; with a point of no mass; with points that coincide."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.rand(n, 2, generator=generator, dtype=torch.float64) for n in (7, 5))
    cost = torch.cdist(x, y + 1).square() / 2
    a, b = (torch.full((n,), 1 / n, dtype=torch.float64) for n in (7, 5))
    lighter = torch.tensor([0.0, 1, 2, 3, 2, 1, 1], dtype=torch.float64) / 10
    twins = torch.cdist(x[[0, 0, 1, 2, 3, 3, 4]], y + 1).square() / 2
    return [(cost, a, b), (cost, lighter, b), (twins, a, b)]


def _check_plan(solution: Solution, cost: Tensor, a: Tensor, b: Tensor, tol: float) -> None:
    plan = solution.plan().double()
    require(plan.shape == cost.shape, "a plan must have the shape of the cost", tuple(plan.shape))
    require(bool((plan >= 0).all()), "a plan must not be negative", float(plan.min()))
    rows, columns = solution.asked(a, b)
    off = (plan.sum(1) - rows).abs().sum() + (plan.sum(0) - columns).abs().sum()
    error = float(off) / solution.mass
    require(
        error <= solution.marginal_error + 1e-6,
        "the marginals of the plan must be off by marginal_error at most",
        f"{error:.2e} where {solution.marginal_error:.2e} is stated",
    )
    require(solution.converged, "an easy problem must converge", solution.marginal_error)
    require(error <= tol, "a solution that has converged must have the marginals", error)


def _check_value(solution: Solution, cost: Tensor, a: Tensor, b: Tensor, tol: float) -> None:
    f, g = solution.parts
    dual, size = float(a @ f.double() + b @ g.double()), float(cost.max())
    require(
        close(dual, solution.value, tol, tol * size),
        "the value must be ⟨a, f⟩ + ⟨b, g⟩ of the potentials, or of its parts",
        (solution.value, dual),
    )
    exact, spent = ExactOT().solve(cost, a, b).value, float((solution.plan().double() * cost).sum())
    left = solution.reach is not None
    least = 0.0 if left else exact - tol * size
    most = spent + solution.epsilon * _entropy(solution, a, b) + _penalty(solution, a, b)
    require(
        least <= solution.value <= most + tol * size,
        "the value must lie between the exact one and what the plan spends, entropy included",
        f"{solution.value:.6g}, not in [{exact:.6g}, {most:.6g}]",
    )
    require(not math.isnan(solution.value_error), "value_error must be a number, or infinite")


def _entropy(solution: Solution, a: Tensor, b: Tensor) -> float:
    """KL(P | a ⊗ b)."""
    return _kl(solution.plan().double(), a[:, None] * b[None, :])


def _penalty(solution: Solution, a: Tensor, b: Tensor) -> float:
    """What marginals that are off cost, with a reach."""
    if solution.reach is None:
        return 0.0
    plan = solution.plan().double()
    return solution.reach**2 * (_kl(plan.sum(1), a) + _kl(plan.sum(0), b))


def _kl(part: Tensor, whole: Tensor) -> float:
    inside = part > 0
    logs = part[inside] * (part[inside] / whole[inside]).log()
    return float(logs.sum() - part.sum() + whole.sum())


def _check_order(
    solver: Solver, solution: Solution, cost: Tensor, a: Tensor, b: Tensor, tol: float
) -> None:
    """Neither the order of the points nor where a solver starts from changes the value."""
    turned, size = torch.arange(len(a) - 1, -1, -1), float(cost.max())
    other = solver.solve(cost[turned], a[turned], b).value
    require(
        close(solution.value, other, tol, tol * size),
        "the order of the points must not change the value",
        (solution.value, other),
    )
    warm = solver.solve(cost, a, b, init=solution.potentials).value
    require(
        close(solution.value, warm, tol, tol * size),
        "potentials to start from may change the work, not the value",
        (solution.value, warm),
    )


def _check_self(solver: Solver, tol: float) -> None:
    x = torch.rand(6, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    cost, a = torch.cdist(x, x).square() / 2, torch.full((6,), 1 / 6, dtype=torch.float64)
    alone = solver.prepare(cost, a, a).solve_self(cost, a)
    f, g = alone.potentials
    require(bool(torch.equal(f, g)), "the two potentials of a self-problem must coincide")
    plan = alone.plan().double()
    require(bool(((plan - plan.T).abs() <= tol).all()), "the plan of a self-problem is symmetric")
