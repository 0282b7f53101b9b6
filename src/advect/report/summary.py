"""The words, figures and charts of a report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from advect.data.dataset import LabeledDataset
from advect.report.shown_frames import Frames
from advect.report.story import Curve, Story
from advect.transport.notes import rises

_MOST_KNOTS = 500  # of a curve


def charts(story: Story, frames: Frames) -> list[dict[str, Any]]:
    """The objective with its terms, each metric, and how many samples each class has where that
    changes.
    """
    whole = {"objective": objective_of(story, frames), **story.terms}
    found = [{**chart("Objective", whole, ink=True), "rose": risen(story, frames)}]
    found += [chart(name, {name: curve}) for name, curve in story.metrics.items() if len(curve)]
    if frames.moving:
        rows = zip(frames.names, frames.counts(), strict=True)
        counts = {str(name): list(zip(frames.steps, row, strict=True)) for name, row in rows}
        found.append({**chart("Samples of each class", counts), "classes": True})
    return found


def risen(story: Story, frames: Frames) -> list[int]:
    """The steps in which the objective rose by more than rounding."""
    curve = objective_of(story, frames)
    sizes = [abs(value) for _, value in curve]
    terms = list(story.terms.values())
    if terms and all(len(term) == len(curve) for term in terms):
        sizes = [sum(abs(value) for _, value in parts) for parts in zip(*terms, strict=True)]
    known = [place for place, (_, value) in enumerate(curve) if math.isfinite(value)]
    if not known:
        return []
    values, dtype = [curve[place][1] for place in known], frames.after.x.dtype
    found = rises(values, 0, dtype, [sizes[place] for place in known])
    return [int(curve[known[position]][0]) for position in found]


def objective_of(story: Story, frames: Frames) -> Curve:
    """The objective at every step, or at the frames where no more is known."""
    return story.objective or list(zip(frames.steps, frames.values, strict=True))


def chart(
    title: str, curves: Mapping[str, Curve], *, ink: bool = False, runs: bool = False
) -> dict[str, Any]:
    """Curves of one chart, in colours.

    Args:
        title: of the chart.
        curves: by name.
        ink: the first is what falls: drawn in ink, and over decades on a scale of logarithms.
        runs: the same quantity of several runs, each of which is read at the current step.
    """
    series = []
    for position, (name, curve) in enumerate(curves.items()):
        knots = [(int(step), number(value)) for step, value in _thin(curve)]
        colour = None if ink and position == 0 else position - ink
        series.append(
            {
                "name": str(name),
                "x": [s for s, _ in knots],
                "y": [v for _, v in knots],
                "colour": colour,
            }
        )
    known = [value for line in series for value in line["y"] if value is not None]
    wide = bool(known) and min(known) > 0 and max(known) > 20 * min(known)
    return {
        "title": str(title),
        "log": wide and (ink or runs),
        "series": series,
        "classes": False,
        "runs": runs,
        "rose": [],
    }


def _thin(curve: Curve) -> Curve:
    if len(curve) <= _MOST_KNOTS:
        return curve
    return [curve[round(p)] for p in np.linspace(0, len(curve) - 1, _MOST_KNOTS)]


def number(value: float) -> float | None:
    """A number that JSON has."""
    return float(value) if math.isfinite(value) else None


def summary(story: Story, frames: Frames, target: LabeledDataset | None) -> dict[str, Any]:
    """What the head of the page and its lists say."""
    objective = objective_of(story, frames)
    n_steps = frames.steps[-1] if story.n_steps is None else story.n_steps
    named = frames.before.has_classes
    classes = f"{sum(count > 0 for count in frames.before.counts.values())}"
    data = {story.names[0]: described(frames.before, frames.n_all)}
    if target is not None:
        data[story.names[1]] = described(target, len(target))
        classes += f" → {len(target.classes)}"
    tiles = [
        ("objective", f"{objective[0][1]:.4g} → {objective[-1][1]:.4g}"),
        ("steps", f"{n_steps:,}"),
        *([] if story.seconds is None else [("time", duration(story.seconds))]),
        ("samples", f"{frames.n_all:,}" + ("" if target is None else f" → {len(target):,}")),
        ("classes", classes) if named else ("target", ", ".join(frames.before.target_names)),
        *(
            (str(name), f"{curve[0][1]:.4g} → {curve[-1][1]:.4g}")
            for name, curve in story.metrics.items()
            if len(curve)
        ),
    ]
    return {
        "title": story.title
        or (" → ".join(story.names) if target is not None else f"Flow of {story.names[0]}"),
        "names": story.names,
        "status": story.status,
        "message": story.message,
        "diagnosis": list(story.diagnosis),
        "tiles": tiles,
        "setup": {**data, **target_ranges(story, frames, target), **story.setup},
        "terms": [
            (name, f"{curve[0][1]:.4g}", f"{curve[-1][1]:.4g}")
            for name, curve in story.terms.items()
            if len(curve)
        ],
        "config": story.config,
        "command": story.command,
        "code": story.code,
        "last": len(frames.steps) - 1,
        "n_steps": n_steps,
    }


def target_ranges(story: Story, frames: Frames, target: LabeledDataset | None) -> dict[str, str]:
    """The ends and the middle of continuous targets: before, after, and of the target dataset."""
    sides = {story.names[0]: frames.before, f"{story.names[0]}, last": frames.after}
    sides |= {} if target is None else {story.names[1]: target}
    return {
        f"{name} of {side}": text
        for side, data in sides.items()
        for name, text in data.target_facts().items()
    }


def described(data: LabeledDataset, n: int) -> str:
    """A dataset in a few words.

    Example:
        >>> import advect as ad
        >>> described(ad.datasets.load("digits", n=20), 1797)
        '1,797 samples of 8 × 8, 10 classes'
    """
    shape = " × ".join(str(size) for size in data.sample_shape) or "1"
    features = (
        shape if len(data.sample_shape) > 1 else f"{shape} feature{'s' if shape != '1' else ''}"
    )
    k = len(data.classes)
    doubt = (
        f", labels in doubt (mean confidence {data.confidence.mean():.2f})"
        if data.has_doubt
        else ""
    )
    if not data.has_classes:
        return f"{n:,} samples of {features}, target {', '.join(data.target_names)}"
    return f"{n:,} samples of {features}, {k} class{'es' if k != 1 else ''}{doubt}"


def duration(seconds: float) -> str:
    """Seconds as one reads them.

    Example:
        >>> duration(0.21), duration(75), duration(7300)
        ('0.21 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.3g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
