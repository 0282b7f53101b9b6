"""The page of an index of datasets: a map of all of them, and what is nearest to each. One file,
without scripts.
"""

from __future__ import annotations

import base64
import io
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from advect._util.checks import check_count, check_kind
from advect.questions.index import DatasetIndex
from advect.questions.index_entry import Entry
from advect.report.page import filled, page_place, part, versions, write_page
from advect.viz.pairwise_map import dataset_map, group_of
from advect.viz.theme import style

_MOST_ROWS = 300  # datasets in the table
_COPIES = 1e-6  # of the median distance: what is nearer is taken for the same samples


def write_index_report(
    index: DatasetIndex,
    path: str | os.PathLike[str],
    *,
    title: str = "Which dataset is nearest",
    k: int = 3,
) -> Path:
    """Write a page about an index, as one HTML file that needs no network and runs no script.

    Args:
        index: the index.
        path: the file to write, ``….html``; folders on the way are made.
        title: of the page.
        k: how many neighbours of each dataset to show, by distances of embeddings.

    Returns:
        The path of the file.

    Raises:
        InputError: fewer than three datasets, or a path that is no place for an HTML file.

    Example:
        >>> import tempfile, advect as ad
        >>> from advect.report import write_index_report
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     index = ad.DatasetIndex.create(f"{folder}/index", ad.datasets.gaussians(30))
        ...     for shift in (0.0, 1.0, 5.0):
        ...         _ = index.add(f"at <{shift}>", ad.datasets.gaussians(30, shift=(shift, 0.0)))
        ...     path = write_index_report(index, f"{folder}/index.html")
        ...     print("at &lt;5.0&gt;" in path.read_text(encoding="utf-8"))
        True
    """
    what = "the page of an index is made of a DatasetIndex"
    check_kind(what, index, DatasetIndex, "Open it with ad.DatasetIndex(path).")
    place, k = page_place(Path(path)), check_count("k", k)
    return write_page(place, _page(index, title, k))


def _page(index: DatasetIndex, title: str, k: int) -> str:
    from markupsafe import Markup

    entries, distances = index.entries(), index.distances()
    names = [entry.name for entry in entries]
    shown = pictured_map(distances, names)  # says if there are too few
    k = min(k, len(names) - 1)
    order = np.argsort(distances + np.diag(np.full(len(names), np.inf)), axis=1, kind="stable")
    nearest = distances[np.arange(len(names)), order[:, 0]]
    return filled(
        "index.html.jinja",
        title=title,
        style=Markup(part("style.css") + part("labels.css") + part("index.css")),
        notes=_notes(names, distances, nearest),
        tiles=[
            ("datasets", f"{len(names):,}"),
            ("groups", f"{len({group_of(name) for name in names}):,}"),
            ("samples in all", f"{sum(entry.embedding.n for entry in entries):,}"),
            ("median distance", f"{np.median(distances[np.triu_indices(len(names), 1)]):.4g}"),
        ],
        pictures=shown,
        rows=[
            _row(entries[at], [(names[b], distances[at, b]) for b in order[at, :k]])
            for at in range(min(len(names), _MOST_ROWS))
        ],
        left_out=max(0, len(names) - _MOST_ROWS),
        k=k,
        alone=[(names[at], f"{nearest[at]:.4g}") for at in np.argsort(-nearest, kind="stable")[:5]],
        setup={
            "feature space": index.space.describe(),
            "label weight": f"{index.label_weight:g}",
            "numbers of a vector": f"{len(entries[0].embedding.vector):,}",
            "versions": versions(),
            "written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        },
    )


def _row(entry: Entry, near: list[tuple[str, float]]) -> dict[str, Any]:
    of = entry.embedding
    return {
        "name": entry.name,
        "n": f"{of.n:,}",
        "classes": f"{of.classes:,}",
        "near": [(name, f"{value:.4g}") for name, value in near],
        "residual": f"{of.residual:.2g}",
    }


def _notes(names: list[str], distances: np.ndarray, nearest: np.ndarray) -> list[str]:
    """Pairs that seem to hold the same samples, and what is left out."""
    notes = []
    median = float(np.median(distances[np.triu_indices(len(names), 1)]))
    pairs = np.argwhere(np.triu(distances <= _COPIES * median, 1))
    for a, b in pairs[:5]:
        notes.append(f"{names[a]} and {names[b]} have the same vector: the same samples?")
    if len(pairs) > 5:
        notes.append(f"So have {len(pairs) - 5} more pairs.")
    if len(names) > _MOST_ROWS:
        notes.append(f"The table shows the first {_MOST_ROWS} of {len(names):,} datasets.")
    return notes


def pictured_map(distances: np.ndarray, names: list[str]) -> dict[str, str]:
    """The map for light and for dark pages, and for those on a phone."""
    found = {}
    for screen, size in (("", (6.4, 6.0)), ("phone_", (3.7, 3.9))):
        for kind, dark in (("light", False), ("dark", True)):
            with style(dark=dark):
                figure = dataset_map(distances, names, size=size)
                figure.draw_without_rendering()  # the layout of the first pass is only nearly right
                content = io.BytesIO()
                figure.savefig(content, format="png", dpi=170, facecolor=figure.get_facecolor())
            text = base64.b64encode(content.getvalue()).decode()
            found[f"{screen}{kind}"] = f"data:image/png;base64,{text}"
    return found
