"""Checks of transport solvers and ground costs."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from advect.cost.ground import GroundCost
from advect.data.dataset import LabeledDataset
from advect.functionals.otdd import OTDD
from advect.ot.exact import ExactOT
from advect.ot.sinkhorn import Sinkhorn
from advect.ot.solver import Solution, Solver, check_solver as as_solver
from advect.testing.flows import check_functional, close, require, small_pair


def check_solver(solver: Solver, *, tol: float = 1e-3) -> None:
    """Check a transport solver on small problems: plan, potentials, value, symmetry.

    Args:
        solver: an object with ``solve`` and ``solve_self``.
        tol: tolerance of marginals, and of values relative to the costs, of converged solutions.

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
    exact, plan = ExactOT().solve(cost, a, b).value, solution.plan().double()
    least, penalty = exact - tol * size, 0.0
    if solution.reach is not None:  # mass may be left, and marginals that are off have a cost
        least, off = 0.0, _kl(plan.sum(1), a) + _kl(plan.sum(0), b)
        penalty = solution.reach**2 * off
    entropy = _kl(plan, a[:, None] * b[None, :])
    most = float((plan * cost).sum()) + solution.epsilon * entropy + penalty
    require(
        least <= solution.value <= most + tol * size,
        "the value must lie between the exact one and what the plan spends, entropy included",
        f"{solution.value:.6g}, not in [{exact:.6g}, {most:.6g}]",
    )
    require(not math.isnan(solution.value_error), "value_error must be a number, or infinite")


def _kl(part: Tensor, whole: Tensor) -> float:
    inside = part > 0
    logs = part[inside] * (part[inside] / whole[inside]).log()
    return float(logs.sum() - part.sum() + whole.sum())


def _check_order(
    solver: Solver, solution: Solution, cost: Tensor, a: Tensor, b: Tensor, tol: float
) -> None:
    """Neither the order of the points nor where a solver starts from changes the value."""
    turned = solver.solve(cost.flip(0), a.flip(0), b)
    warm = solver.solve(cost, a, b, init=solution.potentials)
    for other, promise in (
        (turned, "the order of the points must not change the value"),
        (warm, "potentials to start from may change the work, not the value"),
    ):
        same = close(solution.value, other.value, tol, tol * float(cost.max()))
        require(same, promise, (solution.value, other.value))


def _check_self(solver: Solver, tol: float) -> None:
    x = torch.rand(6, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    cost, a = torch.cdist(x, x).square() / 2, torch.full((6,), 1 / 6, dtype=torch.float64)
    alone = solver.prepare(cost, a, a).solve_self(cost, a)
    f, g = alone.potentials
    require(bool(torch.equal(f, g)), "the two potentials of a self-problem must coincide")
    plan = alone.plan().double()
    require(bool(((plan - plan.T).abs() <= tol).all()), "the plan of a self-problem is symmetric")


def check_cost(
    cost: GroundCost,
    source: LabeledDataset | None = None,
    target: LabeledDataset | None = None,
    *,
    rtol: float = 1e-4,
) -> None:
    """Check a feature cost or a label cost, as part of a ``GroundCost``: shape, symmetry, gradient.

    Args:
        cost: ``ad.GroundCost(feature=yours)`` or ``ad.GroundCost(label=yours)``.
        source, target: datasets to check it on; by default a few samples in three dimensions.
        rtol: tolerance of the gradient of the energy against central differences.

    Example:
        >>> import advect as ad
        >>> ad.testing.check_cost(ad.GroundCost(label=ad.MeansOnly()))
    """
    first, second = small_pair()
    source, target = source or first, target or second
    cost = cost.fitted(source, target)
    matrix = cost.between(source, target).matrix()
    n, m = len(source), len(target)
    require(matrix.shape == (n, m), f"a cost must be a matrix ({n}, {m})", tuple(matrix.shape))
    require(bool(torch.isfinite(matrix).all()), "costs must be finite")
    require(float(matrix.min()) >= 0, "costs must not be negative", float(matrix.min()))
    turned = torch.arange(n - 1, -1, -1)
    off = float((cost.between(source.subset(turned), target).matrix() - matrix[turned]).abs().max())
    require(off <= 1e-9 * float(matrix.max()), "costs must follow the order of the samples", off)
    within = cost.between(source, source).matrix()
    for part, promise in (
        (within - within.T, "costs within a dataset must be symmetric"),
        (within.diagonal(), "a sample must cost nothing to itself"),
    ):
        off = float(part.abs().max())
        require(off <= 1e-9 * float(within.max()), promise, off)
    energy = OTDD(target, cost=cost, solver=Sinkhorn(epsilon=0.5, tol=1e-9))
    check_functional(energy, source, rtol=rtol)
