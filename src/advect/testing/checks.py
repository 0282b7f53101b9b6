"""Checks of functionals, integrators, maps, solvers and ground costs, and small problems for them."""

from __future__ import annotations

import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError, gradcheck

from advect.cost import GroundCost
from advect.data.dataset import LabeledDataset
from advect.flows.integrators import Integrator
from advect.flows.loop import flow, iterate
from advect.functionals.base import Functional
from advect.functionals.otdd import OTDD
from advect.functionals.potential import Potential
from advect.maps.base import Map
from advect.ot import ExactOT, Sinkhorn, Solution, Solver, check_solver as as_solver


def check_functional(
    functional: Functional, rho: LabeledDataset | None = None, *, rtol: float = 1e-4
) -> None:
    """Check a functional: value, terms, state and gradient.

    Args:
        functional: the functional.
        rho: a dataset; by default twelve samples in three dimensions, float64.
        rtol: tolerance of the gradient against central differences, and between a warm and a cold
            start.

    Example:
        >>> import advect as ad
        >>> class StayNear(ad.Functional):
        ...     def __call__(self, rho):
        ...         return (rho.weights * rho.x.square().sum(1)).sum()
        >>> ad.testing.check_functional(StayNear())
    """
    rho = rho or small_pair()[0]
    _check_value(functional, rho)
    _check_state(functional, rho, rtol)
    if not functional.stochastic:
        _check_gradient(functional, rho, rtol)


def _check_value(functional: Functional, rho: LabeledDataset) -> None:
    value = functional(rho)
    require(torch.is_tensor(value), "F(ρ) must be a tensor, for its gradient", type(value).__name__)
    require(value.ndim == 0, "F(ρ) must be a single number", f"shape {tuple(value.shape)}")
    require(bool(torch.isfinite(value)), "F(ρ) must be finite", float(value))
    terms, _ = functional.terms(rho, functional.begin(rho))
    total = sum(float(term) for term in terms.values())
    require(close(total, float(value), 1e-12), "terms must add up to F(ρ)", (total, float(value)))


def _check_state(functional: Functional, rho: LabeledDataset, rtol: float) -> None:
    state = functional.begin(rho)
    _check_flat("begin(rho)", state)
    kept = {name: value.clone() for name, value in state.items()}
    first, after = functional.terms(rho, state)
    _check_flat("terms(rho, state)", after)
    same = kept.keys() == state.keys() and all(kept[k].equal(state[k]) for k in kept)
    require(same, "terms(rho, state) must return a new state and not change its argument")
    again, _ = functional.terms(rho, state)
    equal = all(torch.equal(first[name].detach(), again[name].detach()) for name in first)
    require(equal, "from one state, terms must be the same at each call, to the last bit")
    if not functional.stochastic:
        warm, _ = functional.terms(rho, after)
        cold, hot = (sum(float(v) for v in terms.values()) for terms in (first, warm))
        require(close(cold, hot, rtol), "a state may change the work, not the value", (cold, hot))


def _check_flat(where: str, state: Any) -> None:
    """A flat dictionary of tensors."""
    promise = "a state must be a flat dictionary of tensors, as checkpoints hold them"
    require(isinstance(state, dict), promise, f"{type(state).__name__} of {where}")
    other = {name: type(v).__name__ for name, v in state.items() if not torch.is_tensor(v)}
    require(not other, promise, f"{other} of {where}")


def _check_gradient(functional: Functional, rho: LabeledDataset, rtol: float) -> None:
    start = functional.begin(rho)  # values that the first dataset of a flow fixes stay fixed

    def value(x: Tensor) -> Tensor:
        terms = functional.terms(rho.replace(x=x), start)[0].values()
        return torch.stack(list(terms)).sum() + 0 * x.sum()  # terms may not depend on x

    leaf, size = rho.x.detach().clone().requires_grad_(), float(rho.x.abs().max().clamp_min(1))
    options = {"eps": 1e-5 * size, "atol": rtol, "rtol": rtol, "check_undefined_grad": False}
    try:
        gradcheck(value, leaf, fast_mode=True, **options)
    except GradcheckError as error:
        raise AssertionError(f"the gradient must be that of the value; {error}") from None


def check_integrator(integrator: Integrator, *, n_steps: int = 20) -> None:
    """Check an integrator in a flow down ½‖x‖²: steps descend, and runs can be repeated and resumed.

    Args:
        integrator: with a step size below 1.
        n_steps: of the flow.

    Example:
        >>> import advect as ad
        >>> ad.testing.check_integrator(ad.Euler(0.2))
    """
    source = small_pair()[0]
    bowl = Potential(lambda x, y: x.square().sum(1) / 2)

    def walk() -> torch.Tensor:
        generator = torch.Generator().manual_seed(0)
        return flow(
            source, bowl, integrator=integrator, n_steps=n_steps, generator=generator
        ).dataset.x

    first = walk()
    require(bool(torch.isfinite(first).all()), "steps for a small quadratic must be finite")
    require(torch.equal(first, walk()), "two flows from one seed must be the same, bit for bit")
    if not integrator.stochastic:
        before, after = float(source.x.square().sum()), float(first.square().sum())
        require(after < before, f"{n_steps} steps must decrease ½‖x‖²", (before, after))
        steps = list(islice(iterate(source, bowl, integrator=integrator), 5))
        later = iterate(source, bowl, integrator=integrator, start=steps[2].snapshot)
        again = [step.dataset.x for step in islice(later, 3)]
        same = all(torch.equal(a.dataset.x, b) for a, b in zip(steps[2:], again, strict=True))
        require(same, "a flow resumed from a snapshot must give the same states, bit for bit")


def check_map(fresh: Map) -> None:
    """Check a map: fit, transform, save, load.

    Args:
        fresh: a map that is not fitted yet; it is fitted on twelve pairs.

    Example:
        >>> import advect as ad
        >>> ad.testing.check_map(ad.maps.NearestMap())
    """
    source, other = small_pair()
    fitted = fresh.fit(source, source.replace(x=source.x + 1))
    require(fitted is fresh, "fit must return the map itself")
    moved = fitted.transform(source.x)
    require(moved.shape == source.x.shape, "samples must come back in their shape", moved.shape)
    require(moved.dtype == source.x.dtype, "samples must come back in their dtype", moved.dtype)
    require(bool(torch.isfinite(moved).all()), "the result of a map must be finite")
    require(
        torch.equal(moved, fitted.transform(source.x)),
        "two calls of a map must give the same result",
    )
    rows = torch.cat([fitted.transform(row) for row in source.x.split(1)])
    near = torch.allclose(rows, moved, rtol=1e-6, atol=1e-8)
    require(near, "the image of a sample must not depend on the other samples")
    carried = fitted.transform(other.replace(y=torch.full_like(other.y, -1), classes=()))
    require(len(carried) == len(other), "a dataset of other samples must come back as a dataset")
    with tempfile.TemporaryDirectory() as folder:
        again = type(fitted).load(fitted.save(Path(folder, "map.safetensors")))
    moved_again = again.transform(source.x)
    require(torch.equal(moved_again, moved), "a saved map must give the same result, bit for bit")


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
        _check_transport_value(solution, cost, a, b, tol)
        warm = prepared.solve(cost, a, b, init=solution.potentials)
        same = close(solution.value, warm.value, tol, tol * float(cost.max()))
        values = solution.value, warm.value
        require(same, "potentials to start from may change the work, not the value", values)
    _check_self(solver, tol)


def _problems() -> list[tuple[Tensor, Tensor, Tensor]]:
    """Costs ½‖x − y‖² with weights: plain, and with a point of no mass."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.rand(n, 2, generator=generator, dtype=torch.float64) for n in (7, 5))
    cost = torch.cdist(x, y + 1).square() / 2
    a, b = (torch.full((n,), 1 / n, dtype=torch.float64) for n in (7, 5))
    lighter = torch.tensor([0.0, 1, 2, 3, 2, 1, 1], dtype=torch.float64) / 10
    return [(cost, a, b), (cost, lighter, b)]


def _check_plan(solution: Solution, cost: Tensor, a: Tensor, b: Tensor, tol: float) -> None:
    plan = solution.plan().double()
    require(plan.shape == cost.shape, "a plan must have the shape of the cost", tuple(plan.shape))
    require(bool((plan >= 0).all()), "a plan must not be negative", float(plan.min()))
    rows, columns = solution.target_marginals(a, b)
    off = (plan.sum(1) - rows).abs().sum() + (plan.sum(0) - columns).abs().sum()
    error = float(off) / solution.mass
    require(
        error <= solution.marginal_error + 1e-6,
        "the marginals of the plan must be off by marginal_error at most",
        f"{error:.2e} where {solution.marginal_error:.2e} is stated",
    )
    require(solution.converged, "an easy problem must converge", solution.marginal_error)
    require(error <= tol, "a solution that has converged must have the marginals", error)


def _check_transport_value(
    solution: Solution, cost: Tensor, a: Tensor, b: Tensor, tol: float
) -> None:
    f, g = solution.parts
    dual, size = float(a @ f.double() + b @ g.double()), float(cost.max())
    require(
        close(dual, solution.value, tol, tol * size),
        "the value must be ⟨a, f⟩ + ⟨b, g⟩ of the potentials, or of its parts",
        (solution.value, dual),
    )
    exact = ExactOT().solve(cost, a, b).value
    if solution.reach is None:  # mass that stays changes the value
        require(
            solution.value >= exact - tol * size,
            "the value must not be below the exact one",
            (solution.value, exact),
        )


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
    within = cost.between(source, source).matrix()
    for part, promise in (
        (within - within.T, "costs within a dataset must be symmetric"),
        (within.diagonal(), "a sample must cost nothing to itself"),
    ):
        off = float(part.abs().max())
        require(off <= 1e-9 * float(within.max()), promise, off)
    energy = OTDD(target, cost=cost, solver=Sinkhorn(epsilon=0.5, tol=1e-9))
    check_functional(energy, source, rtol=rtol)


def small_pair(n: int = 12, m: int = 9) -> tuple[LabeledDataset, LabeledDataset]:
    """Two labeled datasets of a few samples in three dimensions, float64, with unequal weights."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(k, 3, generator=generator, dtype=torch.float64) for k in (n, m))
    source = LabeledDataset(x, [("a", "b")[i % 2] for i in range(n)], weights=1 + torch.arange(n))
    return source, LabeledDataset(y + 2, [("u", "v", "w")[i % 3] for i in range(m)])


def require(kept: bool, promise: str, got: object = "") -> None:
    """Raise an ``AssertionError`` with the promise unless it holds."""
    if not kept:
        raise AssertionError(f"{promise}{f'; got {got}' if got != '' else ''}")


def close(a: float, b: float, rtol: float, atol: float = 1e-12) -> bool:
    """Whether two numbers agree up to these tolerances."""
    return abs(a - b) <= atol + rtol * max(abs(a), abs(b))
