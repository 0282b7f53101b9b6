"""The Sinkhorn loop, as products with a kernel.

Potentials are float64. Between two absorptions the kernel K = exp((f ⊕ g − C)/ε) is fixed, and a step
is a matrix-vector product on scalings u, v (Schmitzer 2019), far cheaper than a log-sum-exp over C. A
scaling that leaves the safe range is absorbed into the potentials. After an underflow of K, a step in
the log domain recovers. A cold start at a small ε anneals it from the size of the cost. Far from the solution the
steps are Sinkhorn's; near it they are Newton's on the concave dual in g. Self-problems use one
potential and f ← (f + T f)/2 (Feydy et al. 2019). The derivative of T has eigenvalues −λ with
0 ≤ λ ≤ 1 where the kernel is positive semi-definite, so a step leaves (1 − λ)/2 of the error: nearly
nothing where the plan is nearly diagonal, a half where it is spread. If they are slow, they alternate
with f ← T f: a pair of steps leaves at most max λ (1 − λ)/2 = 1/8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from advect.ot.cost import Cost
from advect.ot.dual import Balanced, Potentials
from advect.ot.kernel import SMALL, Kernel

_LOG_RANGE = {torch.float32: 30.0, torch.float64: 200.0}  # scalings beyond exp(±this) are absorbed
_ANNEALING_RATIO, _ANNEALING_TOL, _ANNEALING_ITERATIONS = 0.1, 0.03, 60
_NO_ANNEALING = 60  # epsilons of the largest cost up to which a cold start is at zero
# iterations after which a solve with a large error anneals again, with this ratio
_RETRIES = ((300, 0.7), (2000, 0.85))
_NEAR = 0.2  # marginal error from which Newton steps take over
_SLOW = 1 / 3  # of the error after a step of a self-problem, from which steps alternate
_HALVINGS = 12  # of a Newton step before a Sinkhorn step is taken instead
# Newton systems up to the first size are solved directly; up to the second where CG is slow
_SMALL_SYSTEM, _DIRECT_SIZE, _CG_ITERATIONS = 100, 1024, 100
_NO_PRODUCT = 1e-150  # entries of P whose products vanish


@dataclass(eq=False)
class Iteration:
    """A solve: absorbed potentials f and g, the kernel at them, and scalings u and v.

    Attributes:
        cost, kernel: of the problem; the kernel may be replaced by one in float64.
        marginals: the proximal steps.
        n_iter, error: iterations so far, and the marginal error after the last.
    """

    cost: Cost
    kernel: Kernel
    marginals: Balanced
    epsilon: float
    n_iter: int = field(default=0, init=False)
    error: float = field(default=math.inf, init=False)
    column: Tensor | None = field(default=None, init=False)  # Kᵀ(a u), if a pass gave it with u

    def start(self, f: Tensor, g: Tensor, *, last: bool = True) -> None:
        """Start at potentials (f, g) with unit scalings."""
        marginals, dtype = self.marginals, self.kernel.dtype
        self.f, self.g = marginals.absorb(f, g, self.epsilon, dtype)
        self.u, self.v = torch.ones_like(marginals.a), torch.ones_like(marginals.b)
        self.column = None
        self.kernel.fill(self.f, self.g, self.epsilon, last=last)

    def solve(self, start: Potentials | None, tol: float, max_iter: int) -> bool:
        """Iterate to a marginal error below ``tol``, from given potentials or from a cold start."""
        if start is None and self.kernel.extremes[1] <= _NO_ANNEALING * self.epsilon:
            start = torch.zeros_like(self.marginals.a64), torch.zeros_like(self.marginals.b64)
        if start is None:
            self._anneal(max_iter)
        else:
            self.start(*start)
        for patience, ratio in _RETRIES:
            if self._run(tol, min(patience, max_iter)) or self.n_iter >= max_iter:
                return self.error <= tol
            if self.error > _ANNEALING_TOL:
                self._anneal(max_iter, ratio)
        return self._run(tol, max_iter)

    def solve_self(self, start: Tensor | None, tol: float, max_iter: int) -> bool:
        """The same with g = f, for a cost that is symmetric with a zero diagonal.

        Stops at rounding, when the error no longer halves.
        """
        zero = torch.zeros_like(self.marginals.a64)
        f = zero if start is None else start.to(zero)
        self.start(f, f)
        best, marginals = math.inf, self.marginals
        # In small problems, computing the error takes longer than some steps.
        every = 4 if self.kernel.shape[0] ** 2 <= SMALL else 1
        patience = stalled = 4 // every
        alternate = False
        while self.n_iter < max_iter:
            product, scaling = self.u, self.u
            for _ in range(every):
                product, scaling = self.kernel.times(marginals.a * self.u), self.u
                self.u = marginals.row_scaling(product)
                if not alternate or self.n_iter % 2:
                    self.u = (self.u * scaling).sqrt()
                self.n_iter += 1
            self.error = marginals.residual(scaling, product, product)[1]
            if not math.isfinite(self.error):  # the start was far from the solution
                self.start(zero, zero)
                continue
            alternate = alternate or self.error > _SLOW**every * best
            stalled = patience if self.error < 0.9 * best else stalled - 1
            best = min(best, self.error)
            if self.error <= tol or stalled <= 0:
                self.u = scaling  # the scaling whose error was computed
                break
        self.v = self.u
        return self.error <= tol

    def potentials(self) -> Potentials:
        """The potentials at the current scalings."""
        u, v = (self.epsilon * part.double().log() for part in (self.u, self.v))
        return self.f + u, self.g + v

    def _anneal(self, max_iter: int, ratio: float = _ANNEALING_RATIO) -> None:
        """Solve loosely for a decreasing sequence of epsilons, for a good start at the last."""
        # At an epsilon of the size of the costs every start is near the solution. Each level ends
        # with potentials that are near those of the next. Where rows are matched exactly, each has an
        # entry P_ij ≥ a_i b_j, so the kernel at a smaller epsilon has an entry ≥ 1 in each row: no log
        # step is needed, unless the largest entries overflow (``_run``).
        final, f, g = self.epsilon, *map(torch.zeros_like, (self.marginals.a64, self.marginals.b64))
        self.epsilon = max(self.kernel.extremes[1], final)
        while True:
            last = self.epsilon == final
            if math.isfinite(self.marginals.rho):
                self._log_step(g, last=last)
            else:
                self.start(f, g, last=last)
                self._match_rows()
                self.v = self.marginals.column_scaling(self._columns(), self.v)
            self.n_iter += 1
            if last:
                return
            if self.n_iter < max_iter:
                self._run(_ANNEALING_TOL, min(self.n_iter + _ANNEALING_ITERATIONS, max_iter))
            f, g = self.potentials()
            self.epsilon = max(self.epsilon * ratio, final)

    def _run(self, tol: float, max_iter: int) -> bool:
        """Iterate until the marginal error is below ``tol``. Rows are matched exactly throughout."""
        self._match_rows()
        previous = math.inf
        while True:
            self.n_iter += 1
            previous = self.error if math.isfinite(self.error) else previous
            residual, self.error = self.marginals.residual(self.v, self._columns(), self.product)
            if self.error <= tol or self.n_iter >= max_iter:
                return self.error <= tol
            if not math.isfinite(self.error):
                self._log_step(self.g)  # after an underflow
                self._match_rows()
                continue
            if self.error > _NEAR and self.error < 0.8 * previous:
                # the best g for the current f, then the best f
                self.v = self.marginals.column_scaling(self._columns(), self.v)
                self._match_rows()
            elif not self._newton_step(residual, tol, max_iter):
                self._widen()  # the kernel has underflowed for some group of points
            ends = [float(end) for part in (self.u, self.v) for end in torch.aminmax(part)]
            low, high = min(ends), max(ends)
            if low == 0 or not math.isfinite(high):
                self._log_step(self.g)
                self._match_rows()
            elif max(high, 1 / low) > math.exp(_LOG_RANGE[self.kernel.dtype]):
                self.start(*self.potentials())  # absorb the scalings
                self._match_rows()

    def _match_rows(self) -> None:
        """The best f for the current g: row sums of the plan become a."""
        marginals, weight = self.marginals, self.marginals.b * self.v
        if self.kernel.costly:
            self.product, self.column = self.kernel.sweep(
                weight, lambda part, rows: marginals.a[rows] * marginals.row_scaling(part, rows)
            )
        else:
            self.product, self.column = self.kernel.times(weight), None
        self.u = marginals.row_scaling(self.product)

    def _columns(self) -> Tensor:
        """Kᵀ(a u)."""
        if self.column is None:
            self.column = self.kernel.transposed(self.marginals.a * self.u)
        return self.column

    def _newton_step(self, residual: Tensor, tol: float, max_iter: int) -> bool:
        """A damped Newton step on g ↦ max_f dual(f, g); False if it does not ascend."""
        # For given g the best f matches the rows exactly, P1 = a, so the dual becomes a concave
        # function of g alone. Its gradient is b − c with c = Pᵀ1, the columns' residual. When g
        # moves by ε δ, each column of P is scaled by exp(δ_j) and the rows, to be matched again, by
        # exp(−(Pδ)_i / a_i): to first order c changes by S δ with S = diag(c) − Pᵀ diag(1/a) P, the
        # Schur complement of the dual's Hessian. S is positive semidefinite, and its null space has only
        # constants (f + c, g − c is the same plan). If P has groups with almost no mass between them, a
        # constant on each group hardly changes the dual, δ is long, and the step is cut to the range of the
        # kernel. Steps are damped until the dual rises.
        direction = self._newton_direction(residual, tol, max_iter)
        u, v, column, product = self.u, self.v, self.column, self.product
        slope, longest = float(residual @ direction), float(direction.abs().max())
        before = float(self.marginals.dual(u, v))
        if not (math.isfinite(slope) and slope > 0):
            return False
        rounding = 8 * torch.finfo(v.dtype).eps * (1 + abs(before))
        # Nearly separate groups of points give very long steps: they start at the range of the kernel and
        # are halved until the dual rises.
        step = min(1.0, _LOG_RANGE[v.dtype] / 2 / longest)
        for _ in range(_HALVINGS):
            self.v = v * torch.exp(step * direction)
            self._match_rows()
            dual = float(self.marginals.dual(self.u, self.v))
            if dual >= before + 1e-4 * step * slope - rounding:
                return True
            step /= 2
        self.u, self.v, self.column, self.product = u, v, column, product
        return False

    def _newton_direction(self, residual: Tensor, tol: float, max_iter: int) -> Tensor:
        """Solve S δ = residual directly where it is small, else by preconditioned conjugate gradients.

        No library solver is used, because products may run on several ranks and the stopping rule is the
        marginal error, the L1 norm of the residual.
        """
        weight = self.marginals.b * self.v  # P = diag(a u) K diag(weight)
        diagonal, weights = self.marginals.curvature(residual, self.u, self.v)
        if len(residual) <= _SMALL_SYSTEM:
            self.n_iter += 1
            return self._solve_directly(residual, diagonal, weights)
        # no more precise than the requested tolerance
        tolerance = self.marginals.mass * max(min(0.1, math.sqrt(self.error)) * self.error, tol / 3)
        solution, rest = torch.zeros_like(residual), residual
        search = scaled = rest / diagonal
        product = float(rest @ scaled)
        # A direct solve takes about as long as n/8 iterations.
        small = len(residual) <= _DIRECT_SIZE
        for _ in range(len(residual) // 8 if small else _CG_ITERATIONS):
            _, image = self.kernel.sweep(weight * search, lambda part, rows: weights[rows] * part)
            image = diagonal * search - weight * image
            self.n_iter += 1
            curvature = float(search @ image)
            # A direction without curvature is a constant, up to rounding: no step along it.
            if not curvature > 1e-14 * float(search @ (diagonal * search)):
                break
            step = product / curvature
            solution, rest = solution.add(search, alpha=step), rest.sub(image, alpha=step)
            if float(rest.abs().sum()) <= tolerance or self.n_iter >= max_iter:
                return solution
            scaled = rest / diagonal
            product, last = float(rest @ scaled), product
            search = scaled.add(search, alpha=product / last)
        return self._solve_directly(residual, diagonal, weights) if small else solution

    def _solve_directly(self, residual: Tensor, diagonal: Tensor, weights: Tensor) -> Tensor:
        """Solve S δ = residual in float64. The shift regularises the null space of S, the constants."""
        # With D = diag(c), S = D^½ (I − Zᵀ Z) D^½ for Z = diag(weights)^½ K diag(b v) D^-½, whose
        # singular values are at most 1; the constants are the singular vectors of 1.
        root, left = diagonal.double().sqrt(), weights.sqrt()
        right = self.marginals.b * self.v
        matrix = torch.zeros(len(root), len(root), dtype=torch.float64, device=root.device)
        for rows, kernel in self.kernel.pieces():
            scaled = (left[rows, None] * kernel * right).double() / root  # rows of diag(a)^-½ P
            # products of smaller numbers are subnormal, which is ten times slower
            torch.threshold_(scaled, _NO_PRODUCT, 0.0)
            matrix.addmm_(scaled.T, scaled, alpha=-1)
        matrix.diagonal().add_(1 + 1e-12)
        factor, failed = torch.linalg.cholesky_ex(matrix)
        if int(failed):
            return torch.zeros_like(residual)
        solved = torch.cholesky_solve((residual.double() / root)[:, None], factor)[:, 0]
        return (solved / root).to(residual.dtype)

    def _log_step(self, g: Tensor, *, last: bool = True) -> None:
        """A Sinkhorn step in the log domain, which does not underflow; the iteration restarts at its result."""
        marginals, damping = self.marginals, 1 / (1 + self.epsilon / self.marginals.rho)
        ends = self.kernel.softmins(g, marginals.a64, marginals.b64, self.epsilon, damping)
        self.start(*ends, last=last)

    def _widen(self) -> None:
        """Continue in float64, which connects groups of points that float32 cannot."""
        if self.kernel.dtype == torch.float64:
            self._log_step(self.g)
        else:
            potentials = self.potentials()
            self.kernel.release()
            self.kernel = self.cost.kernel(torch.float64)
            self.start(*potentials)
        self._match_rows()
