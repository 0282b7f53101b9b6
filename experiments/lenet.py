"""The paper's classifier (appendix C): LeNet-5 with ReLU, Adam 1e-3, weight decay 1e-6, 20 epochs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import advect as ad


def lenet(classes: int = 10) -> nn.Module:
    """LeNet-5 for 28 × 28 grey images given as (n, 28, 28)."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 28)),
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )


def train(data: ad.LabeledDataset, *, epochs: int = 20, batch: int = 64, seed: int = 0) -> nn.Module:
    """Train a LeNet-5 on images with values in 0..1, and freeze it."""
    torch.manual_seed(seed)
    model = lenet(len(data.classes))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-6)
    images = data.samples.float()
    for _ in range(epochs):
        for rows in torch.randperm(len(data)).split(batch):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[rows]), data.y[rows]).backward()
            optimizer.step()
    return model.eval().requires_grad_(False)


def predictions(model: nn.Module, images: Tensor) -> Tensor:
    """Class positions that the frozen model gives to images."""
    with torch.no_grad():
        return torch.cat([model(part.float()).argmax(dim=1) for part in images.split(512)])
