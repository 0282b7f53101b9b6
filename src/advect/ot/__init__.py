"""Optimal-transport solvers: a cost matrix and two weight vectors in, a ``Solution`` out."""

from advect.ot.divergence import Divergence, divergence
from advect.ot.exact import ExactOT
from advect.ot.sinkhorn import Relative, Sinkhorn
from advect.ot.solution import Solution, Solver

__all__ = ["Divergence", "ExactOT", "Relative", "Sinkhorn", "Solution", "Solver", "divergence"]
