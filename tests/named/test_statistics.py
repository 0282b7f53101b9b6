"""Class statistics in one pass agree with numpy on all data, whatever the batches and the offset."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from covering import examples
from hypothesis import given, strategies as st
from numpy.testing import assert_allclose
from torch.testing import assert_close

import advect as ad
from advect.errors import InputError
from advect.io.statistics import ClassStatistics


def sample(n=300, dim=3, classes=3, seed=0, offset=0.0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    x = rng.normal(size=(n, dim)) * (1 + np.arange(dim)) + 3 * y[:, None] + offset
    return x, y, rng.random(n) + 0.1


def weighted_covariance(x, weights):
    """Textbook reliability weights, in longdouble: Σ w (x − μ)(x − μ)ᵀ / (Σ w − Σ w²/Σ w)."""
    x, weights = x.astype(np.longdouble), weights.astype(np.longdouble)
    mean = (weights[:, None] * x).sum(0) / weights.sum()
    scatter = (weights[:, None, None] * (x - mean)[:, :, None] * (x - mean)[:, None, :]).sum(0)
    return mean, scatter / (weights.sum() - (weights**2).sum() / weights.sum())


def assert_same(a, b, tolerance=1e-12):
    assert (a.counts, a.missing) == (b.counts, b.missing)
    assert list(a.weights.values()) == pytest.approx(list(b.weights.values()), rel=1e-13)
    assert_close(a.means, b.means, rtol=tolerance, atol=tolerance)
    assert_close(a.covariances, b.covariances, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("offset", [0.0, 1e8, -1e8, 1e12])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("diagonal", [False, True])
def test_weights_batches_and_offsets(offset, weighted, diagonal):
    x, y, weights = sample(n=400, offset=offset)
    weights = weights if weighted else np.ones(400)
    found = ClassStatistics(diagonal=diagonal)
    for rows in np.array_split(np.arange(400), [1, 2, 7, 130, 131, 200]):
        found.update(x[rows], y[rows], weights[rows])
    for code, covariance in enumerate(found.covariances):
        mean, expected = weighted_covariance(x[y == code], weights[y == code])
        expected = (np.diag(expected) if diagonal else expected).astype(float)
        assert_allclose(covariance, expected, rtol=1e-12, atol=1e-12)
        assert_allclose(found.means[code], mean.astype(float), rtol=1e-12 if not offset else 3e-16)


def test_whole_numbers_and_lists_keep_their_digits():
    large = [[100_000_001], [100_000_003]]  # float32 has no odd numbers there
    for x in (large, np.array(large), torch.tensor(large)):
        found = ClassStatistics().update(x, ["a", "a"])
        assert found.means.item() == 100_000_002
        assert found.covariances.item() == 2


@examples(60)
@given(
    seed=st.integers(0, 10**6),
    cuts=st.lists(st.integers(0, 60), max_size=6),
    order=st.randoms(use_true_random=False),
    diagonal=st.booleans(),
)
def test_parts_may_be_merged_in_any_order(seed, cuts, order, diagonal):
    x, y, weights = sample(n=60, seed=seed)
    labels = [None if code == 0 and row % 5 == 0 else f"class {code}" for row, code in enumerate(y)]
    whole = ClassStatistics(diagonal=diagonal).update(x, labels, weights)
    parts = []
    for rows in np.split(np.arange(60), sorted(cuts)):
        parts.append(ClassStatistics(diagonal=diagonal))
        if len(rows):
            parts[-1].update(x[rows], [labels[row] for row in rows], weights[rows])
    while len(parts) > 1:  # a random tree
        a, b = (parts.pop(order.randrange(len(parts))) for _ in range(2))
        parts.append(a.merge(b))
    assert_same(parts[0], whole)


@pytest.mark.filterwarnings("ignore:the divergence is")  # 0 up to rounding
@pytest.mark.parametrize("repeated", [False, True])
def test_laws_are_those_of_a_dataset(repeated):
    # Once: a dataset took equal rows of unequal weight for one sample, the statistics for several.
    x, y, weights = sample()
    if repeated:
        x = np.round(x)
    data = ad.LabeledDataset(x, y, weights)
    laws, expected = ClassStatistics().update(x, y, weights).to_gaussians(), data.laws()
    assert_close(laws.means, expected.means, rtol=1e-12, atol=1e-12)
    assert_close(laws.covariances(), expected.covariances(), rtol=1e-10, atol=1e-12)
    narrow = ClassStatistics(diagonal=True).update(x, y, weights).to_gaussians()
    assert_close(narrow.covariance.scales(), expected.covariance.scales(), rtol=1e-10, atol=1e-12)
    carried = ad.LabeledDataset(x, y, weights, law=laws)
    assert ad.otdd(carried, data, solver=ad.ExactOT()).value == pytest.approx(0.0, abs=1e-5)


def test_labels_are_discovered_and_missing_ones_counted():
    found = ClassStatistics().update([[1.0], [2.0]], ["zebra", None])
    found.update([[3.0], [4.0], [6.0]], [None, "ant", "ant"])
    assert found.counts == {"ant": 2, "zebra": 1} and found.missing == 2
    assert found.covariances.flatten().tolist() == [2.0, 0.0]  # one sample has no spread
    assert ClassStatistics().update([[1.0]], None).missing == 1


@examples(60)
@given(seed=st.integers(0, 10**6), spread=st.floats(0, 40), cut=st.integers(0, 12))
def test_weights_of_any_size_are_those_of_exact_arithmetic(seed, spread, cut):
    rng = np.random.default_rng(seed)
    x = rng.integers(-9, 9, 12).astype(float)[:, None]
    weights = 10.0 ** rng.uniform(-spread, spread, 12)
    exact = list(zip(map(Fraction, x[:, 0]), map(Fraction, weights), strict=True))
    total = sum(weight for _, weight in exact)
    mean = sum(weight * point for point, weight in exact) / total
    scatter = sum(weight * (point - mean) ** 2 for point, weight in exact)
    expected = float(scatter / (total - sum(weight**2 for _, weight in exact) / total))
    streamed = ClassStatistics()
    for rows in (slice(0, cut), slice(cut, 12)):
        if len(x[rows]):
            streamed.update(x[rows], ["a"] * len(x[rows]), weights[rows])
    assert streamed.covariances.item() == pytest.approx(expected, rel=1e-12)
    found = ad.LabeledDataset(x, ["a"] * 12, weights).laws().covariances().item()
    assert found == pytest.approx(expected, rel=1e-12)


def test_a_class_without_weight_is_that_of_a_dataset():
    # Once the streamed mean was 0, whatever the samples.
    x, y, weights = [[5.0], [7.0], [12.0], [1.0], [3.0]], list("aaabb"), [0.0, 0.0, 0.0, 1.0, 0.0]
    expected = ad.LabeledDataset(x, y, weights).laws()
    whole, parts = ClassStatistics().update(x, y, weights), ClassStatistics()
    for row in range(5):
        parts = parts.merge(ClassStatistics().update([x[row]], [y[row]], [weights[row]]))
    for found in (whole, parts):
        assert found.means.flatten().tolist() == pytest.approx([8.0, 1.0], rel=1e-15)
        assert_close(found.means, expected.means, rtol=1e-15, atol=0)
        assert_close(found.covariances, expected.covariances(), rtol=1e-14, atol=0)
        assert found.weights == {"a": 0.0, "b": 1.0}
        found.update([[2.0], [4.0]], ["a", "a"], [2.0, 2.0])  # rows without weight are counted only
        wanted = (3.0, 2.0, 5)
        assert (found.means[0].item(), found.covariances[0].item(), found.counts["a"]) == wanted


@pytest.mark.parametrize("kind", ["npz", "csv", "parquet"])
def test_files_are_read_in_blocks(kind, tmp_path, monkeypatch):
    monkeypatch.setattr("advect.io.formats.content.CHUNK", 1000)
    x, y, _ = sample(n=200, offset=1e8)
    labels, seen = [None if row % 50 == 7 else f"c{code}" for row, code in enumerate(y)], []
    path = ad.LabeledDataset(x, labels, columns=list("uvw")).save(tmp_path / f"data.{kind}")
    found = ClassStatistics.from_source(path, progress=lambda *now: seen.append(now))
    assert_same(found, ClassStatistics().update(x, labels), 1e-6)
    assert found.missing == 4 and seen[-1] == (200, 200)


def test_misuse_says_what_to_do(tmp_path):
    found = ClassStatistics().update([[1.0, 2.0]], ["a"])
    for wrong, words in [
        (lambda: found.update([[1.0]], ["a"]), "2 features"),
        (lambda: found.update([[1.0, np.nan]], ["a"]), "finite"),
        (lambda: found.update([[1.0, 2.0]], ["a", "b"]), "length"),
        (lambda: found.update([[1.0, 2.0]], ["a"], [-1.0]), "negative"),
        (lambda: found.update([[1.0, 2.0]], ["a"], [1.0, 2.0]), "weights"),
        (lambda: found.update([[1.0, 2.0]] * 2, ["a", "a"], [1e308, 1e308]), "weights"),
        (lambda: found.merge(ClassStatistics(diagonal=True)), "diagonal=False"),
        (lambda: found.merge(ClassStatistics().update([[1.0]], ["a"])), "2 features"),
        (lambda: ClassStatistics().to_gaussians(), "no classes"),
        (lambda: ClassStatistics.from_source(tmp_path / "none.npz"), "no such file"),
    ]:
        with pytest.raises(InputError, match=words):
            wrong()
    assert found.counts == {"a": 1}  # a batch that was refused has left nothing behind
    assert found.missing == 0
