"""Optimal transport: a cost and two weight vectors in, a ``Solution`` out.

The solvers are ``advect.Sinkhorn``, ``advect.ExactOT`` and ``advect.MiniBatch``. This module has the parts
of user-defined solvers and costs."""

from advect.ot.divergence import divergence
from advect.ot.exact import ExactOT as ExactOT
from advect.ot.sinkhorn import Relative as Relative, Sinkhorn as Sinkhorn
from advect.ot.solver import Solution, Solver, check_solver as check_solver

__all__ = ["Solution", "Solver", "divergence"]
