"""Entropic optimal transport in the dual (Cuturi 2013; paper, section 2.2).

    OT_ε(a, b) = min_P ⟨P, C⟩ + ε KL(P | a ⊗ b) = max_{f, g} ⟨a, f⟩ + ⟨b, g⟩      P_ij = a_i b_j exp((f_i + g_j − C_ij)/ε)

Potentials are kept in float64. Between two absorptions the kernel K = exp((f ⊕ g − C)/ε) is fixed and everything is done
by matrix-vector products on scalings u, v (Schmitzer 2019), some forty times cheaper than log-sum-exps over C. When a
scaling leaves the safe range it is absorbed into the potentials; when K has underflowed, a step in the log domain
recovers. A cold start anneals ε from the size of the cost. Far from the solution the steps are Sinkhorn's; near it they
are Newton's on the concave dual in g (f being exact for given g), so that a small ε costs a few more products and not
a thousand more iterations. Self-problems use one potential and the averaged update f ← (f + T f)/2 (Feydy et al. 2019),
whose error at least halves each time. A ``BlockedCost`` is solved by the same steps without its matrix (``advect.ot.kernel``).
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
from advect.ot.kernel import BlockedKernel, DenseKernel, ScaledKernel, fill_kernel, softmin
from advect.ot.solution import Cost, Potentials, Solution, check_problem

_BASE_TOL = {torch.float32: 1e-5, torch.float64: 1e-8}
_LOG_RANGE = {torch.float32: 30.0, torch.float64: 200.0}  # scalings beyond exp(±this) are absorbed
_ANNEALING_RATIO, _ANNEALING_TOL, _ANNEALING_ITERATIONS = 0.2, 0.03, 60
_NEAR = 0.2  # marginal error from which Newton steps take over
_SMALL = 250_000  # entries up to which float32 problems are solved in float64
_HALVINGS = 12  # of a Newton step before a Sinkhorn step is taken instead
_LARGE = 2**26  # bytes of a matrix from which memory is looked after
_PASSES, _LONG = 60, 600.0  # of a cold solve over the cost, about; seconds that are worth a warning
_CG_ITERATIONS, _DIRECT_SIZE = 100, 1024  # a harder Newton system is solved directly if it is not larger than this


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
        state = _Iteration(_kernel(inner), a[rows], b[columns], epsilon)
        if f0 is None or g0 is None:
            _warn_if_long(state.kernel)
            state.anneal(self.max_iter)
        else:
            state.start(f0, g0)
        tol = self._tolerance(inner, epsilon)
        converged = state.run(tol, self.max_iter)
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
        solved = _Symmetric(kernel, a[rows], epsilon, None if init is None else init[rows])
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
        f, g = potentials
        if isinstance(cost, BlockedCost):
            error = _blocked_marginal_error(cost, a, b, f, g, epsilon)
            return None if error is None else _solution(cost, a, b, f, g, epsilon, True, 0, error)
        kernel = fill_kernel(cost, f, g, epsilon, torch.empty_like(cost))
        rows, columns = a.to(cost.dtype), b.to(cost.dtype)
        row_error = float((rows * (kernel @ columns - 1).abs()).sum())
        if not row_error <= _rounding_tolerance(cost, epsilon):
            return None
        error = row_error + float((columns * (kernel.T @ rows - 1).abs()).sum())
        if not error <= 2 * _rounding_tolerance(cost, epsilon):
            return None
        return _solution(cost, a, b, f, g, epsilon, True, 0, error)

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


class _Iteration:
    """The state of a two-sided solve: absorbed potentials, kernel, scalings."""

    def __init__(self, kernel: DenseKernel | BlockedKernel, a: Tensor, b: Tensor, epsilon: float) -> None:
        self.kernel, self.a64, self.b64, self.epsilon = kernel, a, b, epsilon
        self.a, self.b = a.to(kernel.dtype), b.to(kernel.dtype)
        self.limit = math.exp(_LOG_RANGE[kernel.dtype])
        self.n_iter, self.error = 0, math.inf
        self.column: Tensor | None = None  # Kᵀ(a u), where a pass gave it along with u

    def start(self, f: Tensor, g: Tensor, *, last: bool = True) -> None:
        """Begin at potentials (f, g) with unit scalings; a common drift f + c, g − c is taken out to save digits."""
        drift = (f.mean() - g.mean()) / 2
        self.f, self.g = f, g = f - drift, g + drift
        self.u, self.v, self.column = torch.ones_like(self.a), torch.ones_like(self.b), None
        self.kernel.fill(f, g, self.epsilon, last=last)

    def anneal(self, max_iter: int) -> None:
        """Solve loosely for a decreasing sequence of epsilons, so that the first potentials are near the last."""
        final = self.epsilon
        g = torch.zeros_like(self.b64)
        self.epsilon = max(self.kernel.most(), final)
        while True:
            f, g = self.kernel.softmins(g, self.a64, self.b64, self.epsilon)
            self.n_iter += 1
            self.start(f, g, last=self.epsilon == final)
            if self.epsilon == final:
                return
            if self.n_iter < max_iter:
                self.run(_ANNEALING_TOL, min(self.n_iter + _ANNEALING_ITERATIONS, max_iter))
            g = self.potentials()[1]
            self.epsilon = max(self.epsilon * _ANNEALING_RATIO, final)

    def run(self, tol: float, max_iter: int) -> bool:
        """Iterate until the marginal error is below ``tol``; rows are matched exactly throughout."""
        self._match_rows()
        previous = math.inf
        while True:
            self.n_iter += 1
            column = self.kernel.transposed(self.a * self.u) if self.column is None else self.column
            residual = self.b - self.b * self.v * column
            previous, self.error = self.error if math.isfinite(self.error) else previous, float(residual.abs().sum())
            if self.error <= tol or self.n_iter >= max_iter:
                return self.error <= tol
            if not math.isfinite(self.error):
                self._recover()
                continue
            if self.error > _NEAR and self.error < 0.8 * previous:
                self.v = 1 / column
                self._match_rows()
            elif not self._newton_step(residual, tol, max_iter):
                self._widen()  # the kernel has lost sight of some group of points
            extremes = float(torch.stack([self.u.max(), self.v.max(), 1 / self.u.min(), 1 / self.v.min()]).max())
            if not math.isfinite(extremes):
                self._recover()
            elif extremes > self.limit:
                self.start(*self.potentials())
                self._match_rows()

    def _match_rows(self) -> None:
        """The best f for the current g: row sums of the plan become a."""
        weight = self.b * self.v
        if self.kernel.costly:
            product, self.column = self.kernel.sweep(weight, lambda product, rows: self.a[rows] / product)
        else:
            product, self.column = self.kernel.times(weight), None
        self.u = 1 / product

    def _newton_step(self, residual: Tensor, tol: float, max_iter: int) -> bool:
        """A damped Newton step on g ↦ max_f dual(f, g), whose gradient is b − Pᵀ1; False if it leads nowhere.

        The system is S δ = b − c with c = Pᵀ1, S = diag(c) − Pᵀ diag(1/a) P and δ = Δg/ε.
        """
        direction = self._solve_newton_system(residual, tol, max_iter)
        u, v, column = self.u, self.v, self.column
        numbers = torch.stack([(residual @ direction).double(), direction.abs().max().double(), self._dual()])
        slope, longest, before = numbers.tolist()  # one wait for the device
        if not (math.isfinite(slope) and slope > 0):
            return False
        rounding = 8 * torch.finfo(v.dtype).eps * (1 + abs(before))
        # Nearly separate groups of points ask for very long steps: go as far as the kernel's range allows, then look back.
        step = min(1.0, _LOG_RANGE[v.dtype] / 2 / longest)
        for _ in range(_HALVINGS):
            self.v = v * torch.exp(step * direction)
            self._match_rows()
            if float(self._dual()) >= before + 1e-4 * step * slope - rounding:
                return True
            step /= 2
        self.u, self.v, self.column = u, v, column
        return False

    def _solve_newton_system(self, residual: Tensor, tol: float, max_iter: int) -> Tensor:
        """Preconditioned conjugate gradients, two products each; directly where they would need too many."""
        weight = self.b * self.v  # P = diag(a u) K diag(weight)
        diagonal = self.b - residual
        squared = self.a * self.u.square()
        tolerance = max(min(0.1, math.sqrt(self.error)) * self.error, tol / 3)  # no closer than what is asked for
        solution, rest = torch.zeros_like(residual), residual
        search = scaled = rest / diagonal
        product = rest @ scaled
        for _ in range(_CG_ITERATIONS):
            _, image = self.kernel.sweep(weight * search, lambda product, rows: squared[rows] * product)
            image = diagonal * search - weight * image
            self.n_iter += 1
            curvature = search @ image
            step = product / curvature
            change = rest - step * image
            flat, left = torch.stack([1e-14 * (search @ (diagonal * search)) - curvature, change.abs().sum()]).tolist()
            if not flat < 0:
                break  # a direction that rounding cannot tell from a constant
            solution, rest = solution + step * search, change
            if left <= tolerance or self.n_iter >= max_iter:
                return solution
            scaled = rest / diagonal
            product, last = rest @ scaled, product
            search = scaled + (product / last) * search
        return self._solve_directly(residual, diagonal) if len(residual) <= _DIRECT_SIZE else solution

    def _solve_directly(self, residual: Tensor, diagonal: Tensor) -> Tensor:
        """S δ = residual in float64, scaled to a unit diagonal; the shift stands for the constants that S ignores."""
        root = diagonal.double().sqrt()
        left, right = self.a.sqrt() * self.u, self.b * self.v
        matrix = torch.zeros(len(root), len(root), dtype=torch.float64, device=root.device)
        for rows, kernel in self.kernel.pieces():
            scaled = (left[rows, None] * kernel * right).double() / root  # rows of diag(a)^-½ P
            matrix.addmm_(scaled.T, scaled, alpha=-1)
        matrix.diagonal().add_(1 + 1e-12)
        factor, failed = torch.linalg.cholesky_ex(matrix)
        if int(failed):
            return torch.zeros_like(residual)
        return (torch.cholesky_solve((residual.double() / root)[:, None], factor)[:, 0] / root).to(residual.dtype)

    def _dual(self) -> Tensor:
        """The dual value in units of ε, up to the absorbed part."""
        return self.a64 @ self.u.double().log() + self.b64 @ self.v.double().log()

    def _widen(self) -> None:
        """Go on in float64, whose range reaches groups of points that float32 cannot connect; there, in the log domain."""
        if self.kernel.dtype == torch.float64:
            self._recover()
            return
        f, g = self.potentials()
        self.a, self.b, self.kernel = self.a64, self.b64, self.kernel.widened()
        self.limit = math.exp(_LOG_RANGE[torch.float64])
        self.start(f, g)
        self._match_rows()

    def _recover(self) -> None:
        """The kernel has underflowed somewhere: take one step in the log domain from the last absorbed potentials."""
        self.start(*self.kernel.softmins(self.g, self.a64, self.b64, self.epsilon))
        self._match_rows()

    def plan(self) -> ScaledKernel | None:
        return _scaled(self.kernel, self.a * self.u, self.b * self.v)

    def potentials(self) -> Potentials:
        return self.f + self.epsilon * self.u.double().log(), self.g + self.epsilon * self.v.double().log()


class _Symmetric:
    """The fixed point f = T f of a self-problem. The zero diagonal of the cost keeps every kernel row away from zero."""

    def __init__(self, kernel: DenseKernel | BlockedKernel, a64: Tensor, epsilon: float, init: Tensor | None) -> None:
        self.kernel, self.a64, self.epsilon = kernel, a64, epsilon
        self.a = a64.to(kernel.dtype)
        self._start(torch.zeros_like(a64) if init is None else init.to(a64))

    def _start(self, f: Tensor) -> None:
        self.f, self.u = f, torch.ones_like(self.a)
        self.kernel.fill(f, f, self.epsilon)

    def run(self, tol: float, max_iter: int) -> tuple[Tensor, int, float]:
        """The potential, the iterations and the marginal error; ends too when halving has ended, which is rounding."""
        best, error, stalled, n_iter = math.inf, math.inf, 0, 0
        while n_iter < max_iter:
            n_iter += 1
            product = self.kernel.times(self.a * self.u)
            error = float((self.a * (self.u * product - 1).abs()).sum())
            if not math.isfinite(error):  # a start far from the solution: begin again from zero
                self._start(torch.zeros_like(self.a64))
                continue
            stalled = 0 if error < 0.9 * best else stalled + 1
            best = min(best, error)
            if error <= tol or stalled >= 4:
                break
            self.u = (self.u / product).sqrt()
        return self.f + self.epsilon * self.u.double().log(), n_iter, error

    def plan(self) -> ScaledKernel | None:
        return _scaled(self.kernel, self.a * self.u, self.a * self.u)


def _scaled(kernel: DenseKernel | BlockedKernel, left: Tensor, right: Tensor) -> ScaledKernel | None:
    """The plan by products with a kernel that comes in blocks; matrices have no need of it."""
    return ScaledKernel(kernel, left, right) if isinstance(kernel, BlockedKernel) else None


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
