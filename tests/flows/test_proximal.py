"""Implicit steps against closed forms, scipy's minimisers, and the schemes that they should not be."""

import warnings
from itertools import pairwise

import numpy as np
import pytest
import torch
from flow_cases import FEATURES_ONLY, TIGHT, bowl, draw, labeled, states
from scipy.optimize import minimize

import advect as ad

FIXED = ad.FixedSteps()
SOURCE = ad.LabeledDataset(draw(6, 3, seed=1), [0] * 6, weights=[1, 2, 3, 4, 5, 6])
CURVATURES = torch.tensor([1.0, 10.0, 1000.0], dtype=torch.float64)
STIFF = ad.Potential(lambda x, y: (CURVATURES * x.square()).sum(1) / 2)
PAIR = labeled([9, 7], 2, 1, weighted=True), labeled([8, 6], 2, 2, shift=1.5)


def exact(step_size, order=1, **options):
    """Steps whose inner problems are solved as far as digits go."""
    return ad.Proximal(step_size, order=order, tol=1e-9, inner=300, **options)


def record(result):
    return {name: float(v) for name, v in result.integrator_state.items() if v.ndim == 0}


class TestClosedForms:
    @pytest.mark.parametrize("tau", [1e-3, 0.1, 5.0])
    @pytest.mark.parametrize("order", [1, 2])
    def test_quadratic(self, tau, order):
        """x' = x/(1 + λτ), and the midpoint's x (1 − λτ/2)/(1 + λτ/2), whatever the weights."""
        z = CURVATURES * tau
        factor = 1 / (1 + z) if order == 1 else (1 - z / 2) / (1 + z / 2)
        walk = states(SOURCE, STIFF, 3, integrator=exact(tau, order), control=FIXED)
        for k, step in enumerate(walk):
            torch.testing.assert_close(step.dataset.x, SOURCE.x * factor**k, rtol=1e-6, atol=1e-8)

    def test_exact_transport(self):
        """Toward assigned places: x' = (x + τ T(x))/(1 + τ), also with steps of 100."""
        target = SOURCE.replace(x=SOURCE.x + 7.0)
        energy = ad.OTDD(target, cost=FEATURES_ONLY, solver=ad.ExactOT())
        for tau in (0.5, 100.0):
            x = states(SOURCE, energy, 1, integrator=exact(tau))[1].dataset.x
            torch.testing.assert_close(x, SOURCE.x + 7 * tau / (1 + tau), rtol=1e-7, atol=0)

    def test_gathering(self):
        """W = |x − y|²/2 between all: each contracts around the mean, by 1/(1 + τ)."""
        gather = ad.Interaction(ad.Radial(lambda squared, same: squared / 2))
        mean = (SOURCE.weights[:, None] * SOURCE.x).sum(0)
        x = states(SOURCE, gather, 1, integrator=exact(3.0), control=FIXED)[1].dataset.x
        torch.testing.assert_close(x, mean + (SOURCE.x - mean) / 4, rtol=1e-7, atol=1e-9)

    @pytest.mark.parametrize("bounds", [None, (-0.4, 0.5)])
    def test_scipy(self, bounds):
        """The minimiser of F(x') + |x' − x|²/2τ, in a box too."""
        source = SOURCE.replace(x=SOURCE.x.clamp(*bounds) if bounds else SOURCE.x)
        dynamics = ad.FeatureDriven(bounds=bounds)
        x = states(source, ad.Potential(bowl), 1, dynamics=dynamics, integrator=exact(2.0))[1]

        def inner(flat, start):
            moved = torch.tensor(flat)[None]
            return float(bowl(moved) + (moved - start).square().sum() / 4)

        box = None if bounds is None else [bounds] * 3
        for row, start in zip(x.dataset.x, source.x, strict=True):
            found = minimize(inner, start.numpy(), (start,), "L-BFGS-B", bounds=box, tol=1e-14)
            assert row.numpy() == pytest.approx(found.x, abs=2e-6)


class TestOrder:
    """The error at time 1 is c τ^order: slopes in logarithms, of the default tolerance too."""

    taus = (0.2, 0.1, 0.05, 0.025)

    def slope(self, source, functional, want, order, read=lambda rho: rho.x, **options):
        errors = []
        for tau in self.taus:
            method = ad.Proximal(tau, order=order)
            options = {"control": FIXED, **options}
            last = states(source, functional, round(1 / tau), integrator=method, **options)[-1]
            errors.append((read(last.dataset) - want).abs().max().item())
        return np.polyfit(np.log(self.taus), np.log(errors), 1)[0], errors

    @pytest.mark.slow
    @pytest.mark.parametrize("order", [1, 2])
    def test_quartic_potential(self, order):
        """V = x⁴/4: x' = −x³ has the solution x_0 / √(1 + 2 x_0² t)."""
        x = torch.linspace(-1, 1, 50, dtype=torch.float64)[:, None]
        source, want = ad.LabeledDataset(x, [0] * 50), x / (1 + 2 * x.square()).sqrt()
        quartic = ad.Potential(lambda x, y: x.pow(4).sum(1) / 4)
        slope, errors = self.slope(source, quartic, want, order)
        assert slope == pytest.approx(order, abs=0.15)
        euler = states(source, quartic, 20, integrator=ad.Euler(0.05))[-1].dataset.x
        assert errors[2] < (1.5, 0.05)[order - 1] * (euler - want).abs().max()

    @pytest.mark.slow
    @pytest.mark.parametrize("motion", [ad.BuresMotion(), ad.FactoredMotion()], ids=repr)
    def test_covariances_that_turn(self, motion):
        """Of second order also along the curves of Bures, where Heun's scheme is not."""
        scales = torch.tensor([[3.0, 0.3], [0.2, 2.0]], dtype=torch.float64)
        a, b = (
            ad.LabeledDataset(draw(5, 2, seed=seed) * scale, [0] * 5)
            for seed, scale in zip((1, 2), scales, strict=True)
        )
        energy, fine = ad.OTDD(b, solver=ad.ExactOT()), ad.JointFixedLabels(ad.FactoredMotion())
        options = {"dynamics": fine, "integrator": ad.Heun(1 / 80), "control": FIXED}

        def read(rho):
            return rho.law.covariances()

        want = read(states(a, energy, 80, **options)[-1].dataset)
        dynamics = ad.JointFixedLabels(motion)
        self.taus = self.taus[:3]
        slope, _ = self.slope(a, energy, want, 2, read=read, dynamics=dynamics)
        assert slope == pytest.approx(2, abs=0.2)


class TestStability:
    @pytest.mark.parametrize("order", [1, 2])
    @pytest.mark.parametrize("tau", [0.01, 1.0, 100.0])
    def test_any_step_size(self, tau, order):
        """λ = 1000: explicit steps are unstable beyond 0.002, these fall at each."""
        method = ad.Proximal(tau, order=order)
        values = [s.value for s in states(SOURCE, STIFF, 4, integrator=method, control=FIXED)]
        assert all(after < before for before, after in pairwise(values))
        for explicit in (ad.Euler(tau), ad.Heun(tau)):
            walk = states(SOURCE, STIFF, 4, integrator=explicit, control=FIXED)
            assert walk[-1].value > 1e3 * values[0]

    @pytest.mark.slow
    def test_steps_of_the_energy(self):
        """F(ρ') + W₂²(ρ', ρ)/2τ ≤ F(ρ): what minimising movements are named for."""
        source, target = PAIR
        energy = ad.OTDD(target, solver=TIGHT)
        for tau in (0.3, 3.0, 30.0):
            walk = states(source, energy, 3, integrator=ad.Proximal(tau), control=FIXED)
            for here, there in pairwise(walk):
                way = (there.dataset.x - here.dataset.x).square().sum(1)
                length = float((source.weights * way).sum())
                assert there.value + length / (2 * tau) <= here.value * (1 + 1e-9)


DYNAMICS = [
    ad.FeatureDriven(),
    ad.FeatureDriven(bounds=(-2.0, 3.0)),
    ad.FeatureDriven(through_laws=False),
    ad.JointFixedLabels(),
    ad.JointFixedLabels(ad.EuclideanMotion()),
    ad.JointVariableLabels(),
    ad.JointVariableLabels(laws=ad.DiagonalMotion()),
]


class TestDynamics:
    @pytest.mark.slow
    @pytest.mark.parametrize("dynamics", DYNAMICS, ids=repr)
    @pytest.mark.parametrize("order", [1, 2])
    def test_all_dynamics(self, dynamics, order):
        source, target = PAIR
        method = ad.Proximal(1.0, order=order)
        result = ad.flow(
            source,
            ad.OTDD(target, solver=ad.Sinkhorn(ad.Relative(0.05), tol=1e-7)),
            dynamics=dynamics,
            integrator=method,
            n_steps=4,
        )
        assert result.status == "completed" and record(result)["unconverged"] == 0
        assert result.values[-1] < 0.15 * result.values[0] or dynamics == DYNAMICS[1]
        assert all(after < before for before, after in pairwise(result.values))
        if result.dataset.law is not None:
            assert torch.linalg.eigvalsh(result.dataset.law.covariances()).min() >= -1e-12

    @pytest.mark.slow
    def test_the_same_step_in_both_forms(self):
        """Factors and roots are coordinates of one problem."""
        source, target = PAIR
        found = [
            states(
                source,
                ad.OTDD(target, solver=TIGHT),
                2,
                dynamics=ad.JointFixedLabels(motion),
                integrator=ad.Proximal(1.5, tol=1e-6, inner=100),
            )[-1].dataset
            for motion in (ad.BuresMotion(), ad.FactoredMotion())
        ]
        laws = [data.law.covariances() for data in found]
        torch.testing.assert_close(laws[0], laws[1], rtol=1e-4, atol=1e-5)

    def test_deviations_that_change_their_sign(self):
        """The pulled velocity is the gradient in the displacement: by differences."""
        motion = ad.DiagonalMotion()
        laws = ad.Gaussians(draw(2, 3, seed=1), ad.Diagonal(draw(2, 3, seed=2).abs()))
        move = {"mean": draw(2, 3, seed=3), "deviation": -2 * laws.covariance.deviations}
        slope = {"mean": draw(2, 3, seed=4), "deviation": draw(2, 3, seed=5)}
        pulled = motion.pulled(laws, move, slope)
        assert torch.equal(pulled["deviation"], -slope["deviation"])
        assert torch.equal(pulled["mean"], slope["mean"])

    def test_a_dynamics_of_ones_own(self):
        class Half:
            """No subclass: only the first column moves."""

            descends = True

            def start(self, data):
                return data

            def parameters(self, rho):
                return {"x": rho.x}

            def attach(self, rho, parameters):
                return rho.replace(x=parameters["x"])

            def velocity(self, rho, gradient):
                keep = torch.tensor([1.0, 0.0, 0.0], dtype=rho.x.dtype)
                return {"x": -gradient["x"] / rho.weights[:, None] * keep}

            def move(self, rho, displacement, step):
                return rho.replace(x=rho.x + displacement["x"])

        x = states(SOURCE, STIFF, 1, dynamics=Half(), integrator=exact(1.0))[1].dataset.x
        assert torch.equal(x[:, 1:], SOURCE.x[:, 1:])
        torch.testing.assert_close(x[:, 0], SOURCE.x[:, 0] / 2, rtol=1e-8, atol=0)


class TestOrdinaryInputs:
    @pytest.mark.parametrize(("offset", "scale"), [(1e6, 1.0), (0.0, 1e8), (0.0, 1e-8)])
    def test_offsets_and_scales(self, offset, scale):
        """A bowl around an offset, in other units: the same steps."""
        source = SOURCE.replace(x=offset + scale * SOURCE.x)
        moved = ad.Potential(lambda x, y: (CURVATURES * (x - offset).square()).sum(1) / 2)
        result = ad.flow(source, moved, integrator=ad.Proximal(0.3, tol=1e-4), n_steps=3)
        x, want = (result.dataset.x - offset) / scale, SOURCE.x / (1 + 0.3 * CURVATURES) ** 3
        torch.testing.assert_close(x, want, rtol=1e-3, atol=1e-4)
        assert record(result)["unconverged"] == 0

    def test_copies_change_nothing(self):
        twice = SOURCE.subset(torch.arange(6).repeat(2))
        options = {"integrator": exact(2.0), "control": FIXED}
        x, again = (
            states(data, ad.Potential(bowl), 2, **options)[-1].dataset.x for data in (SOURCE, twice)
        )
        torch.testing.assert_close(again, x.repeat(2, 1), rtol=1e-8, atol=1e-9)

    def test_rows_without_mass_stay(self):
        source = SOURCE.replace(weights=torch.tensor([0.0, 1, 1, 1, 1, 1]).double() / 5)
        x = states(source, STIFF, 2, integrator=ad.Proximal(1.0))[-1].dataset.x
        assert torch.equal(x[0], source.x[0]) and bool((x[1:].abs() < source.x[1:].abs()).all())

    def test_at_rest(self):
        still = SOURCE.replace(x=torch.zeros_like(SOURCE.x))
        result = ad.flow(still, STIFF, integrator=ad.Proximal(1.0), n_steps=3)
        assert result.status == "completed" and record(result) == {
            "evaluations": 0.0,
            "unconverged": 0.0,
            "residual": 0.0,
        }

    def test_places_that_are_refused(self):
        """A barrier: not a number beyond 1. Steps stay on this side."""
        source = ad.LabeledDataset(torch.tensor([[0.5]], dtype=torch.float64), ["a"])
        wall = ad.Potential(lambda x, y: -5 * x[:, 0] - torch.log(1 - x[:, 0]))
        method = ad.Proximal(10.0, tol=1e-5, inner=100)
        walk = states(source, wall, 3, integrator=method, control=FIXED)
        x = [step.dataset.x.item() for step in walk]
        assert x[0] < x[1] < x[2] < x[3] < 0.8
        for before, after in pairwise(x):
            assert after == pytest.approx(before + 10 * (5 - 1 / (1 - after)), abs=1e-6)


class TestHonest:
    def test_too_few_evaluations(self):
        """Said by a warning, in the diagnosis and in the record."""
        with pytest.warns(ad.ConvergenceWarning, match="1 evaluations left a residual"):
            result = ad.flow(
                SOURCE, STIFF, integrator=ad.Proximal(1.0, inner=1), n_steps=2, control=FIXED
            )
        note = next(note for note in result.diagnosis if "inner minimisation" in note.what)
        assert "of 2 implicit steps" in note.what and "inner" in note.for_command_line.remedy
        found = record(result)
        assert found["unconverged"] == 2 and found["evaluations"] == 2 and found["residual"] > 0.1

    @pytest.mark.parametrize("order", [1, 2])
    def test_residual_and_evaluations(self, order):
        """What is recorded is what an own count and the place itself say."""

        class Counted(ad.Potential):
            calls = 0

            def __call__(self, rho):
                Counted.calls += 1
                return super().__call__(rho)

        walk = states(SOURCE, Counted(bowl), 3, integrator=ad.Proximal(1.0, order=order))
        here, there = walk[-2:]
        state = there.snapshot.integrator
        extra = 1 + (3 if order == 2 else 0)  # the first place, and those that are gone to
        assert Counted.calls == int(state["evaluations"]) + extra
        if order == 1:
            move = there.dataset.x - here.dataset.x
            off = move - there.velocity["x"]
            sizes = [(SOURCE.weights * part.square().sum(1)).sum().sqrt() for part in (off, move)]
            assert float(state["residual"]) == pytest.approx(float(sizes[0] / sizes[1]), rel=1e-6)
            assert state["residual"] <= 0.1

    def test_warnings_of_places_not_gone_to(self):
        """A place that is only tried may warn; the step does not."""

        def loud(x, y):
            if bool((x < 0).any()):
                warnings.warn("below zero", RuntimeWarning, stacklevel=2)
            return 50 * x.square().sum(1)

        source = SOURCE.replace(x=SOURCE.x.abs() + 0.1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            states(source, ad.Potential(loud), 2, integrator=ad.Proximal(0.5), control=FIXED)

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"step_size": 0.0}, "step_size"),
            ({"order": 3}, "order must be 1 or 2"),
            ({"tol": -1.0}, "tol"),
            ({"inner": 0}, "inner"),
        ],
    )
    def test_errors(self, options, words):
        with pytest.raises(ad.InputError, match=words):
            ad.Proximal(**options)


class TestState:
    def test_one_draw_for_a_step(self):
        """All places of a step see the same directions, those of the next others."""
        seen = []

        class Watched(ad.SlicedOTDD):
            def terms(self, rho, state):
                seen.append(int(state["calls"]))
                return super().terms(rho, state)

        energy = Watched(PAIR[1], 20)
        walk = states(PAIR[0], energy, 3, integrator=ad.Proximal(1.0))
        assert seen == sorted(seen) and set(seen) == {0, 1, 2, 3} and len(seen) > 8
        # and it is the step of these directions: its residual is of the place itself
        here, there = walk[:2]
        move = there.dataset.x - here.dataset.x
        off = (move - there.velocity["x"]).norm() / move.norm()
        assert off < 0.2

    @pytest.mark.slow
    @pytest.mark.parametrize("order", [1, 2])
    @pytest.mark.parametrize("energy", ["sliced", "otdd"])
    def test_resume(self, tmp_path, order, energy):
        """Bit for bit, whatever is rejected on the way."""
        source, target = PAIR
        functional = ad.SlicedOTDD(target, 20) if energy == "sliced" else ad.OTDD(target)
        options = {"integrator": ad.Proximal(1.0, order=order)}
        options["dynamics"] = ad.JointFixedLabels()
        alone = ad.flow(source, functional, n_steps=4, **options)
        save = [ad.Checkpoint(tmp_path, every=1)]
        ad.flow(source, functional, n_steps=2, callbacks=save, **options)
        again = ad.flow(source, functional, n_steps=4, resume=tmp_path, **options)
        assert again.values == alone.values and torch.equal(again.dataset.x, alone.dataset.x)
        assert record(again) == record(alone)

    def test_step_control(self):
        """A step that rises is made smaller: the midpoint of a long one is at the foot of a wall,
        and twice the way is high up on it.
        """
        source = ad.LabeledDataset(torch.tensor([[1.0]], dtype=torch.float64), ["a"])
        wall = ad.Potential(lambda x, y: (x + 500 * x.clamp_max(0).square()).sum(1))
        options = {"integrator": ad.Proximal(4.0, order=2), "n_steps": 3}
        free = ad.flow(source, wall, control=FIXED, **options)
        assert free.values[1] > 100
        result = ad.flow(source, wall, **options)
        assert all(after <= before for before, after in pairwise(result.values))
        assert result.values[-1] < 0.5

    def test_schedule(self):
        """The size of each step is its own, and what is known of the curvature is carried over."""
        sizes = [0.1, 2.0, 0.01, 1.0]
        method = exact(lambda k: sizes[k])
        last = states(SOURCE, STIFF, 4, integrator=method, control=FIXED)[-1]
        factor = torch.stack([1 / (1 + CURVATURES * tau) for tau in sizes]).prod(0)
        torch.testing.assert_close(last.dataset.x, SOURCE.x * factor, rtol=1e-4, atol=1e-9)


def test_what_moves_keeps_its_dtype():
    """Features in float32 beside targets in float64."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(20, 2, generator=generator)
    source = ad.LabeledDataset(x, targets=x[:, 0])
    target = ad.LabeledDataset(x + 1, targets=x[:, 0] * 2)
    functional = ad.OTDD(target, cost=ad.GroundCost(label=ad.TargetValues()))
    result = ad.flow(
        source, functional, dynamics=ad.JointTargets(), integrator=ad.Proximal(0.3), n_steps=2
    )
    assert result.values[-1] < result.values[0]
    assert (result.dataset.x.dtype, result.dataset.targets.dtype) == (torch.float32, torch.float64)
