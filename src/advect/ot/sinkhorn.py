"""Entropic optimal transport in the dual (Cuturi 2013; paper, section 2.2).

    OT_ε(a, b) = min_P ⟨P, C⟩ + ε KL(P | a ⊗ b) = max_{f, g} ⟨a, f⟩ + ⟨b, g⟩      P_ij = a_i b_j exp((f_i + g_j − C_ij)/ε)

Potentials are kept in float64. Between two absorptions the kernel K = exp((f ⊕ g − C)/ε) is fixed and everything is done
by matrix-vector products on scalings u, v (Schmitzer 2019), some forty times cheaper than log-sum-exps over C. When a
scaling leaves the safe range it is absorbed into the potentials; when K has underflowed, a step in the log domain
recovers. A cold start anneals ε from the size of the cost. Far from the solution the steps are Sinkhorn's; near it they
are Newton's on the concave dual in g (f being exact for given g), so that a small ε costs a few more products and not
a thousand more iterations. Self-problems use one potential and the averaged update f ← (f + T f)/2 (Feydy et al. 2019),
whose error at least halves each time.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from advect._checks import check_count, check_positive
from advect.errors import ConvergenceWarning, InputError
from advect.ot.solution import Potentials, Solution, check_problem

_BASE_TOL = {torch.float32: 1e-5, torch.float64: 1e-8}
_LOG_RANGE = {torch.float32: 30.0, torch.float64: 200.0}  # scalings beyond exp(±this) are absorbed
_ANNEALING_RATIO, _ANNEALING_TOL, _ANNEALING_ITERATIONS = 0.2, 0.03, 60
_NEAR = 0.2  # marginal error from which Newton steps take over
_SMALL = 250_000  # entries up to which float32 problems are solved in float64
_HALVINGS = 12  # of a Newton step before a Sinkhorn step is taken instead
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

    def __post_init__(self) -> None:
        if not isinstance(self.epsilon, Relative):
            check_positive("epsilon", self.epsilon)
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

    def prepare(self, cost: Tensor, a: Tensor, b: Tensor) -> Sinkhorn:
        """The solver with a relative epsilon turned into a number for this problem."""
        if not isinstance(self.epsilon, Relative):
            return self
        mean = float(a.to(cost.dtype) @ (cost @ b.to(cost.dtype)))
        return replace(self, epsilon=self.epsilon.share * mean if mean > 0 else 1e-20)  # all costs zero: so are the values

    def solve(self, cost: Tensor, a: Tensor | None = None, b: Tensor | None = None, init: Potentials | None = None) -> Solution:
        """Transport ``a`` to ``b``; ``init`` are potentials to start from (they change the work, not the result)."""
        cost, a, b = check_problem(cost, a, b)
        epsilon = _number(self.prepare(cost, a, b).epsilon)
        rows, columns = a > 0, b > 0
        inner, f0, g0 = cost, None, None
        if init is not None:
            f0, g0 = _check_init(init, cost)
        whole = bool(rows.all()) and bool(columns.all())
        if not whole:  # solve between the points that have mass, then extend the potentials to the others
            inner = cost[rows][:, columns]
            f0, g0 = (None, None) if f0 is None or g0 is None else (f0[rows], g0[columns])
        tol = self._tolerance(inner, epsilon)
        if inner.numel() <= _SMALL:  # costs nothing, and the wider range keeps distant groups of few points connected
            inner = inner.double()
        state = _Iteration(inner, a[rows], b[columns], epsilon)
        if f0 is None or g0 is None:
            state.anneal(self.max_iter)
        else:
            state.start(f0, g0)
        converged = state.run(tol, self.max_iter)
        if not converged:
            _warn(state.error, tol, state.n_iter, cost.dtype)
        f, g = state.potentials()
        if not whole:
            full_g = torch.zeros_like(b).masked_scatter_(columns, g)
            full_f = torch.where(rows, torch.zeros_like(a).masked_scatter_(rows, f), _softmin(cost, full_g, b, epsilon, 1))
            f, g = full_f, torch.where(columns, full_g, _softmin(cost, full_f, a, epsilon, 0))
        return _solution(cost, a, b, f, g, epsilon, converged, state.n_iter, state.error)

    def solve_self(self, cost: Tensor, a: Tensor | None = None, init: Tensor | None = None) -> Solution:
        """Transport ``a`` to itself under a symmetric cost with a zero diagonal: one potential, solved to rounding."""
        cost, a, _ = check_problem(cost, a, None)
        if cost.shape[0] != cost.shape[1]:
            raise InputError("a self-problem needs a square cost", tuple(cost.shape), "Use solve for two different measures.")
        epsilon = _number(self.prepare(cost, a, a).epsilon)
        rows = a > 0
        inner = cost if bool(rows.all()) else cost[rows][:, rows]
        # Halving is cheap, and a tight answer lets d(A, A) vanish: aim a hundred times below what rounding allows in general.
        aim = max(_rounding_tolerance(inner, epsilon) / 100, 8 * torch.finfo(cost.dtype).eps)
        f, n_iter, error = _solve_symmetric(inner, a[rows], epsilon, aim, self.max_iter, None if init is None else init[rows])
        tol = max(self._tolerance(inner, epsilon), aim)
        if not (accepted := error <= tol):
            _warn(error, tol, n_iter, cost.dtype)
        if inner is not cost:
            full = torch.zeros_like(a).masked_scatter_(rows, f)
            f = torch.where(rows, full, _softmin(cost, full, a, epsilon, 1))
        return _solution(cost, a, a, f, f, epsilon, accepted, n_iter, error)

    def certify(self, cost: Tensor, a: Tensor, b: Tensor, potentials: Potentials) -> Solution | None:
        """These potentials as a solution, if its marginals are right to rounding (whatever ``tol`` is); else None."""
        cost, a, b = check_problem(cost, a, b)
        epsilon = _number(self.prepare(cost, a, b).epsilon)
        f, g = potentials
        kernel = _fill_kernel(cost, f, g, epsilon, torch.empty_like(cost))
        rows, columns = a.to(cost.dtype), b.to(cost.dtype)
        row_error = float((rows * (kernel @ columns - 1).abs()).sum())
        if not row_error <= _rounding_tolerance(cost, epsilon):
            return None
        error = row_error + float((columns * (kernel.T @ rows - 1).abs()).sum())
        if not error <= 2 * _rounding_tolerance(cost, epsilon):
            return None
        return _solution(cost, a, b, f, g, epsilon, True, 0, error)

    def _tolerance(self, cost: Tensor, epsilon: float) -> float:
        return _rounding_tolerance(cost, epsilon) if self.tol is None else self.tol


def _rounding_tolerance(cost: Tensor, epsilon: float) -> float:
    """A marginal error that this dtype can reach: entries of C/ε are off by rounding, and so are those of the plan."""
    least, most = torch.aminmax(cost)
    return max(_BASE_TOL[cost.dtype], torch.finfo(cost.dtype).eps * max(abs(float(least)), abs(float(most))) / epsilon)


class _Iteration:
    """The state of a two-sided solve: absorbed potentials, kernel, scalings."""

    def __init__(self, cost: Tensor, a: Tensor, b: Tensor, epsilon: float) -> None:
        self.cost, self.a64, self.b64, self.epsilon = cost, a, b, epsilon
        self.a, self.b = a.to(cost.dtype), b.to(cost.dtype)
        self.kernel = torch.empty_like(cost)
        self.limit = math.exp(_LOG_RANGE[cost.dtype])
        self.n_iter, self.error = 0, math.inf

    def start(self, f: Tensor, g: Tensor) -> None:
        """Begin at potentials (f, g) with unit scalings; a common drift f + c, g − c is taken out to save digits."""
        drift = (f.mean() - g.mean()) / 2
        self.f, self.g = f, g = f - drift, g + drift
        self.u, self.v = torch.ones_like(self.a), torch.ones_like(self.b)
        _fill_kernel(self.cost, f, g, self.epsilon, self.kernel)

    def anneal(self, max_iter: int) -> None:
        """Solve loosely for a decreasing sequence of epsilons, so that the first potentials are near the last."""
        final = self.epsilon
        g = torch.zeros_like(self.b64)
        self.epsilon = max(float(self.cost.max()), final)
        while True:
            f = _softmin(self.cost, g, self.b64, self.epsilon, 1, self.kernel)
            g = _softmin(self.cost, f, self.a64, self.epsilon, 0, self.kernel)
            self.n_iter += 1
            self.start(f, g)
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
            column = self.kernel.T @ (self.a * self.u)
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
        self.u = 1 / (self.kernel @ (self.b * self.v))

    def _newton_step(self, residual: Tensor, tol: float, max_iter: int) -> bool:
        """A damped Newton step on g ↦ max_f dual(f, g), whose gradient is b − Pᵀ1; False if it leads nowhere.

        The system is S δ = b − c with c = Pᵀ1, S = diag(c) − Pᵀ diag(1/a) P and δ = Δg/ε.
        """
        direction = self._solve_newton_system(residual, tol, max_iter)
        slope = float(residual @ direction)
        if not (math.isfinite(slope) and slope > 0):
            return False
        u, v, before = self.u, self.v, self._dual()
        rounding = 8 * torch.finfo(v.dtype).eps * (1 + abs(before))
        # Nearly separate groups of points ask for very long steps: go as far as the kernel's range allows, then look back.
        step = min(1.0, _LOG_RANGE[v.dtype] / 2 / float(direction.abs().max()))
        for _ in range(_HALVINGS):
            self.v = v * torch.exp(step * direction)
            self._match_rows()
            if self._dual() >= before + 1e-4 * step * slope - rounding:
                return True
            step /= 2
        self.u, self.v = u, v
        return False

    def _solve_newton_system(self, residual: Tensor, tol: float, max_iter: int) -> Tensor:
        """Preconditioned conjugate gradients, two products each; directly where they would need too many."""
        weight = self.b * self.v  # P = diag(a u) K diag(weight)
        diagonal = self.b - residual
        squared = self.a * self.u.square()
        tolerance = max(min(0.1, math.sqrt(self.error)) * self.error, tol / 3)  # no closer than what is asked for
        solution, rest = torch.zeros_like(residual), residual
        search = scaled = rest / diagonal
        product = float(rest @ scaled)
        for _ in range(_CG_ITERATIONS):
            image = diagonal * search - weight * (self.kernel.T @ (squared * (self.kernel @ (weight * search))))
            self.n_iter += 1
            curvature = float(search @ image)
            if not curvature > 1e-14 * float(search @ (diagonal * search)):
                break  # a direction that rounding cannot tell from a constant
            solution = solution + (product / curvature) * search
            rest = rest - (product / curvature) * image
            if float(rest.abs().sum()) <= tolerance or self.n_iter >= max_iter:
                return solution
            scaled = rest / diagonal
            product, last = float(rest @ scaled), product
            search = scaled + (product / last) * search
        return self._solve_directly(residual, diagonal) if len(residual) <= _DIRECT_SIZE else solution

    def _solve_directly(self, residual: Tensor, diagonal: Tensor) -> Tensor:
        """S δ = residual in float64, scaled to a unit diagonal; the shift stands for the constants that S ignores."""
        root = diagonal.double().sqrt()
        half = (self.a.sqrt() * self.u)[:, None] * self.kernel * (self.b * self.v)  # diag(a)^-½ P
        scaled = half.double() / root
        matrix = -(scaled.T @ scaled)
        matrix.diagonal().add_(1 + 1e-12)
        factor, failed = torch.linalg.cholesky_ex(matrix)
        if int(failed):
            return torch.zeros_like(residual)
        return (torch.cholesky_solve((residual.double() / root)[:, None], factor)[:, 0] / root).to(residual.dtype)

    def _dual(self) -> float:
        """The dual value in units of ε, up to the absorbed part."""
        return float(self.a64 @ self.u.double().log() + self.b64 @ self.v.double().log())

    def _widen(self) -> None:
        """Go on in float64, whose range reaches groups of points that float32 cannot connect; there, in the log domain."""
        if self.kernel.dtype == torch.float64:
            self._recover()
            return
        f, g = self.potentials()
        self.a, self.b, self.kernel = self.a64, self.b64, torch.empty_like(self.cost, dtype=torch.float64)
        self.limit = math.exp(_LOG_RANGE[torch.float64])
        self.start(f, g)
        self._match_rows()

    def _recover(self) -> None:
        """The kernel has underflowed somewhere: take one step in the log domain from the last absorbed potentials."""
        f = _softmin(self.cost, self.g, self.b64, self.epsilon, 1, self.kernel)
        g = _softmin(self.cost, f, self.a64, self.epsilon, 0, self.kernel)
        self.start(f, g)
        self._match_rows()

    def potentials(self) -> Potentials:
        return self.f + self.epsilon * self.u.double().log(), self.g + self.epsilon * self.v.double().log()


def _solve_symmetric(
    cost: Tensor, a64: Tensor, epsilon: float, tol: float, max_iter: int, init: Tensor | None
) -> tuple[Tensor, int, float]:
    """The fixed point f = T f of a self-problem. The zero diagonal of the cost keeps every kernel row away from zero."""
    a = a64.to(cost.dtype)
    f = torch.zeros_like(a64) if init is None else init.to(a64)
    kernel = _fill_kernel(cost, f, f, epsilon, torch.empty_like(cost))
    u = torch.ones_like(a)
    best, error, stalled = math.inf, math.inf, 0
    for n_iter in range(1, max_iter + 1):
        product = kernel @ (a * u)
        error = float((a * (u * product - 1).abs()).sum())
        if not math.isfinite(error):  # a start far from the solution: begin again from zero
            f = torch.zeros_like(a64)
            kernel, u = _fill_kernel(cost, f, f, epsilon, kernel), torch.ones_like(a)
            continue
        stalled = 0 if error < 0.9 * best else stalled + 1
        best = min(best, error)
        if error <= tol or stalled >= 4:  # halving has ended: rounding
            return f + epsilon * u.double().log(), n_iter, error
        u = (u / product).sqrt()
    return f + epsilon * u.double().log(), max_iter, error


def _fill_kernel(cost: Tensor, f: Tensor, g: Tensor, epsilon: float, out: Tensor) -> Tensor:
    """exp((f_i + g_j − C_ij)/ε) written into ``out``, without temporaries."""
    torch.add((g / epsilon).to(out.dtype)[None, :], cost, alpha=-1 / epsilon, out=out)
    return _exp_(out.add_((f / epsilon).to(out.dtype)[:, None]))


def _exp_(values: Tensor) -> Tensor:
    """exp in place, with 0 for what would be below the normal range: exponentials that underflow take twenty times as long."""
    least = math.log(torch.finfo(values.dtype).tiny) + 0.1
    return torch.threshold_(values.clamp_min_(least).exp_(), 1.01 * math.exp(least), 0.0)


def _softmin(cost: Tensor, potential: Tensor, weights: Tensor, epsilon: float, dim: int, out: Tensor | None = None) -> Tensor:
    """T(g)_i = −ε log Σ_j w_j exp((g_j − C_ij)/ε) along ``dim``, stable for any epsilon; ``out`` is scratch space."""
    out = torch.empty_like(cost) if out is None else out
    shift = (potential / epsilon + weights.log()).to(out.dtype)
    torch.add(shift[None, :] if dim == 1 else shift[:, None], cost, alpha=-1 / epsilon, out=out)
    top = out.amax(dim=dim, keepdim=True)
    sums = _exp_(out.sub_(top)).sum(dim=dim)
    return -epsilon * (top.squeeze(dim).double() + sums.double().log())


def _solution(
    cost: Tensor, a: Tensor, b: Tensor, f: Tensor, g: Tensor, epsilon: float, converged: bool, n_iter: int, error: float
) -> Solution:
    def make_plan(out: Tensor | None) -> Tensor:
        out = torch.empty_like(cost) if out is None else out
        return _fill_kernel(cost, f + epsilon * a.log(), g + epsilon * b.log(), epsilon, out)

    return Solution(float(a @ f + b @ g), (f, g), epsilon, converged, n_iter, error, make_plan)


def _check_init(init: Potentials, cost: Tensor) -> Potentials:
    f, g = (torch.as_tensor(part).detach().to(device=cost.device, dtype=torch.float64) for part in init)
    if f.shape != cost.shape[:1] or g.shape != cost.shape[1:]:
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
