"""The interface of transport solvers, and what they return: the solution of one problem, and the
debiased divergence of three.

    S(a, b) = OT(a, b) − ½ OT(a, a) − ½ OT(b, b) = ⟨a, f − f_aa⟩ + ⟨b, g − g_bb⟩

is zero between equal measures and positive otherwise (Feydy et al. 2019).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self, TypeVar

import torch
from torch import Tensor

from advect._util import check_methods, check_weights
from advect.ot.cost import Cost, as_cost
from advect.ot.plan import DensePlan, Plan

Mass = Tensor | None  # weights; None for equal ones
AnyCost = Cost | Tensor
_NEAR = 1e-3  # share of the mean cost above which measures count as different
Potentials = tuple[Tensor, Tensor]
Start = Potentials | None  # initial potentials
_ROUNDING = 1e-15  # of the value between two measures: a smaller divergence is rounding
RESOLVED = 0.01  # largest error of a divergence, as a share of it


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
        if isinstance(self.coupling, Tensor):  # a matrix is accepted too
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
        f, g = self._left_shares
        return factor * f, factor * g

    @property
    def slopes(self) -> Potentials:
        """The derivative of the value in the weights, up to a constant where their sum is fixed."""
        if self.reach is None:
            return self.potentials
        factor = self.reach**2 + self.epsilon
        f, g = self._left_shares
        return factor * f, factor * g

    def target_marginals(self, a: Tensor, b: Tensor) -> Potentials:
        """The marginals that the plan should have: a and b, or fewer with a reach."""
        if self.reach is None:
            return a, b
        f, g = self._left_shares
        return a * (1 - f), b * (1 - g)

    @property
    def _left_shares(self) -> Potentials:
        """The shares of mass that a reach does not transport, 1 − e^(−f/reach²)."""
        rho = (self.reach or math.inf) ** 2
        f, g = (-torch.expm1(-part / rho) for part in self.potentials)
        return f, g

    def released(self) -> Solution:
        """The same solution, without matrices that the coupling stores only for speed."""
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
        if abs(signed) <= _ROUNDING * abs(self.cross.value):
            signed = 0.0
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


Keep = Callable[[str, Solution], Solution]


class Solver(ABC):
    """Base class of transport solvers.

    A subclass defines ``solve`` and ``solve_self`` (a measure with itself, under a symmetric cost) for
    a ``Cost`` or a matrix. A plain class with these two methods works as a solver too: it always
    receives a matrix and float64 weights that sum to one. See ``advect.testing.check_solver``.

    Attributes:
        dtype: that costs should have; None to follow the data.
        epsilon: the regularisation, a number for a prepared solver; 0 for exact transport.
        reach: distance beyond which mass may stay; None if marginals are met.
        stochastic: whether results depend on random draws. Such a solver uses parts of a cost and never
            needs a whole matrix.

    Example:
        >>> import torch, advect as ad
        >>> class Independent:
        ...     def solve(self, cost, a, b, init=None):
        ...         f = cost.double() @ b
        ...         return ad.ot.Solution(float(a @ f), (f, 0 * b), 0.0, True, 0, 0.0, a[:, None] * b, 1e-9)
        ...     def solve_self(self, cost, a, init=None):
        ...         return self.solve(cost, a, a)
        >>> x = torch.tensor([[0.0], [2.0]])
        >>> between, within = (x - x.T - 4).square() / 2, (x - x.T).square() / 2
        >>> ad.ot.divergence(between, within, within, solver=Independent()).value
        8.0
    """

    dtype: Any = None
    epsilon: Any = 0.0
    reach: Any = None
    stochastic: ClassVar[bool] = False

    @abstractmethod
    def solve(self, cost: AnyCost, a: Mass = None, b: Mass = None, init: Start = None) -> Solution:
        """Transport a to b; potentials ``init`` to start from change the work, not the result."""

    @abstractmethod
    def solve_self(self, cost: AnyCost, a: Mass = None, init: Tensor | None = None) -> Solution:
        """Transport a to itself under a symmetric cost."""

    def prepare(self, cost: AnyCost, a: Tensor, b: Tensor) -> Self:
        """The solver with problem-dependent options made numbers, so that related problems share them."""
        return self

    def certify(
        self, cost: AnyCost, a: Tensor, b: Tensor, potentials: Potentials, slack: float = 0.0
    ) -> Solution | None:
        """These potentials as a solution if they are one up to rounding and ``slack``, else None."""
        return None

    def divergence(
        self,
        make: Callable[[str], Cost],
        a: Tensor,
        b: Tensor,
        *,
        warm: dict[str, Tensor] | None = None,
        target: Solution | None = None,
        keep: Keep | None = None,
    ) -> Divergence:
        """The three problems of a divergence by a prepared solver, one cost at a time.

        Args:
            make: makes the cost of a side ("cross", "source" or "target"), which is freed before the
                next unless a solution needs it.
            a, b: weights that sum to 1.
            warm: potentials "f", "g" and "self" to start from; any may be missing. Without it the
                self-problems come first, and their potentials are tried on the cross problem: for equal
                measures, in any order, they solve it, and the divergence is exactly zero.
            target: the solution within b, if known; with ``warm``.
            keep: what to keep of a solution, given its side; by default all but matrices.
        """
        keep = keep or (lambda side, solution: solution.released())
        if warm is not None:
            start = (warm["f"], warm["g"]) if "f" in warm and "g" in warm else None
            cross = keep("cross", self.solve(make("cross"), a, b, init=start))
            source = keep("source", self.solve_self(make("source"), a, init=warm.get("self")))
            target = target or keep("target", self.solve_self(make("target"), b))
            return Divergence(cross, source, target, (a, b))
        # A cold start solves the self-problems first: their potentials may solve the cross problem.
        cost = make("source")
        gap, source = -cost.mean(a, a) / 2, keep("source", self.solve_self(cost, a))
        cost = make("target")
        gap, target = gap - cost.mean(b, b) / 2, keep("target", self.solve_self(cost, b))
        cost = make("cross")
        mean, certified = cost.mean(a, b), None
        # For equal measures the mean costs of all three problems are the same.
        if abs(gap + mean) <= _NEAR * abs(mean):
            guess = source.potentials[0], target.potentials[0]
            slack = 2 * (source.marginal_error + target.marginal_error)
            certified = self.certify(cost, a, b, guess, slack)
        cross = keep("cross", certified or self.solve(cost, a, b))
        return Divergence(cross, source, target, (a, b), equal=certified is not None)

    def continued(self, epsilon: float | None, tol: float | None, step: int) -> Self:
        """The solver at a later step of a flow: its epsilon and tolerance, if known, and other draws."""
        return self

    def finer_tolerance(self, share: float, epsilon: float, largest: float) -> float | None:
        """This share of the solver's tolerance, for costs up to ``largest``; None if impossible."""
        return None

    def refined(self, cost: AnyCost, a: Tensor, b: Tensor) -> Self:
        """The solver for this problem, as precise as float64 allows."""
        return self


def check_problem(cost: Any, a: Mass, b: Mass) -> tuple[Cost, Tensor, Tensor]:
    """A ``Cost``, and float64 probability weights for its rows and columns."""
    cost, found = cost if isinstance(cost, Cost) else as_cost(cost), []
    for name, weights, n in (("a", a, cost.shape[0]), ("b", b, cost.shape[1])):
        if weights is None:
            weights = torch.full((n,), 1 / n, dtype=torch.float64, device=cost.device)
        elif name == "b" and b is a and found:  # a self-problem
            found.append(found[0])
            continue
        weights = torch.as_tensor(weights).detach().to(device=cost.device, dtype=torch.float64)
        found.append(check_weights(name, weights, n))
    return cost, found[0], found[1]


def check_solver(solver: Any, name: str = "solver") -> Solver:
    """A ``Solver``, or an object with its two methods as one; an error for anything else."""
    if isinstance(solver, Solver):
        return solver
    remedy = "Pass ad.Sinkhorn(), ad.ExactOT(), or an object with solve and solve_self."
    check_methods(f"{name} must be a transport solver", solver, ("solve", "solve_self"), remedy)
    return _Adopted(solver)


@dataclass(frozen=True, repr=False)
class _Adopted(Solver):
    """An object with the two methods; it receives matrices and checked weights."""

    own: Any

    def solve(self, cost: AnyCost, a: Mass = None, b: Mass = None, init: Start = None) -> Solution:
        cost, a, b = check_problem(cost, a, b)
        return self.own.solve(cost.dense(), a, b, init=init)

    def solve_self(self, cost: AnyCost, a: Mass = None, init: Tensor | None = None) -> Solution:
        cost, a, _ = check_problem(cost, a, None)
        return self.own.solve_self(cost.dense(), a, init=init)

    def __repr__(self) -> str:
        return repr(self.own)
