"""Datasets by reference: by name, from files, synthetic, or a recorded frame.

The names are imported on first use, so that listing files does not import torch."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach(
    "advect.io",
    submod_attrs={
        "loading": ["load", "register_format"],
        "named": ["names"],
        "synthetic": ["gaussians", "moons", "rings", "swiss_roll"],
    },
)
