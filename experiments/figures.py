"""Accuracy over the number of labeled samples, drawn from the files of ``results/``."""

from __future__ import annotations

import re
from pathlib import Path

from evidence import FOLDER, known
from tables import Experiment

from advect import viz

FIGURES = FOLDER.parent / "docs" / "figures"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555")
MOST = len(COLOURS)
_COUNT = re.compile(r"^(?P<set>.*), (?P<count>\d+) (?P<what>shots?|labels?)$")


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
    """A panel for each dataset, a line for each column, bars for 95 % intervals."""
    from matplotlib.figure import Figure

    sets = curves(experiment)
    drawing = Figure(figsize=(3.3 * len(sets) + 0.4, 3.7), layout="constrained")
    ways = drawn_columns(experiment)
    for axis, (name, settings) in zip(
        drawing.subplots(1, len(sets), squeeze=False)[0], sets.items(), strict=True
    ):
        counts = sorted(settings)
        for place, (way, colour) in enumerate(zip(ways, COLOURS, strict=False)):
            line = [(k, experiment.mean(settings[k], way)) for k in counts]
            line = [(k, *map(float, mean.split(" ± "))) for k, mean in line if "±" in mean]
            if not line:
                continue
            x = [point[0] * 1.05 ** (place - len(ways) / 2) for point in line]
            means, bars = [point[1] for point in line], [point[2] for point in line]
            wide = 2.0 if way == experiment.recommended else 1.1
            axis.errorbar(
                x, means, bars, color=colour, marker="o", markersize=3.5, linewidth=wide, label=way
            )
        axis.set(xscale="log", title=name, xlabel="labeled samples of each class")
        axis.set_xticks(counts, [str(k) for k in counts])
        axis.minorticks_off()
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    drawing.axes[0].set_ylabel("test accuracy, %")
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


def reference(experiment: Experiment) -> str:
    """The figure of an experiment in Markdown, or nothing where there is none yet."""
    if not curves(experiment):
        return ""
    return f"![{experiment.name}: accuracy over labeled samples](figures/{experiment.name}.png)"


def draw_all() -> list[Path]:
    """Draw the figure of every experiment that has one."""
    drawn = []
    for name in known():
        experiment = Experiment.read(name)
        if curves(experiment):
            drawn.append(Path(viz.save(figure(experiment), FIGURES / f"{name}.png")))
    return drawn
