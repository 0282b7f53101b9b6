"""Notebooks from the same sources as the site: the tutorial, and stories of the gallery."""

from __future__ import annotations

from pathlib import Path

import jupytext


def write(docs: Path, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    return []
