"""Shaping a dataset in space: a Gaussian blob flows to a swiss roll under constraints (paper,
section 6.1, figures 1 and 8).

    python experiments/shaping.py [--quick] [--out DIR]

Writes shaping.png and shaping.json. Transport of features alone, instead of OTDD, finds the shape
of the roll and misses its classes; the purity says how much."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

import advect as ad
from advect import viz
from advect.data.store import write_atomically


def datasets(n: int) -> tuple[ad.LabeledDataset, ad.LabeledDataset]:
    """A swiss roll of four classes, and a blob of overlapping Gaussian classes in its middle."""
    generator = torch.Generator().manual_seed(0)
    target = ad.datasets.swiss_roll(n, generator=generator)
    means = target.laws().means.to(target.x)
    means = means.mean(dim=0) + 0.3 * (means - means.mean(dim=0))
    blob = means[target.y] + 2.0 * torch.randn(target.x.shape, generator=generator)
    return target.replace(x=blob), target


def functionals(target: ad.LabeledDataset) -> dict[str, ad.Functional]:
    otdd = ad.OTDD(target)
    flat = ad.Potential(ad.collapse(dimension=1, value=10.5))
    apart = ad.Potential(ad.hinge([0.0, 1.0, 0.0], offset=10.5, margin=7.0, positive=(2, 3)))
    return {
        "OTDD": otdd,
        "features only": ad.OTDD(target, cost=ad.GroundCost(label=ad.NoLabels())),
        "margin": 12 * apart,
        "OTDD + margin": otdd + 12 * apart,
        "collapse": flat,
        "OTDD + collapse": otdd + 5 * flat,
    }


def purity(rho: ad.LabeledDataset, target: ad.LabeledDataset) -> float:
    """Share of particles whose nearest target sample has the class matched to theirs, under the
    best matching of classes.
    """
    nearest = target.y[torch.cdist(rho.x, target.x).argmin(dim=1)]
    counts = np.zeros((len(rho.classes), len(target.classes)))
    np.add.at(counts, (rho.y.numpy(), nearest.numpy()), 1)
    return float(counts[linear_sum_assignment(-counts)].sum() / len(rho))


def separation(rho: ad.LabeledDataset) -> float:
    """Share of particles on their side of the plane that the margin potential asks for."""
    return float(((rho.x[:, 1] < 10.5) == (rho.y >= 2)).double().mean())


def draw(paths: dict[str, ad.Trajectory], target: ad.LabeledDataset):
    """Two flows in a row: each shortly after the start, and at its end."""
    panels = [(name, frame) for name, path in paths.items() for frame in (path[1], path[-1])]
    rows = {
        " " * start: [frame for _, frame in panels[start : start + 4]]
        for start in range(0, len(panels), 4)
    }
    figure = viz.particles(rows, target)
    for axes, (name, frame) in zip(figure.axes, panels, strict=True):
        axes.set_title(f"{name}, step {frame.index}", fontsize=9, pad=0)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few particles")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where to write")
    options = parser.parse_args()
    torch.set_num_threads(1)  # the matrices are small
    begun = time.perf_counter()
    source, target = datasets(120 if options.quick else 400)
    exact = ad.FeatureDriven(
        through_laws=True
    )  # classes change shape: descend through their laws too
    paths, report = {}, {}
    for name, functional in functionals(target).items():
        result = ad.flow(
            source,
            functional,
            dynamics=exact,
            integrator=ad.Euler(0.1),
            n_steps=60,
            callbacks=[ad.Recorder(every=3)],
        )
        paths[name] = result.trajectory
        report[name] = {
            "status": result.status,
            "first_value": result.values[0],
            "final_value": result.values[-1],
            "class_counts": list(result.dataset.counts.values()),
            "purity": purity(result.dataset, target),
            "separated": separation(result.dataset),
            "height_deviation": float(result.dataset.x[:, 1].std()),
            "seconds": round(result.seconds[-1], 2),
        }
        print(f"{name:16s} {result!r}, purity {report[name]['purity']:.3f}")
    print(
        f"class purity: OTDD {report['OTDD']['purity']:.3f}, features only "
        f"{report['features only']['purity']:.3f}"
    )
    print(viz.save(draw(paths, target), options.out / "shaping.png"))
    summary = {"flows": report, "seconds": round(time.perf_counter() - begun, 1)}
    write_atomically(options.out / "shaping.json", json.dumps(summary, indent=2).encode())
    print(options.out / "shaping.json")


if __name__ == "__main__":
    main()
