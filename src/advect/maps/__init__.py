"""Maps for samples that a flow did not see: h with h(x_0) ≈ x_T (paper, section 5.3)."""

from advect.maps.base import Map, load
from advect.maps.entropic import EntropicMap
from advect.maps.flow_matching import FlowMatchingMap
from advect.maps.nearest import NearestMap
from advect.maps.neural import NeuralMap

__all__ = [
    "EntropicMap",
    "FlowMatchingMap",
    "Map",
    "NearestMap",
    "NeuralMap",
    "load",
]
