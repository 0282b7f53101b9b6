"""Entropic optimal transport in the dual (Cuturi 2013; paper, section 2.2).

    OT_ε(a, b) = min_P ⟨P, C⟩ + ε KL(P | a ⊗ b) = max_{f, g} ⟨a, f⟩ + ⟨b, g⟩

with P_ij = a_i b_j exp((f_i + g_j − C_ij)/ε). The steps are in ``advect.ot.iteration``.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field, replace
from typing import Self, cast

import torch
from torch import Tensor

from advect._util import defaults
from advect._util.checks import check_count, check_positive
from advect._util.memory import MemoryLimit, ScaleWarning, as_bytes, readable
from advect.errors import ConvergenceWarning, InputError
from advect.ot.blocks import as_cost
from advect.ot.certificate import CAP, Scale, is_small
from advect.ot.cost import Cost
from advect.ot.iteration import Iteration, Symmetric, ending
from advect.ot.kernel import Kernel
from advect.ot.solution import (
    AnyCost,
    Mass,
    Potentials,
    Solution,
    Start,
    Support,
    check_problem,
)
from advect.ot.solver import Solver
from advect.ot.unbalanced import Ended, Penalty, Unbalanced, UnbalancedSelf, ended

_LARGE = 2**26  # bytes of a matrix from which memory is looked after
_LEAST_TOL = 1e-12  # that a solver is sharpened to
_PASSES, _LONG = 60, 600.0  # of a cold solve over the cost, about; seconds that are worth a warning
_WIDE = torch.float64


@dataclass(frozen=True)
class Relative:
    """A regularisation given as a share of the mean cost Σ a_i b_j C_ij.

    Example:
        >>> import torch, advect as ad
        >>> cost = torch.tensor([[0.0, 4.0], [4.0, 0.0]])
        >>> ad.Sinkhorn(epsilon=ad.Relative(0.1)).solve(cost).epsilon    # a tenth of the mean cost 2
        0.2
    """

    share: float

    def __post_init__(self) -> None:
        check_positive("share", self.share)


@dataclass(frozen=True)
class Sinkhorn(Solver):
    """Entropic transport: min ⟨P, C⟩ + ε KL(P | a ⊗ b). The default solver.

    Args:
        epsilon: regularisation in units of the cost (a squared length, as the ground cost is
            ½(‖x − x'‖² + …)), or ``Relative(share)`` of the mean cost.
        tol: stop when the L1 error of the marginals is below this. By default 1e-8 in float64 and
            1e-5 in float32, or what rounding allows at this epsilon, up to 1e-3.
        max_iter: iterations before it stops with a ``ConvergenceWarning``.
        memory_limit: bytes (or "2GiB") that a solve may use besides a cost matrix; by default half of
            the free memory. A kernel that does not fit is computed in blocks, with the same result.
        reach: distance in units of the features beyond which it is cheaper to leave mass behind; None
            transports all mass. The marginals are then penalised by reach² KL (as in geomloss): a pair
            of points d apart keeps about exp(−d²/(4 reach²)) of its mass. For outliers and for class
            proportions that differ; see docs/imbalanced.md.

    Example:
        >>> import torch, advect as ad
        >>> x = torch.linspace(0, 1, 50, dtype=torch.float64)[:, None]
        >>> cost = (x - x.T - 1).square() / 2                # every point moves by 1
        >>> solution = ad.Sinkhorn(epsilon=0.001).solve(cost)
        >>> solution.converged, round(solution.value, 2)
        (True, 0.5)
        >>> near = ad.Sinkhorn(epsilon=0.001, reach=0.5).solve(cost)
        >>> near.converged, round(near.mass, 2), near.value < 0.5
        (True, 0.54, True)
    """

    refines = True
    epsilon: float | Relative = Relative(defaults.LOOK.epsilon)
    tol: float | None = None
    max_iter: int = 10_000
    memory_limit: MemoryLimit = field(default=None, repr=False)  # changes the work, not the result
    reach: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.epsilon, Relative):
            check_positive("epsilon", self.epsilon)
        if self.memory_limit is not None:
            as_bytes(self.memory_limit)
        if self.tol is not None:
            check_positive("tol", self.tol)
        check_count("max_iter", self.max_iter)
        if self.reach is not None:
            check_positive("reach", self.reach)

    @property
    def regularisation(self) -> float:
        return float(cast(float, self.epsilon))

    def with_epsilon(self, epsilon: float) -> Self:
        return replace(self, epsilon=epsilon)

    def prepare(self, cost: AnyCost, a: Tensor, b: Tensor) -> Self:
        return self.with_epsilon(epsilon_for(self.epsilon, as_cost(cost), a, b))

    @property
    def leaves_mass(self) -> bool:
        return self.reach is not None

    @property
    def tolerance(self) -> float | None:
        return self.tol

    def with_tolerance(self, tol: float) -> Self:
        return replace(self, tol=tol)

    def sharpened(self, share: float, largest: float) -> Self | None:
        tol = 1e-5 if self.tol is None else self.tol
        rounding = 16 * torch.finfo(_WIDE).eps * largest / self.regularisation
        least = max(_LEAST_TOL, rounding)
        return None if tol <= least else replace(self, tol=max(least, tol * share))

    def precise(self, shape: tuple[int, int], largest: float, dtype: torch.dtype) -> bool:
        return Scale(shape, 0.0, largest, self.regularisation).enough(dtype)

    def refined(self, cost: AnyCost, a: Tensor, b: Tensor) -> Self:
        """The solver for this problem with the smallest tolerance of float64, unless ``tol`` is set."""
        cost = as_cost(cost)
        prepared = self.prepare(cost, a, b)
        least = Scale(cost.shape, *cost.extremes(), prepared.regularisation).least_tolerance(_WIDE)
        return replace(prepared, tol=least if self.tol is None else self.tol)

    def solve(self, cost: AnyCost, a: Mass = None, b: Mass = None, init: Start = None) -> Solution:
        cost, support, epsilon = self._posed(cost, a, b)
        start = None if init is None else support.cut(*_check_init(init, cost))
        kernel, scale = self._opened(support.within(cost), epsilon)
        if start is None and cost.reports:
            _warn_if_long(cost, kernel)
        tol = scale.tolerance(cost.dtype, kernel.dtype) if self.tol is None else self.tol
        masses = support.cut(support.a, support.b)
        if self.reach is not None:
            loop = Unbalanced(kernel, *masses, epsilon, Penalty(self.reach**2))
            met, n_iter = loop.solve(start, tol, self.max_iter), loop.n_iter
            ends, dtype = ((loop.u, loop.v), loop.potentials()), loop.kernel.dtype
            found, solution = self._with_reach(cost, support, loop.kernel, scale, *ends)
            met = met and found.error <= 2 * tol + scale.sums_rounding(dtype)
            objection = scale.objection(dtype, solution.value_error, tol)
            converged = _judged(cost, met, found.error, tol, n_iter, objection)
            return replace(solution, converged=converged, n_iter=n_iter)
        state = Iteration(kernel, *masses, epsilon)
        met = state.solve(start, tol, self.max_iter)
        f, g = state.potentials()
        dtype = state.kernel.dtype  # it may have gone on in float64
        value, *extremes = ending(*masses, f, g)
        error = scale.value_error(dtype, state.error, extremes)
        marginal = _stated(state.error, scale, dtype, cost.dtype)
        objection = scale.objection(dtype, error, tol)
        converged = _judged(cost, met, marginal, tol, state.n_iter, objection)
        plan = state.kernel.plan(state.a * state.u, state.b * state.v)
        f, g = support.extended(cost, f, g, epsilon)
        coupling = support.plan(plan)
        return Solution(value, (f, g), epsilon, converged, state.n_iter, marginal, coupling, error)

    def solve_self(self, cost: AnyCost, a: Mass = None, init: Tensor | None = None) -> Solution:
        """Transport of ``a`` to itself: one potential, solved to rounding."""
        shape = tuple(cost.shape)
        if shape[0] != shape[-1]:
            remedy = "Use solve for two different measures."
            raise InputError("a self-problem needs a square cost", shape, remedy)
        cost, support, epsilon = self._posed(cost, a, a)
        kernel, scale = self._opened(support.within(cost), epsilon)
        dtype = kernel.dtype
        mass = support.cut(support.a, support.a)[0]
        start = None if init is None else support.cut(init, init)[0]
        state = (
            Symmetric(kernel, mass, epsilon, start)
            if self.reach is None
            else UnbalancedSelf(kernel, mass, epsilon, start, Penalty(self.reach**2))
        )
        # Halving is cheap, and a tight answer lets d(A, A) vanish: aim at rounding, whatever the
        # tolerance is.
        f, n_iter, residual = state.run(16 * torch.finfo(dtype).eps, self.max_iter)
        least = scale.least_tolerance(dtype)
        tol = scale.tolerance(cost.dtype, dtype) if self.tol is None else max(self.tol, least)
        # Its value is for a divergence, whose costs may be larger than those within one measure:
        # that is judged there.
        objection = scale.objection(dtype, 0.0, tol)
        if self.reach is not None:
            ends = (state.u, state.u), (f, f)
            found, solution = self._with_reach(cost, support, kernel, scale, *ends)
            converged = _judged(cost, residual <= tol, found.error, tol, n_iter, objection)
            f = solution.potentials[0]
            return replace(solution, potentials=(f, f), converged=converged, n_iter=n_iter)
        value, *extremes = ending(mass, mass, f, f)
        error = scale.value_error(dtype, residual, extremes, matched=False)
        marginal = 2 * _stated(residual, scale, dtype, cost.dtype)
        converged = _judged(cost, residual <= tol, marginal, tol, n_iter, objection)
        plan = kernel.plan(state.a * state.u, state.a * state.u)
        f = support.extended(cost, f, f, epsilon)[0]
        coupling = support.plan(plan)
        return Solution(value, (f, f), epsilon, converged, n_iter, marginal, coupling, error)

    def certify(
        self, cost: AnyCost, a: Tensor, b: Tensor, potentials: Potentials, slack: float = 0.0
    ) -> Solution | None:
        """These potentials as a solution if rounding of the cost explains the marginal error, up to ``slack``.

        Checked in float64 whatever ``tol`` is: at a large epsilon most potentials nearly meet the marginals.
        """
        cost, support, epsilon = self._posed(cost, a, b)
        inner = support.within(cost)  # points without mass are not to say what rounding allows
        scale, kernel = Scale(inner.shape, *inner.extremes(), epsilon), inner.kernel(_WIDE, room=0)
        scale.check_epsilon()
        f, g = support.cut(*potentials)
        rounding = 16 * torch.finfo(cost.dtype).eps * scale.largest / epsilon
        allowed = rounding + 8 * scale.sums_rounding(_WIDE) + slack
        kernel.fill(f, g, epsilon)
        masses = support.cut(support.a, support.b)
        if self.reach is not None:
            ones = torch.ones_like(f), torch.ones_like(g)
            found, solution = self._with_reach(cost, support, kernel, scale, ones, (f, g))
            converged = scale.objection(_WIDE, solution.value_error, CAP) is None
            near = found.error <= 2 * min(allowed, CAP)
            return replace(solution, potentials=potentials, converged=converged) if near else None
        residual = kernel.marginal_error(*masses, min(allowed, CAP))
        if residual is None:
            return None
        value, *extremes = ending(*masses, f, g)
        error = scale.value_error(_WIDE, residual, extremes, matched=False)
        marginal = _stated(residual, scale, _WIDE, cost.dtype)
        converged = scale.objection(_WIDE, error, CAP) is None
        coupling = support.plan(kernel.plan(*masses))
        return Solution(value, potentials, epsilon, converged, 0, marginal, coupling, error)

    def _with_reach(
        self,
        cost: Cost,
        support: Support,
        kernel: Kernel,
        scale: Scale,
        scalings: Potentials,
        potentials: Potentials,
    ) -> tuple[Ended, Solution]:
        """The solution of an iteration with a reach; the caller decides whether it converged."""
        penalty, masses = Penalty((self.reach or math.inf) ** 2), support.cut(support.a, support.b)
        found = ended(kernel, masses, scalings, potentials, scale.epsilon, penalty)
        error = scale.gap_error(kernel.dtype, found.gap, found.off, penalty.rho, found.f, found.g)
        marginal = _stated(found.error, scale, kernel.dtype, cost.dtype)
        plan = support.plan(kernel.plan(found.left, found.right))
        damping = penalty.damping(scale.epsilon)
        extended = support.extended(cost, found.f, found.g, scale.epsilon, damping)
        return found, Solution(
            found.value,
            extended,
            scale.epsilon,
            converged=False,
            n_iter=0,
            marginal_error=marginal,
            coupling=plan,
            value_error=error,
            reach=self.reach,
            mass=found.mass,
        )

    def _posed(self, cost: AnyCost, a: Mass, b: Mass) -> tuple[Cost, Support, float]:
        """The checked problem: cost, points with mass, epsilon as a number."""
        cost, a, b = check_problem(cost, a, b)
        epsilon = epsilon_for(self.epsilon, cost, a, b)
        if self.memory_limit is not None or cost.bytes() >= _LARGE:
            cost = cost.within(as_bytes(self.memory_limit, cost.device))
        return cost, Support(a, b), epsilon

    def _opened(self, cost: Cost, epsilon: float) -> tuple[Kernel, Scale]:
        """The kernel to iterate with, in float64 where the dtype of the cost is too coarse, and the scale."""
        kernel = cost.kernel(_WIDE if is_small(cost.shape) else None)
        kernel.most()  # costs that are kept are computed here, and their extremes noted
        scale = Scale(cost.shape, *cost.extremes(), epsilon)
        scale.check_epsilon()
        narrow = scale.arithmetic(cost.dtype, self.tol) == kernel.dtype
        return kernel if narrow else kernel.widened(), scale


def _stated(residual: float, scale: Scale, dtype: torch.dtype, plan: torch.dtype) -> float:
    """The marginal error of the returned plan, including rounding."""
    return residual + scale.sums_rounding(dtype) + torch.finfo(plan).eps


def _warn_if_long(cost: Cost, kernel: Kernel) -> None:
    """Warn if each pass computes the costs again and a solve would take very long."""
    if cost.bytes() < _LARGE:
        return
    seconds = kernel.seconds()
    if _PASSES * seconds > _LONG:
        n, m = kernel.shape
        warnings.warn(
            f"a pass over the {n} × {m} costs takes about {seconds:.0f} s, and a solve about "
            f"{_PASSES} of them: {_PASSES * seconds / 60:.0f} minutes. A memory_limit above "
            f"{readable(1.1 * cost.bytes())} keeps them in memory; fewer dimensions (Sketch) or a "
            "near-linear route (MiniBatch, SlicedOTDD) take less.",
            ScaleWarning,
            stacklevel=4,
        )


def _check_init(init: Potentials, cost: Cost) -> Potentials:
    f, g = (
        torch.as_tensor(part).detach().to(device=cost.device, dtype=torch.float64) for part in init
    )
    if f.shape != cost.shape[:1] or g.shape != cost.shape[1:]:
        raise InputError(
            f"init must be potentials for a {cost.shape[0]} × {cost.shape[1]} problem",
            f"lengths {f.numel()} and {g.numel()}",
            "Pass the potentials of a problem of the same size, or None.",
        )
    return f, g


def _judged(
    cost: Cost, met: bool, marginal: float, tol: float, n_iter: int, objection: str | None
) -> bool:
    """Whether a solve has converged; warns if it has not."""
    if not met:
        objection = (
            f"Sinkhorn stopped after {n_iter} iterations with marginal error {marginal:.2e} where "
            f"{tol:.2e} was asked for. Raise epsilon or max_iter, loosen tol, or use ExactOT."
        )
    if objection is not None and cost.reports:
        warnings.warn(objection, ConvergenceWarning, stacklevel=4)
    return objection is None


def epsilon_for(epsilon: float | Relative, cost: Cost, a: Tensor, b: Tensor) -> float:
    """Epsilon as a number for this problem."""
    if not isinstance(epsilon, Relative):
        return epsilon
    mean = cost.mean(a, b)
    if not math.isfinite(mean):
        remedy = "Check the features and the cost function."
        raise InputError("the cost must be finite", f"a mean of {mean}", remedy)
    return epsilon.share * mean if mean > 0 else 1e-20  # all costs zero: so are the values
