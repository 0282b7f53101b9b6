"""Gaussian classes in the plane: the dynamics and the functionals of the paper's figure 3 and
appendix D.

    python experiments/gaussians.py [--quick] [--out DIR]

Writes gaussians-dynamics.png, gaussians-functionals.png and gaussians.json. The target has four
classes and the source three, so that fixed labels (fd, jd-fl) must share a class out, k-means
(jd-vl) keeps three, and DBSCAN finds the fourth."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from matplotlib.patches import Circle

import advect as ad
from advect import viz
from advect.data.store import write_atomically
from advect.flows.loop import FlowResult

CENTRE, RADIUS = (48.0, 10.0), 8.0  # of the ball: the middle of the target, too small to hold it


def datasets(n: int) -> tuple[ad.LabeledDataset, ad.LabeledDataset]:
    """Three classes around the origin, four (A to D) around a point to the right, turned and wider
    apart.
    """
    generator = torch.Generator().manual_seed(0)
    source = ad.datasets.gaussians(n, 3, separation=12.0, spread=3.0, generator=generator)
    target = ad.datasets.gaussians(
        n, 4, separation=15.0, spread=3.0, shift=CENTRE, rotation=0.6, generator=generator
    )
    return source, target.replace(classes=tuple("ABCD"))


def run(
    source: ad.LabeledDataset, functional: ad.Functional, n_steps: int, **options: Any
) -> FlowResult:
    return ad.flow(source, functional, n_steps=n_steps, callbacks=[ad.Recorder()], **options)


def dynamics(source: ad.LabeledDataset, target: ad.LabeledDataset) -> dict[str, FlowResult]:
    """One functional, OTDD to the target, under each dynamics, all with Adam."""
    rows = {
        "fd": ad.FeatureDriven(),
        "jd-fl": ad.JointFixedLabels(),
        "jd-vl, k-means": ad.JointVariableLabels("kmeans"),
        "jd-vl, DBSCAN": ad.JointVariableLabels("dbscan"),
    }
    return {
        name: run(source, ad.OTDD(target), 120, dynamics=how, integrator=ad.Adam(1.0))
        for name, how in rows.items()
    }


def functionals(source: ad.LabeledDataset, target: ad.LabeledDataset) -> dict[str, FlowResult]:
    """One dynamics, jd-vl with explicit Euler steps, under each functional."""
    otdd = ad.OTDD(target)
    ball, spread = ad.Potential(ad.ball(CENTRE, RADIUS)), ad.Interaction(ad.spreading())
    rows = {
        "ball": (ball, 60, 1.0),
        "OTDD + 8 ball": (otdd + 8 * ball, 40, 0.1),
        "spreading": (spread, 8, 0.1),  # flies apart exponentially
        "OTDD + 0.3 spreading": (otdd + 0.3 * spread, 40, 0.1),
    }
    labels = ad.JointVariableLabels("dbscan")
    return {
        name: run(source, functional, steps, dynamics=labels, integrator=ad.Euler(size))
        for name, (functional, steps, size) in rows.items()
    }


def draw(results: dict[str, FlowResult], target: ad.LabeledDataset):
    """The first, the middle and the last state of each flow, and its paths."""
    return viz.particles(results, target, columns=3, trails=True)


def facts(result: FlowResult) -> dict[str, Any]:
    return {
        "status": result.status,
        "first_value": result.values[0],
        "final_value": result.values[-1],
        "final_terms": {name: values[-1] for name, values in result.terms.items()},
        "class_counts": [count for count in result.dataset.counts.values() if count],
        "steps": result.n_steps,
        "seconds": round(result.seconds[-1], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few particles")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where to write")
    options = parser.parse_args()
    torch.set_num_threads(1)  # the matrices are small
    begun = time.perf_counter()
    source, target = datasets(48 if options.quick else 192)
    moved, shaped = dynamics(source, target), functionals(source, target)
    figures = {
        "gaussians-dynamics.png": draw(moved, target),
        "gaussians-functionals.png": draw(shaped, target),
    }
    for name, result in {**moved, **shaped}.items():
        print(f"{name:22s} {result!r}, classes {facts(result)['class_counts']}")
    for axes in figures["gaussians-functionals.png"].axes[:6]:
        axes.add_patch(Circle(CENTRE, RADIUS, color="#F0E442", alpha=0.35, zorder=0))
    for name, figure in figures.items():
        print(viz.save(figure, options.out / name))
    report = {
        "source_classes": len(source.classes),
        "target_classes": len(target.classes),
        "dynamics": {name: facts(result) for name, result in moved.items()},
        "functionals": {name: facts(result) for name, result in shaped.items()},
        "seconds": round(time.perf_counter() - begun, 1),
    }
    write_atomically(options.out / "gaussians.json", json.dumps(report, indent=2).encode())
    print(options.out / "gaussians.json")


if __name__ == "__main__":
    main()
