"""Dynamics, law motions and clusterings: every option, against independent answers."""

import numpy as np
import oracles
import pytest
import torch
from flow_cases import EXACT_LAWS, TIGHT, draw, first_velocity, labeled, states
from numpy.testing import assert_allclose
from scipy.linalg import sqrtm
from sklearn.cluster import KMeans
from torch.testing import assert_close

import advect as ad
from advect.data.laws import Diagonal, Factored, Full

BURES, ALONG_AXES = ad.Bures(), ad.Bures(diagonal=True)
MOTIONS = {"euclidean": BURES, "bures": BURES, "diagonal": ALONG_AXES}  # and their label costs
STILL = ad.Potential(lambda x, y: 0 * x.sum(1))
DETACHED = ad.FeatureDriven(through_laws=False)


class TestLawVelocities:
    @pytest.mark.parametrize("solver", [ad.ExactOT(), TIGHT], ids=["exact", "sinkhorn"])
    @pytest.mark.parametrize("dim", [2, 3])
    @pytest.mark.parametrize(("motion", "label"), MOTIONS.items())
    def test_class_average_of_variable_labels_is_fixed_labels(self, motion, label, dim, solver):
        """At step 0 all particles of a class share its law, so the gradient in the class's law is the sum of theirs,
        and with mass-weighted velocities the class average of jd-vl is jd-fl, for unequal classes and weights.
        1e-12 of the largest entry: both solve the same cost matrix up to rounding."""
        source = labeled([5, 9, 14], dim, 1, weighted=True)
        target = labeled([12, 8], dim, 2, shift=2.0)
        energy = ad.OTDD(target, cost=ad.GroundCost(label=label), solver=solver)
        fixed = first_velocity(source, energy, ad.JointFixedLabels(motion))
        each = first_velocity(source, energy, ad.JointVariableLabels(laws=motion))
        assert fixed.keys() == each.keys()
        assert_close(fixed["x"], each["x"], rtol=0, atol=1e-12 * fixed["x"].abs().max().item())
        for part in fixed.keys() - {"x"}:
            flat = each[part].reshape(len(source), -1)
            average = torch.zeros(3, flat.shape[1], dtype=torch.float64)
            average.index_add_(0, source.y, source.weights[:, None] * flat)
            average = (average / source.class_mass[:, None]).reshape(fixed[part].shape)
            assert fixed[part].abs().max() > 0.01
            assert_close(fixed[part], average, rtol=0, atol=1e-12 * fixed[part].abs().max().item())

    @pytest.mark.parametrize(("motion", "label"), [*MOTIONS.items(), ("factored", ad.Bures())])
    def test_law_gradients(self, motion, label):
        """Law velocities are −∂F/∂law ÷ mass (−2 S^½ ∂F/∂S for Bures), by central differences of the energy: 1e-6
        relative is what a step of 1e-5 leaves of a value converged to 1e-11."""
        source, target = labeled([4, 7], 2, 3), labeled([5, 5], 2, 4, shift=1.0)
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
            mass = rho.class_mass
            if part == "factor":  # each row carries the mass of its class
                mass = mass.repeat_interleave(torch.tensor(rho.law.covariance.sizes))
            expected = -gradient / mass.reshape(-1, *[1] * (gradient.ndim - 1))
            if motion == "bures" and part == "covariance":
                roots = [torch.as_tensor(sqrtm(part.numpy()).real) for part in parameters[part]]
                expected = 2 * torch.stack(roots) @ expected
            assert_close(velocity[part], expected, rtol=1e-6, atol=1e-6)

    def test_rank_deficient_laws_keep_their_rank(self):
        """A class of three samples in five dimensions has rank two. Its velocity agrees with differences along
        displacements of the root within that rank, and no other direction grows from rounding."""
        source, target = labeled([3, 1], 5, 3), labeled([8, 8], 5, 4, shift=1.0)
        dynamics = ad.JointVariableLabels(every=100)
        energy = ad.OTDD(target, cost=EXACT_LAWS, solver=ad.ExactOT())
        velocity, rho = first_velocity(source, energy, dynamics), dynamics.start(source)
        values, vectors = torch.linalg.eigh(rho.law.covariances())
        span = vectors * (values > 1e-9 * values.amax())[:, None]
        assert_close(span @ (span.mT @ velocity["covariance"]), velocity["covariance"])
        still = {name: torch.zeros_like(part) for name, part in velocity.items()}
        noise = torch.randn(
            velocity["covariance"].shape, generator=torch.Generator().manual_seed(0)
        )
        change = span @ (span.mT @ noise.double())
        ends = [
            energy(dynamics.move(rho, {**still, "covariance": step * change}, 0)).item()
            for step in (1e-5, -1e-5)
        ]
        slope = -(source.weights[:, None, None] * velocity["covariance"] * change).sum()
        assert_allclose((ends[0] - ends[1]) / 2e-5, slope.item(), rtol=1e-6)
        after = ad.flow(source, energy, dynamics=dynamics, integrator=ad.Euler(0.1), n_steps=5)
        spectra = torch.linalg.eigvalsh(after.dataset.law.covariances())
        assert (spectra > 1e-9 * spectra.amax()).sum(dim=1).tolist() == [2, 2, 2, 0]

    @pytest.mark.parametrize(
        ("dynamics", "dim", "kind"), [(ad.JointFixedLabels(), 3, Factored), (ad.JointFixedLabels(), 70, Factored),
        (ad.JointVariableLabels(), 3, Full), (ad.JointVariableLabels(), 9, Diagonal)],
    )  # fmt: skip
    def test_defaults_follow_the_dimension(self, dynamics, dim, kind):
        assert isinstance(dynamics.start(labeled([3, 4], dim, 1)).law.covariance, kind)

    @pytest.mark.slow
    @pytest.mark.parametrize("spread", [1e-4, 0.0], ids=["tight", "equal points"])
    @pytest.mark.parametrize(
        "integrator", [ad.Euler(0.1), ad.Momentum(0.05)], ids=["euler", "momentum"]
    )
    @pytest.mark.parametrize(
        "dynamics",
        [ad.JointFixedLabels(), ad.JointFixedLabels("bures"), ad.JointVariableLabels()],
        ids=["fl", "fl-bures", "vl"],
    )
    def test_tight_classes_do_not_explode(self, dynamics, integrator, spread):
        # Once: from a spread of 1e-4 against 1 the value went from 2.15 to 546, and Bures motion with momentum to infinity.
        y = torch.arange(30) % 3
        middles = 3 * draw(3, 3, seed=1)
        source = ad.LabeledDataset((middles[y] + spread * draw(30, 3, seed=2)).float(), y)
        target = ad.LabeledDataset((middles[y] + 1 + draw(30, 3, seed=3)).float(), y)
        options = {"dynamics": dynamics, "integrator": integrator}
        values = [step.value for step in states(source, ad.OTDD(target), 15, **options)]
        assert max(values) <= values[0] * (1 + 1e-6) and values[-1] < 0.7 * values[0]

    def test_rows_without_mass_stay(self):
        source = ad.LabeledDataset(draw(4, 2), [0, 0, 1, 1], weights=[1.0, 1.0, 0.0, 0.0])
        target = labeled([3, 3], 2, 1, shift=5.0)
        for dynamics in (ad.FeatureDriven(), ad.JointFixedLabels(), ad.JointVariableLabels()):
            velocity = first_velocity(source, ad.OTDD(target, solver=ad.ExactOT()), dynamics)
            assert velocity["x"][2:].abs().max() == 0
            assert velocity["x"][:2].abs().min() > 0
            assert all(bool(torch.isfinite(part).all()) for part in velocity.values())

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "dynamics", [ad.FeatureDriven(), ad.JointFixedLabels(), ad.JointVariableLabels()]
    )
    @pytest.mark.parametrize("logit", [-88.0, -95.0, -300.0])
    def test_mass_too_small_for_the_features_counts_as_none(self, dynamics, logit):
        # Once: 1 ÷ mass was infinite in float32, times a gradient of zero is NaN, and the flow diverged.
        x, y = draw(6, 2).float(), [0, 0, 0, 0, 0, 1]
        target = labeled([3, 3], 2, 1, shift=2.0)
        logits = torch.tensor([0.0] * 5 + [logit], dtype=torch.float64)
        energy = ad.OTDD(target.to(dtype=torch.float32))
        runs = [
            ad.flow(ad.LabeledDataset(x, y, weights=w), energy, dynamics=dynamics, n_steps=3)
            for w in (torch.softmax(logits, 0), [1.0] * 5 + [0.0])
        ]
        assert [run.status for run in runs] == ["completed"] * 2
        assert_close(runs[0].dataset.x[:5], runs[1].dataset.x[:5], rtol=1e-4, atol=1e-4)
        assert torch.equal(runs[0].dataset.x[5], x[5])
        assert (runs[0].dataset.x[:5] - x[:5]).abs().min() > 0


class TestCarriedLaws:
    """Laws that a dataset carries are where laws start to move."""

    x, y = draw(12, 3).float(), [0] * 5 + [1] * 7
    target = labeled([6, 6], 3, 1, shift=2.0).to(dtype=torch.float32)
    laws = ad.Gaussians(
        draw(2, 3, seed=3), Full(torch.tensor([100.0, 4.0]).double()[:, None, None] * torch.eye(3))
    )

    @pytest.mark.parametrize("motion", ["euclidean", "bures", "factored", "diagonal"])
    def test_fixed_labels_start_from_them(self, motion):
        rho = ad.JointFixedLabels(motion).start(ad.LabeledDataset(self.x, self.y, law=self.laws))
        assert rho.law_index is None and rho.law.means.dtype == torch.float32
        assert_close(rho.law.means, self.laws.means.float())
        assert_close(rho.law.covariances(), self.laws.covariances().float(), rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize("motion", ["euclidean", "bures", "diagonal"])
    def test_variable_labels_start_from_them(self, motion):
        data = ad.LabeledDataset(self.x, self.y, law=self.laws)
        index = torch.tensor([1, 0] * 6)
        for source, rows in (
            (data, data.y),
            (ad.LabeledDataset(self.x, self.y, law=self.laws, law_index=index), index),
        ):
            rho = ad.JointVariableLabels(laws=motion).start(source)
            assert rho.law_index.tolist() == list(range(12))
            assert_close(rho.law.means, self.laws.means[rows].float())
            expected = self.laws.covariances()[rows].float()
            assert_close(rho.law.covariances(), expected, rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize("dynamics", [ad.JointFixedLabels(), ad.JointVariableLabels()])
    def test_a_flow_starts_at_the_distance_with_them(self, dynamics):
        data = ad.LabeledDataset(self.x, self.y, law=self.laws)
        energy = ad.OTDD(self.target, cost=EXACT_LAWS, solver=ad.ExactOT())
        carried, estimated = energy(data).item(), energy(data.replace(law=None)).item()
        run = ad.flow(data, energy, dynamics=dynamics, n_steps=2)
        assert run.status == "completed"
        assert run.values[0] == pytest.approx(carried, rel=1e-5)
        assert carried > 2 * estimated

    def test_variable_labels_go_on_where_they_ended(self):
        """Two flows one after the other are one flow: the second starts with each particle's own law, to rounding."""
        source = labeled([6, 8], 2, 1)
        target = labeled([7, 7], 2, 2, shift=3.0)
        options = {"dynamics": ad.JointVariableLabels(), "integrator": ad.Euler(0.2)}

        energy = ad.OTDD(target, cost=EXACT_LAWS, solver=ad.ExactOT())

        def run(data, n_steps):
            return ad.flow(data, energy, n_steps=n_steps, **options).dataset

        whole, parts = run(source, 6), run(run(source, 3), 3)
        assert_close(parts.x, whole.x, rtol=1e-9, atol=1e-9)
        assert_close(parts.law.covariances(), whole.law.covariances(), rtol=1e-9, atol=1e-9)
        assert torch.equal(parts.y, whole.y)


class TestFeatureDriven:
    source, target = labeled([6, 8], 2, 1, weighted=True), labeled([7, 5], 2, 2, shift=1.0)

    OTHERS = ad.Bures(diagonal=True), ad.MeansOnly(), ad.NoLabels(), ad.ExactLabelOT(TIGHT)
    slow = (pytest.param(label, marks=pytest.mark.slow) for label in OTHERS)

    @pytest.mark.parametrize("label", [ad.Bures(), *slow])
    def test_through_laws_is_the_gradient_of_the_energy(self, label):
        """1e-6: central differences with step 1e-5 of a value converged to 1e-11."""
        energy = ad.OTDD(self.target, cost=ad.GroundCost(label=label), solver=TIGHT)
        velocity = first_velocity(self.source, energy, ad.FeatureDriven(through_laws=True))["x"]
        value = lambda x: energy(self.source.replace(x=x)).item()
        gradient = oracles.central_differences(value, self.source.x, step=1e-5)
        assert_close(velocity, -gradient / self.source.weights[:, None], rtol=1e-6, atol=1e-6)

    @pytest.mark.parametrize("label", [ad.Bures(), ad.MeansOnly(), ad.ExactLabelOT()])
    def test_detached_exact_velocity_is_the_map(self, label):
        """T(x) − x with the barycentric map of the exact plan; the label cost shapes the plan and nothing else."""
        cost = ad.GroundCost(label=label)
        energy = ad.OTDD(self.target, cost=cost, solver=ad.ExactOT())
        velocity = first_velocity(self.source, energy, DETACHED)["x"]
        plan = ad.otdd(self.source, self.target, cost=cost, solver=ad.ExactOT()).plan()
        image = plan @ self.target.x / self.source.weights[:, None]
        assert_close(velocity, image - self.source.x, rtol=1e-12, atol=1e-12)

    def test_detached_sinkhorn_velocity_is_map_minus_self_map(self):
        energy = ad.OTDD(self.target, cost=EXACT_LAWS, solver=TIGHT)
        velocity = first_velocity(self.source, energy, DETACHED)["x"]
        solved = ad.otdd(self.source, self.target, solver=TIGHT).divergence
        images = solved.cross.plan() @ self.target.x - solved.source.plan() @ self.source.x
        # 1e-7: two plans with marginals to 1e-11, from different starts, divided by weights near 0.05
        assert_close(velocity, images / self.source.weights[:, None], rtol=1e-7, atol=1e-7)

    def test_laws_are_estimated_anew(self):
        """Carried laws are dropped at the start, and those of a later state are the moments of its features."""
        carried = self.source.replace(law=self.target.laws())
        last = ad.flow(carried, ad.OTDD(self.target), n_steps=3).dataset
        assert last.law is None
        weights = last.weights[:6, None] / last.weights[:6].sum()
        assert_close(last.laws().means[0], (weights * last.x[:6]).sum(0))


class TestBounds:
    @pytest.mark.parametrize(
        "dynamics", [ad.FeatureDriven, ad.JointFixedLabels, ad.JointVariableLabels]
    )
    def test_features_stay_inside(self, dynamics):
        # Once: with fd all particles meet in a corner, label distances vanish, and 0 was divided by 0.
        x = torch.rand(12, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        source = ad.LabeledDataset(x, torch.arange(12) % 2)
        target = labeled([5, 6], 3, 2, shift=4.0)
        energy, options = ad.OTDD(target), {"integrator": ad.Euler(0.5), "n_steps": 4}
        bounded = ad.flow(source, energy, dynamics=dynamics(bounds=(0.0, 1.0)), **options).dataset.x
        assert bounded.min() >= 0
        assert bounded.max() == 1
        assert ad.flow(source, energy, dynamics=dynamics(), **options).dataset.x.max() > 2

    @pytest.mark.parametrize(
        "integrator", [ad.Euler(0.5), ad.Adam(0.1), ad.EulerMaruyama(0.1, 0.1)]
    )
    @pytest.mark.parametrize(
        "dynamics", [ad.FeatureDriven, ad.JointFixedLabels, ad.JointVariableLabels]
    )
    def test_fixed_columns_are_bit_identical_and_bounds_hold_per_column(self, dynamics, integrator):
        source = labeled([6, 6], 3, 1).replace(columns=["age", "dose", "size"])
        energy, low = ad.OTDD(labeled([5, 6], 3, 2, shift=4.0)), [None, -50.0, -50.0]
        moves = dynamics(columns=["dose", 2], bounds=(low, torch.tensor([0.0, 2.5, 99.0])))
        options = {"integrator": integrator, "generator": torch.Generator().manual_seed(0)}
        moved = ad.flow(source, energy, dynamics=moves, n_steps=30, **options).dataset.x
        assert torch.equal(moved[:, 0], source.x[:, 0])  # also where it is above its bound
        assert moved[:, 1].max() == 2.5 and moved[:, 2].max() > 2.5

    def test_bad_columns_and_bounds_are_refused(self):
        source = labeled([5, 6], 3, 1)
        for columns in (["dose"], [3], [-1]):
            with pytest.raises(ad.InputError, match="positions below 3"):
                ad.flow(source, STILL, dynamics=ad.FeatureDriven(columns=columns))
        with pytest.raises(ad.InputError, match="each column"):
            ad.flow(source, STILL, dynamics=ad.FeatureDriven(bounds=([0, 0], 1)))
        for bounds in ((1, 0), ([0, 0], [1, 1, 1]), (0,), ("a", "b")):
            with pytest.raises(ad.InputError, match="low < high"):
                ad.FeatureDriven(bounds=bounds)


class Fixed:
    """A clusterer with a known answer; what they were asked is kept for all, since dynamics copy them."""

    asked = []  # noqa: RUF012

    def __init__(self, codes):
        self.codes = np.asarray(codes)
        self.asked.clear()

    def fit_predict(self, points):
        self.asked.append(points)
        return self.codes


class TestVariableLabels:
    source_centres = torch.tensor([[0.0, 0.0], [6.0, 0.0], [3.0, 5.0]], dtype=torch.float64)
    target_centres = 20 * torch.tensor([[1.0, 0.0], [2.0, 0.0], [1.0, 1.0], [2.0, 1.0]]).double()

    @staticmethod
    def around(centres, n, names, seed):
        parts = [centre + 0.7 * draw(n, 2, seed=seed + k) for k, centre in enumerate(centres)]
        y = torch.arange(len(centres)).repeat_interleave(n)
        return ad.LabeledDataset(torch.cat(parts), y, classes=names)

    @pytest.mark.slow
    @pytest.mark.parametrize("clustering", [KMeans(4), "dbscan"])
    @pytest.mark.parametrize("motion", ["euclidean", "diagonal"])
    def test_three_classes_become_four(self, clustering, motion):
        """Target classes are 20 apart with deviation 0.7, so the classes at the end are told without doubt."""
        source = self.around(self.source_centres, 40, ["a", "b", "c"], 1)
        target = self.around(self.target_centres, 30, [10, 11, 12, 13], 11)
        options = {"dynamics": ad.JointVariableLabels(clustering, laws=motion), "n_steps": 30}
        result = ad.flow(source, ad.OTDD(target), integrator=ad.Euler(0.2), **options)
        last = result.dataset
        alive = {name: count for name, count in last.counts.items() if count}
        assert len(alive) == 4
        assert last.classes[:3] == ("a", "b", "c")
        assert set(last.classes[3:]) and set(last.classes[3:]).isdisjoint(source.classes)
        nearest = torch.cdist(last.x, self.target_centres).argmin(dim=1)
        homes = [nearest[last.y == code].unique().tolist() for code in last.y.unique()]
        assert sorted(homes) == [[0], [1], [2], [3]]
        assert set(alive.values()) == {30}
        assert torch.cdist(last.x, self.target_centres).min(dim=1).values.max() < 4
        assert result.values[-1] < 1e-3 * result.values[0]

    def test_every(self):
        """With every=3 the labels are read off after moves 3, 6, 9, …"""
        source, target = labeled([5, 5], 2, 1), labeled([5, 5], 2, 2, shift=2.0)
        dynamics = ad.JointVariableLabels(one := Fixed([0] * 10), every=3)
        run = states(source, ad.OTDD(target), 7, dynamics=dynamics)
        assert len(one.asked) == 2 and one.asked[0].shape == (10, 2 + 4)
        changed = [not torch.equal(step.dataset.y, source.y) for step in run]
        assert changed == [False] * 3 + [True] * 5

    def test_factored_laws_are_refused(self):
        with pytest.raises(ad.InputError, match="factored"):
            ad.JointVariableLabels(laws="factored")


class TestClustering:
    """Labels that are read off clusters: after one step, of particles that hardly move."""

    def relabeled(self, clustering):
        means = torch.tensor([[20.0 * (k // 6), 0.1 * k] for k in range(12)]).double()
        source = ad.LabeledDataset(means, [0] * 6 + [1] * 6)
        dynamics = ad.JointVariableLabels(clustering)
        ended = ad.flow(source, STILL, dynamics=dynamics, n_steps=1).dataset
        # names of new classes are the smallest numbers that are free
        assert ended.classes == tuple(range(max(2, int(ended.y.max()) + 1)))
        return ended.y.tolist()

    @pytest.mark.parametrize(
        ("found", "wanted"),
        [
            ([5] * 6 + [2] * 6, [0] * 6 + [1] * 6),  # whatever clusters are called
            ([1] * 6 + [0] * 6, [0] * 6 + [1] * 6),
            ([0] * 4 + [1] * 2 + [2] * 6, [0] * 4 + [2] * 2 + [1] * 6),  # a class is born
            ([0] * 5 + [1] * 7, [0] * 5 + [1] * 7),  # the largest overlap claims the name
            ([-1] * 12, [0] * 6 + [1] * 6),  # all noise
            ([-1] + [0] * 5 + [1] * 5 + [-1], [0] * 6 + [1] * 6),  # noise joins what is near
        ],
    )
    def test_names_survive(self, found, wanted):
        assert self.relabeled(Fixed(found)) == wanted

    def test_a_class_that_dies_has_no_samples(self):
        assert len(set(self.relabeled(Fixed([0] * 12)))) == 1

    def test_points_that_are_clustered_resemble_w2(self):
        """Squared distances of the points: exact for diagonal laws, to rounding."""
        laws = ad.Gaussians(draw(6, 3, seed=2), Diagonal(draw(6, 3, seed=1).abs()))
        two = Fixed([0, 1] * 3)
        data = ad.LabeledDataset(draw(6, 3), [0, 1] * 3, law=laws, law_index=range(6))
        dynamics = ad.JointVariableLabels(two, laws="diagonal")
        ad.flow(data, STILL, dynamics=dynamics, n_steps=1)
        squared = ((two.asked[0][:, None] - two.asked[0][None]) ** 2).sum(-1)
        assert_allclose(squared, ad.bures(laws, laws).numpy(), atol=1e-12)
