"""Functionals of a labeled dataset: numbers that a flow decreases (paper, eqs. 9 to 12 and section 4)."""

from advect.functionals.base import Functional, Scaled, Sum
from advect.functionals.interaction import Interaction, Radial, attraction, repulsion, spreading
from advect.functionals.internal import Internal
from advect.functionals.otdd import OTDD
from advect.functionals.potential import Potential, affine_norm, ball, collapse, hinge, norm
from advect.functionals.sliced import SlicedDistance, SlicedOTDD, sliced_otdd

__all__ = [
    "OTDD",
    "Functional",
    "Interaction",
    "Internal",
    "Potential",
    "Radial",
    "Scaled",
    "SlicedDistance",
    "SlicedOTDD",
    "Sum",
    "affine_norm",
    "attraction",
    "ball",
    "collapse",
    "hinge",
    "norm",
    "repulsion",
    "sliced_otdd",
    "spreading",
]
