"""
Which dataset is nearest to mine?
=================================

``DatasetIndex`` keeps datasets as vectors, and finds the nearest to another one quickly. Use it for a
collection that grows: each dataset is embedded once, and any vector store can hold the vectors.
"""

# %%
# A catalogue of digits and of MNIST, whole, in parts and damaged.

import torch

import advect as ad

draw = torch.Generator().manual_seed(0)
digits, mnist = ad.datasets.load("digits"), ad.datasets.load("mnist", n=1000)
index = ad.DatasetIndex(digits)  # all are brought to its 8 × 8 pixels
entries = {
    "digits/first half": digits.subset(range(900)),
    "digits/low": digits.subset(digits.y < 5),
    "digits/high": digits.subset(digits.y >= 5),
    "digits/noisy": digits.replace(x=digits.x + 0.4 * torch.randn(digits.x.shape, generator=draw)),
    "digits/negative": digits.replace(x=1 - digits.x),
    "mnist/all": mnist,
    "mnist/low": mnist.subset(mnist.y < 5),
    "mnist/pale": mnist.replace(x=0.5 * mnist.x),
}
for name, data in entries.items():
    index.add(name, data)

# %%

mine = digits.subset(range(900, 1797))
found = index.nearest(mine, k=3)
print(found)

# %%
# The distances between the same vectors; ``index.vectors()`` gives them to other tools.

vectors = index.vectors()
print(f"{len(index.names)} datasets as vectors of {vectors.shape[1]} numbers")
points = torch.from_numpy(vectors)
figure = ad.viz.pairwise(torch.cdist(points, points).numpy(), index.names)
