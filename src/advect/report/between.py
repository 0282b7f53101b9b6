"""Pages of datasets between datasets: a path, a barycenter, a triangle of them. One file each, without
scripts.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from advect._util.checks import check_kind
from advect.apps.barycenter import Barycenter
from advect.apps.interpolate import InterpolationPath
from advect.apps.triangle import Triangle
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.report.page import filled, page_place, part, versions, write_page
from advect.viz.between import sets_figure
from advect.viz.theme import style

_MOST_ROWS = 60
_SPLIT = 0.05  # share of a class that goes elsewhere, worth saying


def write_path_report(
    path: InterpolationPath,
    place: str | Path,
    *,
    title: str = "From one dataset to another",
    rows: int = 10,
) -> Path:
    """Write a page about a path between two datasets, as one HTML file that needs no network and runs
    no script.

    Args:
        path: what ``ad.interpolate`` with several times returned.
        place: the file to write, ``….html``; folders on the way are made.
        title: of the page.
        rows: how many images to show.

    Returns:
        The path of the file.

    Raises:
        InputError: a place that is none for an HTML file.

    Example:
        >>> import tempfile, advect as ad
        >>> from advect.report import write_path_report
        >>> digits = ad.datasets.load("digits", n=60)
        >>> path = ad.interpolate(digits.subset(range(30)), digits.subset(range(30, 60)), [0, 0.5, 1])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     page = write_path_report(path, f"{folder}/page.html", title="<Digits>")
        ...     print("&lt;Digits&gt;" in page.read_text(encoding="utf-8"))
        True
    """
    what = "this page is made of a path of several times"
    check_kind(what, path, InterpolationPath, "Pass ad.interpolate(a, b, [0, 0.5, 1]).")
    place, found = page_place(place), path.distance
    options = {"rows": rows} if len(path[0].dataset.sample_shape) > 1 else {}
    marginal = found.divergence.cross.marginal_error
    notes = [] if found.converged or found.same else ["The transport problem has not converged."]
    if marginal > 1e-6:
        notes.append(f"The ends of the path are off the datasets by {marginal:.1e} of their mass.")
    return _written(
        place,
        kind="A path between datasets",
        title=title,
        notes=notes + _split_notes(path),
        tiles=[
            ("samples of a", f"{len(found.source):,}"),
            ("of b", f"{len(found.target):,}"),
            ("pairs of samples", f"{len(path[0].dataset):,}"),
            ("pairs of classes", f"{len(path[0].pairs):,}"),
            ("distance of a and b", f"{found.value:.4g}"),
        ],
        pictures=_pictured(lambda: path.figure(**options), path[0].dataset),
        seen="On the way",
        about="The same pairs of samples at each time; colours are those of soft labels, mixed, and "
        "ellipses label laws on Bures geodesics.",
        tables=[_pairs_table(path), _times_table(path)],
        setup={"cost": str(found.pairs[0].cost), "solver": repr(found.solver)},
    )


def write_barycenter_report(
    found: Barycenter,
    place: str | Path,
    *,
    title: str = "In the middle of datasets",
    names: Sequence[str] | None = None,
) -> Path:
    """Write a page about a barycenter, as one HTML file that needs no network and runs no script.

    Args:
        found: what ``ad.barycenter`` returned.
        place: the file to write, ``….html``; folders on the way are made.
        title: of the page.
        names: of the datasets.

    Returns:
        The path of the file.

    Example:
        >>> import tempfile, advect as ad
        >>> from advect.report import write_barycenter_report
        >>> sets = [ad.datasets.load(f"toy:gaussians?n=20&shift={at},0") for at in (0, 3, 9)]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     page = write_barycenter_report(ad.barycenter(sets), f"{folder}/page.html")
        ...     print("Barycenter" in page.read_text(encoding="utf-8"))
        True
    """
    what = "this page is made of a Barycenter"
    check_kind(what, found, Barycenter, "Pass what ad.barycenter returned.")
    place, names = page_place(place), _named(names, len(found.datasets))
    states = [*found.datasets, found.dataset]
    return _written(
        place,
        kind="Barycenter of datasets",
        title=title,
        notes=[] if found.converged else [f"It has not converged: {found.message}."],
        tiles=[
            ("datasets", f"{len(found.datasets):,}"),
            ("samples", f"{len(found.dataset):,}"),
            ("label laws", "none" if found.laws is None else f"{len(found.laws):,}"),
            ("sum of squared distances", f"{found.value:.4g}"),
            ("no dataset has less than", f"{found.bound:.4g}" if found.solver.stays else "unknown"),
            ("steps", f"{found.n_iter:,}"),
        ],
        pictures=_pictured(lambda: sets_figure(states, [*names, "barycenter"]), found.dataset),
        seen="The datasets and their barycenter",
        about="Samples of each class in turn; labels of the barycenter are the most likely ones.",
        tables=[
            {
                "title": "How far it is from each",
                "about": "Distances of labeled samples, label laws included.",
                "head": ["dataset", "samples", "classes", "weight", "distance"],
                "rows": [
                    [name, f"{len(data):,}", len(data.classes), f"{weight:.4g}", _number(far)]
                    for name, data, weight, far in zip(
                        names, found.datasets, found.weights.tolist(), found.distances, strict=True
                    )
                ],
            },
            {
                "title": "Step by step",
                "about": "The weighted sum of squared distances, which never rises.",
                "head": ["step", "value"],
                "rows": [[at, f"{value:.8g}"] for at, value in enumerate(found.values)],
            },
        ],
        setup={
            "why it ended": found.message,
            "cost": repr(found.cost),
            "solver": repr(found.solver),
        },
    )


def write_triangle_report(
    found: Triangle,
    place: str | Path,
    *,
    title: str = "Between three datasets",
    names: Sequence[str] | None = None,
) -> Path:
    """Write a page about a triangle of barycenters, as one HTML file that needs no network and runs no
    script.

    Args:
        found: what ``ad.triangle`` returned.
        place: the file to write, ``….html``; folders on the way are made.
        title: of the page.
        names: of the corners.

    Returns:
        The path of the file.

    Example:
        >>> import tempfile, advect as ad
        >>> from advect.report import write_triangle_report
        >>> sets = [ad.datasets.load(f"toy:gaussians?n=20&shift={at},0") for at in (0, 3, 9)]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     page = write_triangle_report(ad.triangle(*sets, n=2), f"{folder}/page.html")
        ...     print("triangle" in page.read_text(encoding="utf-8"))
        True
    """
    what = "this page is made of a Triangle"
    check_kind(what, found, Triangle, "Pass what ad.triangle returned.")
    place, names = page_place(place), _named(names, 3)
    late = sum(not node.converged for node in found.nodes)
    return _written(
        place,
        kind="A triangle of barycenters",
        title=title,
        notes=[f"{late} of {len(found.nodes)} nodes have not converged."] if late else [],
        tiles=[
            ("nodes", f"{len(found.nodes):,}"),
            ("steps along a side", f"{found.n:,}"),
            *(
                (name, f"{len(data):,} samples")
                for name, data in zip(names, found.datasets, strict=True)
            ),
        ],
        pictures=_pictured(lambda: found.figure(names=names), found.datasets[0]),
        seen="Where the weights are",
        about="Each node is the barycenter with the weights of its place. Of images, the same samples "
        "as far as plans take them.",
        tables=[
            {
                "title": "Nodes",
                "about": "The weighted sum of squared distances of each.",
                "head": ["node", *names, "samples", "value", "steps"],
                "rows": [
                    [
                        at,
                        *(f"{weight:.3g}" for weight in node.weights.tolist()),
                        f"{len(node.dataset):,}",
                        f"{node.value:.5g}",
                        node.n_iter,
                    ]
                    for at, node in enumerate(found.nodes)
                ],
            }
        ],
        setup={},
    )


def _written(
    place: Path, *, tables: list[dict[str, Any]], setup: dict[str, str], **page: Any
) -> Path:
    from markupsafe import Markup

    for table in tables:
        table["left_out"] = max(0, len(table["rows"]) - _MOST_ROWS)
        table["rows"] = table["rows"][:_MOST_ROWS]
    text = filled(
        "between.html.jinja",
        style=Markup(part("style.css") + part("labels.css") + part("between.css")),
        tables=tables,
        setup={
            **setup,
            "versions": versions(),
            "written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        },
        **page,
    )
    return write_page(place, text)


def _pictured(draw: Callable[[], Any], data: LabeledDataset) -> dict[str, str]:
    """A picture for light and for dark pages; none of samples on a line."""
    if data.dim < 2:
        return {}
    found = {}
    for kind, dark in (("light", False), ("dark", True)):
        with style(dark=dark):
            figure = draw()
            figure.draw_without_rendering()  # the layout of the first pass is only nearly right
            content = io.BytesIO()
            figure.savefig(content, format="png", dpi=140, facecolor=figure.get_facecolor())
        text = base64.b64encode(content.getvalue()).decode()
        found[kind] = f"data:image/png;base64,{text}"
    return found


def _pairs_table(path: InterpolationPath) -> dict[str, Any]:
    """How much mass goes between which classes, the most first."""
    source, target = path.distance.source, path.distance.target
    rows = path[0].rows
    codes = torch.stack([source.y[rows[:, 0]], target.y[rows[:, 1]]], dim=1)
    pairs, index = codes.unique(dim=0, return_inverse=True)
    mass = path[0].dataset.weights.new_zeros(len(pairs))
    mass = mass.index_add(0, index, path[0].dataset.weights)
    order = torch.argsort(mass, descending=True, stable=True).tolist()
    names = path[0].pairs
    return {
        "title": "Which classes are paired",
        "about": "Shares of the mass that go from a class of a to a class of b.",
        "head": ["from a", "to b", "mass"],
        "rows": [
            [
                "no label" if one is None else str(one),
                "no label" if two is None else str(two),
                share,
            ]
            for (one, two), share in ((names[at], f"{float(mass[at]):.2%}") for at in order)
        ],
    }


def _times_table(path: InterpolationPath) -> dict[str, Any]:
    whole = path.distance.value
    return {
        "title": "Times",
        "about": "On a geodesic (exact transport, squared Euclidean features, Gaussian label laws) "
        "distances to the ends are these.",
        "head": ["t", "to a", "to b"],
        "rows": [[f"{s.t:g}", f"{s.t * whole:.4g}", f"{(1 - s.t) * whole:.4g}"] for s in path],
    }


def _split_notes(path: InterpolationPath) -> list[str]:
    source, rows = path.distance.source, path[0].rows
    if not (source.complete and path.distance.target.complete):
        return ["Some samples have no label: there are no label laws on the way."]
    table = path.distance.class_coupling.values
    split = [
        str(name)
        for name, row in zip(source.classes, table, strict=True)
        if row.sum() > 0 and 1 - row.max() / row.sum() > _SPLIT and len(rows)
    ]
    few = ", ".join(split[:8]) + (f" and {len(split) - 8} more" if len(split) > 8 else "")
    return [f"Classes of a that go to several of b: {few}."] if split else []


def _named(names: Sequence[str] | None, n: int) -> list[str]:
    if names is None:
        return [f"dataset {at}" for at in range(1, n + 1)]
    if len(names) != n:
        raise InputError(
            f"there must be a name for each of the {n} datasets", len(names), "Pass as many."
        )
    return [str(name) for name in names]


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.4g}"
