"""The debiased triple: what a step hands to the next, and what it shares with a distance."""

import pytest
import torch
from flow_cases import labeled

import advect as ad
from advect.transport.transport import Transport

SOURCE, TARGET = labeled([9, 12], 2, 1, weighted=True), labeled([10, 6, 8], 2, 2, shift=2.0)
SOLVERS = {
    "sinkhorn": ad.Sinkhorn(epsilon=0.2, tol=1e-10),
    "exact": ad.ExactOT(),
    "parts": ad.MiniBatch(ad.Sinkhorn(epsilon=0.2), size=8),
}


def bits(state):
    return {name: value.clone() for name, value in state.items()}


@pytest.mark.parametrize("name", SOLVERS)
def test_a_step_changes_nothing_but_what_it_returns(name):
    transport = Transport(ad.GroundCost(), SOLVERS[name])
    _, state = transport(SOURCE, TARGET, transport.begin(SOURCE, TARGET))
    before = bits(state)
    first, after = transport(SOURCE, TARGET, state)
    second, again = transport(SOURCE, TARGET, state)
    assert first.signed == second.signed
    assert state.keys() == before.keys() and after.keys() == again.keys()
    assert all(torch.equal(state[key], before[key]) for key in state)
    assert all(torch.equal(after[key], again[key]) for key in after)


@pytest.mark.parametrize("name", ["sinkhorn", "exact"])
def test_a_step_and_a_distance_are_one_divergence(name):
    transport = Transport(ad.GroundCost(), SOLVERS[name])
    found, _ = transport(SOURCE, TARGET, {})
    kept, _ = transport.solve_with_plans(SOURCE, TARGET)
    assert found.value == pytest.approx(kept.value, rel=1e-9)
    assert kept.signed == pytest.approx(float(sum(part.sum() for part in kept.contributions)))


def test_label_distances_of_the_target_are_taken_once_for_parts():
    transport = Transport(ad.GroundCost(), SOLVERS["parts"])
    found, state = transport(SOURCE, TARGET, {})
    del state["target_labels"]
    without = transport(SOURCE, TARGET, state)[0].signed
    _, state = transport(SOURCE, TARGET, {})
    assert transport(SOURCE, TARGET, state)[0].signed == without != found.signed


def test_sharper_and_wider_in_one_step():
    """Near the target a small tolerance and float64 take over, both within the first step."""
    source = SOURCE.to(dtype=torch.float32)
    way = torch.randn(source.x.shape, generator=torch.Generator().manual_seed(0))
    near = source.replace(x=source.x + 1e-4 * way)
    transport = Transport(ad.GroundCost(), ad.Sinkhorn(epsilon=0.5, tol=1e-2))
    _, state = transport(source, near, {})
    assert bool(state["wide"]) and float(state["tol"]) < 1e-2
