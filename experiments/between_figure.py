"""The triangle of images of docs/between.md: barycenters of MNIST, Fashion-MNIST and KMNIST.

    python experiments/between_figure.py [--samples 100] [--out docs/img/fig-between-images.png]

Needs the three datasets, from ``ADVECT_DATA`` or the cache; takes a minute or two."""

from __future__ import annotations

import argparse
from pathlib import Path

import advect as ad
from advect import viz

SETS = ("mnist", "fashion_mnist", "kmnist")
NAMES = ("MNIST", "Fashion-MNIST", "KMNIST")
OUT = Path(__file__).parents[1] / "docs" / "img" / "fig-between-images.png"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=100, help="of each dataset")
    parser.add_argument("--steps", type=int, default=4, help="along a side")
    parser.add_argument("--out", type=Path, default=OUT, help="where to write")
    options = parser.parse_args()
    sets = [ad.datasets.load(name, n=options.samples, balanced=True) for name in SETS]
    found = ad.triangle(*sets, n=options.steps)
    print(viz.save(found.figure(names=NAMES), options.out, dpi=100))


if __name__ == "__main__":
    main()
