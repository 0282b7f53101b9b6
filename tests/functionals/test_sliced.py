"""The sliced distance against closed forms in one dimension, exact transport and finite
differences.
"""

import math

import numpy as np
import ot as pot
import pytest
import torch
from covering import examples
from hypothesis import given, strategies as st

import advect as ad
from advect.functionals import SlicedOTDD, sliced_otdd, slicing
from advect.functionals.sliced import wasserstein_1d


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def labeled(n, seed=0, d=3, k=3, shift=0.0, weighted=False):
    y = torch.arange(n) % k
    x = (
        torch.randn(n, d, generator=generator(seed), dtype=torch.float64) * (1 + y[:, None]) / 2
        + 2 * y[:, None]
        + shift
    )
    weights = (
        torch.rand(n, generator=generator(seed + 50), dtype=torch.float64) + 0.1
        if weighted
        else None
    )
    return ad.LabeledDataset(x, y, weights=weights)


class TestOneDimension:
    @examples(40)
    @given(
        n=st.integers(1, 30),
        m=st.integers(1, 30),
        seed=st.integers(0, 999),
        weighted=st.booleans(),
        ties=st.booleans(),
    )
    def test_against_pot(self, n, m, seed, weighted, ties):
        x, y = (
            torch.randn(4, n, generator=generator(seed), dtype=torch.float64),
            torch.rand(4, m, generator=generator(seed + 1)),
        )
        x, y = (x.round() if ties else x), y.double() * 3
        a, b = (
            torch.rand(size, generator=generator(seed + size), dtype=torch.float64) + 0.01
            if weighted
            else torch.ones(size, dtype=torch.float64)
            for size in (n, m)
        )
        a, b = a / a.sum(), b / b.sum()
        expected = [
            pot.emd2_1d(row.numpy(), col.numpy(), a.numpy(), b.numpy())
            for row, col in zip(x, y, strict=True)
        ]
        np.testing.assert_allclose(wasserstein_1d(x, y, a, b), expected, rtol=1e-9, atol=1e-12)

    def test_features_alone_are_exact_in_one_dimension(self):
        a, b = labeled(80, d=1, weighted=True), labeled(60, 1, d=1, shift=1.5, weighted=True)
        exact = ad.otdd(a, b, cost=ad.GroundCost(label=ad.NoLabels()), solver=ad.ExactOT())
        distance = sliced_otdd(a, b, 3, label_weight=0)
        assert distance.value == pytest.approx(exact.value, rel=1e-9)
        assert distance.standard_error == pytest.approx(
            0, abs=1e-12
        )  # both directions of a line say the same


class TestValue:
    @pytest.mark.slow
    @pytest.mark.parametrize("weight", [0.0, 1.0, 4.0])
    def test_a_translation(self, weight):
        """Samples move by |v|, label laws too: |v| √(1 + w), the exact distance."""
        a = labeled(90, d=4)
        v = torch.tensor([3.0, 0.0, -4.0, 1.0], dtype=torch.float64)
        distance = sliced_otdd(
            a,
            a.replace(x=a.x + v),
            20_000,
            label_weight=weight,
            control=False,
            generator=generator(1),
        )
        expected = float(v.norm()) * math.sqrt(1 + weight)
        spread = (
            distance.standard_error / distance.value
        )  # of the value: half its relative error, times the value
        assert distance.value == pytest.approx(expected, abs=4 * spread)
        assert spread < 0.02 * expected

    @pytest.mark.slow
    @pytest.mark.parametrize(("n", "m", "weighted"), [(60, 60, False), (70, 45, True)])
    @pytest.mark.parametrize("weight", [0.0, 1.0])
    def test_at_most_the_exact_distance(self, n, m, weighted, weight):
        for seed in range(3):
            a, b = (
                labeled(n, seed, weighted=weighted),
                labeled(m, seed + 9, shift=1.0, k=2, weighted=weighted),
            )
            exact = ad.otdd(a, b, cost=ad.GroundCost(label_weight=weight), solver=ad.ExactOT())
            distance = sliced_otdd(a, b, 4000, label_weight=weight, generator=generator(seed))
            assert 0.3 * exact.energy < distance.energy < exact.energy + 3 * distance.standard_error

    def test_zero_from_itself_in_any_order(self):
        a = labeled(50, weighted=True)
        order = torch.randperm(50, generator=generator())
        for other in (a, a.subset(order)):
            assert sliced_otdd(a, other, 20).energy == pytest.approx(
                0, abs=1e-12
            )  # masses add up to rounding

    def test_symmetric(self):
        a, b = labeled(50, weighted=True), labeled(41, 3)
        there, back = (sliced_otdd(*pair, 50, generator=generator()) for pair in ((a, b), (b, a)))
        assert there.energy == pytest.approx(back.energy, rel=1e-12)

    def test_sees_labels_where_features_agree(self):
        """The same points with labels that split them another way."""
        x = torch.randn(200, 2, generator=generator(), dtype=torch.float64)
        a, b = (
            ad.LabeledDataset(x, (x[:, 0] > 0).long()),
            ad.LabeledDataset(x, (x[:, 1] > 0).long()),
        )
        assert sliced_otdd(a, b, 50, label_weight=0).energy == pytest.approx(0, abs=1e-20)
        assert sliced_otdd(a, b, 50).energy > 0.05

    def test_groups_of_projections_do_not_matter(self, monkeypatch):
        a, b = labeled(50, weighted=True), labeled(41, 3)
        whole = sliced_otdd(a, b, 30, generator=generator())
        monkeypatch.setattr(slicing, "ENTRIES", 300)
        assert sliced_otdd(a, b, 30, generator=generator()).energy == pytest.approx(
            whole.energy, rel=1e-12
        )

    def test_misuse(self):
        with pytest.raises(ad.InputError, match="one feature space"):
            sliced_otdd(labeled(9), labeled(9, d=2))
        with pytest.raises(ad.InputError, match="n_projections"):
            sliced_otdd(labeled(9), labeled(9), 0)
        with pytest.raises(ad.InputError, match="needs a label"):
            sliced_otdd(ad.LabeledDataset([[0.0]]), ad.LabeledDataset([[1.0]]))
        with pytest.raises(ad.InputError, match="LabeledDataset"):
            SlicedOTDD([[1.0]])


class TestGradient:
    @pytest.mark.parametrize("dynamics", ["fd", "fd-through", "jd-fl", "jd-diagonal"])
    @pytest.mark.parametrize("sizes", [(24, 24, False), (24, 31, True)], ids=["even", "uneven"])
    def test_finite_differences(self, dynamics, sizes, monkeypatch):
        n, m, weighted = sizes
        rho, target = labeled(n, weighted=weighted), labeled(m, 4, shift=1.0, weighted=weighted)
        monkeypatch.setattr(slicing, "ENTRIES", 6 * (n + m))  # several groups
        how = {
            "fd": ad.FeatureDriven(),
            "fd-through": ad.FeatureDriven(through_laws=True),
            "jd-fl": ad.JointFixedLabels(),
            "jd-diagonal": ad.JointFixedLabels(laws=ad.DiagonalMotion()),
        }[dynamics]
        rho = how.start(rho)
        energy = SlicedOTDD(target, 20)

        def value(parameters):
            return energy(how.attach(rho, parameters))

        leaves = {name: part.clone().requires_grad_() for name, part in how.parameters(rho).items()}
        gradients = torch.autograd.grad(value(leaves), list(leaves.values()))
        for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True):
            direction = torch.randn(leaf.shape, generator=generator(7), dtype=torch.float64)
            if name == "covariance" and leaf.ndim == 3:
                direction = (direction + direction.mT) / 2
            h = 1e-6
            moved = [
                value({**leaves, name: (leaf + s * h * direction).detach()}).item() for s in (1, -1)
            ]
            slope = (moved[0] - moved[1]) / (2 * h)
            if (
                dynamics == "fd"
            ):  # label laws do not move with the features there: differences would see them
                continue
            assert float((gradient * direction).sum()) == pytest.approx(
                slope, rel=1e-4, abs=1e-7
            ), name

    def test_fixed_laws_give_the_gradient_of_features_alone(self):
        """With the laws held, features feel ψ_0 alone: the same as giving the laws explicitly."""
        rho, target = labeled(24), labeled(24, 4, shift=1.0)
        x = rho.x.clone().requires_grad_()
        energy = SlicedOTDD(target, 20)
        (fixed,) = torch.autograd.grad(energy(rho.replace(x=x, fixed_laws=True)), x)
        (given,) = torch.autograd.grad(energy(rho.replace(x=x, law=rho.moments())), x)
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
    def test_reaches_the_target(self):
        source, target = labeled(90), labeled(90, 6, shift=3.0)
        result = ad.flow(source, SlicedOTDD(target, 60), integrator=ad.Euler(0.5), n_steps=60)
        assert ad.otdd(result.dataset, target).value < 0.15 * ad.otdd(source, target).value

    def test_resumes_bit_for_bit(self, tmp_path):
        source, target = labeled(40), labeled(35, 6, shift=3.0)
        whole = ad.flow(source, SlicedOTDD(target, 10), n_steps=4)
        ad.flow(
            source,
            SlicedOTDD(target, 10),
            n_steps=2,
            callbacks=[ad.Checkpoint(tmp_path / "run", every=1)],
        )
        again = ad.flow(source, SlicedOTDD(target, 10), n_steps=4, resume=tmp_path / "run")
        assert torch.equal(again.dataset.x, whole.dataset.x)

    def test_float32_stays(self):
        source, target = (data.to(dtype=torch.float32) for data in (labeled(40), labeled(35, 6)))
        assert ad.flow(source, SlicedOTDD(target, 10), n_steps=2).dataset.x.dtype == torch.float32
