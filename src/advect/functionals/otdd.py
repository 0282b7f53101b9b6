"""T_β(ρ) = ½ OTDD²(ρ, β): the debiased distance to a target dataset as a functional (paper, section 4).

    T_β(ρ) = OT_c(ρ, β) − ½ OT_c(ρ, ρ) − ½ OT_c(β, β) ,     c(z, z') = ½(‖x − x'‖² + label_weight W₂²(α_y, α_y'))

With the ½ inside, its velocity in x is T(x) − x for the transport map T (minus the self-transport
map when regularised), so that an explicit Euler step of size τ shrinks an exact distance by the
factor 1 − τ."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from advect._util import MemoryLimit, as_bytes, check_kind, defaults
from advect.cost import GroundCost, cost_for
from advect.data.dataset import LabeledDataset
from advect.functionals.base import Functional, State
from advect.ot import Sinkhorn, Solver, check_solver
from advect.ot.ranks import Group
from advect.transport.ranks import ShardedTransport
from advect.transport.transport import Transport, check_dataset


class OTDD(Functional):
    """The energy ½ OTDD² to a target dataset, with warm starts from one step of a flow to the next.

    A relative epsilon becomes a number at the first step, so that a whole flow descends one
    functional. The problem of the target with itself is solved once. The potentials of one step start
    the next, which changes the work and not the result. The state that ``terms`` takes and returns
    holds all of this; a single call starts without it.

    Costs are computed in the dtype of the data. They are computed in float64 where that dtype has too
    few digits for the plan (a small epsilon) or for the remaining energy. The tolerance of a
    ``Sinkhorn`` decreases where its error could exceed a tenth of the energy: near the target, a
    fixed tolerance would give values and velocities that are mostly error. "error" in the returned
    state bounds the distance of the value from the exact energy.

    Args:
        target: the dataset to move toward.
        cost: the ground cost; by default full Gaussian label laws, label_weight 1, and
            ``TargetValues`` for continuous targets. Label distances are recomputed at each step.
            ``GroundCost(label=NoLabels())`` is the feature-only comparison of the paper.
        solver: ``Sinkhorn(...)`` (default: epsilon 1 % of the mean cost, marginal error 1e-3),
            ``ExactOT()``, or for many samples ``MiniBatch(...)``, with new draws at each step.
        memory_limit: bytes, or a text like "2GiB", that a step may use in addition to the datasets;
            by default half of the free memory, divided among the ranks of a machine. Matrices that do
            not fit are computed in blocks of rows.
        group: the ranks of ``ad.distributed.group()``, for one flow on several processes or
            machines (docs/large-data.md). Every rank calls the functional with the same dataset, holds
            its rows of every matrix, and gets the same number with the whole gradient. The solver
            must be a ``Sinkhorn``. Checkpoints do not depend on the ranks.

    Example:
        >>> import torch, advect as ad
        >>> target = ad.LabeledDataset([[2.0], [3.0]], ["a", "a"])
        >>> energy = ad.OTDD(target, cost=ad.GroundCost(label=ad.NoLabels()), solver=ad.ExactOT())
        >>> energy(ad.LabeledDataset([[0.0], [1.0]], ["b", "b"])).item()
        2.0
    """

    target: LabeledDataset

    def __init__(
        self,
        target: LabeledDataset,
        *,
        cost: GroundCost | None = None,
        solver: Solver | None = None,
        memory_limit: MemoryLimit = None,
        group: Group | None = None,
    ) -> None:
        self.target, self._by_default = check_dataset("target", target), cost is None
        solver = check_solver(solver or Sinkhorn(tol=defaults.LOOK.tol))
        as_bytes(memory_limit)  # an error at once for a wrong limit
        ground = cost_for(cost, target)
        self.stochastic, self.curved = solver.stochastic, not ground.feature_cost.linear
        self.transport = Transport(ground, solver, memory_limit)
        if group is not None:
            check_kind(
                "a sharded flow needs a Sinkhorn solver",
                solver,
                Sinkhorn,
                "Pass ad.Sinkhorn(epsilon=…).",
            )
            self.transport = ShardedTransport(ground, solver, memory_limit, group)

    @property
    def cost(self) -> GroundCost:
        return self.transport.cost

    @property
    def solver(self) -> Solver:
        return self.transport.solver

    @property
    def options(self) -> dict[str, Any]:
        return {"cost": self.cost, "solver": self.solver}

    def begin(self, rho: LabeledDataset) -> State:
        if self._by_default:
            cost_for(None, rho, self.target)  # an error if only one has continuous targets
        return self.transport.begin(rho, self.target)

    def terms(self, rho: LabeledDataset, state: State) -> tuple[dict[str, Tensor], State]:
        """½ OTDD² as a float64 number, differentiable in features and laws."""
        divergence, state = self.transport(rho, self.target, state)
        return {self.name: divergence.loss}, state
