"""Pages as files: the page of a result, and that of a flow with its player.

Templates are filled with escaped text and written atomically. The content policy of a page lets the
browser run the script of the player and nothing else, whatever the names of classes are."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch

from advect import __version__
from advect._util import InputError, Result, Table, refuse_if, show, write_atomically
from advect.data.dataset import LabeledDataset
from advect.flows.loop import FlowResult
from advect.io.trajectory import Trajectory
from advect.report.frames import Story
from advect.report.scene import gather
from advect.viz.theme import DARK, LIGHT, to_svg

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'"
_SCRIPTS = ("tools.js", "chart.js", "drawing.js", "scene.js", "player.js")
_MAX_ROWS = 500  # rows of one table
_SCALE = 1.6  # pixels per point of a figure: its smallest text is 12 pixels high
_DARK_SHADE = 0.6  # shades above this one have white text
_INKS = {LIGHT.ground: "card", LIGHT.ink: "ink", LIGHT.line: "line", LIGHT.grid: "faint"}
_INKS |= {LIGHT.grey: "soft"}
_INKS |= {colour: f"c{position}" for position, colour in enumerate(LIGHT.palette)}


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
    return _write(
        _page_path(path),
        "page.html.jinja",
        title=title or result.title,
        kind=result.title if title else "advect",
        style=_part("style.css") + _palette(),
        tiles=[
            (name, show(value) or "none")
            for name, value in result._summary().items()
            if name not in result.settings
        ],
        notes=[str(note) for note in result.notes],
        tables=result._tables(),
        figures=[(name, *_themed(figure)) for name, figure in result.figures().items()],
        settings={name: show(value) for name, value in result.settings.items()},
    )


def write_report(
    result: FlowResult | Trajectory | Story | str | Path,
    path: str | Path,
    *,
    target: LabeledDataset | None = None,
    title: str | None = None,
    names: tuple[str, str] | None = None,
    config: str | None = None,
    command: str | None = None,
    pictures: Callable[[LabeledDataset], LabeledDataset] | None = None,
) -> Path:
    """Write the report of a flow as one HTML file that needs no network.

    The page plays the recorded frames: particles in the plane or in space (samples of more
    dimensions are projected), images of the same samples if they are images, the objective, its
    terms and metrics. Tables show the class distances before and after, and the matching of
    classes. Long runs and large datasets are thinned, and the page says so.

    Args:
        result: what ``ad.flow`` returned, a run directory, or a trajectory.
        path: the file to write, ``….html``; missing folders are created.
        target: the dataset that the flow moves to; by default the functional's ``target``.
        title: the heading.
        names: names of source and target, such as ``("digits", "MNIST")``.
        config: text of a configuration file to show.
        command: the command that repeats the run.
        pictures: for flows of features of images, a function from such a dataset to one of images:
            for example ``space.invert`` of a ``FeatureSpace``.

    Raises:
        InputError: there are no recorded frames, frames are of different flows, or the path does
            not end in ``.html``.

    Example:
        >>> import tempfile, torch, advect as ad
        >>> from advect.report import write_report
        >>> source = ad.datasets.gaussians(30, generator=torch.Generator().manual_seed(0))
        >>> target = source.replace(x=source.x + 8)
        >>> result = ad.flow(source, ad.OTDD(target), n_steps=4, callbacks=[ad.Recorder()])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = write_report(result, f"{folder}/flow.html", title="Three Gaussians")
        ...     print(path.name, "Three Gaussians" in path.read_text(encoding="utf-8"))
        flow.html True
    """
    place, fields = _page_path(path), {"target": target, "pictures": pictures, "title": title}
    fields |= {"names": names, "config": config, "command": command}
    given = {name: value for name, value in fields.items() if value is not None}
    values, player, tables = gather(replace(_story_of(result), **given))
    script = '"use strict";\n(() => {\n' + "".join(map(_part, _SCRIPTS)) + "})();\n"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _write(
        place,
        "player.html.jinja",
        kind="Report of a dataset flow",
        policy=f"{POLICY}; script-src 'sha256-{digest}'",
        style=_part("style.css") + _part("player.css"),
        script=script,
        player=player,
        tables=tables,
        **values,
    )


def _story_of(result: Any) -> Story:
    """The story of a result, a trajectory or a run directory."""
    makers = {FlowResult: Story.of_result, Trajectory: Story, str | Path: Story.of_run}
    for kind, make in (makers | {Story: replace}).items():
        if isinstance(result, kind):
            return make(result)
    raise InputError(
        "a report needs a FlowResult, a run directory or a trajectory",
        type(result).__name__,
        "Pass what ad.flow returned.",
    )


def _page_path(path: str | Path) -> Path:
    """The path of a page, which must end in ``.html`` and must not be a directory."""
    place = Path(path).expanduser()
    refuse_if(
        place.is_dir(),
        "a report is a file",
        f"the directory {place}",
        f"Write to {place / 'report.html'}, for instance.",
    )
    html = place.suffix.lower() in (".html", ".htm")
    refuse_if(not html, "a report is an HTML file", repr(place.name), "Use the suffix .html.")
    return place


def _write(path: Path, template: str, **values: Any) -> Path:
    """Fill a template of this package, every text escaped, and write the page atomically."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    values |= {name: Markup(values[name]) for name in ("style", "script") if name in values}
    values["tables"] = [_table_cells(table) for table in values["tables"]]
    values["settings"] |= {
        "versions": f"advect {__version__}, torch {torch.__version__}, numpy {np.__version__}",
        "written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
    options = {"trim_blocks": True, "lstrip_blocks": True, "loader": FunctionLoader(_part)}
    environment = Environment(autoescape=True, undefined=StrictUndefined, **options)
    text = environment.get_template(template).render({"policy": POLICY} | values)
    try:
        write_atomically(path, text.encode(errors="replace"))  # file names may not be valid text
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(
            "a parent directory of the report is a file", error.filename, "Choose another path."
        ) from None
    return path


@cache
def _part(name: str) -> str:
    """The text of a file of this package."""
    return resources.files("advect.report").joinpath(name).read_text(encoding="utf-8")


def _table_cells(table: Table) -> dict[str, Any]:
    """A table for the template: text, alignment and shade of each cell."""
    rows = [list(row) for row in table.rows[:_MAX_ROWS]]
    numeric = [any(_is_number(row[i]) for row in rows) for i in range(len(table.columns))]
    known = [cell for row in rows for cell in row[1:] if table.heat and _is_number(cell)]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    digits = max(0, 2 - math.floor(math.log10(high))) if 1e-3 < high < 1e5 else -1

    def cell_of(value: Any) -> tuple[str, float | None]:
        """Text and shade; in a heat table, as many decimals in every cell."""
        if not (table.heat and _is_number(value)):
            return show(value), None
        aligned = digits >= 0 and isinstance(value, float)
        shade = round((value - low) / ((high - low) or 1.0), 3)
        return f"{value:.{digits}f}" if aligned else show(value), shade

    return {
        "title": table.title,
        "caption": table.caption,
        "heat": table.heat,
        "columns": list(zip(map(str, table.columns), numeric, strict=True)),
        "rows": [list(map(cell_of, row)) for row in rows],
        "numeric": numeric,
        "dark": _DARK_SHADE,
        "more": max(0, len(table.rows) - _MAX_ROWS),
    }


def _is_number(cell: Any) -> bool:
    return (
        isinstance(cell, int | float)
        and cell is not True
        and cell is not False
        and math.isfinite(cell)
    )


def _themed(figure: Any) -> tuple[int, Any]:
    """The width in pixels of a figure and its inline SVG, whose colours follow the theme."""
    from markupsafe import Markup

    text = to_svg(figure)
    size = re.search(r'width="([\d.]+)pt" height="[\d.]+pt"', text)
    assert size is not None
    width = round(_SCALE * float(size[1]))
    text = text.replace(size[0], f'width="{width}"', 1)
    for colour, name in _INKS.items():
        text = text.replace(f": {colour.lower()}", f": var(--{name})")
    return width, Markup(text)


def _palette() -> str:
    """The class colours as CSS variables, for light and dark pages."""
    light, dark = (
        "".join(f"--c{position}: {colour};" for position, colour in enumerate(look.palette))
        for look in (LIGHT, DARK)
    )
    return (
        f":root {{{light}}}\n@media screen and (prefers-color-scheme: dark) {{:root {{{dark}}}}}\n"
    )
