"""Maps that carry samples a flow never saw: h with h(x_0) ≈ x_T, fitted on the particles of a flow
(paper, section 5.3).

Three need no training, ``EntropicMap``, ``GaussianMap`` and ``NearestMap``; ``NeuralMap`` is a
network, and so is the velocity of ``FlowMatchingMap``, which learns from two datasets without a flow.
``load`` reads what their ``save`` wrote."""

from advect.maps.base import Map, load
from advect.maps.entropic import EntropicMap
from advect.maps.flow_matching import FlowMatchingMap
from advect.maps.gaussian import GaussianMap
from advect.maps.nearest import NearestMap
from advect.maps.neural import NeuralMap

__all__ = [
    "EntropicMap",
    "FlowMatchingMap",
    "GaussianMap",
    "Map",
    "NearestMap",
    "NeuralMap",
    "load",
]
