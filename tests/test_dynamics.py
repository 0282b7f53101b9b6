"""Dynamics, law motions, integrators, clusterings and functionals: every option, against independent answers."""

import math
from itertools import islice, pairwise

import numpy as np
import oracles
import pytest
import torch

import advect as ad
from advect.functionals import interaction
from advect.integrators import step_size_at
from advect.labels import law_points, relabel

FEATURES_ONLY = ad.GroundCost(label=ad.NoLabels())
EXACT_LAWS = ad.GroundCost()  # label distances decomposed at each step, not within a tolerance
TIGHT = ad.Sinkhorn(epsilon=0.1, tol=1e-11)


def draw(*shape, seed=0):
    """Standard normal numbers in float64."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def labeled(sizes, dim, seed, shift=0.0, apart=1.5, weighted=False):
    """Gaussian classes of the given sizes, ``apart`` from one to the next along all axes."""
    y = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    x = draw(len(y), dim, seed=seed) + apart * y[:, None] + shift
    weights = torch.rand(len(y), generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.2 if weighted else None
    return ad.LabeledDataset(x, y, weights=weights)


def states(source, functional, n_steps, **options):
    """The evaluated states 0, …, n_steps of a flow."""
    return list(islice(ad.iterate(source, functional, **options), n_steps + 1))


def first_velocity(source, functional, dynamics):
    """The velocity at step 0, by the dynamics' own methods and autograd."""
    rho = dynamics.start(source)
    leaves = {name: value.detach().clone().requires_grad_() for name, value in dynamics.parameters(rho).items()}
    functional(dynamics.attach(rho, leaves)).backward()
    return dynamics.velocity(rho, {name: leaf.grad for name, leaf in leaves.items()})


MOTIONS = {
    "euclidean": (ad.EuclideanMotion(), ad.Bures()),
    "bures": (ad.BuresMotion(), ad.Bures()),
    "diagonal": (ad.DiagonalMotion(), ad.Bures(diagonal=True)),
}


class TestLawVelocities:
    @pytest.mark.parametrize("solver", [ad.ExactOT(), TIGHT], ids=["exact", "sinkhorn"])
    @pytest.mark.parametrize("dim", [2, 3])
    @pytest.mark.parametrize("name", MOTIONS)
    def test_class_average_of_variable_labels_is_fixed_labels(self, name, dim, solver):
        """At step 0 all particles of a class share its law, so the gradient in the class's law is the sum of theirs, and with
        mass-weighted velocities the class average of jd-vl is jd-fl, for unequal classes and weights. 1e-12 of the largest
        entry: both solve the same cost matrix up to rounding.
        """
        motion, label = MOTIONS[name]
        source, target = labeled([5, 9, 14], dim, 1, weighted=True), labeled([12, 8], dim, 2, shift=2.0)
        cost = ad.GroundCost(label=label)
        fixed = first_velocity(source, ad.OTDD(target, cost=cost, solver=solver), ad.JointFixedLabels(motion))
        each = first_velocity(source, ad.OTDD(target, cost=cost, solver=solver), ad.JointVariableLabels(laws=motion))
        assert fixed.keys() == each.keys()
        scale = fixed["x"].abs().max().item()
        torch.testing.assert_close(fixed["x"], each["x"], rtol=0, atol=1e-12 * scale)
        for part in fixed.keys() - {"x"}:
            flat = each[part].reshape(len(source), -1)
            average = torch.zeros(3, flat.shape[1], dtype=torch.float64).index_add_(0, source.y, source.weights[:, None] * flat)
            average = (average / source.class_mass[:, None]).reshape(fixed[part].shape)
            assert fixed[part].abs().max() > 0.01
            torch.testing.assert_close(fixed[part], average, rtol=0, atol=1e-12 * fixed[part].abs().max().item())

    @pytest.mark.parametrize("name", MOTIONS)
    def test_law_gradients(self, name):
        """Law velocities are −∂F/∂law ÷ mass (twice that for Bures), by central differences of the energy: 1e-6 relative is
        what a step of 1e-5 leaves of a value converged to 1e-11.
        """
        motion, label = MOTIONS[name]
        source, target = labeled([4, 6], 2, 3), labeled([5, 5], 2, 4, shift=1.0)
        dynamics = ad.JointFixedLabels(motion)
        energy = ad.OTDD(target, cost=ad.GroundCost(label=label), solver=TIGHT)
        velocity = first_velocity(source, energy, dynamics)
        rho = dynamics.start(source)
        parameters = dynamics.parameters(rho)
        for part in parameters.keys() - {"x"}:

            def value(tensor, part=part):
                tensor = (tensor + tensor.mT) / 2 if part == "covariance" else tensor
                return energy(dynamics.attach(rho, {**parameters, part: tensor})).item()

            gradient = oracles.central_differences(value, parameters[part], step=1e-5)
            factor = 2.0 if name == "bures" and part == "covariance" else 1.0
            expected = -factor * gradient / rho.class_mass.reshape(-1, *[1] * (gradient.ndim - 1))
            torch.testing.assert_close(velocity[part], expected, rtol=1e-6, atol=1e-6)

    def test_factored_mass_reaches_every_row(self):
        """The rows of a factor carry the mass of their class: −∂F/∂A ÷ mass, by central differences (1e-6 as above)."""
        source, target = labeled([4, 7], 2, 5), labeled([5, 5], 2, 6, shift=1.0)
        dynamics, energy = ad.JointFixedLabels(ad.FactoredMotion()), ad.OTDD(target, cost=EXACT_LAWS, solver=TIGHT)
        velocity = first_velocity(source, energy, dynamics)
        rho = dynamics.start(source)
        parameters = dynamics.parameters(rho)

        def value(rows):
            return energy(dynamics.attach(rho, {**parameters, "factor": rows})).item()

        gradient = oracles.central_differences(value, parameters["factor"], step=1e-5)
        mass = rho.class_mass.repeat_interleave(torch.tensor(rho.law.covariance.sizes))
        torch.testing.assert_close(velocity["factor"], -gradient / mass[:, None], rtol=1e-6, atol=1e-6)

    def test_defaults_follow_the_dimension(self):
        for dim, kind in ((3, ad.Full), (70, ad.Factored)):
            assert isinstance(ad.JointFixedLabels().start(labeled([3, 4], dim, 1)).law.covariance, kind)
        for dim, kind in ((3, ad.Full), (9, ad.Diagonal)):
            assert isinstance(ad.JointVariableLabels().start(labeled([3, 4], dim, 1)).law.covariance, kind)

    def test_rows_without_mass_stay(self):
        source = ad.LabeledDataset(draw(4, 2), [0, 0, 1, 1], weights=[1.0, 1.0, 0.0, 0.0])
        target = labeled([3, 3], 2, 1, shift=5.0)
        for dynamics in (ad.FeatureDriven(), ad.JointFixedLabels(), ad.JointVariableLabels()):
            velocity = first_velocity(source, ad.OTDD(target, solver=ad.ExactOT()), dynamics)
            assert velocity["x"][2:].abs().max() == 0
            assert velocity["x"][:2].abs().min() > 0
            assert all(bool(torch.isfinite(part).all()) for part in velocity.values())

    def test_fixed_labels_keep_labels(self):
        source, target = labeled([6, 9], 2, 1), labeled([5, 5, 5], 2, 2, shift=3.0)
        last = ad.flow(source, ad.OTDD(target), dynamics=ad.JointFixedLabels(), n_steps=5).dataset
        assert torch.equal(last.y, source.y)
        assert last.classes == source.classes
        assert len(last.law) == 2
        assert last.law_index is None


class TestFeatureDriven:
    source, target = labeled([6, 8], 2, 1, weighted=True), labeled([7, 5], 2, 2, shift=1.0)

    @pytest.mark.parametrize(
        "label", [ad.Bures(), ad.Bures(diagonal=True), ad.MeansOnly(), ad.NoLabels(), ad.ExactLabelOT(TIGHT)]
    )
    def test_through_laws_is_the_gradient_of_the_energy(self, label):
        """1e-6: central differences with step 1e-5 of a value converged to 1e-11."""
        energy = ad.OTDD(self.target, cost=ad.GroundCost(label=label), solver=TIGHT)
        velocity = first_velocity(self.source, energy, ad.FeatureDriven(through_laws=True))["x"]
        gradient = oracles.central_differences(lambda x: energy(self.source.replace(x=x)).item(), self.source.x, step=1e-5)
        torch.testing.assert_close(velocity, -gradient / self.source.weights[:, None], rtol=1e-6, atol=1e-6)

    @pytest.mark.parametrize("label", [ad.Bures(), ad.MeansOnly(), ad.ExactLabelOT()])
    def test_detached_exact_velocity_is_the_map(self, label):
        """T(x) − x with the barycentric map of the exact plan; the label cost shapes the plan and nothing else."""
        cost = ad.GroundCost(label=label)
        velocity = first_velocity(self.source, ad.OTDD(self.target, cost=cost, solver=ad.ExactOT()), ad.FeatureDriven())["x"]
        plan = ad.otdd(self.source, self.target, cost=cost, solver=ad.ExactOT()).plan()
        image = plan @ self.target.x / self.source.weights[:, None]
        torch.testing.assert_close(velocity, image - self.source.x, rtol=1e-12, atol=1e-12)

    def test_detached_sinkhorn_velocity_is_map_minus_self_map(self):
        velocity = first_velocity(self.source, ad.OTDD(self.target, cost=EXACT_LAWS, solver=TIGHT), ad.FeatureDriven())["x"]
        solved = ad.otdd(self.source, self.target, solver=TIGHT).divergence
        images = solved.cross.plan() @ self.target.x - solved.source.plan() @ self.source.x
        # 1e-7: two plans with marginals to 1e-11, from different starts, divided by weights near 0.05
        torch.testing.assert_close(velocity, images / self.source.weights[:, None], rtol=1e-7, atol=1e-7)

    def test_detached_differs_where_laws_matter(self):
        energy = ad.OTDD(self.target, cost=EXACT_LAWS, solver=TIGHT)
        fixed, through = (
            first_velocity(self.source, energy, ad.FeatureDriven(through_laws=flag))["x"] for flag in (False, True)
        )
        assert (fixed - through).abs().max() > 0.1

    def test_through_laws_descends(self):
        run = states(
            self.source, ad.OTDD(self.target, cost=EXACT_LAWS, solver=TIGHT), 10, dynamics=ad.FeatureDriven(through_laws=True)
        )
        assert all(after.value < before.value for before, after in pairwise(run))

    def test_laws_are_estimated_anew(self):
        """Carried laws are dropped at the start, and those of a later state are the moments of its features."""
        carried = self.source.replace(law=self.target.moments())
        last = ad.flow(carried, ad.OTDD(self.target), n_steps=3).dataset
        assert last.law is None
        torch.testing.assert_close(last.laws().means[0], (last.weights[:6, None] * last.x[:6]).sum(0) / last.weights[:6].sum())


class TestBounds:
    @pytest.mark.parametrize("dynamics", [ad.FeatureDriven, ad.JointFixedLabels, ad.JointVariableLabels])
    def test_features_stay_inside(self, dynamics):
        # Once: with fd all particles meet in a corner, label distances vanish, and LaggedBures divides 0 by 0.
        x = torch.rand(12, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        source, target = ad.LabeledDataset(x, torch.arange(12) % 2), labeled([5, 6], 3, 2, shift=4.0)
        energy, options = ad.OTDD(target), {"integrator": ad.Euler(0.5), "n_steps": 4}
        bounded = ad.flow(source, energy, dynamics=dynamics(bounds=(0.0, 1.0)), **options).dataset.x
        assert bounded.min() >= 0
        assert bounded.max() == 1
        assert ad.flow(source, energy, dynamics=dynamics(), **options).dataset.x.max() > 2

    @pytest.mark.parametrize("dynamics", [ad.FeatureDriven, ad.JointFixedLabels, ad.JointVariableLabels])
    @pytest.mark.parametrize("bounds", [(1.0, 0.0), (0.0, 0.0), (0.0, 1.0, 2.0), (math.nan, 1.0), ()])
    def test_bad_bounds(self, dynamics, bounds):
        with pytest.raises(ad.InputError, match="bounds"):
            dynamics(bounds=bounds)


def clustered_laws(centres, sizes, seed=0):
    """Laws with means near centres and unit covariances."""
    means = torch.cat([torch.tensor(c).double() + 0.1 * draw(n, 2, seed=seed) for c, n in zip(centres, sizes, strict=True)])
    return ad.Gaussians(means, ad.Full(torch.eye(2, dtype=torch.float64).repeat(len(means), 1, 1)))


class TestVariableLabels:
    source_centres = torch.tensor([[0.0, 0.0], [6.0, 0.0], [3.0, 5.0]], dtype=torch.float64)
    target_centres = torch.tensor([[20.0, 0.0], [40.0, 0.0], [20.0, 20.0], [40.0, 20.0]], dtype=torch.float64)

    @staticmethod
    def around(centres, n, names, seed):
        x = torch.cat([centre + 0.7 * draw(n, 2, seed=seed + k) for k, centre in enumerate(centres)])
        return ad.LabeledDataset(x, torch.arange(len(centres)).repeat_interleave(n), classes=names)

    @pytest.mark.parametrize("clustering", [ad.KMeans(4), ad.DBSCAN()], ids=["kmeans", "dbscan"])
    @pytest.mark.parametrize("motion", [ad.EuclideanMotion(), ad.DiagonalMotion()], ids=["euclidean", "diagonal"])
    def test_three_classes_become_four(self, clustering, motion):
        """Target classes are 20 apart with deviation 0.7, so the classes at the end are told without doubt."""
        source = self.around(self.source_centres, 40, ["a", "b", "c"], 1)
        target = self.around(self.target_centres, 30, [10, 11, 12, 13], 11)
        dynamics = ad.JointVariableLabels(clustering, laws=motion)
        result = ad.flow(source, ad.OTDD(target), dynamics=dynamics, integrator=ad.Euler(0.2), n_steps=30)
        last = result.dataset
        alive = {name: count for name, count in last.counts.items() if count}
        assert len(alive) == 4
        assert last.classes[:3] == ("a", "b", "c")
        assert set(last.classes[3:]) and set(last.classes[3:]).isdisjoint(source.classes)
        nearest = torch.cdist(last.x, self.target_centres).argmin(dim=1)
        homes = [set(nearest[last.y == code].tolist()) for code in range(len(last.classes)) if (last.y == code).any()]
        assert sorted(map(sorted, homes)) == [[0], [1], [2], [3]]
        assert set(alive.values()) == {30}
        assert torch.cdist(last.x, self.target_centres).min(dim=1).values.max() < 4
        assert result.values[-1] < 1e-3 * result.values[0]

    def test_four_classes_become_two(self):
        """Classes that die keep their place and have no samples."""
        source = self.around(self.target_centres, 15, ["a", "b", "c", "d"], 1)
        target = self.around(self.source_centres[:1].expand(2, 2) + torch.tensor([[0.0, 0.0], [30.0, 30.0]]), 30, None, 21)
        dynamics = ad.JointVariableLabels(ad.DBSCAN(radius=3.0), laws=ad.BuresMotion())
        last = ad.flow(source, ad.OTDD(target), dynamics=dynamics, integrator=ad.Euler(0.2), n_steps=30).dataset
        assert last.classes[:4] == ("a", "b", "c", "d")
        counts = sorted(last.counts.values())  # classes that were born on the way have died as well
        assert counts == [0] * (len(counts) - 2) + [30, 30]

    def test_every(self):
        """With every=3 the labels are read off after moves 3, 6, 9, …"""
        asked = []

        def clustering(points, previous):
            asked.append(points.shape)
            return np.zeros(len(points), dtype=int)

        source, target = labeled([5, 5], 2, 1), labeled([5, 5], 2, 2, shift=2.0)
        dynamics = ad.JointVariableLabels(clustering, every=3)
        run = states(source, ad.OTDD(target), 7, dynamics=dynamics)
        assert len(asked) == 2
        assert asked[0] == (10, 2 + 4)
        changed = [not torch.equal(step.dataset.y, source.y) for step in run]
        assert changed == [False] * 3 + [True] * 5

    @pytest.mark.parametrize("every", [0, -1, 1.5])
    def test_bad_every(self, every):
        with pytest.raises(ad.InputError, match="every"):
            ad.JointVariableLabels(every=every)

    def test_factored_laws_are_refused(self):
        with pytest.raises(ad.InputError, match="FactoredMotion"):
            ad.JointVariableLabels(laws=ad.FactoredMotion())

    def test_any_clusterer(self):
        from sklearn.cluster import AgglomerativeClustering, MeanShift

        source, target = labeled([8, 8], 2, 1, apart=10), labeled([8, 8], 2, 2, shift=3.0, apart=10)
        for estimator in (AgglomerativeClustering(2), MeanShift(bandwidth=5)):
            dynamics = ad.JointVariableLabels(ad.AnyClusterer(estimator))
            last = ad.flow(source, ad.OTDD(target), dynamics=dynamics, n_steps=4).dataset
            assert torch.equal(last.y, source.y)
            assert not hasattr(estimator, "labels_")  # cloned for each use

    def test_new_names_avoid_old_ones(self):
        """Born classes are named by the next numbers that are free."""
        source = ad.LabeledDataset(draw(12, 2), [0] * 6 + [2] * 6, classes=[0, 2])

        def four(points, previous):
            return np.arange(len(points)) % 4

        target = labeled([6, 6], 2, 1)
        step = states(source, ad.OTDD(target), 1, dynamics=ad.JointVariableLabels(four))[1]
        assert step.dataset.classes == (0, 2, 1, 3)
        assert set(step.dataset.counts.values()) == {3}


class TestClustering:
    before = torch.tensor([0] * 6 + [1] * 6)

    def test_survivors_keep_their_places_whatever_the_clusters_are_called(self):
        laws = clustered_laws([(0.0, 0.0), (20.0, 0.0)], [6, 6])
        for found in ([5] * 6 + [2] * 6, [0] * 6 + [1] * 6, [1] * 6 + [0] * 6):
            assert torch.equal(relabel(laws, self.before, lambda p, q, found=found: np.array(found)), self.before)

    def test_birth_and_death(self):
        laws = clustered_laws([(0.0, 0.0), (20.0, 0.0)], [6, 6])
        born = relabel(laws, self.before, lambda p, q: np.array([0] * 4 + [1] * 2 + [2] * 6))
        assert born.tolist() == [0] * 4 + [2] * 2 + [1] * 6
        dead = relabel(laws, self.before, lambda p, q: np.zeros(12, dtype=int))
        assert dead.unique().numel() == 1
        assert dead[0] in (0, 1)

    def test_largest_overlap_claims_the_name(self):
        laws = clustered_laws([(0.0, 0.0), (20.0, 0.0)], [6, 6])
        found = relabel(laws, self.before, lambda p, q: np.array([0] * 5 + [1] * 7))
        assert found.tolist() == [0] * 5 + [1] * 7

    def test_noise_joins_the_nearest_cluster(self):
        laws = clustered_laws([(0.0, 0.0), (20.0, 0.0), (12.0, 0.0)], [6, 5, 1])
        assert ad.DBSCAN(radius=2.0)(law_points(laws), self.before.numpy())[-1] == -1
        assert relabel(laws, torch.tensor([0] * 6 + [1] * 5 + [0]), ad.DBSCAN(radius=2.0)).tolist() == [0] * 6 + [1] * 6

    def test_all_noise_changes_nothing(self):
        laws = clustered_laws([(100.0 * k, 0.0) for k in range(12)], [1] * 12)
        assert torch.equal(relabel(laws, self.before, ad.DBSCAN()), self.before)
        source = ad.LabeledDataset(draw(8, 2), [0, 1] * 4)
        dynamics = ad.JointVariableLabels(ad.DBSCAN(radius=1e-9, min_points=8))
        last = ad.flow(source, ad.OTDD(labeled([4, 4], 2, 1)), dynamics=dynamics, n_steps=2).dataset
        assert torch.equal(last.y, source.y)

    def test_points_resemble_w2(self):
        """Squared distances of law points: exact for diagonal laws and for commuting covariances, to rounding."""
        deviations = draw(6, 3, seed=1).abs()
        for covariance in (ad.Diagonal(deviations), ad.Full(torch.diag_embed(deviations.square()))):
            laws = ad.Gaussians(draw(6, 3, seed=2), covariance)
            points = law_points(laws)
            squared = ((points[:, None] - points[None]) ** 2).sum(-1)
            np.testing.assert_allclose(squared, ad.bures(laws, laws).numpy(), atol=1e-12)

    def test_kmeans(self):
        points = np.concatenate([np.random.default_rng(0).normal(size=(10, 2)) + c for c in ([0, 0], [9, 0], [0, 9])])
        truth = np.repeat([0, 1, 2], 10)
        assert np.array_equal(ad.KMeans()(points, truth), truth)  # started from the clusters before: the same order
        assert len(np.unique(ad.KMeans(2)(points, truth))) == 2
        assert len(np.unique(ad.KMeans(4)(points, truth))) == 4
        assert len(np.unique(ad.KMeans(5)(np.array([[0.0], [0.0], [1.0]]), np.zeros(3, dtype=int)))) == 2

    def test_bad_options(self):
        for make in (
            lambda: ad.KMeans(0),
            lambda: ad.KMeans(2.5),
            lambda: ad.DBSCAN(radius=0),
            lambda: ad.DBSCAN(min_points=0),
        ):
            with pytest.raises(ad.InputError):
                make()


def bowl(x, y=None):
    """A smooth potential with all kinds of curvature, one value for each row."""
    return (x.square() * torch.tensor([0.5, 2.0, 0.1], dtype=x.dtype)).sum(1) + x.pow(4).sum(1) / 8 + x[:, 0] * x[:, 1]


class TestIntegrators:
    """Velocities are −∇V for a potential whatever the weights, so the schemes are those of torch.optim on Σ V(x_i)."""

    source = ad.LabeledDataset(draw(6, 3, seed=1), [0] * 6, weights=[1, 2, 3, 4, 5, 6])

    def by_torch(self, make, n_steps):
        x = self.source.x.clone().requires_grad_()
        optimizer = make([x])
        for _ in range(n_steps):
            optimizer.zero_grad()
            bowl(x).sum().backward()
            optimizer.step()
        return x.detach()

    @pytest.mark.parametrize(
        ("ours", "theirs"),
        [
            (ad.Euler(0.05), lambda p: torch.optim.SGD(p, 0.05)),
            (ad.Momentum(0.02), lambda p: torch.optim.SGD(p, 0.02, momentum=0.9)),
            (ad.Momentum(0.02, momentum=0.0), lambda p: torch.optim.SGD(p, 0.02)),
            (ad.Momentum(0.02, momentum=0.5, nesterov=True), lambda p: torch.optim.SGD(p, 0.02, momentum=0.5, nesterov=True)),
            (ad.Adam(0.1), lambda p: torch.optim.Adam(p, 0.1)),
            (ad.Adam(0.1, beta1=0.5, beta2=0.8, floor=1e-3), lambda p: torch.optim.Adam(p, 0.1, betas=(0.5, 0.8), eps=1e-3)),
            (ad.Adagrad(0.3), lambda p: torch.optim.Adagrad(p, 0.3)),
            (ad.Adagrad(0.3, floor=0.01), lambda p: torch.optim.Adagrad(p, 0.3, eps=0.01)),
            (ad.EulerMaruyama(0.05, temperature=0.0), lambda p: torch.optim.SGD(p, 0.05)),
        ],
    )
    def test_as_torch(self, ours, theirs):
        last = states(self.source, ad.Potential(bowl), 40, integrator=ours)[-1].dataset.x
        torch.testing.assert_close(last, self.by_torch(theirs, 40), rtol=1e-10, atol=1e-10)

    def test_noise_is_what_it_says(self):
        """x + τ v + √(2 τ T) ξ with ξ from the generator, on the features alone."""
        integrator, generator = ad.EulerMaruyama(0.2, temperature=0.3), torch.Generator().manual_seed(7)
        velocity = {"x": draw(5, 2, seed=1), "mean": draw(3, 2, seed=2)}
        displacement, state = integrator.displace(velocity, integrator.init(velocity), 0, generator)
        noise = torch.randn(5, 2, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
        torch.testing.assert_close(displacement["x"], 0.2 * velocity["x"] + math.sqrt(0.12) * noise, rtol=0, atol=1e-15)
        assert torch.equal(displacement["mean"], 0.2 * velocity["mean"])
        assert state == {}

    def test_noise_is_repeatable(self):
        runs = [
            states(
                self.source,
                ad.Potential(bowl),
                5,
                integrator=ad.EulerMaruyama(0.01),
                generator=torch.Generator().manual_seed(s),
            )
            for s in (1, 1, 2)
        ]
        first, again, other = (run[-1].dataset.x for run in runs)
        assert torch.equal(first, again)
        assert not torch.equal(first, other)

    def test_noise_without_generator(self):
        torch.manual_seed(0)
        moved = states(self.source, ad.Potential(bowl), 1, integrator=ad.EulerMaruyama(0.01))[1].dataset.x
        assert not torch.equal(moved, states(self.source, ad.Potential(bowl), 1, integrator=ad.Euler(0.01))[1].dataset.x)

    @pytest.mark.parametrize(
        "integrator", [ad.Euler(0.1), ad.EulerMaruyama(0.1), ad.Momentum(0.1), ad.Adam(0.1), ad.Adagrad(0.1)]
    )
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_all_tensors_move_and_keep_their_type(self, integrator, dtype):
        source, target = labeled([5, 7], 2, 1).to(dtype=dtype), labeled([6, 6], 2, 2, shift=3.0).to(dtype=dtype)
        dynamics = ad.JointFixedLabels()
        first, *_, last = states(
            source, ad.OTDD(target), 3, dynamics=dynamics, integrator=integrator, generator=torch.Generator().manual_seed(0)
        )
        before, after = dynamics.parameters(first.dataset), dynamics.parameters(last.dataset)
        for name in ("x", "mean", "covariance"):
            assert after[name].dtype == dtype
            assert not torch.equal(before[name], after[name])
        assert last.value < first.value

    @pytest.mark.parametrize("make", [ad.Euler, ad.EulerMaruyama, ad.Momentum, ad.Adam, ad.Adagrad])
    def test_schedules(self, make):
        """A schedule is asked for every step by its number, counted from 0, and each step is that much longer."""
        velocity, asked = {"x": draw(4, 2)}, []

        def schedule(step):
            asked.append(step)
            return 0.1 * (step + 1)

        options = {"temperature": 0.0} if make is ad.EulerMaruyama else {}
        varied, constant = make(schedule, **options), make(0.1, **options)
        state = constant.init(velocity)
        for step in range(3):
            longer, _ = varied.displace(velocity, state, step, None)
            plain, state = constant.displace(velocity, state, step, None)
            torch.testing.assert_close(longer["x"], (step + 1) * plain["x"], rtol=1e-14, atol=0)
        assert asked == [0, 1, 2]

    def test_decay(self):
        """Euler on ½‖x‖² multiplies by Π (1 − τ_k), to rounding."""
        schedule = ad.Decay(0.4, half_life=2, last=0.15)
        assert [schedule(k) for k in (0, 2, 4)] == [0.4, 0.2, 0.15]
        assert ad.Decay(0.4, half_life=2)(20) == pytest.approx(0.4 / 1024)
        last = states(self.source, ad.Potential(lambda x, y: x.square().sum(1) / 2), 6, integrator=ad.Euler(schedule))[-1]
        factor = math.prod(1 - max(0.4 * 0.5 ** (k / 2), 0.15) for k in range(6))
        torch.testing.assert_close(last.dataset.x, factor * self.source.x, rtol=1e-13, atol=0)

    @pytest.mark.parametrize("make", [ad.Euler, ad.EulerMaruyama, ad.Momentum, ad.Adam, ad.Adagrad])
    @pytest.mark.parametrize("size", [0, -0.1, math.nan, math.inf, "0.1", None])
    def test_bad_step_size(self, make, size):
        with pytest.raises(ad.InputError, match="step_size"):
            make(size)

    def test_bad_schedule(self):
        with pytest.raises(ad.InputError, match="step_size at step 3"):
            step_size_at(lambda step: 0.3 - 0.1 * step if step < 3 else -1.0, 3)
        with pytest.raises(ad.InputError, match="step_size at step 1"):
            states(self.source, ad.Potential(bowl), 3, integrator=ad.Euler(lambda step: 0.1 - 0.1 * step))

    @pytest.mark.parametrize(
        ("make", "options", "name"),
        [
            (ad.Momentum, {"momentum": 1.0}, "momentum"),
            (ad.Momentum, {"momentum": -0.1}, "momentum"),
            (ad.Adam, {"beta1": 1.0}, "beta1"),
            (ad.Adam, {"beta2": -0.1}, "beta2"),
            (ad.Adam, {"beta2": math.nan}, "beta2"),
            (ad.Adam, {"floor": 0.0}, "floor"),
            (ad.Adagrad, {"floor": 0.0}, "floor"),
            (ad.EulerMaruyama, {"temperature": -1.0}, "temperature"),
            (ad.EulerMaruyama, {"temperature": "hot"}, "temperature"),
            (ad.Decay, {"first": 0.0, "half_life": 1}, "first"),
            (ad.Decay, {"first": 0.1, "half_life": 0}, "half_life"),
            (ad.Decay, {"first": 0.1, "half_life": 1, "last": -1}, "last"),
        ],
    )
    def test_bad_options(self, make, options, name):
        with pytest.raises(ad.InputError, match=name):
            make(**options)


MATRICES, OFFSETS = draw(3, 2, 4, seed=11), draw(3, 2, seed=12)
DIRECTION, CENTRE = draw(4, seed=13), draw(4, seed=14)
POTENTIALS = {  # name: (potential, the same for one sample in numpy)
    "norm": (ad.norm(), lambda x, y: np.linalg.norm(x)),
    "affine": (
        ad.affine_norm(MATRICES[0], OFFSETS[0]),
        lambda x, y: np.linalg.norm(MATRICES[0].numpy() @ x - OFFSETS[0].numpy()),
    ),
    "affine no offset": (ad.affine_norm(MATRICES[0]), lambda x, y: np.linalg.norm(MATRICES[0].numpy() @ x)),
    "affine each": (
        ad.affine_norm(MATRICES, OFFSETS),
        lambda x, y: np.linalg.norm(MATRICES[y].numpy() @ x - OFFSETS[y].numpy()),
    ),
    "affine each, no offset": (ad.affine_norm(MATRICES), lambda x, y: np.linalg.norm(MATRICES[y].numpy() @ x)),
    "affine shared offset": (
        ad.affine_norm(MATRICES, OFFSETS[1]),
        lambda x, y: np.linalg.norm(MATRICES[y].numpy() @ x - OFFSETS[1].numpy()),
    ),
    "affine shared matrix": (
        ad.affine_norm(MATRICES[2], OFFSETS),
        lambda x, y: np.linalg.norm(MATRICES[2].numpy() @ x - OFFSETS[y].numpy()),
    ),
    "affine some": (
        ad.affine_norm(MATRICES, OFFSETS, classes=[0, 2]),
        lambda x, y: np.linalg.norm(MATRICES[y].numpy() @ x - OFFSETS[y].numpy()) if y in (0, 2) else 0.0,
    ),
    "ball": (ad.ball(CENTRE, 1.5), lambda x, y: max(np.linalg.norm(x - CENTRE.numpy()) - 1.5, 0)),
    "hinge": (ad.hinge(DIRECTION), lambda x, y: max(0, (1 if y == 1 else -1) * (x @ DIRECTION.numpy()))),
    "hinge options": (
        ad.hinge(DIRECTION, 0.3, margin=0.7, positive=[0, 2]),
        lambda x, y: max(0, 0.7 + (1 if y in (0, 2) else -1) * (x @ DIRECTION.numpy() - 0.3)),
    ),
    "collapse": (ad.collapse(2), lambda x, y: x[2] ** 2 / 2),
    "collapse value": (ad.collapse(-1, 0.4), lambda x, y: (x[-1] - 0.4) ** 2 / 2),
}


class TestPotential:
    data = labeled([5, 4, 6], 4, 3, weighted=True)

    @pytest.mark.parametrize("name", POTENTIALS)
    def test_ready_made(self, name):
        """Values to rounding; gradients to the 1e-8 that central differences with step 1e-6 leave."""
        v, plain = POTENTIALS[name]
        energy = ad.Potential(v)
        expected = sum(
            w * plain(x, y)
            for w, x, y in zip(self.data.weights.tolist(), self.data.x.numpy(), self.data.y.tolist(), strict=True)
        )
        assert energy(self.data).item() == pytest.approx(expected, rel=1e-13)
        velocity = first_velocity(self.data, energy, ad.FeatureDriven())["x"]
        gradient = oracles.central_differences(lambda x: energy(self.data.replace(x=x)).item(), self.data.x)
        torch.testing.assert_close(-velocity * self.data.weights[:, None], gradient, rtol=1e-7, atol=1e-8)

    @pytest.mark.parametrize("name", ["norm", "affine no offset", "affine each, no offset", "ball"])
    def test_no_direction_at_the_minimum(self, name):
        v, _ = POTENTIALS[name]
        origin = CENTRE if name == "ball" else torch.zeros(4, dtype=torch.float64)
        velocity = first_velocity(ad.LabeledDataset(origin.repeat(2, 1), [0, 1]), ad.Potential(v), ad.FeatureDriven())
        assert torch.equal(velocity["x"], torch.zeros(2, 4, dtype=torch.float64))

    def test_plain_lists_and_float32(self):
        data = ad.LabeledDataset([[3.0, 4.0], [0.0, 1.0]], ["a", "b"])
        assert data.x.dtype == torch.float32
        for v in (ad.affine_norm([[1, 0], [0, 1]]), ad.ball([0, 0], 0), ad.norm()):
            assert ad.Potential(v)(data).item() == pytest.approx(3.0)
        assert ad.Potential(ad.hinge([1, 1]))(data).item() == pytest.approx(0.5)

    def test_separates_classes(self):
        """The flow of the hinge ends at its minimum, 0: linearly separated with the margin asked for."""
        data = labeled([20, 20], 2, 1, apart=0.0)
        result = ad.flow(data, ad.Potential(ad.hinge([1.0, 0.0], 0.2, margin=0.3)), n_steps=60)
        side = result.dataset.x[:, 0] - 0.2
        assert result.values[-1] == 0
        assert side[result.dataset.y == 1].max() <= -0.3
        assert side[result.dataset.y == 0].min() >= 0.3

    def test_bad_input(self):
        for make in (
            lambda: ad.Potential(3.0),
            lambda: ad.Potential(lambda x, y: x)(self.data),
            lambda: ad.Potential(lambda x, y: x.sum())(self.data),
            lambda: ad.affine_norm([[1.0, 0.0]], [1.0, 2.0]),
            lambda: ad.affine_norm([1.0, 0.0]),
            lambda: ad.affine_norm([[1.0]], 1.0),
            lambda: ad.ball([0.0], -1.0),
            lambda: ad.hinge([1.0], margin=-1.0),
        ):
            with pytest.raises(ad.InputError):
                make()


INTERACTIONS = {  # name: (radial form, general form, one pair in numpy)
    "repulsion": (
        ad.repulsion(),
        lambda dx, same: torch.exp(-torch.linalg.vector_norm(dx, dim=-1)) * ~same,
        lambda d, same: 0.0 if same else math.exp(-np.linalg.norm(d)),
    ),
    "repulsion length": (
        ad.repulsion(2.5),
        lambda dx, same: torch.exp(-torch.linalg.vector_norm(dx, dim=-1) / 2.5) * ~same,
        lambda d, same: 0.0 if same else math.exp(-np.linalg.norm(d) / 2.5),
    ),
    "spreading": (
        ad.spreading(),
        lambda dx, same: -dx.square().sum(-1) * ~same,
        lambda d, same: 0.0 if same else -float(d @ d),
    ),
    "attraction": (
        ad.attraction(),
        lambda dx, same: dx.square().sum(-1) / 2 * same,
        lambda d, same: float(d @ d) / 2 if same else 0.0,
    ),
    "own": (
        ad.Radial(lambda squared, same: torch.log1p(squared) + same),
        lambda dx, same: torch.log1p(dx.square().sum(-1)) + same,
        lambda d, same: math.log1p(d @ d) + same,
    ),
}


class TestInteraction:
    data = labeled([7, 4, 6], 3, 5, weighted=True)

    @pytest.mark.parametrize("name", INTERACTIONS)
    @pytest.mark.parametrize("entries", [1, 100, 4_000_000])
    def test_blocks_forms_and_double_loop(self, monkeypatch, name, entries):
        """Rows one by one, in blocks with a remainder, all at once; radial or general: the same, to 1e-12."""
        monkeypatch.setattr(interaction, "_BLOCK_ENTRIES", entries)
        radial, general, plain = INTERACTIONS[name]
        x, y, w = self.data.x.numpy(), self.data.y.numpy(), self.data.weights.numpy()
        pairs = [(i, j) for i in range(len(x)) for j in range(len(x))]
        expected = sum(w[i] * w[j] * plain(x[i] - x[j], bool(y[i] == y[j])) for i, j in pairs) / 2
        velocities = []
        for form in (radial, general):
            assert ad.Interaction(form)(self.data).item() == pytest.approx(expected, rel=1e-12)
            velocities.append(first_velocity(self.data, ad.Interaction(form), ad.FeatureDriven())["x"])
        torch.testing.assert_close(velocities[0], velocities[1], rtol=1e-12, atol=1e-12)

    @pytest.mark.parametrize("name", INTERACTIONS)
    def test_gradient(self, name):
        """1e-8 is what central differences with step 1e-6 leave."""
        energy = ad.Interaction(INTERACTIONS[name][0])
        velocity = first_velocity(self.data, energy, ad.FeatureDriven())["x"]
        gradient = oracles.central_differences(lambda x: energy(self.data.replace(x=x)).item(), self.data.x)
        torch.testing.assert_close(-velocity * self.data.weights[:, None], gradient, rtol=1e-7, atol=1e-8)

    @pytest.mark.parametrize("name", INTERACTIONS)
    def test_coinciding_points(self, name):
        """Two particles at one place have no direction: finite velocities, as if the pair were not there."""
        x = self.data.x.clone()
        x[8], x[9] = x[0], x[1]  # of another class
        radial, general, _ = INTERACTIONS[name]
        a, b = (
            first_velocity(self.data.replace(x=x), ad.Interaction(form), ad.FeatureDriven())["x"] for form in (radial, general)
        )
        assert bool(torch.isfinite(a).all())
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)  # ‖dx‖² of a coinciding pair is 0 only up to rounding

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("name", INTERACTIONS)
    def test_far_from_the_origin(self, name, dtype):
        """Only differences count. A shift by 4096 rounds the features themselves to 2.5e-4 in float32 and 5e-13 in float64; the
        shifted features, moved back exactly, are the fair comparison, and then a rounding of the differences is left.
        """
        # Once: ‖x‖² + ‖x'‖² − 2x·x' without a common centre loses all digits of the differences far from the origin.
        far = (self.data.x + 4096).to(dtype)
        near = far - 4096
        energy = ad.Interaction(INTERACTIONS[name][0])
        tolerance = 1e-5 if dtype == torch.float32 else 1e-11
        shifted, plain = (self.data.replace(x=x) for x in (far, near))
        assert energy(shifted).item() == pytest.approx(energy(plain).item(), rel=tolerance)
        velocities = [first_velocity(data, energy, ad.FeatureDriven())["x"] for data in (shifted, plain)]
        torch.testing.assert_close(*velocities, rtol=10 * tolerance, atol=10 * tolerance)

    def test_constant_interaction_moves_nothing(self):
        energy = ad.Interaction(lambda dx, same: same.to(dx.dtype))
        step = states(self.data, energy, 1)[1]
        assert torch.equal(step.dataset.x, self.data.x)

    def test_repulsion_drives_classes_apart(self):
        data = labeled([10, 10], 2, 1, apart=0.5)
        result = ad.flow(data, ad.Interaction(ad.repulsion()), integrator=ad.Euler(0.5), n_steps=60)
        assert all(after < before for before, after in pairwise(result.values))
        before, after = (np.diff(d.laws().means.numpy(), axis=0) for d in (data, result.dataset))
        assert np.linalg.norm(after) > 1.2 * np.linalg.norm(before)

    def test_bad_input(self):
        for make in (
            lambda: ad.Interaction(3.0),
            lambda: ad.Interaction(lambda dx, same: dx)(self.data),
            lambda: ad.Interaction(ad.Radial(lambda squared, same: squared.sum()))(self.data),
            lambda: ad.repulsion(0.0),
        ):
            with pytest.raises(ad.InputError):
                make()


def internal_by_loops(data, power, h, by_class):
    x, y, w = data.x.numpy(), data.y.numpy(), data.weights.numpy()
    total = 0.0
    for i in range(len(x)):
        kernel = np.exp(-((x[i] - x) ** 2).sum(1) / (2 * h**2)) / (2 * math.pi * h**2) ** (x.shape[1] / 2)
        density = (w * kernel * ((y == y[i]) if by_class else 1)).sum()
        total += w[i] * (math.log(density) if power == 1 else density ** (power - 1) / (power - 1))
    return total


class TestInternal:
    data = labeled([7, 4, 6], 2, 6, weighted=True)

    @pytest.mark.parametrize("by_class", [False, True])
    @pytest.mark.parametrize("power", [1, 1.5, 2, 3])
    def test_value_and_gradient(self, power, by_class):
        """Values to 1e-12; gradients to the 1e-7 of central differences with step 1e-6."""
        energy = ad.Internal(power, bandwidth=0.8, by_class=by_class)
        assert energy(self.data).item() == pytest.approx(internal_by_loops(self.data, power, 0.8, by_class), rel=1e-12)
        velocity = first_velocity(self.data, energy, ad.FeatureDriven())["x"]
        gradient = oracles.central_differences(lambda x: energy(self.data.replace(x=x)).item(), self.data.x)
        torch.testing.assert_close(-velocity * self.data.weights[:, None], gradient, rtol=1e-6, atol=1e-8)

    @pytest.mark.parametrize("dim", [1, 2, 5])
    def test_silverman(self, dim):
        """Without a bandwidth, σ (4 / ((d + 2) n))^(1/(d + 4)) with σ² the mean variance of the coordinates."""
        data = labeled([30], dim, 7)
        h = math.sqrt(data.x.numpy().var(axis=0, ddof=1).mean()) * (4 / ((dim + 2) * 30)) ** (1 / (dim + 4))
        assert ad.Internal()(data).item() == pytest.approx(ad.Internal(bandwidth=h)(data).item(), rel=1e-12)

    def test_silverman_of_one_point(self):
        for x in ([[1.0, 2.0]], [[1.0, 2.0]] * 3):
            assert math.isfinite(ad.Internal()(ad.LabeledDataset(x, [0] * len(x))).item())

    def test_limit_of_powers(self):
        """(r^(m−1) − 1)/(m − 1) → log r: the entropy is the limit m → 1, with an error of order m − 1."""
        m = 1 + 1e-6
        assert ad.Internal(m, bandwidth=0.5)(self.data).item() - 1 / (m - 1) == pytest.approx(
            ad.Internal(1, bandwidth=0.5)(self.data).item(), abs=1e-4
        )

    def test_classes_spread_alone(self):
        """by_class: two classes at one place do not feel each other, so both move like one class alone at half the density."""
        x = draw(12, 1, seed=8)
        both = ad.LabeledDataset(torch.cat([x, x]), [0] * 12 + [1] * 12)
        for power, factor in ((1, 1.0), (2, 0.5)):
            energy = ad.Internal(power, bandwidth=0.5, by_class=True)
            pair = first_velocity(both, energy, ad.FeatureDriven())["x"]
            alone = first_velocity(ad.LabeledDataset(x, [0] * 12), energy, ad.FeatureDriven())["x"]
            torch.testing.assert_close(pair, factor * torch.cat([alone, alone]), rtol=1e-12, atol=1e-12)

    def test_bad_options(self):
        for make in (
            lambda: ad.Internal(0.5),
            lambda: ad.Internal(-1),
            lambda: ad.Internal(bandwidth=0),
            lambda: ad.Internal("2"),
        ):
            with pytest.raises(ad.InputError):
                make()


class Named(ad.Functional):
    """Σ w x_1, scaled, under a name of one's own."""

    def __init__(self, name, scale=1.0):
        self.label, self.scale = name, scale

    @property
    def name(self):
        return self.label

    def __call__(self, rho):
        return self.scale * (rho.weights * rho.x[:, 0]).sum()


class TestAlgebra:
    data = labeled([4, 5], 2, 1)
    f, g = ad.Potential(ad.norm()), ad.Interaction(ad.attraction())

    def test_values(self):
        f, g = self.f(self.data).item(), self.g(self.data).item()
        for combined, expected in (
            (self.f + self.g, f + g),
            (self.f - self.g, f - g),
            (-self.f, -f),
            (3 * self.f, 3 * f),
            (self.f * 0.5, f / 2),
            (2 * (self.f + 3 * self.g) - 0.5 * self.f, 2 * (f + 3 * g) - f / 2),
            (-(self.f - self.g) * 2, -2 * (f - g)),
            (0 * self.f, 0.0),
        ):
            assert combined(self.data).item() == pytest.approx(expected, rel=1e-14, abs=1e-14)
            assert math.fsum(v.item() for v in combined.terms(self.data).values()) == pytest.approx(
                expected, rel=1e-14, abs=1e-14
            )

    def test_gradients_add_up(self):
        f, g = (first_velocity(self.data, part, ad.FeatureDriven())["x"] for part in (self.f, self.g))
        both = first_velocity(self.data, 2 * self.f - self.g, ad.FeatureDriven())["x"]
        torch.testing.assert_close(both, 2 * f - g, rtol=1e-13, atol=1e-13)

    def test_names(self):
        def names(functional):
            return list(functional.terms(self.data))

        assert names(self.f + self.g) == ["Potential", "Interaction"]
        assert names(self.f + self.f + self.f) == ["Potential", "Potential (2)", "Potential (3)"]
        assert names(0.5 * self.f + self.f) == ["0.5 Potential", "Potential"]
        assert names(2 * (self.f + self.g + self.f)) == ["2 Potential", "2 Interaction", "2 Potential (2)"]
        assert names(self.f - self.g) == ["Potential", "-1 Interaction"]
        assert (2 * self.f + self.g).name == "2 Potential + Interaction"
        assert (2 * (0.5 * self.f)).name == "2 0.5 Potential"

    def test_nested_sums_are_flat(self):
        total = (self.f + self.g) + (self.g + (self.f + self.f))
        assert len(total.functionals) == 5
        assert len(total.terms(self.data)) == 5

    @pytest.mark.parametrize("names", [["A (2)", "A"], ["A", "A (3)", "A"], ["A", "A (2)", "A", "A (2)"], ["A (2)", "A", "A"]])
    def test_no_name_hides_a_term(self, names):
        # Once: a name that looks numbered already is overwritten by a later term, which then drops out of value and gradient.
        total = ad.Sum(*(Named(name, 10.0**k) for k, name in enumerate(names)))
        assert len(total.terms(self.data)) == len(names)
        expected = sum(10.0**k for k in range(len(names))) * self.data.x[:, 0].mean().item()
        assert total(self.data).item() == pytest.approx(expected, rel=1e-12)

    def test_misuse(self):
        with pytest.raises(ad.InputError, match="scaled by a number"):
            self.f * self.g
        with pytest.raises(TypeError):
            self.f + 1
        with pytest.raises(ad.InputError, match="factor"):
            math.nan * self.f
        with pytest.raises(ad.InputError, match="at least one"):
            ad.Sum()
        with pytest.raises(NotImplementedError):
            ad.Functional()(self.data)

    def test_terms_of_a_flow(self):
        result = ad.flow(self.data, self.f + 0.5 * self.g, n_steps=3)
        assert list(result.terms) == ["Potential", "0.5 Interaction"]
        for k, value in enumerate(result.values):
            assert value == pytest.approx(sum(part[k] for part in result.terms.values()), rel=1e-14)

    def test_five_lines_of_ones_own(self):
        class StayNear(ad.Functional):
            def __init__(self, anchor):
                self.anchor = anchor

            def __call__(self, rho):
                return (rho.weights * (rho.x - self.anchor).square().sum(1)).sum()

        start = self.data.replace(x=self.data.x + 1)
        result = ad.flow(start, 0.5 * StayNear(self.data.x), integrator=ad.Euler(0.25), n_steps=4)
        torch.testing.assert_close(result.dataset.x, self.data.x + 0.75**4, rtol=0, atol=1e-14)
        assert list(result.terms) == ["0.5 StayNear"]
        balance = ad.flow(start, StayNear(self.data.x) + StayNear(self.data.x + 2), integrator=ad.Euler(0.25), n_steps=4)
        torch.testing.assert_close(balance.dataset.x, self.data.x + 1, rtol=0, atol=1e-14)


class Counting(ad.Functional):
    """A potential, and how often it has been asked, as a memory."""

    def __init__(self):
        self.calls = 0

    def __call__(self, rho):
        self.calls += 1
        return (rho.weights * rho.x.square().sum(1)).sum()

    def reset(self):
        self.calls = 0

    def state(self):
        return {"calls": torch.tensor(self.calls)}

    def load_state(self, state):
        self.calls = int(state["calls"])


class TestMemory:
    source, near, far = labeled([9, 8], 2, 1), labeled([7, 9], 2, 2, shift=1.0), labeled([6, 6], 2, 3, shift=4.0)

    def build(self):
        counting = Counting()
        total = 0.5 * ad.OTDD(self.near) + ad.Potential(ad.norm()) + 2 * (ad.OTDD(self.far) + 3 * counting) - counting
        return total, counting

    def test_state_passes_through_sums_and_factors(self):
        # Once: OTDD.load_state then OTDD.state drops "lag.…" until the next call, and a flow takes its snapshots before calls.
        total, counting = self.build()
        for shift in (0.0, 0.1, 0.2):
            total(self.source.replace(x=self.source.x + shift))
        assert counting.calls == 6
        kept = total.state()
        assert all(isinstance(value, torch.Tensor) for value in kept.values())
        other, other_counting = self.build()
        other.load_state(kept)
        assert other_counting.calls == 6
        assert other.state().keys() == kept.keys()
        assert all(torch.equal(value, other.state()[name]) for name, value in kept.items())

    def test_restored_functionals_are_the_same_bit_for_bit(self):
        # Once: OTDD.state keeps the value of the target's problem in float32, so energies change by 1e-8 after a resume.
        total, _ = self.build()
        total(self.source)
        other, _ = self.build()
        other.load_state(total.state())
        moved = self.source.replace(x=self.source.x + 0.1)
        assert other(moved).item() == total(moved).item()

    def test_restored_memory_keeps_epsilon(self):
        """A relative epsilon is fixed by the first state of a flow; restored, it does not follow the later one."""
        energy, other = ad.OTDD(self.far), ad.OTDD(self.far)
        energy(self.source)
        other.load_state(energy.state())
        moved = self.source.replace(x=self.source.x * 5)
        other(moved)
        assert other.state()["epsilon"] == energy.state()["epsilon"]
        other.reset()
        assert other.state() == {}
        other(moved)
        assert other.state()["epsilon"] > 1.1 * energy.state()["epsilon"]

    def test_empty_state_forgets(self):
        energy = ad.OTDD(self.near)
        energy(self.source)
        energy.load_state({})
        assert energy.state() == {}

    def test_reset_reaches_every_part(self):
        total, counting = self.build()
        total(self.source)
        total.reset()
        assert counting.calls == 0
        assert all("calls" in name for name in total.state())

    def test_flows_start_without_memory(self):
        total, _ = self.build()
        first, second = (ad.flow(self.source, total, n_steps=3) for _ in range(2))
        assert first.values == second.values
        assert torch.equal(first.dataset.x, second.dataset.x)


class TestOTDDFunctional:
    source, target = labeled([9, 12], 2, 1, weighted=True), labeled([10, 6, 8], 2, 2, shift=2.0)

    @pytest.mark.parametrize("label", [ad.Bures(), ad.Bures(diagonal=True), ad.MeansOnly(), ad.NoLabels(), ad.ExactLabelOT()])
    @pytest.mark.parametrize("solver", [ad.ExactOT(), ad.Sinkhorn(tol=1e-10)], ids=["exact", "sinkhorn"])
    def test_value_is_the_energy(self, label, solver):
        """1e-9: the same three problems, each to 1e-10 of mass; the functional reads values and not potentials."""
        cost = ad.GroundCost(label=label, label_weight=0.7)
        energy = ad.OTDD(self.target, cost=cost, solver=solver)
        expected = ad.otdd(self.source, self.target, cost=cost, solver=solver).energy
        assert energy(self.source).item() == pytest.approx(expected, rel=1e-9)

    def test_zero_at_the_target(self):
        for solver in (ad.ExactOT(), ad.Sinkhorn(tol=1e-10)):
            assert ad.OTDD(self.target, solver=solver)(self.target).item() == pytest.approx(0, abs=1e-9)

    def test_warm_start_saves_work_and_changes_nothing(self, monkeypatch):
        """The second call at the same place starts from its own solution; both answers are within the tolerance of 1e-9."""
        iterations, solve = [], ad.Sinkhorn.solve

        def counted(self, *args, **kwargs):
            solution = solve(self, *args, **kwargs)
            iterations.append(solution.n_iter)
            return solution

        monkeypatch.setattr(ad.Sinkhorn, "solve", counted)
        energy = ad.OTDD(self.target, solver=ad.Sinkhorn(epsilon=0.05, tol=1e-9))
        cold, warm = (energy(self.source).item() for _ in range(2))
        assert iterations[1] < iterations[0] / 2
        assert warm == pytest.approx(cold, rel=1e-8)
        energy.reset()
        again = energy(self.source).item()
        assert iterations[2] == iterations[0]
        assert again == cold

    def test_other_sizes_start_cold(self):
        # Once: LaggedBures multiplies the factors of the last dataset with the product of another size.
        energy = ad.OTDD(self.target)
        energy(self.source)
        part = self.source.subset(slice(0, 15))
        assert energy(part).item() > 0

    @pytest.mark.parametrize(
        "cost",
        [
            ad.GroundCost(),
            ad.GroundCost(label=ad.Bures(diagonal=True)),
            ad.GroundCost(label=ad.ExactLabelOT()),
            ad.GroundCost(label=ad.MeansOnly()),
            FEATURES_ONLY,
            ad.GroundCost(label_weight=0.0),
            ad.GroundCost(
                feature=ad.Embedding(lambda samples: samples @ torch.tensor([[1.0, 0.3, 0.0], [0.0, 1.0, 0.5]]).to(samples))
            ),
            ad.GroundCost(feature=lambda x, y: (x[:, None, :] - y).square().sum(-1)),
        ],
        ids=["bures", "diagonal", "exact-labels", "means", "no-labels", "weight-0", "embedding", "own-features"],
    )
    @pytest.mark.parametrize("through_laws", [False, True])
    def test_flows_decrease(self, cost, through_laws):
        dynamics = ad.FeatureDriven(through_laws=through_laws)
        result = ad.flow(self.source, ad.OTDD(self.target, cost=cost), dynamics=dynamics, n_steps=12)
        assert result.status == "completed"
        assert result.values[-1] < 0.5 * result.values[0]
        assert all(after < before for before, after in pairwise(result.values[:6]))

    def test_own_feature_cost_is_the_plain_one(self):
        """A function that computes ‖x − x'‖² flows like SquaredEuclidean(), to rounding."""
        own = ad.GroundCost(feature=lambda x, y: (x[:, None, :] - y).square().sum(-1))
        runs = [
            ad.flow(self.source, ad.OTDD(self.target, cost=cost, solver=TIGHT), n_steps=3) for cost in (own, ad.GroundCost())
        ]
        torch.testing.assert_close(runs[0].dataset.x, runs[1].dataset.x, rtol=1e-9, atol=1e-9)

    def test_label_weight_zero_is_no_labels(self):
        runs = [
            ad.flow(self.source, ad.OTDD(self.target, cost=cost, solver=TIGHT), n_steps=3)
            for cost in (ad.GroundCost(label_weight=0.0), FEATURES_ONLY)
        ]
        torch.testing.assert_close(runs[0].dataset.x, runs[1].dataset.x, rtol=1e-12, atol=1e-12)

    def test_bad_target(self):
        with pytest.raises(ad.InputError, match="target"):
            ad.OTDD(draw(3, 2))
        with pytest.raises(ad.InputError, match="feature space"):
            ad.OTDD(labeled([3], 3, 1))(self.source)
