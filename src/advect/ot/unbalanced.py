"""Entropic transport with penalised marginals (Chizat et al. 2018; debiased, Séjourné et al. 2019).

    OT_{ε,ρ}(a, b) = min_P ⟨P, C⟩ + ε KL(P | a ⊗ b) + ρ KL(P1 | a) + ρ KL(Pᵀ1 | b)

with KL(p | q) = Σ p log(p/q) − p + q and ρ = reach². The dual

    D(f, g) = ρ ⟨a, 1 − e^(−f/ρ)⟩ + ρ ⟨b, 1 − e^(−g/ρ)⟩ + ε (1 − m(P))

is strictly concave. At its maximum the plan has the marginals a e^(−f/ρ) and b e^(−g/ρ) that the
potentials ask for, f = ρ/(ρ + ε) T(g), and the value is (2ρ + ε)(1 − m(P)). The duality gap of any
potentials is ρ KL(P1 | a e^(−f/ρ)) + ρ KL(Pᵀ1 | b e^(−g/ρ)).

The iterations are those of ``advect.ot.iteration``, with the Newton system S = diag(q + ε/ρ b e^(−g/ρ))
− ρ/(ρ + ε) Pᵀ diag(1/p) P for marginals p and q. The common drift f + λ, g − λ is removed in closed
form (Séjourné, Vialard and Peyré 2022). Points out of reach, whose share e^(−f/ρ) underflows, keep
the potentials of the last step in the log domain; what that leaves open counts as error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from advect.ot.iteration import Iteration, Potentials, Symmetric
from advect.ot.kernel import Kernel

# what points out of reach leave open, of the error and of the mass, before they are looked at again
_ASTRAY, _NOTHING = 0.1, 1e-15


@dataclass(frozen=True)
class Penalty:
    """ρ KL(P1 | a) in place of P1 = a."""

    rho: float

    def damping(self, epsilon: float) -> float:
        """The factor of a potential T(g)."""
        return self.rho / (self.rho + epsilon)

    def log_mass(self, weights: Tensor, potential: Tensor) -> float:
        """log ⟨a, e^(−f/ρ)⟩."""
        inside = weights > 0
        logs = weights[inside].log() - potential[inside] / self.rho
        return float(torch.logsumexp(logs, dim=0))

    def centred(self, a: Tensor, b: Tensor, f: Tensor, g: Tensor) -> Potentials:
        """The best potentials f + λ, g − λ of a plan: they ask for equal masses on both sides."""
        drift = self.rho / 2 * (self.log_mass(a, f) - self.log_mass(b, g))
        return (f + drift, g - drift) if math.isfinite(drift) else (f, g)

    def lost(self, potential: Tensor) -> Tensor:
        """1 − e^(−f/ρ): the share of a point's mass that is left; negative where mass is created."""
        return -torch.expm1(-potential / self.rho)


class Unbalanced(Iteration):
    """The state of a two-sided solve with penalised marginals."""

    def __init__(
        self, kernel: Kernel, a: Tensor, b: Tensor, epsilon: float, penalty: Penalty
    ) -> None:
        super().__init__(kernel, a, b, epsilon)
        self.penalty = penalty

    @property
    def _power(self) -> float:
        return self.penalty.damping(self.epsilon)

    @property
    def _share(self) -> float:
        return self.epsilon / self.penalty.rho

    def start(self, f: Tensor, g: Tensor, *, last: bool = True) -> None:
        self.f, self.g = f, g = self.penalty.centred(self.a64, self.b64, f, g)
        self.u, self.v, self.column = torch.ones_like(self.a), torch.ones_like(self.b), None
        # shares that the absorbed potentials ask for
        self.rows64, self.columns64 = (torch.exp(-part / self.penalty.rho) for part in (f, g))
        self.rows, self.columns = self.rows64.to(self.a), self.columns64.to(self.b)
        least = 100 * torch.finfo(self.a.dtype).tiny
        self.far = self.rows < least, self.columns < least
        self.astray = torch.zeros((), dtype=self.a.dtype, device=self.a.device)
        self.kernel.fill(f, g, self.epsilon, last=last)

    def _softmins(self, g: Tensor) -> Potentials:
        return self.kernel.softmins(g, self.a64, self.b64, self.epsilon, self._power)

    def _asked(self) -> Tensor:
        """The column sums that the potentials ask for."""
        return self.b * self.columns * self.v.pow(-self._share)

    def _residual(self, column: Tensor) -> Tensor:
        return self._asked() - self.b * self.v * column

    def _size(self, residual: Tensor) -> float:
        numbers = residual.abs().sum(), self.astray, self._asked().sum()
        off, astray, mass = torch.stack(numbers).tolist()
        self.mass = max(mass, torch.finfo(self.b.dtype).tiny)
        if astray > max(_ASTRAY * off, _NOTHING * mass):
            return math.inf  # no step in the kernel domain mends it: one in the log domain does
        return (off + astray) / self.mass

    def _match_columns(self, column: Tensor) -> None:
        self.v = torch.where(self.far[1], self.v, (self.columns / column).pow(self._power))

    def _match_rows(self) -> None:
        weight, far = self.b * self.v, self.far[0]

        def scaling(product: Tensor, rows: slice) -> Tensor:
            found = (self.rows[rows] / product).pow(self._power)
            return torch.where(far[rows], 1.0, found)

        if self.kernel.costly:
            product, self.column = self.kernel.sweep(
                weight, lambda part, rows: self.a[rows] * scaling(part, rows)
            )
        else:
            product, self.column = self.kernel.times(weight), None
        self.u = scaling(product, slice(None))
        # of points out of reach, what the last step in the log domain has left
        self.astray = torch.where(far, self.a * (product - self.rows).abs(), 0.0).sum()

    def _curvature(self, residual: Tensor) -> Potentials:
        asked = self._asked()
        diagonal = asked - residual + self._share * asked
        return diagonal.clamp_min(torch.finfo(asked.dtype).tiny), self._left().square()

    def _left(self) -> Tensor:
        asked = self.rows * self.u.pow(-self._share)
        root = (self._power * self.a / asked).sqrt() * self.u
        return torch.where(self.far[0], 0.0, root)

    def _dual(self) -> Tensor:
        share = self._share
        u, v = (torch.expm1(-share * part.double().log()) for part in (self.u, self.v))
        rows, columns = self.a64 * self.rows64, self.b64 * self.columns64
        return -(1 / share + 1) * (rows @ u) - (columns @ v) / share


class UnbalancedSelf(Symmetric):
    """The fixed point f = ρ/(ρ + ε) T f of a self-problem."""

    def __init__(
        self, kernel: Kernel, a64: Tensor, epsilon: float, init: Tensor | None, penalty: Penalty
    ) -> None:
        self.penalty = penalty
        super().__init__(kernel, a64, epsilon, init)

    def _start(self, f: Tensor) -> None:
        super()._start(f)
        self.rows = torch.exp(-f / self.penalty.rho).to(self.a)

    def _error(self, product: Tensor) -> float:
        asked = self.a * self.rows * self.u.pow(-self.epsilon / self.penalty.rho)
        off, mass = torch.stack(
            [(self.a * self.u * product - asked).abs().sum(), asked.sum()]
        ).tolist()
        return off / mass if mass > 0 else math.inf

    def _halve(self, product: Tensor) -> None:
        power = self.penalty.damping(self.epsilon)
        self.u = (self.u * (self.rows / product).pow(power)).sqrt()


@dataclass(frozen=True)
class Ended:
    """The end of an iteration: potentials, scalings, D(f, g), duality gap, marginal error, mass.

    The potentials are shifted so that plan and potentials agree on the mass, which only raises the
    dual. ``error`` is ‖P1 − a e^(−f/ρ)‖₁ + ‖Pᵀ1 − b e^(−g/ρ)‖₁ as a share of the mass.
    """

    f: Tensor
    g: Tensor
    left: Tensor
    right: Tensor
    value: float
    gap: float
    error: float
    mass: float

    @property
    def off(self) -> float:
        """The marginal error as a mass."""
        return self.error * self.mass


def ended(
    kernel: Kernel,
    masses: Potentials,
    scalings: Potentials,
    potentials: Potentials,
    epsilon: float,
    penalty: Penalty,
) -> Ended:
    """The result of scalings of a filled kernel, by one pass over it."""
    (a, b), rho = masses, penalty.rho
    left, right = (w.to(kernel.dtype) * s for w, s in zip(masses, scalings, strict=True))
    rows, columns = kernel.sweep(right, lambda _, block: left[block])
    p, q = (left * rows).double(), (right * columns).double()
    f, g = penalty.centred(a, b, *potentials)
    mass, asked = float(p.sum()), penalty.log_mass(a, f)
    lift = 0.0
    if mass > 0 and math.isfinite(asked) and math.isfinite(mass):
        # of f + λ/2, g + λ/2 the best: mass and what is asked for are the same
        lift = (asked - math.log(mass)) / (1 / epsilon + 1 / (2 * rho))
        f, g, scale = f + lift / 2, g + lift / 2, math.exp(lift / epsilon)
        p, q, left, mass = scale * p, scale * q, scale * left, scale * mass
    gap = rho * (_kl(p, a, f, rho) + _kl(q, b, g, rho))
    wanted = a * torch.exp(-f / rho), b * torch.exp(-g / rho)
    off = float((p - wanted[0]).abs().sum() + (q - wanted[1]).abs().sum())
    lost = float(a @ penalty.lost(f) + b @ penalty.lost(g))
    value = (rho + epsilon / 2) * lost
    error = off / max(mass, torch.finfo(torch.float64).tiny)
    return Ended(f, g, left, right, value, gap, error, mass)


def _kl(p: Tensor, weights: Tensor, potential: Tensor, rho: float) -> float:
    """KL(p | a e^(−f/ρ)), or a little more: for p = w (1 − r) with a small r, Σ w r²."""
    log_wanted = weights.log() - potential / rho
    wanted = torch.exp(log_wanted)
    part = wanted - p
    ratio = part / wanted.clamp_min(torch.finfo(wanted.dtype).tiny)
    logs = p.clamp_min(torch.finfo(p.dtype).tiny).log() - log_wanted
    exact = torch.where(p > 0, p * logs, 0.0) + part
    return float(torch.where(ratio.abs() < 0.5, part * ratio, exact).sum())
