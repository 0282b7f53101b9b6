"""Figures of the gallery's scripts: those of pyplot, and those that ``advect.viz`` returns, which
pyplot does not know. Whatever a block binds to a name, or ends with, is shown below it."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst, matplotlib_scraper

_SHOWN = "_advect_shown"


def scrape(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """reST that shows what this block drew."""
    text = matplotlib_scraper(block, block_vars, gallery_conf)
    paths = []
    for value in list(block_vars["example_globals"].values()):
        if not isinstance(value, Figure) or hasattr(value, _SHOWN):
            continue
        setattr(value, _SHOWN, True)
        if hasattr(value, "number"):  # of pyplot, which is shown above
            continue
        path = next(block_vars["image_path_iterator"])
        value.savefig(path, dpi=110)
        paths.append(path)
    return text + (figure_rst(paths, gallery_conf["src_dir"]) if paths else "")
