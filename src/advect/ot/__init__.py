"""Optimal-transport solvers: a cost matrix and two weight vectors in, a ``Solution`` out."""

from advect.ot.blocks import BlockedCost
from advect.ot.divergence import Divergence, divergence
from advect.ot.exact import ExactOT
from advect.ot.minibatch import BatchDivergence, MiniBatch
from advect.ot.nystrom import NystromSinkhorn
from advect.ot.sinkhorn import Relative, Sinkhorn
from advect.ot.solution import Plan, Solution, Solver

__all__ = [
    "BatchDivergence",
    "BlockedCost",
    "Divergence",
    "ExactOT",
    "MiniBatch",
    "NystromSinkhorn",
    "Plan",
    "Relative",
    "Sinkhorn",
    "Solution",
    "Solver",
    "divergence",
]
