"""Results of an experiment in one JSON file, written as they come: what is there is not computed
again.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Results:
    """A JSON file of named results.

    Each also says how long it took: seconds on the clock, and seconds of processor time, which do
    not depend on what else the machine was doing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def once(
        self, name: str, compute: Callable[..., dict[str, Any]], *arguments: Any, **options: Any
    ) -> dict[str, Any]:
        """The stored result of this name, or a new one, ``compute(*arguments, **options)``, stored
        at once.
        """
        if name not in self.values:
            start, busy = time.perf_counter(), time.process_time()
            value = compute(*arguments, **options)
            seconds = {
                "seconds": time.perf_counter() - start,
                "processor seconds": time.process_time() - busy,
            }
            self.values[name] = {**value, **seconds}
            self.path.parent.mkdir(parents=True, exist_ok=True)
            part = self.path.with_suffix(".part")
            part.write_text(json.dumps(self.values, indent=2))
            os.replace(part, self.path)
        return self.values[name]
