"""Adapt the data or adapt the model? (paper, section 6.2, the scatter) The same labeled samples,
used either way.

    ADVECT_DATA=path/to/data python experiments/data_vs_model.py [--quick] [--shots 10] [--draws 3]
    [--out out]

For all pairs of MNIST, USPS, KMNIST, Fashion-MNIST: a network trained on the source is fine-tuned
on k target samples of each class (model adaptation), or the source flows to these samples and a new
network is trained on where it ends, or on the way, and the samples (data adaptation). Shown is the
relative change of the test error against a network trained on the k samples alone."""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

from results import Results
from transfer import evaluate

from advect import viz

WAYS = ("target only", "+ final", "+ way", "fine-tuned")
SETS = {"mnist": "M", "usps": "U", "kmnist": "K", "fashion_mnist": "F"}


def gain(table: dict, way: str) -> float:
    """By how many per cent the error of training on the few samples alone is reduced."""
    alone, other = 100 - table["target only"]["mean"], 100 - table[way]["mean"]
    return 100 * (alone - other) / alone


def figure(rows: dict[str, dict]):
    """One point for each pair, and a ring for training on the way; above the diagonal, adapting the
    data gains more.
    """
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(5.2, 5), layout="constrained")
    axis = drawing.subplots()
    axis.axline((0, 0), slope=1, color="#999999", linewidth=1)
    axis.axhline(0, color="#cccccc", linewidth=0.8)
    axis.axvline(0, color="#cccccc", linewidth=0.8)
    colours = dict(zip(SETS, ("#0072B2", "#D55E00", "#009E73", "#CC79A7"), strict=True))
    for name, row in rows.items():
        source, target = name.split(", ")[0].split(" → ")
        point = gain(row["table"], "fine-tuned"), gain(row["table"], "+ final")
        axis.plot(*point, "o", color=colours[target], markersize=6)
        axis.plot(
            point[0],
            gain(row["table"], "+ way"),
            "o",
            color=colours[target],
            markersize=6,
            fillstyle="none",
        )
        name, above = (
            f"{SETS[source]}→{SETS[target]}",
            dict(zip(SETS, (-15, -24, 6, 15), strict=True))[source],
        )  # often close
        axis.annotate(
            name, point, xytext=(0, above), textcoords="offset points", ha="center", fontsize=9
        )
    axis.margins(0.12)
    axis.set(
        xlabel="model adaptation (fine-tuning): errors removed, %",
        ylabel="data adaptation (flow; rings: its way): errors removed, %",
    )
    return drawing


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="300 source samples, 200 updates, 2 draws"
    )
    parser.add_argument("--shots", type=int, default=10)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("out"))
    options = parser.parse_args()
    size = {"n": 300, "updates": 200} if options.quick else {"n": 1000}
    draws = 2 if options.quick else options.draws
    results = Results(
        options.out / ("data_vs_model-quick.json" if options.quick else "data_vs_model.json")
    )
    for source, target in itertools.permutations(SETS, 2):
        name = f"{source} → {target}, {options.shots} shots, {draws} draws"
        row = results.once(name, evaluate, source, target, options.shots, draws, ways=WAYS, **size)
        table = row["table"]
        gains = ", ".join(
            f"{way} {table[way]['mean']:.1f} ({gain(table, way):+.1f} % errors)" for way in WAYS[1:]
        )
        print(f"{name}: target only {table['target only']['mean']:.1f}, {gains}", flush=True)
    picture = viz.save(figure(results.values), options.out / "data_vs_model.png")
    print(f"wrote {results.path} and {picture}")


if __name__ == "__main__":
    main()
