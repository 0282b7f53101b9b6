"""Checks for user-defined classes, to be called in a test suite; see docs/extending.md.

Each ``check_…`` runs an object on small problems with known answers, and raises an ``AssertionError``
that says which promise is broken.
"""

from advect.testing.checks import (
    check_cost,
    check_functional,
    check_integrator,
    check_map,
    check_solver,
)

__all__ = [
    "check_cost",
    "check_functional",
    "check_integrator",
    "check_map",
    "check_solver",
]
