"""What ``advect transfer`` and ``advect repurpose`` write and say."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advect.cli.output import Talk

if TYPE_CHECKING:
    import advect as ad


def transfer_page(
    made: ad.apps.Transferred, place: Path, names: Sequence[str], flow: bool, talk: Talk
) -> str | None:
    """The name of the page about training sets, in their directory; None, with a note, where it
    cannot be made.
    """
    title = " with the help of ".join(names)
    page = partial(made.report, place / "report.html", title=title, flow=flow)
    return None if talk.page(page) is None else "report.html"


def repurpose_page(
    found: ad.apps.Repurposed, place: Path, title: str, compare: bool, talk: Talk
) -> str | None:
    """The name of the page about a model on one dataset; None, with a note, where it cannot be
    made.
    """
    page = partial(found.report, place, title=title, compare=compare)
    return None if talk.page(page) is None else place.name


def scored(found: ad.apps.Repurposed) -> str:
    """What the labels that a flow used say, for a line."""
    if found.labeling is not None:
        return f", by {found.labeling.kind} for labels"
    return f", {found.accuracy:.1%} of the labels that the flow used"


def answers(found: ad.apps.Repurposed, data: ad.LabeledDataset) -> str:
    """Labels and predictions as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "label", "prediction"])
    writer.writerows(
        [row, "" if label is None else label, answer]
        for row, (label, answer) in enumerate(zip(data.labels, found.predictions, strict=True))
    )
    return text.getvalue()


def of_flow(made: ad.apps.Transferred) -> dict[str, Any]:
    """What a flow to a few samples found."""
    return {
        "steps": made.result.n_steps,
        "status": made.result.status,
        "value": made.result.values[-1],
        "first_value": made.result.values[0],
        "matching": made.matching.hard,
        "purity": made.purity,
        "landed": made.landed,
    }
