"""Entropic transport with a kernel of low rank: time and memory linear in n (Altschuler et al.
2019).

    exp(−C_ij/ε) ≈ T[y_i, y_j] · ⟨L_i, R_j⟩ ,     T = exp(−label cost/ε)   (k × k')

The Gaussian kernel of the features is factored through ``rank`` landmarks (Nyström); the labels
enter by their table, exactly, whatever label cost it comes from: a product with the kernel sums
over classes first, mixes them by T, and is done."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from advect._util.checks import check_count, check_positive
from advect.errors import ConvergenceWarning, InputError
from advect.ot.cost import Points
from advect.ot.epsilon import Entropic, Relative, check_epsilon
from advect.ot.plan import ScaledPlan
from advect.ot.solution import AnyCost, Mass, Solution, Start, check_problem

_CHECK_EVERY = 10  # iterations between two looks at the error
_SAMPLE = 256  # rows on which the kernel is compared with the exact one


@dataclass(frozen=True)
class NystromSinkhorn(Entropic):
    """Sinkhorn with a low-rank kernel, in float64.

    For an epsilon that is not small against the cost: at a few percent of the mean cost in many
    dimensions the kernel is nearly the identity matrix, which no low rank comes near. What is
    reported is honest about it: ``marginal_error`` is that under the *exact* kernel, estimated on
    some hundred rows of each side, and ``converged`` asks that it is below ``kernel_tol``.
    ``value_error``, and with it ``Distance.error``, is an estimate from those rows, to second
    order: it is the size of the error to expect, and no bound.

    Args:
        rank: landmarks, drawn from both datasets.
        epsilon: regularisation in units of the cost, or ``Relative(share)`` of the mean cost.
        tol: stop when the L1 error of the marginals under the approximate kernel is below this.
        kernel_tol: marginal error under the exact kernel that counts as converged.
        max_iter: iterations allowed.
        seed: of the landmarks.

    Example:
        >>> import torch, advect as ad
        >>> generator = torch.Generator().manual_seed(0)
        >>> source = ad.datasets.gaussians(300, generator=generator)
        >>> target = ad.datasets.gaussians(300, shift=(2.0, 0.0), generator=generator)
        >>> fast, exact = (solver(epsilon=ad.Relative(0.3)) for solver in (ad.NystromSinkhorn, ad.Sinkhorn))
        >>> fast, exact = (ad.otdd(source, target, solver=solver) for solver in (fast, exact))
        >>> fast.converged, abs(fast.value / exact.value - 1) < 1e-3
        (True, True)
    """

    rank: int = 200
    epsilon: float | Relative = Relative(0.3)
    tol: float = 1e-6
    kernel_tol: float = 0.02
    max_iter: int = 2000
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value in (("tol", self.tol), ("kernel_tol", self.kernel_tol)):
            check_positive(name, value)
        check_epsilon(self.epsilon)
        for name, value in (("rank", self.rank), ("max_iter", self.max_iter)):
            check_count(name, value)

    @property
    def in_blocks(self) -> bool:
        """Costs are wanted as what makes their rows: points and a table."""
        return True

    def solve(self, cost: AnyCost, a: Mass = None, b: Mass = None, init: Start = None) -> Solution:
        """Transport ``a`` to ``b``; ``init`` are potentials to start from."""
        kernel, a, b, epsilon = self._open(cost, a, b)
        v = torch.ones_like(b) if init is None else torch.exp(init[1].to(b) / epsilon)
        u, error, n_iter = torch.ones_like(a), math.inf, 0
        while n_iter < self.max_iter and error > self.tol:
            u = _inverse(kernel.times(b * v), a)
            column = kernel.transposed(a * u)
            if n_iter % _CHECK_EVERY == 0:
                error = float((b * (v * column - 1).abs()).sum())
            if not math.isfinite(error):
                break
            v, n_iter = _inverse(column, b), n_iter + 1
        u = _inverse(kernel.times(b * v), a)
        return self._solution(kernel, a, b, u, v, epsilon, error, n_iter)

    def solve_self(self, cost: AnyCost, a: Mass = None, init: Tensor | None = None) -> Solution:
        """Transport ``a`` to itself: one potential, the averaged update."""
        kernel, a, _, epsilon = self._open(cost, a, None)
        u = torch.ones_like(a) if init is None else torch.exp(init.to(a) / epsilon)
        error, n_iter = math.inf, 0
        while n_iter < self.max_iter:
            product = kernel.times(a * u)
            if n_iter % _CHECK_EVERY == 0:
                error = float((a * (u * product - 1).abs()).sum())
                if error <= self.tol or not math.isfinite(error):
                    break
            u, n_iter = (u * _inverse(product, a)).sqrt(), n_iter + 1
        return self._solution(kernel, a, a, u, u, epsilon, error, n_iter)

    def _open(self, cost: AnyCost, a: Mass, b: Mass) -> tuple[LowRankKernel, Tensor, Tensor, float]:
        cost, a, b = check_problem(cost, a, b)
        if cost.points is None:
            raise InputError(
                "NystromSinkhorn needs features whose cost is a squared distance",
                "a matrix, or a feature cost of one's own",
                "Use it in ad.otdd or ad.OTDD with SquaredEuclidean, Embedding or Sketch.",
            )
        epsilon = self.prepare(cost, a, b).regularisation
        generator = torch.Generator().manual_seed(self.seed)
        kernel = LowRankKernel(cost.points, epsilon, self.rank, generator, (a > 0, b > 0))
        return kernel, a, b, epsilon

    def _solution(
        self,
        kernel: LowRankKernel,
        a: Tensor,
        b: Tensor,
        u: Tensor,
        v: Tensor,
        epsilon: float,
        error: float,
        n_iter: int,
    ) -> Solution:
        if not (math.isfinite(error) and bool((u > 0).all()) and bool((v > 0).all())):
            # failed: no number is right
            u, v, error = torch.full_like(u, math.nan), torch.full_like(v, math.nan), math.inf
        f, g = epsilon * u.log(), epsilon * v.log()
        true_error = kernel.exact_error(a, b, f, g, self.seed) if math.isfinite(error) else math.inf
        converged = error <= self.tol and true_error <= self.kernel_tol
        # To first order another kernel changes the value by ε (mass − 1), to second by residual²
        # times the range of costs.
        value_error = (error + true_error) * (epsilon + (error + true_error) * kernel.reach())
        if not converged:
            warnings.warn(
                f"a kernel of rank {self.rank} leaves a marginal error of {true_error:.1e} under "
                f"the exact kernel (asked for: {self.kernel_tol:.0e}; under its own, {error:.1e} "
                f"after {n_iter} iterations). Raise epsilon (now {epsilon:.3g}), rank or max_iter, "
                "or use MiniBatch.",
                ConvergenceWarning,
                stacklevel=3,
            )
        plan, value = ScaledPlan(kernel, a * u, b * v), float(a @ f + b @ g)
        stated = max(true_error, error)
        return Solution(value, (f, g), epsilon, converged, n_iter, stated, plan, value_error)


class LowRankKernel:
    """T[y_i, y_j] ⟨L_i, R_j⟩ with products linear in the number of samples, in float64."""

    def __init__(
        self,
        rows: Points,
        epsilon: float,
        rank: int,
        generator: torch.Generator,
        present: tuple[Tensor, Tensor],
    ) -> None:
        self.rows, self.epsilon, self.dtype = rows, epsilon, torch.float64
        x, y, labels = rows.x, rows.y, rows.labels
        self.shape = (len(x), len(y))
        if labels is None:
            self.codes = (x.new_zeros(len(x)).long(), x.new_zeros(len(y)).long())
            self.mixing = x.new_ones(1, 1, dtype=torch.float64)
        else:
            self.codes = labels.codes
            self.mixing = torch.exp(-labels.values.double() / epsilon)  # (k, k')
        # landmarks are points with mass
        pool = x[present[0]] if y is x else torch.cat([x[present[0]], y[present[1]]])
        chosen = torch.randperm(len(pool), generator=generator)[:rank].to(x.device)
        marks = pool[chosen].double()
        values, vectors = torch.linalg.eigh(_gaussian(marks, marks, epsilon))
        kept = values > 1e-12 * values[-1]
        root = vectors[:, kept] / values[kept].sqrt()
        self.left = _factor(x, marks, root, epsilon)
        self.right = self.left if y is x else _factor(y, marks, root, epsilon)

    @property
    def costly(self) -> bool:
        return False

    @property
    def cost_dtype(self) -> torch.dtype:
        return self.rows.x.dtype

    def times(self, v: Tensor) -> Tensor:
        if v.ndim > 1 and self._by_pieces(v.shape[1]):
            return torch.cat([block @ v for _, block in self.pieces()])
        return self._product(self.left, self.right, self.codes, self.mixing, v)

    def transposed(self, u: Tensor) -> Tensor:
        if u.ndim > 1 and self._by_pieces(u.shape[1]):
            return sum(
                (block.T @ u[rows] for rows, block in self.pieces()),
                start=u.new_zeros(self.shape[1], u.shape[1]),
            )
        codes = (self.codes[1], self.codes[0])
        return self._product(self.right, self.left, codes, self.mixing.T, u)

    def _by_pieces(self, width: int) -> bool:
        """Whether mixing sums over laws would be more work than the matrix, some rows at a time: a
        law for each sample.
        """
        rank = self.left.shape[1]
        return self.mixing.numel() * rank * width > self.shape[0] * self.shape[1] * (rank + width)

    @staticmethod
    def _product(
        left: Tensor, right: Tensor, codes: tuple[Tensor, Tensor], mixing: Tensor, v: Tensor
    ) -> Tensor:
        if v.ndim == 1:
            sums = right.new_zeros(mixing.shape[1], right.shape[1])
            sums.index_add_(0, codes[1], right * v[:, None])
            return torch.linalg.vecdot(left, (mixing @ sums)[codes[0]])
        laws = range(mixing.shape[1])
        sums = torch.stack([right[codes[1] == c].T @ v[codes[1] == c] for c in laws])  # (k', r, p)
        mixed = torch.einsum("kc,crp->krp", mixing, sums)
        out = v.new_empty(len(left), v.shape[1])
        for c in range(mixing.shape[0]):
            out[codes[0] == c] = left[codes[0] == c] @ mixed[c]
        return out

    def pieces(self) -> Iterator[tuple[slice, Tensor]]:
        """(rows, kernel at these rows)."""
        step = max(1, 4_000_000 // self.shape[1])
        for start in range(0, self.shape[0], step):
            block = slice(start, min(start + step, self.shape[0]))
            mixing = self.mixing[self.codes[0][block]][:, self.codes[1]]
            yield block, (self.left[block] @ self.right.T) * mixing

    def exact_error(self, a: Tensor, b: Tensor, f: Tensor, g: Tensor, seed: int) -> float:
        """‖P 1 − a‖₁ + ‖Pᵀ 1 − b‖₁ of the plan that these potentials have under the exact kernel,
        from some of its rows.
        """
        generator = torch.Generator().manual_seed(seed + 1)
        total = 0.0
        rows, labels = self.rows, self.rows.labels
        table = None if labels is None else labels.values.double()
        sides = (
            (rows.x, rows.y, self.codes, table, a, b, f, g),
            (rows.y, rows.x, self.codes[::-1], None if table is None else table.T, b, a, g, f),
        )
        for x, y, codes, costs, own, other, mine, theirs in sides:
            picked = torch.randperm(len(x), generator=generator)[:_SAMPLE].to(x.device)
            cost = _half_squared(x[picked], y).double()
            if costs is not None:
                cost = cost + costs[codes[0][picked]][:, codes[1]]
            exponents = (mine[picked, None] + theirs - cost) / self.epsilon + other.log()
            sums = torch.exp(exponents).sum(dim=1)
            weights = own[picked] / own[picked].sum().clamp_min(1e-300)
            total += float((weights * (sums - 1).abs()).sum())
        return total

    def reach(self) -> float:
        """A bound of the costs: no two points are further apart than both are from the origin,
        which is their centre.
        """
        sides = (self.rows.x, self.rows.y)
        lengths = (float(torch.linalg.vector_norm(part, dim=1).max()) for part in sides)
        table = 0.0 if self.rows.labels is None else float(self.rows.labels.values.max())
        return sum(lengths) ** 2 / 2 + table

    def release(self) -> None:
        """The factors are small: kept."""


def _half_squared(x: Tensor, y: Tensor) -> Tensor:
    norms = x.square().sum(dim=1)[:, None] + y.square().sum(dim=1)
    return (norms / 2 - x @ y.T).clamp_min(0)


def _gaussian(x: Tensor, y: Tensor, epsilon: float) -> Tensor:
    return torch.exp(-_half_squared(x, y) / epsilon)


def _factor(points: Tensor, marks: Tensor, root: Tensor, epsilon: float) -> Tensor:
    parts = (part.double() for part in points.split(4096))
    return torch.cat([_gaussian(part, marks, epsilon) @ root for part in parts])


def _inverse(values: Tensor, mass: Tensor) -> Tensor:
    """1 / values; an approximate kernel may have rows that are not positive, which end the
    iteration as NaN.

    Points without mass do not count, however far from all others they are.
    """
    return torch.where(mass > 0, torch.where(values > 0, 1 / values, math.nan), 1.0)
