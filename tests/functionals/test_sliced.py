"""Sliced distances against closed forms, exact transport, loops and finite differences."""

import math

import numpy as np
import ot as pot
import pytest
import torch
from covering import examples
from flow_cases import seeded, widening as labeled
from hypothesis import given, strategies as st

import advect as ad
from advect.functionals import SlicedOTDD, sliced, sliced_otdd


class TestOneDimension:
    @examples(40)
    @given(
        sizes=st.tuples(st.integers(1, 30), st.integers(1, 30)),
        seed=st.integers(0, 999),
        weighted=st.booleans(),
        ties=st.booleans(),
    )
    def test_against_pot(self, sizes, seed, weighted, ties):
        """On a line both directions say the same, and without labels it is transport of features."""
        options = {"d": 1, "k": 1, "weighted": weighted}
        a, b = (labeled(n, seed + side, shift=side, **options) for side, n in enumerate(sizes))
        a = a.replace(x=a.x.round()) if ties else a
        arrays = (part.numpy().flatten() for part in (a.x, b.x, a.weights, b.weights))
        found = sliced_otdd(a, b, 3, label_weight=0)
        assert 2 * found.energy == pytest.approx(pot.emd2_1d(*arrays), rel=1e-9, abs=1e-12)

    def test_points_without_mass_are_nowhere_and_weights_of_which_one_is_even(self):
        light, even = np.array([0.0] * 4 + [1.0] * 5), np.arange(1.0, 4)
        for weights in ((light, light), (even, even[::-1])):
            sides = (labeled(len(w), seed, d=1, k=1) for seed, w in enumerate(weights))
            a, b = (data.replace(weights=w) for data, w in zip(sides, weights, strict=True))
            arrays = (part.numpy().flatten() for part in (a.x, b.x, a.weights, b.weights))
            far = a.replace(x=torch.where(a.weights[:, None] > 0, a.x, 1e9))
            found = sliced_otdd(far, b, 3, label_weight=0)
            assert 2 * found.energy == pytest.approx(pot.emd2_1d(*arrays), rel=1e-9)


class TestValue:
    @pytest.mark.parametrize("weight", [0.0, 1.0, 4.0])
    def test_a_translation_is_exact(self, weight):
        """Samples move by |v|, label laws too: |v| √(1 + w). The control variate is all of it."""
        a = labeled(90, d=4)
        v = torch.tensor([3.0, 0.0, -4.0, 1.0], dtype=torch.float64)
        found = sliced_otdd(a, a.replace(x=a.x + v), 60, label_weight=weight, generator=seeded())
        assert found.value == pytest.approx(float(v.norm()) * math.sqrt(1 + weight), rel=1e-9)
        assert found.standard_error < 1e-9

    @pytest.mark.parametrize("weighted", [False, True])
    def test_against_loops(self, weighted):
        """The definition, line by line and sample by sample, without the control variate."""
        a, b = labeled(9, weighted=weighted), labeled(7, 3, k=2, shift=0.5, weighted=weighted)
        energy = float(sliced._Slices(6, 2.5).energies(a, b, seeded(2)).mean())
        draw = seeded(2)
        theta, psi = (torch.randn(3, 6, generator=draw, dtype=torch.float64) for _ in range(2))
        theta, psi = (part / part.norm(dim=0) for part in (theta, psi))
        total = 0.0
        for line in range(6):
            images = []
            for data in (a, b):
                z = (data.x @ theta[:, line]).numpy()
                image = []
                for i in range(len(z)):
                    mass = (data.y == data.y[i]).numpy() * data.weights.numpy()
                    mass = mass / mass.sum()
                    mean = (mass * z).sum()
                    variance = (mass * (z - mean) ** 2).sum() / (1 - (mass**2).sum())  # unbiased
                    deviation = math.sqrt(variance)
                    point = np.array([z[i], math.sqrt(2.5) * mean, math.sqrt(2.5) * deviation])
                    image.append(psi[:, line].numpy() @ point)
                images.append(np.array(image))
            total += pot.emd2_1d(*images, a.weights.numpy(), b.weights.numpy())
        assert energy == pytest.approx(3 * 3 * total / 6 / 2, rel=1e-10)

    @pytest.mark.slow
    @pytest.mark.parametrize(("n", "m", "weighted"), [(60, 60, False), (70, 45, True)])
    @pytest.mark.parametrize("weight", [0.0, 1.0])
    def test_at_most_the_exact_distance(self, n, m, weighted, weight):
        for seed in range(3):
            a = labeled(n, seed, weighted=weighted)
            b = labeled(m, seed + 9, shift=1.0, k=2, weighted=weighted)
            exact = ad.otdd(a, b, cost=ad.GroundCost(label_weight=weight), solver=ad.ExactOT())
            distance = sliced_otdd(a, b, 4000, label_weight=weight, generator=seeded(seed))
            assert 0.3 * exact.energy < distance.energy < exact.energy + 3 * distance.standard_error

    def test_zero_from_itself_in_any_order(self):
        a = labeled(50, weighted=True)
        order = torch.randperm(50, generator=seeded())
        for other in (a, a.subset(order)):
            assert sliced_otdd(a, other, 20).energy == pytest.approx(0, abs=1e-12)

    def test_sees_labels_where_features_agree(self):
        """The same points with labels that split them another way."""
        x = torch.randn(200, 2, generator=seeded(), dtype=torch.float64)
        a, b = (ad.LabeledDataset(x, (x[:, axis] > 0).long()) for axis in (0, 1))
        assert sliced_otdd(a, b, 50, label_weight=0).energy == pytest.approx(0, abs=1e-20)
        assert sliced_otdd(a, b, 50).energy > 0.05

    def test_groups_of_projections_do_not_matter(self, monkeypatch):
        a, b = labeled(50, weighted=True), labeled(41, 3)
        whole = sliced_otdd(a, b, 30, generator=seeded())
        monkeypatch.setattr(sliced, "ENTRIES", 300)
        parts = sliced_otdd(a, b, 30, generator=seeded())
        assert parts.energy == pytest.approx(whole.energy, rel=1e-12)

    def test_misuse(self):
        huge = [data.replace(x=1e200 * data.x) for data in (labeled(9), labeled(9, 1))]
        for call, keyword in {
            lambda: sliced_otdd(labeled(9), labeled(9, d=2)): "one feature space",
            lambda: sliced_otdd(labeled(9), labeled(9), 0): "n_projections",
            lambda: sliced_otdd(*[ad.LabeledDataset([[0.0]])] * 2): "needs a label",
            lambda: SlicedOTDD([[1.0]]): "LabeledDataset",
            lambda: sliced_otdd(*huge): "pooled",
        }.items():
            with pytest.raises(ad.InputError, match=keyword):
                call()


@pytest.mark.parametrize("own_laws", [False, True])
def test_the_control_variate_is_unbiased_and_less_noisy(own_laws):
    a, b = labeled(12), labeled(15, 1, shift=1.0)
    a = a.replace(law=labeled(30, 5).laws()) if own_laws else a
    lines = sliced._Slices(40_000, 2.0)
    plain = lines.energies(a, b, seeded())
    better = lines.energies(a, b, seeded(), reduce_noise=True)
    gap = better - plain
    assert abs(float(gap.mean())) < 4 * float(gap.std()) / 200
    assert float(better.var()) < 0.5 * float(plain.var())


class TestGradient:
    DYNAMICS = ad.FeatureDriven(), ad.JointFixedLabels(), ad.JointFixedLabels(laws="diagonal")

    @pytest.mark.parametrize("how", DYNAMICS, ids=repr)
    @pytest.mark.parametrize("sizes", [(24, 24, False), (24, 31, True)], ids=["even", "uneven"])
    def test_finite_differences(self, how, sizes, monkeypatch):
        n, m, weighted = sizes
        rho, target = labeled(n, weighted=weighted), labeled(m, 4, shift=1.0, weighted=weighted)
        monkeypatch.setattr(sliced, "ENTRIES", 6 * (n + m))  # several groups
        rho = how.start(rho)
        energy = SlicedOTDD(target, 20)

        def value(parameters):
            return energy(how.attach(rho, parameters))

        leaves = {name: part.clone().requires_grad_() for name, part in how.parameters(rho).items()}
        gradients = torch.autograd.grad(value(leaves), list(leaves.values()))
        for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True):
            direction = torch.randn(leaf.shape, generator=seeded(7), dtype=torch.float64)
            if name == "covariance" and leaf.ndim == 3:
                direction = (direction + direction.mT) / 2
            places = ((leaf + step * direction).detach() for step in (1e-6, -1e-6))
            plus, minus = (value({**leaves, name: place}).item() for place in places)
            slope = (plus - minus) / 2e-6
            got = float((gradient * direction).sum())
            assert got == pytest.approx(slope, rel=1e-4, abs=1e-7), name

    def test_fixed_laws_give_the_gradient_of_features_alone(self):
        """With the laws held, features feel ψ_0 alone: the same as giving the laws explicitly."""
        rho, target = labeled(24), labeled(24, 4, shift=1.0)
        x = rho.x.clone().requires_grad_()
        energy = SlicedOTDD(target, 20)
        (fixed,) = torch.autograd.grad(energy(rho.replace(x=x, fixed_laws=True)), x)
        (given,) = torch.autograd.grad(energy(rho.replace(x=x, law=rho.laws())), x)
        torch.testing.assert_close(fixed, given, atol=1e-10, rtol=1e-8)

    def test_one_dimension_moves_by_sorting(self):
        """½ W₂² in one dimension: the velocity is the way to the partner in the other order."""
        a, b = labeled(30, d=1), labeled(30, 5, d=1, shift=3.0)
        x = a.x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(SlicedOTDD(b, 4, label_weight=0)(a.replace(x=x)), x)
        partner = torch.empty_like(a.x)
        partner[a.x[:, 0].argsort()] = b.x[b.x[:, 0].argsort()]
        torch.testing.assert_close(-30 * gradient, partner - a.x)


class TestFlow:
    def test_resumes_bit_for_bit(self, tmp_path):
        source, target = labeled(40), labeled(35, 6, shift=3.0)
        energy = SlicedOTDD(target, 10)
        whole = ad.flow(source, energy, n_steps=4)
        ad.flow(source, energy, n_steps=2, callbacks=[ad.Checkpoint(tmp_path, every=1)])
        again = ad.flow(source, energy, n_steps=4, resume=tmp_path)
        assert torch.equal(again.dataset.x, whole.dataset.x)
