"""The page of a pool that was labeled: what is unsure, class by class, how far labels can be
believed, and how they were given. One file, without scripts.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from advect._util.checks import check_count
from advect.apps.label import Labelled
from advect.report.charts import histogram, reliability_chart
from advect.report.encoding import Shades, picture_uri
from advect.report.page import filled, page_place, part, versions, write_page
from advect.viz.theme import class_marks, style

_SIDE = 72  # pixels of a picture
_MOST_CLASSES = 60  # that are shown, those with the least sure labels first
_MOST_COLUMNS = 8
_SURE = 0.9


def write_label_report(
    made: Labelled, path: str | Path, *, title: str = "Labels for a pool", each: int = 8
) -> Path:
    """Write a page about labels that ``ad.apps.label`` gave, as one HTML file that needs no network
    and runs no script.

    Args:
        made: what ``ad.apps.label`` returned.
        path: the file to write, ``….html``; folders on the way are made.
        title: of the page.
        each: how many samples of each class to show, the least sure ones.

    Returns:
        The path of the file.

    Raises:
        InputError: a path that is no place for an HTML file.

    Example:
        >>> import tempfile, advect as ad
        >>> from advect.report import write_label_report
        >>> digits = ad.datasets.load("digits", n=200)
        >>> known = [name if row < 40 else None for row, name in enumerate(digits.labels)]
        >>> made = ad.apps.label(ad.LabeledDataset(digits.samples, known))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = write_label_report(made, f"{folder}/digits.html", title="Digits <8 x 8>")
        ...     print("Digits &lt;8 x 8&gt;" in path.read_text(encoding="utf-8"))
        True
    """
    place, each = page_place(path), check_count("each", each)
    return write_page(place, _page(made, title, each))


def _page(made: Labelled, title: str, each: int) -> str:
    from markupsafe import Markup

    data, given = made.dataset, ~made.known
    confidence = made.confidence
    colours = [f"var(--c{code})" for code in range(len(data.classes))]
    shown = _shown_classes(made)
    columns = None
    if Shades.of(data.sample_shape, data.x[:1]) is None:
        columns = [str(n) for n in data.columns or [f"x{i}" for i in range(data.dim)]]
    return filled(
        "labels.html.jinja",
        title=title,
        style=Markup(part("style.css") + part("labels.css") + class_colours(len(data.classes))),
        notes=[*made.notes, *_left_out(made, shown)],
        tiles=_tiles(made),
        groups=[_group(made, code, colours, each) for code in shown],
        columns=(columns or [])[:_MOST_COLUMNS],
        more_columns=max(0, len(columns or []) - _MOST_COLUMNS),
        reliability=reliability_chart(made.calibration.bins),
        reliability_words=_reliability_words(made),
        histogram=histogram(confidence[given]),
        classes=[_class_row(made, code, colours[code]) for code in range(len(data.classes))],
        setup={
            "way": str(made.way),
            "temperature": f"{made.calibration.temperature:.3g}",
            "versions": versions(),
            "written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        },
        compared=[
            (str(one.way), f"{one.accuracy:.1%}", f"{one.log_likelihood:.3f}")
            for one in made.compared
        ],
    )


def class_colours(k: int) -> str:
    """A colour for each class on a light page, and on a dark one."""

    def colours() -> str:
        marks = class_marks(range(k)).values()
        return "".join(f"--c{code}:{mark.colour};" for code, mark in enumerate(marks))

    with style(dark=True):
        dark = colours()
    return f":root{{{colours()}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"


def _tiles(made: Labelled) -> list[tuple[str, str]]:
    given, calibration = ~made.known, made.calibration
    sure = int((made.confidence[given] >= _SURE).sum())
    if calibration.accuracy is None or calibration.interval is None:
        right = ("should be right", "unknown")
    else:
        low, high = (round(100 * end) for end in calibration.interval)
        right = ("should be right", f"{calibration.accuracy:.0%} ({low} to {high})")
    return [
        ("samples", f"{len(made):,}"),
        ("classes", f"{len(made.dataset.classes):,}"),
        ("labels given", f"{int(given.sum()):,}"),
        right,
        (f"given with at least {_SURE:.0%}", f"{sure:,}"),
        ("mean confidence", f"{made.confidence[given].mean():.0%}"),
    ]


def _reliability_words(made: Labelled) -> str:
    calibration = made.calibration
    if calibration.error is None:
        return "No label could be held out: how far confidences can be believed is not known."
    return (
        f"Known labels that were held out, {calibration.n_held_out} in all, by how sure the others "
        "were of them: on the dashed line, confidence is the share that is right. Bars are 95 % "
        f"intervals. The mean distance from the line is {calibration.error:.1%}, part of which is "
        "chance."
    )


def _shown_classes(made: Labelled) -> list[int]:
    """Classes that have given labels, in order; of very many those with the least sure ones."""
    codes, least = made.dataset.y.cpu().numpy(), {}
    for code in range(len(made.dataset.classes)):
        members = made.confidence[(codes == code) & ~made.known]
        if len(members):
            least[code] = float(members.min())
    return sorted(sorted(least, key=lambda code: least[code])[:_MOST_CLASSES])


def _left_out(made: Labelled, shown: list[int]) -> list[str]:
    given = set(made.dataset.y.cpu().numpy()[~made.known].tolist())
    left = len(given) - len(shown)
    return [f"{left} more classes, whose labels are surer, are not shown below."] if left else []


def _group(made: Labelled, code: int, colours: list[str], each: int) -> dict[str, Any]:
    """The least sure samples that got one label."""
    data = made.dataset
    members = np.flatnonzero((data.y.cpu().numpy() == code) & ~made.known)
    rows = members[np.argsort(made.confidence[members], kind="stable")][:each]
    cards = [{"row": int(row), "likely": _likely(made, row, colours)} for row in rows]
    shades = Shades.of(data.sample_shape, data.x)
    if shades is not None:
        for card, image in zip(cards, shades.pixels(data.x[rows], _SIDE), strict=True):
            card["uri"] = picture_uri(image)
    group = {"name": str(data.classes[code]), "colour": colours[code]}
    below = int((made.confidence[members] < _SURE).sum())
    group["about"] = f"{len(members):,} given, {below:,} of them with less than {_SURE:.0%}"
    if shades is not None:
        return group | {"cards": cards, "rows": []}
    for card in cards:
        values = data.x[card["row"], :_MOST_COLUMNS].tolist()
        card["features"] = [f"{value:.4g}" for value in values]
        card["likely_padding"] = [""] * (2 - len(card["likely"]))
    return group | {"cards": [], "rows": cards}


def _likely(made: Labelled, row: int, colours: list[str]) -> list[tuple[str, int, str]]:
    """The two most probable classes of a sample: name, percent, colour."""
    order = np.argsort(-made.probabilities[row], kind="stable")[:2]
    percent = [round(100 * float(made.probabilities[row, code])) for code in order]
    return [
        (str(made.dataset.classes[code]), share, colours[code])
        for code, share in zip(order, percent, strict=True)
    ]


def _class_row(made: Labelled, code: int, colour: str) -> dict[str, Any]:
    mine = made.dataset.y.cpu().numpy() == code
    given = mine & ~made.known
    most = np.bincount(made.dataset.y.cpu().numpy()).max()
    return {
        "name": str(made.dataset.classes[code]),
        "colour": colour,
        "known": f"{int((mine & made.known).sum()):,}",
        "given": f"{int(given.sum()):,}",
        "share": f"{100 * mine.mean():.1f}",
        "width": round(100 * int(mine.sum()) / most, 1),
        "confidence": f"{made.confidence[given].mean():.0%}" if given.any() else "",
    }
