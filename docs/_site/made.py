"""What is made before Sphinx reads: reference pages, the page of the landing page's flow, notebooks."""

from __future__ import annotations

from pathlib import Path

import commands
import first_flow
import notebooks
import reference
from sphinx.application import Sphinx

NOTEBOOKS = """# Notebooks

The tutorial and the stories of the gallery as notebooks, made from the same sources; `make notebooks` writes them to
`out/notebooks`. They contain no results: open one in Jupyter, with advect installed, and run it. None needs a network.
Every entry of the [gallery](../auto_gallery/index) offers a notebook too.

| content | notebook |
| --- | --- |
"""


def notebooks_page(docs: Path, paths: list[Path]) -> str:
    """The page that offers the notebooks."""
    sources = notebooks.sources(docs)
    rows = (
        f"| {notebooks.title(sources[path.stem])} | "
        f"[{path.name}](../{path.relative_to(docs).as_posix()}) |\n"
        for path in paths
    )
    return NOTEBOOKS + "".join(rows)


def on_start(app: Sphinx) -> None:
    docs = Path(app.srcdir)
    paths = notebooks.write(docs, docs / "_made" / "notebooks")
    pages = reference.pages() | commands.pages() | {"notebooks.md": notebooks_page(docs, paths)}
    reference.write(docs / "reference", pages)
    first_flow.write(docs / "_made" / "flow.html")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", lambda app, config: on_start(app))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
