"""Which functionals are random, and which have the curvature of a map: step control depends on it."""

import pytest
import torch

import advect as ad

TARGET = ad.datasets.gaussians(40, shift=(3.0, 0.0), generator=torch.Generator().manual_seed(1))
SOURCE = ad.datasets.gaussians(40, generator=torch.Generator().manual_seed(0))
BATCHES = ad.MiniBatch(size=10, batches=2)
EMBEDDED = ad.GroundCost(feature=ad.Embedding(torch.tanh))


@pytest.mark.parametrize(
    ("functional", "stochastic", "curved"),
    [
        (ad.OTDD(TARGET), False, False),
        (ad.OTDD(TARGET, solver=BATCHES), True, False),
        (0.5 * ad.OTDD(TARGET, solver=BATCHES) + ad.Potential(ad.norm()), True, False),
        (ad.OTDD(TARGET, cost=EMBEDDED), False, True),
        (ad.OTDD(TARGET.replace(targets=torch.zeros(len(TARGET)))), False, False),
    ],
)
def test_flags(functional, stochastic, curved):
    assert (functional.stochastic, functional.curved) == (stochastic, curved)


def test_steps_of_random_batches_are_not_controlled():
    """A rise is noise there: backtracking would end the flow at the first one."""
    energy = ad.OTDD(TARGET, solver=BATCHES)
    result = ad.flow(SOURCE, energy, integrator=ad.Euler(0.5), n_steps=30)
    assert (result.status, result.n_steps) == ("completed", 30)
    assert any(b > a for a, b in zip(result.values, result.values[1:], strict=False))
