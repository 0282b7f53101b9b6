"""One law for each particle, as a jd-vl flow leaves them: joined where a class is asked for, shared
where they are equal.
"""

import numpy as np
import pytest
import torch
from flow_cases import draw, labeled

import advect as ad


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
    return ad.Full(factors.mT @ factors)


def factored(k, d, seed):
    sizes = tuple((3 * j) % 5 for j in range(k))  # some are points
    return ad.Factored(draw(sum(sizes), d, seed=seed), sizes)


def diagonal(k, d, seed):
    return ad.Diagonal(draw(k, d, seed=seed).abs())


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
    def test_one_law_is_its_own_mixture(self, kind):
        laws = ad.Gaussians(draw(3, 4, seed=1), kind(3, 4, seed=2))
        alone = laws.joined(torch.arange(3), torch.rand(3) + 0.1, 3)
        torch.testing.assert_close(alone.means, laws.means)
        torch.testing.assert_close(alone.covariances(), laws.covariances())
        assert float(ad.bures(alone, laws).diagonal().max()) < 1e-12

    def test_full_and_factored_keep_their_kind(self):
        for kind in (full, factored):
            laws = ad.Gaussians(draw(4, 3), kind(4, 3, seed=2))
            joined = laws.joined(torch.tensor([0, 0, 1, 1]), torch.ones(4), 2)
            assert type(joined.covariance) is type(laws.covariance)


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
    shared = data.with_shared_laws()
    assert len(shared.law) == 3
    torch.testing.assert_close(
        shared.law.take(shared.law_rows).means, many.means[data.law_rows], rtol=0, atol=0
    )


def ended(dynamics, dim=3, n_steps=3, dtype=torch.float64, sizes=(8, 10, 6)):
    """What a short flow leaves, and its target."""
    source = labeled(sizes, dim, seed=1, weighted=True).to(dtype=dtype)
    target = labeled((9, 8, 7), dim, seed=2, shift=2.0).to(dtype=dtype)
    cost = ad.GroundCost(label=ad.Bures(diagonal=isinstance(dynamics.laws, ad.DiagonalMotion)))
    energy = ad.OTDD(target, cost=cost)
    return ad.flow(
        source, energy, dynamics=dynamics, integrator=ad.Euler(0.2), n_steps=n_steps
    ).dataset, target


PARTICLES = pytest.mark.parametrize(
    "dynamics",
    [ad.JointVariableLabels(), ad.JointVariableLabels(laws=ad.DiagonalMotion())],
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
        wanted = ad.bures(pooled, target.moments()).sqrt()
        distance = ad.otdd(data, target)
        np.testing.assert_allclose(distance.class_distances.values, wanted, rtol=1e-9)
        joined = ad.otdd(data.with_class_laws(), target)
        np.testing.assert_allclose(
            distance.class_matching.values, joined.class_matching.values, atol=1e-12
        )
        even = ad.ClassMatching.between(data, target)
        np.testing.assert_allclose(even.coupling.values.sum(axis=1), 1 / 3, rtol=1e-9)
        as_is = ad.ClassMatching.between(data, target, balanced=False)
        np.testing.assert_allclose(
            as_is.coupling.values, distance.class_matching.values, atol=1e-12
        )

    @PARTICLES
    def test_of_many_laws_against_themselves(self, dynamics):
        data, _ = ended(dynamics)
        assert ad.ClassMatching.between(data, data).hard == {name: name for name in data.classes}

    @pytest.mark.slow
    @PARTICLES
    def test_names_from_another_dataset(self, dynamics):
        data, target = ended(dynamics, n_steps=12)
        for by in ("transport", "nearest"):
            assert ad.classes.align(data, target, by).labels == data.labels

    def test_laws_of_single_samples_that_are_laws_of_classes(self):
        """Where all particles of a class have one law, nothing changes: the mixture is that law."""
        source, target = labeled((8, 10), 3, seed=1), labeled((9, 8), 3, seed=2, shift=2.0)
        started = ad.JointVariableLabels().start(source)
        for a, b in zip(
            _class_answers(started, target), _class_answers(source, target), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=1e-9)

    def test_exact_label_transport_says_how_to_go_on(self):
        data, target = ended(ad.JointVariableLabels())
        cost = ad.GroundCost(label=ad.ExactLabelOT())
        with pytest.raises(ad.InputError, match=r"replace\(law=None, law_index=None\)"):
            ad.ClassMatching.between(data, target, cost=cost)
        dropped = data.replace(law=None, law_index=None)
        assert len(ad.ClassMatching.between(dropped, target, cost=cost).hard) == 3

    def test_an_unfitted_sketch_is_fitted(self):
        data, target = ended(ad.JointVariableLabels())
        cost = ad.GroundCost(feature=ad.Sketch(3))  # as many directions as there are: a rotation
        sketched = ad.ClassMatching.between(
            data.replace(law=None, law_index=None), target, cost=cost
        )
        assert len(sketched.hard) == 3


def _class_answers(data, target):
    distance = ad.otdd(data, target)
    matching = ad.ClassMatching.between(data, target)
    return (
        distance.value,
        distance.class_distances.values,
        distance.class_matching.values,
        matching.coupling.values,
    )


@pytest.fixture(
    scope="module",
    params=[ad.JointVariableLabels(), ad.JointVariableLabels(laws=ad.DiagonalMotion())],
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

    @pytest.mark.parametrize("way", ["blocked", "mini-batch", "low rank"])
    def test_as_dense(self, problem, way):
        dense = self.solved(problem)
        if way == "blocked":
            other = self.solved(problem, memory_limit=2**19)
        elif way == "mini-batch":
            other = self.solved(
                problem, ad.MiniBatch(ad.Sinkhorn(self.epsilon, tol=1e-10), size=100)
            )
        else:
            other = self.solved(problem, ad.NystromSinkhorn(200, self.epsilon, tol=1e-11))
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
        with pytest.raises(
            ad.InputError, match=r"80 and 80 label laws need 100.0 KiB.*with_class_laws\(\)"
        ):
            ad.otdd(data, target, memory_limit=60_000)
        assert ad.otdd(data.with_class_laws(), target, memory_limit=60_000).value > 0
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
            ad.Gaussians(means, ad.Full(factors.mT @ factors)),
            ad.Gaussians(draw(30, 3), full(30, 3, seed=4)),
        )

    whole = distances()
    wanted = torch.autograd.grad(whole.sqrt().sum(), [means, factors])
    monkeypatch.setattr("advect._util.nuclear._ENTRIES", 1000)
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


class TestSketch:
    """A sketch is linear: it carries laws exactly."""

    @pytest.mark.slow
    @PARTICLES
    @pytest.mark.parametrize("label", [ad.Bures(), ad.Bures(diagonal=True), ad.MeansOnly()])
    def test_distances_are_those_of_sketched_laws(self, dynamics, label):
        data, target = ended(dynamics, dim=5)
        sketch = ad.Sketch(2).fit(data, target)
        law = data.law
        covariances = np.einsum("de,kdf,fg->keg", sketch.basis, law.covariances(), sketch.basis)
        image = ad.Gaussians(law.means @ sketch.basis, ad.Full(torch.as_tensor(covariances)))
        by_hand = [
            ad.LabeledDataset(
                data.x @ sketch.basis, data.y, data.weights, law=image, law_index=data.law_index
            ),
            ad.LabeledDataset(target.x @ sketch.basis, target.y),
        ]
        wanted = ad.otdd(*by_hand, cost=ad.GroundCost(label=label)).energy
        assert ad.otdd(
            data, target, cost=ad.GroundCost(feature=sketch, label=label)
        ).energy == pytest.approx(wanted, rel=1e-6)

    def test_in_all_directions_it_is_the_distance_itself(self):
        data, target = ended(ad.JointVariableLabels(), dim=3)
        sketched = ad.otdd(data, target, cost=ad.GroundCost(feature=ad.Sketch(3)))
        assert sketched.energy == pytest.approx(ad.otdd(data, target).energy, rel=1e-6)


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
        law = ad.Gaussians(leaves[1], ad.Diagonal(leaves[2]))
        data = ad.LabeledDataset(leaves[0], [0] * 70, law=law, law_index=range(70))
        pair = cost.within(data) if within else cost.between(data, data)
        assert pair.has_labels != within
        values.append(pair.matrix())
        pair.contract(plan).backward()
        gradients.append([leaf.grad for leaf in leaves])
    torch.testing.assert_close(values[1], values[0], rtol=1e-10, atol=1e-10)
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_few_laws_stay_a_table_within_a_dataset():
    data = ad.datasets.gaussians(90, generator=torch.Generator().manual_seed(0))
    assert ad.GroundCost().within(data).has_labels
    full = ad.Gaussians(torch.rand(90, 2), ad.Full(torch.eye(2).expand(90, 2, 2)))
    each = data.replace(law=full, law_index=torch.arange(90))
    assert ad.GroundCost().within(each).has_labels
