"""Accuracy over the number of labeled samples, drawn from the files of ``results/``.

A figure keeps a digest of the numbers that it was drawn from, so that an old one is found."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

from evidence import FOLDER, known, rounded
from tables import Experiment

from advect import viz
from advect._util.atomic import write_atomically

FIGURES = FOLDER.parent / "docs" / "figures"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555")
MOST = len(COLOURS)
_STAMP = "drawn from"  # where a file says it
_COUNT = re.compile(r"^(?P<set>.*), (?P<count>\d+) (?:shots?|labels?|a class)$")


def curves(experiment: Experiment) -> dict[str, dict[int, str]]:
    """For each dataset, the settings by the number of labeled samples; nothing where there is only
    one number.
    """
    found: dict[str, dict[int, str]] = {}
    for setting in experiment.groups:
        if (match := _COUNT.match(setting)) and experiment.groups[setting]:
            found.setdefault(match["set"], {})[int(match["count"])] = setting
    return {name: each for name, each in found.items() if len(each) > 1}


def drawn_columns(experiment: Experiment) -> list[str]:
    """As many as can be told apart, what is recommended and what it is compared with first."""
    wanted = [experiment.recommended, experiment.baseline, *experiment.settings.get("DRAWN", ())]
    ways = [way for way in [*wanted, *experiment.columns] if way in experiment.columns]
    return list(dict.fromkeys(ways))[:MOST]


def figure(experiment: Experiment):
    """A column for each dataset: above, accuracies; below, paired gains over the baseline. A line
    for each way of training, bars for 95 % intervals.
    """
    from matplotlib.figure import Figure

    sets, ways = curves(experiment), drawn_columns(experiment)
    drawing = Figure(figsize=(3.2 * len(sets) + 0.6, 5.6), layout="constrained")
    axes = drawing.subplots(2, len(sets), squeeze=False, sharex="col")
    for (top, bottom), (name, settings) in zip(axes.T, sets.items(), strict=True):
        for place, (way, colour) in enumerate(zip(ways, COLOURS, strict=False)):
            shift = 1.05 ** (place - len(ways) / 2)
            look = {"color": colour, "marker": "o", "markersize": 3.5, "label": way}
            look["linewidth"] = 2.2 if way == experiment.recommended else 1.0
            _line(top, _means(experiment, settings, way), shift, look)
            _line(bottom, _gains(experiment, settings, way), shift, look)
        bottom.axhline(0, color=COLOURS[1], linewidth=1)
        top.set_title(name, fontsize=10)
        bottom.set(xscale="log", xlabel="labeled samples of each class")
        bottom.set_xticks(sorted(settings), [str(count) for count in sorted(settings)])
        bottom.minorticks_off()
        for axis in (top, bottom):
            axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel("test accuracy, %")
    axes[1, 0].set_ylabel(f"gain over\n{experiment.baseline}, points")
    labels = {
        label: handle
        for axis in drawing.axes
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    drawing.legend(
        labels.values(),
        labels.keys(),
        loc="outside lower center",
        ncols=4,
        fontsize=8,
        frameon=False,
    )
    return drawing


def _line(axis, points: Sequence[tuple[float, ...]], shift: float, look: dict) -> None:
    if points:
        x, y, bars = zip(*points, strict=True)
        axis.errorbar([shift * each for each in x], y, bars, **look)


def _means(experiment: Experiment, settings: dict[int, str], way: str):
    found = ((k, experiment.mean(settings[k], way)) for k in sorted(settings))
    return [(k, *map(float, mean.split(" ± "))) for k, mean in found if "±" in mean]


def _gains(experiment: Experiment, settings: dict[int, str], way: str):
    if way == experiment.baseline:
        return []
    found = ((k, experiment.gain(settings[k], way, experiment.baseline)) for k in sorted(settings))
    return [(k, gain.mean, gain.half) for k, gain in found if gain is not None]


def reference(experiment: Experiment) -> str:
    """The figure of an experiment in Markdown, or nothing where there is none yet."""
    if not curves(experiment):
        return ""
    return f"![{experiment.name}: accuracy over labeled samples](figures/{experiment.name}.png)"


def draw_all() -> list[Path]:
    """Draw the figure of every experiment that has one."""
    return [draw(experiment) for experiment in _with_curves()]


def draw(experiment: Experiment, folder: Path = FIGURES) -> Path:
    """Draw the figure of an experiment, and write into the file what it was drawn from."""
    from io import BytesIO

    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    path = viz.save(figure(experiment), folder / f"{experiment.name}.png")
    info, content = PngInfo(), BytesIO()
    info.add_text(_STAMP, _digest(experiment))
    with Image.open(path) as image:
        image.save(content, "PNG", pnginfo=info)
    write_atomically(path, content.getvalue())
    return path


def stale() -> list[Path]:
    """Figures that are not there, or were drawn from other numbers than there are now."""
    return [FIGURES / f"{each.name}.png" for each in _with_curves() if not is_current(each)]


def is_current(experiment: Experiment, folder: Path = FIGURES) -> bool:
    """Whether the figure of an experiment was drawn from its numbers."""
    from PIL import Image

    path = folder / f"{experiment.name}.png"
    if not path.exists():
        return False
    with Image.open(path) as image:
        return image.info.get(_STAMP) == _digest(experiment)


def _with_curves() -> list[Experiment]:
    return [experiment for experiment in map(Experiment.read, known()) if curves(experiment)]


def _digest(experiment: Experiment) -> str:
    """Of all that is drawn."""
    points = {
        f"{name}, {way}": [_means(experiment, settings, way), _gains(experiment, settings, way)]
        for name, settings in curves(experiment).items()
        for way in drawn_columns(experiment)
    }
    plain = rounded(json.loads(json.dumps(points)))
    facts = json.dumps([experiment.recommended, experiment.baseline, plain])
    return hashlib.sha256(facts.encode()).hexdigest()
