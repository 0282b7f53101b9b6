"""What solvers return: the solution of one problem, and the debiased divergence of three.

    S(a, b) = OT(a, b) − ½ OT(a, a) − ½ OT(b, b) = ⟨a, f − f_aa⟩ + ⟨b, g − g_bb⟩

is zero between equal measures and positive otherwise (Feydy et al. 2019).
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor

from advect.errors import ConvergenceWarning
from advect.ot.plan import DensePlan, Plan

Potentials = tuple[Tensor, Tensor]
RESOLVED = 0.01  # share of a divergence that its error may be


@dataclass(frozen=True, eq=False)
class Solution:
    """A solved transport problem between weights a (n,) and b (m,) under a cost C (n, m).

    Attributes:
        value: ⟨P, C⟩ + epsilon KL(P | a ⊗ b), with epsilon = 0 for exact transport.
        potentials: (f, g), float64, with value = ⟨a, f⟩ + ⟨b, g⟩.
        epsilon: the regularisation, in units of the cost.
        converged: whether ``marginal_error`` met the tolerance and ``value_error`` is small.
        n_iter: iterations used.
        marginal_error: ‖P 1 − a‖₁ + ‖Pᵀ 1 − b‖₁ of the plan.
        coupling: the plan as an operator, ``coupling @ v`` and ``coupling.T @ u``.
        value_error: a bound of the error of ``value``, rounding included; infinite if unknown. Of
            ``MiniBatch``, the error of the mean over the drawn parts.
        reach: that of ``Sinkhorn(reach=…)``, or None. With a reach the value includes the penalties,
            and ``marginal_error`` refers to a e^(−f/reach²), as a share of ``mass``.
        mass: of the plan: 1, or less with a reach.

    Example:
        >>> import torch, advect as ad
        >>> solution = ad.ExactOT().solve(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
        >>> solution.value, solution.plan().tolist()
        (0.0, [[0.5, 0.0], [0.0, 0.5]])
    """

    value: float
    potentials: Potentials
    epsilon: float
    converged: bool
    n_iter: int
    marginal_error: float
    coupling: Plan
    value_error: float = math.inf
    reach: float | None = None
    mass: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.coupling, Tensor):  # a matrix will do
            object.__setattr__(self, "coupling", DensePlan(self.coupling))

    @cached_property
    def _plan(self) -> Tensor:
        return self.coupling.dense()

    def plan(self) -> Tensor:
        """The transport plan P (n, m) as a matrix, computed on first use."""
        return self._plan

    @property
    def parts(self) -> Potentials:
        """What each point adds to the value, (h, k): ⟨a, h⟩ + ⟨b, k⟩ is the value."""
        if self.reach is None:
            return self.potentials
        factor = self.reach**2 + self.epsilon / 2
        f, g = self._lost
        return factor * f, factor * g

    @property
    def slopes(self) -> Potentials:
        """The derivative of the value in the weights, up to a constant where their sum is fixed."""
        if self.reach is None:
            return self.potentials
        factor = self.reach**2 + self.epsilon
        f, g = self._lost
        return factor * f, factor * g

    def asked(self, a: Tensor, b: Tensor) -> Potentials:
        """The marginals that the plan should have: a and b, or fewer with a reach."""
        if self.reach is None:
            return a, b
        f, g = self._lost
        return a * (1 - f), b * (1 - g)

    @property
    def _lost(self) -> Potentials:
        """The shares of points that a reach leaves behind, 1 − e^(−f/reach²)."""
        rho = (self.reach or math.inf) ** 2
        f, g = (-torch.expm1(-part / rho) for part in self.potentials)
        return f, g

    def released(self) -> Solution:
        """The same, without matrices that the coupling stores only to be fast."""
        self.coupling.release()
        return self


SIDES: tuple[str, ...] = ("cross", "source", "target")
Term = TypeVar("Term", float, Tensor)


def debiased(cross: Term, source: Term, target: Term) -> Term:
    """OT(a, b) − ½ OT(a, a) − ½ OT(b, b), for values and everything linear in them."""
    return cross - (source + target) / 2


def envelope(value: float, contracted: Tensor) -> Tensor:
    """The value of a solver with the gradient of ⟨P, C⟩ at its fixed plan P.

    That is the gradient of the value (envelope theorem): nothing is differentiated through iterations.
    """
    contracted = contracted.double()
    return value + (contracted - contracted.detach())


@dataclass(frozen=True, eq=False)
class Divergence:
    """The three solved problems of a divergence.

    Attributes:
        cross, source, target: the solutions between a and b, a and a, b and b.
        weights: a and b.
        cost_error: effect of the rounding of the costs on the value.
        equal: whether the potentials of the self-problems also solve the cross problem, to rounding.
        contracted: ⟨P, C⟩ of the three problems, debiased, with a graph; None if not computed.
        drawn: the share of the source's mass in mini-batches; 1 without them.
        solutions: all three.
        signed: S(a, b) as solved, which may be slightly negative.
        value: S(a, b), at least 0; NaN where a solve has failed.
        error: a bound of |value − S(a, b)|, from the three solves and the rounding of the costs.
        met: whether all three problems met their tolerance.
        converged: whether they did and ``error`` is below 1 % of ``value``.
        sampled: whether this is a mean over random mini-batches; ``error`` then refers to that mean.
    """

    cross: Solution
    source: Solution
    target: Solution
    weights: Potentials
    cost_error: float = 0.0
    equal: bool = False
    contracted: Tensor | None = None
    drawn: float = 1.0
    sampled: bool = False
    solutions: tuple[Solution, Solution, Solution] = field(init=False)
    signed: float = field(init=False)
    value: float = field(init=False)
    error: float = field(init=False)
    met: bool = field(init=False)
    converged: bool = field(init=False)

    def __post_init__(self) -> None:
        solutions = self.cross, self.source, self.target
        signed = self.cross.value - (self.source.value + self.target.value) / 2
        value = signed if math.isnan(signed) else max(0.0, signed)
        cross, source, target = (part.value_error for part in solutions)
        error = cross + (source + target) / 2 + self.cost_error
        met = all(part.converged for part in solutions)
        numbers = {
            "solutions": solutions,
            "signed": signed,
            "value": value,
            "error": error,
            "met": met,
            "converged": met and (self.equal or error <= RESOLVED * value),
        }
        for name, number in numbers.items():
            object.__setattr__(self, name, number)

    @property
    def loss(self) -> Tensor:
        """``signed`` as a tensor, differentiable where the plans have been contracted."""
        contracted = self.weights[0].new_zeros(()) if self.contracted is None else self.contracted
        return envelope(self.signed, contracted)

    @cached_property
    def contributions(self) -> tuple[Tensor, Tensor]:
        """What each point adds to the value: a_i (f_i − f^aa_i) and b_j (g_j − g^bb_j).

        As f + c, g − c is the same solution, the total is split equally between the sides. With a reach
        the solution is unique and each side has its own total.
        """
        (a, b), (f, g) = self.weights, self.cross.parts
        from_source = a * (f - self.source.parts[0])
        from_target = b * (g - self.target.parts[0])
        if self.cross.reach is not None:
            return from_source, from_target
        lead = (from_source.sum() - from_target.sum()) / 2
        return from_source - a * lead / a.sum(), from_target + b * lead / b.sum()

    @property
    def standard_error(self) -> float:
        """Standard error over mini-batches; 0 without them."""
        return 0.0

    @property
    def mass_left(self) -> float:
        """The share of the mass that the plan does not transport; 0 without ``reach``."""
        return 1 - self.cross.mass


def warn_unresolved(solved: Divergence) -> None:
    """Warn if the three problems are solved; their difference is below the error."""
    if solved.met or solved.equal:
        warnings.warn(
            f"the divergence is {solved.value:.3e}, known to {solved.error:.1e}: the measures are "
            "too close for this dtype, "
            "tolerance and epsilon. Pass float64 and no tol, a smaller epsilon if it is large "
            "against the costs, or ExactOT.",
            ConvergenceWarning,
            stacklevel=3,
        )
