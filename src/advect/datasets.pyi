from advect.io.loading import load, register_format
from advect.io.named import names
from advect.io.synthetic import gaussians, moons, rings, swiss_roll

__all__ = [
    "gaussians",
    "load",
    "moons",
    "names",
    "register_format",
    "rings",
    "swiss_roll",
]
