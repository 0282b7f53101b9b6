"""
Feature costs and embeddings
============================

The feature cost defines the distance between two samples. Pixels are a poor choice for most images.
Pass the body of a network as ``Embedding``, or define a class with ``embed(data)``.
"""

# %%
# Two halves of MNIST. One of them is also shifted by two pixels, which changes no digit.

import matplotlib.pyplot as plt
import torch

import advect as ad
from advect.cost import SquaredEuclidean

first, second = ad.datasets.load("mnist", n=400, balanced=True).split(
    0.5, generator=torch.Generator().manual_seed(0)
)
shifted = second.replace(x=second.samples.roll(2, dims=2).flatten(1))


def spectrum(images):  # stands for the body of a network; it is invariant to shifts
    return torch.fft.rfft2(images, norm="ortho").abs().flatten(1)


class Blurred:  # a custom feature cost: a class that maps a dataset to points
    def embed(self, data):
        return torch.nn.functional.avg_pool2d(data.samples, 4).flatten(1) * 4


features = {
    "SquaredEuclidean()": SquaredEuclidean(),
    "Embedding(spectrum)": ad.Embedding(spectrum),
    "Blurred()": Blurred(),
}
values = {}
for name, feature in features.items():
    cost = ad.GroundCost(feature=feature)
    values[name] = [ad.otdd(first, other, cost=cost).value for other in (second, shifted)]
    print(f"{name:20} original {values[name][0]:.2f}, shifted {values[name][1]:.2f}")

# %%
# The shift increases the distance of pixels, and hardly that of the embedding.

figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
places = torch.arange(len(values))
for offset, (title, column) in enumerate({"second half": 0, "second half, shifted": 1}.items()):
    heights = [pair[column] for pair in values.values()]
    bars = axis.bar(places + 0.38 * offset - 0.19, heights, 0.36, label=title)
    axis.bar_label(bars, fmt="%.1f")
axis.set(title="Distance from the first half of MNIST", ylabel="OTDD")
axis.set_xticks(places, list(values))
axis.margins(y=0.2)
axis.legend(loc="upper left", ncols=2)
