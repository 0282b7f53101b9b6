"""What a file of tensors says about itself, without torch: for those who only look.

A safetensors file begins with the length of its header and the header as JSON: kind, shape and
place of each tensor. The checksum is the one that ``advect.data.store`` writes."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

ENTRY = "advect"  # of the header, where checksum and facts stand
_KINDS = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}


def stored_facts(path: Path) -> dict[str, Any] | None:
    """The facts of a file that advect wrote, if it is whole; None for any other.

    Example:
        >>> stored_facts(Path("no-such-file")) is None
        True
    """
    try:
        content = path.read_bytes()
        start = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:start])
        metadata = header.pop("__metadata__")
        whole = ENTRY in metadata  # older files have a checksum of the numbers alone
        if whole:
            checksum, _, text = metadata[ENTRY].partition(" ")
        else:
            checksum, text = metadata["checksum"], metadata["facts"]
        total = zlib.crc32(text.encode()) if whole else 0
        for name in sorted(header):
            about = header[name]
            kind, shape = _KINDS[about["dtype"]], tuple(about["shape"])
            first, last = (start + place for place in about["data_offsets"])
            total = zlib.crc32(f"{name} torch.{kind} {shape}".encode(), total) if whole else total
            total = zlib.crc32(content[first:last], total)
        facts = json.loads(text)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return facts if f"{total:08x}" == checksum and type(facts) is dict else None
