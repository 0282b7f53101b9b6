"""What ``ad.flow(source, target)`` chooses, ``ad.suggest``, and class matchings by name."""

import numpy as np
import pytest
import torch

import advect as ad
from advect.data.size import SIZES
from advect.transport.sampling_error import class_cost_error

GENERATOR = np.random.default_rng(0)


def blobs(counts, shift=0.0, dim=3):
    codes = np.repeat(np.arange(len(counts)), counts)
    x = GENERATOR.normal(size=(len(codes), dim)) + 4.0 * codes[:, None] * np.eye(dim)[0] + shift
    return ad.LabeledDataset(x, [f"class {code}" for code in codes])


def chosen(found, option):
    return next(one for one in found.advice if one.option == option)


def test_classes_get_equal_mass_where_their_shares_differ():
    even = ad.suggest(blobs([20, 20]), blobs([30, 30]))
    uneven = ad.suggest(blobs([5, 45]), blobs([30, 30]))
    assert not even.equal_mass and uneven.equal_mass
    assert torch.allclose(uneven.source.class_mass, torch.full((2,), 0.5, dtype=torch.float64))
    assert "10.0%" in chosen(uneven, "equal_mass").reason


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_epsilon_follows_the_units_and_not_the_place(scale):
    source, target = blobs([20, 20]), blobs([20, 20], shift=3.0)
    one = ad.suggest(source, target).solver.epsilon
    moved = [data.replace(x=scale * (data.x + s)) for data, s in ((source, 7.0), (target, 90.0))]
    assert ad.suggest(*moved).solver.epsilon == pytest.approx(scale**2 * one, rel=0.01)


def test_labels_that_are_numbers_missing_or_single():
    numbers = ad.LabeledDataset(GENERATOR.normal(size=(20, 2)), targets=np.arange(20.0))
    assert isinstance(ad.suggest(numbers, numbers).cost.label, ad.TargetValues)
    bare = ad.LabeledDataset(GENERATOR.normal(size=(20, 3)))
    without = ad.suggest(blobs([10, 10]), bare)
    assert isinstance(without.cost.label, ad.NoLabels)
    assert "pseudo_labels" in chosen(without, "cost.label").reason
    single = ad.LabeledDataset(GENERATOR.normal(size=(8, 3)), range(8))
    other = single.replace(classes=tuple("abcdefgh"))
    assert isinstance(ad.suggest(single, other).cost.label, ad.MeansOnly)
    for one, two in ((numbers, numbers), (blobs([10, 10]), bare), (single, other)):
        values = ad.flow(one, two, n_steps=2).values
        assert values[-1] <= values[0] + 1e-9


def test_large_classes_in_many_dimensions_get_diagonals_and_many_samples_parts():
    wide = ad.LabeledDataset(torch.zeros(13_000, 1300), torch.arange(13_000) % 10)
    renamed = wide.replace(classes=tuple("abcdefghij"))
    assert ad.suggest(wide, renamed, max_samples=13_000).cost.label == ad.Bures(diagonal=True)
    many = ad.LabeledDataset(torch.zeros(20_001, 2), torch.arange(20_001) % 2)
    assert isinstance(ad.suggest(many, many, max_samples=20_001).solver, ad.MiniBatch)


def swapped(a, b, names=("disk", "triangle")):
    """Two sets of two classes, whose names are at the place of the other one in the second."""
    source = blobs([20, 20]).replace(classes=names)
    return source, blobs([a, b], shift=1.0).replace(classes=names[::-1])


def test_names_that_agree_count():
    source, target = swapped(20, 20)
    result = ad.flow(source, target)
    assert "label=ad.Bures()" in result.settings["cost.label"]
    ends = result.dataset.laws().means, target.laws().means
    assert torch.allclose(ends[0], ends[1].flip(0), atol=0.5)  # by the order of classes
    by_law = ad.flow(source, target, label=ad.Bures(), n_steps=12)
    assert torch.allclose(by_law.dataset.laws().means, ends[1], atol=0.5)
    assert "given" in by_law.settings["cost.label"]
    other = target.replace(classes=("disk", "square"))
    assert "Bures" in ad.flow(source, other, n_steps=1).settings["cost.label"]
    moving = ad.suggest(source, target, dynamics=ad.JointVariableLabels())
    assert isinstance(moving.cost.label, ad.Bures)


def test_numbers_count_as_names():
    for names in ((0, 1), (-1, 1)):
        assert isinstance(ad.suggest(*swapped(20, 20, names)).cost.label, ad.ByName)
    alike = blobs([20, 20]).replace(classes=(0, 1)), blobs([20, 20]).replace(classes=(0, 1.0))
    assert isinstance(ad.suggest(*alike).cost.label, ad.ByName)


def test_a_note_tells_of_names_that_the_matching_does_not_follow():
    source, target = swapped(20, 20)
    distance = ad.otdd(source, target)
    found = [str(note) for note in distance.notes if "ByName" in note.remedy]
    assert len(found) == 1 and "disk → triangle" in found[0]
    by_name = ad.otdd(source, target, cost=ad.GroundCost(label=ad.ByName()))
    assert not any("matching" in note.what for note in by_name.notes)
    result = ad.flow(source, ad.OTDD(target), n_steps=1)
    assert found == [str(note) for note in result.notes if "ByName" in note.remedy]


def test_a_note_tells_of_two_matchings_that_are_equally_good():
    source, target = blobs([20, 20]), blobs([20, 20]).replace(classes=("x", "y"))
    assert not any("noise" in note.what for note in ad.otdd(source, target).notes)
    flat = target.replace(x=target.x * torch.tensor([0.0, 1.0, 1.0]))  # classes differ in x_1 alone
    notes = [note.what for note in ad.otdd(source, flat).notes]
    assert sum("noise" in what for what in notes) == 1


def test_the_noise_of_a_difference_is_that_of_other_draws():
    swap = torch.tensor([[-1.0, 1.0], [1.0, -1.0]], dtype=torch.float64)
    values, errors = [], []
    for _ in range(300):
        pair = ad.GroundCost().between(blobs([40, 40]), blobs([60, 60], shift=1.0))
        values.append(float((swap * pair.label_distances.detach()).sum()))
        errors.append(class_cost_error(pair, swap))
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.15)


def test_the_automatic_flow_is_an_explicit_one():
    source, target = blobs([12, 30]), blobs([20, 20], shift=3.0)
    found, automatic = ad.suggest(source, target), ad.flow(source, target)
    objective = ad.OTDD(found.target, cost=found.cost, solver=found.solver)
    parts = {"dynamics": found.dynamics, "integrator": found.integrator}
    explicit = ad.flow(found.source, objective, n_steps=found.n_steps, **parts)
    assert torch.equal(automatic.dataset.x, explicit.dataset.x)
    assert automatic.values == explicit.values and not explicit.advice
    assert dict(found._summary()).items() <= automatic.settings.items()


def test_given_arguments_win():
    source, target = blobs([12, 30]), blobs([20, 20], shift=3.0)
    given = {"dynamics": ad.JointFixedLabels(), "integrator": ad.Adam(0.1), "n_steps": 2}
    costs = {"label": ad.MeansOnly(), "label_weight": 7.0, "solver": ad.ExactOT()}
    result = ad.flow(source, target, equal_mass=False, **given, **costs)
    assert result.n_steps == 2 and result.control == ad.FixedSteps()
    assert (result.dynamics, result.integrator) == (given["dynamics"], given["integrator"])
    assert result.options["cost"] == ad.GroundCost(label=ad.MeansOnly(), label_weight=7.0)
    assert result.options["solver"] is costs["solver"]
    assert torch.equal(result.source.weights, source.weights)
    assert ad.suggest(source, target, integrator=ad.Adam(0.1)).n_steps == 100
    with pytest.raises(ad.InputError, match="cost"):
        ad.flow(source, ad.OTDD(target), label_weight=2.0)


def test_samples_without_mass_are_not_looked_at():
    data, target = blobs([20, 20]), blobs([20, 20], shift=3.0)
    weights = torch.cat([torch.ones(40), torch.zeros(1)])
    x = torch.cat([data.x, torch.full((1, 3), 1e6, dtype=data.x.dtype)])
    found = ad.suggest(ad.LabeledDataset(x, [*data.labels, "class 0"], weights=weights), target)
    assert found.solver.epsilon == ad.suggest(data, target).solver.epsilon
    assert len(found.source) == 41


def test_targets_that_one_side_has_can_flow_by_features():
    x = GENERATOR.normal(size=(12, 3))
    one = ad.LabeledDataset(x, targets=x[:, 0])
    for other in (blobs([6, 6]), ad.LabeledDataset(x), ad.LabeledDataset(x, targets=x[:, :2])):
        found = ad.flow(one, other, n_steps=1)
        assert isinstance(found.options["cost"].label, ad.NoLabels)
        assert "targets" in found.settings["cost.label"]


def test_what_it_cannot_take():
    with pytest.raises(ad.InputError, match="feature space"):
        ad.flow(blobs([5, 5]), blobs([5, 5], dim=2))
    with pytest.raises(ad.InputError, match="LabeledDataset"):
        ad.suggest(np.ones((3, 2)), blobs([5, 5]))


def test_points_that_coincide_and_the_memory_limit():
    same = ad.LabeledDataset(np.ones((6, 2)), ["a", "a", "a", "b", "b", "b"])
    found = ad.suggest(same, same, memory_limit="1GiB")
    assert ad.flow(same, same, n_steps=1).values == [0.0, 0.0]
    assert found.objective.transport.memory_limit == "1GiB"


def test_large_datasets_are_drawn(monkeypatch):
    monkeypatch.setitem(SIZES, "flow", 60)
    source, target = ad.datasets.gaussians(300), ad.datasets.gaussians(90, shift=(4.0, 0.0))
    result = ad.flow(source, target, n_steps=2)
    assert len(result.dataset) == len(result.source) == len(result.target) == 60
    assert set(result.source.counts.values()) == {20}
    assert "max_samples" in result.notes[0].remedy and "at most 60" in str(result)
    rows = {tuple(row) for row in source.x.tolist()}
    assert len({tuple(row) for row in result.source.x.tolist()} & rows) == 60
    whole = ad.flow(source, target, n_steps=1, max_samples=300)
    assert len(whole.dataset) == 300 and "max_samples" not in whole.settings
    assert len(ad.flow(source, target, n_steps=1, max_samples=45).dataset) == 45
    assert len(ad.flow(source, target, n_steps=1, solver=ad.MiniBatch(size=30)).dataset) == 300
    with pytest.raises(ad.InputError, match="max_samples"):
        ad.flow(source, ad.OTDD(target), max_samples=45)
    with pytest.raises(ad.InputError, match="pass max_samples=300"):
        ad.apps.repurpose(lambda x: x[:, :3], target, source)
