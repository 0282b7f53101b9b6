"""Laws of few samples and densities around them: scikit-learn, plain numpy and closed forms as oracles."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.covariance import ledoit_wolf

import advect as ad
from advect import Gaussians, LabeledDataset
from advect.classes import shrunk_laws, smoothed
from advect.data.laws import Diagonal, Factored, Full

KINDS = {
    "full": lambda roots: Full(roots.mT @ roots),
    "factored": lambda roots: Factored(roots.reshape(-1, roots.shape[2]), (roots.shape[1],) * 3),
    "diagonal": lambda roots: Diagonal(roots[:, 0].abs()),
}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def roots_of(seed, rank=2, d=5):
    return torch.randn(3, rank, d, generator=generator(seed), dtype=torch.float64)


def laws_of(kind, seed=0, rank=2, d=5):
    means = torch.randn(3, d, generator=generator(seed + 100), dtype=torch.float64)
    return Gaussians(means, KINDS[kind](roots_of(seed, rank, d)))


def data_of(counts, d, seed=0, offset=0.0, dtype=torch.float64):
    y = [name for name, count in zip("abcdefgh", counts, strict=False) for _ in range(count)]
    scales = torch.linspace(0.2, 3, d, dtype=dtype)
    x = torch.randn(len(y), d, generator=generator(seed), dtype=dtype) * scales + offset
    return LabeledDataset(x, y)


def class_arrays(data):
    return [part.x.double().numpy() for part in map(data.of_class, data.classes)]


class TestShrunk:
    @pytest.mark.parametrize("other", KINDS)
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize(("rescale", "size"), [(False, 1.0), (True, 1e-3), (True, 1e3)])
    def test_other_laws_against_matrices(self, kind, other, rescale, size):
        laws, goal = laws_of(kind), laws_of(other, seed=1)
        laws = Gaussians(laws.means, KINDS[kind](size * roots_of(seed=0)))
        share = torch.tensor([0.0, 0.3, 1.0])
        S, T = laws.covariances().numpy(), goal.covariances().numpy()
        if rescale:
            traces = [np.trace(part, axis1=1, axis2=2) for part in (S, T)]
            T = T * (traces[0] / traces[1])[:, None, None]
        weight = share.double().numpy()[:, None, None]
        got = laws.shrunk(goal, share, rescale=rescale)
        expected = (1 - weight) * S + weight * T
        np.testing.assert_allclose(got.covariances(), expected, atol=1e-12 * max(1, size**2))
        assert torch.equal(got.means, laws.means)

    @pytest.mark.parametrize("kind", KINDS)
    def test_pooled_and_spherical_against_matrices(self, kind):
        laws = laws_of(kind)
        S = laws.covariances().numpy()
        got = laws.shrunk("pooled", 0.25).covariances()
        np.testing.assert_allclose(got, 0.75 * S + 0.25 * S.mean(axis=0), atol=1e-12)
        mass = torch.tensor([3.0, 0.0, 1.0])
        got = laws.shrunk("pooled", 1.0, mass=mass).covariances()
        np.testing.assert_allclose(got[0], 0.75 * S[0] + 0.25 * S[2], atol=1e-12)
        got = laws.shrunk("spherical", 0.4).covariances()
        balls = np.trace(S, axis1=1, axis2=2)[:, None, None] / 5 * np.eye(5)
        np.testing.assert_allclose(got, 0.6 * S + 0.4 * balls, atol=1e-12)

    def test_laws_without_spread_take_the_aim_in_its_own_scale(self):
        points = Gaussians(
            torch.zeros(3, 5, dtype=torch.float64), Factored(torch.zeros(0, 5), (0,) * 3)
        )
        goal = laws_of("factored")
        for share, wanted in ((0.5, goal.covariances()), (0.0, torch.zeros(3, 5, 5))):
            got = points.shrunk(goal, share, rescale=True).covariances()
            np.testing.assert_allclose(got, wanted, atol=1e-12)
        assert not points.shrunk("pooled").covariances().any()
        assert not points.shrunk("spherical").covariances().any()

    @pytest.mark.parametrize("share", [-0.1, 1.1, "ledoit-wolf", [0.5, 0.5], float("nan"), None])
    def test_bad_shares(self, share):
        with pytest.raises(ad.InputError, match="share must be a number from 0 to 1"):
            laws_of("full").shrunk("pooled", share)


class TestFromSamples:
    @pytest.mark.parametrize("d", [3, 40])
    @pytest.mark.parametrize("offset", [0.0, 1e4])
    def test_against_scikit_learn(self, d, offset):
        data = data_of((3, 5, 12, 200), d, offset=offset)
        got = shrunk_laws(data, "spherical").covariances()
        for covariance, x in zip(got, class_arrays(data), strict=True):
            expected = ledoit_wolf(x)[0] * len(x) / (len(x) - 1)  # n − 1 in place of n
            np.testing.assert_allclose(covariance, expected, rtol=1e-6, atol=1e-9)

    def test_share_toward_other_laws_against_plain_sums(self):
        data = data_of((4, 7, 9), 5)
        goal = laws_of("full", seed=3, rank=8)
        got = shrunk_laws(data, goal)
        for k, x in enumerate(class_arrays(data)):
            n, centred = len(x), x - x.mean(axis=0)
            S = centred.T @ centred / (n - 1)
            each = n / (n - 1) * np.einsum("ni,nj->nij", centred, centred)
            T = goal.covariances()[k].numpy()
            share = min(1, ((each - S) ** 2).sum() / n**2 / ((S - T) ** 2).sum())
            np.testing.assert_allclose(
                got.covariances()[k], (1 - share) * S + share * T, atol=1e-10
            )

    def test_pooled_is_the_covariance_within_classes(self):
        data = data_of((1, 2, 5, 9), 6)
        arrays = class_arrays(data)
        within = np.concatenate([x - x.mean(axis=0) for x in arrays])
        expected = within.T @ within / (len(within) - 4)
        laws = shrunk_laws(data, "pooled", 1.0)
        np.testing.assert_allclose(laws.covariances(), np.stack([expected] * 4), atol=1e-12)
        np.testing.assert_allclose(laws.means, [x.mean(axis=0) for x in arrays], atol=1e-12)

    def test_weights_count_and_scale_does_not(self):
        data = data_of((6, 6), 4)
        heavy = data.replace(weights=torch.rand(12, generator=generator(), dtype=torch.float64))
        heavy = heavy.replace(weights=heavy.weights / heavy.weights.sum())
        assert not torch.allclose(shrunk_laws(heavy).covariances(), shrunk_laws(data).covariances())
        for unit in (1e-30, 1e30):
            scaled = data.replace(x=(data.x * unit).float())
            np.testing.assert_allclose(
                shrunk_laws(scaled).covariances() / unit**2,
                shrunk_laws(data).covariances(),
                rtol=1e-4,
                atol=1e-5,
            )

    def test_errors(self):
        data = data_of((4, 4), 3)
        with pytest.raises(ad.InputError, match="unknown share"):
            shrunk_laws(data, share="oracle")  # type: ignore
        with pytest.raises(ad.InputError, match="needs a label"):
            shrunk_laws(LabeledDataset(data.x))


class TestSample:
    @pytest.mark.parametrize("kind", KINDS)
    def test_moments_of_draws(self, kind):
        laws, n = laws_of(kind), 20_000
        draws = laws.sample([2] * n + [0] * n, generator=generator())
        for part, k in zip(draws.split(n), (2, 0), strict=True):
            S = laws.covariances()[k]
            top = float(torch.linalg.eigvalsh(S)[-1])
            # standard errors of a mean and of a covariance of n draws, five of them
            assert float((part.mean(dim=0) - laws.means[k]).abs().max()) < 5 * (top / n) ** 0.5
            assert float((torch.cov(part.T) - S).abs().max()) < 5 * top * (2 / n) ** 0.5


class TestSmoothed:
    def test_each_draw_is_a_sample_plus_noise_of_its_class(self):
        data, n = data_of((2, 3), 4), 10_000
        roots = torch.randn(2, 1, 4, generator=generator(), dtype=torch.float64)
        laws = Gaussians(1e6 * torch.ones(2, 4).double(), Factored(roots.reshape(2, 4), (1, 1)))
        many = smoothed(data, laws, n, generator=generator())
        assert many.counts == {"a": 4000, "b": 6000} and many.classes == data.classes
        for k, part in enumerate(map(many.of_class, many.classes)):
            along = roots[k, 0] / roots[k, 0].norm()
            places = data.x[data.y == k]
            off = part.x[:, None] - places
            off = off - (off @ along)[:, :, None] * along  # what is left beside the factor
            apart, nearest = off.norm(dim=2).min(dim=1)
            assert float(apart.max()) < 1e-9
            assert torch.bincount(nearest).tolist() == [2000] * len(places)
            steps = ((part.x - places[nearest]) @ along) / roots[k, 0].norm()
            assert abs(float(steps.mean())) < 5 * len(steps) ** -0.5
            assert float(steps.var()) == pytest.approx(1, abs=5 * (2 / len(steps)) ** 0.5)

    def test_without_a_number_each_sample_once_with_its_weight(self):
        data = data_of((2, 3), 4, dtype=torch.float32)
        data = LabeledDataset(data.x, data.labels, weights=[1, 2, 3, 4, 0])
        points = Gaussians(torch.zeros(2, 4), Diagonal(torch.zeros(2, 4)))
        same = smoothed(data, points)
        assert torch.equal(same.x, data.x) and torch.equal(same.weights, data.weights)
        one, two = (smoothed(data, shrunk_laws(data), generator=generator(s)) for s in (0, 0))
        assert torch.equal(one.x, two.x) and one.x.dtype == torch.float32
        assert not torch.equal(one.x, data.x)
        assert float((smoothed(data, points, 100).x - data.x[4]).norm(dim=1).min()) > 0  # weight 0

    def test_errors(self):
        data = data_of((2, 3), 4)
        for laws in (laws_of("full", d=4), laws_of("full", d=5).take(torch.tensor([0, 1]))):
            with pytest.raises(ad.InputError, match="dimension 4"):
                smoothed(data, laws)
        with pytest.raises(ad.InputError, match="needs a label"):
            smoothed(LabeledDataset(data.x), laws_of("full", d=4))


def table(values, few, source):
    """A matching of classes with these values."""
    return ad.ClassMatching(replace(ad.otdd(few, source).class_coupling, values=values))


class TestBorrowedLaws:
    def test_covariances_of_matched_classes_against_numpy(self):
        source, few = data_of((9, 9, 30), 5, offset=3.0), data_of((1, 2), 5, seed=4)
        few = few.replace(classes=("u", "v"))
        shares = np.array([[0.5, 0.5, 0], [0, 0.2, 0.8]])
        laws = ad.classes.borrowed_laws(source, few, table(shares, few, source))
        each = np.stack([np.cov(x.T) for x in class_arrays(source)])
        np.testing.assert_allclose(
            laws.covariances(), np.einsum("yc,cde->yde", shares, each), atol=1e-12
        )
        np.testing.assert_allclose(
            laws.means, [x.mean(axis=0) for x in class_arrays(few)], atol=1e-12
        )

    @pytest.mark.parametrize("shots", [1, 3])
    def test_half_and_half_against_numpy(self, shots):
        """½ source class covariance at the scale of the shots + ½ pooled covariance of the shots."""
        source, few = data_of((20, 20), 6), data_of((shots, shots), 6, seed=2, offset=9.0)
        matching = table(np.eye(2), few, source)
        laws = shrunk_laws(few, "pooled", 1.0).shrunk(
            ad.classes.borrowed_laws(source, few, matching), 0.5, rescale=True
        )
        lent = np.stack([np.cov(x.T) for x in class_arrays(source)])
        expected = lent  # one shot has neither a covariance nor a scale
        if shots > 1:
            within = np.concatenate([x - x.mean(axis=0) for x in class_arrays(few)])
            pooled = within.T @ within / (2 * shots - 2)
            scales = np.trace(pooled) / np.trace(lent, axis1=1, axis2=2)
            expected = 0.5 * lent * scales[:, None, None] + 0.5 * pooled
        np.testing.assert_allclose(laws.covariances(), expected, atol=1e-12)
