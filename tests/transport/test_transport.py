"""The debiased triple of a flow: what a step hands to the next, and what it shares with a distance."""

from itertools import pairwise

import pytest
import torch
from flow_cases import labeled

import advect as ad

SOURCE, TARGET = labeled([9, 12], 2, 1, weighted=True), labeled([10, 6, 8], 2, 2, shift=2.0)
SOLVERS = {
    "sinkhorn": ad.Sinkhorn(epsilon=0.2, tol=1e-10),
    "exact": ad.ExactOT(),
    "parts": ad.MiniBatch(ad.Sinkhorn(epsilon=0.2), size=8),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_a_step_changes_nothing_but_what_it_returns(name):
    energy = ad.OTDD(TARGET, solver=SOLVERS[name])
    _, state = energy.terms(SOURCE, energy.begin(SOURCE))
    before = {key: value.clone() for key, value in state.items()}
    (first, after), (second, again) = (energy.terms(SOURCE, state) for _ in range(2))
    assert first["OTDD"].item() == second["OTDD"].item()
    assert state.keys() == before.keys() and after.keys() == again.keys()
    assert all(torch.equal(state[key], before[key]) for key in state)
    assert all(torch.equal(after[key], again[key]) for key in after)


@pytest.mark.parametrize("name", ["sinkhorn", "exact"])
def test_a_step_and_a_distance_are_one_divergence(name):
    found = ad.OTDD(TARGET, solver=SOLVERS[name])(SOURCE)
    distance = ad.otdd(SOURCE, TARGET, solver=SOLVERS[name])
    assert float(found) == pytest.approx(distance.energy, rel=1e-9)
    parts = [float(part.sum()) for part in distance.contributions]
    assert distance.energy == pytest.approx(sum(parts), rel=1e-9)


def test_parts_are_drawn_anew_at_each_step_and_the_same_in_each_walk():
    energy = ad.OTDD(TARGET, solver=SOLVERS["parts"])
    walk = {"n_steps": 2, "integrator": ad.Euler(1e-12)}
    first, second = (ad.flow(SOURCE, energy, **walk).values for _ in range(2))
    assert first == second and len(set(first)) == 3


def test_sharper_and_wider_in_one_step():
    """Near the target a small tolerance and float64 take over, both within the first step."""
    source = SOURCE.to(dtype=torch.float32)
    way = torch.randn(source.x.shape, generator=torch.Generator().manual_seed(0))
    near = source.replace(x=source.x + 1e-4 * way)
    solver = ad.Sinkhorn(epsilon=0.5, tol=1e-2)
    found = ad.OTDD(near, solver=solver)(source).item()
    wide = [data.to(dtype=torch.float64) for data in (source, near)]
    exact = ad.otdd(*wide, solver=ad.Sinkhorn(epsilon=0.5, tol=1e-13)).energy
    assert found == pytest.approx(exact, rel=0.05)


def test_what_the_control_of_steps_knows_of_a_distance():
    """Random batches are not controlled; steps through an embedding are, with any integrator."""
    random = ad.OTDD(TARGET, solver=SOLVERS["parts"])
    with pytest.raises(ad.InputError, match="noise"):
        ad.flow(SOURCE, random, control=ad.Backtracking(), n_steps=1)
    assert ad.flow(SOURCE, random, n_steps=3).n_steps == 3
    steep = ad.GroundCost(feature=ad.Embedding(lambda x: 30 * x))
    run = ad.flow(SOURCE, ad.OTDD(TARGET, cost=steep), integrator=ad.Momentum(0.1), n_steps=3)
    assert all(after < before for before, after in pairwise(run.values))
