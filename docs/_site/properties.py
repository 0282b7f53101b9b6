"""Descriptions of properties are sentences: a colon in the first one does not end a type.

napoleon takes what stands before it for the type of the property, which its annotation says already.
The colon is hidden from it."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

HIDDEN = "\ue000"


def hide(app: Sphinx, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    if what in ("property", "attribute", "data") and lines:
        lines[0] = lines[0].replace(": ", f"{HIDDEN} ")


def show(app: Sphinx, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    lines[:] = [line.replace(HIDDEN, ":") for line in lines]


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", hide, priority=100)  # napoleon has 500
    app.connect("autodoc-process-docstring", show, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
