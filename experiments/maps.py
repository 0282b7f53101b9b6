"""USPS to MNIST for images that the flow never saw (paper, section 6.2, figure of appendix D):
three maps compared.

    ADVECT_DATA=path/to/data python experiments/maps.py [--quick] [--out out]

Flows 2000 balanced USPS images to 2000 balanced MNIST images, fits each map on the first and last
states, and carries 2000 other USPS images without their labels. They are held against the same
images flowed properly: as a source of their own, with their labels, to the same target under the
same settings. A LeNet-5 trained on MNIST, which sees neither flow nor map, reads the results; an
answer is right when it is the digit that the image's class is matched to. Mapped images are clipped
to 0..1, as the flow's are."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from lenet import predictions, train

import advect as ad
from advect import viz


def flowed(
    source: ad.LabeledDataset, target: ad.LabeledDataset, name: str, n_steps: int
) -> ad.FlowResult:
    cost = ad.GroundCost(label=ad.Bures(tolerance=1e-3), label_weight=5.0)
    return ad.flow(
        source,
        ad.OTDD(target, cost=cost),
        dynamics=ad.FeatureDriven(through_laws=False, bounds=(0.0, 1.0)),
        integrator=ad.Euler(0.2),
        n_steps=n_steps,
        callbacks=[ad.Progress(n_steps, name)],
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="400 particles, 10 steps, one restart")
    parser.add_argument("--out", type=Path, default=Path("out"))
    options = parser.parse_args()
    n, n_steps, epochs, restarts = (400, 10, 5, 1) if options.quick else (2000, 30, 20, 3)

    generator = torch.Generator().manual_seed(0)
    usps, mnist = ad.harmonize(ad.datasets.load("usps"), ad.datasets.load("mnist"))
    model = train(mnist, epochs=epochs)
    target = mnist.sample(n, balanced=True, generator=generator)
    source, held = usps.sample(2 * n, balanced=True, generator=generator).split(
        0.5, generator=generator
    )

    result = flowed(source, target, "USPS → MNIST", n_steps)
    proper = flowed(held, target, "held-out USPS → MNIST", n_steps).dataset
    matching = ad.otdd(result.dataset, target).class_matching.values.argmax(axis=1)
    right = torch.as_tensor(matching)[held.y]

    def figures(images: ad.LabeledDataset) -> dict[str, float]:
        read = (predictions(model, images.samples) == right).double().mean()
        return {
            "mean squared error": float((images.x - proper.x).square().mean()),
            "accuracy": float(read),
        }

    table = {
        "not mapped": figures(held),
        "the mean flowed image": figures(
            held.replace(x=result.dataset.x.mean(0).expand_as(held.x))
        ),
    }
    table["flowed properly, with labels"] = figures(proper)
    maps = {
        "nearest": ad.maps.NearestMap(),
        "nearest, k = 5": ad.maps.NearestMap(k=5),
        "entropic": ad.maps.EntropicMap(label_weight=5.0),
        "entropic, not debiased": ad.maps.EntropicMap(label_weight=5.0, debias=False),
        "neural": ad.maps.NeuralMap(restarts=restarts),
    }
    frames = [held]
    for name, chosen in maps.items():
        begun = time.perf_counter()
        chosen.fit(result)
        fitted = time.perf_counter()
        carried = chosen.transform(held.samples)
        done = time.perf_counter()
        image = held.replace(x=carried.reshape(len(held), -1).clamp(0, 1))
        table[name] = {
            **figures(image),
            "seconds to fit": fitted - begun,
            "seconds to transform": done - fitted,
        }
        frames.append(image)
    report = {
        "particles": n,
        "held out": len(held),
        "steps": n_steps,
        "matching": {
            str(name): str(target.classes[int(to)])
            for name, to in zip(source.classes, matching, strict=True)
        },
        "columns of the figure": ["USPS", *maps, "flowed properly"],
        "table": table,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "maps.json"
    path.write_text(json.dumps(report, indent=2))
    picture = viz.save(
        viz.image_grid([*frames, proper], rows=10, titles=report["columns of the figure"]),
        options.out / "maps.png",
    )
    print(f"{'':32}{'MSE':>8}{'accuracy':>10}{'fit, s':>8}{'carry, s':>10}")
    for name, row in table.items():
        times = [
            f"{row[key]:.1f}" if key in row else ""
            for key in ("seconds to fit", "seconds to transform")
        ]
        print(
            f"{name:32}{row['mean squared error']:8.4f}{row['accuracy']:10.4f}{times[0]:>8}{times[1]:>10}"
        )
    print(f"wrote {path} and {picture}")


if __name__ == "__main__":
    main()
