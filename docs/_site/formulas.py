"""Formulas as outlines in the page: they look the same on every machine, in light and in dark, and
ask for no script, font or network.

matplotlib, which advect needs anyway, sets them. MathML would be shorter, but browsers draw it well
only where a font for mathematics is installed."""

from __future__ import annotations

from functools import cache
from html import escape
from typing import Any

from docutils import nodes
from matplotlib.font_manager import FontProperties
from matplotlib.mathtext import MathTextParser
from matplotlib.path import Path
from matplotlib.textpath import TextPath
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)
SIZE = 100  # units of an em
FONT = FontProperties(size=SIZE, math_fontfamily="stix")
LETTERS = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C"}


@cache
def outline(source: str) -> str:
    """A formula in LaTeX's language as SVG, in the size and colour of the text around it.

    Raises:
        ValueError: for what matplotlib cannot read.
    """
    text = f"${' '.join(source.split())}$"
    text = text.replace(r"^{\prime}", r"\prime ")  # the font's prime is raised already
    width, height, depth, *_ = MathTextParser("path").parse(text, dpi=72, prop=FONT)
    parts = []
    for points, code in TextPath((0, 0), text, prop=FONT).iter_segments(curves=True):
        if code == Path.CLOSEPOLY:
            parts.append("Z")
        else:
            xs, ys = points[::2], height - depth - points[1::2]
            pairs = (f"{x:.0f} {y:.0f}" for x, y in zip(xs, ys, strict=True))
            parts.append(LETTERS[code] + " ".join(pairs))
    style = f"width:{width / SIZE:.2f}em;height:{height / SIZE:.2f}em;vertical-align:{-depth / SIZE:.3f}em"
    return (
        f'<svg class="formula" role="img" aria-label="{escape(source)}" style="{style}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}"><path d="{"".join(parts)}"/></svg>'
    )


def written(node: nodes.math | nodes.math_block) -> str:
    """The formula of a node; one that cannot be read is shown as it was typed, with a warning."""
    source = node.astext()
    if isinstance(node, nodes.math_block):
        source = source.replace(r"\frac", r"\dfrac")  # on a line of its own there is room
    try:
        return outline(source)
    except ValueError as error:
        logger.warning("cannot read the formula: %s", error, location=node)
        return f"<code>{escape(node.astext())}</code>"


def visit_inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(written(node))
    raise nodes.SkipNode


def visit_block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math-block">{written(node)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("outlines", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
