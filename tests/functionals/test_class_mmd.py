"""Classes as points of a discrepancy: against POT's transport in one dimension, closed forms, sums
written out, and finite differences.
"""

import math
from statistics import NormalDist

import numpy as np
import ot as pot
import pytest
import torch
from covering import examples
from flow_cases import first_velocity, labeled, memberships, states
from hypothesis import given, strategies as st

import advect as ad

KERNELS = {
    "riesz": lambda s, h: -s,
    "gaussian": lambda s, h: h * math.exp(-s * s / (2 * h * h)),
}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def pair(weighted=True):
    """Three classes and two, of unequal sizes; those of the second divide 60, those of the first do."""
    return labeled([4, 6, 5], 3, 1, weighted=weighted), labeled(
        [10, 3], 3, 2, shift=2.0, weighted=weighted
    )


def plain_sum(a, b, kernel, width, distance):
    """½ MMD² by loops over pairs of classes."""
    found = 0.0
    for one, other, sign in ((a, a, 0.5), (b, b, 0.5), (a, b, -1.0)):
        for i, w in enumerate(one.class_mass.tolist()):
            for j, v in enumerate(other.class_mass.tolist()):
                found += sign * w * v * KERNELS[kernel](distance(one, i, other, j), width)
    return found


class TestDistances:
    @examples(40)
    @given(
        sizes=st.tuples(st.integers(1, 12), st.integers(1, 12)),
        seed=st.integers(0, 999),
        ties=st.booleans(),
    )
    def test_on_a_line_against_pot(self, sizes, seed, ties):
        """With levels that the sizes divide, to rounding."""
        rng = np.random.default_rng(seed)
        x, y = (rng.normal(size=n).round(0 if ties else 9) + 1e3 for n in sizes)
        a, b = (ad.LabeledDataset(z[:, None], [0] * len(z)) for z in (x, y))
        found = ad.class_mmd(a, b, 1, n_levels=math.lcm(*sizes))
        assert found.energy == pytest.approx(math.sqrt(pot.emd2_1d(x, y)), abs=1e-9)

    def test_weights_on_a_line_against_pot(self):
        a, b = (data.replace(x=data.x[:, :1], sample_shape=(1,)) for data in pair())
        found = ad.class_mmd(a, b, 1, n_levels=6000).class_distances.values
        for i, one in enumerate(map(a.of_class, a.classes)):
            for j, two in enumerate(map(b.of_class, b.classes)):
                numbers = (
                    part.numpy().flatten() for part in (one.x, two.x, one.weights, two.weights)
                )
                assert found[i, j] == pytest.approx(math.sqrt(pot.emd2_1d(*numbers)), rel=2e-3)

    def test_in_space_against_pot(self):
        """Means exactly, and d times the mean cost of centred laws on lines."""
        a, b = (data.of_class(0) for data in pair(False))
        found = ad.class_mmd(a, b, 3000, n_levels=60, generator=generator())
        centred = ((z.x - z.x.mean(0)).numpy() for z in (a, b))
        sliced = pot.sliced_wasserstein_distance(*centred, n_projections=20_000, seed=0)
        means = float((a.x.mean(0) - b.x.mean(0)).square().sum())
        assert found.energy == pytest.approx(math.sqrt(means + 3 * sliced**2), rel=0.01)
        assert found.standard_error < 0.01 * found.energy

    def test_two_gaussians(self):
        """Of N(m, s²) and N(m', s'²): (m − m')² + (s − s')²."""
        steps = [NormalDist().inv_cdf((i + 0.5) / 4000) for i in range(4000)]
        one, two = (
            ad.LabeledDataset(np.array([[m + s * z] for z in steps]), ["c"] * 4000)
            for m, s in ((1.0, 2.0), (4.0, 0.5))
        )
        found = ad.class_mmd(one, two, 1, n_levels=4000)
        assert found.energy == pytest.approx(math.hypot(3.0, 1.5), rel=1e-3)
        assert found.class_distances["c", "c"] == pytest.approx(found.energy, rel=1e-12)


class TestValue:
    @pytest.mark.parametrize("kernel", KERNELS)
    def test_sums_written_out(self, kernel):
        a, b = pair()
        options = {"kernel": kernel, "bandwidth": 1.7, "n_levels": 40}

        def distances(one, other):
            return ad.class_mmd(one, other, 3, **options, generator=generator(3))

        found, tables = distances(a, b), {}
        tables = {
            pair: distances(*pair).class_distances.values for pair in ((a, a), (b, b), (a, b))
        }
        expected = plain_sum(a, b, kernel, 1.7, lambda p, i, q, j: tables[p, q][i, j])
        assert found.energy == pytest.approx(expected, rel=1e-9)
        assert found.value == pytest.approx(math.sqrt(2 * found.energy), rel=1e-12)

    def test_one_class_each_is_their_distance(self):
        """and of a law moved by v, the length of v, for any number of directions"""
        a = ad.LabeledDataset(
            torch.randn(30, 5, generator=generator(), dtype=torch.float64), [0] * 30
        )
        v = torch.tensor([3.0, 0.0, -4.0, 0.0, 0.0], dtype=torch.float64)
        found = ad.class_mmd(a, a.replace(x=a.x + v), 2)
        assert found.energy == pytest.approx(5.0, rel=1e-12)
        assert found.standard_error == pytest.approx(0.0, abs=1e-12)

    @pytest.mark.slow
    @pytest.mark.parametrize("kernel", KERNELS)
    def test_zero_from_itself(self, kernel):
        a, _ = pair()
        assert ad.class_mmd(a, a, 10, kernel=kernel).energy == 0.0
        assert float(ad.ClassMMD(a.replace(x=a.x.clone()), 10, kernel=kernel)(a)) == 0.0
        order = torch.randperm(len(a), generator=generator(2))
        names = torch.tensor([2, 0, 1])
        renamed = a.subset(order).replace(y=names[a.y[order]], classes=("x", "y", "z"))
        assert ad.class_mmd(a, renamed, 10, kernel=kernel).energy == pytest.approx(0, abs=1e-14)

    def test_a_class_under_two_names_is_one_point(self):
        a, b = pair(False)
        twice = ad.LabeledDataset(torch.cat([a.x, a.x]), torch.cat([a.y, a.y + 3]))
        for other in (a, b):
            found = [
                ad.class_mmd(each, other, 20, generator=generator()).energy for each in (a, twice)
            ]
            assert found[0] == pytest.approx(found[1], abs=1e-12)

    @pytest.mark.parametrize("kernel", KERNELS)
    def test_symmetry_triangle_and_scale(self, kernel):
        (a, b), c = pair(), labeled([7, 7, 2, 4], 3, 5, shift=-1.0)
        options = {"kernel": kernel, "bandwidth": 2.0}
        ab, ba, ac, bc = (
            ad.class_mmd(*each, 9, **options, generator=generator()).value
            for each in ((a, b), (b, a), (a, c), (b, c))
        )
        assert ab == pytest.approx(ba, rel=1e-12) and ac <= ab + bc
        once = ad.class_mmd(a, b, 9, kernel=kernel)
        for factor in (1e-8, 1e8):
            found = ad.class_mmd(*(z.replace(x=factor * z.x) for z in (a, b)), 9, kernel=kernel)
            assert found.energy == pytest.approx(factor * once.energy, rel=1e-9)
            width = factor * once.bandwidth
            assert found.bandwidth == pytest.approx(width, nan_ok=True)

    def test_offsets_and_rotations(self):
        a, b = pair()
        turn = torch.linalg.qr(torch.randn(3, 3, generator=generator(8)).double())[0]
        plain, far, turned = (
            ad.class_mmd(*(data.replace(x=move(data.x)) for data in (a, b)), 2000)
            for move in (lambda x: x, lambda x: x + 1e6, lambda x: x @ turn.T)
        )
        assert far.energy == pytest.approx(plain.energy, rel=1e-6)
        error = math.hypot(plain.standard_error, turned.standard_error)
        assert plain.energy == pytest.approx(turned.energy, abs=4 * error)
        assert error < 0.01 * plain.energy

    def test_samples_and_classes_without_mass(self):
        a, b = pair()
        x = torch.cat([a.x, torch.full((1, 3), 1e9, dtype=torch.float64)])
        y = torch.cat([a.y, torch.tensor([3])])
        weights = torch.cat([a.weights, torch.zeros(1).double()])
        more = ad.LabeledDataset(x, y, weights, classes=[0, 1, 2, 3, 4])
        found, before = ad.class_mmd(more, b, 20), ad.class_mmd(a, b, 20)
        assert found.energy == pytest.approx(before.energy, rel=1e-6)
        table = np.asarray(found.class_distances)
        assert np.isnan(table[3:]).all() and np.isfinite(table[:3]).all()

    @pytest.mark.slow
    def test_the_error_is_that_of_other_directions(self):
        """Of whole bases where there are enough; of parts of one it is more than it is."""
        x = torch.randn(40, 6, generator=generator(), dtype=torch.float64)
        a = ad.LabeledDataset(x, [0] * 40)
        b = ad.LabeledDataset(
            x * torch.tensor([4.0, 1, 1, 1, 1, 0.1], dtype=torch.float64), [0] * 40
        )
        for n, low, high in ((60, 0.7, 1.4), (6, 1.0, 10.0)):
            found = [ad.class_mmd(a, b, n, generator=generator(s)) for s in range(40)]
            spread = np.std([each.energy for each in found])
            said = np.mean([each.standard_error for each in found])
            assert low * spread < said < high * spread
        assert math.isnan(ad.class_mmd(a, b, 1).standard_error)

    def test_misuse(self):
        a, b = pair()
        for wrong, message in (
            (lambda: ad.class_mmd(a, labeled([3], 2, 0)), "one feature space"),
            (lambda: ad.class_mmd(a, b, 0), "n_projections"),
            (lambda: ad.class_mmd(a, b, n_levels=0), "n_levels"),
            (lambda: ad.class_mmd([[1.0]], b), "LabeledDataset"),
            (lambda: ad.ClassMMD([[1.0]]), "LabeledDataset"),
            (lambda: ad.ClassMMD(b, kernel="cauchy"), "gaussian"),
            (lambda: ad.ClassMMD(b, bandwidth=-1.0), "bandwidth"),
            (lambda: ad.ClassMMD(ad.LabeledDataset([[0.0]])), "label"),
            (lambda: ad.class_mmd(ad.LabeledDataset(torch.zeros(2, 3)), b), "label"),
        ):
            with pytest.raises(ad.InputError, match=message):
                wrong()


class TestGradient:
    @pytest.mark.parametrize("kernel", KERNELS)
    @pytest.mark.parametrize("weighted", [False, True])
    def test_finite_differences(self, kernel, weighted):
        a, b = pair(weighted)
        energy = ad.ClassMMD(b, 7, kernel=kernel, n_levels=14)
        state = energy.begin(a)

        def value(x):
            return energy.terms(a.replace(x=x), state)[0]["ClassMMD"]

        x = a.x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(value(x), x)
        for seed in range(3):
            direction = torch.randn(x.shape, generator=generator(seed), dtype=torch.float64)
            h = 1e-6
            slope = (value(a.x + h * direction) - value(a.x - h * direction)) / (2 * h)
            assert float((gradient * direction).sum()) == pytest.approx(
                float(slope), rel=1e-5, abs=1e-9
            )

    @pytest.mark.parametrize("kernel", KERNELS)
    def test_where_classes_coincide(self, kernel):
        """Finite, and zero at the target."""
        a, b = pair()
        (found,) = first_velocity(a, ad.ClassMMD(a, 9, kernel=kernel), ad.FeatureDriven()).values()
        assert float(found.abs().max()) < 1e-7
        once = ad.LabeledDataset(torch.cat([b.x[:4], b.x[:4]]), [0] * 4 + [1] * 4)  # twice the same
        (found,) = first_velocity(
            once, ad.ClassMMD(b, 9, kernel=kernel), ad.FeatureDriven()
        ).values()
        assert bool(torch.isfinite(found).all()) and float(found.abs().max()) > 0
        torch.testing.assert_close(found[:4], found[4:])

    def test_a_velocity_is_a_length_of_one(self):
        """One class each, one of them the other moved far away: unit speed to it, whatever the units
        and the weights.
        """
        for scale in (1e-6, 1.0, 1e6):
            a = labeled([9], 4, 0, weighted=True)
            a = a.replace(x=scale * a.x)
            v = scale * torch.tensor([30.0, 0.0, 40.0, 0.0], dtype=torch.float64)
            (found,) = first_velocity(
                a, ad.ClassMMD(a.replace(x=a.x + v), 2), ad.FeatureDriven()
            ).values()
            torch.testing.assert_close(found, (v / v.norm()).expand_as(found))

    def test_single_samples(self):
        """Classes of one sample are points, and the kernel −‖x − y‖: the energy distance."""
        x, y = torch.tensor([[0.0, 0.0], [3.0, 4.0]]).double(), torch.tensor([[0.0, 1.0]]).double()
        a, b = ad.LabeledDataset(x, ["p", "q"]), ad.LabeledDataset(y, ["r"])
        expected = (1 + math.sqrt(18)) / 2 - 5 / 4
        assert float(ad.ClassMMD(b, 3)(a)) == pytest.approx(expected, rel=1e-12)


class TestFlow:
    steps = ad.Momentum(ad.Decay(0.2, 25))

    @pytest.mark.slow
    def test_reaches_another_number_of_classes(self):
        """Each class of three goes to one of two, and samples keep their classes."""
        source = labeled([20, 20, 40], 2, 0)
        target = labeled([30, 30], 2, 1, shift=6.0, apart=5.0)
        result = ad.flow(source, ad.ClassMMD(target, 8), integrator=self.steps, n_steps=120)
        assert torch.equal(result.dataset.y, source.y)
        assert result.values[-1] < 0.03 * result.values[0]
        assert set(ad.ClassMatching.between(result.dataset, target).hard.values()) == {0, 1}

    def test_the_width_is_that_of_the_start(self):
        source, target = pair()
        energy = ad.ClassMMD(target, 5, kernel="gaussian")
        steps = [step.state for step in states(source, energy, 3)]
        assert len({float(state["bandwidth"]) for state in steps}) == 1
        assert [int(state["calls"]) for state in steps] == [1, 2, 3, 4]

    @pytest.mark.parametrize("dynamics", [ad.JointFixedLabels(), ad.JointVariableLabels()])
    def test_joint_dynamics_leave_laws_alone(self, dynamics):
        source, target = pair()
        result = ad.flow(source, ad.ClassMMD(target, 5), dynamics=dynamics, n_steps=2)
        start = dynamics.start(source)
        torch.testing.assert_close(result.dataset.laws().means, start.laws().means)
        assert not torch.equal(result.dataset.x, source.x)


def test_classes_that_are_certain_are_asked_for():
    """Continuous targets have none, and labels with doubt are not taken for certain ones."""
    data = ad.datasets.gaussians(12)
    aimed = ad.LabeledDataset(data.x, targets=data.x[:, 0])
    with pytest.raises(ad.InputError, match="needs classes"):
        ad.class_mmd(aimed, data)
    with pytest.raises(ad.InputError, match=r"data\.hard\(\)"):
        ad.class_mmd(data, data.replace(probabilities=0.7 * memberships(data) + 0.1))
    with pytest.raises(ad.InputError, match="needs classes"):
        ad.class_shares(aimed, data)
