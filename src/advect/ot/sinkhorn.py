"""Entropic optimal transport in the dual (Cuturi 2013; paper, section 2.2).

    OT_ε(a, b) = min_P ⟨P, C⟩ + ε KL(P | a ⊗ b) = max_{f, g} ⟨a, f⟩ + ⟨b, g⟩      P_ij = a_i b_j exp((f_i + g_j − C_ij)/ε)

The solver as an object: its options, its tolerance, points without mass, what it hands back. The
steps are those of ``advect.ot.iteration``; what they ask of the cost is in ``advect.ot.kernel``,
for a matrix and for a ``BlockedCost`` alike."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from advect._util.checks import check_count, check_positive
from advect._util.memory import MemoryLimit, ScaleWarning, as_bytes, readable
from advect.errors import ConvergenceWarning, InputError
from advect.ot.blocks import BlockedCost, in_blocks
from advect.ot.certificate import CAP, Scale, is_small
from advect.ot.iteration import Iteration, Symmetric
from advect.ot.kernel import BlockedKernel, DenseKernel, ScaledKernel, softmin
from advect.ot.solution import Cost, Potentials, Solution, check_problem
from advect.ot.support import Scaled, Support

_LARGE = 2**26  # bytes of a matrix from which memory is looked after
_LEAST_TOL = 1e-12  # that a solver is sharpened to
_PASSES, _LONG = 60, 600.0  # of a cold solve over the cost, about; seconds that are worth a warning


@dataclass(frozen=True)
class Relative:
    """A regularisation given as a share of the mean cost Σ a_i b_j C_ij, so that it follows the
    scale of the data.

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
class Sinkhorn:
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

    Example:
        >>> import torch, advect as ad
        >>> x = torch.linspace(0, 1, 50, dtype=torch.float64)[:, None]
        >>> cost = (x - x.T - 1).square() / 2                # every point moves by 1
        >>> solution = ad.Sinkhorn(epsilon=0.001).solve(cost)
        >>> solution.converged, round(solution.value, 2)
        (True, 0.5)
    """

    epsilon: float | Relative = Relative(0.01)
    tol: float | None = None
    max_iter: int = 10_000
    memory_limit: MemoryLimit = field(default=None, repr=False)  # changes the work, not the result

    def __post_init__(self) -> None:
        if not isinstance(self.epsilon, Relative):
            check_positive("epsilon", self.epsilon)
        if self.memory_limit is not None:
            as_bytes(self.memory_limit)
        if self.tol is not None:
            check_positive("tol", self.tol)
        check_count("max_iter", self.max_iter)

    @property
    def dtype(self) -> None:
        """Costs may come in the dtype of the data."""
        return None

    def with_epsilon(self, epsilon: float) -> Sinkhorn:
        """The same solver with another regularisation."""
        return replace(self, epsilon=epsilon)

    def sharpened(self, share: float, largest: float) -> Sinkhorn | None:
        """The solver with at most this share of its tolerance, for costs up to ``largest``; None
        where rounding is reached.
        """
        tol = 1e-5 if self.tol is None else self.tol
        least = max(
            _LEAST_TOL, 16 * torch.finfo(torch.float64).eps * largest / _number(self.epsilon)
        )
        return None if tol <= least else replace(self, tol=max(least, tol * share))

    def prepare(self, cost: Cost, a: Tensor, b: Tensor) -> Sinkhorn:
        """The solver with a relative epsilon turned into a number for this problem."""
        if not isinstance(self.epsilon, Relative):
            return self
        mean = mean_cost(cost, a, b)
        if not math.isfinite(mean):
            raise InputError(
                "the cost must be finite",
                f"a mean of {mean}",
                "Check the features and the cost function.",
            )
        return replace(
            self, epsilon=self.epsilon.share * mean if mean > 0 else 1e-20
        )  # all costs zero: so are the values

    def precise(self, shape: tuple[int, int], largest: float, dtype: torch.dtype) -> bool:
        """Whether costs up to ``largest`` in this dtype have digits enough for plan and value at
        this epsilon, a number.
        """
        return Scale(shape, 0.0, largest, _number(self.epsilon)).enough(dtype)

    def refined(self, cost: Cost, a: Tensor, b: Tensor) -> Sinkhorn:
        """The solver for this problem with the least tolerance that float64 can reach, unless one
        was given.
        """
        prepared = self.prepare(cost, a, b)
        least = Scale.of(cost, _number(prepared.epsilon)).least_tolerance(torch.float64)
        return replace(prepared, tol=least if self.tol is None else self.tol)

    def solve(
        self,
        cost: Cost,
        a: Tensor | None = None,
        b: Tensor | None = None,
        init: Potentials | None = None,
    ) -> Solution:
        """Transport ``a`` to ``b``; ``init`` are potentials to start from (they change the work,
        not the result).
        """
        cost, a, b = check_problem(cost, a, b)
        epsilon = _number(self.prepare(cost, a, b).epsilon)
        cost = self._within_limit(cost)
        support = Support(a, b)
        start = None if init is None else support.cut(*_check_init(init, cost))
        inner = support.within(
            cost
        )  # between the points that have mass; potentials are extended to the others
        kernel, scale = self._opened(inner, epsilon)
        state = Iteration(kernel, *support.cut(a, b), epsilon)
        if start is None:
            _warn_if_long(kernel)
        tol = scale.tolerance(cost.dtype, kernel.dtype) if self.tol is None else self.tol
        met = state.solve(start, tol, self.max_iter)
        dtype = state.kernel.dtype  # it may have gone on in float64
        f, g = state.potentials()
        error = scale.value_error(dtype, state.error, f, g)
        marginal = _stated(state.error, scale, dtype, cost.dtype)
        converged = judged(met, marginal, tol, state.n_iter, scale.objection(dtype, error, tol))
        state.kernel.free()
        scaled = Scaled(
            state.kernel, state.f, state.g, epsilon, state.a * state.u, state.b * state.v
        )
        f, g = _extended(cost, support, f, g, epsilon)
        return _solution(cost, support, scaled, (f, g), converged, state.n_iter, marginal, error)

    def solve_self(
        self, cost: Cost, a: Tensor | None = None, init: Tensor | None = None
    ) -> Solution:
        """Transport ``a`` to itself under a symmetric cost with a zero diagonal: one potential,
        solved to rounding.
        """
        cost, a, _ = check_problem(cost, a, None)
        if cost.shape[0] != cost.shape[1]:
            raise InputError(
                "a self-problem needs a square cost",
                tuple(cost.shape),
                "Use solve for two different measures.",
            )
        epsilon = _number(self.prepare(cost, a, a).epsilon)
        cost = self._within_limit(cost)
        support = Support(a, a)
        inner = support.within(cost)
        kernel, scale = self._opened(inner, epsilon)
        dtype = kernel.dtype
        solved = Symmetric(
            kernel, a[support.rows], epsilon, None if init is None else init[support.rows]
        )
        # Halving is cheap, and a tight answer lets d(A, A) vanish: aim at rounding, whatever the
        # tolerance is.
        f, n_iter, residual = solved.run(16 * torch.finfo(dtype).eps, self.max_iter)
        tol = (
            scale.tolerance(cost.dtype, dtype)
            if self.tol is None
            else max(self.tol, scale.least_tolerance(dtype))
        )
        error = scale.value_error(dtype, residual, f, f, matched=False)
        marginal = 2 * _stated(residual, scale, dtype, cost.dtype)
        # Its value is for a divergence, whose costs may be larger than those within one measure:
        # that is judged there.
        converged = judged(residual <= tol, marginal, tol, n_iter, scale.objection(dtype, 0.0, tol))
        scaling = solved.a * solved.u
        kernel.free()
        scaled = Scaled(kernel, solved.f, solved.f, epsilon, scaling, scaling)
        f = _extended(cost, support, f, f, epsilon)[0]
        return _solution(cost, support, scaled, (f, f), converged, n_iter, marginal, error)

    def certify(
        self, cost: Cost, a: Tensor, b: Tensor, potentials: Potentials, slack: float = 0.0
    ) -> Solution | None:
        """These potentials as a solution if rounding of the cost explains its marginal error, but
        for ``slack``; else None.

        That is asked for in float64 whatever ``tol`` is: at a large epsilon any potentials have
        nearly the right marginals."""
        cost, a, b = check_problem(cost, a, b)
        epsilon = _number(self.prepare(cost, a, b).epsilon)
        cost = self._within_limit(cost)
        support = Support(a, b)
        inner = in_blocks(
            support.within(cost)
        )  # points without mass are not to say what rounding allows
        scale, wide = Scale.of(inner, epsilon), torch.float64
        scale.check_epsilon()
        kernel = BlockedKernel(inner, wide, room=0)
        f, g = support.cut(*potentials)
        allowed = (
            16 * torch.finfo(cost.dtype).eps * scale.largest / epsilon
            + 8 * scale.sums_rounding(wide)
            + slack
        )
        kernel.fill(f, g, epsilon)
        residual = _marginal_error(kernel, *support.cut(a, b), min(allowed, CAP))
        if residual is None:
            return None
        error = scale.value_error(wide, residual, f, g, matched=False)
        scaled = Scaled(kernel, f, g, epsilon, *support.cut(a, b))
        marginal = _stated(residual, scale, wide, cost.dtype)
        converged = scale.objection(wide, error, CAP) is None
        return _solution(cost, support, scaled, potentials, converged, 0, marginal, error)

    def _within_limit(self, cost: Cost) -> Cost:
        """A matrix whose kernel would not fit is read in blocks; what comes in blocks knows its
        room already.
        """
        if isinstance(cost, BlockedCost) or (cost.nbytes < _LARGE and self.memory_limit is None):
            return cost
        limit = as_bytes(self.memory_limit, cost.device)
        if cost.nbytes <= limit:
            return cost
        return BlockedCost.of(
            lambda rows: cost[rows], (cost.shape[0], cost.shape[1]), room=limit, like=cost
        )

    def _opened(self, cost: Cost, epsilon: float) -> tuple[DenseKernel | BlockedKernel, Scale]:
        """The kernel to iterate with, in float64 where the dtype of the cost has not digits enough,
        and the scale.
        """
        small, wide = is_small(cost.shape), torch.float64
        if isinstance(cost, BlockedCost):
            kernel = BlockedKernel(cost, wide if small else None)
            kernel.most()  # costs that are kept are computed here, and their extremes noted
        else:
            kernel = DenseKernel(cost.to(wide) if small else cost)
        scale = Scale.of(cost, epsilon)
        scale.check_epsilon()
        return (
            kernel if scale.arithmetic(cost.dtype, self.tol) == kernel.dtype else kernel.widened()
        ), scale


def mean_cost(cost: Cost, a: Tensor, b: Tensor) -> float:
    """Σ a_i b_j C_ij."""
    if isinstance(cost, BlockedCost):
        return cost.mean(a.double(), b.double())
    return float(a.double() @ (cost @ b.to(cost.dtype)).double())


def _extended(cost: Cost, support: Support, f: Tensor, g: Tensor, epsilon: float) -> Potentials:
    """Potentials of points with mass, and of the others T(g) and T(f'), f' being f where there is
    mass.
    """
    if support.whole:
        return f, g
    f, g = support.spread(f, g)
    if isinstance(cost, BlockedCost):
        reach_f, reach_g = BlockedKernel(cost, torch.float64, room=0).softmins(
            g, support.a, support.b, epsilon
        )
    else:
        reach_f = softmin(cost, g, support.b, epsilon, 1)
        reach_g = softmin(cost, torch.where(support.rows, f, reach_f), support.a, epsilon, 0)
    return torch.where(support.rows, f, reach_f), torch.where(support.columns, g, reach_g)


def _marginal_error(kernel: BlockedKernel, a: Tensor, b: Tensor, allowed: float) -> float | None:
    """The marginal error of the plan diag(a) K diag(b) if it is allowed; else None, from the first
    block that says so.
    """
    row_error, sums = 0.0, torch.zeros_like(b)
    for block, part in kernel.pieces():
        row_error += float((a[block] * (part @ b - 1).abs()).sum())
        if not row_error <= allowed:
            return None
        sums += part.T @ a[block]
    error = row_error + float((b * (sums - 1).abs()).sum())
    return error if error <= 2 * allowed else None


def _stated(residual: float, scale: Scale, dtype: torch.dtype, plan: torch.dtype) -> float:
    """The marginal error of the plan as it is handed out: with the rounding of its sums, and of its
    own dtype.
    """
    return residual + scale.sums_rounding(dtype) + torch.finfo(plan).eps


def _warn_if_long(kernel: DenseKernel | BlockedKernel) -> None:
    """Where every pass computes the costs anew, one block tells how long a solve takes."""
    if isinstance(kernel, DenseKernel) or kernel.kept or kernel.source.bytes() < _LARGE:
        return
    seconds = kernel.source.seconds()
    if _PASSES * seconds > _LONG:
        n, m = kernel.shape
        warnings.warn(
            f"a pass over the {n} × {m} costs takes about {seconds:.0f} s, and a solve about "
            f"{_PASSES} of them: "
            f"{_PASSES * seconds / 60:.0f} minutes. A memory_limit above "
            f"{readable(1.1 * kernel.source.bytes())} keeps them "
            "in memory; fewer dimensions (Sketch) or a near-linear route (MiniBatch, SlicedOTDD) "
            "take less.",
            ScaleWarning,
            stacklevel=4,
        )


def _solution(
    cost: Cost,
    support: Support,
    scaled: Scaled,
    potentials: Potentials,
    converged: bool,
    n_iter: int,
    marginal: float,
    error: float,
) -> Solution:
    f, g = potentials
    value = float(support.a @ f + support.b @ g)
    numbers = (value, potentials, scaled.epsilon, converged, n_iter, marginal)
    if isinstance(cost, BlockedCost):
        plan = (
            scaled.products() if support.whole else _products(cost, support, f, g, scaled.epsilon)
        )
        return Solution(*numbers, plan.dense, plan, error)
    return Solution(*numbers, lambda out: scaled.plan(support, cost.dtype, out), None, error)


def _products(
    cost: BlockedCost, support: Support, f: Tensor, g: Tensor, epsilon: float
) -> ScaledKernel:
    """The plan from potentials, in float64: where points have no mass, no kernel of all rows is at
    hand.
    """
    kernel = BlockedKernel(cost, torch.float64, room=0)
    kernel.fill(f, g, epsilon)
    return ScaledKernel(kernel, support.a, support.b)


def _check_init(init: Potentials, cost: Cost) -> Potentials:
    f, g = (
        torch.as_tensor(part).detach().to(device=cost.device, dtype=torch.float64) for part in init
    )
    if f.shape != tuple(cost.shape[:1]) or g.shape != tuple(cost.shape[1:]):
        raise InputError(
            f"init must be potentials for a {cost.shape[0]} × {cost.shape[1]} problem",
            f"lengths {f.numel()} and {g.numel()}",
            "Pass the potentials of a problem of the same size, or None.",
        )
    return f, g


def _number(epsilon: float | Relative) -> float:
    assert not isinstance(epsilon, Relative), "prepare() turns a relative epsilon into a number"
    return float(epsilon)


def judged(
    met: bool, marginal: float, tol: float, n_iter: int, objection: str | None, stacklevel: int = 4
) -> bool:
    """Whether a solve has converged; a warning if it has not."""
    if not met:
        objection = (
            f"Sinkhorn stopped after {n_iter} iterations with marginal error {marginal:.2e} where "
            f"{tol:.2e} was asked for. "
            "Raise epsilon or max_iter, loosen tol, or use ExactOT."
        )
    if objection is not None:
        warnings.warn(objection, ConvergenceWarning, stacklevel=stacklevel)
    return objection is None
