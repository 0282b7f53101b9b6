"""Samples with borrowed residuals: whose residuals they are, and how often; calibrated class means against
the formula with whole matrices."""

import pytest
import torch
from flow_cases import seeded
from torch.distributions import MultivariateNormal

import advect as ad
from advect.apps.few_shot import _FLOOR, _MORE, borrow, calibrated_means, class_means


def source_of(k=3, n=12, d=4, dtype=torch.float64, seed=0):
    """k classes, class c varying along axis c and, less, along the last."""
    y = torch.arange(n * k) % k
    x = torch.zeros(n * k, d, dtype=dtype)
    noise = torch.randn(n * k, 2, generator=seeded(seed), dtype=dtype)
    x[torch.arange(n * k), y] = noise[:, 0] * (1 + y)
    x[:, -1] += 0.1 * noise[:, 1]
    return ad.LabeledDataset(x + 10 * y[:, None], [("class", int(c)) for c in y])


def few_of(shots=2, k=2, d=4, dtype=torch.float64, seed=1):
    x = torch.randn(shots * k, d, generator=seeded(seed), dtype=dtype)
    return ad.LabeledDataset(x, [c for c in "uvwxyz"[:k] for _ in range(shots)])


def gaps(a, b):
    return torch.linalg.vector_norm(a[:, None] - b, dim=2)


def residuals(data):
    means = torch.stack([data.x[data.y == c].mean(dim=0) for c in range(len(data.classes))])
    return data.x - means[data.y]


def test_residuals_are_those_of_the_matched_classes():
    source, few = source_of(k=4), few_of()
    few = few.replace(x=few.x + 30 * few.y[:, None])  # classes 0 and 1 are near u, 2 and 3 near v
    draws = [borrow(source, few, 48, seeded()) for _ in "ab"]
    more = draws[0]
    assert torch.equal(more.x, draws[1].x)
    own = residuals(source)
    for name, kin in (("u", (0, 1)), ("v", (2, 3))):
        lent = own[[int(c) in kin for c in source.y]]
        allowed = (few.of_class(name).x[:, None] + lent).reshape(-1, 4)
        distances = gaps(more.of_class(name).x, allowed)
        assert float(distances.amin(dim=1).max()) < 1e-12
        assert len(distances.argmin(dim=1).unique()) >= 12  # many different residuals


def test_each_shot_and_each_residual_has_its_turn():
    source, few = source_of(k=1, n=20), few_of(shots=4, k=1)
    more = borrow(source, few, 20, seeded())
    found = gaps(more.x, (few.x[:, None] + residuals(source)).reshape(-1, 4)).argmin(dim=1)
    assert torch.bincount(found // 20).tolist() == [5, 5, 5, 5]
    assert len((found % 20).unique()) == 20


def test_weights_say_how_often():
    source, few = source_of(k=1), few_of(shots=1, k=2)
    few = ad.LabeledDataset(few.x, few.labels, weights=[3, 1])
    heavy = source.replace(weights=torch.cat([torch.tensor([0.5, 0.5]), torch.zeros(10)]).double())
    more = borrow(heavy.subset([0, 1]), few, 8, seeded())
    assert more.counts == {"u": 6, "v": 2}
    half = (source.x[1] - source.x[0]) / 2  # the mean is between the two that have weight
    steps = more.x - few.x[more.y]
    assert float(torch.minimum((steps - half).norm(dim=1), (steps + half).norm(dim=1)).max()) < 1e-9


def test_in_proportion_a_source_of_scaled_means_scales_the_few():
    directions = torch.tensor([[3.0, 1.0], [0.0, 2.0]])
    ratios = torch.tensor([0.5, 1.0, 1.5])
    source = ad.LabeledDataset((ratios[:, None, None] * directions).reshape(6, 2), [0, 1] * 3)
    few = ad.LabeledDataset([[8.0, 0.0], [0.0, 6.0]], ["u", "v"])
    more = borrow(source, few, 60, seeded(), proportional=True)
    expected = ratios[:, None] * torch.tensor([8.0, 0.0])
    assert torch.equal(more.of_class("u").x.unique(dim=0), expected)
    # what is across the mean is added as it is
    shifts = [torch.tensor([-1.0, 3.0])[None] * s for s in (-1, 0, 1)]
    across = source.replace(x=torch.cat([directions + shift for shift in shifts]))
    more = borrow(across.subset([0, 2, 4]), few.subset([0]), 30, seeded(), proportional=True)
    assert sorted(more.x[:, 0].unique().tolist()) == [7.0, 8.0, 9.0]


def test_calibrated_samples_keep_how_they_lie_around_their_mean():
    y = torch.arange(300) % 6
    noise = torch.randn(300, 2, generator=seeded()) * torch.tensor([0.1, 3.0])
    source = ad.LabeledDataset(noise + torch.stack([10.0 * y, 0.0 * y], 1), y)
    x = [[4.0, 5.0], [4.0, 3.0], [26.0, -3.0], [47.0, 0.5], [9.0, 1.0], [33.0, -2.0]]
    few = ad.LabeledDataset(x, list("uuvwxy"))
    plain, moved = (borrow(source, few, 400, seeded(1), calibrated=c) for c in (False, True))
    shift = (moved.x - plain.x)[moved.y == 0]
    assert torch.allclose(shift, shift[0].expand_as(shift), atol=1e-4)
    assert shift[0, 1] < -1 and abs(shift[0, 0]) < 0.2


def draws(k, per_class, seed, between=(9.0, 4.0, 0.0, 0.0), within=(0.5, 0.5, 2.0, 1.0)):
    """Classes that differ in the first directions, and samples in the last."""
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(k, len(between), generator=generator).double() * torch.tensor(between)
    y = torch.arange(k * per_class) % k
    noise = torch.randn(len(y), len(within), generator=generator).double() * torch.tensor(within)
    return ad.LabeledDataset(means[y] + noise, y), means


SOURCE, _ = draws(12, 50, 0)


def dense(source, few):
    """The posterior mean by d × d matrices, with the likeliest a by the density of the means."""
    lent, own = class_means(source), class_means(few)
    residuals = source.x.double() - lent[source.y]
    within = residuals.T @ residuals / len(residuals)
    within = within + _FLOOR * within.diagonal().mean() * torch.eye(source.dim)
    between, counts = torch.cov(lent.T), torch.bincount(few.y).double()
    centre, k, d = own.mean(dim=0), len(own), source.dim
    zero, pairs = torch.zeros(d).double(), list(zip(counts, own - centre, strict=True))

    def density(a):
        """The volume; what is in the exponent is −(k − 1) d / 2 at the best t."""
        laws = [(between + a * within + within / count, x) for count, x in pairs]
        t = sum(x @ torch.linalg.solve(law, x) for law, x in laws) / ((k - 1) * d)
        return sum(MultivariateNormal(zero, t * law).log_prob(zero) for law, _ in laws)

    best = max(_MORE, key=density)
    prior = between + best * within
    means = [prior @ torch.linalg.solve(prior + within / count, x) for count, x in pairs]
    return best, centre + torch.stack(means)


@pytest.mark.slow
@pytest.mark.parametrize("shots", [1, 3])
def test_means_are_those_of_the_formula_with_whole_matrices(shots):
    few, _ = draws(40, shots, 1)
    few = few.subset(range(len(few) - (1 if shots > 1 else 0)))  # classes of different sizes
    a, expected = dense(SOURCE, few)
    assert a < 0.5
    torch.testing.assert_close(calibrated_means(SOURCE, few), expected, rtol=1e-9, atol=1e-9)


def test_they_stay_where_classes_differ_otherwise():
    few, _ = draws(8, 1, 2, between=(0.0, 0.0, 9.0, 9.0))
    assert torch.equal(calibrated_means(SOURCE, few), class_means(few))


@pytest.mark.parametrize("move", ["offset", "rotation", "scale"])
def test_coordinates_do_not_matter(move):
    few, _ = draws(8, 1, 3)
    generator = torch.Generator().manual_seed(0)
    turn = torch.linalg.qr(torch.randn(4, 4, generator=generator).double())[0]
    unit = torch.eye(4).double()
    moves = {"offset": (unit, 1e4), "rotation": (turn, 0), "scale": (1e-3 * unit, 0)}
    matrix, shift = moves[move]
    moved = [data.replace(x=data.x @ matrix + shift) for data in (SOURCE, few)]
    expected = calibrated_means(SOURCE, few) @ matrix + shift
    torch.testing.assert_close(calibrated_means(*moved), expected, rtol=1e-7, atol=1e-7)


def test_weights_count_as_samples_do():
    few, _ = draws(5, 3, 4)
    twice = few.subset([*range(len(few)), 0])
    weighted = few.replace(weights=torch.tensor([2.0] + [1.0] * (len(few) - 1)).double() / 16)
    torch.testing.assert_close(class_means(weighted), class_means(twice))
    assert not torch.equal(calibrated_means(SOURCE, weighted), calibrated_means(SOURCE, few))


@pytest.mark.parametrize(
    "source",
    [
        ad.LabeledDataset([[0.0] * 4, [1.0] * 4], [0, 0]),  # one class
        ad.LabeledDataset([[0.0] * 4, [1.0] * 4], [0, 1]),  # nothing varies
    ],
)
def test_a_source_that_tells_nothing_leaves_means_alone(source):
    few, _ = draws(3, 1, 5)
    assert torch.equal(calibrated_means(source, few), class_means(few))
