"""How far an entropic value can be from the optimum, and which dtype is precise enough.

For potentials (f, g) with plan P, concavity of the dual D bounds the gap:

    0 ≤ OT_ε − D(f, g) ≤ ⟨a − P1, f* − f⟩ + ⟨b − Pᵀ1, g* − g⟩ ≤ ½ ‖residual‖₁ · range

and optimal potentials range no further than the cost. Rounding adds to it. With u the unit of the
dtype, exponents (f + g − C)/ε are off by u (|f| + |g| + |C|)/ε, and sums of n terms by about √n u. So
the value loses digits at a large ε, and entries of the plan (and gradients) at a small one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from advect.errors import InputError

# no marginal error above this counts as converged unless a tolerance was given; no entry of a plan
# is off by more
CAP = 1e-3
RESOLVED = 0.01  # share of a divergence that its error may be
_SMALL = 250_000  # entries up to which float32 problems are solved in float64: it costs nothing
_BASE_TOL = {torch.float32: 1e-5, torch.float64: 1e-8}
_LEAST_TOL = {torch.float32: 2e-6, torch.float64: 1e-13}  # what sums of some thousand terms leave


def is_small(shape: tuple[int, ...]) -> bool:
    """Whether a problem is solved in float64 whatever its dtype."""
    return shape[0] * shape[1] <= _SMALL


@dataclass(frozen=True)
class Scale:
    """The size of a problem: rows and columns, least and largest cost, epsilon."""

    shape: tuple[int, int]
    least: float
    most: float
    epsilon: float

    @property
    def largest(self) -> float:
        return max(abs(self.least), abs(self.most))

    def plan_rounding(self, dtype: torch.dtype) -> float:
        """Relative rounding error of the entries of a plan."""
        return 6 * torch.finfo(dtype).eps * self.largest / self.epsilon

    def sums_rounding(self, dtype: torch.dtype) -> float:
        """Relative rounding error of sums over a row or a column."""
        return torch.finfo(dtype).eps / 2 * (8 + math.sqrt(max(self.shape)))

    def enough(self, dtype: torch.dtype) -> bool:
        """Whether this dtype is precise enough for the plan and the value."""
        loose = self.sums_rounding(dtype) * (self.epsilon + self.most - self.least)
        return self.plan_rounding(dtype) <= CAP and loose <= 0.1 * CAP * self.largest

    def arithmetic(self, dtype: torch.dtype, tol: float | None) -> torch.dtype:
        """The dtype to iterate in, for costs in ``dtype``."""
        narrow = (
            self.enough(dtype) and not is_small(self.shape) and (tol or 1.0) >= _LEAST_TOL[dtype]
        )
        return dtype if narrow else torch.float64

    def tolerance(self, cost: torch.dtype, dtype: torch.dtype) -> float:
        """The default marginal error to stop at, for costs in one dtype and iterations in another."""
        return min(CAP, max(_BASE_TOL[cost], torch.finfo(dtype).eps * self.largest / self.epsilon))

    def least_tolerance(self, dtype: torch.dtype) -> float:
        """The smallest marginal error that iterations in this dtype can reach."""
        return min(
            CAP, max(_LEAST_TOL[dtype], torch.finfo(dtype).eps * self.largest / self.epsilon)
        )

    def value_rounding(self, dtype: torch.dtype) -> float:
        """Rounding error of a value in this dtype, before its potentials are known."""
        span = 2 * (self.most - self.least)
        return 6 * torch.finfo(dtype).eps * self.largest + self.sums_rounding(dtype) * (
            span + self.epsilon
        )

    def value_error(
        self,
        dtype: torch.dtype,
        residual: float,
        extremes: Sequence[float],
        *,
        matched: bool = True,
    ) -> float:
        """A bound of |⟨a, f⟩ + ⟨b, g⟩ − OT_ε| from the marginal error and the extremes of f and of g.

        Where rows are not ``matched``, the mass of the plan differs from 1 too.
        """
        if not math.isfinite(residual):
            return math.inf
        range_f, range_g = extremes[1] - extremes[0], extremes[3] - extremes[2]
        sizes = max(map(abs, extremes[:2])) + max(map(abs, extremes[2:])) + self.largest
        span = self.most - self.least + max(range_f, range_g)
        rounding = 2 * torch.finfo(dtype).eps * sizes + self.sums_rounding(dtype) * (
            span + self.epsilon
        )
        return residual * (span / 2 if matched else span + self.epsilon) + rounding

    def gap_error(
        self, dtype: torch.dtype, gap: float, residual: float, rho: float, f: Tensor, g: Tensor
    ) -> float:
        """As ``value_error`` with marginals penalised by ρ, from the duality gap and the marginal error.

        The gap is the smaller bound unless ρ is far above the costs.
        """
        if not (math.isfinite(gap) and math.isfinite(residual)):
            return math.inf
        extremes = torch.stack([*torch.aminmax(f), *torch.aminmax(g)]).tolist()
        ranges = extremes[1] - extremes[0], extremes[3] - extremes[2]
        sizes = max(map(abs, extremes[:2])) + max(map(abs, extremes[2:])) + self.largest
        span, sums = self.most - self.least + max(ranges), self.sums_rounding(dtype)
        left = min(2 * gap + 2 * rho * sums**2, (residual / 2 + sums) * span)
        return left + 2 * torch.finfo(dtype).eps * sizes + sums * self.epsilon

    def objection(self, dtype: torch.dtype, value_error: float, tol: float) -> str | None:
        """Why an answer with this dtype and error is not accepted although its marginals are met."""
        if (rounding := self.plan_rounding(dtype)) > CAP:
            return (
                f"Rounding leaves entries of the plan off by up to {rounding:.0e}: costs up to "
                f"{self.largest:.3g} are too "
                f"large for epsilon {self.epsilon:.3g}. Raise epsilon, or use ExactOT."
            )
        if value_error > 2 * max(tol, CAP) * self.largest > 0:
            return (
                f"The value is known to {value_error:.1e} where costs are no larger than "
                f"{self.largest:.1e}. "
                f"Lower epsilon (now {self.epsilon:.3g}), or tol."
            )
        return None

    def check_epsilon(self) -> None:
        """Raise an error where float64 has no digits of C/ε left."""
        needed = torch.finfo(torch.float64).eps * self.largest
        if self.epsilon < needed:
            raise InputError(
                f"epsilon must be above {needed:.1e}, what float64 can tell apart among costs up "
                f"to {self.largest:.3g}",
                f"{self.epsilon:g}",
                "Raise it, or use ad.ExactOT() for a plan without blur.",
            )
