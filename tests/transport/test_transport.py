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
    found = ad.OTDD(near, solver=ad.Sinkhorn(epsilon=0.5, tol=1e-2))(source).item()
    wide = [data.to(dtype=torch.float64) for data in (source, near)]
    exact = ad.otdd(*wide, solver=ad.Sinkhorn(epsilon=0.5, tol=1e-13)).energy
    assert found == pytest.approx(exact, rel=0.05)


RANDOM = ad.OTDD(TARGET, solver=SOLVERS["parts"])
BENT = ad.GroundCost(feature=ad.Embedding(torch.tanh))
NUMBERS = ad.OTDD(TARGET.replace(targets=torch.zeros(len(TARGET))))


@pytest.mark.parametrize(
    ("functional", "stochastic", "curved"), [(ad.OTDD(TARGET), False, False), (RANDOM, True, False),
    (0.5 * RANDOM + ad.Potential(ad.norm()), True, False), (ad.OTDD(TARGET, cost=BENT), False, True),
    (NUMBERS, False, False)],
)  # fmt: skip
def test_what_is_random_and_what_has_the_curvature_of_a_map(functional, stochastic, curved):
    assert (functional.stochastic, functional.curved) == (stochastic, curved)


def test_what_the_control_of_steps_knows_of_a_distance():
    """Random batches are not controlled, since a rise is noise there; steps through an embedding are, with any
    integrator."""
    with pytest.raises(ad.InputError, match="noise"):
        ad.flow(SOURCE, RANDOM, control=ad.Backtracking(), n_steps=1)
    run = ad.flow(SOURCE, RANDOM, integrator=ad.Euler(0.5), n_steps=30)
    assert (run.status, run.n_steps) == ("completed", 30)
    assert any(after > before for before, after in pairwise(run.values))
    steep = ad.GroundCost(feature=ad.Embedding(lambda x: 30 * x))
    run = ad.flow(SOURCE, ad.OTDD(TARGET, cost=steep), integrator=ad.Momentum(0.1), n_steps=3)
    assert all(after < before for before, after in pairwise(run.values))
