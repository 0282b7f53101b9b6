"""Samples with borrowed residuals: whose residuals they are, and how often."""

import numpy as np
import pytest
import torch

import advect as ad
from advect.data.class_table import ClassTable


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def source_of(k=3, n=12, d=4, dtype=torch.float64, seed=0):
    """k classes, class c varying along axis c and, less, along the last."""
    y = torch.arange(n * k) % k
    x = torch.zeros(n * k, d, dtype=dtype)
    noise = torch.randn(n * k, 2, generator=generator(seed), dtype=dtype)
    x[torch.arange(n * k), y] = noise[:, 0] * (1 + y)
    x[:, -1] += 0.1 * noise[:, 1]
    return ad.LabeledDataset(x + 10 * y[:, None], [("class", int(c)) for c in y])


def few_of(shots=2, k=2, d=4, dtype=torch.float64, seed=1):
    x = torch.randn(shots * k, d, generator=generator(seed), dtype=dtype)
    return ad.LabeledDataset(x, [c for c in "uvwxyz"[:k] for _ in range(shots)])


def matching_of(values, few, source):
    table = ClassTable(np.array(values, dtype=float), few.classes, source.classes)
    return ad.ClassMatching(table)


def gaps(a, b):
    return torch.linalg.vector_norm(a[:, None] - b, dim=2)


def residuals(data):
    means = torch.stack([data.x[data.y == c].mean(dim=0) for c in range(len(data.classes))])
    return data.x - means[data.y]


def test_residuals_are_those_of_the_matched_classes():
    source, few = source_of(), few_of()
    matching = matching_of([[0.5, 0.5, 0], [0, 0, 1]], few, source)
    draws = [ad.classes.borrow(source, few, matching, n=48, generator=generator()) for _ in "ab"]
    more = draws[0]
    assert torch.equal(more.x, draws[1].x)
    own = residuals(source)
    for name, kin in (("u", (0, 1)), ("v", (2,))):
        lent = own[[int(c) in kin for c in source.y]]
        allowed = (few.of_class(name).x[:, None] + lent).reshape(-1, 4)
        distances = gaps(more.of_class(name).x, allowed)
        assert float(distances.amin(dim=1).max()) < 1e-12
        assert len(distances.argmin(dim=1).unique()) >= 12  # many different residuals


def test_each_shot_and_each_residual_has_its_turn():
    source, few = source_of(k=1, n=20), few_of(shots=4, k=1)
    more = ad.classes.borrow(source, few, n=20, generator=generator())
    apart = gaps(more.x, (few.x[:, None] + residuals(source)).reshape(-1, 4))
    found = apart.argmin(dim=1)
    assert torch.bincount(found // 20).tolist() == [5, 5, 5, 5]
    assert len((found % 20).unique()) == 20


def test_weights_say_how_often():
    source, few = source_of(k=1), few_of(shots=1, k=2)
    few = ad.LabeledDataset(few.x, few.labels, weights=[3, 1])
    heavy = source.replace(weights=torch.cat([torch.tensor([0.5, 0.5]), torch.zeros(10)]).double())
    more = ad.classes.borrow(heavy, few, n=8, generator=generator())
    assert more.counts == {"u": 6, "v": 2}
    half = (source.x[1] - source.x[0]) / 2  # the mean is between the two that have weight
    steps = more.x - few.x[more.y]
    assert float(torch.minimum((steps - half).norm(dim=1), (steps + half).norm(dim=1)).max()) < 1e-9


def test_bad_arguments():
    source, few = source_of(), few_of()
    turned = ad.ClassMatching.between(source, few)
    for arguments, options, message in (
        ((source, few), {"centre": "middle"}, "centre"),
        ((source, few), {"n": 0}, "n must be"),
        ((source, few_of(d=3)), {}, "harmonize"),
        ((source, ad.LabeledDataset(few.x)), {}, "labels"),
        ((source, few.x), {}, "LabeledDataset"),
        ((source, few, np.eye(3)), {}, "ClassMatching"),
        ((source, few, turned), {}, "matching"),
    ):
        with pytest.raises(ad.InputError, match=message):
            ad.classes.borrow(*arguments, **options)
    named = source.replace(columns=tuple("abcd")), few.replace(columns=tuple("dcba"))
    with pytest.raises(ad.InputError, match="columns"):
        ad.classes.borrow(*named, ad.ClassMatching.nearest(few, source))


def test_nearest_classes_against_numpy():
    source, few = source_of(k=3), few_of(shots=1, k=4)
    means = [
        np.array([data.of_class(name).x.mean(dim=0).numpy() for name in data.classes])
        for data in (few, source)
    ]
    squared = np.square(np.linalg.norm(means[0][:, None] - means[1], axis=2))
    for m in (1, 2, 3, 9):
        soft = ad.ClassMatching.nearest(few, source, m).soft.values
        kept = min(m, 3)
        for row, distances in zip(soft, squared, strict=True):
            chosen = np.argsort(distances)[:kept]
            assert set(np.flatnonzero(row)) == set(chosen)
            np.testing.assert_allclose(row[chosen], 1 / kept)


def test_nearest_leaves_classes_without_samples_out():
    source = source_of(k=3).replace(classes=(("class", 0), ("class", 1), ("class", 2), "empty"))
    few = few_of(shots=1).replace(classes=("u", "v", "none"))
    soft = ad.ClassMatching.nearest(few, source, 9).soft.values
    assert not soft[2].any() and not soft[:, 3].any()
    np.testing.assert_allclose(soft[:2], [[1 / 3, 1 / 3, 1 / 3, 0]] * 2)


def test_in_proportion_a_source_of_scaled_means_scales_the_few():
    directions = torch.tensor([[3.0, 1.0], [0.0, 2.0]])
    ratios = torch.tensor([0.5, 1.0, 1.5])
    x = (ratios[:, None, None] * directions).reshape(6, 2)
    source = ad.LabeledDataset(x, [0, 1] * 3)
    few = ad.LabeledDataset([[8.0, 0.0], [0.0, 6.0]], ["u", "v"])
    more = ad.classes.borrow(source, few, n=60, proportional=True)
    expected = ratios[:, None] * torch.tensor([8.0, 0.0])
    assert torch.equal(more.of_class("u").x.unique(dim=0), expected)
    # what is across the mean is added as it is
    shifts = [torch.tensor([-1.0, 3.0])[None] * s for s in (-1, 0, 1)]
    across = source.replace(x=torch.cat([directions + shift for shift in shifts]))
    more = ad.classes.borrow(across.subset([0, 2, 4]), few.subset([0]), n=30, proportional=True)
    assert sorted(more.x[:, 0].unique().tolist()) == [7.0, 8.0, 9.0]


def test_calibrated_samples_keep_how_they_lie_around_their_mean():
    y = torch.arange(300) % 6
    noise = torch.randn(300, 2, generator=generator()) * torch.tensor([0.1, 3.0])
    source = ad.LabeledDataset(noise + torch.stack([10.0 * y, 0.0 * y], 1), y)
    x = [[4.0, 5.0], [4.0, 3.0], [26.0, -3.0], [47.0, 0.5], [9.0, 1.0], [33.0, -2.0]]
    few = ad.LabeledDataset(x, list("uuvwxy"))
    options = [{"centre": centre, "n": 400} for centre in ("shots", "calibrated")]
    plain, moved = (
        ad.classes.borrow(source, few, **each, generator=generator(1)) for each in options
    )
    shift = (moved.x - plain.x)[moved.y == 0]
    assert torch.allclose(shift, shift[0].expand_as(shift), atol=1e-4)
    assert shift[0, 1] < -1 and abs(shift[0, 0]) < 0.2
