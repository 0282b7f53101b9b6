"""Maps that carry samples a flow never saw: h with h(x_0) ≈ x_T, fitted on the particles of a flow
(paper, section 5.3).

Two need no training, ``EntropicMap`` and ``NearestMap``; ``NeuralMap`` is a network. ``load`` reads
what their ``save`` wrote."""

from advect.maps.base import Map, load
from advect.maps.entropic import EntropicMap
from advect.maps.nearest import NearestMap
from advect.maps.neural import NeuralMap

__all__ = ["EntropicMap", "Map", "NearestMap", "NeuralMap", "load"]
