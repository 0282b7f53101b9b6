"""Optimal-transport solvers: a cost matrix and two weight vectors in, a ``Solution`` out."""

from advect.ot.blocks import BlockedCost, DenseCost, as_cost
from advect.ot.cost import Cost
from advect.ot.divergence import Divergence
from advect.ot.epsilon import Relative
from advect.ot.exact import ExactOT
from advect.ot.kernel import Kernel
from advect.ot.minibatch import BatchDivergence, MiniBatch
from advect.ot.nystrom import NystromSinkhorn
from advect.ot.plan import DensePlan, Plan
from advect.ot.sharded import ShardedCost
from advect.ot.sinkhorn import Sinkhorn
from advect.ot.solution import Solution, check_problem
from advect.ot.solver import Solver, check_solver, divergence
from advect.ot.streams import Stream, StreamedKernel, TorchStream, register_stream

__all__ = [
    "BatchDivergence",
    "BlockedCost",
    "Cost",
    "DenseCost",
    "DensePlan",
    "Divergence",
    "ExactOT",
    "Kernel",
    "MiniBatch",
    "NystromSinkhorn",
    "Plan",
    "Relative",
    "ShardedCost",
    "Sinkhorn",
    "Solution",
    "Solver",
    "Stream",
    "StreamedKernel",
    "TorchStream",
    "as_cost",
    "check_problem",
    "check_solver",
    "divergence",
    "register_stream",
]
