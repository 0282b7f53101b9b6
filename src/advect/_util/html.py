"""Small tables in HTML, for notebooks: every text is escaped."""

from __future__ import annotations

import html
from collections.abc import Mapping


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
