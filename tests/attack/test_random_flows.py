"""Random flows with controlled steps: the value never rises by more than rounding."""

from itertools import pairwise

import numpy as np
import pytest
import torch

import advect as ad

DEFAULT, ALL = 15, 150


def flow_of(seed):
    """A flow of random size, dtype, cost, dynamics, integrator and penalty, with steps that may be too large."""
    rng = np.random.default_rng(seed)
    dtype = torch.float32 if rng.random() < 0.5 else torch.float64
    d, scale = int(rng.choice([1, 2, 5])), 10.0 ** rng.integers(-3, 4)
    sides = []
    for side in range(2):
        n, k = int(rng.integers(4, 30)), int(rng.choice([1, 2, 3]))
        y = rng.permutation(np.arange(n) % k)
        x = scale * (rng.normal(size=(n, d)) + 2 * rng.normal(size=(3, d))[y] + side)
        weights = rng.random(n) + 0.1 if rng.random() < 0.3 else None
        sides.append(ad.LabeledDataset(torch.as_tensor(x, dtype=dtype), y, weights=weights))
    labels = ad.Bures(), ad.Bures(diagonal=True), ad.MeansOnly(), ad.NoLabels()
    dynamics = ad.FeatureDriven(), ad.JointFixedLabels(), ad.JointVariableLabels()
    dynamics = dynamics[rng.choice(3, p=[0.6, 0.2, 0.2])]
    label = labels[0] if dynamics.moves_laws else labels[rng.choice(4)]
    solver = ad.Sinkhorn(ad.Relative(10.0 ** rng.uniform(-2, 0)))
    objective = ad.OTDD(sides[1], cost=ad.GroundCost(label=label), solver=solver)
    if rng.random() < 0.4:
        objective = objective + float(10.0 ** rng.uniform(-2, 2)) * ad.Potential(ad.norm())
    step = float(10.0 ** rng.uniform(-1.5, 0.7))
    integrator = ad.Euler(step) if rng.random() < 0.7 else ad.Heun(step)
    options = {"dynamics": dynamics, "integrator": integrator, "control": ad.Backtracking()}
    return ad.flow(sides[0], objective, n_steps=int(rng.integers(3, 12)), **options)


def rises(result):
    """Steps in which the value rose by more than rounding of its terms."""
    eps = torch.finfo(result.dataset.x.dtype).eps
    sizes = [sum(map(abs, parts)) for parts in zip(*result.terms.values(), strict=True)]
    room = 100 * eps * max(sizes)
    return sum(b - a > room for a, b in pairwise(result.values))


@pytest.mark.parametrize(
    "seeds", [range(DEFAULT), pytest.param(range(DEFAULT, ALL), marks=pytest.mark.slow)]
)
@pytest.mark.filterwarnings("ignore")
def test_flows_never_rise(seeds):
    for seed in seeds:
        result = flow_of(seed)
        assert result.status in ("completed", "stalled"), (seed, result.message)
        assert bool(result.dataset.x.isfinite().all()) and not rises(result), seed
