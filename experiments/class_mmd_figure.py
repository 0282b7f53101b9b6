"""Accuracy of a frozen model over processor time, drawn from results/class_mmd.json into docs/figures.

python experiments/class_mmd_figure.py"""

from __future__ import annotations

from figures import COLOURS, FIGURES
from tables import Experiment

from advect import viz


def figure(found: Experiment):
    """A line for each draw, a colour for each functional."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(6.4, 3.4), layout="constrained")
    axis = drawing.subplots()
    for (way, cells), colour in zip(found.groups.items(), COLOURS, strict=False):
        for k, cell in enumerate(cells):
            _, seconds, share = zip(*cell["curve"], strict=True)
            percent = [100 * each for each in share]
            axis.plot(seconds, percent, color=colour, linewidth=1.3, label=way if k == 0 else None)
    for level in found.settings["LEVELS"]:
        axis.axhline(100 * level, color="#888888", linewidth=0.8, linestyle=":")
    axis.set(xscale="log", xlabel="processor seconds", ylabel="read right by the frozen model, %")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=9, frameon=False, loc="lower right")
    return drawing


if __name__ == "__main__":
    path = FIGURES / "class-mmd.png"
    print(viz.save(figure(Experiment.read("class_mmd")), path))
