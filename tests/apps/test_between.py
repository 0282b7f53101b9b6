"""Between datasets: laws on Bures geodesics and in their barycenters, samples along plans, and free-support
barycenters, against closed forms, POT, and the laws of geodesics."""

import math
import warnings

import numpy as np
import ot
import pytest
import torch

import advect as ad
from advect.data.laws.between import geodesic, law_barycenters
from advect.ot.plan import DensePlan, ScatteredPlan

EXACT = ad.ExactOT()
BLIND = ad.GroundCost(label=ad.NoLabels())


def draws(seed=0):
    return torch.Generator().manual_seed(seed)


def factored(k, dim, rank, seed=0, scale=1.0):
    generator = draws(seed)
    means = torch.randn(k, dim, generator=generator, dtype=torch.float64)
    rows = torch.randn(k * rank, dim, generator=generator, dtype=torch.float64)
    return ad.Gaussians(scale * means, ad.Factored(scale * rows, (rank,) * k))


def far(a, b, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ad.ConvergenceWarning)  # of measures that are equal
        return ad.otdd(a, b, solver=EXACT, **options).value


def blobs(n, seed, shift=(0.0, 0.0), names=None, dim=2):
    """Three classes of unequal sizes and weights, in float64."""
    generator = draws(seed)
    y = torch.arange(n) % 3 * (torch.arange(n) % 4 > 0)
    centres = 4 * torch.randn(3, dim, generator=generator, dtype=torch.float64)
    x = centres[y] + torch.randn(n, dim, generator=generator, dtype=torch.float64)
    x[:, : len(shift)] += torch.tensor(shift, dtype=torch.float64)
    weights = 0.5 + torch.rand(n, generator=generator, dtype=torch.float64)
    classes = names or ("a", "b", "c")
    return ad.LabeledDataset(x, y, weights, classes)


# laws


@pytest.mark.parametrize("ranks", [(4, 4), (2, 3), (6, 1), (0, 2), (1, 1), (0, 0)])
@pytest.mark.parametrize("scale", [1.0, 1e-8, 1e8])
def test_laws_move_on_a_geodesic_whatever_their_rank(ranks, scale):
    a, b = (factored(3, 4, rank, seed, scale) for seed, rank in enumerate(ranks))
    whole = ad.bures(a, b).diagonal().sqrt()
    for t in (0.0, 0.3, 0.5, 1.0):
        between = geodesic(a, b, t)
        assert torch.allclose(ad.bures(a, between).diagonal().sqrt(), t * whole, atol=1e-6 * scale)
        back = geodesic(b, a, 1 - t)  # the same way back
        assert torch.allclose(between.covariances(), back.covariances(), atol=1e-11 * scale**2)
        rest = ad.bures(between, b).diagonal().sqrt()
        assert torch.allclose(rest, (1 - t) * whole, atol=1e-6 * scale)


def test_a_geodesic_is_the_closed_form_of_full_covariances():
    """((1 − t) I + tA) S ((1 − t) I + tA) with A the linear optimal map, by roots of matrices."""
    a, b = factored(1, 3, 5, 0), factored(1, 3, 5, 1)
    s, other = (laws.covariances()[0].numpy() for laws in (a, b))
    A, _ = ot.gaussian.bures_wasserstein_mapping(np.zeros(3), np.zeros(3), s, other)
    for t in (0.2, 0.7):
        M = (1 - t) * np.eye(3) + t * A
        assert np.allclose(geodesic(a, b, t).covariances()[0].numpy(), M @ s @ M, atol=1e-10)
    full = geodesic(ad.Gaussians(a.means, ad.Full(a.covariances())), b, 0.7)
    assert torch.allclose(full.covariances(), geodesic(a, b, 0.7).covariances(), atol=1e-9)


def test_barycenters_of_laws_are_those_of_pot():
    laws = factored(4, 4, 6)
    shares = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.5, 0.0, 0.25, 0.25]], dtype=torch.float64)
    found, reached = law_barycenters(
        [laws.take(torch.tensor([0, 1])), laws.take(torch.tensor([2, 3]))], shares
    )
    assert reached
    for row, weights in enumerate(shares.numpy()):
        mean, covariance = ot.gaussian.bures_wasserstein_barycenter(
            laws.means.numpy(), laws.covariances().numpy(), weights, num_iter=5000, eps=1e-14
        )
        assert np.allclose(found.means[row].numpy(), mean, atol=1e-12)
        assert np.allclose(found.covariances()[row].numpy(), covariance, atol=1e-6)


def test_barycenters_of_singular_laws_are_no_worse_than_their_neighbours():
    """Lines and planes in five dimensions: the sum of squared distances rises in every direction."""
    laws = ad.Gaussians(
        torch.zeros(3, 5, dtype=torch.float64),
        ad.Factored(torch.randn(6, 5, generator=draws(3), dtype=torch.float64), (1, 2, 3)),
    )
    shares = torch.tensor([[0.2, 0.3, 0.5]], dtype=torch.float64)
    found, reached = law_barycenters([laws], shares)
    value = float((shares @ ad.bures(found, laws).T).sum())
    assert reached
    for seed in range(20):
        rows = found.covariance.compressed.rows
        shaken = rows + 0.05 * torch.randn(rows.shape, generator=draws(seed), dtype=torch.float64)
        near = ad.Gaussians(found.means, ad.Factored(shaken, found.covariance.compressed.sizes))
        assert float((shares @ ad.bures(near, laws).T).sum()) > value - 1e-6


def test_diagonal_laws_have_the_mean_deviation():
    laws = ad.Gaussians(
        torch.tensor([[0.0], [2.0], [7.0]]), ad.Diagonal(torch.tensor([[1.0], [2.0], [6.0]]))
    )
    found, _ = law_barycenters([laws], torch.tensor([[0.5, 0.25, 0.25]]))
    assert found.means.item() == 2.25 and found.covariance.scales().item() == 2.5
    assert geodesic(laws, laws.take(torch.tensor([2, 1, 0])), 0.5).covariance.is_diagonal


# plans


def test_pairs_of_a_plan_are_those_of_its_matrix():
    matrix = torch.tensor([[0.25, 0.0, 0.25], [0.0, 0.5, 0.0]])
    part = DensePlan(matrix)
    twice = ScatteredPlan(
        [
            (0.5, torch.tensor([1, 0]), torch.arange(3), part),
            (0.5, torch.arange(2), torch.arange(3), part),
        ],
        (2, 3),
    )
    weights = torch.tensor([0.5, 0.0, 0.5])
    exact = EXACT.solve(torch.rand(3, 3, generator=draws()), weights, weights).coupling
    for plan in (part, twice, exact):
        i, j, mass = plan.entries()
        found = torch.zeros(plan.shape, dtype=torch.float64).index_put_((i, j), mass)
        assert torch.allclose(found, plan.dense().double()) and bool((mass > 0).all())


# interpolation


@pytest.mark.parametrize(
    "cost",
    [
        ad.GroundCost(),
        BLIND,
        ad.GroundCost(label=ad.Bures(diagonal=True)),
        ad.GroundCost(label_weight=7.0),
    ],
)
def test_interpolation_is_a_geodesic_labels_included(cost):
    a, b = blobs(31, 0), blobs(22, 1, (5.0, 1.0), ("u", "v", "c"))
    if cost.label == ad.Bures(diagonal=True):  # a space of its own, where laws are diagonal
        a, b = (data.replace(law=data.diagonal_laws()) for data in (a, b))
    whole = far(a, b, cost=cost)
    for t in (0.0, 0.25, 0.5, 0.9, 1.0):
        between = ad.interpolate(a, b, t, cost=cost)
        assert math.isclose(far(a, between.dataset, cost=cost), t * whole, abs_tol=2e-6 * whole)
        assert math.isclose(
            far(between.dataset, b, cost=cost), (1 - t) * whole, abs_tol=2e-6 * whole
        )
        assert len(between.dataset) <= 31 + 22 - 1
        assert math.isclose(float(between.dataset.weights.sum()), 1.0)


def test_the_ends_are_the_datasets():
    a, b = blobs(31, 0), blobs(22, 1, (5.0, 1.0))
    for t, data in ((0.0, a), (1.0, b)):
        between = ad.interpolate(a, b, t)
        rows = between.rows[:, int(t)]
        assert torch.equal(between.dataset.x, data.x[rows])
        assert between.dataset.labels == [data.labels[row] for row in rows.tolist()]
        mass = torch.zeros(len(data), dtype=torch.float64).index_add(
            0, rows, between.dataset.weights
        )
        assert torch.allclose(mass, data.weights, atol=1e-12)
        one = ad.bures(between.dataset.laws(), data.laws())
        assert float(one.amin(dim=1).max()) < 1e-10


def test_soft_labels_are_shares_of_both_sides():
    a, b = blobs(30, 0), blobs(30, 1, names=("x", "b", "y"))
    between = ad.interpolate(a, b, 0.25)
    assert between.dataset.classes == ("a", "b", "c", "x", "y")
    assert torch.allclose(
        between.probabilities.sum(dim=1), torch.ones(len(between.dataset)).double()
    )
    for row, (i, j) in enumerate(between.rows.tolist()):
        shares = dict(
            zip(between.dataset.classes, between.probabilities[row].tolist(), strict=True)
        )
        own, other = a.labels[i], b.labels[j]
        assert shares[own] == (1.0 if own == other else 0.75)
        assert between.dataset.labels[row] == own
    half = ad.interpolate(a, b, 0.5)  # of equal shares the first dataset's
    assert half.dataset.labels == [a.labels[i] for i in half.rows[:, 0].tolist()]
    late = ad.interpolate(a, b, 0.75)
    assert late.dataset.labels == [b.labels[j] for j in late.rows[:, 1].tolist()]
    joined = half.joined()
    assert set(joined.classes) == {f"{one} → {two}" for one, two in half.pairs}
    assert joined.labels == [f"{a.labels[i]} → {b.labels[j]}" for i, j in half.rows.tolist()]


def test_samples_without_labels_are_carried_by_features_alone():
    a, b = blobs(20, 0), blobs(20, 1)
    b = b.replace(y=torch.where(torch.arange(20) < 5, -1, b.y))
    between = ad.interpolate(a, b, 0.75, cost=BLIND)
    unknown = b.y[between.rows[:, 1]] < 0
    assert between.laws is None
    assert torch.equal(between.dataset.y < 0, unknown)
    assert torch.allclose(between.probabilities[unknown].sum(dim=1), torch.tensor(0.25).double())
    with pytest.raises(ad.InputError, match="label for each sample"):
        ad.interpolate(a, b, 0.5)


def test_drawn_pairs_have_equal_weights_and_come_as_often_as_their_mass():
    a, b = blobs(60, 0), blobs(80, 1, (6.0, 0.0))
    whole = ad.interpolate(a, b, 0.5)
    some = ad.interpolate(a, b, 0.5, size=400, generator=draws())
    assert len(some.dataset) == 400 and float(some.dataset.weights.std()) < 1e-15
    wanted = {
        tuple(pair): 400 * mass
        for pair, mass in zip(whole.rows.tolist(), whole.dataset.weights.tolist(), strict=True)
    }
    drawn = [tuple(pair) for pair in some.rows.tolist()]
    assert set(drawn) <= set(wanted)
    assert all(abs(drawn.count(pair) - often) < 1 for pair, often in wanted.items())
    again = ad.interpolate(a, b, 0.5, size=400, generator=draws())
    assert torch.equal(some.dataset.x, again.dataset.x)


def test_entropic_plans_keep_all_pairs_and_nearly_the_ends():
    a, b = blobs(20, 0), blobs(25, 1, (6.0, 0.0))
    between = ad.interpolate(a, b, 0.0, solver=ad.Sinkhorn())
    assert len(between.dataset) > 20 + 25
    mass = torch.zeros(20, dtype=torch.float64).index_add(
        0, between.rows[:, 0], between.dataset.weights
    )
    assert float((mass - a.weights).abs().sum()) <= 2 * between.distance.marginal_error + 1e-9


def test_a_path_has_the_same_pairs_at_each_time():
    a, b = blobs(20, 0), blobs(25, 1, (6.0, 0.0))
    path = ad.interpolate(a, b, [0, 0.5, 1])
    assert [state.t for state in path] == [0, 0.5, 1] and len(path[1:]) == 2
    middle = (path[0].dataset.x + path[2].dataset.x) / 2
    assert torch.allclose(path[1].dataset.x, middle, atol=1e-12)
    one = ad.interpolate(a, b, 0.5)
    assert torch.equal(one.dataset.x, path[1].dataset.x)
    assert [axes.get_title() for axes in path.figure().axes] == ["t = 0", "t = 0.5", "t = 1"]


def test_translations_and_scales_go_through():
    a, b = blobs(20, 0), blobs(25, 1, (6.0, 0.0))
    here = ad.interpolate(a, b, 0.3).dataset
    for factor, shift in ((1.0, 1e6), (1e-8, 0.0), (1e8, 0.0)):
        moved = [data.replace(x=factor * data.x + shift) for data in (a, b)]
        there = ad.interpolate(*moved, 0.3).dataset
        assert torch.allclose((there.x - shift) / factor, here.x, atol=1e-8)


def test_laws_of_single_samples_and_single_sample_classes():
    a = ad.LabeledDataset([[0.0, 0.0], [5.0, 5.0]], ["a", "b"]).to(dtype=torch.float64)
    b = ad.JointVariableLabels().start(blobs(7, 1))
    between = ad.interpolate(a, b, 0.5)
    assert between.laws is not None
    whole = far(a, b)
    assert math.isclose(far(a, between.dataset), whole / 2, rel_tol=1e-6)
    same = ad.interpolate(a, a, 0.5)
    assert torch.equal(same.dataset.x, a.x)


@pytest.mark.parametrize(
    ("t", "options", "told"),
    [
        (1.5, {}, "0 to 1"),
        (math.nan, {}, "t must be"),
        ([], {}, "needs a time"),
        ("half", {}, "number"),
        ([0.5, "x"], {}, "number"),
        (0.5, {"size": 0}, "size"),
        (0.5, {"cost": ad.Bures()}, "GroundCost"),
        (0.5, {"solver": "exact"}, "solver"),
    ],
)
def test_bad_questions_are_told(t, options, told):
    with pytest.raises(ad.InputError, match=told):
        ad.interpolate(blobs(5, 0), blobs(5, 1), t, **options)


def test_other_spaces_are_told():
    with pytest.raises(ad.InputError, match="feature space"):
        ad.interpolate(blobs(5, 0), blobs(5, 1, dim=3), 0.5)
    with pytest.raises(ad.InputError, match="LabeledDataset"):
        ad.interpolate([[0.0]], blobs(5, 1), 0.5)


# barycenters


def test_a_barycenter_of_two_is_the_interpolation():
    """W₂² is split: w (1 − w) d², whatever sizes, weights and classes are."""
    a, b = blobs(31, 0), blobs(22, 1, (5.0, 1.0), ("u", "v", "c"))
    whole = far(a, b)
    for t in (0.2, 0.5, 0.9):
        found = ad.barycenter([a, b], [1 - t, t])
        assert math.isclose(found.value, t * (1 - t) * whole**2, rel_tol=1e-7)
        assert found.converged and math.isclose(found.bound, found.value, rel_tol=1e-7)
        assert np.allclose(found.distances, [t * whole, (1 - t) * whole], rtol=1e-6)
        assert far(found.dataset, ad.interpolate(a, b, t).dataset) < 1e-5 * whole


def quantile_average(sets, weights, levels=20000):
    """Quantile functions, averaged, at the middles of equal parts of (0, 1)."""
    at = (np.arange(levels) + 0.5) / levels
    tables = []
    for data in sets:
        x, w = data.x[:, 0].numpy(), data.weights.numpy()
        order = np.argsort(x)
        places = np.searchsorted(np.cumsum(w[order]) - 1e-12, at).clip(max=len(x) - 1)
        tables.append(x[order][places])
    return tables, sum(w * table for w, table in zip(weights, tables, strict=True))


def test_on_a_line_quantiles_are_averaged():
    sets = [blobs(n, seed, (3.0 * seed,), dim=1) for seed, n in enumerate((12, 17, 9))]
    weights = [0.2, 0.3, 0.5]
    found = ad.barycenter(sets, weights, cost=BLIND)
    tables, middle = quantile_average(sets, weights)
    value = sum(
        w * np.mean((middle - table) ** 2) for w, table in zip(weights, tables, strict=True)
    )
    assert found.converged and math.isclose(found.value, value, rel_tol=2e-3)
    assert math.isclose(found.bound, found.value, rel_tol=1e-6)
    (_, own) = quantile_average([found.dataset], [1.0])
    assert np.mean((own - middle) ** 2) < 1e-3 * value


def test_equal_sizes_on_a_line_give_the_mean_of_the_sorted():
    sets = [
        ad.LabeledDataset(torch.randn(9, 1, generator=draws(s), dtype=torch.float64), [0] * 9)
        for s in range(3)
    ]
    found = ad.barycenter(sets, [1, 2, 1])
    wanted = sum(
        w * data.x[:, 0].sort()[0] for w, data in zip((0.25, 0.5, 0.25), sets, strict=True)
    )
    assert torch.allclose(found.dataset.x[:, 0].sort()[0], wanted, atol=1e-12)


def test_values_never_rise_and_the_end_is_a_fixed_point_of_pot():
    sets = [blobs(n, seed, (2.0 * seed, 0.0)) for seed, n in enumerate((15, 20, 12))]
    weights = [0.2, 0.3, 0.5]
    found = ad.barycenter(sets, weights, cost=BLIND, size=10, tolerance=0.0, generator=draws())
    assert found.n_iter > 1 and all(
        after <= before for before, after in zip(found.values, found.values[1:], strict=False)
    )
    assert found.converged
    x, parts = found.dataset.x.numpy(), [(data.x.numpy(), data.weights.numpy()) for data in sets]
    theirs = ot.lp.free_support_barycenter(
        [part[0] for part in parts],
        [part[1] for part in parts],
        x,
        found.dataset.weights.numpy(),
        weights=np.array(weights),
        numItermax=5,
    )
    assert np.allclose(theirs, x, atol=1e-9)
    value = sum(
        w * ot.emd2(found.dataset.weights.numpy(), b, ot.dist(x, y))
        for w, (y, b) in zip(weights, parts, strict=True)
    )
    assert math.isclose(found.value, value, rel_tol=1e-9)


def test_one_class_has_the_gaussian_barycenter_for_its_law():
    sets = [
        ad.LabeledDataset(
            torch.randn(30, 3, generator=draws(s), dtype=torch.float64)
            @ torch.randn(3, 3, generator=draws(s + 9), dtype=torch.float64),
            [s] * 30,
        )
        for s in range(3)
    ]
    weights = np.array([0.2, 0.3, 0.5])
    found = ad.barycenter(sets, weights)
    laws = [data.moments() for data in sets]
    mean, covariance = ot.gaussian.bures_wasserstein_barycenter(
        np.stack([law.means[0].numpy() for law in laws]),
        np.stack([law.covariances()[0].numpy() for law in laws]),
        weights,
        num_iter=5000,
        eps=1e-14,
    )
    assert found.laws is not None and len(found.laws) == 1
    assert np.allclose(found.laws.means[0].numpy(), mean, atol=1e-10)
    assert np.allclose(found.laws.covariances()[0].numpy(), covariance, atol=1e-6)
    assert torch.allclose(found.probabilities, torch.tensor(weights).expand(len(found.dataset), 3))


def test_labels_of_a_barycenter_are_where_its_plans_go():
    sets = [blobs(20, 0), blobs(25, 1, (5.0, 0.0), ("u", "v", "c")), blobs(15, 2, (0.0, 5.0))]
    found = ad.barycenter(sets, [0.5, 0.2, 0.3])
    assert found.dataset.classes == ("a", "b", "c", "u", "v")
    assert torch.allclose(found.probabilities.sum(dim=1), torch.ones(len(found.dataset)).double())
    assert len(found.dataset) <= 20 + 25 + 15 - 2
    assert found.bound <= found.value < 1.2 * found.bound
    for data, plan, weight in zip(sets, found.plans, found.weights.tolist(), strict=True):
        dense = plan.dense() / plan.dense().sum(dim=1, keepdim=True)
        for at, name in enumerate(data.classes):
            share = weight * dense[:, data.y == at].sum(dim=1)
            assert bool(
                (found.probabilities[:, found.dataset.classes.index(name)] >= share - 1e-9).all()
            )
    assert all(
        after <= before for before, after in zip(found.values, found.values[1:], strict=False)
    )


@pytest.mark.slow
def test_shifts_go_through_a_barycenter():
    sets = [blobs(12, seed, (3.0 * seed, 0.0)) for seed in range(3)]
    here = ad.barycenter(sets)
    shifts = [
        torch.tensor([1e5, -3.0]).double(),
        torch.tensor([0.0, 7.0]).double(),
        torch.tensor([2.0, 2.0]).double(),
    ]
    common = ad.barycenter([data.replace(x=data.x + shifts[0]) for data in sets])
    assert math.isclose(common.value, here.value, rel_tol=1e-6)
    assert torch.allclose(common.dataset.x - shifts[0], here.dataset.x, atol=1e-6)
    # each dataset by a shift of its own: the barycenter by their mean, as plans of features are the same
    blind = ad.barycenter(sets, cost=BLIND)
    own = ad.barycenter(
        [data.replace(x=data.x + shift) for data, shift in zip(sets, shifts, strict=True)],
        cost=BLIND,
    )
    assert torch.allclose(own.dataset.x - sum(shifts) / 3, blind.dataset.x, atol=1e-6)


def test_one_dataset_is_its_own_barycenter():
    a, b = blobs(10, 0), blobs(12, 1)
    for found in (ad.barycenter([a]), ad.barycenter([b, a], [0, 3])):
        assert torch.equal(found.dataset.x, a.x) and found.dataset.labels == a.labels
        assert found.value == 0 and found.converged and found.n_iter == 0
        assert torch.equal(found.dataset.weights, a.weights)
    assert math.isnan(ad.barycenter([b, a], [0, 1]).distances[0])
    same = ad.barycenter([a, a, a])
    assert same.value < 1e-12 and same.converged and far(same.dataset, a) < 1e-5


@pytest.mark.slow
def test_sinkhorn_comes_near_to_exact():
    """Measured by exact distances, beside as many samples of equal weight by exact transport."""
    sets = [blobs(30, seed, (3.0 * seed, 0.0)) for seed in range(3)]
    exact = ad.barycenter(sets, size=30, generator=draws())
    soft = ad.barycenter(sets, solver=ad.Sinkhorn(), generator=draws())
    assert all(after <= before for before, after in zip(soft.values, soft.values[1:], strict=False))
    assert len(soft.dataset) == 30
    value = sum(far(soft.dataset, data) ** 2 for data in sets) / 3
    assert exact.bound <= value <= 1.05 * exact.value


def test_it_says_when_it_has_not_converged():
    sets = [blobs(15, seed, (3.0 * seed, 0.0)) for seed in range(3)]
    found = ad.barycenter(sets, size=8, max_iterations=1, tolerance=0.0, generator=draws())
    assert not found.converged and "max_iterations" in found.message and found.n_iter == 1
    assert not ad.barycenter(sets, max_iterations=0).converged


def test_a_memory_limit_gives_the_same_barycenter():
    sets = [blobs(15, seed, (3.0 * seed, 0.0)) for seed in range(3)]
    one, two = ad.barycenter(sets), ad.barycenter(sets, memory_limit="1GiB")
    assert math.isclose(one.value, two.value, rel_tol=1e-9)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"weights": [1, -1]}, "negative"),
        ({"weights": [1, 2, 3]}, "each of the 2"),
        ({"weights": [0, 0]}, "zero"),
        ({"weights": "even"}, "numbers"),
        ({"cost": ad.GroundCost(feature=ad.Embedding(lambda x: x))}, "squared Euclidean"),
        ({"max_iterations": -1}, "max_iterations"),
        ({"tolerance": -1.0}, "tolerance"),
        ({"size": 0}, "size"),
    ],
)
def test_bad_barycenters_are_told(options, told):
    with pytest.raises(ad.InputError, match=told):
        ad.barycenter([blobs(5, 0), blobs(5, 1)], **options)


def test_bad_lists_are_told():
    for given in ([], blobs(5, 0), [blobs(5, 0), [[1.0]]], [blobs(5, 0), blobs(5, 1, dim=3)]):
        with pytest.raises(ad.InputError):
            ad.barycenter(given)


# triangles


def test_a_triangle_has_datasets_at_its_corners_and_paths_at_its_sides():
    sets = [blobs(10, seed, (3.0 * seed, 0.0)) for seed in range(3)]
    found = ad.triangle(*sets, n=2, progress=False)
    assert [node.weights.tolist() for node in found.nodes] == [
        [1, 0, 0],
        [0.5, 0.5, 0],
        [0.5, 0, 0.5],
        [0, 1, 0],
        [0, 0.5, 0.5],
        [0, 0, 1],
    ]
    for corner, data in zip((0, 3, 5), sets, strict=True):
        assert torch.equal(found.nodes[corner].dataset.x, data.x)
    half = far(sets[0], sets[1]) ** 2 / 4
    assert math.isclose(found.nodes[1].value, half, rel_tol=1e-7)
    assert {node.dataset.classes for node in found.nodes} == {("a", "b", "c")}
    rows = found.followed(3)
    assert all(
        len(own) == 3 and max(own) < len(node.dataset)
        for own, node in zip(rows, found.nodes, strict=True)
    )
    with pytest.raises(ad.InputError, match="n must"):
        ad.triangle(*sets, n=0)
