"""Statistics and p-values of permutations, against scipy and by hand."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import cdist

from advect.questions import permutations as tests
from advect.questions.permutations import contrasts, distances, p_value, quadratic


def sample(n=30, m=20, d=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n + m, d)), np.arange(n + m) >= n, rng


def test_the_quadratic_form_is_energy_distance_and_squared_mmd():
    x, window, rng = sample(d=1)
    u = contrasts(window, 3, rng)
    energy = stats.energy_distance(x[window, 0], x[~window, 0]) ** 2
    assert quadratic(-cdist(x, x), u)[0] == pytest.approx(energy, rel=1e-10)
    kernel = tests.gaussian(distances(x), 0.7)
    one, other = kernel[window], kernel[~window]
    mmd = one[:, window].mean() + other[:, ~window].mean() - 2 * one[:, ~window].mean()
    assert quadratic(kernel, u)[0] == pytest.approx(mmd, rel=1e-10)


def test_p_values_agree_with_all_permutations():
    """Of 252 ways to choose five of ten, enumerated; scipy's exact test says the same."""
    rng = np.random.default_rng(4)
    x = np.concatenate([rng.standard_normal(5), 0.9 + rng.standard_normal(5)])
    window = np.arange(10) >= 5
    kernel = -np.abs(x[:, None] - x[None, :])

    def statistic(rows):
        u = np.full(10, -1 / 5)
        u[list(rows)] = 1 / 5
        return u @ kernel @ u

    every = [statistic(rows) for rows in itertools.combinations(range(10), 5)]
    exact = np.mean(np.array(every) >= statistic(range(5, 10)) - 1e-12)
    options = {"alternative": "greater", "n_resamples": np.inf}
    sides = x[5:], x[:5]
    theirs = stats.permutation_test(sides, stats.energy_distance, **options).pvalue
    drawn = tests.permuted(lambda u: quadratic(kernel, u), window, 20_000, rng)
    assert exact == pytest.approx(theirs)
    assert p_value(drawn) == pytest.approx(exact, abs=4 * math.sqrt(exact / 20_000))


@pytest.mark.slow
def test_the_level_is_kept_where_there_are_ties():
    """p ≤ α with a chance of at most α, for a statistic of few values too."""
    rng = np.random.default_rng(0)
    window = np.arange(24) >= 12
    found = []
    for _ in range(2000):
        x = rng.integers(0, 3, 24).astype(float)
        u = contrasts(window, 39, rng)
        found.append(p_value(quadratic(-np.abs(x[:, None] - x[None, :]), u)))
    for level in (0.025, 0.05, 0.1, 0.5):
        assert np.mean(np.array(found) <= level) <= level + 3 * math.sqrt(level / 2000)


def test_sides_change_within_strata_only():
    _, window, rng = sample()
    groups = np.arange(50) % 4
    u = contrasts(window, 200, rng, groups)
    for group in range(4):
        counts = (u[groups == group] > 0).sum(axis=0)
        assert (counts == counts[0]).all()
    assert len({tuple(column) for column in u.T}) > 150
    assert not np.allclose(u[:, 1], u[:, 2])


def test_labels_in_groups_by_their_definition():
    _, window, rng = sample()
    codes, groups = rng.integers(0, 4, 50), rng.integers(0, 6, 50)
    u = contrasts(window, 9, rng)
    kernel = rng.random((6, 6))
    kernel = kernel @ kernel.T

    one_hot = np.eye(5)[codes]  # one class has no sample
    h = np.zeros((6, 5, u.shape[1]))
    for group in range(6):
        rows = groups == group
        h[group] = (one_hot[rows] - one_hot[rows].mean(axis=0)).T @ u[rows]
    expected = np.einsum("gac,gh,hac->c", h, kernel, h)
    sums = tests.label_sums(u, codes, groups, 5)
    assert np.allclose(tests.label_distance(*sums, kernel), expected)


def test_holm_by_its_definition():
    p = np.random.default_rng(1).random(7) ** 3
    order = np.argsort(p)
    expected = np.empty(7)
    for place, row in enumerate(order):
        expected[row] = min(1, max((7 - k) * p[order[k]] for k in range(place + 1)))
    assert np.allclose(tests.holm(p), expected)
    assert np.allclose(tests.holm([*p, math.nan])[:7], expected) and tests.holm([]).shape == (0,)


@pytest.mark.slow
def test_the_largest_of_several_keeps_the_level():
    rng = np.random.default_rng(2)
    scales = np.array([[1.0], [100.0], [1e-6]])
    draws = [rng.exponential(size=(3, 40)) * scales for _ in range(1500)]
    rejected = [p_value(tests.largest([*rows])) <= 0.1 for rows in draws]
    assert 0.1 - 3 * 0.0078 < np.mean(rejected) < 0.1 + 3 * 0.0078


@pytest.mark.parametrize("scale", [1e-150, 1e-8, 1.0, 1e150])
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_distances_have_no_scale_and_no_origin(scale, offset):
    x, _, _ = sample()
    assert np.allclose(distances((x + offset) * scale), distances(x), atol=1e-9)
    assert np.median(distances(x)[np.triu_indices(50, 1)]) == pytest.approx(1.0)


def test_groups_do_not_depend_on_the_order_of_samples():
    x, _, rng = sample(n=60, m=40)
    order = rng.permutation(100)
    one, other = tests.strata(x, 10, 0)[order], tests.strata(x[order], 10, 0)
    assert (one == other).all() and len(np.unique(one)) == 10
    assert tests.strata(np.zeros((5, 2)), 2, 0).tolist() == [0] * 5
