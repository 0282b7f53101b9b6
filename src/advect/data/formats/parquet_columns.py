"""What a Parquet file says of its columns, and of itself where it is one of our own."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from advect._util.checks import needed
from advect.data.formats.guard import damaged
from advect.data.formats.kinds import Column, Table
from advect.data.formats.names import unpack_name

KIND = "a Parquet file"
META = b"advect"


@dataclass(frozen=True)
class ParquetColumn:
    """A column: numbers, lists of numbers with these lengths, or text with these values."""

    name: str
    dtype: np.dtype
    lengths: tuple[int, ...] = ()
    values: tuple[str | int, ...] | None = None
    was: str | None = None

    @property
    def column(self) -> Column | None:
        """What it was, if that is more than can be seen from the features."""
        if self.was is None or (self.values is not None and not self.values):
            return None
        return Column(self.name, self.was, self.values or ())

    @property
    def width(self) -> int:
        return math.prod(self.lengths) if self.values is None else len(self.values)

    @property
    def names(self) -> list[str]:
        if self.values is not None:
            return [f"{self.name}={value}" for value in self.values]
        return [self.name + "".join(f"[{i}]" for i in index) for index in np.ndindex(*self.lengths)]


def own_facts(path: Path, text: bytes | None) -> dict[str, Any]:
    """Shape, table and classes as the metadata of our own files have them; nothing for others."""
    if text is None:
        return {}
    try:
        facts = json.loads(text)
        own: dict[str, Any] = {"shape": [int(size) for size in facts["shape"]]}
        if any(size < 1 for size in own["shape"]):
            raise ValueError(f"shape {own['shape']}")
        if "table" in facts:
            own["table"] = Table.from_dict(facts["table"])
        if "targets" in facts:
            own["targets"] = tuple(str(name) for name in facts["targets"])
        if "classes" in facts:
            own["classes"] = [unpack_name(name) for name in facts["classes"]]
            own["json"] = bool(facts["json"])
        return own
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise damaged(path, KIND, f"metadata of advect: {type(error).__name__}: {error}") from None


def is_text(types: Any, kind: Any) -> bool:
    """Whether a type is one of pyarrow's for text."""
    view = getattr(types, "is_string_view", lambda _: False)(kind)
    return view or types.is_string(kind) or types.is_large_string(kind)


def pyarrow() -> Any:
    """The library, or an error that says how to get it."""
    return needed("pyarrow", "Parquet files")
