"""Does the objective tell how well a frozen model will read the flowed data? (paper, section 6.3
and appendix F)

    ADVECT_DATA=path/to/data python experiments/oracle.py [--quick] [--settings usps-mnist …] [--out
    out]

Flows a dataset to the one a model was trained on, and asks the model on the way, for several
regularisations epsilon (relative to the mean cost) and several step sizes at the same total time.
Printed: accuracy at the end, and Spearman's correlation of minus the objective with the accuracy
along each flow. The flow uses the labels of the samples it is scored on.

For CAMELYON also the honest figures: test patches, from other slides, whose labels nobody used,
carried by a map and read by the same CIFAR-10 model; beside them a network of the same kind, and
nearest neighbours, trained on the same samples."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from lenet import predictions, train
from results import Results
from scipy.stats import spearmanr
from sklearn.neighbors import KNeighborsClassifier

import advect as ad
from advect import viz

SETTINGS = [
    ("usps", "mnist"), ("fashion_mnist", "mnist"), ("kmnist", "mnist"), ("stl10", "cifar10"), ("camelyon", "cifar10"),
]  # fmt: skip
EPSILONS, STEP_SIZES, TIME = (0.001, 0.01, 0.1, 0.5), (0.1, 0.2, 0.5), 3.0


def pair(
    source: str, target: str, n: int
) -> tuple[ad.LabeledDataset, ad.LabeledDataset, ad.LabeledDataset]:
    """n balanced samples of the data, n of the reference, and all of the reference's training
    part.
    """
    generator = torch.Generator().manual_seed(0)
    data, whole = ad.harmonize(
        ad.datasets.load(source), ad.datasets.load(target), size=32 if target == "cifar10" else 28
    )
    return (
        data.sample(n, balanced=True, generator=generator).balanced(),
        whole.sample(n, balanced=True, generator=generator).balanced(),
        whole,
    )


def watched(
    model: torch.nn.Module,
    data: ad.LabeledDataset,
    reference: ad.LabeledDataset,
    epsilon: float,
    step: float,
) -> dict:
    def accuracy(rho: ad.LabeledDataset) -> float:
        matching = ad.ClassMatching.between(
            rho, reference, cost=ad.GroundCost(label=ad.Bures(diagonal=True))
        )
        answers = torch.softmax(scores(model, rho.samples), dim=1)
        return float(
            np.mean([a == b for a, b in zip(matching.predict(answers), rho.labels, strict=True)])
        )

    cost = ad.GroundCost(label=ad.Bures(tolerance=1e-3), label_weight=5.0)
    steps = round(TIME / step)
    every = max(1, steps // 8)
    result = ad.flow(
        data,
        ad.OTDD(reference, cost=cost, solver=ad.Sinkhorn(epsilon=ad.Relative(epsilon))),
        dynamics=ad.FeatureDriven(through_laws=False, bounds=(0.0, 1.0)),
        integrator=ad.Euler(step),
        n_steps=steps,
        callbacks=[
            ad.Metric("accuracy", accuracy, every=every),
            ad.Progress(steps, f"epsilon {epsilon}, step {step}"),
        ],
    )
    curve = result.metrics["accuracy"]
    values = [result.values[index] for index, _ in curve]
    return {
        "epsilon": epsilon,
        "step": step,
        "time": [index * step for index, _ in curve],
        "objective": values,
        "accuracy": [value for _, value in curve],
        "spearman": float(spearmanr([-v for v in values], [value for _, value in curve])[0]),
    }


def scores(model: torch.nn.Module, images: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return torch.cat([model(part.float()) for part in images.split(500)])


def honest(model: torch.nn.Module, whole: ad.LabeledDataset, n: int, epochs: int) -> dict:
    """CAMELYON read by a CIFAR-10 model, on samples that flowed with their labels and on others."""
    generator = torch.Generator().manual_seed(0)
    reference = whole.sample(n // 2, balanced=True, generator=generator)
    data = ad.datasets.load("camelyon").sample(n, balanced=True, generator=generator)
    test = ad.datasets.load("camelyon", split="test")
    options = ad.apps.RepurposeOptions(
        bounds=(0.0, 1.0), n_steps=12, step_size=0.4, every=12, label=ad.Bures(diagonal=True)
    )
    repurposed = ad.apps.repurpose(model, reference, data, options)
    read = repurposed.predict(test)
    found = {
        "before": repurposed.accuracies[0][1],
        "supervised": repurposed.accuracy or 0.0,
        "held out": float(np.mean([a == b for a, b in zip(read, test.labels, strict=True)])),
    }
    own = train(data, epochs=epochs)
    found["trained on the same samples"] = float(
        (predictions(own, test.samples) == test.y).double().mean()
    )
    for k in (1, 15):
        nearest = KNeighborsClassifier(k).fit(data.x.numpy(), data.y.numpy())
        found[f"{k} nearest neighbours"] = float(nearest.score(test.x.numpy(), test.y.numpy()))
    return {"samples": len(data), "test samples": len(test), **found}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="200 samples, one step size, 2 epochs")
    parser.add_argument("--settings", nargs="+", default=[f"{a}-{b}" for a, b in SETTINGS])
    parser.add_argument("--out", type=Path, default=Path("out"))
    options = parser.parse_args()
    n, epochs, step_sizes = (200, 2, STEP_SIZES[1:2]) if options.quick else (500, 20, STEP_SIZES)
    results = Results(options.out / f"oracle-{n}.json")
    models: dict[str, torch.nn.Module] = {}
    for source, target in SETTINGS:
        if f"{source}-{target}" not in options.settings:
            continue
        data, reference, whole = pair(source, target, n)
        if target not in models:
            models[target] = train(whole, epochs=min(epochs, 8) if target == "cifar10" else epochs)
        for epsilon in EPSILONS:
            for step in step_sizes:
                name = f"{source} → {target}, epsilon {epsilon}, step {step}"
                row = results.once(name, watched, models[target], data, reference, epsilon, step)
                print(
                    f"{name}: accuracy {row['accuracy'][0]:.3f} → {row['accuracy'][-1]:.3f}, "
                    f"Spearman {row['spearman']:.3f}"
                )
        if source == "camelyon":
            row = results.once("camelyon, honest", honest, models[target], whole, 4 * n, epochs)
            print("\n".join(f"camelyon: {name} {value:.3f}" for name, value in row.items()))
    rows = {name: row for name, row in results.values.items() if "spearman" in row}
    rows = dict(
        sorted(rows.items(), key=lambda item: (item[1]["epsilon"], item[1]["step"]))
    )  # settings in their order below
    picture = viz.save(figure(rows), options.out / "oracle.png")
    print(f"wrote {results.path} and {picture}")


def figure(rows: dict[str, dict]):
    """For each setting, objective and accuracy over time: colours are regularisations, line styles
    step sizes.
    """
    from matplotlib.figure import Figure

    settings = list(dict.fromkeys(name.split(",")[0] for name in rows))
    drawing = Figure(figsize=(3.2 * len(settings), 5.2), layout="constrained")
    axes = drawing.subplots(2, len(settings), squeeze=False, sharex=True)
    colours = dict(zip(EPSILONS, ("#0072B2", "#009E73", "#E69F00", "#D55E00"), strict=True))
    styles = dict(zip(STEP_SIZES, (":", "-", "--"), strict=True))
    for column, setting in enumerate(settings):
        top, bottom = axes[:, column]
        for name, row in rows.items():
            if name.startswith(setting + ","):
                look = {"color": colours[row["epsilon"]], "linestyle": styles[row["step"]]}
                label = f"epsilon {row['epsilon']}, step {row['step']}"
                top.plot(row["time"], row["objective"], **look)
                bottom.plot(
                    row["time"], [100 * value for value in row["accuracy"]], label=label, **look
                )
        top.set_title(setting.replace("_", "-"), fontsize=10)
        bottom.set(ylim=(0, 102), xlabel="flow time")
    axes[0, 0].set_ylabel("½ OTDD²")
    axes[1, 0].set_ylabel("accuracy, %")
    handles, labels = axes[1, 0].get_legend_handles_labels()
    drawing.legend(
        handles, labels, loc="outside lower center", ncols=len(EPSILONS), fontsize=8, frameon=False
    )
    return drawing


if __name__ == "__main__":
    main()
