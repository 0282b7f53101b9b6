"""Power over the strength of a change, drawn from results/drift.json into docs/figures.

python experiments/drift_figure.py"""

from __future__ import annotations

from figures import COLOURS, FIGURES
from tables import Experiment

from advect import viz

LINES = (
    *("ad.drift", "MMD, features", "MMD, features and labels"),
    *("classifier, features", "classifier, features and labels"),
)
UNITS = {
    "class mean": "deviations of the class",
    "random labels": "share of labels drawn anew",
    "swapped pair": "share of two classes swapped",
    "shares": "share of a class missing, another for it",
    "rotation": "degrees",
    "noise": "deviations of a pixel",
    "new class": "share of the window",
    "lost class": "share of a class missing",
}


def figure(found: Experiment):
    """A panel for each kind of change."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(11, 5.4), layout="constrained")
    axes = drawing.subplots(2, 4, sharey=True).ravel()
    for axis, (shift, unit) in zip(axes, UNITS.items(), strict=True):
        strengths = found.settings["SHIFTS"][shift]
        for way, colour in zip(LINES, COLOURS, strict=False):
            power = [found.values(f"mnist, n 200, {shift} {each:g}", way) for each in strengths]
            ours = way == found.recommended
            axis.plot(
                strengths,
                [each[0] for each in power],
                color=colour,
                marker="o",
                markersize=4 if ours else 3,
                linewidth=2.4 if ours else 1.1,
                linestyle="-" if "labels" in way or ours else "--",
                label=way,
                zorder=3 if ours else 2,
            )
        axis.axhline(100 * found.settings["LEVEL"], color="#888888", linewidth=0.8, linestyle=":")
        axis.set_title(shift, fontsize=10)
        axis.set_xlabel(unit, fontsize=8)
        axis.set_xticks(strengths)
        axis.set_ylim(-3, 103)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[::4]:
        axis.set_ylabel("drift found, % of pairs")
    handles, labels = axes[0].get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=9, frameon=False)
    return drawing


if __name__ == "__main__":
    print(viz.save(figure(Experiment.read("drift")), FIGURES / "drift-power.png"))
