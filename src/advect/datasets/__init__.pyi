"""The names of this room, and where each is."""

from .embedded import digits, mnist
from .loading import Content, Source, load, register_format
from .named import Available, names
from .synthetic import gaussians, moons, rings, swiss_roll

__all__ = [
    "Available",
    "Content",
    "Source",
    "digits",
    "gaussians",
    "load",
    "mnist",
    "moons",
    "names",
    "register_format",
    "rings",
    "swiss_roll",
]
