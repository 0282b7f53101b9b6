"""Entropic optimal transport in the dual (Cuturi 2013; paper, section 2.2).

    OT_ε(a, b) = min_P ⟨P, C⟩ + ε KL(P | a ⊗ b) = max_{f, g} ⟨a, f⟩ + ⟨b, g⟩      P_ij = a_i b_j exp((f_i + g_j − C_ij)/ε)

The solver as an object: its options, its tolerance, points without mass, what it hands back. The
steps are those of ``advect.ot.iteration``; what they ask of the cost is in ``advect.ot.kernel``,
for a matrix, for rows made on demand and for rows on several ranks alike."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from advect._util import defaults
from advect._util.checks import check_count, check_positive
from advect._util.facts import fetched, remembered, waits_are_free, with_fact
from advect._util.memory import MemoryLimit, ScaleWarning, as_bytes, readable
from advect.errors import ConvergenceWarning, InputError
from advect.ot.blocks import as_cost
from advect.ot.certificate import CAP, Scale, is_small
from advect.ot.cost import Cost
from advect.ot.epsilon import Entropic, Relative, check_epsilon, epsilon_for
from advect.ot.iteration import Iteration, Symmetric, ending
from advect.ot.kernel import Kernel
from advect.ot.solution import AnyCost, Mass, Potentials, Solution, Start, check_problem
from advect.ot.support import Support
from advect.ot.unbalanced import Ended, Penalty, Unbalanced, UnbalancedSelf, ended
from advect.ot.unwatched import Unwatched, UnwatchedSelf

_LARGE = 2**26  # bytes of a matrix from which memory is looked after
_LEAST_TOL = 1e-12  # that a solver is sharpened to
_PASSES, _LONG = 60, 600.0  # of a cold solve over the cost, about; seconds that are worth a warning
_WIDE = torch.float64
_ITERATIONS = "iterations"  # a fact that potentials carry: how many a solve took to find them


@dataclass(frozen=True)
class Sinkhorn(Entropic):
    """Entropic transport: epsilon > 0 blurs the plan and makes the problem smooth and fast.

    Args:
        epsilon: regularisation in units of the cost (the ground cost is ½(‖x − x'‖² + …), so
            epsilon is a squared length); or ``Relative(share)`` of the mean cost.
        tol: stop when the L1 error of the marginals is below this. By default 1e-8 in float64 and
            1e-5 in float32, or what rounding allows at this epsilon if that is more, up to 1e-3.
        max_iter: iterations allowed before it stops with a ``ConvergenceWarning``.
        memory_limit: bytes (or "2GiB") that a solve may add to a cost matrix it is given; half of
            what is free by default. Where the kernel does not fit, it is computed in blocks at each
            use: the same result for more work.
        reach: how far mass is carried before it is cheaper to leave it behind and make it anew, in
            units of the features; None for all mass, whatever the way. Marginals may be off then,
            for reach² KL(P1 | a) + reach² KL(Pᵀ1 | b) (with the cost ½‖x − x'‖², as geomloss
            counts): a pair of points d apart keeps about exp(−d²/(4 reach²)) of its mass. For outliers,
            and for classes whose shares differ: docs/imbalanced.md.

    Example:
        >>> import torch, advect as ad
        >>> x = torch.linspace(0, 1, 50, dtype=torch.float64)[:, None]
        >>> cost = (x - x.T - 1).square() / 2                # every point moves by 1
        >>> solution = ad.Sinkhorn(epsilon=0.001).solve(cost)
        >>> solution.converged, round(solution.value, 2)
        (True, 0.5)
        >>> near = ad.Sinkhorn(epsilon=0.001, reach=0.5).solve(cost)    # some of it is left behind
        >>> near.converged, round(near.mass, 2), near.value < 0.5
        (True, 0.54, True)
    """

    epsilon: float | Relative = Relative(defaults.LOOK.epsilon)
    tol: float | None = None
    max_iter: int = 10_000
    memory_limit: MemoryLimit = field(default=None, repr=False)  # changes the work, not the result
    reach: float | None = field(default=None, metadata={"later": True})  # advect.data.digest

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if self.memory_limit is not None:
            as_bytes(self.memory_limit)
        if self.tol is not None:
            check_positive("tol", self.tol)
        check_count("max_iter", self.max_iter)
        if self.reach is not None:
            check_positive("reach", self.reach)

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

    @property
    def refines(self) -> bool:
        return True

    def refined(self, cost: AnyCost, a: Tensor, b: Tensor) -> Self:
        """The solver for this problem with the least tolerance that float64 can reach, unless one
        was given.
        """
        cost = as_cost(cost)
        prepared = self.prepare(cost, a, b)
        least = Scale.of(cost, prepared.regularisation).least_tolerance(_WIDE)
        return replace(prepared, tol=least if self.tol is None else self.tol)

    def solve(self, cost: AnyCost, a: Mass = None, b: Mass = None, init: Start = None) -> Solution:
        cost, support, epsilon = self._posed(cost, a, b)
        start = None if init is None else support.cut(*_check_init(init, cost))
        kernel, scale = self._opened(support.within(cost), epsilon)
        if start is None and cost.reports:
            _warn_if_long(cost, kernel)
        tol = scale.tolerance(cost.dtype, kernel.dtype) if self.tol is None else self.tol
        if (penalty := self._penalty) is not None:
            loop = Unbalanced(kernel, *support.cut(support.a, support.b), epsilon, penalty)
            met = loop.solve(start, tol, self.max_iter)
            return self._left_open(cost, support, loop, scale, tol, met)
        masses, expected = support.cut(support.a, support.b), _expected(init and init[0])
        if waits_are_free(cost.device):
            state = Iteration(kernel, *masses, epsilon)
        else:
            state = Unwatched(kernel, *masses, epsilon, expected=expected)
        met = state.solve(start, tol, self.max_iter)
        f, g = state.potentials()
        dtype = state.kernel.dtype  # it may have gone on in float64
        value, *extremes = state.ending or fetched(*ending(*masses, f, g))
        error = scale.value_error(dtype, state.error, extremes)
        marginal = _stated(state.error, scale, dtype, cost.dtype)
        objection = scale.objection(dtype, error, tol)
        converged = _judged(cost, met, marginal, tol, state.n_iter, objection)
        plan = state.kernel.plan(state.a * state.u, state.b * state.v)
        f, g = support.extended(cost, f, g, epsilon)
        potentials, coupling = (with_fact(f, _ITERATIONS, state.n_iter), g), support.plan(plan)
        return Solution(
            value, potentials, epsilon, converged, state.n_iter, marginal, coupling, error
        )

    def solve_self(self, cost: AnyCost, a: Mass = None, init: Tensor | None = None) -> Solution:
        """Transport ``a`` to itself under a symmetric cost with a zero diagonal: one potential,
        solved to rounding.
        """
        shape = tuple(cost.shape)
        if shape[0] != shape[-1]:
            remedy = "Use solve for two different measures."
            raise InputError("a self-problem needs a square cost", shape, remedy)
        cost, support, epsilon = self._posed(cost, a, a)
        kernel, scale = self._opened(support.within(cost), epsilon)
        dtype = kernel.dtype
        mass = support.cut(support.a, support.a)[0]
        start = None if init is None else support.cut(init, init)[0]
        if (penalty := self._penalty) is not None:
            loop = UnbalancedSelf(kernel, mass, epsilon, start, penalty)
            return self._left_open_self(cost, support, loop, scale)
        if waits_are_free(cost.device):
            state = Symmetric(kernel, mass, epsilon, start)
        else:
            state = UnwatchedSelf(kernel, mass, epsilon, start, expected=_expected(init))
        # Halving is cheap, and a tight answer lets d(A, A) vanish: aim at rounding, whatever the
        # tolerance is.
        f, n_iter, residual = state.run(16 * torch.finfo(dtype).eps, self.max_iter)
        least = scale.least_tolerance(dtype)
        tol = scale.tolerance(cost.dtype, dtype) if self.tol is None else max(self.tol, least)
        value, *extremes = state.ending or fetched(*ending(mass, mass, f, f))
        error = scale.value_error(dtype, residual, extremes, matched=False)
        marginal = 2 * _stated(residual, scale, dtype, cost.dtype)
        # Its value is for a divergence, whose costs may be larger than those within one measure:
        # that is judged there.
        objection = scale.objection(dtype, 0.0, tol)
        converged = _judged(cost, residual <= tol, marginal, tol, n_iter, objection)
        plan = kernel.plan(state.a * state.u, state.a * state.u)
        f = with_fact(support.extended(cost, f, f, epsilon)[0], _ITERATIONS, n_iter)
        coupling = support.plan(plan)
        return Solution(value, (f, f), epsilon, converged, n_iter, marginal, coupling, error)

    def certify(
        self, cost: AnyCost, a: Tensor, b: Tensor, potentials: Potentials, slack: float = 0.0
    ) -> Solution | None:
        """These potentials as a solution if rounding of the cost explains its marginal error, but
        for ``slack``; else None.

        That is asked for in float64 whatever ``tol`` is: at a large epsilon any potentials have
        nearly the right marginals."""
        cost, support, epsilon = self._posed(cost, a, b)
        inner = support.within(cost)  # points without mass are not to say what rounding allows
        scale, kernel = Scale.of(inner, epsilon), inner.kernel(_WIDE, room=0)
        scale.check_epsilon()
        f, g = support.cut(*potentials)
        rounding = 16 * torch.finfo(cost.dtype).eps * scale.largest / epsilon
        allowed = rounding + 8 * scale.sums_rounding(_WIDE) + slack
        kernel.fill(f, g, epsilon)
        masses = support.cut(support.a, support.b)
        if (penalty := self._penalty) is not None:
            ones = torch.ones_like(f), torch.ones_like(g)
            found = ended(kernel, masses, ones, (f, g), epsilon, penalty)
            if not found.error <= 2 * min(allowed, CAP):
                return None
            error = scale.gap_error(_WIDE, found.gap, found.off, penalty.rho, f, g)
            converged = scale.objection(_WIDE, error, CAP) is None
            made = self._made(cost, support, kernel, found, epsilon, converged, 0, error, scale)
            return replace(made, potentials=potentials)
        residual = kernel.marginal_error(*masses, min(allowed, CAP))
        if residual is None:
            return None
        value, *extremes = fetched(*ending(*masses, f, g))
        error = scale.value_error(_WIDE, residual, extremes, matched=False)
        marginal = _stated(residual, scale, _WIDE, cost.dtype)
        converged = scale.objection(_WIDE, error, CAP) is None
        coupling = support.plan(kernel.plan(*masses))
        return Solution(value, potentials, epsilon, converged, 0, marginal, coupling, error)

    @property
    def _penalty(self) -> Penalty | None:
        return None if self.reach is None else Penalty(self.reach**2)

    def _left_open(
        self,
        cost: Cost,
        support: Support,
        loop: Unbalanced,
        scale: Scale,
        tol: float,
        met: bool,
    ) -> Solution:
        """What an iteration with a reach has come to."""
        kernel, penalty, epsilon = loop.kernel, loop.penalty, loop.epsilon
        masses, scalings = (loop.a64, loop.b64), (loop.u, loop.v)
        found = ended(kernel, masses, scalings, loop.potentials(), epsilon, penalty)
        error = scale.gap_error(kernel.dtype, found.gap, found.off, penalty.rho, found.f, found.g)
        met = met and found.error <= 2 * tol + scale.sums_rounding(kernel.dtype)
        objection = scale.objection(kernel.dtype, error, tol)
        converged = _judged(cost, met, found.error, tol, loop.n_iter, objection)
        n_iter = loop.n_iter
        return self._made(cost, support, kernel, found, epsilon, converged, n_iter, error, scale)

    def _left_open_self(
        self, cost: Cost, support: Support, loop: UnbalancedSelf, scale: Scale
    ) -> Solution:
        """As in ``solve_self``, to rounding."""
        kernel, penalty, epsilon = loop.kernel, loop.penalty, loop.epsilon
        f, n_iter, residual = loop.run(16 * torch.finfo(kernel.dtype).eps, self.max_iter)
        least = scale.least_tolerance(kernel.dtype)
        tol = scale.tolerance(cost.dtype, kernel.dtype) if self.tol is None else self.tol
        masses, scalings = (loop.a64, loop.a64), (loop.u, loop.u)
        found = ended(kernel, masses, scalings, (f, f), epsilon, penalty)
        error = scale.gap_error(kernel.dtype, found.gap, found.off, penalty.rho, found.f, found.g)
        objection = scale.objection(kernel.dtype, 0.0, max(tol, least))
        met = residual <= max(tol, least)
        converged = _judged(cost, met, found.error, max(tol, least), n_iter, objection)
        made = self._made(cost, support, kernel, found, epsilon, converged, n_iter, error, scale)
        return replace(made, potentials=(made.potentials[0], made.potentials[0]))

    def _made(
        self,
        cost: Cost,
        support: Support,
        kernel: Kernel,
        found: Ended,
        epsilon: float,
        converged: bool,
        n_iter: int,
        error: float,
        scale: Scale,
    ) -> Solution:
        """A solution with a reach, of all points."""
        damping = Penalty((self.reach or math.inf) ** 2).damping(epsilon)
        marginal = _stated(found.error, scale, kernel.dtype, cost.dtype)
        plan = support.plan(kernel.plan(found.left, found.right))
        potentials = support.extended(cost, found.f, found.g, epsilon, damping)
        return Solution(
            found.value,
            potentials,
            epsilon,
            converged,
            n_iter,
            marginal,
            plan,
            error,
            self.reach,
            found.mass,
        )

    def _posed(self, cost: AnyCost, a: Mass, b: Mass) -> tuple[Cost, Support, float]:
        """The checked problem: a cost whose kernel is kept only where it fits, points with mass,
        and epsilon as a number.
        """
        cost, a, b = check_problem(cost, a, b)
        epsilon = epsilon_for(self.epsilon, cost, a, b)
        if self.memory_limit is not None or cost.bytes() >= _LARGE:
            cost = cost.within(as_bytes(self.memory_limit, cost.device))
        return cost, Support(a, b), epsilon

    def _opened(self, cost: Cost, epsilon: float) -> tuple[Kernel, Scale]:
        """The kernel to iterate with, in float64 where the dtype of the cost has not digits enough,
        and the scale.
        """
        kernel = cost.kernel(_WIDE if is_small(cost.shape) else None)
        kernel.most()  # costs that are kept are computed here, and their extremes noted
        scale = Scale.of(cost, epsilon)
        scale.check_epsilon()
        narrow = scale.arithmetic(cost.dtype, self.tol) == kernel.dtype
        return kernel if narrow else kernel.widened(), scale


def _expected(start: Tensor | None) -> int:
    """How many iterations the solve has taken that these potentials are of; 0 if that is unknown."""
    return 0 if start is None else remembered(start, _ITERATIONS, lambda: 0)


def _stated(residual: float, scale: Scale, dtype: torch.dtype, plan: torch.dtype) -> float:
    """The marginal error of the plan as it is handed out: with the rounding of its sums, and of its
    own dtype.
    """
    return residual + scale.sums_rounding(dtype) + torch.finfo(plan).eps


def _warn_if_long(cost: Cost, kernel: Kernel) -> None:
    """Where every pass computes the costs anew, one block tells how long a solve takes."""
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
    """Whether a solve has converged; a warning if it has not."""
    if not met:
        objection = (
            f"Sinkhorn stopped after {n_iter} iterations with marginal error {marginal:.2e} where "
            f"{tol:.2e} was asked for. Raise epsilon or max_iter, loosen tol, or use ExactOT."
        )
    if objection is not None and cost.reports:
        warnings.warn(objection, ConvergenceWarning, stacklevel=4)
    return objection is None
