"""The page of distances between several datasets: a table in the order of likeness, a map, what is
nearest to each. One file, without scripts.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from advect._util.checks import check_kind
from advect.apps.pairwise_table import Pairwise
from advect.data.class_table import ClassTable
from advect.report.class_tables import MOST_CLASSES, heat
from advect.report.index import pictured_map
from advect.report.page import made_with, page_place, plain_page, write_page
from advect.report.summary import duration
from advect.viz.pairwise_map import complete_part, likeness_order

_MOST_ROWS = 300  # datasets in the table of neighbours
_NEAR = 3


def write_pairwise_report(
    found: Pairwise, path: str | Path, *, title: str = "Distances between datasets"
) -> Path:
    """Write a page about distances that ``ad.pairwise`` found, as one HTML file that needs no network
    and runs no script.

    Args:
        found: what ``ad.pairwise`` returned, or ``ad.Pairwise.load`` read.
        path: the file to write, ``….html``; folders on the way are made.
        title: of the page.

    Returns:
        The path of the file.

    Raises:
        InputError: something else than a ``Pairwise``, or a path that is no place for an HTML file.

    Example:
        >>> import tempfile, advect as ad
        >>> sets = {f"at <{x}>": ad.datasets.gaussians(30, shift=(float(x), 0.0)) for x in (0, 1, 5)}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = ad.pairwise(sets, progress=False).report(f"{folder}/page.html")
        ...     print("at &lt;5&gt;" in path.read_text(encoding="utf-8"))
        True
    """
    what = "the page of distances is made of a Pairwise"
    check_kind(what, found, Pairwise, "Pass what ad.pairwise returned.")
    return write_page(page_place(path), _page(found, title))


def _page(found: Pairwise, title: str) -> str:
    names, complete = list(found.names), complete_part(found.values)
    return plain_page(
        "pairwise.html.jinja",
        "index.css",
        title=title,
        notes=_notes(found),
        tiles=_tiles(found),
        table=_table(found) if len(names) <= MOST_CLASSES else None,
        pictures=pictured_map(found.values, names) if len(complete) >= 3 else None,
        rows=[_row(found, name) for name in names[:_MOST_ROWS]],
        left_out=max(0, len(names) - _MOST_ROWS),
        places=range(1, min(_NEAR, len(names) - 1) + 1),
        failed=[(" and ".join(pair), why) for pair, why in found.errors.items()],
        setup=made_with(),
    )


def _table(found: Pairwise) -> dict[str, Any]:
    """The distances in the order of likeness; a dataset is not its own neighbour."""
    order = likeness_order(found.values)
    values = found.values[np.ix_(order, order)].astype(float)
    np.fill_diagonal(values, math.nan)
    names = tuple(found.names[place] for place in order)
    return heat(ClassTable(values, names, names))


def _row(found: Pairwise, name: str) -> dict[str, Any]:
    near = found.nearest(name)
    return {"name": name, "near": [(other, _told(found, name, other)) for other, _ in near[:_NEAR]]}


def _told(found: Pairwise, one: str, other: str) -> str:
    """A distance, with its interval where the result knows it."""
    value, interval = found[one, other], getattr(found, "interval", None)
    low, high = (math.nan, math.nan) if interval is None else interval(one, other)
    known = math.isfinite(low) and math.isfinite(high)
    return f"{value:.4g}" + (f" ({low:.4g} to {high:.4g})" if known else "")


def _tiles(found: Pairwise) -> list[tuple[str, str]]:
    k = len(found.names)
    upper = found.values[np.triu_indices(k, 1)]
    tiles = [("datasets", f"{k:,}"), ("pairs", f"{len(upper):,}")]
    known = upper[np.isfinite(upper)]
    if known.size:
        tiles += [
            ("nearest pair", f"{known.min():.4g}"),
            ("median distance", f"{np.median(known):.4g}"),
            ("farthest pair", f"{known.max():.4g}"),
        ]
    seconds = float(np.triu(found.seconds, 1).sum())
    return [*tiles, ("time of all pairs", duration(seconds))]


def _notes(found: Pairwise) -> list[str]:
    loose = int(np.triu(~found.converged, 1).sum()) - len(found.errors)
    notes = [str(note) for note in getattr(found, "notes", ())]
    if found.errors:
        notes.append(f"{len(found.errors)} of the pairs failed: why is below.")
    if loose:
        notes.append(
            f"The transport problems of {loose} pairs did not meet their tolerance: these distances "
            "are approximate. Raise epsilon or max_iter."
        )
    if len(found.names) > MOST_CLASSES:
        notes.append(
            f"The table of {len(found.names)} × {len(found.names)} distances is left out: "
            "Pairwise.to_pandas() has it."
        )
    return notes
