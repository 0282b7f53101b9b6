"""Markdown that is read in two places, on the site and on a code host: what differs between them.

- Pages of the repository's root that have a page here: links to them lead there.
- Templates of measured numbers (``<!-- from … -->``) are for ``make results``, not for readers.
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

ROOT_PAGES = {"../CHANGELOG.md": "changelog.md", "../CONTRIBUTING.md": "extending.md"}
REMARK = re.compile(r"^<!--.*?-->$", re.DOTALL | re.MULTILINE)


def prepared(text: str) -> str:
    """The text of a page, with as many lines."""
    for there, here in ROOT_PAGES.items():
        text = text.replace(f"]({there})", f"]({here})")
    return REMARK.sub(lambda found: "\n" * found[0].count("\n"), text)


def on_read(app: Sphinx, docname: str, source: list[str]) -> None:
    path = Path(app.env.doc2path(docname))
    if path.suffix == ".md":
        source[0] = prepared(source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", on_read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
