"""Class means calibrated by another dataset, against the formula with whole matrices and laws."""

import pytest
import torch
from torch.distributions import MultivariateNormal

import advect as ad
from advect.classes.borrowing import _FLOOR, _MORE, calibrated_means, class_means


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


def test_they_are_nearer_to_the_truth_where_classes_lie_alike():
    errors = []
    for seed in range(20):
        few, truth = draws(8, 1, 100 + seed)
        plain, found = class_means(few), calibrated_means(SOURCE, few)
        errors.append([float((each - truth).square().sum()) for each in (plain, found)])
    plain, found = torch.tensor(errors).mean(dim=0)
    assert found < 0.5 * plain


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
