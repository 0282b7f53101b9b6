"""
Is my generated data any good?
==============================

``ad.compare`` puts synthetic data beside real data, class by class, each number beside the floor
that two halves of the real data have. For a generator, a simulator or an augmentation, before you
train on what it makes.
"""

# %%
# A bad generator: its eights are pale, it makes no sevens, and it knows sixty training samples by
# heart.

import matplotlib.pyplot as plt
import numpy as np
import torch

import advect as ad

digits = ad.datasets.load("digits")
real, fresh = digits.split(0.5, generator=torch.Generator().manual_seed(0))
x = fresh.x.clone()
x[fresh.y == 8] *= 0.6
x[:60] = real.x[:60]
y = torch.cat([real.y[:60], fresh.y[60:]])
synthetic = fresh.replace(x=x, y=y).subset(y != 7)

found = ad.compare(synthetic, real, repeats=6)
print(found)
print("beyond the floor:", found.beyond)
print(f"{len(found.copies)} samples are nearer to a training sample than real ones are")

# %%
# Each column has its own answer, so that one number does not do. Stars are beyond what chance
# explains.

columns = ["frechet", "coverage", "memorised"]
figure, axes = plt.subplots(1, 3, figsize=(11, 4), layout="constrained", sharey=True)
for axis, column in zip(axes, columns, strict=True):
    cells = found.columns[column].classes
    values = np.array([cell.value for cell in cells.values()])
    colours = ["C3" if cell.beyond else "0.7" for cell in cells.values()]
    axis.barh([str(name) for name in cells], values, color=colours)
    axis.plot(
        [cell.floor for cell in cells.values()],
        range(len(cells)),
        "k|",
        markersize=10,
        label="floor",
    )
    for row, cell in enumerate(cells.values()):
        axis.text(cell.value, row, " *" if cell.beyond else "", va="center", color="C3", size=16)
    axis.set(title=column)
axes[0].set(ylabel="digit")
axes[0].legend()
figure.suptitle("Synthetic digits beside real ones; red is beyond the floor")
