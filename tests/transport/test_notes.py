"""Notes: said where they are true, silent where they are not."""

import dataclasses
import itertools

import pytest
import torch
from flow_cases import draw, labeled, memberships

import advect as ad
from advect.transport import notes
from advect.transport.matchings import Matchings
from advect.transport.sampling_error import class_cost_error
from advect.transport.transport import rounding


def words(found):
    assert all(len(note.remedy) > 10 and str(note).endswith(note.remedy) for note in found)
    return " ".join(note.what for note in found)


def blobs(sizes, seed=0, dim=2, shift=0.0):
    return labeled(sizes, dim, seed, shift=shift, apart=8.0)


def stretched(data, scale=(1.0, 30.0)):
    return data.replace(x=data.x * torch.tensor(scale, dtype=torch.float64))


A, B = blobs([20, 20]), blobs([20, 20], 1, shift=1.0)
NAMED = [ad.LabeledDataset(data.x, data.y, columns=("age", "income")) for data in (A, B)]
FEW = blobs([4, 20], dim=5), blobs([20, 3], 1, dim=5)
SOFT = [data.replace(probabilities=0.9 * memberships(data) + 0.05) for data in FEW]
LIGHT = blobs([20, 20], dim=5)
LIGHT = LIGHT.replace(weights=torch.where(torch.arange(40) < 16, 0.0, 1 / 24).double())
EVEN = blobs([30, 10])
EVEN = EVEN.replace(weights=torch.where(EVEN.y == 0, 1 / 60, 1 / 20).double())
BACK = ad.GroundCost(feature=ad.Embedding(lambda x: x / torch.tensor([1.0, 30.0]).to(x)))
SAID = {  # name: (source, target, options, words of the notes)
    "all is well": (A, B, {}, ()),
    "a column": (stretched(A), stretched(B), {}, ("'feature 2'", "99.")),
    "a named column": (*map(stretched, NAMED), {}, ("'income'",)),
    "columns are not compared": (stretched(A), stretched(B), {"cost": BACK}, ()),
    "few samples": (*FEW, {}, ("1 of 2 classes of the source and 1 of 2", "as few as 3")),
    "few expected": (*SOFT, {}, ("1 of 2 classes of the source and 1 of 2", "as few as 4")),
    "few with mass": (LIGHT, blobs([4, 20], 1, dim=5), {}, ("1 of 2", "as few as 4")),
    "shares in another order": (blobs([30, 10]), blobs([10, 30], 1), {}, ()),
    "shares": (blobs([30, 10]), blobs([20, 20], 1), {}, ("at least 25%",)),
    "numbers of classes": (blobs([20, 20]), blobs([20, 20, 20], 1), {}, ("at least 33%",)),
    "shares that nearly agree": (blobs([52, 50]), blobs([50, 51], 1), {}, ()),
    "shares count weights": (EVEN, blobs([20, 20], 1), {}, ()),
    "not converged": (A, B, {"solver": ad.Sinkhorn(1e-3, max_iter=3)}, ("did not converge",)),
    "epsilon above costs": (A, B, {"solver": ad.Sinkhorn(1e3)}, ()),
    "epsilon far above costs": (A, B, {"solver": ad.Sinkhorn(1e15)}, ("did not converge",)),
    "too close": (A, A.replace(x=A.x + 1e-9), {}, ("numerical error",)),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::advect.errors.ConvergenceWarning")
@pytest.mark.parametrize("name", SAID)
def test_notes_of_distances(name):
    source, target, options, wanted = SAID[name]
    found = ad.otdd(source, target, **options)
    said = words(found.notes)
    assert all(word in said for word in wanted) and bool(wanted) == bool(said)
    not_converged = ("not converged", "epsilon far above costs", "too close")
    assert found.converged == (name not in not_converged)


@pytest.mark.parametrize("label", [ad.Bures(diagonal=True), ad.MeansOnly(), ad.NoLabels()])
def test_few_samples_matter_to_covariances_alone(label):
    assert "estimated" not in words(ad.otdd(*FEW, cost=ad.GroundCost(label=label)).notes)


def test_where_sentences_begin_and_end():
    """Each condition, just below and just above its bound."""
    single, unit, count = torch.float32, 2.0**-23, lambda notes: len(words(notes)) > 0
    # rounding of float32, but no more than a thousandth of a value, and of float64 at least
    found = [rounding(single, 3.0, size) for size in (1.0, 1e-3, 0.0)]
    assert found == pytest.approx([48 * unit, 1e-6, 48 * 2.0**-52])
    # a hundredth of the fall, no more than the lowest value, and rounding
    for fall, least in (
        ((10, 1), 1.09),
        ((10, 0.01), 0.02),
        ((4, 4), 4 + 64 * unit),
        ((10, -2), -1.88),
    ):
        for share, said in ((0.99, False), (1.01, True)):
            last = fall[1] + share * (least - fall[1])
            assert bool(notes.ended_above((*fall, last), single)) == said
    assert notes.rises((4.0, 4.0 + 7e-6, 3.0), 7, single) == []
    assert notes.rises((4.0, 4.0 + 9e-6, 3.0, 3.1), 7, single) == [8, 10]
    assert notes.rises((4.0, 4.0 + 7e-6, 3.0), 7, single, (0.0, 0.0, 0.0)) == [8]
    assert [count(notes.of_reach(left)) for left in (0.0099, 0.0101)] == [False, True]
    most = [notes.of_reach(left)[0] for left in (0.49, 0.51, 0.994, 0.9951)]
    assert [note.remedy == "Raise reach." for note in most] == [False, True, True, True]
    assert [note.what.split()[0] for note in most] == ["49%", "51%", "99%", "99.5%"]
    assert [count(notes.of_soft_labels(floor)) for floor in (0.0, -1e-9)] == [False, True]
    assert [count(notes.of_noise(names)) for names in ([], ["a"])] == [False, True]
    assert "a and b are" in words(notes.of_noise(["a", "b"]))
    assert "in 1 of 2" in words(notes.of_solver(1, 2)) and notes.of_solver(0, 2) == []
    assert "in 1" not in words(notes.of_solver(1, 1))
    for epsilon, largest, lower in ((3.0, 2.0, True), (2.0, 2.0, False), (3.0, None, False)):
        (note,) = notes.of_unresolved(1.0, 2.0, epsilon, largest)
        assert note.remedy.startswith("Lower epsilon") == lower
    few, many = (blobs([9] * k) for k in (5, 6))
    for data, more in ((few, False), (many, True)):
        other = data.replace(classes=tuple("uvwxyz"[: len(data.classes)]))
        said = words(ad.otdd(data, other, cost=ad.GroundCost(label=ad.ByName())).notes)
        assert "No class name" in said and ("4, …" in said) == more


def test_one_column_of_few_and_of_many():
    """0.8 of the squared distances from five columns on, 0.99 of fewer."""
    for dim, share, said in ((5, 0.79, 0), (5, 0.81, 1), (4, 0.98, 0), (4, 0.991, 1), (1, 1.0, 0)):
        x = torch.cat([torch.eye(dim), -torch.eye(dim)]).double()  # equal variances about the mean
        x[:, 0] *= (share * (dim - 1) / (1 - share)) ** 0.5 if dim > 1 else 1.0
        data = ad.LabeledDataset(x, [0] * len(x))
        found = words(ad.otdd(data, data.replace(x=x.flip(0))).notes)
        assert (f"Column 'feature 1' carries {share:.0%}" in found) == said == ("Column" in found)
    x = torch.randn(20, 2, dtype=torch.float64)
    a, b = (ad.LabeledDataset(x + torch.tensor([gap, 0.0]), [0] * len(x)) for gap in (0.0, 30.0))
    assert "'feature 1'" in words(ad.otdd(a, b).notes)  # means count too


@pytest.mark.parametrize("sizes", [(3, 3), (4, 4), (3, 5), (4, 2)])
def test_the_two_best_matchings_are_those_of_all_assignments(sizes):
    for seed in range(4):
        sides = [labeled([9] * k, 2, seed + k, shift=side) for side, k in enumerate(sizes)]
        sides[0] = sides[0].replace(x=sides[0].x + 4 * draw(sizes[0], 2, seed=seed)[sides[0].y])
        found = Matchings.of(ad.GroundCost().between(*sides))
        squared = found.squared if sizes[0] <= sizes[1] else found.squared.T
        every = itertools.permutations(range(max(sizes)), min(sizes))
        costs = sorted(sum(squared[i, j] for i, j in enumerate(columns)) for columns in every)
        both = [float((table * found.squared).sum()) for table in (found.best, found.second)]
        assert both == pytest.approx(costs[:2])
        gap = found.second - found.best
        error = class_cost_error(found.pair, torch.from_numpy(gap))
        assert found.is_within_noise(found.second) == (costs[1] - costs[0] <= 2 * error)


def test_two_of_many_columns_that_carry_most_are_named():
    scale = torch.ones(30).index_fill(0, torch.tensor([3, 7]), 20.0)  # two columns with 97 %
    a, b = (ad.LabeledDataset(draw(50, 30, seed=seed) * scale, [0] * 50) for seed in range(2))
    said = words(ad.otdd(a, b).notes)
    assert "feature 4" in said and "feature 8" in said and "carry 9" in said
    many = [ad.LabeledDataset(data.x / scale, data.y) for data in (a, b)]
    assert "carr" not in words(ad.otdd(*many).notes)


@pytest.mark.parametrize("far", [1e6, 1e15])
def test_samples_without_mass_say_nothing(far):
    """Neither in notes nor in the error, wherever they are."""
    x = torch.cat([A.x, torch.tensor([[far, 0.0]], dtype=A.x.dtype)])
    weights = torch.cat([A.weights, A.weights.new_zeros(1)])
    with_one = ad.otdd(ad.LabeledDataset(x, torch.cat([A.y, A.y[:1]]), weights=weights), B)
    assert with_one.converged and with_one.notes == ()
    assert with_one.error == pytest.approx(ad.otdd(A, B).error, rel=0.1)


class TestParts:
    @pytest.mark.slow
    def test_error_holds_the_spread_of_parts_and_a_note_the_bias(self):
        a, b = blobs([50, 50]), blobs([50, 50], 1, shift=1.0)
        whole = ad.otdd(a, b)
        for seed in range(5):
            found = ad.otdd(a, b, solver=ad.MiniBatch(size=20, seed=seed))
            assert found.error > found.divergence.standard_error > 0.01 * whole.energy
            assert found.converged and "bias" in words(found.notes)

    def test_one_part_does_not_know_its_spread_and_all_parts_need_none(self):
        found = ad.otdd(A, B, solver=ad.MiniBatch(size=10, batches=1))
        assert found.error == float("inf") and "one batch" in words(found.notes)
        found = ad.otdd(A, B, solver=ad.MiniBatch(size=40))
        assert found.notes == () and found.error == pytest.approx(ad.otdd(A, B).error, rel=0.01)

    @pytest.mark.parametrize("order", [None, range(40), range(39, -1, -1)])
    def test_a_dataset_and_itself(self, order):
        b = A if order is None else A.subset(torch.tensor(order))
        found = ad.otdd(A, b, solver=ad.MiniBatch(size=10))
        assert found.energy > 0 and found.error == found.energy and not found.converged
        assert len(found.notes) == 1 and "random batches" in words(found.notes)


class Scripted(ad.Functional):
    """Takes given values, one after the other."""

    def __init__(self, values):
        self.values = iter(values)

    def __call__(self, rho):
        return next(self.values) + 0 * rho.x.sum()


class TestFlow:
    def test_silent_where_all_is_well(self):
        result = ad.flow(A, ad.OTDD(B), n_steps=5)
        assert result.notes == () and result.status == "completed" and result.best.index == 5

    @pytest.mark.parametrize(
        ("values", "said", "status"), [([3.0, 2.0, 1.0], "", "completed"), ([3.0, 2.0, 2.0 + 1e-15], "", "completed"),
        ([3.0, 2.0, 2.1, 1.0], "1 of 3 steps, first at step 2, and ended at 1, its", "completed"),
        ([3.0, 1.0, 2.0, 2.5], "2 of 3 steps, first at step 2, and ended at 2.5", "rose"), ([3.0], "", "completed")],
    )  # fmt: skip
    def test_values(self, values, said, status):
        data = ad.LabeledDataset([[0.0]], ["a"])
        n, control = len(values) - 1, ad.FixedSteps()
        result = ad.flow(data, Scripted(values), n_steps=n, control=control)
        assert result.status == status and result.best.value == min(values)
        assert said in words(result.notes) and bool(said) == bool(result.notes)

    @pytest.mark.filterwarnings("ignore::advect.errors.ConvergenceWarning")
    def test_solver_that_did_not_converge(self):
        total = ad.OTDD(B, solver=ad.Sinkhorn(epsilon=1e-3, max_iter=3)) + ad.Potential(ad.norm())
        result = ad.flow(A, total, n_steps=3, control=ad.FixedSteps())
        assert result.unconverged == 4 and "in 4 of 4 evaluations" in words(result.notes)

    def test_mixed(self):
        """Two classes that are drawn into one place have mixed, unless they were never apart or the target asks for it:
        there they overlap, or are fewer."""
        apart = blobs([50, 50])
        one_place, overlapping = (apart.replace(x=draw(100, 2, seed=seed)) for seed in (3, 4))
        one, none = (ad.LabeledDataset(one_place.x + 1, labels) for labels in ([0] * 100, None))
        turns = torch.arange(1200) % 2  # rows that are looked at are of all classes
        long = ad.LabeledDataset(draw(1200, 2) + 9.0 * turns[:, None], turns)
        result = ad.flow(A, ad.Potential(ad.norm()), n_steps=1)
        cost = ad.GroundCost(label=ad.NoLabels())
        for before, after, target, mixed in (
            (apart, one_place, None, True),
            (apart, apart.replace(x=0.1 * apart.x + 5), None, False),
            (one_place, one_place, None, False),
            (apart, one_place, overlapping, False),
            (apart, one_place, one, False),
            (apart, one_place, none, False),
            (apart, one_place, apart, True),
            (long, long.replace(x=draw(1200, 2, seed=3)), None, True),
        ):
            functional = result.functional if target is None else ad.OTDD(target, cost=cost)
            ended = dataclasses.replace(result, source=before, dataset=after, functional=functional)
            assert ("have mixed" in words(ended.notes)) == mixed
