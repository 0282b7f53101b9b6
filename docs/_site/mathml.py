"""Formulas as MathML, which browsers draw themselves: no script, no font, no request.

docutils has the translator, and is there wherever Sphinx is."""

from __future__ import annotations

from html import escape
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)


def written(node: nodes.math | nodes.math_block, *, as_block: bool) -> str:
    """The formula of a node; one that cannot be read is shown as it was typed, with a warning."""
    source = node.astext()
    try:
        return tex2mathml(source, as_block=as_block)
    except MathError as error:
        logger.warning("cannot read the formula %r: %s", source, error, location=node)
        return f"<code>{escape(source)}</code>"


def visit_inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(written(node, as_block=False))
    raise nodes.SkipNode


def visit_block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math-block">{written(node, as_block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
