"""One picture of each image dataset that has a name and is there: some samples of each class, to
look at.

    ADVECT_DATA=path/to/data python experiments/contact_sheets.py [--out out]

A row is a class; orientation, colours and labels show at a glance.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import advect as ad
from advect import viz


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--columns", type=int, default=12, help="samples of each class")
    parser.add_argument("--out", type=Path, default=Path("out"))
    options = parser.parse_args()
    for row in ad.datasets.names():
        if not row.ready or row.where == "synthetic":
            continue
        k = len(ad.datasets.load(row.name, n=1).classes)
        data = ad.datasets.load(row.name, n=k * options.columns, balanced=True)
        columns = [
            data.subset(range(column, len(data), options.columns))
            for column in range(options.columns)
        ]
        path = viz.save(viz.image_grid(columns, rows=k), options.out / f"{row.name}.png")
        print(f"wrote {path} from {row.where}")


if __name__ == "__main__":
    main()
