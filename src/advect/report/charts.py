"""Small charts as SVG in the colours of the page; what names are in them is escaped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from advect.apps.calibration import Bin, wilson

if TYPE_CHECKING:
    from markupsafe import Markup

_WIDE, _HIGH = 400, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 12, 26, 38
_TENTHS = 20  # columns of a histogram of confidences


def reliability_chart(bins: Sequence[Bin]) -> Markup:
    """Accuracy over confidence, with 95 % intervals and the line where they are equal.

    Example:
        >>> "circle" in reliability_chart([Bin(0.4, 0.6, 10, 0.5, 0.6)])
        True
    """
    marks = [f'<line class="ideal" x1="{_x(0)}" y1="{_y(0)}" x2="{_x(1)}" y2="{_y(1)}"/>']
    for one in bins:
        low, high = wilson(round(one.accuracy * one.n), one.n)
        at = _x(one.confidence)
        marks.append(f'<line class="whisker" x1="{at}" x2="{at}" y1="{_y(low)}" y2="{_y(high)}"/>')
        marks.append(f'<circle class="point" cx="{at}" cy="{_y(one.accuracy)}" r="4"/>')
    return _chart(
        "Right, by confidence, on held-out labels", "confidence", "share that is right", marks
    )


def histogram(confidence: np.ndarray) -> Markup:
    """How many labels were given with which confidence.

    Example:
        >>> histogram(np.array([0.2, 0.9, 0.95])).count('class="column"')
        2
    """
    counts, edges = np.histogram(confidence, bins=_TENTHS, range=(0, 1))
    most = max(1, int(counts.max()))
    marks = [
        f'<rect class="column" x="{_x(low) + 1}" width="{_x(high) - _x(low) - 2:.1f}" '
        f'y="{_y(count / most)}" height="{_y(0) - _y(count / most):.1f}" rx="2"/>'
        for low, high, count in zip(edges[:-1], edges[1:], counts.tolist(), strict=True)
        if count
    ]
    ticks = [(share, f"{round(share * most):,}") for share in (0.0, 0.5, 1.0)]
    return _chart("Labels given, by confidence", "confidence", "labels", marks, ticks)


def null_chart(title: str, permuted: np.ndarray, observed: float) -> Markup:
    """The statistics of permuted sides as columns, and the observed one as a line.

    Args:
        title: of the chart.
        permuted: one or more numbers.
        observed: another one.

    Example:
        >>> null_chart("A test", np.array([0.0, 1.0, 1.0]), 4.0).count('class="observed"')
        1
    """
    low, high = min(permuted.min(), observed), max(permuted.max(), observed)
    counts, edges = np.histogram(permuted, bins=40, range=(low, high if high > low else low + 1))
    most, width = max(1, int(counts.max())), float(edges[-1] - edges[0])
    marks = []
    for place, count in enumerate(counts.tolist()):
        if count:
            left, right = _x(place / 40), _x((place + 1) / 40)
            top = _y(count / most)
            marks.append(
                f'<rect class="column" x="{left + 0.5:.1f}" width="{right - left - 1:.1f}" '
                f'y="{top}" height="{_y(0) - top:.1f}" rx="1"/>'
            )
    share = (observed - float(edges[0])) / width
    at, side = _x(share), "end" if share > 1 / 2 else "start"
    off = -6 if share > 1 / 2 else 6
    marks.append(f'<line class="observed" x1="{at}" x2="{at}" y1="{_y(0)}" y2="{_y(1)}"/>')
    marks.append(
        f'<text class="observed-text" x="{at + off:.1f}" y="{_y(0.9)}" text-anchor="{side}">'
        "observed</text>"
    )
    ticks = [(share, f"{round(share * most):,}") for share in (0.0, 0.5, 1.0)]
    below = [(share, f"{edges[0] + share * width:.3g}") for share in (0.0, 0.5, 1.0)]
    return _chart(title, "statistic", "permutations", marks, ticks, below)


def loss_chart(losses: Sequence[float]) -> Markup:
    """A loss over the course of a training.

    Example:
        >>> "polyline" in loss_chart([1.0, 0.5, 0.4])
        True
    """
    most = max([*losses, 1e-12])
    last = max(len(losses) - 1, 1)
    places = " ".join(f"{_x(k / last)},{_y(loss / most)}" for k, loss in enumerate(losses))
    ticks = [(share, f"{share * most:.2g}") for share in (0.0, 0.5, 1.0)]
    marks = [f'<polyline class="curve" points="{places}"/>']
    return _chart("Loss in standard units", "of the training", "loss", marks, ticks)


def curve_chart(
    title: str,
    below: str,
    beside: str,
    knots: Sequence[tuple[Any, float]],
    *,
    best: Any = None,
    percent: bool = False,
) -> Markup:
    """Numbers over a parameter: a point for each, and a line through the means of those that have the
    same parameter. Positive parameters over more than a decade are on a scale of logarithms; texts
    stand side by side.

    Args:
        title, below, beside: of the chart and its axes.
        knots: (parameter, number), in any order.
        best: the parameter whose mean is marked.
        percent: numbers are shares, from 0 to 1.

    Example:
        >>> chart = curve_chart("Loss", "<step>", "loss", [(0.1, 3.0), (1, 2.0), (1, 4.0)], best=1)
        >>> chart.count("circle"), "&lt;step&gt;" in chart
        (4, True)
    """
    places, below_ticks = _along([parameter for parameter, _ in knots])
    numbers = [value for _, value in knots]
    low, high = (0.0, 1.0) if percent else (min(numbers), max(numbers))
    if high <= low:
        low, high = low - (abs(low) or 1) / 10, high + (abs(high) or 1) / 10
    up = {value: (value - low) / (high - low) for value in numbers}
    means = {
        parameter: float(np.mean([up[value] for other, value in knots if other == parameter]))
        for parameter in places
    }
    order = sorted(places, key=lambda parameter: places[parameter])
    line = " ".join(f"{_x(places[one])},{_y(means[one])}" for one in order)
    marks = [f'<polyline class="curve" points="{line}"/>']
    marks += [
        f'<circle class="point" cx="{_x(places[one])}" cy="{_y(up[value])}" r="3"/>'
        for one, value in knots
    ]
    if best in places:
        marks.append(f'<circle class="best" cx="{_x(places[best])}" cy="{_y(means[best])}" r="6"/>')
    form = "{:.0%}" if percent else "{:.3g}"
    ticks = [(share, form.format(low + share * (high - low))) for share in (0.0, 0.5, 1.0)]
    return _chart(title, below, beside, marks, ticks, below_ticks)


def _along(parameters: Sequence[Any]) -> tuple[dict[Any, float], list[tuple[float, str]]]:
    """Where parameters stand on an axis from 0 to 1, and up to five ticks."""
    known = list(dict.fromkeys(parameters))
    plain = all(type(one) in (int, float) and math.isfinite(one) for one in known)
    if not plain or len(known) < 2:
        share = {one: (k + 0.5) / len(known) for k, one in enumerate(known)}
        names = known[:: -(-len(known) // 5)]
        return share, [(share[one], _short(one)) for one in names]
    wide = min(known) > 0 and max(known) > 10 * min(known)
    scale = math.log10 if wide else float
    low, high = scale(min(known)), scale(max(known))
    share = {one: 0.03 + 0.94 * (scale(one) - low) / (high - low) for one in known}
    names, ticks = sorted(known), []
    for one in names:  # those that have room
        if not ticks or share[one] - ticks[-1][0] > 0.17:
            ticks.append((share[one], f"{one:.4g}"))
    return share, ticks


def _short(name: Any) -> str:
    text = name if isinstance(name, str) else repr(name)
    return text if len(text) <= 14 else f"{text[:13]}…"


def _x(share: float) -> float:
    return round(_LEFT + share * (_WIDE - _LEFT - _RIGHT), 1)


def _y(share: float) -> float:
    return round(_HIGH - _BOTTOM - share * (_HIGH - _TOP - _BOTTOM), 1)


def _chart(
    title: str,
    below: str,
    beside: str,
    marks: Sequence[str],
    ticks: Sequence[tuple[float, str]] | None = None,
    ticks_below: Sequence[tuple[float, str]] | None = None,
) -> Markup:
    """Axes from 0 to 1, or with ticks of their own."""
    from markupsafe import Markup, escape

    title, below, beside = escape(title), escape(below), escape(beside)
    percent = [(share, f"{share:.0%}") for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    lines = [f'<text class="title" x="{_LEFT}" y="13">{title}</text>']
    for share, text in ticks or percent:
        lines.append(
            f'<line class="rule" x1="{_x(0)}" x2="{_x(1)}" y1="{_y(share)}" y2="{_y(share)}"/>'
        )
        lines.append(f'<text x="{_x(0) - 6}" y="{_y(share) + 4}" text-anchor="end">{text}</text>')
    for share, text in ticks_below or percent:
        lines.append(
            f'<text x="{_x(share)}" y="{_y(0) + 15}" text-anchor="middle">{escape(text)}</text>'
        )
    lines.append(
        f'<line class="axis" x1="{_x(0)}" x2="{_x(1)}" y1="{_y(0)}" y2="{_y(0)}"/>'
        f'<text x="{_x(0.5)}" y="{_HIGH - 4}" text-anchor="middle">{below}</text>'
    )
    inside = "".join([*lines, *marks])
    return Markup(
        f'<svg viewBox="0 0 {_WIDE} {_HIGH}" role="img" aria-label="{title}: {beside} over {below}">'
        f"{inside}</svg>"
    )
