"""Names in running text lead to their reference: ``ad.flow`` in a guide, ``Sinkhorn`` in a docstring;
and pages that a docstring names, as in docs/flows.md, to the page."""

from __future__ import annotations

import re

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.nodes import make_refnode

# ad.flow, ad.apps.label, advect.OTDD; or a class alone, such as Sinkhorn; with or without a call
NAME = re.compile(r"(?:(?:ad|advect)\.([A-Za-z][\w.]*)|([A-Z]\w+))(?:\((?:[^()]|\([^()]*\))*\))?")
PAGE = re.compile(r"docs/([\w-]+)\.md")


def on_resolved(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    objects = app.env.domains.python_domain.objects
    for node in list(doctree.findall(nodes.literal)):
        found = NAME.fullmatch(node.astext())
        if found is None or _inside(node, nodes.reference, nodes.title, addnodes.pending_xref):
            continue
        name = f"advect.{found[1] or found[2]}"
        entry = objects.get(name)
        if entry is None or _describes(node, name):
            continue
        link = make_refnode(
            app.builder, docname, entry.docname, entry.node_id, node.deepcopy(), name
        )
        node.replace_self(link)
    for text in list(doctree.findall(nodes.Text)):
        if PAGE.search(text) and not _inside(text, nodes.reference, nodes.literal_block):
            text.parent.replace(text, _with_pages(app, docname, text.astext()))


def _with_pages(app: Sphinx, docname: str, text: str) -> list[nodes.Node]:
    """A text whose pages, where they are on the site, are links."""
    made: list[nodes.Node] = []
    done = 0
    for found in PAGE.finditer(text):
        if found[1] in app.env.found_docs:
            made.append(nodes.Text(text[done : found.start()]))
            words = nodes.Text(found[0])
            made.append(make_refnode(app.builder, docname, found[1], None, words))
            done = found.end()
    return [*made, nodes.Text(text[done:])]


def _inside(node: nodes.Node, *kinds: type) -> bool:
    while node is not None and not isinstance(node, kinds):
        node = node.parent
    return node is not None


def _describes(node: nodes.Node, name: str) -> bool:
    """Whether this is in the description of the very thing."""
    while node is not None:
        for child in node.children if node.tagname == "desc" else ():
            if child.tagname == "desc_signature" and name in child.get("ids", ()):
                return True
        node = node.parent
    return False


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-resolved", on_resolved)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
