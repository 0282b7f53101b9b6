"""Datasets by reference: by name, from files, from openml.org, synthetic, or a frame of a recorded
flow.

The names are imported when they are first used: what only looks at files needs no torch."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
