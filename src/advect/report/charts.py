"""Small charts as SVG in the colours of the page: they are made of numbers alone, so that nothing in
them has to be escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

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
        title: of the chart, a constant of ours: it is not escaped.
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
    from markupsafe import Markup

    percent = [(share, f"{share:.0%}") for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    lines = [f'<text class="title" x="{_LEFT}" y="13">{title}</text>']
    for share, text in ticks or percent:
        lines.append(
            f'<line class="rule" x1="{_x(0)}" x2="{_x(1)}" y1="{_y(share)}" y2="{_y(share)}"/>'
        )
        lines.append(f'<text x="{_x(0) - 6}" y="{_y(share) + 4}" text-anchor="end">{text}</text>')
    for share, text in ticks_below or percent:
        lines.append(f'<text x="{_x(share)}" y="{_y(0) + 15}" text-anchor="middle">{text}</text>')
    lines.append(
        f'<line class="axis" x1="{_x(0)}" x2="{_x(1)}" y1="{_y(0)}" y2="{_y(0)}"/>'
        f'<text x="{_x(0.5)}" y="{_HIGH - 4}" text-anchor="middle">{below}</text>'
    )
    inside = "".join([*lines, *marks])
    return Markup(
        f'<svg viewBox="0 0 {_WIDE} {_HIGH}" role="img" aria-label="{title}: {beside} over {below}">'
        f"{inside}</svg>"
    )
