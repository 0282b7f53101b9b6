"""OTDD as a distance: laws that must hold for any data, and what a result carries."""

import math
import warnings

import numpy as np
import oracles
import pytest
import torch
from covering import examples
from flow_cases import draw as normal
from hypothesis import given, strategies as st

import advect as ad

SOLVERS = st.sampled_from(
    [ad.Sinkhorn(), ad.Sinkhorn(epsilon=ad.Relative(0.2)), ad.Sinkhorn(tol=1e-3), ad.ExactOT()]
)
LABELS = st.sampled_from(
    [ad.Bures(), ad.Bures(diagonal=True), ad.MeansOnly(), ad.NoLabels(), ad.ExactLabelOT()]
)
SCALES = st.sampled_from([1e-6, 1.0, 1e6])
DTYPES = st.sampled_from([torch.float32, torch.float64])


@st.composite
def datasets(draw, dim=None, dtype=None, scale=None, max_n=18):
    """Labeled samples with ordinary nastiness: single-sample classes, more dimensions than samples, coinciding points."""
    n, d = draw(st.integers(1, max_n)), dim or draw(st.integers(1, 25))
    k = draw(st.integers(1, min(n, 4)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    if draw(st.booleans()):
        x[torch.randint(n, (1,), generator=generator)] = x[0].clone()
    if draw(st.booleans()):
        x[:, 0] = 1.0
    y = torch.cat([torch.arange(k), torch.randint(k, (n - k,), generator=generator)])
    weights = torch.rand(n, generator=generator, dtype=torch.float64) + 0.05
    x = (x * (scale or draw(SCALES))).to(dtype or draw(DTYPES))
    return ad.LabeledDataset(x, y, weights=weights if draw(st.booleans()) else None)


PLAIN = datasets(dim=3, dtype=torch.float64, scale=1.0)


def size(data):
    """The scale of a dataset: the root of its mean squared norm around the mean, and never zero."""
    spread = (data.x - data.x.mean(0)).double().square().sum(1).mean().sqrt()
    return float(spread) + float(data.x.abs().max()) + 1e-30


# Datasets that differ only in what costs nothing: their distance is zero as far as it is known, and that is said.
@pytest.mark.filterwarnings("ignore:the divergence is:advect.errors.ConvergenceWarning")
class TestLaws:
    @examples(150)
    @given(data=datasets(), solver=SOLVERS, label=LABELS, seed=st.integers(0, 10**6))
    def test_zero_from_itself_in_any_order(self, data, solver, label, seed):
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
        cost = ad.GroundCost(label=label)
        for other in (data, data.replace(), data.subset(order)):
            found = ad.otdd(data, other, cost=cost, solver=solver)
            least = 0 if isinstance(solver, ad.ExactOT) else 1e-6 * size(data)
            assert max(found.value, float(found.loss), found.error) <= least

    @examples(60)
    @given(pair=st.tuples(*[datasets(dim=4, scale=1.0)] * 2), solver=SOLVERS, label=LABELS)
    def test_symmetry(self, pair, solver, label):
        a, b = pair
        cost = ad.GroundCost(label=label)
        narrow = torch.float32 in (a.x.dtype, b.x.dtype)
        loose = isinstance(solver, ad.Sinkhorn) and (solver.tol or narrow)
        tolerance = 1e-3 if loose else 1e-6
        forth, back = (ad.otdd(*each, cost=cost, solver=solver).value for each in ((a, b), (b, a)))
        assert forth == pytest.approx(back, rel=tolerance, abs=tolerance * size(a))

    @pytest.mark.slow
    @examples(60)
    @given(a=PLAIN, b=PLAIN, label=LABELS, seed=st.integers(0, 99))
    def test_sample_order_and_label_names_do_not_matter(self, a, b, label, seed):
        options = {"cost": ad.GroundCost(label=label), "solver": ad.Sinkhorn(ad.Relative(0.05))}
        expected = ad.otdd(a, b, **options).value
        turned = a.subset(torch.randperm(len(a), generator=torch.Generator().manual_seed(seed)))
        names = [f"class {code}" for code in (turned.y + 7).tolist()]
        renamed = ad.LabeledDataset(turned.x, names, weights=turned.weights)
        for other in (turned, renamed):
            assert ad.otdd(other, b, **options).value == pytest.approx(expected, rel=1e-6, abs=1e-6)

    @pytest.mark.slow
    @examples(60)
    @given(
        a=PLAIN,
        b=PLAIN,
        # the n − 1 of covariances counts rows
        label=st.sampled_from([ad.MeansOnly(), ad.NoLabels(), ad.ExactLabelOT()]),
        share=st.floats(0.1, 0.9),
    )
    def test_splitting_a_weight_over_copies_does_not_matter(self, a, b, label, share):
        options = {"cost": ad.GroundCost(label=label), "solver": ad.Sinkhorn(ad.Relative(0.05))}
        weights = torch.cat([a.weights, a.weights[:1] * (1 - share)])
        weights[0] *= share
        x, y = torch.cat([a.x, a.x[:1]]), torch.cat([a.y, a.y[:1]])
        split = ad.LabeledDataset(x, y, weights=weights)
        found, expected = (ad.otdd(data, b, **options).value for data in (split, a))
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-6)
        assert ad.otdd(split, a, **options).value <= 1e-6 * size(a)

    @pytest.mark.slow
    @pytest.mark.parametrize("far", [1e2, 1e6, 1e9])
    def test_a_sample_without_mass_does_not_matter_wherever_it_is(self, far):
        # Once: it moved the centre that products are taken around, and set what rounding was allowed.
        x, other = normal(30, 3).float(), normal(25, 3, seed=1).float() + 1
        a, b = ad.LabeledDataset(x, [0] * 30), ad.LabeledDataset(other, [0] * 25)
        x = torch.cat([x, torch.full((1, 3), far)])
        more = ad.LabeledDataset(x, [0] * 31, weights=[1.0] * 30 + [0.0])
        measures = (
            lambda p, q: ad.otdd(p, q).value,
            lambda p, q: ad.otdd(q, p, memory_limit="1MiB").value,
            lambda p, q: ad.otdd(p, q, solver=ad.ExactOT()).value,
            lambda p, q: ad.sliced_otdd(p, q, 50, generator=torch.Generator().manual_seed(1)).value,
            lambda p, q: float(ad.Internal()(p)),
            lambda p, q: float(ad.Interaction(ad.repulsion())(p)),
            lambda p, q: ad.flow(p, ad.OTDD(q), n_steps=3).values[-1],
        )
        for measure in measures:
            assert measure(more, b) == pytest.approx(measure(a, b), rel=1e-5)
        assert ad.otdd(more, a).value == 0

    @pytest.mark.parametrize("scale", [1e-24, 1e-20])
    def test_squares_that_vanish_are_refused(self, scale):
        x = scale * torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
        a, b = ad.LabeledDataset(x, [0] * 20), ad.LabeledDataset(x + 3 * scale, [0] * 20)
        with pytest.raises(ad.InputError, match="underflow in torch.float32"):
            ad.otdd(a, b)
        wide = [data.to(dtype=torch.float64) for data in (a, b)]
        found = ad.otdd(*wide, cost=ad.GroundCost(label=ad.NoLabels())).value
        assert found == pytest.approx(3 * scale * math.sqrt(2), rel=1e-3)

    @examples(60)
    @given(
        triple=st.tuples(*[datasets(dim=4, dtype=torch.float64, scale=1.0, max_n=12)] * 3),
        label=LABELS,
    )
    def test_triangle_inequality_of_the_exact_distance(self, triple, label):
        a, b, c = triple
        options = {"cost": ad.GroundCost(label=label), "solver": ad.ExactOT()}
        ab, bc, ac = (ad.otdd(*pair, **options).value for pair in ((a, b), (b, c), (a, c)))
        assert ac <= ab + bc + 1e-9 * (1 + ac)
        costs = [options["cost"].between(*pair).matrix() for pair in ((a, b), (a, a), (b, b))]
        exact = oracles.pot_divergence(costs, a.weights, b.weights, 0)
        assert ab**2 / 2 == pytest.approx(exact, rel=1e-9, abs=1e-12)

    @pytest.mark.slow
    @examples(30)
    @given(pair=st.tuples(*[datasets(dim=4, scale=1.0)] * 2), seed=st.integers(0, 99))
    def test_scale_and_rigid_motions(self, pair, seed):
        expected = ad.otdd(*pair).value
        for factor in (1e-6, 1e-3, 1e3, 1e6):
            got = ad.otdd(*(z.replace(x=z.x * factor) for z in pair)).value
            assert got == pytest.approx(expected * factor, rel=1e-3, abs=1e-3 * factor)
        rotation, shift = torch.linalg.qr(normal(4, 4, seed=seed))[0], normal(4, seed=seed)
        wide = [z.to(dtype=torch.float64) for z in pair]
        moved = [z.replace(x=z.x @ rotation + shift) for z in wide]
        assert ad.otdd(*moved).value == pytest.approx(ad.otdd(*wide).value, rel=1e-6, abs=1e-6)

    def test_a_translation_in_closed_form(self):
        """Each sample and each class law moves by t: value = ‖t‖ √2, whatever epsilon is."""
        x, y = normal(60, 3), torch.arange(60) % 3
        x[:, 0] += 20 * y  # classes far apart: the plan keeps them
        shift = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64)
        a, b = ad.LabeledDataset(x, y), ad.LabeledDataset(x + shift, y)
        for solver in (ad.ExactOT(), ad.Sinkhorn(epsilon=0.05), ad.Sinkhorn(epsilon=1.0)):
            found = ad.otdd(a, b, solver=solver).value
            assert found == pytest.approx(float(shift.norm()) * math.sqrt(2), rel=1e-6)


class TestResult:
    @pytest.fixture
    def pair(self):
        x = normal(30, 2).float() + 6 * torch.arange(30)[:, None] % 18
        a = ad.LabeledDataset(x, ["abc"[i % 3] for i in range(30)])
        return a, ad.LabeledDataset(x + 0.5, [100 + i % 3 for i in range(30)])

    def test_facts(self, pair):
        distance = ad.otdd(*pair)
        assert distance.value == float(distance) == pytest.approx(math.sqrt(2 * distance.energy))
        assert distance.converged and distance.marginal_error < 1e-3
        assert distance.n_iter > 0 and distance.epsilon > 0
        assert distance.plan().shape == (30, 30) and len(distance.potentials[0]) == 30
        assert float(distance.loss) == pytest.approx(distance.energy)

        table = distance.class_distances
        assert table.rows == ("a", "b", "c") and table.columns == (100, 101, 102)
        assert table["b", 102] == pytest.approx(math.sqrt(float(ad.Bures()(*pair)[1, 2])), rel=1e-5)
        assert table.to_dict()["a"][100] == table["a", 100]
        assert np.asarray(table).shape == table.shape == (3, 3)

    def test_matching_and_coupling(self, pair):
        distance = ad.otdd(*pair)
        np.testing.assert_allclose(distance.class_matching.values, np.eye(3) / 3, atol=1e-7)
        np.testing.assert_allclose(distance.class_coupling.values, np.eye(3) / 3, atol=1e-3)
        # more classes on one side
        a = ad.LabeledDataset([[0.0], [5.0], [9.0]], ["x", "y", "z"])
        b = ad.LabeledDataset([[0.1], [9.1]], ["low", "high"])
        matching = ad.otdd(a, b, solver=ad.ExactOT()).class_matching
        np.testing.assert_allclose(matching.values.sum(1), 1 / 3, atol=1e-7)
        np.testing.assert_allclose(matching.values.sum(0), 1 / 2, atol=1e-7)
        assert matching["x", "low"] == pytest.approx(1 / 3)
        assert matching["z", "high"] == pytest.approx(1 / 3)

    def test_classes_without_samples(self):
        a = ad.LabeledDataset([[0.0], [5.0]], ["x", "y"], classes=["w", "x", "y"])
        distance = ad.otdd(a, ad.LabeledDataset([[0.0], [5.0]], ["x", "y"]), solver=ad.ExactOT())
        assert distance.value == distance.class_matching.values[0].sum() == 0
        assert np.isnan(distance.class_distances.values[0]).all()

    def test_not_converged_is_said_once_and_carried(self, pair):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            other = ad.LabeledDataset(normal(40, 2, seed=1), torch.arange(40) % 2)
            distance = ad.otdd(pair[0], other, solver=ad.Sinkhorn(epsilon=1e-3, max_iter=40))
        assert not distance.converged and "not converged" in repr(distance)
        assert [w.category for w in caught] == [ad.errors.ConvergenceWarning]
        assert "marginal error" in str(caught[0].message)


def test_a_distance_is_a_result(tmp_path):
    a = ad.LabeledDataset([[0.0], [1.0], [8.0], [9.0]], ["low", "low", "<high>", "<high>"])
    distance = ad.otdd(a, a.replace(x=a.x + 1), solver=ad.ExactOT())
    facts = distance.to_dict()
    assert facts["value"] == distance.value and facts["converged"] is True
    assert facts["class distances"][0]["<high>"] == pytest.approx(1)
    assert "class matching" in str(distance) and "&lt;high&gt;" in distance._repr_html_()
    assert set(distance.figures()) == {"class distances", "class matching"}
    blind = ad.otdd(a, a, cost=ad.GroundCost(label=ad.NoLabels()))
    assert "class matching" not in blind.to_dict() and blind.figures() == {}
    assert distance.report(tmp_path / "page.html").exists()


def test_large_problems_warn_at_once(monkeypatch):
    import advect.transport.distance as module

    monkeypatch.setattr(module, "MAX_PAIRS", 10_000)
    data = ad.datasets.gaussians(120)
    with pytest.warns(UserWarning, match="MiniBatch"):
        ad.otdd(data, data.replace(x=data.x + 1))
