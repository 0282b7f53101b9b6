"""A torch dataset and a CNN that stays frozen: images of another size are moved to where it reads them."""

from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

import advect as ad
from advect import viz

out = Path("out/examples")
out.mkdir(parents=True, exist_ok=True)
torch.manual_seed(0)
mnist = ad.datasets.load("mnist", n=2000)
body = [nn.Conv2d(1, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 32, 5, 2), nn.ReLU(), nn.Flatten()]
cnn = nn.Sequential(nn.Unflatten(1, (1, 28)), *body, nn.Linear(512, 10))
adam = torch.optim.Adam(cnn.parameters(), 2e-3)
for rows in torch.randint(len(mnist), (300, 64)):
    adam.zero_grad()
    nn.functional.cross_entropy(cnn(mnist.samples[rows]), mnist.y[rows]).backward()
    adam.step()
cnn.eval().requires_grad_(False)

raw = ad.datasets.load("digits")
theirs = TensorDataset(raw.samples, raw.y)  # yours: any torch dataset or DataLoader
digits, mnist = ad.harmonize(ad.LabeledDataset.from_torch(theirs, classes=range(10)), mnist)
seen, held = digits.split(1 / 3, generator=torch.Generator().manual_seed(0))
# digits of both have the same names, and names mean the same here
found = ad.apps.repurpose(
    cnn, mnist.subset(range(600)), seen, bounds=(0, 1), label=ad.ByName(), posterior="mean"
)

asked = float((cnn(held.samples).argmax(1) == held.y).float().mean())
right = sum(a == b for a, b in zip(found.predict(held.x), held.labels, strict=True)) / len(held)
print(f"held-out digits read right: {asked:.1%} as they are, {right:.1%} carried")
viz.save(viz.image_grid(found.result), out / "frozen_cnn.png")
