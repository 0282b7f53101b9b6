"""The linear map between Gaussian class laws: POT and closed forms as oracles, at full rank and
below.
"""

import numpy as np
import ot
import pytest
import torch
from flow_cases import draw

import advect as ad
from advect import Gaussians, LabeledDataset
from advect.data.laws import Factored, Full
from advect.maps import GaussianMap


def law(*roots, seed=0, shift=0.0):
    """Laws with these factors, and means at random."""
    means = draw(len(roots), roots[0].shape[1], seed=100 + seed) + shift
    return Gaussians(means, Factored(torch.cat(roots), tuple(map(len, roots))))


def matrix_of(linear, code=0, d=4):
    """A with T(x) = T(0) + A x, read from the map itself."""
    linear._rest.zero_()  # inside the range only
    labels = [linear.classes_[code]] * (d + 1)
    images = linear.transform(torch.cat([torch.zeros(1, d), torch.eye(d)]).double(), labels)
    return (images[1:] - images[0]).T


class TestAgainstOracles:
    @pytest.mark.parametrize("d", [1, 2, 5, 20])
    def test_pot_at_full_rank(self, d):
        source, target = (
            law(draw(2 * d, d, seed=s), draw(d + 1, d, seed=s + 1), seed=s) for s in (0, 5)
        )
        linear = GaussianMap.between(source, target, ["a", "b"])
        x = draw(30, d, seed=9)
        for code, name in enumerate("ab"):
            A, b = ot.gaussian.bures_wasserstein_mapping(
                source.means[code].numpy(),
                target.means[code].numpy(),
                source.covariances()[code].numpy(),
                target.covariances()[code].numpy(),
            )
            np.testing.assert_allclose(
                linear.transform(x, [name] * 30), x.numpy() @ A + b, rtol=1e-7, atol=1e-7
            )

    @pytest.mark.parametrize("kind", ["full", "factored", "diagonal"])
    def test_kinds_of_covariances(self, kind):
        pair = []
        for seed in (0, 1):
            found = law(draw(6, 4, seed=seed), draw(6, 4, seed=seed + 7), seed=seed)
            if kind == "full":
                found = Gaussians(found.means, Full(found.covariances()))
            pair.append(found.diagonal() if kind == "diagonal" else found)
        linear = GaussianMap.between(*pair, ["a", "b"])
        for code in (0, 1):
            A, (S, T) = matrix_of(linear, code), (laws.covariances()[code] for laws in pair)
            np.testing.assert_allclose(A @ S @ A.T, T, atol=1e-10)
            np.testing.assert_allclose(A, A.T, atol=1e-10)  # a gradient of a convex function
            assert float(torch.linalg.eigvalsh(A).min()) > 0
        if kind == "diagonal":
            ratio = pair[1].covariance.scales()[0] / pair[0].covariance.scales()[0]
            np.testing.assert_allclose(matrix_of(linear), ratio.diag(), atol=1e-10)

    @pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 2), (3, 1), (3, 3), (1, 0)])
    def test_rank_deficient_laws_are_reached_at_the_bures_distance(self, before, after):
        """No direction of S' is orthogonal to the range of S: T carries one law to the other, and the
        way is the distance, also where the range of S' is not in that of S."""
        source, target = law(draw(before, 6)), law(draw(after, 6, seed=3), seed=1)
        A = matrix_of(GaussianMap.between(source, target, ["a"]), d=6)
        S, T = source.covariances()[0], target.covariances()[0]
        np.testing.assert_allclose(A @ S @ A.T, T, atol=1e-10)
        gap = (source.means - target.means).square().sum()
        way = gap + torch.trace((torch.eye(6) - A) @ S @ (torch.eye(6) - A).T)
        assert float(way) == pytest.approx(float(ad.bures(source, target)), rel=1e-9)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("kind", ["full", "factored"])
    def test_rounding_is_no_direction(self, kind, dtype):
        source, target = law(draw(3, 8)), law(draw(9, 8, seed=3), seed=1)
        pair = [laws.to(dtype=dtype) for laws in (source, target)]
        if kind == "full":
            pair = [Gaussians(laws.means, Full(laws.covariances())) for laws in pair]
        exact, found = (
            matrix_of(GaussianMap.between(*laws, ["a"]), d=8) for laws in ((source, target), pair)
        )
        assert torch.linalg.matrix_rank(exact) == 3
        tol = 1e-4 if dtype == torch.float32 else 1e-10
        np.testing.assert_allclose(found, exact, atol=tol * float(exact.abs().max()))

    def test_what_is_orthogonal_to_the_range_is_not_reached(self):
        source = law(torch.eye(4)[:2].double())
        target = law(torch.diag(torch.tensor([2.0, 3.0, 5.0, 7.0])).double())
        A = matrix_of(GaussianMap.between(source, target, ["a"]))
        np.testing.assert_allclose(A, torch.diag(torch.tensor([2.0, 3.0, 0, 0])), atol=1e-12)

    def test_barycentric_map_of_the_optimal_plan(self):
        """For S' of higher rank than S: the conditional mean under the optimal coupling, here of
        N(0, diag(1, 0)) with a correlated N(0, T)."""
        source = law(torch.tensor([[1.0, 0.0]]).double())
        root = torch.tensor([[2.0, 1.0], [0.0, 1.0]]).double()
        target = law(root)
        A = matrix_of(GaussianMap.between(source, target, ["a"]), d=2)
        T = root.T @ root  # [[4, 2], [2, 2]]: x'_1 = 2 x_1, E[x'_2 | x'_1] = x'_1 / 2
        np.testing.assert_allclose(A, [[2.0, 0.0], [2.0 * T[0, 1] / T[0, 0], 0.0]], atol=1e-12)


class TestBeyondTheRange:
    def test_equal_laws_have_the_identity_and_similar_ones_their_similarity(self):
        source = law(draw(2, 6))
        moved = Gaussians(source.means + 5, Factored(3 * source.covariance.rows, (2,)))  # type: ignore
        x = draw(9, 6, seed=4)
        same = GaussianMap.between(source, source, ["a"])
        np.testing.assert_allclose(same.transform(x, ["a"] * 9), x, atol=1e-10)
        similar = GaussianMap.between(source, moved, ["a"]).transform(x, ["a"] * 9)
        np.testing.assert_allclose(similar, moved.means + 3 * (x - source.means), atol=1e-10)

    def test_points_to_laws_and_laws_to_points(self):
        point, wide = law(torch.zeros(1, 3)), law(draw(2, 3))
        x = draw(5, 3, seed=4)
        shifted = GaussianMap.between(point, wide, ["a"]).transform(x, ["a"] * 5)
        np.testing.assert_allclose(shifted, x + wide.means - point.means, atol=1e-10)
        met = GaussianMap.between(wide, point, ["a"]).transform(x, ["a"] * 5)
        np.testing.assert_allclose(met, point.means.expand(5, 3), atol=1e-10)


class TestFit:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_moments_of_the_ends_are_met_class_by_class(self, dtype):
        start = LabeledDataset(draw(40, 3).to(dtype), ["a", "b"] * 20, weights=range(1, 41))
        end = start.replace(x=start.x.square() * torch.tensor([1.0, -2.0, 0.5]).to(dtype) + 7)
        got = GaussianMap().fit(start, end).transform(start)
        assert got.x.dtype == dtype
        tol = 1e-4 if dtype == torch.float32 else 1e-10
        for moments in (lambda data: data.laws().means, lambda data: data.laws().covariances()):
            np.testing.assert_allclose(moments(got), moments(end), rtol=tol, atol=tol)

    def test_a_linear_flow_is_recovered_for_unseen_samples(self):
        start = LabeledDataset(draw(60, 3), ["a", "b", "c"] * 20)
        A = torch.diag(torch.tensor([2.0, 0.5, 1.0])).double()
        fitted = GaussianMap().fit(start, start.replace(x=start.x @ A + 1))
        new = draw(7, 3, seed=8)
        for name in "abc":
            np.testing.assert_allclose(fitted.transform(new, [name] * 7), new @ A + 1, atol=1e-9)
        np.testing.assert_allclose(fitted.transform(new), new @ A + 1, atol=1e-9)  # any posterior

    def test_samples_without_a_label(self):
        start = LabeledDataset(draw(40, 2) + 20 * (torch.arange(40) % 2)[:, None], [0, 1] * 20)
        end = start.replace(x=start.x + torch.where((start.y == 0)[:, None], 5.0, -5.0))
        fitted = GaussianMap().fit(start, end)
        np.testing.assert_allclose(fitted.transform(start.x), fitted.transform(start).x, atol=1e-6)
        rows = fitted.posterior(start.x)
        np.testing.assert_allclose(rows.sum(dim=1), 1)
        assert torch.equal(rows.argmax(dim=1), start.y)

    def test_posterior_is_bayes(self):
        """m_y N(x; μ_y, S_y + s² I) with the normal densities of scipy."""
        from scipy.stats import multivariate_normal

        source = law(draw(2, 4), 2 * draw(1, 4, seed=2))
        masses = torch.tensor([1.0, 3.0])
        fitted = GaussianMap.between(source, source, ["a", "b"], masses=masses)
        noise = float(source.covariance.traces().mean()) / 4
        x = draw(6, 4, seed=3)
        laws = zip(source.means.numpy(), source.covariances().numpy(), strict=True)
        densities = [multivariate_normal.pdf(x, mean, S + noise * np.eye(4)) for mean, S in laws]
        scores = np.stack(densities, axis=1) * [1, 3]
        expected = scores / scores.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(fitted.posterior(x), expected, rtol=1e-8, atol=1e-12)

    def test_partly_labeled_and_unlabeled_starts(self):
        x = draw(30, 2)
        partly = LabeledDataset(x, ["a", "b", None] * 10)
        fitted = GaussianMap().fit(partly, partly.replace(x=2 * x))
        assert fitted.classes_ == ("a", "b")
        np.testing.assert_allclose(fitted.transform(partly).x, 2 * x, atol=1e-9)
        blind = GaussianMap().fit(x, 2 * x + 1)
        assert blind.classes_ == ()
        np.testing.assert_allclose(blind.transform(x), 2 * x + 1, atol=1e-9)
        with pytest.raises(ad.InputError, match="a posterior needs classes"):
            blind.posterior(x)

    def test_a_class_is_what_began_in_it(self):
        start = LabeledDataset([[0.0], [1.0], [10.0], [12.0]], ["a", "a", "b", "b"])
        end = LabeledDataset([[5.0], [6.0], [0.0], [1.0]], ["b", "a", "a", "a"])
        carried = GaussianMap().fit(start, end).transform(start)
        np.testing.assert_allclose(carried.x, end.x, atol=1e-5)


def test_a_file_with_other_numbers_is_damaged(tmp_path):
    from advect.data.store import read_tensors, write_tensors

    start = LabeledDataset(draw(10, 3), ["a", "b"] * 5)
    path = GaussianMap().fit(start, start).save(tmp_path / "map.safetensors")
    tensors, facts = read_tensors(path)
    for name, change in {
        "deviations": -tensors["deviations"],
        "axes": tensors["axes"][:-1],
        "means": tensors["means"][:, :2],
        "rest": tensors["rest"].float(),
    }.items():
        write_tensors(tmp_path / "bad.safetensors", tensors | {name: change.contiguous()}, facts)
        with pytest.raises(ad.InputError, match="damaged"):
            ad.maps.load(tmp_path / "bad.safetensors")


def test_options_that_do_not_fit():
    laws = law(draw(2, 4), draw(2, 4, seed=1))
    for bad, message in (
        (lambda: GaussianMap.between(laws, laws.take(torch.tensor([0])), "ab"), "law"),
        (lambda: GaussianMap.between(laws, laws, ["a", "a"]), "law"),
        (lambda: GaussianMap.between(laws, laws, "ab", masses=-torch.ones(2)), "masses"),
    ):
        with pytest.raises(ad.InputError, match=message):
            bad()
    heavy, same = (GaussianMap.between(laws, laws, "ab", masses=m) for m in ([3, 1], None))
    odds = [each.posterior(torch.zeros(1, 4))[0] for each in (heavy, same)]
    assert odds[0][0] / odds[0][1] == pytest.approx(3 * float(odds[1][0] / odds[1][1]), rel=1e-4)
