"""What the first pages print: their Python blocks are run when the site is built, and what each says
stands below it. The figure that a block saves is shown there too.

The sources stay without results, so that nothing in them can be out of date."""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
from pathlib import Path

from sphinx.application import Sphinx

PAGES = ("index", "tutorial")
BLOCK = re.compile(r"```python\n(.*?)```\n", re.DOTALL)
SAVED = re.compile(r'viz\.save\(\w+, "([\w.-]+\.png)"\)')
TIME = re.compile(r"\b\d+(\.\d+)? s\b")  # says nothing elsewhere


def with_outputs(text: str, pictures: Path) -> str:
    """A page of Markdown with what its blocks print, and their figures copied to ``pictures``."""
    names: dict[str, object] = {}

    def below(found: re.Match[str]) -> str:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(found[1], "a block of the page", "exec"), names)
        parts = [found[0]]
        if said.getvalue().strip():
            words = TIME.sub("… s", said.getvalue().rstrip())
            parts.append(f"\n```{{code-block}} none\n:class: printed\n\n{words}\n```\n")
        for name in SAVED.findall(found[1]):
            (pictures / name).write_bytes(Path(name).read_bytes())
            parts.append(f"\n![What this block draws](_made/pictures/{name})\n")
        return "".join(parts)

    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            return BLOCK.sub(below, text)
        finally:
            os.chdir(here)


def on_read(app: Sphinx, docname: str, source: list[str]) -> None:
    if docname in PAGES:
        pictures = Path(app.srcdir) / "_made" / "pictures"
        pictures.mkdir(parents=True, exist_ok=True)
        source[0] = with_outputs(source[0], pictures)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", on_read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
