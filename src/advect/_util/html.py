"""HTML of ours, small tables and filled templates: every text is escaped."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from typing import Any


def facts_table(title: str, facts: Mapping[str, str]) -> str:
    """A title and a row for each fact.

    Example:
        >>> facts_table("Pets", {"cats & dogs": "2"})
        '<table><caption>Pets</caption><tr><th>cats &amp; dogs</th><td>2</td></tr></table>'
    """
    rows = (
        f"<tr><th>{html.escape(str(name))}</th><td>{html.escape(str(text))}</td></tr>"
        for name, text in facts.items()
    )
    return f"<table><caption>{html.escape(title)}</caption>{''.join(rows)}</table>"


def fill(template: str, parts: Callable[[str], str] | None = None, /, **values: Any) -> str:
    """The text of a template with values; one that is missing is an error.

    Args:
        template: its text.
        parts: from the name of another template to its text, for ``extends`` and ``import``.
        values: by name.

    Example:
        >>> fill("<p>{{ name }}</p>", name="cats & dogs")
        '<p>cats &amp; dogs</p>'
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=None if parts is None else FunctionLoader(parts),
    )
    return environment.from_string(template).render(**values)
