"""One synthetic image of each class, of ten, drawn into docs/figures.

python experiments/condense_figure.py"""

from __future__ import annotations

import torch
from condense import STEPS, convolutions, drawn
from figures import FIGURES

import advect as ad
from advect import viz

SETS, PER_CLASS, SEED = ("mnist", "fashion_mnist", "kmnist"), 10, 0


def heaviest(few: ad.LabeledDataset, weights: torch.Tensor) -> list[int]:
    """The row with most mass of each class."""
    return [
        int(torch.where(few.y == code, weights, -1).argmax()) for code in range(len(few.classes))
    ]


def main() -> None:
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(7.2, 8.6), layout="constrained")
    for part, name in zip(drawing.subfigures(len(SETS), 1), SETS, strict=True):
        train, _ = drawn(name, SEED)
        made = ad.apps.condense(train, PER_CLASS, n_steps=STEPS, seed=SEED, progress=False)
        through = ad.apps.condense(
            train,
            PER_CLASS,
            embedding=convolutions(SEED),
            n_steps=STEPS,
            seed=SEED,
            progress=False,
        )
        rows = heaviest(made.start, made.start.weights)
        ways = {
            "random": made.random(),
            "medoids": made.medoids,
            "k-means": made.start,
            "condensed": made.dataset,
            "convolutions": through.dataset,
        }
        part.suptitle(name.replace("_", "-"), fontsize=10)
        axes = part.subplots(len(ways), 10)
        for line, (way, few) in zip(axes, ways.items(), strict=True):
            for axis, row in zip(line, rows, strict=True):
                axis.imshow(few.samples[row], cmap="gray_r", vmin=0, vmax=1)
                axis.set_xticks([])
                axis.set_yticks([])
                axis.spines[:].set_visible(False)
            line[0].set_ylabel(way, rotation=0, ha="right", va="center", fontsize=9)
    print(viz.save(drawing, FIGURES / "condense.png", dpi=90))


if __name__ == "__main__":
    main()
