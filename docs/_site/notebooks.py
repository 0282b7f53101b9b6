"""Notebooks from the sources of the site: the tutorial, and the stories of the gallery. They come
without results: whoever opens one runs it.

    python docs/_site/notebooks.py out/notebooks      (make notebooks)
"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path

import jupytext
import nbformat
from sphinx_gallery.gen_gallery import DEFAULT_GALLERY_CONF
from sphinx_gallery.notebook import jupyter_notebook
from sphinx_gallery.py_source_parser import split_code_and_text_blocks

DOCS = Path(__file__).parents[1]
PAGES = ("tutorial",)
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
LOCAL_LINK = re.compile(r"\[([^\]]*)\]\((?!\w+://)[^)]*\)")


def from_page(path: Path) -> nbformat.NotebookNode:
    """A page whose Python blocks are cells; links to other pages are their words."""
    book = jupytext.reads(path.read_text(encoding="utf-8"), fmt="md")
    for cell in book.cells:
        if cell.cell_type == "markdown":
            cell.source = LOCAL_LINK.sub(r"\1", cell.source)
    return book


def from_script(path: Path) -> nbformat.NotebookNode:
    """A script of the gallery, as its own download, with figures shown where they are made."""
    _, blocks = split_code_and_text_blocks(str(path))
    made = jupyter_notebook(blocks, dict(DEFAULT_GALLERY_CONF), str(path.parent))
    book = nbformat.reads(json.dumps(made), as_version=4)
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.source = shown(cell.source)
    return book


def shown(code: str) -> str:
    """Code that ends with ``figure = viz.…`` and then shows it; pyplot shows its own."""
    last = ast.parse(code).body[-1:]
    if last and isinstance(last[0], ast.Assign) and ast.unparse(last[0].value).startswith("viz."):
        return f"{code.rstrip()}\n{ast.unparse(last[0].targets[0])}"
    return code


def sources(docs: Path) -> dict[str, Path]:
    """What becomes a notebook, by its name."""
    pages = {name: docs / f"{name}.md" for name in PAGES}
    scripts = sorted((docs / "gallery" / "stories").glob("plot_*.py"))
    return pages | {path.stem.removeprefix("plot_"): path for path in scripts}


def title(path: Path) -> str:
    """Of a page or a script: its first line of words."""
    text = path.read_text(encoding="utf-8")
    return next(line for line in text.splitlines() if line.strip('"# ')).strip('"# ')


def write(docs: Path, folder: Path) -> list[Path]:
    """Write all notebooks, and the page that offers them."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, path in sources(docs).items():
        book = from_page(path) if path.suffix == ".md" else from_script(path)
        book.metadata = nbformat.from_dict({"kernelspec": KERNEL})
        book.nbformat_minor = 5  # cells have names: the same file from the same source
        for number, cell in enumerate(book.cells):
            cell["id"] = f"cell-{number}"
            cell.source = cell.source.strip()
        nbformat.validate(book)
        made.append(folder / f"{name}.ipynb")
        nbformat.write(book, made[-1])
    return made


if __name__ == "__main__":
    for path in write(DOCS, Path(sys.argv[1])):
        print(path)
