"""Entropic optimal transport in the dual (Cuturi 2013; paper, section 2.2).

    OT_ε(a, b) = min_P ⟨P, C⟩ + ε KL(P | a ⊗ b) = max_{f, g} ⟨a, f⟩ + ⟨b, g⟩      P_ij = a_i b_j exp((f_i + g_j − C_ij)/ε)

The solver as an object: its options, its tolerance, points without mass, what it hands back. The steps are those of
``advect.ot.iteration``; what they ask of the cost is in ``advect.ot.kernel``, for a matrix and for a ``BlockedCost`` alike.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from advect._checks import check_count, check_positive
from advect.errors import ConvergenceWarning, InputError
from advect.memory import MemoryLimit, ScaleWarning, as_bytes, readable
from advect.ot.blocks import BlockedCost
from advect.ot.iteration import Iteration, Symmetric
from advect.ot.kernel import BlockedKernel, DenseKernel, ScaledKernel, fill_kernel, softmin
from advect.ot.solution import Cost, Potentials, Solution, check_problem

_BASE_TOL = {torch.float32: 1e-5, torch.float64: 1e-8}
_SMALL = 250_000  # entries up to which float32 problems are solved in float64
_LARGE = 2**26  # bytes of a matrix from which memory is looked after
_PASSES, _LONG = 60, 600.0  # of a cold solve over the cost, about; seconds that are worth a warning


@dataclass(frozen=True)
class Relative:
    """A regularisation given as a share of the mean cost Σ a_i b_j C_ij, so that it follows the scale of the data.

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
        epsilon: regularisation in units of the cost (the ground cost is ½(‖x − x'‖² + …), so epsilon is a squared
            length); or ``Relative(share)`` of the mean cost.
        tol: stop when the L1 error of the marginals is below this. By default 1e-8 in float64 and 1e-5 in float32,
            or what rounding allows at this epsilon if that is more.
        max_iter: iterations allowed before it stops with a ``ConvergenceWarning``.
        memory_limit: bytes (or "2GiB") that a solve may add to a cost matrix it is given; half of what is free by default.
            Where the kernel does not fit, it is computed in blocks at each use: the same result for more work.

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

    def prepare(self, cost: Cost, a: Tensor, b: Tensor) -> Sinkhorn:
        """The solver with a relative epsilon turned into a number for this problem."""
        if not isinstance(self.epsilon, Relative):
            return self
        mean = mean_cost(cost, a, b)
        return replace(self, epsilon=self.epsilon.share * mean if mean > 0 else 1e-20)  # all costs zero: so are the values

    def solve(self, cost: Cost, a: Tensor | None = None, b: Tensor | None = None, init: Potentials | None = None) -> Solution:
        """Transport ``a`` to ``b``; ``init`` are potentials to start from (they change the work, not the result)."""
        cost, a, b = check_problem(cost, a, b)
        epsilon = _number(self.prepare(cost, a, b).epsilon)
        cost = self._within_limit(cost)
        rows, columns = a > 0, b > 0
        inner, f0, g0 = cost, None, None
        if init is not None:
            f0, g0 = _check_init(init, cost)
        whole = bool(rows.all()) and bool(columns.all())
        if not whole:  # solve between the points that have mass, then extend the potentials to the others
            inner = _select(cost, rows, columns)
            f0, g0 = (None, None) if f0 is None or g0 is None else (f0[rows], g0[columns])
        state = Iteration(_kernel(inner), a[rows], b[columns], epsilon)
        start = None if f0 is None or g0 is None else (f0, g0)
        if start is None:
            _warn_if_long(state.kernel)
        tol = self._tolerance(inner, epsilon)
        converged = state.solve(start, tol, self.max_iter)
        if not converged:
            _warn(state.error, tol, state.n_iter, cost.dtype)
        f, g = state.potentials()
        if not whole:
            full_g = torch.zeros_like(b).masked_scatter_(columns, g)
            full_f = torch.zeros_like(a).masked_scatter_(rows, f)
            reach_f, reach_g = _extensions(cost, full_f, full_g, a, b, epsilon)
            f, g = torch.where(rows, full_f, reach_f), torch.where(columns, full_g, reach_g)
        operator = state.plan() if whole else None
        return _solution(cost, a, b, f, g, epsilon, converged, state.n_iter, state.error, operator)

    def solve_self(self, cost: Cost, a: Tensor | None = None, init: Tensor | None = None) -> Solution:
        """Transport ``a`` to itself under a symmetric cost with a zero diagonal: one potential, solved to rounding."""
        cost, a, _ = check_problem(cost, a, None)
        if cost.shape[0] != cost.shape[1]:
            raise InputError("a self-problem needs a square cost", tuple(cost.shape), "Use solve for two different measures.")
        epsilon = _number(self.prepare(cost, a, a).epsilon)
        cost = self._within_limit(cost)
        rows = a > 0
        whole = bool(rows.all())
        inner = cost if whole else _select(cost, rows, rows)
        kernel = DenseKernel(inner) if isinstance(inner, Tensor) else BlockedKernel(inner)
        solved = Symmetric(kernel, a[rows], epsilon, None if init is None else init[rows])
        # Halving is cheap, and a tight answer lets d(A, A) vanish: aim a hundred times below what rounding allows in general.
        aim = max(_rounding_tolerance(inner, epsilon) / 100, 8 * torch.finfo(cost.dtype).eps)
        f, n_iter, error = solved.run(aim, self.max_iter)
        tol = max(self._tolerance(inner, epsilon), aim)
        if not (accepted := error <= tol):
            _warn(error, tol, n_iter, cost.dtype)
        operator = solved.plan() if whole else None
        if not whole:
            full = torch.zeros_like(a).masked_scatter_(rows, f)
            f = torch.where(rows, full, _extensions(cost, full, full, a, a, epsilon)[0])
        return _solution(cost, a, a, f, f, epsilon, accepted, n_iter, error, operator)

    def certify(self, cost: Cost, a: Tensor, b: Tensor, potentials: Potentials) -> Solution | None:
        """These potentials as a solution, if its marginals are right to rounding (whatever ``tol`` is); else None."""
        cost, a, b = check_problem(cost, a, b)
        epsilon = _number(self.prepare(cost, a, b).epsilon)
        cost = self._within_limit(cost)
        (f, g), rows, columns = potentials, a > 0, b > 0
        if bool(rows.all()) and bool(columns.all()):
            error = _certified_error(cost, a, b, f, g, epsilon)
        else:  # costs of points without mass are not to say what rounding allows
            error = _certified_error(_select(cost, rows, columns), a[rows], b[columns], f[rows], g[columns], epsilon)
        return None if error is None else _solution(cost, a, b, f, g, epsilon, True, 0, error)

    def _within_limit(self, cost: Cost) -> Cost:
        """A matrix whose kernel would not fit is read in blocks; what comes in blocks knows its room already."""
        if isinstance(cost, BlockedCost) or (cost.nbytes < _LARGE and self.memory_limit is None):
            return cost
        limit = as_bytes(self.memory_limit, cost.device)
        if cost.nbytes <= limit:
            return cost
        return BlockedCost.of(lambda rows: cost[rows], (cost.shape[0], cost.shape[1]), room=limit, like=cost)

    def _tolerance(self, cost: Cost, epsilon: float) -> float:
        return _rounding_tolerance(cost, epsilon) if self.tol is None else self.tol


def mean_cost(cost: Cost, a: Tensor, b: Tensor) -> float:
    """Σ a_i b_j C_ij."""
    if isinstance(cost, BlockedCost):
        return cost.mean(a.double(), b.double())
    return float(a.to(cost.dtype) @ (cost @ b.to(cost.dtype)))


def _rounding_tolerance(cost: Cost, epsilon: float) -> float:
    """A marginal error that this dtype can reach: entries of C/ε are off by rounding, and so are those of the plan."""
    least, most = cost.extremes() if isinstance(cost, BlockedCost) else torch.stack(torch.aminmax(cost)).tolist()
    return max(_BASE_TOL[cost.dtype], torch.finfo(cost.dtype).eps * max(abs(least), abs(most)) / epsilon)


def _kernel(cost: Cost) -> DenseKernel | BlockedKernel:
    """The kernel to iterate with; small problems in float64: it costs nothing, and connects distant groups of few points."""
    wide = torch.float64 if cost.numel() <= _SMALL else None
    if isinstance(cost, BlockedCost):
        return BlockedKernel(cost, wide)
    return DenseKernel(cost if wide is None else cost.double())


def _select(cost: Cost, rows: Tensor, columns: Tensor) -> Cost:
    if isinstance(cost, BlockedCost):
        return cost.select(rows.nonzero()[:, 0], columns.nonzero()[:, 0])
    return cost[rows][:, columns]


def _extensions(cost: Cost, f: Tensor, g: Tensor, a: Tensor, b: Tensor, epsilon: float) -> Potentials:
    """T(g) and T(f'), f' being f where there is mass: the potentials of points without mass."""
    if isinstance(cost, BlockedCost):
        return BlockedKernel(cost, room=0).softmins(g, a, b, epsilon)
    reach = softmin(cost, g, b, epsilon, 1)
    return reach, softmin(cost, torch.where(a > 0, f, reach), a, epsilon, 0)


def _certified_error(cost: Cost, a: Tensor, b: Tensor, f: Tensor, g: Tensor, epsilon: float) -> float | None:
    """The marginal error of these potentials if it is within rounding, else None."""
    if isinstance(cost, BlockedCost):
        return _blocked_marginal_error(cost, a, b, f, g, epsilon)
    kernel = fill_kernel(cost, f, g, epsilon, torch.empty_like(cost))
    rows, columns = a.to(cost.dtype), b.to(cost.dtype)
    row_error = float((rows * (kernel @ columns - 1).abs()).sum())
    if not row_error <= _rounding_tolerance(cost, epsilon):
        return None
    error = row_error + float((columns * (kernel.T @ rows - 1).abs()).sum())
    return error if error <= 2 * _rounding_tolerance(cost, epsilon) else None


def _blocked_marginal_error(cost: BlockedCost, a: Tensor, b: Tensor, f: Tensor, g: Tensor, epsilon: float) -> float | None:
    """The marginal error if it is within rounding, else None, from the first block that says so."""
    kernel = BlockedKernel(cost, room=0)
    kernel.fill(f, g, epsilon)
    rows, columns = a.to(kernel.dtype), b.to(kernel.dtype)
    rounding, row_error, sums = math.inf, 0.0, torch.zeros_like(columns)
    for block, part in kernel.pieces():
        row_error += float((rows[block] * (part @ columns - 1).abs()).sum())
        if not row_error <= _BASE_TOL[cost.dtype]:  # more than that is rounding only if costs are large
            rounding = _rounding_tolerance(cost, epsilon) if rounding == math.inf else rounding
            if not row_error <= rounding:
                return None
        sums += part.T @ rows[block]
    error = row_error + float((columns * (sums - 1).abs()).sum())
    return error if error <= 2 * _rounding_tolerance(cost, epsilon) else None


def _warn_if_long(kernel: DenseKernel | BlockedKernel) -> None:
    """Where every pass computes the costs anew, one block tells how long a solve takes."""
    if isinstance(kernel, DenseKernel) or kernel.kept or kernel.source.bytes() < _LARGE:
        return
    seconds = kernel.source.seconds()
    if _PASSES * seconds > _LONG:
        n, m = kernel.shape
        warnings.warn(
            f"a pass over the {n} × {m} costs takes about {seconds:.0f} s, and a solve about {_PASSES} of them: "
            f"{_PASSES * seconds / 60:.0f} minutes. A memory_limit above {readable(1.1 * kernel.source.bytes())} keeps them "
            "in memory; fewer dimensions (Sketch) or a near-linear route (MiniBatch, SlicedOTDD) take less.",
            ScaleWarning,
            stacklevel=4,
        )


def _solution(
    cost: Cost,
    a: Tensor,
    b: Tensor,
    f: Tensor,
    g: Tensor,
    epsilon: float,
    converged: bool,
    n_iter: int,
    error: float,
    operator: ScaledKernel | None = None,
) -> Solution:
    value = float(a @ f + b @ g)
    if isinstance(cost, BlockedCost):
        if operator is None:  # points without mass, or given potentials: no kernel is at hand
            kernel = BlockedKernel(cost, room=0)
            kernel.fill(f, g, epsilon)
            operator = ScaledKernel(kernel, a.to(cost.dtype), b.to(cost.dtype))
        return Solution(value, (f, g), epsilon, converged, n_iter, error, operator.dense, operator)

    def make_plan(out: Tensor | None) -> Tensor:
        out = torch.empty_like(cost) if out is None else out
        return fill_kernel(cost, f + epsilon * a.log(), g + epsilon * b.log(), epsilon, out)

    return Solution(value, (f, g), epsilon, converged, n_iter, error, make_plan)


def _check_init(init: Potentials, cost: Cost) -> Potentials:
    f, g = (torch.as_tensor(part).detach().to(device=cost.device, dtype=torch.float64) for part in init)
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


def _warn(error: float, tol: float, n_iter: int, dtype: torch.dtype) -> None:
    hint = "" if dtype == torch.float64 else ", use float64"
    warnings.warn(
        f"Sinkhorn stopped after {n_iter} iterations with marginal error {error:.2e} where {tol:.2e} was asked for. "
        f"Raise epsilon or max_iter, loosen tol{hint}.",
        ConvergenceWarning,
        stacklevel=3,
    )
