"""Statistics of classes in one pass: those of numpy on all data at once, whatever the batches,
their order and the offset.
"""

import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
import torch
from covering import examples
from hypothesis import given, strategies as st

import advect as ad
from advect.data.formats import npz, open_source, text
from advect.data.store import read_tensors, write_tensors
from advect.datasets.statistics import ClassStatistics
from advect.errors import InputError


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


def assert_same(a: ClassStatistics, b: ClassStatistics, tolerance=1e-12):
    assert a.counts == b.counts
    assert a.missing == b.missing
    assert list(a.weights.values()) == pytest.approx(list(b.weights.values()), rel=1e-13)
    torch.testing.assert_close(a.means, b.means, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(a.covariances, b.covariances, rtol=tolerance, atol=tolerance)


def test_equal_weights_are_numpys_covariance():
    x, y, _ = sample()
    found = ClassStatistics().update(x, y)
    for code, (mean, covariance) in enumerate(zip(found.means, found.covariances, strict=True)):
        np.testing.assert_allclose(mean, x[y == code].mean(0), rtol=1e-13)
        np.testing.assert_allclose(covariance, np.cov(x[y == code].T), rtol=1e-12, atol=1e-14)
    assert found.counts == {code: int((y == code).sum()) for code in range(3)}


@pytest.mark.parametrize("diagonal", [False, True])
def test_weights_and_batches(diagonal):
    x, y, weights = sample()
    found = ClassStatistics(diagonal=diagonal)
    for rows in np.array_split(np.arange(len(x)), [1, 2, 7, 130]):
        found.update(x[rows], y[rows], weights[rows])
    for code, (mean, covariance) in enumerate(zip(found.means, found.covariances, strict=True)):
        expected_mean, expected = weighted_covariance(x[y == code], weights[y == code])
        np.testing.assert_allclose(mean, expected_mean.astype(float), rtol=1e-12)
        np.testing.assert_allclose(
            covariance,
            (np.diag(expected) if diagonal else expected).astype(float),
            rtol=1e-12,
            atol=1e-13,
        )


@pytest.mark.slow
@pytest.mark.parametrize("offset", [1e8, -1e8, 1e12])
@pytest.mark.parametrize("diagonal", [False, True])
def test_far_from_the_origin(offset, diagonal):
    x, y, _ = sample(n=4000, offset=offset)
    found = ClassStatistics(diagonal=diagonal)
    for rows in np.array_split(np.arange(len(x)), 400):
        found.update(x[rows], y[rows])
    for code, covariance in enumerate(found.covariances):
        mean, expected = weighted_covariance(x[y == code], np.ones((y == code).sum()))
        expected = (np.diag(expected) if diagonal else expected).astype(float)
        np.testing.assert_allclose(covariance, expected, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found.means[code], mean.astype(float), rtol=3e-16)


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
        part = ClassStatistics(diagonal=diagonal)
        parts.append(
            part.update(x[rows], [labels[row] for row in rows], weights[rows])
            if len(rows)
            else part
        )
    while len(parts) > 1:  # a random tree
        a, b = (parts.pop(order.randrange(len(parts))) for _ in range(2))
        parts.append(a.merge(b))
    assert_same(parts[0], whole)


def test_merge_leaves_both_as_they_were():
    x, y, _ = sample()
    a, b = ClassStatistics().update(x[:100], y[:100]), ClassStatistics().update(x[100:], y[100:])
    before = a.means.clone(), b.covariances.clone(), a.counts
    a.merge(b).update(x, y)
    assert (
        torch.equal(a.means, before[0])
        and torch.equal(b.covariances, before[1])
        and a.counts == before[2]
    )


@pytest.mark.filterwarnings(
    "ignore:the divergence is"
)  # 0 up to rounding between two descriptions of one dataset: it says so
@pytest.mark.parametrize("repeated", [False, True])
def test_laws_are_those_of_a_dataset(repeated):
    # Once: a dataset took equal rows of unequal weight for one sample, the statistics for several.
    x, y, weights = sample()
    if repeated:
        x = np.round(x)
    data = ad.LabeledDataset(x, y, weights)
    laws, expected = ClassStatistics().update(x, y, weights).to_gaussians(), data.moments()
    torch.testing.assert_close(laws.means, expected.means, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(laws.covariances(), expected.covariances(), rtol=1e-10, atol=1e-12)
    narrow = ClassStatistics(diagonal=True).update(x, y, weights).to_gaussians()
    torch.testing.assert_close(
        narrow.covariance.scales(), expected.covariance.scales(), rtol=1e-10, atol=1e-12
    )
    carried = ad.LabeledDataset(x, y, weights, law=laws)
    assert ad.otdd(carried, data, solver=ad.ExactOT()).value == pytest.approx(0.0, abs=1e-5)


def test_labels_are_discovered_and_missing_ones_counted():
    found = (
        ClassStatistics()
        .update([[1.0], [2.0]], ["zebra", None])
        .update([[3.0], [4.0], [6.0]], [None, "ant", "ant"])
    )
    assert found.classes == ("ant", "zebra")
    assert found.missing == 2
    assert found.counts == {"ant": 2, "zebra": 1}
    assert found.covariances.flatten().tolist() == [2.0, 0.0]  # one sample has no spread
    assert ClassStatistics().update([[1.0]], None).missing == 1


def test_rows_without_weight_are_counted_only():
    found = (
        ClassStatistics()
        .update([[1.0], [50.0]], ["a", "a"], [1.0, 0.0])
        .update([[3.0], [9.0]], ["a", "b"], [1.0, 0.0])
    )
    assert found.counts == {"a": 3, "b": 1}
    assert found.means[0].item() == 2.0
    assert found.covariances[0].item() == 2.0
    assert found.covariances[1].item() == 0.0


@pytest.mark.parametrize(
    ("light", "unit"),
    [
        (1e-6, 1.0),
        (1e-11, 1.0),
        (4e-13, 1.0),
        (1e-40, 1.0),
        (1e-300, 1.0),
        (1e-11, 1e-290),
        (1e-300, 1e200),
    ],
)
@pytest.mark.parametrize("first", ["heavy", "light"])
def test_light_samples_are_not_lost(light, unit, first):
    """Two samples x, x' have the variance (x − x')²/2, whatever their weights; a third as light as
    the second is one more.

    Once 1 − Σ p² cancelled: 1.9999998 at a weight of 1e-11, and 0 at 4e-13.
    """
    x, weights = np.array([[0.3], [0.7], [0.7]]), np.array([1.0, light, light]) * unit
    for rows, expected in (
        ([0, 1], 0.08),
        ([0, 1, 2], 0.16 / (2 + light)),
    ):  # p (1 − p) (x − x')² / Σ p (1 − p)
        rows = rows if first == "heavy" else rows[::-1]
        data = ad.LabeledDataset(x[rows], ["a"] * len(rows), weights[rows])
        assert data.moments().covariances().item() == pytest.approx(expected, rel=1e-14)
        for diagonal in (False, True):
            whole, parts = (ClassStatistics(diagonal=diagonal) for _ in range(2))
            whole.update(x[rows], ["a"] * len(rows), weights[rows])
            for row in rows:
                parts.update(x[[row]], ["a"], weights[[row]])
            assert whole.covariances.item() == pytest.approx(expected, rel=1e-14)
            assert parts.covariances.item() == pytest.approx(expected, rel=1e-14)


@examples(60)
@given(seed=st.integers(0, 10**6), spread=st.floats(0, 40), cut=st.integers(0, 12))
def test_weights_of_any_size_are_those_of_exact_arithmetic(seed, spread, cut):
    rng = np.random.default_rng(seed)
    x, weights = (
        rng.integers(-9, 9, 12).astype(float)[:, None],
        10.0 ** rng.uniform(-spread, spread, 12),
    )
    exact = [
        (Fraction(point), Fraction(weight)) for point, weight in zip(x[:, 0], weights, strict=True)
    ]
    total = sum(weight for _, weight in exact)
    mean = sum(weight * point for point, weight in exact) / total
    scatter = sum(weight * (point - mean) ** 2 for point, weight in exact)
    expected = float(scatter / (total - sum(weight**2 for _, weight in exact) / total))
    streamed = ClassStatistics()
    for rows in (slice(0, cut), slice(cut, 12)):
        if len(x[rows]):
            streamed.update(x[rows], ["a"] * len(x[rows]), weights[rows])
    assert streamed.covariances.item() == pytest.approx(expected, rel=1e-12)
    assert ad.LabeledDataset(
        x, ["a"] * 12, weights
    ).moments().covariances().item() == pytest.approx(expected, rel=1e-12)


def test_a_class_without_weight_is_that_of_a_dataset():
    # Once the streamed mean was 0, whatever the samples.
    x, y, weights = (
        [[5.0], [7.0], [12.0], [1.0], [3.0]],
        ["a", "a", "a", "b", "b"],
        [0.0, 0.0, 0.0, 1.0, 0.0],
    )
    expected = ad.LabeledDataset(x, y, weights).moments()
    whole, parts = ClassStatistics().update(x, y, weights), ClassStatistics()
    for row in range(5):
        parts = parts.merge(ClassStatistics().update([x[row]], [y[row]], [weights[row]]))
    for found in (whole, parts):
        assert found.means.flatten().tolist() == pytest.approx([8.0, 1.0], rel=1e-15)
        torch.testing.assert_close(found.means, expected.means, rtol=1e-15, atol=0)
        torch.testing.assert_close(found.covariances, expected.covariances(), rtol=1e-14, atol=0)
        assert found.weights == {"a": 0.0, "b": 1.0}
        found.update(
            [[2.0], [4.0]], ["a", "a"], [2.0, 2.0]
        )  # with any weight, rows without are counted only
        assert (found.means[0].item(), found.covariances[0].item(), found.counts["a"]) == (
            3.0,
            2.0,
            5,
        )


def test_files_of_old_with_two_sums_open(tmp_path):
    x, y, weights = sample()
    part = ClassStatistics().update(x[:99], y[:99], weights[:99])
    tensors, facts = read_tensors(
        part.update([[1.0, 2.0, 3.0]], [9], [0.0]).save(tmp_path / "part.safetensors")
    )
    squares = [float((weights[:99][y[:99] == code] ** 2).sum()) for code in range(3)]
    tensors["sums"][:, 1] = torch.tensor([*squares, 0.0], dtype=torch.float64)
    write_tensors(
        tmp_path / "old.safetensors", tensors, facts | {"format": "advect.class_statistics/1"}
    )
    old = ClassStatistics.load(tmp_path / "old.safetensors")
    assert bool(old.means[3].isnan().all())  # not kept then
    rest = (x[99:], y[99:], weights[99:])
    assert_same(
        old.update(*rest).update([[4.0, 4.0, 4.0]], [9]),
        part.update(*rest).update([[4.0, 4.0, 4.0]], [9]),
    )


def write_source(kind, folder, x, labels):
    if kind == "csv":
        lines = [
            ",".join([*map(repr, row), label or ""])
            for row, label in zip(x.tolist(), labels, strict=True)
        ]
        (folder / "data.csv").write_text("\n".join(["u,v,w,label", *lines]))
        return f"csv:{folder}/data.csv"
    return str(ad.LabeledDataset(x, labels).save(folder / f"data.{kind}"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["npz", "csv", "parquet"])
@pytest.mark.parametrize("batch", [1, 64, 1000])
def test_files_are_read_in_batches(kind, batch, tmp_path):
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    x, y, _ = sample(n=200, offset=1e8)
    labels, seen = [None if row % 50 == 7 else f"c{code}" for row, code in enumerate(y)], []
    reference = write_source(kind, tmp_path, x, labels)
    found = ClassStatistics.from_source(
        reference, batch=batch, progress=lambda done, total: seen.append((done, total))
    )
    assert_same(found, ClassStatistics().update(x, labels), 1e-6)
    assert found.missing == 4
    assert seen[-1] == (200, 200)


@pytest.mark.parametrize("kind", ["npz", "csv", "csv.gz"])
def test_a_file_is_gone_through_once_however_small_the_batches(kind, tmp_path, monkeypatch):
    x, y, _ = sample(n=100)
    path = tmp_path / f"data.{kind}"
    if kind == "npz":
        np.savez_compressed(path, x=x, y=y)
    else:
        ad.LabeledDataset(x, y).save(path)
    module, name = (npz, "_open") if kind == "npz" else (text, "open_text")
    plain, opened = getattr(module, name), []
    monkeypatch.setattr(module, name, lambda *arguments: opened.append(1) or plain(*arguments))
    counts = []
    for batch in (100, 7):
        opened.clear()
        ClassStatistics.from_source(path, batch=batch, progress=False)
        counts.append(len(opened))
    assert counts[0] == counts[1] > 0


def write_all(folder):
    """A file of each kind: plain and packed, in both orders of axes, vectors, tables and images."""
    rng = np.random.default_rng(0)
    images, table = rng.integers(0, 256, (13, 3, 4), dtype=np.uint8), rng.normal(size=(13, 5))
    np.savez(folder / "plain.npz", x=images, y=np.arange(13) % 2)
    np.savez_compressed(folder / "packed.npz", x=images, y=np.arange(13) % 2)
    np.savez_compressed(folder / "turned.npz", x=np.asfortranarray(table), y=np.arange(13) % 2)
    np.savez_compressed(folder / "line.npz", x=table[:, 0])
    np.savez_compressed(
        folder / "splits.npz",
        x_train=images[:9],
        y_train=[0] * 9,
        x_test=images[9:],
        y_test=[1] * 4,
    )
    np.save(folder / "alone.npy", table)
    data = ad.LabeledDataset(table, np.arange(13) % 2)
    for suffix in ("csv", "tsv.gz", "parquet"):
        data.save(folder / f"table.{suffix}")
    ad.LabeledDataset(images / 255, np.arange(13) % 2).save(folder / "grid.parquet")
    ad.LabeledDataset(images / 255, np.arange(13) % 2).save(folder / "images")
    return [
        open_source(path, **({"split": "all"} if path.stem == "splits" else {}))
        for path in sorted(folder.iterdir())
    ]


@pytest.mark.parametrize("size", [1, 4, 13, 100])
def test_blocks_are_what_is_read_at_once(size, tmp_path):
    pytest.importorskip("pyarrow")
    for source in write_all(tmp_path):
        seen = []
        blocks = list(source.blocks(size, seen.append))
        whole = source.read()
        assert max(map(len, blocks)) <= size
        assert np.array_equal(np.concatenate(blocks), whole) and blocks[0].dtype == whole.dtype
        assert sum(seen) == len(source)


def test_weights_of_a_file_are_used(tmp_path):
    x, y, weights = sample(n=50)
    ad.LabeledDataset(x, y, weights).save(tmp_path / "data.npz")
    found = ClassStatistics.from_source(tmp_path / "data.npz", batch=9)
    expected = ClassStatistics().update(x, y, weights)
    torch.testing.assert_close(found.means, expected.means)
    torch.testing.assert_close(found.covariances, expected.covariances)


def test_names_and_synthetic_references():
    digits = ad.datasets.load("digits")
    assert_same(
        ClassStatistics.from_source("digits", batch=100),
        ClassStatistics().update(digits.x, digits.labels),
    )
    assert sum(ClassStatistics.from_source("toy:moons?n=40").counts.values()) == 40


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path):
    rows, dim = 200_000, 20
    np.savez(tmp_path / "large.npz", x=np.zeros((rows, dim), np.float64), y=np.arange(rows) % 2)
    tracemalloc.start()
    try:
        found = ClassStatistics.from_source(
            tmp_path / "large.npz", batch=1000, diagonal=True, progress=False
        )
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.counts == {0: rows // 2, 1: rows // 2}
    assert peak < rows * dim * 8 / 2


def test_save_and_load_go_on_where_they_were(tmp_path):
    x, y, weights = sample()
    names = [("tuple", int(code)) for code in y]
    for diagonal in (False, True):
        part = (
            ClassStatistics(diagonal=diagonal)
            .update(x[:99], names[:99], weights[:99])
            .update([[1.0, 2.0, 3.0]], [None])
        )
        again = ClassStatistics.load(part.save(tmp_path / "part.safetensors"))
        assert again.diagonal is diagonal
        a, b = (
            part.update(x[99:], names[99:], weights[99:]),
            again.update(x[99:], names[99:], weights[99:]),
        )
        assert torch.equal(a.means, b.means) and torch.equal(a.covariances, b.covariances)
        assert (a.counts, a.weights, a.missing) == (b.counts, b.weights, b.missing)
    empty = ClassStatistics.load(ClassStatistics().save(tmp_path / "empty.safetensors"))
    assert repr(empty) == "ClassStatistics(n=0, classes=0, dim=None, missing=0)"
    assert_same(ClassStatistics(diagonal=True).merge(again), again)


def test_misuse_says_what_to_do(tmp_path):
    found = ClassStatistics().update([[1.0, 2.0]], ["a"])
    for wrong, words in [
        (lambda: found.update([[1.0]], ["a"]), "2 features"),
        (lambda: found.update([[1.0, np.nan]], ["a"]), "finite"),
        (lambda: found.update([[1.0, 2.0]], ["a", "b"]), "length"),
        (lambda: found.update([[1.0, 2.0]], ["a"], [-1.0]), "negative"),
        (lambda: found.update([[1.0, 2.0]], ["a"], [1.0, 2.0]), "1 numbers"),
        (lambda: found.update([[1.0, 2.0]] * 2, ["a", "a"], [1e308, 1e308]), "finite sum"),
        (lambda: found.merge(ClassStatistics(diagonal=True)), "diagonal=False"),
        (lambda: found.merge(ClassStatistics().update([[1.0]], ["a"])), "2 features"),
        (lambda: found.merge("nothing"), "ClassStatistics"),
        (lambda: ClassStatistics().means, "no classes"),
        (lambda: ClassStatistics.from_source(tmp_path / "none.npz"), "no such file"),
        (lambda: ClassStatistics.from_source("digits", batch=0), "batch"),
        (lambda: ClassStatistics.load(tmp_path / "none"), "no such file"),
    ]:
        with pytest.raises(InputError, match=words):
            wrong()
    assert found.counts == {"a": 1}  # a batch that was refused has left nothing behind
    assert found.missing == 0
