"""Class matching: identities, permutations, sums, and the layer against the function."""

import itertools

import numpy as np
import pytest
import torch
from covering import examples
from hypothesis import given, strategies as st

import advect as ad
from advect.data.class_table import ClassTable


def classes_at(centres, names, n=30, seed=0, spread=0.3):
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n * len(centres)) % len(centres)
    x = torch.tensor(centres, dtype=torch.float64)[y]
    noise = spread * torch.randn(x.shape, generator=generator, dtype=torch.float64)
    return ad.LabeledDataset(x + noise, [names[i] for i in y])


CENTRES = [[0.0, 0.0], [4.0, 0.0], [0.0, 5.0], [7.0, 7.0]]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4)))[3::5])
def test_renamed_classes_are_found(order):
    reference = classes_at(CENTRES, "abcd")
    data = classes_at([CENTRES[i] for i in order], "wxyz", seed=1)
    expected = {"wxyz"[i]: "abcd"[order[i]] for i in range(4)}
    assert ad.ClassMatching.between(data, reference).hard == expected


@examples(30)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 10**6))
def test_sums(k_data, k_reference, seed):
    generator = torch.Generator().manual_seed(seed)
    places = [torch.randn(k, 3, generator=generator).tolist() for k in (k_data, k_reference)]
    data, reference = (classes_at(p, range(len(p)), n=8, seed=seed + 1) for p in places)
    matching = ad.ClassMatching.between(data, reference)
    np.testing.assert_allclose(matching.soft.values.sum(axis=1), 1, rtol=1e-9)
    np.testing.assert_allclose(matching.weights.values.sum(axis=0), 1, rtol=1e-9)
    np.testing.assert_allclose(matching.coupling.values.sum(axis=1), 1 / k_data, rtol=1e-9)
    answers = torch.randn(5, k_reference, generator=generator, dtype=torch.float64).softmax(dim=1)
    np.testing.assert_allclose(matching.apply(answers).sum(axis=1), 1, rtol=1e-9)


@pytest.mark.parametrize(("k_data", "k_reference"), [(26, 10), (2, 10), (10, 10), (1, 5)])
def test_any_numbers_of_classes_and_the_layer_is_apply(k_data, k_reference):
    generator = torch.Generator().manual_seed(3)
    places = [(4 * torch.randn(k, 5, generator=generator)).tolist() for k in (k_data, k_reference)]
    data = classes_at(places[0], range(100, 100 + k_data), n=6)
    reference = classes_at(places[1], range(k_reference), n=6, seed=1)
    matching = ad.ClassMatching.between(data, reference)
    assert set(matching.hard) == set(data.classes)
    network = torch.nn.Sequential(torch.nn.Linear(5, k_reference), torch.nn.Softmax(dim=1)).double()
    whole = torch.nn.Sequential(network, matching.as_layer(dtype=torch.float64))
    with torch.no_grad():
        expected = matching.apply(network(data.x))
        np.testing.assert_allclose(whole(data.x).numpy(), expected, atol=1e-12)
    assert whole[1].weight.shape == (k_data, k_reference) and not whole[1].weight.requires_grad
    predicted = matching.predict(network(data.x))
    assert predicted == [data.classes[code] for code in whole(data.x).argmax(dim=1).tolist()]


def test_a_frequent_class_does_not_spill_over():
    reference = classes_at(CENTRES, "abcd")
    rows = [*range(160), *list(range(0, 160, 4)) * 20]  # "a" 21 times
    data = classes_at(CENTRES, "abcd", n=40, seed=2).subset(rows)
    assert ad.ClassMatching.between(data, reference).hard == {name: name for name in "abcd"}
    spilled = ad.ClassMatching.between(data, reference, balanced=False).soft
    assert spilled["a", "a"] < 0.5  # "a" has too much mass for the reference's


def test_answers_of_classes_that_the_reference_has_no_samples_of():
    data = ad.LabeledDataset([[0.0], [5.0]], ["low", "high"])
    reference = ad.LabeledDataset([[0.0], [5.0]], [0, 1], classes=[0, 1, 2])
    matching = ad.ClassMatching.between(data, reference)
    certain = [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    for answers in ([2, 0], certain, torch.tensor(certain)):
        assert matching.predict(answers) == [None, "low"]
        assert matching.predict(answers, unknown="rare") == ["rare", "low"]
        assert matching.apply(answers).tolist() == [[0.0, 0.0], [0.0, 1.0]]
    # the rest of an answer still counts
    assert matching.predict([[0.0, 1e-9, 1.0], [0.3, 0.2, 0.5]]) == ["high", "low"]
    with torch.no_grad():
        layer = matching.as_layer(dtype=torch.float64)(torch.tensor(certain, dtype=torch.float64))
    assert np.array_equal(layer.numpy(), matching.apply(certain))


def test_a_distance_gives_the_same_coupling():
    data = classes_at(CENTRES, "abcd").balanced()
    reference = classes_at(CENTRES[::-1], "wxyz", seed=1).balanced()
    own = ad.ClassMatching(ad.otdd(data, reference).class_matching).coupling
    expected = ad.ClassMatching.between(data, reference).coupling
    np.testing.assert_allclose(own.values, expected.values, atol=1e-12)


BAD = {
    "probabilities": lambda m: m.apply(np.ones((2, 3))),
    "reference classes": lambda m: m.apply(["a", "nobody"]),
    "masses": lambda m: ad.ClassMatching(ClassTable(np.array([[-1.0]]), ("a",), ("b",))),
    "label for each sample": lambda m: ad.ClassMatching.between(
        ad.LabeledDataset([[0.0]]), ad.LabeledDataset([[0.0]])
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_answers(what):
    data = classes_at(CENTRES, "abcd")
    with pytest.raises(ad.InputError, match=what):
        BAD[what](ad.ClassMatching.between(data, data))
