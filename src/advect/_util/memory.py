"""How much memory a computation may take, and how much it would: decided before it starts.

A transport problem between n and m samples needs n × m matrices. Where they do not fit a limit,
solvers work in blocks of rows that are computed anew (``advect.ot.blocks``); here is what they ask.
"""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import torch

from advect.errors import InputError

MemoryLimit = int | float | str | None

_SHARE = 0.5  # of what is free, unless told otherwise
_LARGE = 2**26  # bytes below which it is not worth asking the system
_UNITS = {
    "": 1,
    "k": 1000,
    "m": 1000**2,
    "g": 1000**3,
    "t": 1000**4,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}


class ScaleWarning(UserWarning):
    """A computation that will take long at this size; the message says how long, and what is
    faster.

    Example:
        >>> issubclass(ScaleWarning, UserWarning)
        True
    """


def free_memory(device: torch.device | str | None = None) -> int:
    """Bytes that can be allocated now: on a GPU what the driver reports, else what the system and
    the container leave.

    Example:
        >>> free_memory() > 0
        True
    """
    device = torch.device("cpu" if device is None else device)
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    free = _container_room()
    try:
        fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        return min(free, int(fields["MemAvailable"].split()[0]) * 1024)
    except (OSError, KeyError, ValueError):  # not Linux
        return min(free, _physical_memory())


def _container_room() -> int:
    root = Path("/sys/fs/cgroup")
    try:
        return int((root / "memory.max").read_text()) - int((root / "memory.current").read_text())
    except (OSError, ValueError):  # no container, or no limit ("max")
        return 2**62


def _physical_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 8 * 2**30


def as_bytes(limit: MemoryLimit, device: torch.device | str | None = None) -> int:
    """A limit as a number of bytes: a number, a text like "2GiB" or "500 MB", or None for half of
    what is free.

    Example:
        >>> as_bytes("2GiB") == 2 * 2**30, as_bytes("1.5 kB")
        (True, 1500)
    """
    if limit is None:
        return int(_SHARE * free_memory(device))
    if isinstance(limit, str):
        found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([kmgt]?i?)b?\s*", limit.lower())
        if found is None or found[2] not in _UNITS:
            raise InputError(
                "memory_limit must be bytes or a text like '2GiB'",
                repr(limit),
                "Units: kB, MB, GB, KiB, MiB, GiB.",
            )
        limit = float(found[1]) * _UNITS[found[2]]
    if (
        isinstance(limit, bool)
        or not isinstance(limit, (int, float))
        or not 0 < limit < float("inf")
    ):
        raise InputError(
            "memory_limit must be a positive number of bytes",
            repr(limit),
            "Pass 2 * 2**30, '2GiB' or None.",
        )
    return int(limit)


def check_room(what: str, size: int, remedy: str, device: torch.device | str | None = None) -> None:
    """An error before an array of so many bytes is made that memory cannot hold.

    Example:
        >>> try:
        ...     check_room("the plan", 2**60, "Use products with it.")
        ... except InputError as error:
        ...     print(error.what, error.remedy)
        the plan does not fit into memory: it has 1048576.0 TiB Use products with it.
    """
    if size > _LARGE and size > (free := free_memory(device)):
        raise InputError(
            f"{what} does not fit into memory: it has {readable(size)}",
            f"{readable(free)} free",
            remedy,
        )


def readable(size: float) -> str:
    """Bytes in words.

    Example:
        >>> readable(3 * 2**30), readable(2000)
        ('3.0 GiB', '2.0 KiB')
    """
    units = ("bytes", "KiB", "MiB", "GiB", "TiB")
    power = min(int(math.log2(max(size, 1)) // 10), len(units) - 1)
    return f"{size / 1024**power:.{min(power, 1)}f} {units[power]}"
