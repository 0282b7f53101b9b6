"""Descriptions of properties are sentences: a colon in the first one does not end a type.

napoleon takes what stands before it for the type of the property, which its annotation says already."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx


def on_docstring(
    app: Sphinx, what: str, name: str, found: Any, options: Any, lines: list[str]
) -> None:
    if what in ("property", "attribute", "data") and lines and lines[0]:
        lines.insert(0, "")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", on_docstring, priority=100)  # before napoleon
    return {"parallel_read_safe": True, "parallel_write_safe": True}
