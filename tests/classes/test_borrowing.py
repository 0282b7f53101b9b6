"""Samples with borrowed residuals: closed forms of their moments, invariances, and whose residuals
they are.
"""

import time

import numpy as np
import pytest
import torch

import advect as ad


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


def table(values, few, source):
    return ad.ClassTable(np.array(values, dtype=float), few.classes, source.classes)


def gaps(a, b):
    return torch.linalg.vector_norm(a[:, None] - b, dim=2)


def residuals(data):
    means = torch.stack([data.x[data.y == c].mean(dim=0) for c in range(len(data.classes))])
    return data.x - means[data.y]


@pytest.mark.parametrize("centre", ["shots", "mean"])
def test_residuals_are_those_of_the_matched_classes(centre):
    source, few = source_of(), few_of()
    matching = table([[0.5, 0.5, 0], [0, 0, 1]], few, source)
    more = ad.classes.borrow(source, few, matching, n=48, centre=centre, generator=generator())
    own = residuals(source)
    for name, kin in (("u", (0, 1)), ("v", (2,))):
        members = few.of_class(name).x
        places = members if centre == "shots" else members.mean(dim=0, keepdim=True)
        lent = own[[int(c) in kin for c in source.y]]
        allowed = (places[:, None] + lent).reshape(-1, 4)
        distances = gaps(more.of_class(name).x, allowed)
        assert float(distances.amin(dim=1).max()) < 1e-12
        assert len(distances.argmin(dim=1).unique()) >= 12  # all of them, not one over and over


def test_moments_around_the_mean_have_a_closed_form():
    """With every residual drawn equally often: mean of the shots, Σ P(c | y) S_c."""
    source, few = source_of(k=2), few_of(shots=3, k=2)
    matching = table([[0.25, 0.75], [1, 0]], few, source)
    more = ad.classes.borrow(
        source, few, matching, n=2 * 48, centre="mean", scale=2.0, generator=generator()
    )
    assert more.counts == {"u": 48, "v": 48}
    spread = [np.cov(source.x[source.y == c].T.numpy(), bias=True) for c in (0, 1)]
    for name, p in (("u", (0.25, 0.75)), ("v", (1, 0))):
        x = more.of_class(name).x.numpy()
        np.testing.assert_allclose(x.mean(axis=0), few.of_class(name).x.mean(dim=0), atol=1e-12)
        # of class 1, 36 draws from 12 residuals; of class 0, 12 or 48
        expected = 4 * (p[0] * spread[0] + p[1] * spread[1])
        np.testing.assert_allclose(np.cov(x.T, bias=True), expected, atol=1e-12)


def test_scale_of_the_shots():
    source, few = source_of(), few_of(shots=5, k=3)
    matching = ad.ClassMatching.nearest(few, source, 1)
    more = ad.classes.borrow(
        source, few, matching, n=3600, centre="mean", scale="shots", generator=generator()
    )
    wanted = few.moments().covariance.traces().mean()
    # drawn residuals have the variance with n, not n − 1
    got = residuals(more).square().sum(dim=1).mean() * 12 / 11
    assert float(got / wanted) == pytest.approx(1, rel=1e-9)
    one = ad.classes.borrow(source, few_of(shots=1, k=3), scale="shots", generator=generator())
    plain = ad.classes.borrow(source, few_of(shots=1, k=3), generator=generator())
    assert torch.equal(one.x, plain.x)  # one shot has no scale: the source's own


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_where_the_source_is_does_not_matter(dtype):
    source, few = source_of(dtype=dtype), few_of(dtype=dtype)
    matching = table([[0.5, 0.5, 0], [0, 0, 1]], few, source)
    here, far, moved = (
        ad.classes.borrow(*pair, matching, n=20, generator=generator(3))
        for pair in (
            (source, few),
            (source.replace(x=source.x + 64), few),
            (source, few.replace(x=few.x + 64)),
        )
    )
    assert here.x.dtype == dtype
    # features reach 90, whose last digit is 64 eps
    rounding = {"atol": 4 * 64 * torch.finfo(dtype).eps, "rtol": 0}
    torch.testing.assert_close(far.x, here.x, **rounding)
    torch.testing.assert_close(moved.x, here.x + 64, **rounding)


def test_draws_are_repeatable_and_differ():
    source, few = source_of(), few_of()
    first, again, other = (
        ad.classes.borrow(source, few, n=30, generator=generator(s)) for s in (0, 0, 1)
    )
    assert torch.equal(first.x, again.x) and not torch.equal(first.x, other.x)
    assert len(ad.classes.borrow(source, few)) == len(source)


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


def test_any_numbers_of_classes_also_without_a_match():
    source, few = source_of(k=3), few_of(shots=1, k=6)
    assert set(ad.classes.borrow(source, few, n=60).counts.values()) == {10}
    source, few = source_of(k=3), few_of(shots=1, k=2)
    matching = table([[0, 0, 0], [0, 1, 0]], few, source)
    more = ad.classes.borrow(source, few, matching, n=72, centre="mean", generator=generator())
    spread = more.of_class("u").x - few.x[0]
    assert bool((spread[:, :3].abs() > 0).any(dim=0).all())  # residuals of all three classes
    empty = source.replace(classes=(*source.classes, "nobody"))
    assert len(ad.classes.borrow(empty, few, n=5)) == 5
    assert len(ad.classes.borrow(source, few.replace(classes=("u", "v", "none")), n=5)) == 5


def test_samples_without_a_label_are_left_out():
    source, few = source_of(), few_of()
    matching = ad.ClassMatching.between(few, source)
    plain = ad.classes.borrow(source, few, matching, n=20, generator=generator())
    partly = ad.LabeledDataset(
        torch.cat([few.x, few.x.new_full((1, 4), 1e9)]), [*few.labels, None], classes=few.classes
    )
    more = ad.classes.borrow(source, partly, matching, n=20, generator=generator())
    assert more.complete
    torch.testing.assert_close(more.x, plain.x)


def test_a_source_of_single_samples_gives_copies_of_the_shots():
    source, few = ad.LabeledDataset(torch.randn(3, 4), list("abc")), few_of(dtype=torch.float32)
    more = ad.classes.borrow(source, few, n=10, scale="shots")
    assert float(gaps(more.x, few.x).amin(dim=1).max()) < 1e-6


def test_errors_say_what_to_do():
    source, few = source_of(), few_of()
    for bad, message in (
        (lambda: ad.classes.borrow(source, few, centre="middle"), "unknown centre"),
        (lambda: ad.classes.borrow(source, few, scale="few"), "unknown scale"),
        (lambda: ad.classes.borrow(source, few, scale=-1), "scale must be"),
        (lambda: ad.classes.borrow(source, few, n=0), "n must be"),
        (lambda: ad.classes.borrow(source, few_of(d=3)), "harmonize"),
        (lambda: ad.classes.borrow(source, ad.LabeledDataset(few.x)), "labeled samples"),
        (lambda: ad.classes.borrow(source, few.x), "must be a LabeledDataset"),  # type: ignore
        (lambda: ad.classes.borrow(source, few, np.eye(3)), "ClassMatching"),  # type: ignore
    ):
        with pytest.raises(ad.InputError, match=message):
            bad()
    swapped = few.replace(columns=("v", "u")), source.replace(columns=("u", "v"))
    with pytest.raises(ad.InputError, match="same columns"):
        ad.classes.borrow(swapped[1], swapped[0], ad.ClassMatching.nearest(few, source))
    turned = ad.ClassMatching.between(source, few)
    with pytest.raises(ad.InputError, match=r"reversed\(\)"):
        ad.classes.borrow(source, few, turned)
    assert len(ad.classes.borrow(source, few, turned.reversed(), n=4)) == 4


@pytest.mark.slow
def test_many_samples_take_well_under_a_second():
    x = torch.randn(2000, 784, generator=generator())
    source = ad.LabeledDataset(x, [int(c) for c in torch.arange(2000) % 26])
    few = ad.LabeledDataset(x[:50] + 1, [int(c) for c in torch.arange(50) % 10])
    began = time.process_time()
    ad.classes.borrow(source, few, scale="shots", generator=generator())
    assert time.process_time() - began < 1.0


# The nearest classes


def test_nearest_classes_against_numpy():
    source, few = source_of(k=3), few_of(shots=1, k=4)
    means = [[part.x.mean(dim=0).numpy() for _, part in data.by_class()] for data in (few, source)]
    squared = np.square(np.linalg.norm(np.array(means[0])[:, None] - np.array(means[1]), axis=2))
    for m in (1, 2, 3, None, 9):
        soft = ad.ClassMatching.nearest(few, source, m).soft.values
        kept = 3 if m is None else min(m, 3)
        for row, distances in zip(soft, squared, strict=True):
            chosen = np.argsort(distances)[:kept]
            assert set(np.flatnonzero(row)) == set(chosen)
            np.testing.assert_allclose(row[chosen], 1 / kept)
    soft = ad.ClassMatching.nearest(few, source, None, temperature=0.3).soft.values
    expected = np.exp(-squared / (0.3 * squared.mean()))
    np.testing.assert_allclose(soft, expected / expected.sum(axis=1, keepdims=True), rtol=1e-9)
    cold = ad.ClassMatching.nearest(few, source, None, temperature=1e-6)
    assert cold.hard == ad.ClassMatching.nearest(few, source, 1).hard


def test_nearest_leaves_classes_without_samples_out():
    source = source_of(k=3).replace(classes=(("class", 0), ("class", 1), ("class", 2), "empty"))
    few = few_of(shots=1).replace(classes=("u", "v", "none"))
    for temperature in (None, 0.5):
        soft = ad.ClassMatching.nearest(few, source, None, temperature=temperature).soft.values
        assert not soft[2].any() and not soft[:, 3].any()
        np.testing.assert_allclose(soft[:2].sum(axis=1), 1)


def test_sharpened_is_the_hard_matching():
    matching = ad.ClassMatching.between(few_of(shots=3, k=2), source_of(k=3))
    sharp = matching.sharpened()
    assert sharp.hard == matching.hard
    assert set(np.unique(sharp.soft.values)) == {0.0, 1.0}
    np.testing.assert_allclose(
        sharp.coupling.values.sum(axis=1), matching.coupling.values.sum(axis=1)
    )


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
    across = source.replace(
        x=torch.cat([directions + torch.tensor([-1.0, 3.0])[None] * s for s in (-1, 0, 1)])
    )
    more = ad.classes.borrow(across.subset([0, 2, 4]), few.subset([0]), n=30, proportional=True)
    assert sorted(more.x[:, 0].unique().tolist()) == [7.0, 8.0, 9.0]


def test_calibrated_samples_keep_how_they_lie_around_their_mean():
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(300) % 6
    noise = torch.randn(300, 2, generator=generator) * torch.tensor([0.1, 3.0])
    source = ad.LabeledDataset(noise + torch.stack([10.0 * y, 0.0 * y], 1), y)
    few = ad.LabeledDataset(
        [[4.0, 5.0], [4.0, 3.0], [26.0, -3.0], [47.0, 0.5], [9.0, 1.0], [33.0, -2.0]],
        list("uuvwxy"),
    )
    plain, moved = (
        ad.classes.borrow(
            source, few, n=400, centre=centre, generator=torch.Generator().manual_seed(1)
        )
        for centre in ("shots", "calibrated")
    )
    shift = (moved.x - plain.x)[moved.y == 0]
    assert torch.allclose(shift, shift[0].expand_as(shift), atol=1e-4)
    assert shift[0, 1] < -1 and abs(shift[0, 0]) < 0.2
