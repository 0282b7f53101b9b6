"""Functionals, integrators and dynamics of one's own: what does not fit is said where it is seen,
and what they remember is left to them.
"""

from itertools import islice

import pytest
import torch

import advect as ad

DATA = ad.LabeledDataset([[1.0, 2.0], [3.0, -1.0], [0.5, 0.0]], ["a", "b", "a"])
BOWL = ad.Potential(lambda x, y: x.square().sum(1) / 2)


class Given(ad.Functional):
    """Returns what it is told to."""

    def __init__(self, terms, remembered=None):
        self._terms, self.remembered = terms, {} if remembered is None else remembered

    def terms(self, rho, state):
        return self._terms(rho), self.remembered


@pytest.mark.parametrize(
    ("value", "got"),
    [
        (lambda rho: 2.0, "float"),
        (lambda rho: rho.x.square().sum(1), r"shape \(3,\)"),
        (lambda rho: rho.x.sum().item(), "float"),
    ],
)
def test_a_functional_that_is_no_single_number(value, got):
    class Own(ad.Functional):
        def __call__(self, rho):
            return value(rho)

    for functional in (Own(), Given(lambda rho: {"Own": value(rho)})):
        with pytest.raises(ad.InputError, match=f"must be a single number.*'Own': '{got}"):
            ad.flow(DATA, functional, n_steps=1)


@pytest.mark.parametrize(
    ("remembered", "got"), [({"count": 1.0}, "'count': 'float"), ([1], "list")]
)
def test_a_memory_that_no_checkpoint_holds(remembered, got):
    functional = Given(lambda rho: {"sum": rho.x.sum()}, remembered)
    with pytest.raises(ad.InputError, match=f"flat dictionary of tensors.*{got}"):
        ad.flow(DATA, functional, n_steps=1)


@pytest.mark.parametrize(
    ("displacement", "got"),
    [
        (lambda v: {"X": -v["x"]}, "'X'"),
        (lambda v: {"x": v["x"], "mean": v["x"]}, "'mean'"),
        (lambda v: {"x": v["x"].mean(0)}, r"'x': 'shape \(2,\)"),
        (lambda v: {"x": v["x"].mean()}, r"'x': 'shape \(\)"),
        (lambda v: {"x": 0.1}, "'x': 'float'"),
        (lambda v: v["x"], r"'all': 'shape \(3, 2\)"),
    ],
)
def test_a_displacement_of_other_names_or_shapes(displacement, got):
    class Own(ad.Integrator):
        def displace(self, velocity, state, step, generator):
            return displacement(velocity), state

    with pytest.raises(
        ad.InputError, match=rf"a displacement must.*'x': 'shape \(3, 2\).*got.*{got}"
    ):
        ad.flow(DATA, BOWL, integrator=Own(), n_steps=1)


class TestDynamics:
    def test_a_part_of_one(self):
        class Half:
            def start(self, data):
                return data

            def parameters(self, rho):
                return {"x": rho.x}

        with pytest.raises(ad.InputError, match="without attach, velocity, move, descends"):
            ad.flow(DATA, BOWL, dynamics=Half(), n_steps=1)
        with pytest.raises(ad.InputError, match="dynamics must say what moves"):
            ad.flow(DATA, BOWL, dynamics=ad.FeatureDriven, n_steps=1)

    def test_no_subclass(self):
        own = ad.FeatureDriven()

        class Plain:
            descends = True
            start, parameters, attach = own.start, own.parameters, own.attach
            velocity, move = own.velocity, own.move

        plain, known = (ad.flow(DATA, BOWL, dynamics=one, n_steps=3) for one in (Plain(), own))
        assert torch.equal(plain.dataset.x, known.dataset.x)


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


class TestSharedGenerators:
    def walk(self, generator, start=None):
        return ad.iterate(
            DATA, BOWL, integrator=ad.EulerMaruyama(0.1), generator=generator, start=start
        )

    def test_a_resumed_walk_does_not_turn_back_another(self):
        alone = [step.dataset.x for step in islice(self.walk(torch.Generator().manual_seed(0)), 6)]
        shared = torch.Generator().manual_seed(0)
        first = self.walk(shared)
        seen = [next(first) for _ in range(3)]
        second = self.walk(shared, start=seen[1].snapshot)
        again = [next(second).dataset.x for _ in range(4)]
        seen += [next(first) for _ in range(3)]
        assert all(map(torch.equal, (step.dataset.x for step in seen), alone))
        assert all(map(torch.equal, again, alone[1:5]))
