"""Time of a step over samples, by the model, with what was measured; drawn into docs/figures.

python experiments/scale_figure.py"""

from __future__ import annotations

from figures import COLOURS, FIGURES
from tables import benchmark

from advect import viz


def main() -> None:
    from matplotlib.figure import Figure

    found = benchmark("scale_model")
    drawing = Figure(figsize=(9.2, 4.2), layout="constrained")
    here, far = drawing.subplots(1, 2)
    kept = [row for row in found["rows"] if row["kept"]]
    cells = sorted({(row["d"], row["ranks"]) for row in kept})
    marks = dict(zip(sorted({d for d, _ in cells}), "os^", strict=False))
    colours = dict(zip(sorted({ranks for _, ranks in cells}), COLOURS, strict=False))
    for d, ranks in cells:
        rows = sorted(
            (row for row in kept if (row["d"], row["ranks"]) == (d, ranks)),
            key=lambda row: row["n"],
        )
        x, look = [row["n"] for row in rows], {"color": colours[ranks]}
        name = f"{ranks} rank{'s' * (ranks > 1)}, d = {d}"
        measured = [row["step"]["measured"]["seconds"] for row in rows]
        model = [row["step"]["model"]["seconds"] for row in rows]
        here.plot(x, model, "-" if d == min(marks) else "--", linewidth=1.2, **look)
        here.plot(x, measured, marks[d], markersize=5, label=name, **look)
    here.set(title="here: points measured, lines by the model", xlabel="samples of each dataset")
    here.set(xscale="log", yscale="log", ylabel="a step by the clock, s")
    sizes = sorted({row["n"] for row in kept})
    here.set_xticks(sizes, [f"{n:,}" for n in sizes])
    here.set_yticks([0.3, 0.5, 1, 2, 5], ["0.3", "0.5", "1", "2", "5"])
    here.minorticks_off()
    here.legend(fontsize=8, frameon=False)
    table = found["routes"]["table"]
    for p, colour in zip(sorted({row["machines"] for row in table}), COLOURS, strict=False):
        for way, dashes in (("rows", "-"), ("condensed", ":")):
            rows = [row for row in table if (row["way"], row["machines"]) == (way, p)]
            label = f"{p:,} machines" if way == "rows" else None
            x, y = [row["n"] for row in rows], [row["seconds"] for row in rows]
            far.plot(x, y, dashes, color=colour, linewidth=1.4, label=label)
    for seconds, name in ((1, "a second"), (3600, "an hour"), (86_400 * 30, "a month")):
        far.axhline(seconds, color="#BBBBBB", linewidth=0.8, zorder=0)
        far.text(1.02, seconds, name, fontsize=8, va="center", transform=far.get_yaxis_transform())
    far.set(title="by the model: rows as built (–), condensed target (···)", xlabel="samples")
    far.set(xscale="log", yscale="log", ylabel="a step, s")
    far.legend(fontsize=8, frameon=False)
    for axis in (here, far):
        axis.spines[["top", "right"]].set_visible(False)
        axis.title.set_fontsize(10)
    print(viz.save(drawing, FIGURES / "scale-model.png"))


if __name__ == "__main__":
    main()
