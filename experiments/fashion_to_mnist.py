"""Fashion-MNIST read by a frozen MNIST model (paper, section 6.3, supervised flow): the oracle
evaluation of a flow.

    ADVECT_DATA=path/to/data python experiments/fashion_to_mnist.py [--quick] [--out out]

Flows 2000 balanced Fashion-MNIST images to 2000 balanced MNIST images, and asks a LeNet-5 trained
on MNIST, which never sees the flow, for the class of each particle. A particle counts as right when
the answer is the digit that its class is matched to. The flow uses the labels of the samples it
moves: this is the paper's upper bound, not a test accuracy."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from lenet import predictions, train

import advect as ad


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="400 particles, 5 epochs")
    parser.add_argument("--out", type=Path, default=Path("out"))
    options = parser.parse_args()
    n, epochs = (400, 5) if options.quick else (2000, 20)

    generator = torch.Generator().manual_seed(0)
    mnist = ad.datasets.load("mnist")
    model = train(mnist, epochs=epochs)
    test = ad.datasets.load("mnist", split="test")
    on_mnist = float((predictions(model, test.samples) == test.y).double().mean())

    source = ad.datasets.load("fashion_mnist").sample(n, balanced=True, generator=generator)
    target = mnist.sample(n, balanced=True, generator=generator)
    start = time.perf_counter()
    cost = ad.GroundCost(label=ad.Bures(tolerance=1e-3), label_weight=5.0)
    result = ad.flow(
        source,
        ad.OTDD(target, cost=cost),
        dynamics=ad.FeatureDriven(through_laws=False, bounds=(0.0, 1.0)),
        integrator=ad.Euler(0.2),
        n_steps=30,
        callbacks=[ad.Recorder(every=5), ad.Progress(30, "Fashion-MNIST → MNIST")],
    )
    seconds = time.perf_counter() - start
    matching = torch.as_tensor(
        ad.otdd(result.dataset, target, cost=cost).class_matching.values
    ).argmax(dim=1)
    curve = [
        (
            frame.index,
            float(
                (predictions(model, frame.dataset.samples) == matching[frame.dataset.y])
                .double()
                .mean()
            ),
        )
        for frame in result.trajectory
    ]
    figures = {
        "particles": n,
        "steps": result.n_steps,
        "seconds": seconds,
        "model on MNIST's test part": on_mnist,
        "matching": {
            str(name): str(target.classes[int(to)])
            for name, to in zip(source.classes, matching, strict=True)
        },
        "accuracy along the flow": curve,
        "accuracy before": curve[0][1],
        "accuracy after": curve[-1][1],
        "value": [result.values[0], result.values[-1]],
    }
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "fashion_to_mnist.json"
    path.write_text(json.dumps(figures, indent=2))
    print(json.dumps(figures, indent=2))
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
