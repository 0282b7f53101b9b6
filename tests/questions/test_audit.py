"""An audit against oracles (POT, closed forms), laws (order, scale, offset), and ordinary input that is awkward."""

import numpy as np
import pytest
import torch
from flow_cases import classes_on_axes as blobs

import advect as ad
from advect.questions.audit import _EPSILON, SelfTransport

NUMBERS = ("disagreement", "misfit", "twin_distance")


def relabeled(data, rows, by=1):
    y = data.y.clone()
    y[rows] = (y[rows] + by) % len(data.classes)
    return data.replace(y=y)


def audit(*sets, **options):
    return ad.audit(*sets, progress=False, **options)


def test_the_plan_is_that_of_pot_without_the_diagonal():
    ot = pytest.importorskip("ot")
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(25, 3, generator=generator, dtype=torch.float64)
    mass = torch.rand(25, generator=generator, dtype=torch.float64)
    mass = mass / mass.sum()
    solved = SelfTransport.solve(points, mass)
    plan = torch.cat([shares for shares, _ in solved.rows()]) * mass[:, None]
    costs = torch.cdist(points, points).square() / 2
    off = ~torch.eye(25, dtype=torch.bool)
    assert solved.epsilon == pytest.approx(_EPSILON * float(costs[off].median()))
    costs[~off] = 1e4
    options = {"method": "sinkhorn_log", "stopThr": 1e-12, "numItermax": 20_000}
    sides = mass.numpy(), mass.numpy(), costs.numpy()
    assert np.abs(plan.numpy() - ot.sinkhorn(*sides, solved.epsilon, **options)).sum() < 1e-3
    assert torch.allclose(plan, plan.T, atol=1e-5) and not bool(plan.diagonal().any())
    inside = torch.cat([potential for _, potential in solved.rows()])
    assert torch.allclose(inside, solved.potential, atol=1e-3 * solved.typical)


def test_two_points_share_their_cost():
    points = torch.tensor([[0.0], [3.0]], dtype=torch.float64)
    solved = SelfTransport.solve(points, torch.tensor([0.5, 0.5]).double())
    # P = a ⊗ a exp((2h − C)/ε) has mass ½ off the diagonal, where a ⊗ a is ¼
    expected = (4.5 + solved.epsilon * np.log(2)) / 2
    assert solved.potential.tolist() == pytest.approx([expected, expected], rel=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_flipped_labels_are_found_and_named(seed):
    clean = blobs(seed=seed)
    rows = np.random.default_rng(seed).choice(90, 9, replace=False)
    data = relabeled(clean, rows)
    found = audit(data)
    assert sorted(found.wrong) == sorted(rows)
    assert [found.proposed[row] for row in rows] == [clean.labels[row] for row in rows]
    kept = data.without(found.suspects)
    assert len(kept) == 90 - len(found.suspects) and not len(audit(kept).wrong)


def test_with_a_reference_even_most_labels_may_be_wrong():
    reference, data = blobs(60, seed=1), relabeled(blobs(seed=2), slice(0, 70))
    assert sorted(audit(data, reference).wrong) == list(range(70))
    assert sorted(audit(data).wrong) != list(range(70))


def test_odd_samples_and_copies_are_found():
    data = blobs(120, d=6)
    x = data.x.clone()
    x[5] += 9.0 * torch.eye(6, dtype=x.dtype)[5]
    x[[70, 91]] = x[[10, 10]]
    found = audit(data.replace(x=x))
    assert found.odd[0] == 5 and found.worst(1, by="misfit").tolist() == [5]
    assert found.copies.tolist() == [70, 91] and found.twin_distance[[10, 70, 91]].max() < 1e-6
    assert set(found.twin[[10, 70, 91]]) <= {10, 70, 91}
    assert len(found.odd) <= 3 and not len(found.wrong)  # Gaussians have tails


def test_small_changes_in_a_direction_that_never_varies_are_odd():
    """Others vary a hundred times as much, so that Euclidean distances hardly see it."""
    x = np.random.default_rng(0).normal(size=(100, 5)) * [10, 10, 10, 10, 0.1]
    x[7, 4] += 15.0
    found = audit(ad.LabeledDataset(x, [0] * 100), embedding=None)
    assert found.odd[0] == 7 and len(found.odd) <= 3
    assert found.twin_distance[7] < np.sort(found.twin_distance)[-3]


def test_what_the_reference_has_and_the_data_has_not_is_missing():
    reference, data = blobs(150, seed=1), blobs(90).without(slice(1, None, 3))  # no class 1
    found = audit(data, reference)
    rows = np.flatnonzero(reference.y.numpy() == 1)
    assert np.isinf(found.gap[rows]).all() and set(rows) <= set(found.missing)
    assert "missing from the data: 1" in " ".join(found.notes)
    # a mode of a class that is there
    rng = np.random.default_rng(0)
    two = np.concatenate([rng.normal(size=(40, 2)), rng.normal(size=(40, 2)) + 20])
    whole = ad.LabeledDataset(two, ["a"] * 80)
    found = audit(ad.LabeledDataset(rng.normal(size=(60, 2)), ["a"] * 60), whole)
    assert set(range(40, 80)) <= set(found.missing) and len(found.missing) <= 42
    assert len(audit(whole, whole).missing) <= 3  # tails


@pytest.mark.parametrize("with_reference", [False, True])
def test_order_scale_offset_and_dtype_change_nothing(with_reference):
    data = relabeled(blobs(), [3, 40])
    reference = [blobs(50, seed=4)] if with_reference else []
    found = audit(data, *reference)
    order = torch.randperm(90, generator=torch.Generator().manual_seed(0))
    turned = audit(data.subset(order), *reference)
    scaled = audit(*[each.replace(x=1e-3 * each.x + 1e3) for each in (data, *reference)])
    narrow = audit(*(each.to(dtype=torch.float32) for each in (data, *reference)))
    for name in NUMBERS:
        expected = getattr(found, name)
        assert getattr(turned, name) == pytest.approx(expected[order.numpy()], rel=1e-2, abs=2e-2)
        for result in (scaled, narrow):
            assert getattr(result, name) == pytest.approx(expected, rel=1e-2, abs=2e-2)
    assert set(found.wrong) == set(scaled.wrong) == {3, 40}


def test_one_gross_error_does_not_hide_the_others():
    data = relabeled(blobs(), [3, 40])
    x = data.x.clone()
    x[0] = 1e9
    found = audit(data.replace(x=x))
    assert {3, 40} <= set(found.wrong) and 0 in found.odd and len(found.suspects) < 12


def test_names_weights_and_missing_labels():
    names = ["dog", "cat", "a fox"]
    data = blobs()
    labels = [names[code] for code in data.y.tolist()]
    labels[4], labels[11] = "dog", None
    weights = np.ones(90)
    weights[20:30] = 0
    found = audit(ad.LabeledDataset(data.x, labels, weights=weights))
    assert found.wrong.tolist() == [4] and found.proposed[4] == "cat"
    assert found.proposed[11] == "a fox" and np.isnan(found.disagreement[11])
    assert np.isnan(found.misfit[11]) and "without a label" in " ".join(found.notes)
    assert np.isfinite(np.delete(found.misfit, 11)).all()


def test_awkward_data_has_an_answer():
    alone = ad.LabeledDataset([[0.0], [0.1], [0.2], [5.0]], [*"aaab"])
    found = audit(alone)
    assert np.isnan(found.disagreement[3]) and np.isnan(found.misfit[3]) and 3 not in found.wrong
    assert "one sample" in " ".join(found.notes)
    one = audit(blobs(k=1))
    assert not one.disagreement.any() and set(one.proposed) == {0}
    same = audit(ad.LabeledDataset(np.ones((6, 2)), [*"aaabbb"]))
    assert same.copies.tolist() == [1, 2, 3, 4, 5] and not len(same.odd)
    assert np.isfinite(same.disagreement).all()
    two = audit(ad.LabeledDataset([[0.0], [1.0]], [*"ab"]))
    assert np.isnan(two.disagreement).all() and not len(two.wrong)
    heavy = audit(blobs(weights=[1.0, *[0.001] * 89]))
    assert np.isfinite(heavy.disagreement).all()
    single = audit(ad.LabeledDataset([[0.0]], ["a"]), blobs(30, d=1, k=1).replace(classes=("a",)))
    assert single.disagreement.tolist() == [0.0]
    unknown = audit(relabeled(blobs(), [0]), blobs(60, k=2, seed=3))
    assert np.isnan(unknown.disagreement[2]) and "not in the reference" in " ".join(unknown.notes)


def test_result_as_table_and_json():
    found = audit(relabeled(blobs(), [3]))
    frame = found.to_pandas()
    assert frame["row"].tolist() == list(range(90)) and "wrong" in frame.loc[3, "suspect"]
    assert frame.index[frame["suspect"] != ""].tolist() == found.suspects.tolist()
    assert {row["row"] for row in found.to_dict()["Suspects"]} == set(found.suspects.tolist())
    digits = ad.datasets.load("digits", n=60)
    assert "Suspected label errors" in audit(relabeled(digits, [3, 4]), digits).figures()


@pytest.mark.parametrize(
    ("make", "said"), [(lambda: audit(np.zeros((3, 2))), "LabeledDataset"),
    (lambda: audit(ad.LabeledDataset([[0.0], [1.0]])), "labels"),
    (lambda: audit(ad.LabeledDataset([[0.0]], ["a"])), "two samples"),
    (lambda: audit(blobs(), blobs(d=5)), "harmonize"),
    (lambda: audit(blobs(), ad.LabeledDataset(np.zeros((3, 4)))), "reference"),
    (lambda: audit(blobs(), embedding="nothing"), "embedding"),
    (lambda: audit(blobs()).worst(3, by="size"), "misfit"), (lambda: audit(blobs()).worst(0), "n must"),
    (lambda: ad.audit(blobs(), progress=3), "progress")],
)  # fmt: skip
def test_bad_input_is_said(make, said):
    with pytest.raises(ad.InputError, match=said):
        make()


def test_without_leaves_the_rest():
    data = blobs(6, k=2, weights=[1, 1, 1, 1, 2, 2])
    rest = data.without([0, -1])
    assert rest.x.equal(data.x[1:5])
    assert rest.weights.tolist() == pytest.approx([0.2, 0.2, 0.2, 0.4])
    assert data.without([]).x.equal(data.x) and data.without(data.y == 1).y.tolist() == [0, 0, 0]
    for rows, said in ((slice(None), "at least one"), ([6], "positions")):
        with pytest.raises(ad.InputError, match=said):
            data.without(rows)


def test_flat_pixels_are_audited_as_images_are():
    digits = ad.datasets.load("digits", n=300)
    flat = ad.LabeledDataset(digits.x, digits.labels)
    found = [ad.audit(data, progress=False) for data in (digits, flat)]
    np.testing.assert_allclose(found[0].disagreement, found[1].disagreement)
    assert "columns share a unit" in str(found[1]) and "pixels" in str(found[0])
