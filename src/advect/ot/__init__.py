"""Optimal transport: a cost and two weight vectors in, a ``Solution`` out.

The solvers are ``advect.Sinkhorn``, ``advect.ExactOT`` and ``advect.MiniBatch``. This module has the parts
of user-defined solvers and costs."""

from advect.ot.cost import (
    BlockedCost as BlockedCost,
    Cost as Cost,
    DenseCost as DenseCost,
    Rows as Rows,
)
from advect.ot.divergence import divergence, solve_divergence as solve_divergence
from advect.ot.exact import ExactOT as ExactOT
from advect.ot.plan import DensePlan as DensePlan, Index as Index, NoPlan as NoPlan, Plan as Plan
from advect.ot.sinkhorn import Relative as Relative, Sinkhorn as Sinkhorn
from advect.ot.solver import (
    SIDES as SIDES,
    Divergence as Divergence,
    Solution,
    Solver,
    check_solver as check_solver,
    debiased as debiased,
    envelope as envelope,
)

__all__ = ["Solution", "Solver", "divergence"]
