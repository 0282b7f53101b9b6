"""The dual of entropic transport: the conditions on the marginals, and the certificate of a solution.

``Balanced`` meets the marginals, P1 = a and Pᵀ1 = b. ``Penalised`` penalises deviations (Chizat et al.
2018; debiased, Séjourné et al. 2019):

    OT_{ε,ρ}(a, b) = min_P ⟨P, C⟩ + ε KL(P | a ⊗ b) + ρ KL(P1 | a) + ρ KL(Pᵀ1 | b)

with KL(p | q) = Σ p log(p/q) − p + q and ρ = reach². The dual

    D(f, g) = ρ ⟨a, 1 − e^(−f/ρ)⟩ + ρ ⟨b, 1 − e^(−g/ρ)⟩ + ε (1 − m(P))

is strictly concave. At its maximum the plan has the marginals a e^(−f/ρ) and b e^(−g/ρ) that the potentials
imply, f = ρ/(ρ + ε) T(g), and the value is (2ρ + ε)(1 − m(P)). The duality gap of any potentials is ρ KL(P1
| a e^(−f/ρ)) + ρ KL(Pᵀ1 | b e^(−g/ρ)). Both are the proximal steps of one loop (``advect.ot.iteration``).

The certificate of a solution, ``certificate``, bounds the gap of a balanced dual by concavity:

    0 ≤ OT_ε − D(f, g) ≤ ⟨a − P1, f* − f⟩ + ⟨b − Pᵀ1, g* − g⟩ ≤ ½ ‖residual‖₁ · range

and the range of optimal potentials is at most that of the cost. Rounding adds to it. With u the unit of the
dtype, exponents (f + g − C)/ε are off by u (|f| + |g| + |C|)/ε, and sums of n terms by about √n u. So
the value loses digits at a large ε, and entries of the plan (and gradients) at a small one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from advect.errors import InputError
from advect.ot.kernel import Kernel

Potentials = tuple[Tensor, Tensor]

# the largest marginal error that counts as converged if no tolerance was given, and the largest relative
# error of entries of a plan
CAP = 1e-3
_BASE_TOL = {torch.float32: 1e-5, torch.float64: 1e-8}
_LEAST_TOL = {torch.float32: 2e-6, torch.float64: 1e-13}  # rounding of sums of some thousand terms
# largest error of points out of reach, as a share of the error and of the mass, before they are updated
_ASTRAY, _NOTHING = 0.1, 1e-15


@dataclass(frozen=True)
class Scale:
    """The size of a problem: rows and columns, least and largest cost, epsilon.

    Attributes:
        largest: the largest absolute cost.
    """

    shape: tuple[int, int]
    least: float
    most: float
    epsilon: float
    largest: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "largest", max(abs(self.least), abs(self.most)))
        needed = torch.finfo(torch.float64).eps * self.largest
        if self.epsilon < needed:
            raise InputError(
                f"epsilon must be above {needed:.1e}, the resolution of float64 for costs up "
                f"to {self.largest:.3g}",
                f"{self.epsilon:g}",
                "Raise it, or use ad.ExactOT() for exact transport.",
            )

    def sums_rounding(self, dtype: torch.dtype) -> float:
        """Relative rounding error of sums over a row or a column."""
        return torch.finfo(dtype).eps / 2 * (8 + math.sqrt(max(self.shape)))

    def suffices(self, dtype: torch.dtype, tol: float | None = None) -> bool:
        """Whether this dtype is precise enough for the plan, the value and a tolerance."""
        plan_rounding = 6 * torch.finfo(dtype).eps * self.largest / self.epsilon
        loose = self.sums_rounding(dtype) * (self.epsilon + self.most - self.least)
        coarse = plan_rounding > CAP or loose > 0.1 * CAP * self.largest
        return not coarse and (tol is None or tol >= _LEAST_TOL[dtype])

    def tolerance(self, dtype: torch.dtype, cost: torch.dtype | None = None) -> float:
        """The default marginal error to stop at, for costs in a dtype and iterations in another; the
        smallest that iterations can reach, without that of the costs.
        """
        base = _LEAST_TOL[dtype] if cost is None else _BASE_TOL[cost]
        return min(CAP, max(base, torch.finfo(dtype).eps * self.largest / self.epsilon))

    def value_error(
        self,
        dtype: torch.dtype,
        residual: float,
        extremes: Sequence[float],
        *,
        matched: bool = True,
    ) -> float:
        """A bound of |⟨a, f⟩ + ⟨b, g⟩ − OT_ε| from the marginal error and the extremes of f and of g.

        Where rows are not ``matched``, the mass of the plan differs from 1 too. Without a residual, and
        with the extremes of the cost, it is the rounding before potentials are known.
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

    def failure_reason(self, dtype: torch.dtype, value_error: float, tol: float) -> str | None:
        """Why a solution with this dtype and error is not accepted although its marginals are met."""
        rounding = 6 * torch.finfo(dtype).eps * self.largest / self.epsilon
        if rounding > CAP:
            return (
                f"The relative rounding error of the plan may be {rounding:.0e}: costs up to "
                f"{self.largest:.3g} are too "
                f"large for epsilon {self.epsilon:.3g}. Raise epsilon, or use ExactOT."
            )
        if value_error > 2 * max(tol, CAP) * self.largest > 0:
            return (
                f"The error of the value may be {value_error:.1e}, while costs are at most "
                f"{self.largest:.1e}. "
                f"Lower epsilon (now {self.epsilon:.3g}), or tol."
            )
        return None


@dataclass(frozen=True)
class Certificate:
    """The end of a solve: potentials, factors of the plan, value with a bound of its error, marginal
    error as a share of the mass, and mass.
    """

    potentials: Potentials
    factors: Potentials
    value: float
    value_error: float
    marginal_error: float
    mass: float = 1.0


@dataclass(eq=False)
class Balanced:
    """P1 = a and Pᵀ1 = b.

    Attributes:
        a64, b64: the weights.  a, b: the same in the dtype of the kernel.
        rho: the penalty weight ρ, ∞ for marginals that are met. In the log domain a potential is T(g) times
            ρ/(ρ + ε).
        mass: of the plan, of which the marginal error is a share.
    """

    a64: Tensor
    b64: Tensor
    rho: float = math.inf
    mass: float = field(default=1.0, init=False)

    def absorb(self, f: Tensor, g: Tensor, epsilon: float, dtype: torch.dtype) -> Potentials:
        """Start from potentials with unit scalings. Returns them without the drift f + c, g − c."""
        self.a, self.b = self.a64.to(dtype), self.b64.to(dtype)
        drift = (f.mean() - g.mean()) / 2
        return f - drift, g + drift

    def row_scaling(self, product: Tensor, rows: slice = slice(None)) -> Tensor:
        """The best u for K(b v) at these rows."""
        return product.reciprocal()

    def column_scaling(self, product: Tensor, v: Tensor) -> Tensor:
        """The best v for Kᵀ(a u)."""
        return product.reciprocal()

    def residual(self, v: Tensor, column: Tensor, product: Tensor) -> tuple[Tensor, float]:
        """The gradient of the dual in g, b − Pᵀ1, and the marginal error when rows are matched.

        ``column`` is Kᵀ(a u), and ``product`` is K(b v) of the last match of the rows.
        """
        residual = torch.addcmul(self.b, self.b * v, column, value=-1)
        return residual, float(torch.linalg.vector_norm(residual, 1))

    def curvature(self, residual: Tensor, u: Tensor, v: Tensor) -> Potentials:
        """The diagonal of the Newton matrix S, and the weights between K and its transpose."""
        return self.b - residual, self.a * u.square()

    def dual(self, u: Tensor, v: Tensor) -> Tensor:
        """The dual value in units of ε, up to the absorbed part."""
        return self.a64 @ u.double().log() + self.b64 @ v.double().log()

    def unit_error(self, kernel: Kernel, allowed: float) -> float | None:
        """The marginal error of unit scalings if it is allowed, else None at the first bad block."""
        rows, sums = 0.0, torch.zeros_like(self.b)
        for block, part in kernel.pieces():
            rows += float((self.a[block] * (part @ self.b - 1).abs()).sum())
            if not rows <= allowed:
                return None
            sums += part.T @ self.a[block]
        return rows + float((self.b * (sums - 1).abs()).sum())

    def certificate(
        self,
        kernel: Kernel,
        scalings: Potentials,
        potentials: Potentials,
        scale: Scale,
        residual: float,
        *,
        matched: bool = True,
    ) -> Certificate:
        """The result of scalings of a filled kernel; ``matched`` if its rows are met exactly."""
        # Rows are met by construction, so the dual value is ⟨a, f⟩ + ⟨b, g⟩, in float64, and the
        # residual of the columns bounds the duality gap.
        (f, g), (u, v) = potentials, scalings
        parts = [self.a64 @ f + self.b64 @ g, *torch.aminmax(f), *torch.aminmax(g)]
        value, *extremes = torch.stack([part.double() for part in parts]).tolist()
        error = scale.value_error(kernel.dtype, residual, extremes, matched=matched)
        return Certificate(potentials, (self.a * u, self.b * v), value, error, residual)


@dataclass(eq=False)
class Penalised(Balanced):
    """ρ KL(P1 | a) and ρ KL(Pᵀ1 | b) in place of the constraints.

    The common drift f + λ, g − λ is removed in closed form (Séjourné, Vialard and Peyré 2022). Points
    out of reach, whose share e^(−f/ρ) underflows, keep the potentials of the last step in the log
    domain; the difference counts as error.
    """

    def absorb(self, f: Tensor, g: Tensor, epsilon: float, dtype: torch.dtype) -> Potentials:
        self.a, self.b = self.a64.to(dtype), self.b64.to(dtype)
        self.power, self.share = self.rho / (self.rho + epsilon), epsilon / self.rho
        f, g = self._centred(f, g)
        # shares of the marginals that the absorbed potentials imply
        self.rows64, self.columns64 = (torch.exp(-part / self.rho) for part in (f, g))
        self.rows, self.columns = self.rows64.to(dtype), self.columns64.to(dtype)
        least = 100 * torch.finfo(dtype).tiny
        self.far = self.rows < least, self.columns < least
        return f, g

    def row_scaling(self, product: Tensor, rows: slice = slice(None)) -> Tensor:
        return torch.where(self.far[0][rows], 1.0, (self.rows[rows] / product).pow(self.power))

    def column_scaling(self, product: Tensor, v: Tensor) -> Tensor:
        return torch.where(self.far[1], v, (self.columns / product).pow(self.power))

    def _column_sums(self, v: Tensor) -> Tensor:
        """The column sums that the potentials imply."""
        return self.b * self.columns * v.pow(-self.share)

    def residual(self, v: Tensor, column: Tensor, product: Tensor) -> tuple[Tensor, float]:
        implied = self._column_sums(v)
        residual = implied - self.b * v * column
        # error of points out of reach since the last step in the log domain
        astray = torch.where(self.far[0], self.a * (product - self.rows).abs(), 0.0).sum()
        off, astray, mass = torch.stack([residual.abs().sum(), astray, implied.sum()]).tolist()
        self.mass = max(mass, torch.finfo(self.b.dtype).tiny)
        if astray > max(_ASTRAY * off, _NOTHING * mass):
            return residual, math.inf  # one step in the log domain corrects it
        return residual, (off + astray) / self.mass

    def curvature(self, residual: Tensor, u: Tensor, v: Tensor) -> Potentials:
        # S = diag(q + ε/ρ b e^(−g/ρ)) − ρ/(ρ + ε) Pᵀ diag(1/p) P for marginals p and q
        implied = self._column_sums(v)
        diagonal = implied - residual + self.share * implied
        weights = self.power * self.a / (self.rows * u.pow(-self.share)) * u.square()
        least = torch.finfo(implied.dtype).tiny
        return diagonal.clamp_min(least), torch.where(self.far[0], 0.0, weights)

    def dual(self, u: Tensor, v: Tensor) -> Tensor:
        first, second = (torch.expm1(-self.share * part.double().log()) for part in (u, v))
        rows, columns = self.a64 * self.rows64, self.b64 * self.columns64
        return -(1 / self.share + 1) * (rows @ first) - (columns @ second) / self.share

    def unit_error(self, kernel: Kernel, allowed: float) -> float | None:
        return 0.0  # ``certificate`` measures it

    def certificate(
        self,
        kernel: Kernel,
        scalings: Potentials,
        potentials: Potentials,
        scale: Scale,
        residual: float,
        *,
        matched: bool = True,
    ) -> Certificate:
        """As ``Balanced.certificate``, by one pass over the kernel.

        The potentials are shifted so that plan and potentials agree on the mass, which only raises the
        dual. The marginal error is ‖P1 − a e^(−f/ρ)‖₁ + ‖Pᵀ1 − b e^(−g/ρ)‖₁ as a share of the mass.
        """
        # One pass over the kernel gives both marginals p = P1 and q = Pᵀ1 of the plan.
        a, b, rho, epsilon = self.a64, self.b64, self.rho, scale.epsilon
        left, right = self.a * scalings[0], self.b * scalings[1]
        rows, columns = kernel.sweep(right, lambda _, block: left[block])
        p, q = (left * rows).double(), (right * columns).double()
        f, g = self._centred(*potentials)
        mass, implied = float(p.sum()), self._log_mass(a, f)
        if mass > 0 and math.isfinite(implied) and math.isfinite(mass):
            # the best of f + λ/2, g + λ/2: the mass is the one that the potentials imply
            lift = (implied - math.log(mass)) / (1 / epsilon + 1 / (2 * rho))
            f, g, factor = f + lift / 2, g + lift / 2, math.exp(lift / epsilon)
            p, q, left, mass = factor * p, factor * q, factor * left, factor * mass
        # duality gap: ρ KL(p | a e^(−f/ρ)) + ρ KL(q | b e^(−g/ρ))
        gap = rho * (_divergence(p, a, f, rho) + _divergence(q, b, g, rho))
        wanted = a * torch.exp(-f / rho), b * torch.exp(-g / rho)
        off = float((p - wanted[0]).abs().sum() + (q - wanted[1]).abs().sum())
        lost = float(a @ -torch.expm1(-f / rho) + b @ -torch.expm1(-g / rho))
        marginal = off / max(mass, torch.finfo(torch.float64).tiny)
        error = scale.gap_error(kernel.dtype, gap, marginal * mass, rho, f, g)
        return Certificate((f, g), (left, right), (rho + epsilon / 2) * lost, error, marginal, mass)

    def _log_mass(self, weights: Tensor, potential: Tensor) -> float:
        """log ⟨a, e^(−f/ρ)⟩."""
        inside = weights > 0
        return float(torch.logsumexp(weights[inside].log() - potential[inside] / self.rho, dim=0))

    def _centred(self, f: Tensor, g: Tensor) -> Potentials:
        """The best potentials f + λ, g − λ of a plan: they imply equal masses on both sides."""
        drift = self.rho / 2 * (self._log_mass(self.a64, f) - self._log_mass(self.b64, g))
        return (f + drift, g - drift) if math.isfinite(drift) else (f, g)


def _divergence(p: Tensor, weights: Tensor, potential: Tensor, rho: float) -> float:
    """KL(p | a e^(−f/ρ)), or a little more: for p = w (1 − r) with a small r, Σ w r²."""
    log_wanted = weights.log() - potential / rho
    wanted = torch.exp(log_wanted)
    part = wanted - p
    ratio = part / wanted.clamp_min(torch.finfo(wanted.dtype).tiny)
    logs = p.clamp_min(torch.finfo(p.dtype).tiny).log() - log_wanted
    exact = torch.where(p > 0, p * logs, 0.0) + part
    return float(torch.where(ratio.abs() < 0.5, part * ratio, exact).sum())
