"""advect moves labeled datasets along gradient flows in probability space.

The public names are listed once, in ``__init__.pyi``, and imported when they are first used, so that
``advect --help`` does not import torch. See README.md for a first look and docs/paper.md for where each
equation lives."""

import lazy_loader as _lazy

__version__ = "0.3.0"

_found, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
_ROOMS = ("apps", "datasets", "distributed", "maps", "ot", "testing", "viz")


def __getattr__(name: str):
    """Import a public name; the error for a name of a subpackage says where it is."""
    if name in __all__ or name.startswith("_"):
        return _found(name)
    rooms = [room for room in _ROOMS if name in dir(_found(room))]
    hint = f"; it is advect.{rooms[0]}.{name}" if rooms else "; dir(advect) lists the public names"
    raise AttributeError(f"module 'advect' has no attribute {name!r}{hint}")
