"""The debiased divergence (Feydy et al. 2019): zero between equal measures, positive otherwise.

S(a, b) = OT(a, b) − ½ OT(a, a) − ½ OT(b, b) = ⟨a, f − f_aa⟩ + ⟨b, g − g_bb⟩

Here are the sum of three solves and its gradient for every use: distances, flows, the inner
problems of a label cost, parts that are drawn at random. The solves are ``Solver.divergence``."""

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
    """OT(a, b) − ½ OT(a, a) − ½ OT(b, b): of values, and of whatever is linear in them."""
    return cross - (source + target) / 2


def envelope(value: float, contracted: Tensor) -> Tensor:
    """The value of a solver with the gradient of ⟨P, C⟩ at its plan P, which is held fixed.

    At an optimal plan that is the gradient of the value (envelope theorem): what a change of the
    plan would add vanishes to first order, so nothing is differentiated through iterations."""
    contracted = contracted.double()
    return value + (contracted - contracted.detach())


@dataclass(frozen=True, eq=False)
class Divergence:
    """The three solved problems behind a divergence.

    Attributes:
        cross, source, target: the solutions between a and b, a and a, b and b.
        weights: a and b.
        cost_error: how far entries of the costs can be off, as far as the value feels it.
        equal: whether the potentials of the self-problems solve the problem between a and b, to
            rounding.
        contracted: ⟨P, C⟩ of the three problems, debiased, with a graph to what moves; None where
            the plans have not been contracted.

    Example:
        >>> import torch, advect as ad
        >>> x = torch.linspace(0, 1, 30)[:, None]
        >>> cost = (x - x.T).square() / 2
        >>> ad.ot.divergence(cost, cost, cost, solver=ad.Sinkhorn(epsilon=0.01)).value
        0.0
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
        """S(a, b) as the solves give it: their errors can leave it below 0."""
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
        """How much each point adds to the value: a_i (f_i − f^aa_i) and b_j (g_j − g^bb_j).

        f + c and g − c are the same solution: the total is shared equally between the two sides.
        With a reach there is one solution, and each side has its own (``Solution.parts``).
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
        """How far ``value`` can be from S(a, b): what the three problems state, and what the costs
        are off by.
        """
        cross, source, target = (part.value_error for part in self.solutions)
        return cross + (source + target) / 2 + self.cost_error

    @property
    def sampled(self) -> bool:
        """Whether it is a mean over random parts of the samples, and not of the whole: ``error`` is
        that of this mean then.
        """
        return False

    @property
    def drawn(self) -> float:
        """The share of the source's mass that took part: 1 unless parts are drawn at random."""
        return 1.0

    @property
    def standard_error(self) -> float:
        """Of the value, where parts are drawn at random; 0 where they are not."""
        return 0.0

    @property
    def mass_left(self) -> float:
        """The share of the mass that the plan between a and b leaves behind: 0 without a reach."""
        return 1 - self.cross.mass

    @property
    def met(self) -> bool:
        """Whether all three problems met their tolerance."""
        return all(part.converged for part in self.solutions)

    @property
    def converged(self) -> bool:
        """Whether all three problems met their tolerance, and ``error`` is below 1 % of ``value``
        (or they are ``equal``).
        """
        return self.met and (self.equal or self.error <= RESOLVED * self.value)


def warn_unless_converged(solved: Divergence, converged: bool) -> None:
    """A word where the problems are solved and their difference is still not known: the solver has
    warned of the rest.

    A solver that only looks at the potentials it is given (``equal``) warns of nothing.
    """
    if not converged and (solved.met or solved.equal):
        warnings.warn(
            f"the divergence is {solved.value:.3e}, known to {solved.error:.1e}: the measures are "
            "too close for this dtype, "
            "tolerance and epsilon. Pass float64 and no tol, a smaller epsilon if it is large "
            "against the costs, or ExactOT.",
            ConvergenceWarning,
            stacklevel=3,
        )
