"""Checks that a class of one's own keeps the promises of its family; for a user's test suite.

Each ``check_…`` tries an object on small problems whose answers are known and raises an
``AssertionError`` that says which promise was broken. The members that advect has pass them too
(tests/conformance). ``Waits`` counts what an accelerator would be waited for. See docs/extending.md
for a class of each family.
"""

from advect.testing.costs import check_cost
from advect.testing.covariances import check_covariance
from advect.testing.functionals import check_functional
from advect.testing.integrators import check_integrator
from advect.testing.kernels import check_kernel
from advect.testing.maps import check_map
from advect.testing.pretend import Waits
from advect.testing.solvers import check_solver

__all__ = [
    "Waits",
    "check_cost",
    "check_covariance",
    "check_functional",
    "check_integrator",
    "check_kernel",
    "check_map",
    "check_solver",
]
