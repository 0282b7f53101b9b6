"""The door to the pages of answers, which a layer below may not import by itself."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any


def write_page(name: str, answer: object, path: Any, options: dict[str, Any]) -> Path:
    """Write the page of an answer by the function of this name in ``advect.report``."""
    return getattr(import_module("advect.report"), name)(answer, path, **options)
