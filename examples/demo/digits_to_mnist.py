"""``make demo``: handwritten digits of 8 × 8 pixels flow to MNIST, where a frozen MNIST model reads them.

Nothing is downloaded. The model is trained on MNIST images that the flow does not use."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from torch import nn

import advect as ad
from advect import viz


def framed(digits: ad.LabeledDataset) -> ad.LabeledDataset:
    """8 × 8 digits as in MNIST: 20 × 20 pixels in the middle of 28 × 28."""
    images = nn.functional.interpolate(
        digits.samples[:, None], (20, 20), mode="bilinear", antialias=True
    )
    images = nn.functional.pad(images[:, 0], (4, 4, 4, 4))
    return digits.replace(x=images.reshape(len(digits), -1), sample_shape=(28, 28))


def small_classifier(data: ad.LabeledDataset, *, epochs: int = 15) -> nn.Module:
    """A one-layer network trained on images in 0..1, then frozen."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(data.dim, 256), nn.ReLU(), nn.Linear(256, len(data.classes)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-5)
    for _ in range(epochs):
        for rows in torch.randperm(len(data)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(data.x[rows]), data.y[rows]).backward()
            optimizer.step()
    return model.eval().requires_grad_(False)


def main(arguments: list[str] | None = None) -> None:
    """Measure the distance, flow, ask the frozen model before and after, and draw."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--particles", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--epochs", type=int, default=15, help="epochs of the small model")
    parser.add_argument("--out", type=Path, default=Path("out/demo"))
    options = parser.parse_args(arguments)

    begun = time.perf_counter()
    generator = torch.Generator().manual_seed(0)
    mnist, digits = ad.datasets.load("mnist"), ad.datasets.load("digits")
    target, rest = mnist.split(options.particles / len(mnist), generator=generator)
    source = framed(digits.sample(options.particles, balanced=True, generator=generator))
    print(f"training a small model on {len(rest)} MNIST images that the flow does not see …")
    model = small_classifier(rest, epochs=options.epochs)

    cost = ad.GroundCost(label_weight=5.0)
    distance = ad.otdd(source, target, cost=cost)
    print(f"moving {len(source)} digits to {len(target)} MNIST images; OTDD {distance.value:.2f}")
    result = ad.flow(
        source,
        ad.OTDD(target, cost=cost),
        dynamics=ad.FeatureDriven(bounds=(0.0, 1.0)),
        integrator=ad.Euler(0.2),
        n_steps=options.steps,
        callbacks=[ad.Recorder(), ad.Progress(options.steps, "digits → MNIST")],
    )
    after = ad.otdd(result.dataset, target, cost=cost)
    matching = torch.as_tensor(after.class_matching.values).argmax(dim=1)

    def accuracy(rho: ad.LabeledDataset, digit_of_class: torch.Tensor) -> float:
        return float((model(rho.x).argmax(dim=1) == digit_of_class[rho.y]).double().mean())

    names = [target.classes[int(to)] for to in matching]
    changed = [f"{a} → {b}" for a, b in zip(source.classes, names, strict=True) if a != b]
    print(f"OTDD after {after.value:.2f} ({result.message}, {result.seconds[-1]:.0f} s)")
    print(f"classes matched without their names; different: {', '.join(changed) or 'none'}")
    before, now = accuracy(source, torch.arange(10)), accuracy(result.dataset, matching)
    print(f"the frozen model reads {before:.1%} of the digits before the flow, {now:.1%} after it")
    print("  (the flow uses the labels of the digits; new samples need a map)")

    grid, table = options.out / "digits-to-mnist.png", options.out / "class-distances.png"
    viz.save(viz.image_grid(result.trajectory, rows=10, columns=6), grid)
    title = "W₂ from digits (rows) to MNIST (columns), before the flow"
    viz.save(viz.class_table(distance.class_distances, title=title), table)
    page, sides = options.out / "report.html", ("digits", "MNIST")
    result.report(page, names=sides, title="Digits → MNIST", command="make demo")
    print(f"\ndone in {time.perf_counter() - begun:.0f} s. Open {page} in a browser.")
    print(f"Pictures: {grid} (the same digits over time) and {table}.")


if __name__ == "__main__":
    main()
