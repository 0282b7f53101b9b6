"""T_β(ρ) = ½ OTDD²(ρ, β): the debiased distance to a target dataset as a functional (paper, section 4).

    T_β(ρ) = OT_c(ρ, β) − ½ OT_c(ρ, ρ) − ½ OT_c(β, β) ,     c(z, z') = ½(‖x − x'‖² + label_weight W₂²(α_y, α_y'))

With the ½ inside, its velocity in x is T(x) − x for the transport map T (minus the self-transport map when
regularised), so that an explicit Euler step of size τ shrinks an exact distance by the factor 1 − τ.
"""

from __future__ import annotations

import torch
from torch import Tensor

from advect.cost import Bures, GroundCost, PairCost, SquaredEuclidean
from advect.cost.lagged import LaggedBures
from advect.data import LabeledDataset
from advect.errors import InputError
from advect.functionals.base import Functional
from advect.ot import Sinkhorn, Solution, Solver


class OTDD(Functional):
    """The energy ½ OTDD² to a target dataset, with warm starts from one call to the next.

    A relative epsilon is made a number at the first call after ``reset``, so that a whole flow descends one functional.
    The target's problem with itself is solved once. The potentials of the last call start the next one: that changes
    the work and not the result.

    Args:
        target: the dataset to move toward.
        cost: the ground cost; by default full Gaussian label laws, label_weight 1, label distances within 1e-3 of exact
            (``Bures(tolerance=1e-3)``). ``GroundCost(label=NoLabels())`` is the feature-only comparison of the paper.
        solver: ``Sinkhorn(...)`` (default: epsilon 1 % of the mean cost, marginal error 1e-3) or ``ExactOT()``.

    Example:
        >>> import torch, advect as ad
        >>> target = ad.LabeledDataset([[2.0], [3.0]], ["a", "a"])
        >>> energy = ad.OTDD(target, cost=ad.GroundCost(label=ad.NoLabels()), solver=ad.ExactOT())
        >>> energy(ad.LabeledDataset([[0.0], [1.0]], ["b", "b"])).item()
        2.0
    """

    def __init__(self, target: LabeledDataset, *, cost: GroundCost | None = None, solver: Solver | None = None) -> None:
        if not isinstance(target, LabeledDataset):
            raise InputError(
                "target must be a LabeledDataset", type(target).__name__, "Wrap arrays as ad.LabeledDataset(x, y)."
            )
        self.target = target
        self.cost = cost or GroundCost(label=Bures(tolerance=1e-3))
        self.solver: Solver = solver or Sinkhorn(tol=1e-3)
        self.reset()

    def reset(self) -> None:
        self._prepared: Solver | None = None
        self._target_value = 0.0
        self._potentials: dict[str, Tensor] = {}
        self._lags: dict[str, LaggedBures] = {}
        self._lag_states: dict[str, Tensor] = {}

    def state(self) -> dict[str, Tensor]:
        if self._prepared is None:
            return {}
        epsilon = getattr(self._prepared, "epsilon", 0.0)
        numbers = {"epsilon": epsilon, "target_value": self._target_value}
        numbers = {name: torch.tensor(value, dtype=torch.float64) for name, value in numbers.items()}
        lags = {f"lag.{side}.{name}": value for side, lag in self._lags.items() for name, value in lag.state().items()}
        return {**self._potentials, **numbers, **self._lag_states, **lags}  # restored ones, until they are taken up

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.reset()
        if not state:
            return
        self._potentials = {name: state[name] for name in ("f", "g", "self")}
        self._lag_states = {name: value for name, value in state.items() if name.startswith("lag.")}
        self._target_value = float(state["target_value"])
        epsilon = float(state["epsilon"])
        self._prepared = self.solver.with_epsilon(epsilon) if isinstance(self.solver, Sinkhorn) else self.solver

    def __call__(self, rho: LabeledDataset) -> Tensor:
        """½ OTDD² as a float64 number, differentiable in features and laws."""
        dtype = self.solver.dtype or torch.promote_types(rho.x.dtype, self.target.x.dtype)
        cross = self.cost.between(rho, self.target, lag=self._lag("cross", rho, self.target))
        matrix = cross.matrix(dtype)
        solver = self._prepare(matrix, rho, dtype)
        f, g = self._potentials.get("f"), self._potentials.get("g")
        warm = None if f is None or g is None or len(f) != len(rho) else (f, g)
        solved = solver.solve(matrix, rho.weights, self.target.weights, init=warm)
        pulled, value, (f, g) = _pull(cross, solved, matrix), solved.value, solved.potentials
        del matrix, solved, cross  # a solution keeps its cost: let go of it before the next is made
        within = self.cost.between(rho, rho, lag=self._lag("self", rho, rho))
        start = self._potentials.get("self")
        start = None if start is None or len(start) != len(rho) else start
        matrix = within.matrix(dtype)
        alone = solver.solve_self(matrix, rho.weights, init=start)
        pulled = pulled - 0.5 * _pull(within, alone, matrix)
        self._potentials = {"f": f, "g": g, "self": alone.potentials[0]}
        value = value - 0.5 * alone.value - 0.5 * self._target_value
        return value + pulled - pulled.detach()  # the value of the solver, the gradient of the cost (envelope theorem)

    def _lag(self, side: str, rho: LabeledDataset, other: LabeledDataset) -> LaggedBures | None:
        """The memory of label distances on this side, where the cost allows one."""
        label = self.cost.label
        if not isinstance(label, Bures) or label.tolerance is None or label.diagonal or self.cost.label_weight == 0:
            return None
        if rho.law is not None or self.target.law is not None or not isinstance(self.cost.feature, SquaredEuclidean):
            return None
        if side not in self._lags:
            prefix = f"lag.{side}."
            saved = {name.removeprefix(prefix): value for name, value in self._lag_states.items() if name.startswith(prefix)}
            self._lags[side] = LaggedBures(label.tolerance, symmetric=rho is other)
            self._lags[side].load_state(saved)
        return self._lags[side]

    def _prepare(self, matrix: Tensor, rho: LabeledDataset, dtype: torch.dtype) -> Solver:
        if self._prepared is None:
            self._prepared = self.solver.prepare(matrix, rho.weights, self.target.weights)
            target = self.target.replace()  # a copy, so that what its laws keep for later calls goes with it
            own = self.cost.between(target, target).matrix(dtype)
            self._target_value = self._prepared.solve_self(own, self.target.weights).value
        return self._prepared


def _pull(pair: PairCost, solution: Solution, matrix: Tensor) -> Tensor:
    """⟨P, C⟩ with a graph to what moves; zero where nothing does. The plan is written over the cost matrix."""
    if not pair.moves:
        return torch.zeros((), dtype=torch.float64, device=pair.source.x.device)
    return pair.contract(solution.make_plan(matrix)).double()  # a plan of our own: contract may add to it
