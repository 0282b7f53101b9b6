"""The page of a result: headline numbers, notes, tables, figures and configuration, without
scripts.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from advect._util.result import Result, Table, show
from advect.report import page
from advect.viz.theme import DARK, LIGHT, style, to_svg

_MAX_ROWS = 500  # rows of one table
_SCALE = 1.6  # pixels per point of a figure: its smallest text is 12 pixels high
_DARK_SHADE = 0.6  # shades above this one have white text


def write_page(result: Result, path: str | Path, *, title: str | None = None) -> Path:
    """Write the page of a result as one HTML file without scripts, which needs no network.

    Every result has the method ``report(path)``, which calls this function.

    Args:
        result: any result of advect.
        path: the file to write, ``….html``; missing folders are created.
        title: the heading; by default the kind of the result.

    Raises:
        InputError: the path is a directory or does not end in ``.html``.

    Example:
        >>> import tempfile, advect as ad
        >>> from advect.report import write_page
        >>> data = ad.datasets.moons(40)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = write_page(ad.audit(data, progress=False), f"{folder}/audit.html")
        ...     print("<script" in path.read_text(encoding="utf-8"))
        False
    """
    return page.write_text(page.page_path(path), render(result, title))


def render(result: Result, title: str | None = None) -> str:
    """The HTML of the page of a result."""
    from markupsafe import Markup

    with style():
        drawn = {name: _themed(figure) for name, figure in result.figures().items()}
    return page.fill_template(
        "page.html.jinja",
        title=title or result.title,
        kind=result.title if title else "advect",
        style=Markup(page.part("style.css") + _palette()),
        tiles=[(name, show(value)) for name, value in result._summary().items()],
        notes=[str(note) for note in result.notes],
        tables=list(map(table_cells, result._tables())),
        figures=[(name, width, Markup(svg)) for name, (width, svg) in drawn.items()],
        settings={name: show(value) for name, value in result.settings.items()} | page.made_with(),
    )


def table_cells(table: Table) -> dict[str, Any]:
    """A table for the template: text, alignment and shade of each cell."""
    rows = [list(row) for row in table.rows[:_MAX_ROWS]]
    columns = [[row[i] for row in rows] for i in range(len(table.columns))]
    numeric = [any(map(_is_number, column)) for column in columns]
    known = [cell for row in rows for cell in row[1:] if table.heat and _is_number(cell)]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    digits = max(0, 2 - math.floor(math.log10(high))) if 1e-3 < high < 1e5 else -1

    def text(cell: Any) -> str:  # in a heat table, as many decimals in every cell
        aligned = table.heat and digits >= 0 and isinstance(cell, float) and math.isfinite(cell)
        return f"{cell:.{digits}f}" if aligned else show(cell)

    def shade(cell: Any) -> float | None:
        if not (table.heat and _is_number(cell)):
            return None
        return round((cell - low) / ((high - low) or 1.0), 3)

    return {
        "title": table.title,
        "caption": table.caption,
        "heat": table.heat,
        "columns": list(zip(map(str, table.columns), numeric, strict=True)),
        "rows": [[(text(cell), shade(cell)) for cell in row] for row in rows],
        "numeric": numeric,
        "dark": _DARK_SHADE,
        "more": max(0, len(table.rows) - _MAX_ROWS),
    }


def _is_number(cell: Any) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool) and math.isfinite(cell)


_INKS = {LIGHT.ground: "card", LIGHT.ink: "ink", LIGHT.line: "line", LIGHT.grid: "faint"}
_INKS |= {LIGHT.grey: "soft"}
_INKS |= {colour: f"c{position}" for position, colour in enumerate(LIGHT.palette)}


def _themed(figure: Any) -> tuple[int, str]:
    """The width in pixels of a figure and its inline SVG, whose colours follow the theme."""
    text = to_svg(figure)
    size = re.search(r'width="([\d.]+)pt" height="[\d.]+pt"', text)
    assert size is not None
    width = round(_SCALE * float(size[1]))
    text = text.replace(size[0], f'width="{width}"', 1)
    for colour, name in _INKS.items():
        text = text.replace(f": {colour.lower()}", f": var(--{name})")
    return width, text


def _palette() -> str:
    """The class colours as CSS variables, for light and dark pages."""
    light, dark = (
        "".join(f"--c{position}: {colour};" for position, colour in enumerate(look.palette))
        for look in (LIGHT, DARK)
    )
    return (
        f":root {{{light}}}\n@media screen and (prefers-color-scheme: dark) {{:root {{{dark}}}}}\n"
    )
