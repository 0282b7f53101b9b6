"""Every kind of figure that ``advect.viz`` draws, on data that needs no download, for light and for
dark pages.

    python experiments/gallery.py [--quick] [--out DIR]

Writes a PNG for each kind and ground, two GIFs and a WebP film.
Hard cases are among them: many classes, long names, missing labels, failed pairs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

import advect as ad
from advect import viz
from advect.data.class_table import ClassTable
from advect.flows.loop import FlowResult


def plane(n: int) -> tuple[FlowResult, ad.LabeledDataset]:
    """Three Gaussian classes become four: labels follow their laws, so a class is born on the
    way.
    """
    generator = torch.Generator().manual_seed(0)
    source = ad.datasets.gaussians(n, 3, separation=12.0, spread=3.0, generator=generator)
    target = ad.datasets.gaussians(
        n, 4, separation=15.0, spread=3.0, shift=(48.0, 10.0), rotation=0.6, generator=generator
    )
    labels = ad.JointVariableLabels("dbscan")
    spread = ad.Metric("spread", lambda rho: rho.x.std())
    objective = ad.OTDD(target) + 0.02 * ad.Potential(ad.norm())
    callbacks = [ad.Recorder(every=3), spread]
    return ad.flow(
        source, objective, dynamics=labels, integrator=ad.Adam(1.0), n_steps=90, callbacks=callbacks
    ), target


def space(n: int) -> tuple[FlowResult, ad.LabeledDataset]:
    """A blob becomes a swiss roll."""
    generator = torch.Generator().manual_seed(0)
    target = ad.datasets.swiss_roll(n, generator=generator)
    source = target.replace(
        x=target.x.mean(dim=0) + 0.3 * (target.x - target.x.mean(dim=0)).roll(1, dims=0)
    )
    options: dict[str, Any] = {
        "dynamics": ad.FeatureDriven(through_laws=True),
        "integrator": ad.Euler(0.1),
        "n_steps": 40,
    }
    return ad.flow(source, ad.OTDD(target), callbacks=[ad.Recorder(every=2)], **options), target


def images(n: int) -> tuple[FlowResult, ad.LabeledDataset]:
    """Digits of 8 × 8 pixels become those of MNIST, on 14 × 14 pixels."""
    source, target = (ad.datasets.load(name, n=n, balanced=True) for name in ("digits", "mnist"))
    source, target = ad.harmonize(source, target, size=14)
    dynamics = ad.FeatureDriven(bounds=(0.0, 1.0))
    options: dict[str, Any] = {"dynamics": dynamics, "integrator": ad.Euler(0.2), "n_steps": 15}
    return ad.flow(source, ad.OTDD(target), callbacks=[ad.Recorder()], **options), target


def prices(n: int) -> tuple[FlowResult, ad.LabeledDataset]:
    """Continuous targets: a line becomes a curve, features and targets moving."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(2, n, 1, generator=generator)
    noise = 0.05 * torch.randn(2, n, 1, generator=generator)
    source = ad.LabeledDataset(x[0], targets=x[0] + noise[0])
    target = ad.LabeledDataset(x[1] + 1.5, targets=(6 * x[1]).sin() + noise[1])
    objective = ad.OTDD(target, cost=ad.GroundCost(label=ad.TargetValues()))
    options: dict[str, Any] = {"dynamics": ad.JointTargets(), "integrator": ad.Euler(0.2)}
    return ad.flow(source, objective, n_steps=15, callbacks=[ad.Recorder()], **options), target


def shapes(n: int) -> dict[str, ad.LabeledDataset]:
    """Synthetic datasets of the plane, each with mean 0 and deviation 1."""
    made = {
        "two moons": ad.datasets.moons(n, generator=torch.Generator().manual_seed(0)),
        "moons, noisy": ad.datasets.moons(n, noise=0.2, generator=torch.Generator().manual_seed(1)),
        "two rings": ad.datasets.rings(n, generator=torch.Generator().manual_seed(2)),
        "three rings": ad.datasets.rings(n, classes=3, generator=torch.Generator().manual_seed(3)),
    }
    for classes in (2, 3, 4, 5):
        made[f"{classes} gaussians"] = ad.datasets.gaussians(
            n, classes, generator=torch.Generator().manual_seed(classes)
        )
    return {
        name: data.replace(x=(data.x - data.x.mean(dim=0)) / data.x.std())
        for name, data in made.items()
    }


def distances(datasets: dict[str, ad.LabeledDataset]) -> np.ndarray:
    """OTDD of every pair; one pair is left out, as if it had failed."""
    sets = list(datasets.values())
    values = np.array(
        [[0.0 if a is b else ad.otdd(a, b, solver=ad.ExactOT()).value for b in sets] for a in sets]
    )
    values[1, -1] = values[-1, 1] = np.nan
    return (values + values.T) / 2


def many_classes(classes: int) -> ad.LabeledDataset:
    """More classes than colours, some with long names, some samples without a label."""
    data = ad.datasets.gaussians(
        12 * classes, classes, separation=20.0, generator=torch.Generator().manual_seed(0)
    )
    names = [
        f"{position}" if position % 5 else f"a rather long name, number {position}"
        for position in range(classes)
    ]
    labels = [None if i % 17 == 0 else names[code] for i, code in enumerate(data.y.tolist())]
    return ad.LabeledDataset(data.x, labels, classes=names)


def figures(
    quick: bool,
) -> tuple[dict[str, Callable[[], Any]], dict[str, Callable[[Path], Path]]]:
    """What draws each figure, and what writes each film."""
    n = 60 if quick else 200
    moved, goal = plane(n)
    rolled, roll = space(2 * n)
    written, mnist = images(n)
    sold, market = prices(n)
    toys = shapes(n)
    values, crowd = distances(toys), many_classes(30)
    digits = written.source
    big = ClassTable(
        np.abs(np.subtract.outer(np.arange(30.0), np.arange(40.0))), crowd.classes, tuple(range(40))
    )
    drawn: dict[str, Callable[[], Any]] = {
        "particles": lambda: viz.particles(moved, goal, columns=4, trails=True),
        "particles-rows": lambda: viz.particles(
            {"to four classes": moved, "back": list(moved.trajectory)[::-6]}, goal, columns=3
        ),
        "particles-many": lambda: viz.particles(
            [crowd, crowd.replace(x=-crowd.x)], titles=["before", "after"]
        ),
        "images": lambda: viz.image_grid(written, rows=10, columns=9),
        "images-captions": lambda: viz.image_grid(
            [digits, written.dataset], titles=["as they were", "as they became"], rows=5
        ),
        "regression": lambda: viz.particles(sold, market),
        "curves": lambda: viz.curves(moved),
        "curves-rows": lambda: viz.curves({"to four": moved, "to a roll": rolled}),
        "class-distances": lambda: viz.class_table(ad.otdd(digits, mnist)),
        "class-matching": lambda: viz.class_table(ad.ClassMatching.between(written.dataset, mnist)),
        "class-table-big": lambda: viz.class_table(big, title="30 classes to 40"),
        "pca-space": lambda: viz.particles(rolled, roll, columns=4, trails=True),
        "pca": lambda: viz.particles(written, mnist, columns=4),
        "pairwise": lambda: viz.pairwise(SimpleNamespace(values=values, names=list(toys))),
        "pairwise-big": lambda: viz.pairwise(_cities(28)),
    }
    films: dict[str, Callable[[Path], Path]] = {
        "particles.gif": lambda path: viz.animation(moved, path, target=goal),
        "images.gif": lambda path: viz.animation(written, path, fps=6),
        "space.webp": lambda path: viz.animation(rolled, path, target=roll),
    }
    return drawn, films


def _cities(k: int) -> SimpleNamespace:
    """Distances between points of a plane in a few groups."""
    random = np.random.default_rng(0)
    points = 6 * random.normal(size=(k // 4, 2))[np.arange(k) % (k // 4)] + random.normal(
        size=(k, 2)
    )
    names = [f"group {i % (k // 4)}, place {i}" for i in range(k)]
    values = np.linalg.norm(points[:, None] - points, axis=2)
    return SimpleNamespace(values=values, names=names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few samples")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where to write")
    parser.add_argument("--only", help="names of figures that begin so")
    options = parser.parse_args()
    torch.set_num_threads(1)  # the matrices are small
    drawn, films = figures(options.quick)
    for name, draw in drawn.items():
        if name.startswith(options.only or ""):
            print(viz.save(draw(), options.out / f"{name}.png"))
    for name, write in films.items():
        if name.startswith(options.only or ""):
            print(write(options.out / name))


if __name__ == "__main__":
    main()
