"""The page of a model that was put to use on other data: whether the flow was worth it, on labels that
nobody used; which class is which; samples before and after. One file, without scripts.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from advect._util.checks import check_count
from advect.apps.repurpose import Repurposed
from advect.data.class_table import ClassTable
from advect.report.charts import curve_chart
from advect.report.class_tables import MOST_CLASSES, heat
from advect.report.page import made_with, page_place, plain_page, write_page
from advect.report.samples import Samples
from advect.report.scores import share_row
from advect.report.story import chosen, shown
from advect.report.summary import described

_MOST_SHOWN = 40  # classes with their samples
_OPTIONS = ("label", "label_weight", "solver", "n_steps", "step_size", "bounds")
_SAID = {
    "flow": "after the flow, by the model",
    "no flow": "asked directly, by the model",
    "posterior": "by the map's posterior, without the model",
}


def write_repurpose_report(
    found: Repurposed,
    path: str | Path,
    *,
    title: str = "A model on other data",
    each: int = 8,
    compare: bool = True,
) -> Path:
    """Write a page about a model that ``ad.apps.repurpose`` put to use, as one HTML file that needs no
    network and runs no script.

    Args:
        found: what ``ad.apps.repurpose`` returned.
        path: the file to write, ``….html``; folders on the way are made.
        title: of the page.
        each: how many samples of each class to show.
        compare: also say what came out right of labels kept aside, which takes another flow unless
            ``found.comparison`` was looked at before.

    Returns:
        The path of the file.

    Raises:
        InputError: a path that is no place for an HTML file.

    Example:
        >>> import tempfile, advect as ad
        >>> reference = ad.datasets.load("toy:gaussians?n=60&seed=1")
        >>> data = reference.replace(x=reference.x * 0.5 + 20, classes=("<x>", "y", "z"))
        >>> nearest = lambda x: (x[:, None] - reference.moments().means).square().sum(2).argmin(1)
        >>> found = ad.apps.repurpose(nearest, reference, data)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = found.report(f"{folder}/page.html")
        ...     print("&lt;x&gt;" in path.read_text(encoding="utf-8"))
        True
    """
    place, each = page_place(path), check_count("each", each)
    return write_page(place, _page(found, title, each, compare))


def _page(found: Repurposed, title: str, each: int, compare: bool) -> str:
    before, after = found.result.source, found.result.dataset
    looks, options = Samples(before, after), found.options
    named = before.has_classes
    small = max(found.matching.coupling.shape) <= MOST_CLASSES
    confusion = _confusion(found)
    return plain_page(
        "repurpose.html.jinja",
        title=title,
        notes=[str(note) for note in found.result.diagnosis],
        tiles=_tiles(found, compare),
        said=found.recommendation if compare else "",
        scores=_scores(found) if compare else [],
        held_out=found.comparison.n if compare else 0,
        labeling=_labeling(found),
        matching=heat(found.matching.coupling, share=True) if small else None,
        pairs=list(found.matching.hard.items()),
        confusion=None
        if confusion is None or max(confusion.shape) > MOST_CLASSES
        else heat(confusion, share=True),
        charts=_charts(found),
        groups=[_group(looks, before, after, name, each) for name in before.classes[:_MOST_SHOWN]]
        if named
        else [],
        heads=looks.columns,
        setup={
            "model": type(found.model).__name__,
            "reference": described(found.reference, len(found.reference)),
            "data": f"{len(found.predictions):,} samples, {len(before):,} of which flowed",
            "map": shown(found.map).partition("(")[0],
            **chosen(options, _OPTIONS),
            **made_with(),
        },
    )


def _tiles(found: Repurposed, compare: bool) -> list[tuple[str, str]]:
    tiles = [
        ("samples", f"{len(found.predictions):,}"),
        (
            "classes, data → model",
            f"{len(found.matching.data_classes)} → {len(found.matching.reference_classes)}",
        ),
        ("objective", f"{found.result.values[0]:.4g} → {found.result.values[-1]:.4g}"),
    ]
    if found.accuracy is not None:
        tiles.append(("right, of labels that the flow used", f"{found.accuracy:.1%}"))
    if compare:
        right = found.comparison.accuracies
        if {"flow", "no flow"} <= right.keys():
            tiles.append(
                ("right, of held-out labels", f"{right['no flow']:.1%} → {right['flow']:.1%}")
            )
        tiles.append(("recommended", found.comparison.recommended))
    return tiles


def _scores(found: Repurposed) -> list[dict[str, Any]]:
    chosen, n = found.comparison.recommended, found.comparison.n
    return [
        share_row(_SAID[way], right, n, taken="recommended" if way == chosen else "")
        for way, right in found.comparison.accuracies.items()
    ]


def _labeling(found: Repurposed) -> list[tuple[str, str]]:
    """What stood in for labels, and what spoke for it."""
    if found.labeling is None:
        return []
    known = "knows" if found.labeling.known else "does not know"
    return [
        ("labels", f"{found.labeling.kind} stood in for them"),
        (
            "agreement of the model with clusters",
            f"κ = {found.labeling.agreement:.2f}: it {known} such data",
        ),
        *((f"silhouette of {name}", f"{v:.3f}") for name, v in found.labeling.silhouettes.items()),
    ]


def _confusion(found: Repurposed) -> ClassTable | None:
    """Labels against predictions, where all samples that flowed have both."""
    source = found.result.source
    if found.labeling is not None or len(source) != len(found.predictions):
        return None
    counts = Counter(zip(source.labels, found.predictions, strict=True))
    names = tuple(source.classes)
    none = (None,) if any(answer is None for answer in found.predictions) else ()
    values = [[counts[label, answer] for answer in (*names, *none)] for label in names]
    columns = (*names, *(("no answer",) if none else ()))
    return ClassTable(np.array(values, dtype=float), names, columns)


def _charts(found: Repurposed) -> list[Any]:
    result = found.result
    first = result.n_steps + 1 - len(result.values)
    values = [(first + k, value) for k, value in enumerate(result.values) if np.isfinite(value)]
    charts = [curve_chart("Objective", "step", "value", values)] if len(values) > 1 else []
    if len(found.accuracies) > 1:
        text = "Right, of labels that the flow used"
        charts.append(curve_chart(text, "step", "share", found.accuracies, percent=True))
    return charts


def _group(looks: Samples, before: Any, after: Any, name: Any, each: int) -> dict[str, Any]:
    rows = np.flatnonzero(before.y.cpu().numpy() == before.classes.index(name))
    sides = (("before", before), ("after the flow", after))
    return {
        "name": str(name),
        "about": f"{len(rows):,} samples",
        "kinds": [{"title": text, "cards": looks.cards(d, rows[:each])} for text, d in sides],
    }
