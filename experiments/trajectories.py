"""Images on their way (paper, figures of section 6.2 and appendix E): the same samples over time,
for four pairs of datasets.

    ADVECT_DATA=path/to/data python experiments/trajectories.py [--quick] [--out out]

MNIST → USPS, MNIST → Fashion-MNIST, MNIST → KMNIST, KMNIST → MNIST: 1000 balanced images each, two
of each class shown. Classes hold together, so that a digit becomes one kind of garment or
character; which one, the distances between classes decide."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

import advect as ad
from advect import viz

PAIRS = [("mnist", "usps"), ("mnist", "fashion_mnist"), ("mnist", "kmnist"), ("kmnist", "mnist")]
COLUMNS = (0, 1, 2, 4, 7, 12, 20)


def walk(source: str, target: str, n: int, out: Path) -> dict:
    generator = torch.Generator().manual_seed(0)
    parts = [
        ad.datasets.load(name).sample(n, balanced=True, generator=generator)
        for name in (source, target)
    ]
    rho, beta = ad.harmonize(*parts, size=28)
    result = ad.flow(
        rho,
        ad.OTDD(beta, cost=ad.GroundCost(label=ad.Bures(), label_weight=5.0)),
        dynamics=ad.FeatureDriven(through_laws=False, bounds=(0.0, 1.0)),
        integrator=ad.Euler(0.2),
        n_steps=COLUMNS[-1],
        callbacks=[ad.Recorder(every=1), ad.Progress(COLUMNS[-1], f"{source} → {target}")],
    )
    shown = torch.cat([(rho.y == code).nonzero()[:2, 0] for code in range(len(rho.classes))])
    frames = [frame.dataset.subset(shown) for frame in result.trajectory if frame.index in COLUMNS]
    picture = viz.save(
        viz.image_grid(frames, rows=len(shown), titles=[f"step {step}" for step in COLUMNS]),
        out / f"trajectories-{source}-{target}.png",
    )
    return {"value": [result.values[0], result.values[-1]], "figure": str(picture)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="200 particles")
    parser.add_argument("--out", type=Path, default=Path("out"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    n = 200 if options.quick else 1000
    for source, target in PAIRS:
        found = walk(source, target, n, options.out)
        print(
            f"{source} → {target}: ½ OTDD² {found['value'][0]:.1f} → {found['value'][1]:.2f}, "
            f"wrote {found['figure']}"
        )


if __name__ == "__main__":
    main()
