"""Optimal transport: a cost and two weight vectors in, a ``Solution`` out.

The solvers are ``advect.Sinkhorn``, ``advect.ExactOT`` and ``advect.MiniBatch``. Here is what a solver
or a cost of your own is made of."""

from advect.ot.cost import Cost
from advect.ot.divergence import divergence
from advect.ot.solver import Solution, Solver

__all__ = ["Cost", "Solution", "Solver", "divergence"]
