"""
Feature costs: pixels, an embedding, your own
=============================================

The same two datasets under three feature costs. Pixels are a poor measure for most images: pass
the body of a network as ``Embedding``, or write a class with ``embed(data)``.
"""

# %%
# MNIST beside other images of MNIST, as they are and two pixels to the right. Pixel by pixel the
# shifted ones look like other data, which nobody would say of them.

import matplotlib.pyplot as plt
import torch

import advect as ad
from advect.cost import SquaredEuclidean

first, second = ad.datasets.load("mnist", n=600, balanced=True).split(
    0.5, generator=torch.Generator().manual_seed(0)
)
shifted = second.replace(x=second.samples.roll(2, dims=2).flatten(1))


def spectrum(images):  # in earnest: the body of a network. This one forgets where things are
    return torch.fft.rfft2(images, norm="ortho").abs().flatten(1)


class Blurred:  # your own: any class that maps a dataset to points
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
    print(f"{name:20} other images {values[name][0]:.2f}, shifted ones {values[name][1]:.2f}")

# %%
# For pixels the shift is a large change. The embedding, which forgets where things are, hardly
# sees it. Blurred images still show it.

figure, axis = plt.subplots(figsize=(7.5, 4), layout="constrained")
places = torch.arange(len(values))
for offset, (title, column) in enumerate({"other images": 0, "other images, shifted": 1}.items()):
    heights = [pair[column] for pair in values.values()]
    bars = axis.bar(places + 0.38 * offset - 0.19, heights, 0.36, label=title)
    axis.bar_label(bars, fmt="%.1f")
axis.set(title="OTDD under three feature costs", ylabel="OTDD", ylim=(0, 15))
axis.set_xticks(places, list(values))
axis.legend(loc="upper left", ncols=2)
