"""advect moves labeled datasets along gradient flows in probability space.

The public names are listed once, in ``__init__.pyi``, and imported when they are first used, so
that ``advect --help`` answers before torch could be loaded. See README.md for a first look and
docs/paper.md for where each equation lives."""

import lazy_loader as _lazy

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
