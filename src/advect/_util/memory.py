"""How much memory is free, and limits of memory as numbers of bytes."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from advect._util.checks import check_positive
from advect.errors import InputError

if TYPE_CHECKING:
    import torch

MemoryLimit = int | float | str | None

_SHARE = 0.5  # of what is free, where no limit is given
_LARGE = 2**26  # bytes below which it is not worth asking the system
_UNITS = {"": 1} | {unit: 1000**power for power, unit in enumerate("kmgt", 1)}
_UNITS |= {f"{unit}i": 1024**power for power, unit in enumerate("kmgt", 1)}
# limit and use of memory in a container: cgroups, two versions
_CONTAINERS = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)


class ScaleWarning(UserWarning):
    """A computation will take long at this size."""


def free_memory(device: torch.device | str | None = None) -> int:
    """Bytes that can be allocated now, on a GPU or in the system and its container."""
    if device is not None and str(device) != "cpu":
        import torch

        if torch.device(device).type == "cuda":
            return int(torch.cuda.mem_get_info(device)[0])
    return min(psutil.virtual_memory().available, *map(_container_room, _CONTAINERS))


def _container_room(files: tuple[str, str]) -> int:
    try:
        limit, used = (int(Path("/sys/fs/cgroup", file).read_text()) for file in files)
    except (OSError, ValueError):  # no container, or no limit ("max")
        return 2**62
    return max(limit - used, 0)


def as_bytes(limit: MemoryLimit, device: torch.device | str | None = None) -> int:
    """A limit in bytes: a number, a text like "2GiB" or "500 MB", or None for half of what is free.

    Example:
        >>> as_bytes("2GiB") == 2 * 2**30, as_bytes("1.5 kB")
        (True, 1500)
    """
    if limit is None:
        return int(_SHARE * free_memory(device))
    if isinstance(limit, str):
        match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([kmgt]?i?)b?\s*", limit.lower())
        if match is None or match[2] not in _UNITS:
            raise InputError(
                "memory_limit must be bytes or '2GiB'",
                repr(limit),
                "Units: kB, MB, GB, KiB, MiB, GiB.",
            )
        limit = float(match[1]) * _UNITS[match[2]]
    return int(check_positive("memory_limit", limit))


def check_room(what: str, size: int, remedy: str, device: torch.device | str | None = None) -> None:
    """Raise an error if an array of so many bytes does not fit into memory."""
    if size > _LARGE and size > (free := free_memory(device)):
        what = f"{what} does not fit into memory: it has {readable(size)}"
        raise InputError(what, f"{readable(free)} free", remedy)


def readable(size: float) -> str:
    """Bytes as text, such as 3.0 GiB."""
    units = ("bytes", "KiB", "MiB", "GiB", "TiB")
    power = min(int(math.log2(max(size, 1)) // 10), len(units) - 1)
    return f"{size / 1024**power:.{min(power, 1)}f} {units[power]}"
