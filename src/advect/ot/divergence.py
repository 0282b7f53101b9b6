"""The debiased divergence (Feydy et al. 2019): zero between equal measures, positive otherwise.

S(a, b) = OT(a, b) − ½ OT(a, a) − ½ OT(b, b) = ⟨a, f − f_aa⟩ + ⟨b, g − g_bb⟩
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor

from advect.errors import ConvergenceWarning
from advect.ot.certificate import RESOLVED
from advect.ot.solution import Potentials, Solution

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
    """

    cross: Solution
    source: Solution
    target: Solution
    weights: Potentials
    cost_error: float = 0.0
    equal: bool = False
    contracted: Tensor | None = None

    @property
    def solutions(self) -> tuple[Solution, Solution, Solution]:
        return self.cross, self.source, self.target

    @property
    def signed(self) -> float:
        """S(a, b) as solved, which may be slightly negative."""
        return debiased(*(part.value for part in self.solutions))

    @property
    def value(self) -> float:
        """S(a, b), at least 0; NaN where a solve has failed."""
        return self.signed if math.isnan(self.signed) else max(0.0, self.signed)

    @property
    def loss(self) -> Tensor:
        """``signed`` as a tensor, differentiable where the plans have been contracted."""
        zero = torch.zeros((), dtype=torch.float64, device=self.weights[0].device)
        return envelope(self.signed, zero if self.contracted is None else self.contracted)

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
    def error(self) -> float:
        """A bound of |value − S(a, b)|, from the three solves and the rounding of the costs."""
        cross, source, target = (part.value_error for part in self.solutions)
        return cross + (source + target) / 2 + self.cost_error

    @property
    def sampled(self) -> bool:
        """Whether this is a mean over random mini-batches; ``error`` then refers to that mean."""
        return False

    @property
    def drawn(self) -> float:
        """The share of the source's mass in the mini-batches; 1 without them."""
        return 1.0

    @property
    def standard_error(self) -> float:
        """Standard error over mini-batches; 0 without them."""
        return 0.0

    @property
    def mass_left(self) -> float:
        """The share of the mass that the plan does not transport; 0 without ``reach``."""
        return 1 - self.cross.mass

    @property
    def met(self) -> bool:
        """Whether all three problems met their tolerance."""
        return all(part.converged for part in self.solutions)

    @property
    def converged(self) -> bool:
        """Whether all problems met their tolerance and ``error`` is below 1 % of ``value``."""
        return self.met and (self.equal or self.error <= RESOLVED * self.value)


def warn_unless_converged(solved: Divergence, converged: bool) -> None:
    """Warn if the three problems are solved but their difference is below the error."""
    if not converged and (solved.met or solved.equal):
        warnings.warn(
            f"the divergence is {solved.value:.3e}, known to {solved.error:.1e}: the measures are "
            "too close for this dtype, "
            "tolerance and epsilon. Pass float64 and no tol, a smaller epsilon if it is large "
            "against the costs, or ExactOT.",
            ConvergenceWarning,
            stacklevel=3,
        )
