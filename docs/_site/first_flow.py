"""The flow of the landing page, made by the code that the page shows: the first block of docs/index.md.

python docs/_site/first_flow.py      writes the picture of the README
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import advect as ad
from advect import viz

DOCS = Path(__file__).parents[1]
PAGE = DOCS / "index.md"


def made() -> Any:
    """The result of the block."""
    names: dict[str, Any] = {}
    block = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(block[1] if block else "", PAGE.name, "exec"), names)
    return names["result"]


def write(path: Path) -> None:
    """The report page, unless it is newer than everything that makes it."""
    sources = [Path(__file__), PAGE, *Path(ad.__path__[0]).rglob("*.*")]
    newest = max(one.stat().st_mtime for one in sources if one.suffix != ".pyc")
    if path.exists() and path.stat().st_mtime > newest:
        return
    made().report(path, title="Tilted digits → upright digits", names=("tilted", "upright"))


if __name__ == "__main__":
    shown = (0, 1, 2, 3, 5, 10, 30)
    path = made().trajectory
    frames = [path[step].dataset for step in shown]
    titles = [f"step {step}" for step in shown]
    viz.save(viz.image_grid(frames, rows=6, titles=titles), DOCS / "img" / "tilted-digits.png")
