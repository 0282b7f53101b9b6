"""Functionals, integrators and dynamics of a user: errors where they do not fit, and their states."""

from itertools import islice

import pytest
import torch
from flow_cases import seeded

import advect as ad

DATA = ad.LabeledDataset([[1.0, 2.0], [3.0, -1.0], [0.5, 0.0]], ["a", "b", "a"])
BOWL = ad.Potential(lambda x, y: x.square().sum(1) / 2)


class Given(ad.Functional):
    def __init__(self, terms, remembered=None):
        self._terms, self.remembered = terms, {} if remembered is None else remembered

    def terms(self, rho, state):
        return self._terms(rho), self.remembered


@pytest.mark.parametrize(
    ("value", "got"),
    [(lambda rho: rho.x.square().sum(1), r"\(3,\)"), (lambda rho: rho.x.sum().item(), "float")],
)
def test_a_functional_that_is_no_single_number(value, got):
    class Own(ad.Functional):
        def __call__(self, rho):
            return value(rho)

    for functional in (Own(), Given(lambda rho: {"Own": value(rho)})):
        with pytest.raises(ad.InputError, match=f"single number.*'Own': .*{got}"):
            ad.flow(DATA, functional, n_steps=1)


@pytest.mark.parametrize("state", [{"count": 1.0}, [1]])
def test_a_state_that_no_checkpoint_holds(state):
    with pytest.raises(ad.InputError, match="flat dictionary of tensors"):
        ad.flow(DATA, Given(lambda rho: {"sum": rho.x.sum()}, state), n_steps=1)


@pytest.mark.parametrize(
    "displacement", [lambda v: {"X": -v["x"]}, lambda v: {"x": v["x"], "mean": v["x"]},
    lambda v: {"x": v["x"].mean(0)}, lambda v: {"x": 0.1}, lambda v: v["x"]],
)  # fmt: skip
def test_a_displacement_of_other_names_or_shapes(displacement):
    class Own(ad.Integrator):
        def displace(self, velocity, state, step, generator):
            return displacement(velocity), state

    with pytest.raises(ad.InputError, match=r"a displacement must.*'x': \(3, 2\)"):
        ad.flow(DATA, BOWL, integrator=Own(), n_steps=1)


@pytest.mark.parametrize("dynamics", [ad.FeatureDriven, "fd", ad.Euler()])
def test_what_is_no_dynamics(dynamics):
    with pytest.raises(ad.InputError, match="dynamics must say what moves"):
        ad.flow(DATA, BOWL, dynamics=dynamics, n_steps=1)


class Following(ad.Functional):
    """Toward the mean of the step before; with a mistake that is not of the checkpoint's making."""

    def __init__(self, options):
        self.options_ = options

    def begin(self, rho):
        return {"mean": rho.x.detach().mean(0)}

    def terms(self, rho, state):
        factor = self.options_["factor"]
        value = factor * (rho.weights * (rho.x - state["mean"]).square().sum(1)).sum()
        return {"Following": value}, self.begin(rho)


class TestKeyErrorsOfResumedFlows:
    def test_ones_own_mistake_stays_what_it_is(self):
        taken = next(islice(ad.iterate(DATA, Following({"factor": 1.0})), 2, None)).snapshot
        with pytest.raises(KeyError, match="factor"):
            next(ad.iterate(DATA, Following({}), start=taken))

    def test_another_functional_is_named(self):
        walk = ad.iterate(DATA, Given(lambda rho: {"s": rho.x.sum()}, {"n": DATA.x}))
        later = next(islice(walk, 1, None)).snapshot
        with pytest.raises(ad.InputError, match="another functional.*no 'mean'"):
            next(ad.iterate(DATA, Following({"factor": 1.0}), start=later))


def test_a_resumed_walk_does_not_turn_back_another_of_the_same_generator():
    def walk(generator, start=None):
        options = {"integrator": ad.EulerMaruyama(0.1), "generator": generator}
        return ad.iterate(DATA, BOWL, start=start, **options)

    alone, shared = [step.dataset.x for step in islice(walk(seeded()), 6)], seeded()
    first = walk(shared)
    seen = [next(first) for _ in range(3)]
    again = [step.dataset.x for step in islice(walk(shared, start=seen[1].snapshot), 4)]
    seen += [next(first) for _ in range(3)]
    assert all(map(torch.equal, (step.dataset.x for step in seen), alone))
    assert all(map(torch.equal, again, alone[1:5]))
