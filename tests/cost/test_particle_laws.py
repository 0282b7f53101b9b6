"""One law for each particle, as a jd-vl flow leaves them: joined where a class is asked for, shared
where they are equal.
"""

import numpy as np
import pytest
import torch
from flow_cases import draw, labeled

import advect as ad
from advect.data.labels import law_rows, with_class_laws, with_shared_laws
from advect.data.laws import Diagonal, Factored, Full


def points_of(laws):
    """2d points of equal weight for each law that have its mean and covariance: μ ± √d times the
    columns of a root.
    """
    roots = (
        np.stack([_root(matrix) for matrix in laws.covariances().double().numpy()]) * laws.dim**0.5
    )
    means = laws.means.double().numpy()[:, None]
    return np.concatenate([means + roots, means - roots], axis=1)  # (k, 2d, d)


def _root(matrix):
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(np.maximum(values, 0))).T


def full(k, d, seed):
    factors = draw(k, d, d, seed=seed)
    return Full(factors.mT @ factors)


def factored(k, d, seed):
    sizes = tuple((3 * j) % 5 for j in range(k))  # some are points
    return Factored(draw(sum(sizes), d, seed=seed), sizes)


def diagonal(k, d, seed):
    return Diagonal(draw(k, d, seed=seed).abs())


KINDS = pytest.mark.parametrize("kind", [full, factored, diagonal])


class TestJoined:
    @KINDS
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    @pytest.mark.parametrize("offset", [0.0, 1e5])
    def test_moments_of_the_mixture(self, kind, dtype, offset):
        """Mean and covariance of points that have the moments of the laws, by numpy; far from the
        origin too.
        """
        laws = ad.Gaussians(draw(7, 3, seed=1) + offset, kind(7, 3, seed=2)).to(dtype=dtype)
        groups, mass = (
            torch.tensor([0, 2, 2, 0, 2, 0, 0]),
            torch.tensor([0.1, 0.2, 0.0, 0.3, 0.3, 0.05, 0.05]),
        )
        joined = laws.joined(groups, mass, 3)
        assert joined.means.dtype == dtype and len(joined) == 3
        for group in (0, 2):
            chosen = (groups == group).numpy()
            cloud, weights = points_of(laws)[chosen], mass.double().numpy()[chosen]
            weights = np.repeat(weights / weights.sum() / cloud.shape[1], cloud.shape[1])
            mean = weights @ cloud.reshape(-1, 3)
            gaps = cloud.reshape(-1, 3) - mean
            rounding = 1e-6 if dtype == torch.float32 else 1e-9
            np.testing.assert_allclose(joined.means[group], mean, rtol=rounding)
            np.testing.assert_allclose(
                joined.covariances()[group],
                (weights[:, None] * gaps).T @ gaps,
                rtol=rounding,
                atol=1e-5,
            )
        assert (
            float(joined.means[1].abs().sum() + joined.covariances()[1].abs().sum()) == 0
        )  # no laws: a point

    @KINDS
    def test_without_mass_laws_count_alike(self, kind):
        laws = ad.Gaussians(draw(4, 2, seed=1), kind(4, 2, seed=2))
        none, even = (
            laws.joined(torch.zeros(4, dtype=torch.int64), torch.full((4,), value), 1)
            for value in (0.0, 0.25)
        )
        torch.testing.assert_close(none.covariances(), even.covariances())


@KINDS
def test_images_under_a_linear_map(kind):
    """The image of points that have a law's moments has the moments of the image of the law."""
    laws, basis = ad.Gaussians(draw(5, 4, seed=1), kind(5, 4, seed=2)), draw(4, 2, seed=3)
    image = laws.carried(basis)
    clouds = points_of(laws) @ basis.numpy()
    np.testing.assert_allclose(image.means, clouds.mean(axis=1), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(
        image.covariances(), [np.cov(cloud.T, bias=True) for cloud in clouds], rtol=1e-9, atol=1e-12
    )


@KINDS
def test_equal_laws_share_a_row(kind):
    few = ad.Gaussians(draw(3, 2, seed=1), kind(3, 2, seed=2))
    many = few.take(torch.tensor([1, 0, 1, 2, 2, 1]))
    once, places = many.distinct()
    assert places.tolist() == [0, 1, 0, 2, 2, 0]
    torch.testing.assert_close(once.take(places).covariances(), many.covariances(), rtol=0, atol=0)
    data = ad.LabeledDataset(draw(8, 2), [0, 1] * 4, law=many, law_index=[0, 1, 2, 3, 4, 0, 1, 2])
    shared = with_shared_laws(data)
    assert len(shared.law) == 3
    torch.testing.assert_close(
        shared.law.take(law_rows(shared)).means, many.means[law_rows(data)], rtol=0, atol=0
    )


def ended(dynamics, dim=3, n_steps=3, dtype=torch.float64, sizes=(8, 10, 6)):
    """What a short flow leaves, and its target."""
    source = labeled(sizes, dim, seed=1, weighted=True).to(dtype=dtype)
    target = labeled((9, 8, 7), dim, seed=2, shift=2.0).to(dtype=dtype)
    cost = ad.GroundCost(label=ad.Bures(diagonal=dynamics.laws == "diagonal"))
    energy = ad.OTDD(target, cost=cost)
    return ad.flow(
        source, energy, dynamics=dynamics, integrator=ad.Euler(0.2), n_steps=n_steps
    ).dataset, target


PARTICLES = pytest.mark.parametrize(
    "dynamics",
    [ad.JointVariableLabels(), ad.JointVariableLabels(laws="diagonal")],
    ids=["full", "diagonal"],
)


class TestClasses:
    """``ClassMatching``, class distances and matching of what a jd-vl flow leaves. Once: all three
    refused it.
    """

    @pytest.mark.slow
    @PARTICLES
    def test_every_door_gives_the_distances_of_mixtures(self, dynamics):
        data, target = ended(dynamics)
        pooled = data.law.joined(data.y, data.weights, len(data.classes))
        wanted = ad.bures(pooled, target.laws()).sqrt()
        distance = ad.otdd(data, target)
        np.testing.assert_allclose(distance.class_distances.values, wanted, rtol=1e-9)
        joined = ad.otdd(with_class_laws(data), target)
        np.testing.assert_allclose(
            distance.class_matching.values, joined.class_matching.values, atol=1e-12
        )
        even = ad.ClassMatching.between(data, target)
        np.testing.assert_allclose(even.coupling.values.sum(axis=1), 1 / 3, rtol=1e-9)
        as_is = ad.ClassMatching.between(data, target, balanced=False)
        np.testing.assert_allclose(
            as_is.coupling.values, distance.class_matching.values, atol=1e-12
        )


@pytest.fixture(
    scope="module",
    params=[ad.JointVariableLabels(), ad.JointVariableLabels(laws="diagonal")],
)
def problem(request):
    """More laws than are treated by a thin product."""
    return ended(request.param, dim=2, n_steps=2, sizes=(30, 25, 25))


class TestSolvers:
    """Blocked, mini-batch and low-rank solves of what a jd-vl flow leaves, against dense ones."""

    epsilon = ad.Relative(0.3)

    def solved(self, problem, solver=None, **options):
        x = problem[0].x.detach().clone().requires_grad_()
        means = problem[0].law.means.detach().clone().requires_grad_()
        data = problem[0].replace(x=x, law=ad.Gaussians(means, problem[0].law.covariance))
        distance = ad.otdd(
            data, problem[1], solver=solver or ad.Sinkhorn(self.epsilon, tol=1e-10), **options
        )
        distance.loss.backward()
        return distance.energy, x.grad, means.grad

    @pytest.mark.parametrize("way", ["blocked", "mini-batch"])
    def test_as_dense(self, problem, way):
        dense = self.solved(problem)
        if way == "blocked":
            other = self.solved(problem, memory_limit=2**19)
        else:
            other = self.solved(
                problem, ad.MiniBatch(ad.Sinkhorn(self.epsilon, tol=1e-10), size=100)
            )
        assert other[0] == pytest.approx(dense[0], rel=1e-7)
        for gradient, wanted in zip(other[1:], dense[1:], strict=True):
            torch.testing.assert_close(
                gradient, wanted, rtol=1e-5, atol=1e-7 * float(wanted.abs().max())
            )

    def test_equal_laws_make_one_row(self):
        source, target = labeled((40, 50), 2, seed=1), labeled((30, 60), 2, seed=2, shift=2.0)
        started = ad.JointVariableLabels().start(source)
        pair = ad.GroundCost().between(started, target)
        assert len(started.law) == 90 and pair.label_distances.shape == (2, 2)
        torch.testing.assert_close(pair.matrix(), ad.GroundCost().between(source, target).matrix())

    def test_a_table_that_does_not_fit_is_refused_before_it_is_made(self, problem):
        data, target = problem
        with pytest.raises(ad.InputError, match=r"80 and 80 label laws need 100.0 KiB.*class_laws"):
            ad.otdd(data, target, memory_limit=60_000)
        assert ad.otdd(with_class_laws(data), target, memory_limit=60_000).value > 0
        assert ad.otdd(data, target, memory_limit=2**19).value > 0


def test_many_laws_take_no_more_memory_than_their_distances(monkeypatch):
    """Once: the products of all pairs at once, 1 GiB for 1,000 laws in 8 dimensions, whose
    distances are 8 MiB.
    """
    laws = ad.Gaussians(draw(40, 3, seed=1), full(40, 3, seed=2))
    means = laws.means.requires_grad_()
    factors = draw(40, 3, 3, seed=3).requires_grad_()

    def distances():
        return ad.bures(
            ad.Gaussians(means, Full(factors.mT @ factors)),
            ad.Gaussians(draw(30, 3), full(30, 3, seed=4)),
        )

    whole = distances()
    wanted = torch.autograd.grad(whole.sqrt().sum(), [means, factors])
    monkeypatch.setattr("advect.data.laws.wasserstein._BATCH_ENTRIES", 1000)
    shapes = []
    plain = torch.einsum
    monkeypatch.setattr(
        torch, "einsum", lambda *args: shapes.append(plain(*args).numel()) or plain(*args)
    )
    parts = distances()
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-12)
    found = torch.autograd.grad(parts.sqrt().sum(), [means, factors])
    assert max(shapes) <= 1000
    for gradient, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("label", [ad.Bures(), ad.MeansOnly()])
def test_an_embedding_has_no_gaussian_image_of_a_law(label):
    """Once: told to harmonize, which cannot help, or a RuntimeError. Both remedies work."""
    data, target = ended(ad.JointVariableLabels())
    curved = ad.GroundCost(
        feature=ad.Embedding(lambda x: torch.cat([x, x.sin()], dim=1)), label=label
    )
    with pytest.raises(
        ad.InputError,
        match=r"not linear.*carries 24 laws.*FeatureDriven.*replace\(law=None.*Sketch",
    ):
        ad.otdd(data, target, cost=curved)
    dropped = data.replace(law=None, law_index=None)
    first = ad.LabeledDataset(curved.feature.embed(data), data.y, data.weights)
    last = ad.LabeledDataset(curved.feature.embed(target), target.y)
    assert ad.otdd(dropped, target, cost=curved).energy == pytest.approx(
        ad.otdd(first, last, cost=ad.GroundCost(label=label)).energy, rel=1e-6
    )
    for dynamics in (ad.JointFixedLabels(), ad.JointVariableLabels()):
        with pytest.raises(ad.InputError, match="Embedding carries samples.*FeatureDriven"):
            ad.flow(data, ad.OTDD(target, cost=curved), dynamics=dynamics, n_steps=1)
    assert (
        ad.flow(data, ad.OTDD(target, cost=curved), dynamics=ad.FeatureDriven(), n_steps=1).values[
            0
        ]
        > 0
    )


@pytest.mark.parametrize("weight", [0.5, 3.0])
def test_samples_with_laws_of_their_own_are_points_within_a_dataset(weight):
    generator = torch.Generator().manual_seed(0)
    x, means, scales = (torch.randn(70, 4, generator=generator).double() for _ in range(3))
    plan = torch.rand(70, 70, generator=generator).double()
    plan = (plan + plan.T) / plan.sum()
    cost, gradients, values = ad.GroundCost(label_weight=weight), [], []
    for within in (False, True):
        leaves = [part.clone().requires_grad_() for part in (x, means, scales.abs())]
        law = ad.Gaussians(leaves[1], Diagonal(leaves[2]))
        data = ad.LabeledDataset(leaves[0], [0] * 70, law=law, law_index=range(70))
        pair = cost.within(data) if within else cost.between(data, data)
        assert pair.has_labels != within
        values.append(pair.matrix())
        pair.contract(plan).backward()
        gradients.append([leaf.grad for leaf in leaves])
    torch.testing.assert_close(values[1], values[0], rtol=1e-10, atol=1e-10)
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)
