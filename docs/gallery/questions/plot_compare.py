"""
Evaluating synthetic data
=========================

``ad.compare`` compares synthetic data with real data, class by class. Each number has a noise floor, its
value between two halves of the real data. Use it to evaluate a generator, a simulator or an augmentation.
"""

# %%
# A poor generator: its eights are too pale, it makes no sevens, and it copies sixty training samples.

import matplotlib.pyplot as plt
import torch

import advect as ad

digits = ad.datasets.load("digits", n=1200)
real, fresh = digits.split(0.5, generator=torch.Generator().manual_seed(0))
x = fresh.x.clone()
x[fresh.y == 8] *= 0.6
x[:60] = real.x[:60]
y = torch.cat([real.y[:60], fresh.y[60:]])
synthetic = fresh.replace(x=x, y=y).subset(y != 7)

found = ad.compare(synthetic, real, repeats=4)
print(found)
print("beyond the floor:", found.beyond)
print(f"{len(found.copies)} samples are copies of training samples")

# %%
# The Fréchet distance finds the class that is too pale.

cells = found.columns["frechet"].classes
figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
axis.barh(
    [str(name) for name in cells],
    [cell.value for cell in cells.values()],
    color=["C3" if cell.beyond else "0.7" for cell in cells.values()],
)
floors = [cell.floor for cell in cells.values()]
axis.plot(floors, range(len(cells)), "k|", markersize=12, label="noise floor")
axis.set(title="Fréchet distance; red is beyond the floor", ylabel="class")
axis.legend()
