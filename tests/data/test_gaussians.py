"""Label laws: estimates against numpy, Bures against matrix roots, gradients against
differences.
"""

import numpy as np
import oracles
import pytest
import torch
from covering import examples
from hypothesis import given, strategies as st

from advect import Gaussians, InputError, LabeledDataset, bures
from advect.data.laws import Diagonal, Factored, Full, estimate_gaussians
from advect.data.laws.linalg import symmetric_root
from advect.data.laws.wasserstein import nuclear_norms, polar_factor


def random_laws(k, d, rank=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    factors = torch.randn(k, rank or 2 * d, d, generator=generator, dtype=torch.float64) / d**0.5
    return torch.randn(k, d, generator=generator, dtype=torch.float64), factors


def as_full(means, factors):
    return Gaussians(means, Full(factors.mT @ factors))


def as_factored(means, factors):
    return Gaussians(
        means, Factored(factors.reshape(-1, factors.shape[-1]), (factors.shape[1],) * len(factors))
    )


class TestBures:
    @pytest.mark.parametrize("make", [as_full, as_factored])
    @pytest.mark.parametrize("d", [1, 2, 7, 30])
    def test_against_matrix_roots_full_rank(self, make, d):
        (means_a, factors_a), (means_b, factors_b) = random_laws(3, d), random_laws(4, d, seed=1)
        got = bures(make(means_a, factors_a), make(means_b, factors_b))
        for i in range(3):
            for j in range(4):
                covariances = [(f[k].T @ f[k]).numpy() for f, k in ((factors_a, i), (factors_b, j))]
                expected = oracles.bures_by_roots(
                    means_a[i].numpy(), covariances[0], means_b[j].numpy(), covariances[1]
                )
                assert float(got[i, j]) == pytest.approx(expected, abs=1e-10 * max(1, expected))

    def test_fewer_samples_than_dimensions(self):
        """Projecting both laws to the joint span of their factors changes nothing, and makes the
        textbook formula apply.
        """
        (means_a, factors_a), (means_b, factors_b) = (
            random_laws(1, 40, 6),
            random_laws(1, 40, 9, seed=1),
        )
        basis = torch.linalg.qr(torch.cat([factors_a[0], factors_b[0], means_a, means_b]).T)[0]
        small = [(z @ basis).numpy() for z in (means_a[0], factors_a[0], means_b[0], factors_b[0])]
        jitter = 1e-14 * np.eye(17)
        expected = oracles.bures_by_roots(
            small[0], small[1].T @ small[1] + jitter, small[2], small[3].T @ small[3] + jitter
        )
        got = float(bures(as_factored(means_a, factors_a), as_factored(means_b, factors_b)))
        assert got == pytest.approx(
            expected, rel=1e-6
        )  # the roots of the singular matrices are the less exact side
        assert got == pytest.approx(
            float(bures(as_full(means_a, factors_a), as_full(means_b, factors_b))), rel=1e-6
        )

    def test_commuting_laws_in_closed_form(self):
        deviations_a, deviations_b = (
            torch.rand(2, 5, dtype=torch.float64),
            torch.rand(3, 5, dtype=torch.float64),
        )
        means_a, means_b = (
            torch.randn(2, 5, dtype=torch.float64),
            torch.randn(3, 5, dtype=torch.float64),
        )
        expected = (means_a[:, None] - means_b).square().sum(-1) + (
            deviations_a[:, None] - deviations_b
        ).square().sum(-1)
        kinds = [
            Diagonal,
            lambda s: Full(torch.diag_embed(s**2)),
            lambda s: Factored(torch.diag_embed(s).reshape(-1, 5), (5,) * len(s)),
        ]
        for kind_a in kinds:
            for kind_b in kinds:
                got = bures(
                    Gaussians(means_a, kind_a(deviations_a)),
                    Gaussians(means_b, kind_b(deviations_b)),
                )
                torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)

    def test_distance_to_a_point_mass(self):
        means, factors = random_laws(2, 6)
        point = Gaussians(
            torch.zeros(1, 6, dtype=torch.float64), Full(torch.zeros(1, 6, 6, dtype=torch.float64))
        )
        expected = means.square().sum(1) + factors.square().sum((1, 2))
        torch.testing.assert_close(bures(as_full(means, factors), point)[:, 0], expected)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_zero_against_a_shuffled_copy(self, dtype):
        """A law and the same law from rows in another order: zero far below rounding of the
        squares.
        """
        x = torch.randn(40, 100, dtype=dtype) * torch.logspace(0, -6, 100, dtype=dtype)
        a = LabeledDataset(x, [0] * 40).laws()
        b = LabeledDataset(x[torch.randperm(40)], [0] * 40).laws()
        assert float(bures(a, b)) <= 1e-12 * float(a.covariance.traces())

    def test_different_spaces(self):
        with pytest.raises(InputError, match="dimensions 2 and 3"):
            bures(as_full(*random_laws(1, 2)), as_full(*random_laws(1, 3)))


class TestGradients:
    @pytest.mark.parametrize("which", ["means", "matrices"])
    def test_full_laws(self, which):
        (means, factors), other = random_laws(2, 4), as_full(*random_laws(3, 4, seed=1))
        weights = torch.rand(2, 3, dtype=torch.float64)
        leaf = (means if which == "means" else factors.mT @ factors).clone().requires_grad_()

        def value(t):
            symmetric = t if which == "means" else (t + t.mT) / 2
            law = (
                Gaussians(symmetric, Full(factors.mT @ factors))
                if which == "means"
                else Gaussians(means, Full(symmetric))
            )
            return (weights * bures(law, other)).sum()

        value(leaf).backward()
        torch.testing.assert_close(
            leaf.grad, oracles.central_differences(value, leaf.detach()), atol=1e-6, rtol=1e-6
        )

    @pytest.mark.slow
    @pytest.mark.parametrize(("rank_a", "rank_b", "d"), [(5, 7, 20), (30, 6, 8), (4, 4, 4)])
    def test_factored_laws_on_both_sides(self, rank_a, rank_b, d):
        (means_a, a), (means_b, b) = random_laws(2, d, rank_a), random_laws(2, d, rank_b, seed=1)
        weights = torch.rand(2, 2, dtype=torch.float64)
        for side in (0, 1):
            leaf = (a, b)[side].clone().requires_grad_()

            def value(t, side=side):
                return (
                    weights
                    * bures(
                        as_factored(means_a, t if side == 0 else a),
                        as_factored(means_b, t if side else b),
                    )
                ).sum()

            value(leaf).backward()
            torch.testing.assert_close(
                leaf.grad, oracles.central_differences(value, leaf.detach()), atol=1e-6, rtol=1e-6
            )

    @pytest.mark.slow
    def test_within_one_set_of_laws(self):
        means, factors = random_laws(3, 5, 4)
        weights = torch.rand(3, 3, dtype=torch.float64)
        leaf = factors.clone().requires_grad_()

        def value(t):
            law = as_factored(means, t)
            return (weights * bures(law, law)).sum()

        value(leaf).backward()
        torch.testing.assert_close(
            leaf.grad, oracles.central_differences(value, leaf.detach()), atol=1e-6, rtol=1e-6
        )

    def test_singular_laws_stay_finite(self):
        singular = torch.zeros(1, 3, 3, dtype=torch.float64, requires_grad=True)
        law = Gaussians(torch.zeros(1, 3, dtype=torch.float64), Full(singular))
        bures(law, as_full(*random_laws(2, 3))).sum().backward()
        assert bool(torch.isfinite(singular.grad).all())


class TestEstimates:
    @examples(40)
    @given(
        n=st.integers(2, 30),
        d=st.integers(1, 12),
        seed=st.integers(0, 10**6),
        offset=st.sampled_from([0.0, 1e3]),
    )
    def test_against_numpy(self, n, d, seed, offset):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(2 * n, d, generator=generator, dtype=torch.float64) + offset
        y = torch.arange(2 * n) % 2
        laws = LabeledDataset(x, y).laws()
        for code in (0, 1):
            part = x[y == code].numpy()
            # a mean near 0 is a sum that cancels: either is right to rounding of what was summed
            rounding = 8 * np.finfo(np.float64).eps * np.abs(part).max()
            np.testing.assert_allclose(laws.means[code], part.mean(0), rtol=1e-12, atol=rounding)
            np.testing.assert_allclose(
                laws.covariances()[code], np.cov(part, rowvar=False).reshape(d, d), atol=1e-9
            )

    def test_weighted_against_numpy(self):
        x, w = torch.randn(20, 3, dtype=torch.float64), torch.rand(20, dtype=torch.float64)
        got = LabeledDataset(x, [0] * 20, weights=w).laws().covariances()[0]
        np.testing.assert_allclose(
            got, np.cov(x.numpy(), rowvar=False, aweights=w.numpy()), rtol=1e-9
        )

    def test_continuous_in_the_weights(self):
        # Once: with unequal weights equal rows were one sample, and a change of 1e-3 in one weight
        # moved variances by 50 %.
        x = torch.tensor([[0.0], [0.0], [0.0], [1.0]], dtype=torch.float64)
        weights = torch.ones(4, dtype=torch.float64)
        nudged = torch.tensor([1.0, 1.0, 1.0, 1.001], dtype=torch.float64)
        before, after = (
            LabeledDataset(x, [0] * 4, weights=w).laws().covariances().item()
            for w in (weights, nudged)
        )
        assert after == pytest.approx(before, rel=1e-3)

    def test_a_row_listed_twice_is_two_samples(self):
        """Of half the weight each: the scatter is the same, the freedom 1 − Σ p² is larger."""
        x = torch.randn(10, 4, dtype=torch.float64)
        one, two = LabeledDataset(x, [0] * 10), LabeledDataset(torch.cat([x, x]), [0] * 20)
        expected = one.laws().covariances() * (1 - 1 / 10) / (1 - 1 / 20)
        torch.testing.assert_close(two.laws().covariances(), expected, rtol=1e-12, atol=0)

    @pytest.mark.parametrize("share", [0.001, 0.1, 0.5])
    def test_equal_samples_of_equal_weight_all_count(self, share):
        # Once: n − 1 counted distinct points, and a column of few values had many times its
        # variance.
        x = torch.zeros(1000, 2, dtype=torch.float64)
        x[: round(1000 * share), 0] = 1
        x[:5, 1] = torch.arange(5.0, dtype=torch.float64)
        got = LabeledDataset(x, [0] * 1000).laws().covariances()[0]
        np.testing.assert_allclose(got, np.cov(x.numpy(), rowvar=False), rtol=1e-9, atol=1e-12)

    @pytest.mark.parametrize("offset", [0.0, 10.0, 1000.0, 1e5])
    @pytest.mark.parametrize(
        ("shape", "uniform"),
        [((300, 1), True), ((1000, 1), True), ((2000, 1), False), ((500, 2), True)],
    )
    def test_far_from_the_origin_against_numpy(self, shape, uniform, offset):
        # Once: means were rounded to float32, and samples within 64 roundings of x of the next one
        # were one.
        generator = torch.Generator().manual_seed(2)
        x = offset + (
            torch.rand(shape, generator=generator)
            if uniform
            else torch.randn(shape, generator=generator)
        )
        weights = 1 + 0.01 * (torch.arange(len(x)) % 2).double()
        laws = LabeledDataset(x, [0] * len(x), weights=weights).laws()
        centred = x.double().numpy() - offset
        expected = np.cov(centred, rowvar=False, aweights=weights.numpy()).reshape(
            laws.covariances()[0].shape
        )
        np.testing.assert_allclose(
            laws.covariances()[0], expected, rtol=0, atol=1e-10 * expected.max()
        )
        middle = np.average(centred, axis=0, weights=weights.numpy())
        np.testing.assert_allclose(laws.means[0] - offset, middle, rtol=0, atol=1e-10)

    def test_degenerate_classes_have_zero_covariance(self):
        data = LabeledDataset(
            [[1.0, 2.0], [3.0, 4.0], [3.0, 4.0]], ["single", "coinciding", "coinciding"]
        )
        assert float(data.laws().covariances().abs().max()) == 0
        many = LabeledDataset(torch.full((20, 3), 0.1), [0] * 20, weights=torch.rand(20)).laws()
        assert float(many.covariances().abs().max()) == 0  # once 5e-32, whose roots are directions
        with_empty = LabeledDataset([[1.0, 2.0]], ["a"], classes=["a", "b"]).laws()
        assert with_empty.means[1].tolist() == [0.0, 0.0]

    def test_class_without_mass(self):
        data = LabeledDataset([[1.0], [3.0], [9.0]], ["a", "a", "b"], weights=[0.0, 0.0, 1.0])
        assert data.laws().means.flatten().tolist() == [2.0, 9.0]


class TestLinearAlgebra:
    def test_root_squares_back(self):
        _, factors = random_laws(3, 6, rank=4)
        covariances = factors.mT @ factors
        roots = symmetric_root(covariances)
        torch.testing.assert_close(roots @ roots, covariances, atol=1e-12, rtol=0)

    @examples(40)
    @given(
        n=st.integers(1, 12),
        m=st.integers(1, 12),
        rank=st.integers(0, 12),
        seed=st.integers(0, 10**6),
    )
    def test_polar_factor_and_norm_against_svd(self, n, m, rank, seed):
        generator = torch.Generator().manual_seed(seed)
        left, right = (
            torch.randn(k, rank, generator=generator, dtype=torch.float64) for k in (n, m)
        )
        matrix = left @ right.T
        expected = float(torch.linalg.svdvals(matrix).sum())
        factor = polar_factor(matrix)
        assert float((factor * matrix).sum()) == pytest.approx(expected, rel=1e-9, abs=1e-13)
        assert float(torch.linalg.matrix_norm(factor, 2)) <= 1 + 1e-7
        if rank:
            assert float(
                nuclear_norms(Factored(left, (n,)), Factored(right, (m,)))
            ) == pytest.approx(expected, rel=1e-12, abs=1e-13)

    def test_small_singular_values_keep_their_precision(self):
        u, v = (torch.linalg.qr(torch.randn(30, 30, dtype=torch.float64))[0] for _ in range(2))
        singular = torch.logspace(0, -14, 30, dtype=torch.float64)
        assert float(
            nuclear_norms(Factored(u * singular, (30,)), Factored(v, (30,))) - singular.sum()
        ) == pytest.approx(0, abs=3e-14)

    @pytest.mark.parametrize("n", [0, 5, 20])
    def test_blank_and_empty_classes_have_gradients(self, n):
        # Once: IndexError, a class of 16 blank samples or more had no rows left, and the batch of
        # small ones no columns.
        x = torch.zeros(n, 40, dtype=torch.float64, requires_grad=True)
        blank = estimate_gaussians(x, torch.zeros(n, dtype=torch.int64), torch.ones(n), 1)
        other = LabeledDataset(
            torch.randn(16, 40, dtype=torch.float64, requires_grad=True), [0] * 16
        )
        distances = bures(blank, other.laws())
        (gradient,) = torch.autograd.grad(distances.sum(), other.x)
        assert bool(torch.isfinite(gradient).all())
        spread = distances[0, 0] - other.x.mean(dim=0).square().sum()
        assert spread.item() == pytest.approx(other.laws().covariance.traces().item())

    def test_empty_blocks(self):
        a = torch.randn(3, 4, dtype=torch.float64)
        norms = nuclear_norms(Factored(a, (0, 3)), Factored(a[:2].clone(), (2, 0)))
        assert (
            norms[0].tolist() == [0.0, 0.0] and float(norms[1, 1]) == 0 and float(norms[1, 0]) > 0
        )


def test_shapes_are_checked():
    with pytest.raises(InputError, match=r"\(k, d, d\)"):
        Full(torch.zeros(2, 3, 4))
    with pytest.raises(InputError, match="sizes summing to 3"):
        Factored(torch.zeros(2, 3), (1, 2))
    with pytest.raises(InputError, match="one mean and one covariance"):
        Gaussians(torch.zeros(2, 3), Diagonal(torch.ones(1, 3)))
    with pytest.raises(InputError, match="finite"):
        Gaussians(torch.full((1, 3), torch.nan), Diagonal(torch.ones(1, 3)))
