"""k-shot transfer (paper, section 6.2 and appendix E): does a dataset that has flowed to a few
samples help to learn them?

    ADVECT_DATA=path/to/data python experiments/transfer.py [--quick] [--targets usps …] [--shots 1
    5 …] [--draws 5] [--out out]

2000 MNIST images flow to k samples of each class of Fashion-MNIST, KMNIST or USPS. A LeNet-5 is
trained with the same number of updates (500, batches of 64) in every column, and tested on the
whole test part. The few samples keep half of every batch. Fine-tuning trains on MNIST first, with
the same number of updates, and on the few samples with half as many after that."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from lenet import Trainer
from results import Results

import advect as ad
from advect import viz

# the best published cells (Wasserstein over Wasserstein flows, 2025); their baseline was trained
# with fewer updates
PUBLISHED = {
    "fashion_mnist": {1: 40.5, 5: 62.7, 10: 66.2, 100: 74.7},
    "kmnist": {1: 20.9, 5: 39.0, 10: 44.7, 100: 66.8},
    "usps": {1: 39.5, 5: 73.3, 10: 77.2, 100: 89.7},
}

OPTIONS = ad.apps.TransferOptions(n_steps=8, step_size=0.4, every=1, bounds=(0.0, 1.0))
WAYS = ("target only", "+ final", "+ way", "fine-tuned")
ALL = ("target only", "+ source", "+ final", "+ way", "+ mapped", "fine-tuned")


def evaluate(
    source: str, target: str, shots: int, draws: int, *, n=2000, updates=500, ways=WAYS
) -> dict:
    """Accuracies in per cent of each way of training, one for each draw."""
    generator = torch.Generator().manual_seed(0)
    extra = "+ mapped" in ways
    rho = ad.datasets.load(source).sample(2 * n if extra else n, balanced=True, generator=generator)
    beta, test = ad.datasets.load(target), ad.datasets.load(target, split="test")
    beta, rho = ad.harmonize(beta, rho, size=28)
    test, _ = ad.harmonize(test, rho, size=28)
    more = None
    if extra:
        rho, more = rho.split(0.5, generator=generator)
    scores = ad.apps.evaluate_transfer(
        rho,
        beta,
        test,
        lambda seed: Trainer(seed, len(beta.classes), updates),
        shots=shots,
        draws=draws,
        extra=more,
        ways=ways,
        options=OPTIONS,
    )
    table = {
        way: {"mean": 100 * scores.mean(way), "interval": 100 * scores.interval(way)}
        for way in scores.accuracies
    }
    for way in table.keys() - {"target only"}:
        mean, interval = scores.gain(way)
        table[way] |= {"gain": 100 * mean, "gain interval": 100 * interval}
    return {
        "draws": draws,
        "updates": updates,
        "test samples": len(test),
        "table": table,
        "accuracies": scores.accuracies,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="300 source samples, 200 updates, 2 draws"
    )
    parser.add_argument("--targets", nargs="+", default=list(PUBLISHED), choices=list(PUBLISHED))
    parser.add_argument("--shots", nargs="+", type=int, default=[1, 5, 10, 100])
    parser.add_argument(
        "--all-ways",
        action="store_true",
        help="also with the source itself, and with mapped samples",
    )
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("out"))
    options = parser.parse_args()
    size = {"n": 300, "updates": 200} if options.quick else {}
    draws, ways = 2 if options.quick else options.draws, ALL if options.all_ways else WAYS
    results = Results(options.out / ("transfer-quick.json" if options.quick else "transfer.json"))
    for target in options.targets:
        for shots in options.shots:
            name = (
                f"mnist → {target}, {shots} shots, {draws} draws" + ", all ways" * options.all_ways
            )
            row = results.once(name, evaluate, "mnist", target, shots, draws, ways=ways, **size)
            cells = ", ".join(
                f"{way} {cell['mean']:.1f} ± {cell['interval']:.1f}{gained(cell)}"
                for way, cell in row["table"].items()
            )
            print(f"{name}: {cells}; published {PUBLISHED[target].get(shots, 'none')}", flush=True)
    picture = viz.save(figure(results.values), options.out / "transfer.png")
    print(f"wrote {results.path} and {picture}")


def gained(cell: dict) -> str:
    """What a way gains over target only on the same draws, where the results say."""
    return f" ({cell['gain']:+.1f} ± {cell['gain interval']:.1f})" if "gain" in cell else ""


def figure(rows: dict[str, dict]):
    """Accuracy over the number of shots, one panel for each target."""
    from matplotlib.figure import Figure

    colours = ("#555555", "#56B4E9", "#0072B2", "#E69F00")
    drawing = Figure(figsize=(10, 3.6), layout="constrained")
    targets = list(dict.fromkeys(name.split(",")[0] for name in rows))
    for axis, target in zip(
        drawing.subplots(1, len(targets), squeeze=False)[0], targets, strict=True
    ):
        chosen = {
            int(name.split(", ")[1].split()[0]): row["table"]
            for name, row in rows.items()
            if name.startswith(target + ",")
        }
        shots = sorted(chosen)
        for position, (way, colour) in enumerate(zip(WAYS, colours, strict=False)):
            means, bars = [[chosen[k][way][part] for k in shots] for part in ("mean", "interval")]
            shift = [k * 1.04 ** (position - 1.5) for k in shots]
            axis.errorbar(
                shift, means, bars, color=colour, marker="o", markersize=4, linewidth=1.2, label=way
            )
        published = PUBLISHED.get(target.split(" → ")[1], {})
        known = [k for k in shots if k in published]
        axis.plot(
            known,
            [published[k] for k in known],
            "k*",
            markersize=8,
            linestyle="none",
            label="best published",
        )
        axis.set(
            xscale="log",
            xticks=shots,
            xticklabels=shots,
            title=target.replace("_", "-"),
            xlabel="samples of each class",
        )
        axis.minorticks_off()
    drawing.axes[0].set_ylabel("test accuracy, %")
    handles, labels = drawing.axes[0].get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside lower center", ncols=7, fontsize=8, frameon=False)
    return drawing


if __name__ == "__main__":
    main()
