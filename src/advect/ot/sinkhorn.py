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

from advect._util import (
    ConvergenceWarning,
    InputError,
    MemoryLimit,
    as_bytes,
    check_count,
    check_positive,
    defaults,
)
from advect.ot.cost import Cost, DenseCost, as_cost
from advect.ot.divergence import Support
from advect.ot.dual import CAP, Balanced, Certificate, Penalised, Scale
from advect.ot.iteration import Iteration
from advect.ot.kernel import SMALL
from advect.ot.solver import AnyCost, Mass, Potentials, Solution, Solver, Start, check_problem

_LARGE = 2**26  # bytes of a matrix above which memory is limited
_LEAST_TOL = 1e-12  # smallest tolerance of ``finer_tolerance``
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
        memory_limit: bytes (or "2GiB") that a solve may use in addition to a cost matrix; by default half of
            the free memory. A kernel that does not fit is computed in blocks, with the same result.
        reach: distance in units of the features beyond which it is cheaper to leave mass behind; None
            transports all mass. The marginals are then penalised by reach² KL (as in geomloss): a pair
            of points d apart keeps about exp(−d²/(4 reach²)) of its mass. For outliers and for class
            proportions that differ; see docs/class-matching.md.

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

    def prepare(self, cost: AnyCost, a: Tensor, b: Tensor) -> Self:
        if not isinstance(self.epsilon, Relative):
            return self
        mean = (cost if isinstance(cost, Cost) else as_cost(cost)).mean(a, b)
        if not math.isfinite(mean):
            remedy = "Check the features and the cost function."
            raise InputError("the cost must be finite", f"a mean of {mean}", remedy)
        # all costs zero: so are the values
        return replace(self, epsilon=self.epsilon.share * mean if mean > 0 else 1e-20)

    def continued(self, epsilon: float | None, tol: float | None, step: int) -> Self:
        changes = {"epsilon": epsilon, "tol": tol}
        return replace(
            self, **{name: value for name, value in changes.items() if value is not None}
        )

    def finer_tolerance(self, share: float, epsilon: float, largest: float) -> float | None:
        tol = 1e-5 if self.tol is None else self.tol
        least = max(_LEAST_TOL, 16 * torch.finfo(_WIDE).eps * largest / epsilon)
        return None if tol <= least else max(least, tol * share)

    def refined(self, cost: AnyCost, a: Tensor, b: Tensor) -> Self:
        cost = as_cost(cost)
        prepared = self.prepare(cost, a, b)
        scale = Scale(cost.shape, *cost.extremes(), float(cast(float, prepared.epsilon)))
        return replace(prepared, tol=scale.tolerance(_WIDE) if self.tol is None else self.tol)

    def solve(self, cost: AnyCost, a: Mass = None, b: Mass = None, init: Start = None) -> Solution:
        cost, a, b, epsilon, support = self._posed(cost, a, b)
        start = None if init is None else _check_init(init, cost)
        if support is not None:
            inner = replace(self, epsilon=epsilon)
            start = None if start is None else support.cut(*start)
            return support.extended(inner.solve(*support.problem(), init=start))
        # Solve in the dtype of the data, then certify: value, error and convergence come from the
        # certificate alone.
        loop, scale = self._opened(cost, a, b, epsilon)
        tol = scale.tolerance(loop.kernel.dtype, cost.dtype) if self.tol is None else self.tol
        met = loop.solve(start, tol, self.max_iter)
        kernel, scalings = loop.kernel, (loop.u, loop.v)  # it may have continued in float64
        certificate = loop.marginals.certificate(
            kernel, scalings, loop.potentials(), scale, loop.error
        )
        # With a reach, the marginal error is that of potentials that were shifted
        met = met and certificate.marginal_error <= 2 * tol + scale.sums_rounding(kernel.dtype)
        failure = scale.failure_reason(kernel.dtype, certificate.value_error, tol)
        return self._solution(
            cost, loop, scale, certificate, failure if met else _stopped(loop, tol)
        )

    def solve_self(self, cost: AnyCost, a: Mass = None, init: Tensor | None = None) -> Solution:
        """Transport of ``a`` to itself: one potential, solved to rounding."""
        shape = tuple(cost.shape)
        if shape[0] != shape[-1]:
            remedy = "Use solve for two different measures."
            raise InputError("a self-problem needs a square cost", shape, remedy)
        cost, a, _, epsilon, support = self._posed(cost, a, a)
        if support is not None:
            inner, mass, _ = support.problem()
            start = None if init is None else init[support.rows]
            found = replace(self, epsilon=epsilon).solve_self(inner, mass, init=start)
            found = support.extended(found)
            return replace(found, potentials=(found.potentials[0], found.potentials[0]))
        loop, scale = self._opened(cost, a, a, epsilon)
        kernel = loop.kernel
        # Halving is cheap, and a precise solution makes d(A, A) and velocities near the target vanish:
        # iterate to rounding, whatever the tolerance is.
        loop.solve_self(init, 16 * torch.finfo(kernel.dtype).eps, self.max_iter)
        tol = scale.tolerance(kernel.dtype, cost.dtype)
        if self.tol is not None:
            tol = max(self.tol, scale.tolerance(kernel.dtype))
        scalings, f = (loop.u, loop.u), loop.potentials()[0]
        certificate = loop.marginals.certificate(
            kernel, scalings, (f, f), scale, loop.error, matched=False
        )
        # Its value is part of a divergence, whose costs may be larger than those within one measure, so its
        # error is judged there.
        failure = scale.failure_reason(kernel.dtype, 0.0, tol)
        failure = failure if loop.error <= tol else _stopped(loop, tol)
        sides = 2 if self.reach is None else 1  # the loop has measured one of two equal marginals
        return self._solution(cost, loop, scale, certificate, failure, sides)

    def certify(
        self, cost: AnyCost, a: Tensor, b: Tensor, potentials: Potentials, slack: float = 0.0
    ) -> Solution | None:
        """These potentials as a solution if rounding of the cost explains the marginal error, up to ``slack``.

        Checked in float64 whatever ``tol`` is: at a large epsilon most potentials nearly meet the marginals.
        """
        cost, a, b, epsilon, support = self._posed(cost, a, b)
        if support is not None:  # points without mass must not affect the bound of rounding
            inner, cut = replace(self, epsilon=epsilon), support.cut(*potentials)
            found = inner.certify(*support.problem(), cut, slack)
            found = None if found is None else support.extended(found)
            return None if found is None else replace(found, potentials=potentials)
        loop, scale = self._opened(cost, a, b, epsilon, room=0)
        loop.start(*potentials)
        rounding = 16 * torch.finfo(cost.dtype).eps * scale.largest / epsilon
        allowed = min(rounding + 8 * scale.sums_rounding(_WIDE) + slack, CAP)
        residual = loop.marginals.unit_error(loop.kernel, allowed)
        if residual is None:
            return None
        ends = (loop.u, loop.v), potentials
        certificate = loop.marginals.certificate(loop.kernel, *ends, scale, residual, matched=False)
        if certificate.marginal_error > 2 * allowed:
            return None
        failure = scale.failure_reason(_WIDE, certificate.value_error, CAP)
        found = self._solution(cost, loop, scale, certificate, None)
        return replace(found, potentials=potentials, converged=failure is None)

    def _posed(
        self, cost: AnyCost, a: Mass, b: Mass
    ) -> tuple[Cost, Tensor, Tensor, float, Support | None]:
        """The checked problem: cost, weights, epsilon as a number, and the points with mass where some
        have none.
        """
        cost, a, b = check_problem(cost, a, b)
        epsilon = float(cast(float, self.prepare(cost, a, b).epsilon))
        size = cost.shape[0] * cost.shape[1] * cost.dtype.itemsize
        if cost.matrix is not None and (self.memory_limit is not None or size >= _LARGE):
            limit = as_bytes(self.memory_limit, cost.device)
            cost = cost if size <= limit else DenseCost(cost.matrix, limit)
        whole = bool((a.min() > 0) & (b.min() > 0))
        return cost, a, b, epsilon, None if whole else Support(cost, a, b)

    def _opened(
        self, cost: Cost, a: Tensor, b: Tensor, epsilon: float, room: int | None = None
    ) -> tuple[Iteration, Scale]:
        """The loop, with a kernel in float64 where the dtype of the cost is too coarse, and the scale."""
        wide = room == 0 or cost.shape[0] * cost.shape[1] <= SMALL
        kernel = cost.kernel(_WIDE if wide else None, room)
        scale = Scale(cost.shape, *kernel.extremes, epsilon)
        if kernel.dtype != _WIDE and not scale.suffices(cost.dtype, self.tol):
            kernel.release()
            kernel = cost.kernel(_WIDE)
        marginals = Balanced(a, b) if self.reach is None else Penalised(a, b, self.reach**2)
        return Iteration(cost, kernel, marginals, epsilon), scale

    def _solution(
        self,
        cost: Cost,
        loop: Iteration,
        scale: Scale,
        certificate: Certificate,
        failure: str | None,
        sides: int = 1,
    ) -> Solution:
        """The result of a loop as a solution, with a warning if it failed."""
        if failure is not None and cost.reports:
            warnings.warn(failure, ConvergenceWarning, stacklevel=3)
        rounding = scale.sums_rounding(loop.kernel.dtype) + torch.finfo(cost.dtype).eps
        return Solution(
            certificate.value,
            certificate.potentials,
            scale.epsilon,
            converged=failure is None,
            n_iter=loop.n_iter,
            marginal_error=sides * (certificate.marginal_error + rounding),
            coupling=loop.kernel.plan(*certificate.factors),
            value_error=certificate.value_error,
            reach=self.reach,
            mass=certificate.mass,
        )


def _stopped(loop: Iteration, tol: float) -> str:
    return (
        f"Sinkhorn stopped after {loop.n_iter} iterations with marginal error {loop.error:.2e} "
        f"instead of {tol:.2e}. Raise epsilon or max_iter, loosen tol, or use ExactOT."
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
