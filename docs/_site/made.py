"""What is made before Sphinx reads: reference pages, the page of the landing page's flow, notebooks."""

from __future__ import annotations

from pathlib import Path

import commands
import first_flow
import notebooks
import reference
from sphinx.application import Sphinx


def on_start(app: Sphinx) -> None:
    docs = Path(app.srcdir)
    reference.write(docs / "reference", reference.pages() | commands.pages())
    first_flow.write(docs / "_made" / "flow.html")
    notebooks.write(docs, docs / "_made" / "notebooks")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", lambda app, config: on_start(app))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
