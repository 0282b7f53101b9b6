"""Step control: descent with a guarantee, rejections without a trace, what is left alone."""

import os
from dataclasses import dataclass
from itertools import islice, pairwise

import pytest
import torch
from flow_cases import bowl, draw, labeled, states
from setups import SETUPS

import advect as ad
from advect.flows.snapshots import load_snapshot

QUICK = [name for name, setup in SETUPS.items() if not setup.data][::3]
SOURCE = ad.LabeledDataset(draw(6, 3, seed=1), [0, 1] * 3, weights=[1, 2, 3, 4, 5, 6])
WIDE = torch.float64
ONE = ad.LabeledDataset(torch.ones(1, 1, dtype=torch.float64), ["a"])
SQUARE = ad.Potential(lambda x, y: x.square().sum(1) / 2)
BOWL = ad.Potential(bowl)
STEEP = ad.Euler(1.5)  # the bowl's curvature is up to about 5: far too large a step


def rises(values, dtype):
    """How often a value rises by more than rounding: next to the largest, whose terms may cancel."""
    wide, narrow = (8 * torch.finfo(kind).eps * max(map(abs, values)) for kind in (WIDE, dtype))
    bounds = [max(wide, min(narrow, 1e-3 * abs(value))) for value in values[:-1]]
    return sum(b - a > bound for (a, b), bound in zip(pairwise(values), bounds, strict=True))


class Counted(ad.Functional):
    """A functional that remembers how often it was called before, and counts all evaluations."""

    def __init__(self, functional):
        self.functional, self.evaluations = functional, 0

    def begin(self, rho):
        return {"calls": torch.tensor(0)}

    def terms(self, rho, state):
        self.evaluations += 1
        return {self.name: self.functional(rho)}, {"calls": state["calls"] + 1}


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.filterwarnings("ignore")
def test_ordinary_flows_descend(name):
    result = SETUPS[name].run(n=60, n_steps=12)
    assert result.status == "completed"
    assert rises(result.values, result.dataset.x.dtype) == 0
    assert result.values[-1] < 0.9 * result.values[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", SETUPS)
@pytest.mark.filterwarnings("ignore")
def test_ordinary_flows_descend_all_the_way(name):
    if not os.environ.get("ADVECT_DATA") and ("USPS" in name or "Fashion" in name):
        pytest.skip("ADVECT_DATA names no directory of image sets")
    result = SETUPS[name].run(n=150, n_steps=100)
    assert result.status in ("completed", "stalled")
    assert rises(result.values, result.dataset.x.dtype) == 0
    assert rises([result.best.value, result.values[-1]], result.dataset.x.dtype) == 0


class TestBacktracking:
    def test_descends_where_fixed_steps_rise(self):
        options = {"integrator": STEEP, "n_steps": 4, "control": ad.FixedSteps()}
        fixed = ad.flow(SOURCE, BOWL, **options)
        assert fixed.status in ("rose", "diverged") and rises(fixed.values, WIDE)
        held = ad.flow(SOURCE, BOWL, integrator=STEEP, n_steps=60)
        assert held.status == "completed" and rises(held.values, WIDE) == 0
        # at rest: a guarantee, not only a value that falls a little
        assert held.speeds[-1] < 1e-3 * held.speeds[0]

    def test_armijo_ends_oscillation(self):
        """x ← (1 − 1.9999) x falls at every step and gets nowhere; a step that gains too little is made smaller."""
        options = {"integrator": ad.Euler(1.9999), "n_steps": 20}
        assert ad.flow(ONE, SQUARE, **options).values[-1] < 1e-6
        assert ad.flow(ONE, SQUARE, **options, control=ad.FixedSteps()).values[-1] > 0.49

    @pytest.mark.parametrize(("size", "scale"), [(1.979, 1.0), (1.981, 0.5)])
    def test_sizes_of_steps_by_hand(self, size, scale):
        """On x²/2 a step of size s gains 1 − s/2 of what the slope promises, and 0.01 is enough. A rejected step is
        halved; one that is accepted at once lets the size grow by a tenth."""
        walk = states(ONE, SQUARE, 2, integrator=ad.Euler(size))
        controls = [step.snapshot.control for step in walk]
        sizes = [1.0, scale, min(1.0, 1.1 * scale)]
        assert [control["scale"] for control in controls] == pytest.approx(sizes, rel=1e-12)
        assert [control["time"] for control in controls] == pytest.approx([0.0, scale, 2 * scale])
        assert walk[1].dataset.x.item() == pytest.approx(1 - scale * size)

    def test_heun_does_not_rest_where_its_velocities_cancel(self):
        """x ← (1 − z + z²/2) x with z = 2 stays where it is: its way is short and promises nothing, but its first
        velocity does."""
        options = {"integrator": ad.Heun(2.0), "n_steps": 20}
        assert ad.flow(ONE, SQUARE, **options, control=ad.FixedSteps()).values[-1] == 0.5
        assert ad.flow(ONE, SQUARE, **options).values[-1] < 1e-3

    @pytest.mark.slow
    def test_nothing_changes_where_nothing_is_rejected(self):
        """Bit for bit, and at the same number of evaluations."""
        source, target = labeled([20, 10], 2, 1), labeled([10, 20], 2, 2, shift=3.0)
        runs, counts = [], []
        for control in (None, ad.FixedSteps()):
            energy = Counted(ad.OTDD(target))
            runs.append(ad.flow(source, energy, n_steps=15, control=control))
            counts.append(energy.evaluations)
        assert counts == [16, 16] and runs[0].values == runs[1].values
        assert torch.equal(runs[0].dataset.x, runs[1].dataset.x)

    def test_a_rejected_trial_leaves_no_trace(self):
        """The functional's memory counts accepted evaluations only; the walk is that of the steps that were made."""
        energy = Counted(BOWL)
        result = ad.flow(SOURCE, energy, integrator=STEEP, n_steps=8)
        assert energy.evaluations > 9 and int(result.state["calls"]) == 9 == len(result.values)

    def test_steps_grow_back_to_their_size_and_not_beyond(self):
        source = ad.LabeledDataset(torch.full((1, 1), 3.0, dtype=torch.float64), ["a"])
        # steep where it begins, flat where it ends
        quartic = ad.Potential(lambda x, y: x.pow(4).sum(1) / 4)
        walk = list(islice(ad.iterate(source, quartic, integrator=ad.Euler(0.5)), 40))
        scales = [step.snapshot.control["scale"] for step in walk]
        assert min(scales) < 0.5 and scales[-1] == 1.0 == max(scales)
        before, after = (float(step.dataset.x) for step in walk[-2:])
        assert after == pytest.approx(before - 0.5 * before**3, rel=1e-12)

    def test_trials_that_are_not_finite_are_rejected(self):
        source = ad.LabeledDataset(torch.full((1, 1), 2.0, dtype=torch.float64), ["a"])
        barrier = ad.Potential(lambda x, y: (x - x.log()).sum(1))  # NaN below 0
        result = ad.flow(source, barrier, integrator=ad.Euler(8.0), n_steps=30)
        assert result.status == "completed" and abs(result.dataset.x.item() - 1) < 1e-3

    @pytest.mark.parametrize("integrator", [ad.Momentum(0.8), ad.Adam(1.0)])
    def test_memories_restart_at_a_rejection(self, integrator):
        options = {"integrator": integrator, "n_steps": 30}
        assert rises(ad.flow(SOURCE, BOWL, **options).values, WIDE)
        result = ad.flow(SOURCE, BOWL, **options, control=ad.Backtracking())
        assert result.status == "completed" and rises(result.values, WIDE) == 0

    def test_stalled(self):
        """A velocity that points uphill: no step descends."""

        @dataclass(frozen=True)
        class Uphill(ad.FeatureDriven):
            def velocity(self, rho, gradient):
                return {"x": gradient["x"]}

        result = ad.flow(SOURCE, BOWL, dynamics=Uphill(), n_steps=5)
        assert result.status == "stalled" and result.n_steps == 0 and "smaller" in result.message
        assert torch.equal(result.dataset.x, SOURCE.x)


@pytest.mark.parametrize(
    ("options", "controlled"), [({}, True), ({"dynamics": ad.JointFixedLabels()}, True),
    ({"dynamics": ad.FeatureDriven(through_laws=False)}, False), ({"integrator": ad.Momentum(0.1)}, False),
    ({"integrator": ad.EulerMaruyama(0.1)}, False)],
)  # fmt: skip
def test_which_flows_have_their_steps_controlled(options, controlled):
    result = ad.flow(SOURCE, ad.OTDD(labeled([6, 6], 3, 2)), n_steps=1, **options)
    assert isinstance(result.control, ad.Backtracking if controlled else ad.FixedSteps)


def test_an_integrator_of_displace_alone_will_do():
    class Plain(ad.Integrator):
        def displace(self, velocity, state, step, generator):
            return {name: 0.05 * v for name, v in velocity.items()}, state

    runs = (states(SOURCE, BOWL, 5, integrator=each) for each in (Plain(), ad.Euler(0.05)))
    own, expected = (run[-1].dataset.x for run in runs)
    assert torch.equal(own, expected)


@pytest.fixture
def run(tmp_path):
    """A flow that keeps checkpoints of all steps; or resumes from there."""

    def run(n_steps, integrator, functional=BOWL, resume=False):
        options = {"integrator": integrator, "resume": tmp_path if resume else None}
        callbacks = [ad.Checkpoint(tmp_path, every=1)]
        return ad.flow(SOURCE, functional, n_steps=n_steps, callbacks=callbacks, **options)

    return run


class TestResume:
    def test_the_size_of_steps_is_kept(self, run, tmp_path):
        """Interrupted where steps have been made smaller: the rest is bit for bit, in as many evaluations."""
        whole_energy, first, rest = (Counted(BOWL) for _ in range(3))
        whole = run(12, STEEP, whole_energy)
        run(5, STEEP, first)
        assert load_snapshot(tmp_path).control["scale"] < 1
        resumed = run(12, STEEP, rest, resume=True)
        assert resumed.values == whole.values and torch.equal(resumed.dataset.x, whole.dataset.x)
        # the state of the checkpoint, once more
        assert first.evaluations + rest.evaluations == whole_energy.evaluations + 1

    def test_the_best_state_is_kept(self, run, tmp_path):
        integrator = ad.Momentum(0.15)
        whole = run(12, integrator)
        assert whole.status == "rose" and whole.best.index == 8
        assert whole.best.value == min(whole.values) == BOWL(whole.best.dataset).item()
        run(10, integrator)
        assert load_snapshot(tmp_path).index == 10
        resumed = run(12, integrator, resume=True)
        assert resumed.best.index == 8 and torch.equal(resumed.best.dataset.x, whole.best.dataset.x)

    def test_noise_without_a_generator_resumes(self, run):
        """Once: drawn from torch's own generator, whose state no checkpoint held."""
        integrator = ad.EulerMaruyama(0.05)
        torch.manual_seed(3)
        whole = run(6, integrator).dataset.x
        torch.manual_seed(3)
        run(3, integrator)
        torch.manual_seed(99)
        assert torch.equal(run(6, integrator, resume=True).dataset.x, whole)
        assert not torch.equal(run(6, integrator).dataset.x, whole)


def shifted_blobs():
    """Three classes, and the same at another place."""
    source = labeled([20, 20, 20], 2, 0, apart=3.0).to(dtype=torch.float32)
    return source, source.replace(x=source.x + 4)


class TestNearTheTarget:
    """Where little is left of the energy, a fixed tolerance would show values, and follow velocities, of its own error."""

    @staticmethod
    def exact(result, target):
        double = {"dtype": torch.float64}
        solver = ad.Sinkhorn(epsilon=result.state["epsilon"].item())
        return ad.otdd(result.dataset.to(**double), target.to(**double), solver=solver)

    @pytest.mark.slow
    @pytest.mark.parametrize(("step_size", "n_steps"), [(0.1, 50), (0.5, 7)])
    def test_the_value_is_the_energy(self, step_size, n_steps):
        source, target = shifted_blobs()
        result = ad.flow(source, ad.OTDD(target), integrator=ad.Euler(step_size), n_steps=n_steps)
        assert result.values[-1] < 1e-4 * result.values[0]
        assert result.values[-1] == pytest.approx(self.exact(result, target).energy, rel=0.05)

    def test_velocities_are_those_of_the_energy(self):
        source, target = shifted_blobs()
        steps = ad.iterate(source, ad.OTDD(target), integrator=ad.Euler(0.5))
        step = next(step for step in steps if step.index == 5)
        x = step.dataset.x.double().requires_grad_()
        solver = ad.Sinkhorn(epsilon=step.snapshot.functional["epsilon"].item(), tol=1e-12)
        wide = step.dataset.to(dtype=WIDE).replace(x=x)
        ad.otdd(wide, target.to(dtype=WIDE), solver=solver).loss.backward()
        expected = -x.grad / step.dataset.weights[:, None]
        assert float((step.velocity["x"] - expected).norm() / expected.norm()) < 0.05

    @pytest.mark.slow
    def test_a_sharpened_solver_resumes_bit_for_bit(self, tmp_path):
        source, target = shifted_blobs()
        options = {"integrator": ad.Euler(0.4)}
        whole = ad.flow(source, ad.OTDD(target), n_steps=20, **options)
        ad.flow(source, ad.OTDD(target), n_steps=11, callbacks=[ad.Checkpoint(tmp_path)], **options)
        resumed = ad.flow(source, ad.OTDD(target), n_steps=20, resume=tmp_path, **options)
        assert torch.equal(whole.dataset.x, resumed.dataset.x) and whole.values == resumed.values


def test_a_flow_whose_steps_were_cut_says_so():
    """A stiff penalty on one coordinate keeps the other from arriving; a flow at its minimum is silent."""
    stiff = ad.Potential(lambda x, y: 100 * x[:, 1].square() + (x[:, 0] - 9).square() / 2)
    wide = ad.LabeledDataset(torch.ones(4, 2, dtype=WIDE), ["a"] * 4)
    result = ad.flow(wide, stiff, integrator=ad.Euler(0.5), n_steps=12)
    assert result.status == "completed" and result.time < 1.2
    assert "Step control cut the steps to" in str(result.notes[0])
    end = ad.flow(wide, stiff, integrator=ad.Euler(0.5), n_steps=2000)
    assert end.time < 200 and not end.notes
    assert ad.flow(ONE, SQUARE, integrator=ad.Euler(0.1), n_steps=4).time == pytest.approx(4)
