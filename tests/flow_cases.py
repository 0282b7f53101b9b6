"""Small datasets, costs, walks and other helpers that tests share."""

import io
import math
from itertools import islice
from pathlib import Path

import numpy as np
import torch

import advect as ad

FEATURES_ONLY = ad.GroundCost(label=ad.NoLabels())
EXACT_LAWS = ad.GroundCost()  # label distances decomposed at each step, not within a tolerance
TIGHT = ad.Sinkhorn(epsilon=0.1, tol=1e-11)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def draw(*shape, seed=0):
    """Standard normal numbers in float64."""
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


def labeled(sizes, dim, seed, shift=0.0, apart=1.5, weighted=False):
    """Gaussian classes of the given sizes, ``apart`` from one to the next along all axes."""
    y = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    x = draw(len(y), dim, seed=seed) + apart * y[:, None] + shift
    weights = torch.rand(len(y), generator=seeded(seed), dtype=torch.float64) + 0.2
    return ad.LabeledDataset(x, y, weights=weights if weighted else None)


def gaussians(n=30, seed=0, **options):
    """The toy dataset of this seed."""
    return ad.datasets.gaussians(n, generator=seeded(seed), **options)


def classes_on_axes(n=90, k=3, d=4, seed=0, apart=8.0, **options):
    """Standard Gaussian classes, each shifted along an axis of its own."""
    y = np.arange(n) % k
    x = np.random.default_rng(seed).normal(size=(n, d)) + apart * np.eye(k, d)[y]
    return ad.LabeledDataset(x, y, classes=range(k), **options)


def widening(n, seed=0, d=3, k=3, shift=0.0, weighted=False):
    """Gaussian classes of equal sizes, each wider than the one before."""
    y = torch.arange(n) % k
    x = draw(n, d, seed=seed) * (1 + y[:, None]) / 2 + 2 * y[:, None] + shift
    drawn = torch.rand(n, generator=seeded(seed + 50), dtype=torch.float64) + 0.1
    return ad.LabeledDataset(x, y, weights=drawn if weighted else None)


MEANS = torch.tensor([[0.0, 4.0], [4.0, 0.0], [-4.0, -1.0]])


def clusters(means=MEANS, n=90, seed=0, names=("p", "q", "r"), spread=0.5):
    """Classes around these means of the plane, in float32."""
    y = torch.arange(n) % len(means)
    x = means[y] + spread * torch.randn(n, 2, generator=seeded(seed))
    return ad.LabeledDataset(x, [names[i] for i in y], classes=tuple(names))


def partly(data, each):
    """The same data with the first ``each`` labels of each class."""
    first = torch.cat([(data.y == code).nonzero()[:each, 0] for code in data.y.unique()])
    return data.replace(y=torch.full_like(data.y, -1).index_copy(0, first, data.y[first]))


def memberships(data):
    """The probability of each class for each sample: one where labels are certain."""
    if data.probabilities is not None:
        return data.probabilities
    return torch.nn.functional.one_hot(data.y, len(data.classes)).double()


def states(source, functional, n_steps, **options):
    """The evaluated states 0, …, n_steps of a flow."""
    return list(islice(ad.iterate(source, functional, **options), n_steps + 1))


def value_at(functional, rho, state):
    """The value of a functional that remembers ``state``."""
    terms, _ = functional.terms(rho, state)
    return math.fsum(value.item() for value in terms.values())


def first_velocity(source, functional, dynamics):
    """The velocity at step 0, by the dynamics' own methods and autograd."""
    rho = dynamics.start(source)
    parameters = dynamics.parameters(rho)
    leaves = {name: part.detach().clone().requires_grad_() for name, part in parameters.items()}
    functional(dynamics.attach(rho, leaves)).backward()
    return dynamics.velocity(rho, {name: leaf.grad for name, leaf in leaves.items()})


def content(directory="."):
    """The bytes of all files below a directory, by path."""
    paths = (path for path in Path(directory).rglob("*") if path.is_file())
    return {path.relative_to(directory): path.read_bytes() for path in paths}


def interrupt_at(index):
    """A callback: Ctrl-C at a step."""

    def callback(step):
        if step.index == index:
            raise KeyboardInterrupt

    return callback


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self):
        return True


def bowl(x, y=None):
    """A smooth potential with all kinds of curvature, one value for each row."""
    scales = torch.tensor([0.5, 2.0, 0.1], dtype=x.dtype)
    return x.square() @ scales + x.pow(4).sum(1) / 8 + x[:, 0] * x[:, 1]
