"""Label laws: estimates against numpy, Bures against matrix roots, gradients against differences."""

from fractions import Fraction
from itertools import product

import numpy as np
import oracles
import pytest
import torch
from covering import examples
from hypothesis import given, strategies as st

import advect as ad
from advect.data.laws import Diagonal, Factored, Full, centred, symmetric_root


def random_laws(k, d, rank=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    factors = torch.randn(k, rank or 2 * d, d, generator=generator, dtype=torch.float64) / d**0.5
    return torch.randn(k, d, generator=generator, dtype=torch.float64), factors


def as_full(means, factors):
    return ad.Gaussians(means, Full(factors.mT @ factors))


def as_factored(means, factors):
    k, rank, dim = factors.shape
    return ad.Gaussians(means, Factored(factors.reshape(-1, dim), (rank,) * k))


class TestBures:
    @pytest.mark.parametrize("make", [as_full, as_factored])
    @pytest.mark.parametrize("d", [1, 2, 7, 30])
    def test_against_matrix_roots_full_rank(self, make, d):
        (means_a, factors_a), (means_b, factors_b) = random_laws(3, d), random_laws(4, d, seed=1)
        laws = make(means_a, factors_a)
        got = ad.bures(laws, make(means_b, factors_b))
        within = ad.bures(make(means_a, factors_a), laws)  # of which each pair is taken once
        torch.testing.assert_close(ad.bures(laws, laws), within, rtol=1e-9, atol=1e-9)
        for i, j in product(range(3), range(4)):
            a = means_a[i].numpy(), (factors_a[i].T @ factors_a[i]).numpy()
            b = means_b[j].numpy(), (factors_b[j].T @ factors_b[j]).numpy()
            expected = oracles.bures_by_roots(*a, *b)
            assert float(got[i, j]) == pytest.approx(expected, abs=1e-10 * max(1, expected))

    def test_commuting_laws_in_closed_form(self):
        deviations_a, deviations_b = (torch.rand(k, 5, dtype=torch.float64) for k in (2, 3))
        means_a, means_b = (torch.randn(k, 5, dtype=torch.float64) for k in (2, 3))
        expected = (means_a[:, None] - means_b).square().sum(-1)
        expected = expected + (deviations_a[:, None] - deviations_b).square().sum(-1)
        kinds = [
            Diagonal,
            lambda s: Full(torch.diag_embed(s**2)),
            lambda s: Factored(torch.diag_embed(s).reshape(-1, 5), (5,) * len(s)),
        ]
        for kind_a, kind_b in product(kinds, kinds):
            a = ad.Gaussians(means_a, kind_a(deviations_a))
            b = ad.Gaussians(means_b, kind_b(deviations_b))
            torch.testing.assert_close(ad.bures(a, b), expected, rtol=1e-12, atol=1e-12)

    def test_near_laws_beside_far_ones(self):
        """Differences come first: squares of the far ones would hide those of the near ones."""
        means, still = torch.tensor([[0.0, 1.0], [1e6, 1.0]]).double(), Diagonal(torch.ones(2, 2))
        a, b = (ad.Gaussians(means + shift, still.to(dtype=torch.float64)) for shift in (0, 2**-10))
        assert ad.bures(a, b).diagonal().tolist() == pytest.approx([2**-19] * 2, rel=1e-12)

    def test_distance_to_a_point_mass(self):
        means, factors = random_laws(2, 6)
        point = ad.Gaussians(torch.zeros(1, 6).double(), Full(torch.zeros(1, 6, 6).double()))
        expected = means.square().sum(1) + factors.square().sum((1, 2))
        torch.testing.assert_close(ad.bures(as_full(means, factors), point)[:, 0], expected)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_zero_against_a_shuffled_copy(self, dtype):
        """A law and the same law from rows in another order: zero far below rounding of the squares."""
        x = torch.randn(40, 100, dtype=dtype) * torch.logspace(0, -6, 100, dtype=dtype)
        a = ad.LabeledDataset(x, [0] * 40).laws()
        b = ad.LabeledDataset(x[torch.randperm(40)], [0] * 40).laws()
        assert float(ad.bures(a, b)) <= 1e-12 * float(a.covariance.traces())


A, B = random_laws(2, 4, 5), random_laws(3, 4, 7, seed=1)
WIDE_A, WIDE_B = random_laws(2, 20, 5), random_laws(2, 20, 7, seed=1)
VALUES = {  # name: (what moves, W₂² between laws of which it is a part)
    "means": (A[0], lambda t: ad.bures(as_full(t, A[1]), as_full(*B))),
    "matrices": (
        A[1].mT @ A[1],
        lambda t: ad.bures(ad.Gaussians(A[0], Full((t + t.mT) / 2)), as_full(*B)),
    ),
    "factors": (A[1], lambda t: ad.bures(as_factored(A[0], t), as_factored(*B))),
    "factors of the target": (B[1], lambda t: ad.bures(as_factored(*A), as_factored(B[0], t))),
    "wide factors": (
        WIDE_A[1],
        lambda t: ad.bures(as_factored(WIDE_A[0], t), as_factored(*WIDE_B)),
    ),
    "within": (B[1], lambda t: ad.bures(law := as_factored(B[0], t), law)),
}


class TestGradients:
    @pytest.mark.every_case
    @pytest.mark.parametrize("name", VALUES)
    def test_against_differences(self, name):
        start, distances = VALUES[name]
        leaf = start.clone().requires_grad_()
        weights = torch.rand(distances(start).shape, dtype=torch.float64)
        value = lambda t: (weights * distances(t)).sum()
        value(leaf).backward()
        told, found = oracles.slopes_in_parts(value, start, leaf.grad)
        torch.testing.assert_close(told, found, atol=1e-6, rtol=1e-6)

    def test_singular_laws_stay_finite(self):
        singular = torch.zeros(1, 3, 3, dtype=torch.float64, requires_grad=True)
        law = ad.Gaussians(torch.zeros(1, 3, dtype=torch.float64), Full(singular))
        ad.bures(law, as_full(*random_laws(2, 3))).sum().backward()
        assert bool(torch.isfinite(singular.grad).all())

    def test_the_root_of_a_matrix_and_its_derivative(self):
        """In the basis of S the derivative divides by the sums of two roots; 0 on the null space."""
        basis = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))[0]
        values, roots = (torch.tensor(v).double() for v in ([1.0, 1e-8, 0.0], [1.0, 1e-4, 0.0]))
        leaf = ((basis * values) @ basis.T)[None].requires_grad_()
        found, pull = symmetric_root(leaf)[0], torch.rand(3, 3, dtype=torch.float64)
        torch.testing.assert_close(found, (basis * roots) @ basis.T, rtol=0, atol=1e-10)
        found.backward(pull)
        inner = (basis.T @ (pull + pull.T) @ basis / 2) / (roots[:, None] + roots)
        inner[2, 2] = 0
        expected = basis @ inner @ basis.T
        torch.testing.assert_close(leaf.grad[0], expected, rtol=1e-6, atol=1e-6 * 1e4)

    def test_points_about_their_common_centre(self):
        x, y = (torch.randn(n, 2, dtype=torch.float64) + 1e6 for n in (5, 7))
        masses = tuple(torch.rand(n, dtype=torch.float64) for n in (5, 7))
        for known in (None, masses):
            a, b = known or (torch.ones(5).double(), torch.ones(7).double())
            one, two = centred(x, y, known)
            middle = a / a.sum() @ one + b / b.sum() @ two
            assert middle.tolist() == pytest.approx([0, 0], abs=1e-8)
            torch.testing.assert_close(one - two[:5], x - y[:5])
            own = centred(x, x, known and (a, a))
            assert own[0] is own[1] and (a @ own[0]).tolist() == pytest.approx([0, 0], abs=1e-8)


def test_one_covariance_at_two_means():
    means, factors = random_laws(4, 3)
    for form in (
        Full(factors.mT @ factors),
        as_factored(means, factors).covariance,
        Diagonal(means),
    ):
        a, b = (ad.Gaussians(means + shift, form) for shift in (0, 1))
        torch.testing.assert_close(ad.bures(a, b).diagonal(), torch.full((4,), 3.0).double())


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
        laws = ad.LabeledDataset(x, y).laws()
        for code in (0, 1):
            part = x[y == code].numpy()
            # a mean near 0 is a sum that cancels: either is right to rounding of what was summed
            rounding = 8 * np.finfo(np.float64).eps * np.abs(part).max()
            np.testing.assert_allclose(laws.means[code], part.mean(0), rtol=1e-12, atol=rounding)
            expected = np.cov(part, rowvar=False).reshape(d, d)
            np.testing.assert_allclose(laws.covariances()[code], expected, atol=1e-9)

    def test_a_row_listed_twice_is_two_samples(self):
        """Of half the weight each: the scatter is the same, the freedom 1 − Σ p² is larger."""
        x = torch.randn(10, 4, dtype=torch.float64)
        one, two = ad.LabeledDataset(x, [0] * 10), ad.LabeledDataset(torch.cat([x, x]), [0] * 20)
        expected = one.laws().covariances() * (1 - 1 / 10) / (1 - 1 / 20)
        torch.testing.assert_close(two.laws().covariances(), expected, rtol=1e-12, atol=0)

    @pytest.mark.parametrize("offset", [0.0, 10.0, 1000.0, 1e5])
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("kind", ["uniform", "normal", "few values"])
    def test_weights_repeated_rows_and_offsets_against_numpy(self, kind, weighted, offset):
        # Equal rows are several samples, and float32 far from the origin loses nothing more.
        generator = torch.Generator().manual_seed(2)
        draws = {
            "uniform": torch.rand(500, 2, generator=generator),
            "normal": torch.randn(2000, 1, generator=generator),
            "few values": (torch.rand(1000, 2, generator=generator) < 0.01).float(),
        }
        x = offset + draws[kind]
        weights = 1 + 0.3 * weighted * (torch.arange(len(x)) % 2).double()
        laws = ad.LabeledDataset(x, [0] * len(x), weights=weights).laws()
        centred = x.double().numpy() - offset
        expected = np.atleast_2d(np.cov(centred, rowvar=False, aweights=weights.numpy()))
        got = laws.covariances()[0]
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-10 * expected.max())
        middle = np.average(centred, axis=0, weights=weights.numpy())
        np.testing.assert_allclose(laws.means[0] - offset, middle, rtol=0, atol=1e-10)

    @examples(60)
    @given(seed=st.integers(0, 10**6), spread=st.floats(0, 40))
    def test_weights_of_any_size_are_those_of_exact_arithmetic(self, seed, spread):
        rng = np.random.default_rng(seed)
        x = rng.integers(-9, 9, 12).astype(float)[:, None]
        weights = 10.0 ** rng.uniform(-spread, spread, 12)
        exact = list(zip(map(Fraction, x[:, 0]), map(Fraction, weights), strict=True))
        total = sum(weight for _, weight in exact)
        mean = sum(weight * point for point, weight in exact) / total
        scatter = sum(weight * (point - mean) ** 2 for point, weight in exact)
        expected = float(scatter / (total - sum(weight**2 for _, weight in exact) / total))
        found = ad.LabeledDataset(x, ["a"] * 12, weights).laws().covariances().item()
        assert found == pytest.approx(expected, rel=1e-12)

    def test_degenerate_classes_have_zero_covariance(self):
        data = ad.LabeledDataset([[1.0, 2.0], [3.0, 4.0], [3.0, 4.0]], ["single", "same", "same"])
        assert float(data.laws().covariances().abs().max()) == 0
        many = ad.LabeledDataset(torch.full((20, 3), 0.1), [0] * 20, weights=torch.rand(20)).laws()
        assert float(many.covariances().abs().max()) == 0  # once 5e-32, whose roots are directions
        with_empty = ad.LabeledDataset([[1.0, 2.0]], ["a"], classes=["a", "b"]).laws()
        assert with_empty.means[1].tolist() == [0.0, 0.0]

    def test_class_without_mass(self):
        data = ad.LabeledDataset([[1.0], [3.0], [9.0]], ["a", "a", "b"], weights=[0.0, 0.0, 1.0])
        assert data.laws().means.flatten().tolist() == [2.0, 9.0]


class TestNuclearNorms:
    """W₂² between centred laws is ‖A‖² + ‖B‖² − 2‖ABᵀ‖_*."""

    @staticmethod
    def norm(left, right):
        zero = torch.zeros(1, left.shape[1]).double()
        centred = [ad.Gaussians(zero, Factored(part, (len(part),))) for part in (left, right)]
        return (left.square().sum() + right.square().sum() - float(ad.bures(*centred))) / 2

    def test_small_singular_values_keep_their_precision(self):
        u, v = (torch.linalg.qr(torch.randn(30, 30, dtype=torch.float64))[0] for _ in range(2))
        singular = torch.logspace(0, -14, 30, dtype=torch.float64)
        assert float(self.norm(u * singular, v) - singular.sum()) == pytest.approx(0, abs=3e-14)

    @pytest.mark.parametrize("n", [1, 5, 20])
    def test_blank_classes_have_gradients(self, n):
        # Once: IndexError, a class of 16 blank samples or more had no rows left, and the batch of small ones no columns.
        zeros = torch.zeros(n, 40, dtype=torch.float64, requires_grad=True)
        blank = ad.LabeledDataset(zeros, [0] * n)
        leaf = torch.randn(16, 40, dtype=torch.float64, requires_grad=True)
        other = ad.LabeledDataset(leaf, [0] * 16)
        distances = ad.bures(blank.laws(), other.laws())
        (gradient,) = torch.autograd.grad(distances.sum(), leaf)
        assert bool(torch.isfinite(gradient).all())
        spread = distances[0, 0] - leaf.mean(dim=0).square().sum()
        assert spread.item() == pytest.approx(other.laws().covariance.traces().item())


def test_shapes_are_checked():
    one = Diagonal(torch.ones(1, 3))
    for make, message in {
        lambda: Full(torch.zeros(2, 3, 4)): r"\(k, d, d\)",
        lambda: Factored(torch.zeros(2, 3), (1, 2)): "sizes summing to 3",
        lambda: ad.Gaussians(torch.zeros(2, 3), one): "one mean and one covariance",
        lambda: ad.Gaussians(torch.full((1, 3), torch.nan), one): "finite",
        lambda: ad.bures(as_full(*A), as_full(*WIDE_A)): "dimensions 4 and 20",
    }.items():
        with pytest.raises(ad.InputError, match=message):
            make()
