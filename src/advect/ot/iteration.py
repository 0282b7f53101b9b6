"""The iterations of entropic transport, as products with a kernel.

Potentials are float64. Between two absorptions the kernel K = exp((f ⊕ g − C)/ε) is fixed, and a step
is a matrix-vector product on scalings u, v (Schmitzer 2019), far cheaper than a log-sum-exp over C. A
scaling that leaves the safe range is absorbed into the potentials. After an underflow of K, a step in
the log domain recovers. A cold start anneals ε from the size of the cost. Far from the solution the
steps are Sinkhorn's; near it they are Newton's on the concave dual in g. Self-problems use one
potential and f ← (f + T f)/2 (Feydy et al. 2019), whose error at least halves each time.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from advect.ot.kernel import Kernel

Potentials = tuple[Tensor, Tensor]

LOG_RANGE = {torch.float32: 30.0, torch.float64: 200.0}  # scalings beyond exp(±this) are absorbed
_ANNEALING_RATIO, _ANNEALING_TOL, _ANNEALING_ITERATIONS = 0.2, 0.03, 60
# iterations after which a solve that is still far off anneals anew, at this ratio
_RETRIES = ((300, 0.7), (2000, 0.85))
NEAR = 0.2  # marginal error from which Newton steps take over
HALVINGS = 12  # of a Newton step before a Sinkhorn step is taken instead
# a harder Newton system is solved directly if it is not larger than this
CG_ITERATIONS, DIRECT_SIZE = 100, 1024
_CHECK_EVERY = 5  # iterations between two looks at the error on an accelerator


def _check_every(device: torch.device) -> int:
    """Iterations between two reads of the error, each of which waits for an accelerator."""
    return 1 if device.type == "cpu" else _CHECK_EVERY


class Iteration:
    """The state of a two-sided solve: absorbed potentials, kernel, scalings."""

    def __init__(self, kernel: Kernel, a: Tensor, b: Tensor, epsilon: float) -> None:
        self.kernel, self.a64, self.b64, self.epsilon = kernel, a, b, epsilon
        self.a, self.b = a.to(kernel.dtype), b.to(kernel.dtype)
        self.limit = math.exp(LOG_RANGE[kernel.dtype])
        self.n_iter, self.error = 0, math.inf
        self.mass = 1.0  # of the plan, whose share the error is
        self.check_every = _check_every(a.device)
        self.column: Tensor | None = None  # Kᵀ(a u), where a pass gave it along with u

    def start(self, f: Tensor, g: Tensor, *, last: bool = True) -> None:
        """Start at potentials (f, g) with unit scalings. The common drift f + c, g − c is removed."""
        drift = (f.mean() - g.mean()) / 2
        self.f, self.g = f, g = f - drift, g + drift
        self.u, self.v, self.column = torch.ones_like(self.a), torch.ones_like(self.b), None
        self.kernel.fill(f, g, self.epsilon, last=last)

    def solve(self, start: Potentials | None, tol: float, max_iter: int) -> bool:
        """Iterate to a marginal error below ``tol``, from given potentials or from a cold start."""
        if start is None:
            self.anneal(max_iter)
        else:
            self.start(*start)
        for patience, ratio in _RETRIES:
            if self.run(tol, min(patience, max_iter)) or self.n_iter >= max_iter:
                return self.error <= tol
            if self.error > _ANNEALING_TOL:
                self.anneal(max_iter, ratio)
        return self.run(tol, max_iter)

    def anneal(self, max_iter: int, ratio: float = _ANNEALING_RATIO) -> None:
        """Solve loosely for a decreasing sequence of epsilons, for a good start at the last."""
        final = self.epsilon
        g = torch.zeros_like(self.b64)
        self.epsilon = max(self.kernel.most(), final)
        while True:
            f, g = self._softmins(g)
            self.n_iter += 1
            self.start(f, g, last=self.epsilon == final)
            if self.epsilon == final:
                return
            if self.n_iter < max_iter:
                self.run(_ANNEALING_TOL, min(self.n_iter + _ANNEALING_ITERATIONS, max_iter))
            g = self.potentials()[1]
            self.epsilon = max(self.epsilon * ratio, final)

    def run(self, tol: float, max_iter: int) -> bool:
        """Iterate until the marginal error is below ``tol``. Rows are matched exactly throughout."""
        self._match_rows()
        previous = math.inf
        while True:
            self.n_iter += 1
            column = self._column_product()
            residual = self._residual(column)
            previous = self.error if math.isfinite(self.error) else previous
            self.error = self._size(residual)
            if self.error <= tol or self.n_iter >= max_iter:
                return self.error <= tol
            if not math.isfinite(self.error):
                self._recover()
                continue
            if self.error > NEAR and self.error < 0.8 * previous:
                self._match_columns(column)
                self._match_rows()
                for _ in range(self.check_every - 1):
                    self.n_iter += 1
                    self._match_columns(self._column_product())
                    self._match_rows()
            elif not self._newton_step(residual, tol, max_iter):
                self._widen()  # the kernel has lost sight of some group of points
            sizes = [self.u.max(), self.v.max(), 1 / self.u.min(), 1 / self.v.min()]
            largest = float(torch.stack(sizes).max())  # one wait for the device
            if not math.isfinite(largest):
                self._recover()
            elif largest > self.limit:
                self.start(*self.potentials())
                self._match_rows()

    def _column_product(self) -> Tensor:
        """Kᵀ(a u)."""
        return self.kernel.transposed(self.a * self.u) if self.column is None else self.column

    def _softmins(self, g: Tensor) -> Potentials:
        """A step in the log domain."""
        return self.kernel.softmins(g, self.a64, self.b64, self.epsilon)

    def _residual(self, column: Tensor) -> Tensor:
        """The gradient of the dual in g: b − Pᵀ1."""
        return self.b - self.b * self.v * column

    def _size(self, residual: Tensor) -> float:
        """The marginal error when rows are matched."""
        return float(residual.abs().sum())

    def _match_columns(self, column: Tensor) -> None:
        """The best g for the current f."""
        self.v = 1 / column

    def _match_rows(self) -> None:
        """The best f for the current g: row sums of the plan become a."""
        weight = self.b * self.v
        if self.kernel.costly:
            product, self.column = self.kernel.sweep(weight, lambda part, rows: self.a[rows] / part)
        else:
            product, self.column = self.kernel.times(weight), None
        self.u = 1 / product

    def _newton_step(self, residual: Tensor, tol: float, max_iter: int) -> bool:
        """A damped Newton step on g ↦ max_f dual(f, g); False if it does not ascend."""
        # For given g the best f matches the rows exactly, P1 = a, so the dual becomes a concave
        # function of g alone. Its gradient is b − c with c = Pᵀ1, the columns' residual. When g
        # moves by ε δ, each column of P is scaled by exp(δ_j) and the rows, to be matched again, by
        # exp(−(Pδ)_i / a_i): to first order c changes by S δ with S = diag(c) − Pᵀ diag(1/a) P, the
        # Schur complement of the dual's Hessian. S is positive semidefinite and blind to constants
        # alone (f + c, g − c is the same plan), unless P falls into groups that hardly exchange
        # mass: then a constant on each group costs next to nothing, δ is long, and the step is cut
        # to what the range of the kernel can hold. Steps are damped until the dual rises.
        direction = self._solve_newton_system(residual, tol, max_iter)
        u, v, column = self.u, self.v, self.column
        numbers = (residual @ direction).double(), direction.abs().max().double(), self._dual()
        slope, longest, before = torch.stack(numbers).tolist()  # one wait for the device
        if not (math.isfinite(slope) and slope > 0):
            return False
        rounding = 8 * torch.finfo(v.dtype).eps * (1 + abs(before))
        # Nearly separate groups of points ask for very long steps: go as far as the kernel's range
        # allows, then look back.
        step = min(1.0, LOG_RANGE[v.dtype] / 2 / longest)
        for _ in range(HALVINGS):
            self.v = v * torch.exp(step * direction)
            self._match_rows()
            if float(self._dual()) >= before + 1e-4 * step * slope - rounding:
                return True
            step /= 2
        self.u, self.v, self.column = u, v, column
        return False

    def _solve_newton_system(self, residual: Tensor, tol: float, max_iter: int) -> Tensor:
        """Preconditioned conjugate gradients, or a direct solve where they need too many iterations.

        Not a library's: the products may be on several ranks, and the L1 residual is the marginal error.
        """
        weight = self.b * self.v  # P = diag(a u) K diag(weight)
        diagonal, squared = self._curvature(residual)
        # no closer than what is asked for
        tolerance = self.mass * max(min(0.1, math.sqrt(self.error)) * self.error, tol / 3)
        solution, rest = torch.zeros_like(residual), residual
        search = scaled = rest / diagonal
        product = rest @ scaled
        for iteration in range(1, CG_ITERATIONS + 1):
            _, image = self.kernel.sweep(weight * search, lambda part, rows: squared[rows] * part)
            image = diagonal * search - weight * image
            self.n_iter += 1
            curvature = search @ image
            # A direction without curvature is a constant, up to rounding: no step along it.
            curved = curvature > 1e-14 * (search @ (diagonal * search))
            step = torch.where(curved, product / curvature, 0.0)
            solution, rest = solution + step * search, rest - step * image
            if iteration % self.check_every == 0:
                ends, left = torch.stack([~curved, rest.abs().sum()]).tolist()
                if ends:
                    break
                if left <= tolerance or self.n_iter >= max_iter:
                    return solution
            scaled = rest / diagonal
            product, last = rest @ scaled, product
            search = scaled + (product / last) * search
        small = len(residual) <= DIRECT_SIZE
        return self._solve_directly(residual, diagonal) if small else solution

    def _curvature(self, residual: Tensor) -> Potentials:
        """The diagonal of S, and the weights between K and its transpose."""
        return self.b - residual, self.a * self.u.square()

    def _left(self) -> Tensor:
        """The root of the weights between K and its transpose."""
        return self.a.sqrt() * self.u

    def _solve_directly(self, residual: Tensor, diagonal: Tensor) -> Tensor:
        """Solve S δ = residual in float64. The shift stands for the constants that S ignores."""
        root = diagonal.double().sqrt()
        matrix = self._newton_matrix(root)
        factor, failed = torch.linalg.cholesky_ex(matrix)
        if int(failed):
            return torch.zeros_like(residual)
        solved = torch.cholesky_solve((residual.double() / root)[:, None], factor)[:, 0]
        return (solved / root).to(residual.dtype)

    def _newton_matrix(self, root: Tensor) -> Tensor:
        """S scaled to a unit diagonal, with the shift."""
        left, right = self._left(), self.b * self.v
        matrix = torch.zeros(len(root), len(root), dtype=torch.float64, device=root.device)
        for rows, kernel in self.kernel.pieces():
            scaled = (left[rows, None] * kernel * right).double() / root  # rows of diag(a)^-½ P
            matrix.addmm_(scaled.T, scaled, alpha=-1)
        matrix.diagonal().add_(1 + 1e-12)
        return matrix

    def _dual(self) -> Tensor:
        """The dual value in units of ε, up to the absorbed part."""
        return self.a64 @ self.u.double().log() + self.b64 @ self.v.double().log()

    def _widen(self) -> None:
        """Continue in float64, which connects groups of points that float32 cannot."""
        if self.kernel.dtype == torch.float64:
            self._recover()
            return
        f, g = self.potentials()
        self.a, self.b, self.kernel = self.a64, self.b64, self.kernel.widened()
        self.limit = math.exp(LOG_RANGE[torch.float64])
        self.start(f, g)
        self._match_rows()

    def _recover(self) -> None:
        """After an underflow: one step in the log domain from the last absorbed potentials."""
        self.start(*self._softmins(self.g))
        self._match_rows()

    def potentials(self) -> Potentials:
        u, v = (self.epsilon * part.double().log() for part in (self.u, self.v))
        return self.f + u, self.g + v


class Symmetric:
    """The fixed point f = T f of a self-problem; a zero diagonal keeps rows of K away from zero."""

    def __init__(self, kernel: Kernel, a64: Tensor, epsilon: float, init: Tensor | None) -> None:
        self.kernel, self.a64, self.epsilon = kernel, a64, epsilon
        self.a, self.check_every = a64.to(kernel.dtype), _check_every(a64.device)
        self._start(torch.zeros_like(a64) if init is None else init.to(a64))

    def _start(self, f: Tensor) -> None:
        self.f, self.u = f, torch.ones_like(self.a)
        self.kernel.fill(f, f, self.epsilon)

    def run(self, tol: float, max_iter: int) -> tuple[Tensor, int, float]:
        """Potential, iterations and marginal error. Stops at rounding, when the error no longer halves."""
        best, error, stalled, n_iter = math.inf, math.inf, 0, 0
        while n_iter < max_iter:
            n_iter += 1
            product = self.kernel.times(self.a * self.u)
            error = self._error(product)
            if not math.isfinite(error):  # a start far from the solution: begin again from zero
                self._start(torch.zeros_like(self.a64))
                continue
            stalled = 0 if error < 0.9 * best else stalled + 1
            best = min(best, error)
            if error <= tol or stalled >= 4:
                break
            self._halve(product)
            for _ in range(self.check_every - 1):
                n_iter += 1
                self._halve(self.kernel.times(self.a * self.u))
        return self.f + self.epsilon * self.u.double().log(), n_iter, error

    def _error(self, product: Tensor) -> float:
        """The marginal error of one side."""
        return float((self.a * (self.u * product - 1).abs()).sum())

    def _halve(self, product: Tensor) -> None:
        """The averaged update."""
        self.u = (self.u / product).sqrt()


def ending(a: Tensor, b: Tensor, f: Tensor, g: Tensor) -> list[float]:
    """The value ⟨a, f⟩ + ⟨b, g⟩ and the extremes of f and of g, in one transfer."""
    parts = [a @ f + b @ g, *torch.aminmax(f), *torch.aminmax(g)]
    return torch.stack([part.double() for part in parts]).tolist()
