"""``ad.suggest`` and the defaults of the applications."""

import numpy as np
import pytest
import torch

import advect as ad

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
    moved = [data.replace(x=scale * (data.x + 7.0)) for data in (source, target)]
    assert ad.suggest(*moved).solver.epsilon == pytest.approx(scale**2 * one, rel=0.01)


def test_labels_that_are_numbers_missing_or_single():
    numbers = ad.LabeledDataset(GENERATOR.normal(size=(20, 2)), targets=np.arange(20.0))
    assert isinstance(ad.suggest(numbers, numbers).cost.label, ad.TargetValues)
    bare = ad.LabeledDataset(GENERATOR.normal(size=(20, 3)))
    without = ad.suggest(blobs([10, 10]), bare)
    assert isinstance(without.cost.label, ad.NoLabels) and "pseudo_labels" in str(without.notes[0])
    single = ad.LabeledDataset(GENERATOR.normal(size=(8, 3)), range(8))
    assert isinstance(ad.suggest(single, single).cost.label, ad.MeansOnly)
    for found in (ad.suggest(numbers, numbers), without, ad.suggest(single, single)):
        assert found.flow(n_steps=2).values[-1] <= found.objective(found.source).item() + 1e-9


def test_large_classes_in_many_dimensions_get_diagonals_and_many_samples_parts():
    wide = ad.LabeledDataset(torch.zeros(13_000, 1300), torch.arange(13_000) % 10)
    assert ad.suggest(wide, wide).cost.label == ad.Bures(diagonal=True)
    many = ad.LabeledDataset(torch.zeros(20_001, 2), torch.arange(20_001) % 2)
    assert isinstance(ad.suggest(many, many).solver, ad.MiniBatch)


def test_names_that_both_have_are_hinted_at():
    assert "ByName" in str(ad.suggest(blobs([9, 9]), blobs([9, 9])).notes[0])
    other = blobs([9, 9]).replace(classes=("x", "y"))
    assert not ad.suggest(blobs([9, 9]), other).notes


def test_samples_without_mass_are_not_looked_at():
    data, target = blobs([20, 20]), blobs([20, 20], shift=3.0)
    weights = torch.cat([torch.ones(40), torch.zeros(1)])
    x = torch.cat([data.x, torch.full((1, 3), 1e6, dtype=data.x.dtype)])
    far = ad.LabeledDataset(x, [*data.labels, "class 0"], weights=weights)
    found = ad.suggest(far, target)
    assert found.solver.epsilon == ad.suggest(data, target).solver.epsilon
    assert len(found.source) == 41


def test_targets_that_one_side_has_can_flow_by_features():
    x = GENERATOR.normal(size=(12, 3))
    one = ad.LabeledDataset(x, targets=x[:, 0])
    for other in (blobs([6, 6]), ad.LabeledDataset(x), ad.LabeledDataset(x, targets=x[:, :2])):
        found = ad.suggest(one, other)
        assert isinstance(found.cost.label, ad.NoLabels) and "Targets" in str(found.notes[0])
        found.flow(n_steps=1)
    assert not ad.suggest(one, one).notes


def test_what_it_cannot_take():
    with pytest.raises(ad.InputError, match="feature space"):
        ad.suggest(blobs([5, 5]), blobs([5, 5], dim=2))
    with pytest.raises(ad.InputError, match="LabeledDataset"):
        ad.suggest(np.ones((3, 2)), blobs([5, 5]))


def test_points_that_coincide_and_the_memory_limit():
    same = ad.LabeledDataset(np.ones((6, 2)), ["a", "a", "a", "b", "b", "b"])
    found = ad.suggest(same, same, memory_limit="1GiB")
    assert found.flow(n_steps=1).values == [0.0, 0.0]
    assert found.objective.transport.memory_limit == "1GiB"
