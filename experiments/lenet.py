"""The paper's classifier (appendix C): LeNet-5 with ReLU, Adam 1e-3, weight decay 1e-6, 20 epochs,
10 of fine-tuning.

For colour images of 32 × 32, where the paper takes a large pretrained network, a convolutional one
that trains in a minute."""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn

import advect as ad
from advect.apps.models import encoded


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


def colour_network(classes: int = 10) -> nn.Module:
    """A small convolutional network for 32 × 32 colour images given as (n, 32, 32, 3)."""

    def block(channels: int, out: int) -> list[nn.Module]:
        return [
            nn.Conv2d(channels, out, 3, padding=1),
            nn.BatchNorm2d(out),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]

    return nn.Sequential(
        _ChannelsFirst(),
        *block(3, 32),
        *block(32, 64),
        *block(64, 128),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(2048, classes),
    )


class _ChannelsFirst(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.movedim(-1, 1)


def network(shape: tuple[int, ...], classes: int) -> nn.Module:
    """The classifier for samples of this shape."""
    return lenet(classes) if len(shape) == 2 else colour_network(classes)


class Trainer:
    """A LeNet-5 trained by a given number of updates, whatever the number of samples, so that
    comparisons are fair.

    Samples are drawn for a batch in proportion to their weights.
    """

    def __init__(self, seed: int, classes: int, updates: int) -> None:
        self.seed, self.updates = seed, updates
        torch.manual_seed(seed)
        self.model = lenet(classes)

    def fit(self, x: Tensor, y: Tensor, sample_weight: Tensor | None = None) -> Trainer:
        return self._update(x, y, sample_weight, self.updates)

    def fine_tune(self, x: Tensor, y: Tensor, sample_weight: Tensor | None = None) -> Trainer:
        """Half as many updates again, as the paper's 10 epochs after 20."""
        return self._update(x, y, sample_weight, self.updates // 2)

    def predict(self, x: Tensor) -> Tensor:
        return predictions(self.model.eval(), x)

    def _update(self, x: Tensor, y: Tensor, weights: Tensor | None, updates: int) -> Trainer:
        generator = torch.Generator().manual_seed(self.seed)
        x, weights = x.float(), torch.ones(len(y)) if weights is None else weights
        rows = torch.multinomial(weights, 64 * updates, replacement=True, generator=generator)
        optimizer = torch.optim.Adam(self.model.train().parameters(), lr=1e-3, weight_decay=1e-6)
        for batch in rows.split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(self.model(x[batch]), y[batch]).backward()
            optimizer.step()
        return self


def halves(model: nn.Module, layer: str) -> tuple[nn.Sequential, nn.Sequential]:
    """The layers of a network up to one of them, and the layers after it."""
    layers, count = list(model.children()), int(layer) + 1
    return nn.Sequential(*layers[:count]), nn.Sequential(*layers[count:])


def features(body: nn.Module, data: ad.LabeledDataset) -> ad.LabeledDataset:
    """The dataset with the features that a network computes."""
    return encoded(data, body)


def train(
    data: ad.LabeledDataset, *, epochs: int = 20, batch: int = 64, seed: int = 0
) -> nn.Module:
    """Train a network on images with values in 0..1, and freeze it."""
    torch.manual_seed(seed)
    model = network(data.sample_shape, len(data.classes)).train()
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


def scores(model: nn.Module, images: Tensor) -> Tensor:
    """What the frozen model says of images, before any softmax."""
    with torch.no_grad():
        return torch.cat([model(part.float()) for part in images.split(512)])


@functools.cache
def frozen(name: str, epochs: int) -> nn.Module:
    """A network trained on all training samples of a dataset; once in each process."""
    return train(ad.datasets.load(name), epochs=epochs)
