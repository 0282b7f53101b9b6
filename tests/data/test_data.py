"""Labeled datasets and class tables: what goes in against numpy and exact fractions, what is refused, and how it is
said."""

import copy
import pickle
from collections import Counter
from contextlib import contextmanager
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import torch
from covering import examples
from flow_cases import seeded
from hypothesis import assume, given, strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from torch.testing import assert_close

import advect as ad
from advect import Gaussians, InputError, LabeledDataset, bures
from advect.data.laws import Diagonal, Factored, Full
from advect.errors import AdvectError

X = np.arange(6.0).reshape(3, 2)
NAN, INF = float("nan"), float("inf")
quick = examples(60)


class Frame:
    """A stand-in for a pandas object: all that is known about it is ``to_numpy``."""

    def __init__(self, values):
        self.to_numpy = lambda: values


@contextmanager
def refused(*words):
    """An InputError that says what, got and remedy, and mentions the given words."""
    with pytest.raises(InputError) as caught:
        yield
    error, message = caught.value, str(caught.value)
    assert isinstance(error, ValueError) and isinstance(error, AdvectError)
    assert message == f"{error.what}; got {error.got}. {error.remedy}"
    assert error.what and str(error.got) and error.remedy.endswith(".")
    assert all(word in message for word in words), message


def numbered(labels, weights=None, classes=None):
    """Row i has the one feature i, so that rows can be recognised wherever they end up."""
    return LabeledDataset(torch.arange(float(len(labels))), labels, weights, classes)


def rows(data):
    return data.x[:, 0].long().tolist()


def two_laws(dim=2):
    means = torch.tensor([[0.0] * dim, [5.0] * dim]).double()
    return Gaussians(means, Diagonal(torch.ones(2, dim).double()))


class TestFeatures:
    @pytest.mark.parametrize("order", "<>")
    @pytest.mark.parametrize(
        "kind", ["f2", "f4", "f8", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "?"]
    )
    def test_numpy_dtypes(self, kind, order):
        x = np.array([[0, 1], [1, 0], [1, 1]]).astype(order + kind)
        got = LabeledDataset(x, [0, 1, 2]).x
        assert got.dtype == (torch.float64 if kind == "f8" else torch.float32)
        assert_array_equal(got, x.astype(np.float64))
        for dtype in (torch.bfloat16, torch.uint8, torch.bool, torch.float8_e4m3fn):
            again = LabeledDataset(got.to(dtype), [0, 1, 2]).x
            assert again.dtype == torch.float32 and again.tolist() == got.tolist()

    @pytest.mark.filterwarnings("error")
    def test_strides_locks_frames_and_lists(self):
        locked = np.broadcast_to(X[:1], (3, 2))
        numbers = tuple(map(tuple, X.astype(int).tolist()))
        for x in (X[::-1], X[:, ::-1], X.T.copy().T, locked, X.tolist(), numbers, list(X)):
            assert_array_equal(LabeledDataset(x, [0, 1, 2]).x, x)
            assert_array_equal(LabeledDataset(Frame(np.asarray(x)), [0, 1, 2]).x, x)
        for x in (X.tolist(), [[1, 2.5], [3, 4], [5, 6]], [0, 0.5, 1]):
            # as torch reads python numbers
            assert LabeledDataset(x, [0, 1, 2]).x.dtype == torch.float32

    @pytest.mark.parametrize("shape", [(4,), (4, 1), (4, 3), (4, 2, 3), (4, 1, 2, 3)])
    def test_sample_shape(self, shape):
        x = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
        data, inner = LabeledDataset(x, [0, 0, 1, 1]), shape[1:] or (1,)
        assert data.sample_shape == inner and data.dim == np.prod(inner) and len(data) == 4
        assert_array_equal(data.x, x.reshape(4, -1))
        assert_array_equal(data.subset([3, 0]).samples, x.reshape(4, *inner)[[3, 0]])
        assert repr(data) == f"LabeledDataset(n=4, sample_shape={inner}, classes=2, dtype=float64)"

    @pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
    def test_gradients_reach_the_callers_tensor(self, dtype):
        leaf = torch.ones(3, 2, 2, dtype=dtype, requires_grad=True)
        data = LabeledDataset(leaf, [0, 1, 1]).to(dtype=torch.float64)
        assert data.x.requires_grad
        (data.subset([1, 2]).x * torch.arange(4.0)).sum().backward()
        assert leaf.grad.reshape(3, 4).tolist() == [[0, 0, 0, 0], [0, 1, 2, 3], [0, 1, 2, 3]]


class TestLabels:
    NUMBERS = (
        [5, -4, 5], (5.0, -4.0, 5.0), np.array([5, -4, 5]), np.array([5.0, -4.0, 5.0]),
        np.array([5, -4, 5], dtype=">i4")[::-1], np.array([[5], [-4], [5]]),
        torch.tensor([5, -4, 5]), torch.tensor([[5], [-4], [5]]),
        [np.int8(5), np.float32(-4), 5], [torch.tensor(5), torch.tensor(-4.0), 5],
        Frame(np.array([5, -4, 5])), torch.tensor([5.0, -4.0, 5.0], requires_grad=True),
        torch.tensor([5, -4, 5]).bfloat16(),  # Once: a TypeError of torch
    )  # fmt: skip

    @pytest.mark.parametrize("y", NUMBERS)
    def test_numbers(self, y):
        data = LabeledDataset(X, y)
        assert data.classes == (-4, 5) and data.y.tolist() == [1, 0, 1]
        assert data.y.dtype == torch.int64
        assert all(type(name) is int for name in data.classes)

    @pytest.mark.parametrize(
        ("y", "names"),
        [
            (["dog", "cat", "dog"], ("cat", "dog")),
            (np.array(["dog", "cat", "dog"]), ("cat", "dog")),
            (Frame(np.array([np.str_("dog"), "cat", "dog"], dtype=object)), ("cat", "dog")),
            ([(1, "b"), (0, "a"), (1, "b")], ((0, "a"), (1, "b"))),
            (["b", 1, (2,)], ("b", 1, (2,))),  # kinds that do not sort: order of appearance
            (np.array([True, False, True]), (False, True)),
            ([INF, 2.0, 0.5], (0.5, 2, INF)),
        ],
    )
    def test_names(self, y, names):
        data = LabeledDataset(X, y)
        assert data.classes == names
        assert [type(name) for name in data.classes] == [type(name) for name in names]
        assert data.labels == list(y.to_numpy() if isinstance(y, Frame) else y)

    @quick
    @given(
        st.lists(st.one_of(st.integers(-2, 2), st.text("ab", max_size=2), st.none()), min_size=1)
        | st.lists(st.text("abc"))
    )
    def test_labels_come_back(self, y):
        assume(y)
        data = numbered(y)
        given = [label for label in y if label is not None]
        assert data.labels == y and data.counts == Counter(given)
        assert len(set(data.classes)) == len(data.classes)
        kinds = {type(label) for label in given}
        expected = sorted(set(given)) if kinds in ({int}, {str}) else dict.fromkeys(given)
        assert list(data.classes) == list(expected)

    @pytest.mark.parametrize(
        ("y", "classes", "labels"),
        [
            (["a", "c", "a"], ["c", "b", "a"], ["a", "c", "a"]),
            (np.array([0.0, 2.0, 0.0]), np.array(["c", "b", "a"]), ["c", "a", "c"]),
            ([0, 1, 1], (1, 0), [0, 1, 1]),  # names come before positions
            ([0, 1, 1], torch.tensor([20, 10, 30]), [20, 10, 10]),
            ([7, 9, 9], (9, 8, 7), [7, 9, 9]),
        ],
    )
    def test_classes_as_names_or_positions(self, y, classes, labels):
        data = LabeledDataset(X, y, classes=classes)
        names = tuple(np.asarray(classes).tolist())
        assert data.classes == names and data.labels == labels
        assert len(data.class_mass) == len(names)
        assert data.counts == {name: labels.count(name) for name in names}


class TestWeights:
    @quick
    @given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=30))
    def test_uniform_and_balanced(self, y):
        uniform = numbered(y)
        assert uniform.x.dtype == torch.float32 and uniform.weights.dtype == torch.float64
        assert uniform.weights.tolist() == [1 / len(y)] * len(y)
        expected = [float(Fraction(1, len(set(y)) * y.count(label))) for label in y]
        names = ["a", "b", "c", "d", "never"]
        heavy = numbered(y, range(1, len(y) + 1), names).balanced()
        for data in (numbered(y, "balanced", names), heavy):
            assert_allclose(data.weights, expected, rtol=1e-15)
            mass = [(name in y) / len(set(y)) for name in names]
            assert_allclose(data.class_mass, mass, rtol=1e-14)

    @quick
    @given(st.lists(st.floats(0, 1.7e308), min_size=1, max_size=12))
    def test_against_exact_fractions(self, w):
        assume(any(w))
        expected = [float(Fraction(value) / sum(map(Fraction, w))) for value in w]
        got = numbered([0] * len(w), weights=w).weights
        assert_allclose(got, expected, rtol=1e-14, atol=1e-307)
        assert float(got.sum()) == pytest.approx(1, abs=1e-14)

    @pytest.mark.parametrize("w", [1e308, 1.0, 1e-320, 5e-324])
    def test_huge_and_tiny(self, w):
        assert LabeledDataset(X, [0, 1, 2], weights=[w, w, w]).weights.tolist() == [1 / 3] * 3

    W = np.array([0.0, 1.0, 3.0])
    KINDS = (
        W, W.astype(">f8"), W.astype("f2"), W.astype("u1"), (0, 1, 3), torch.tensor([0, 1, 3]),
        torch.tensor(W).half(), [torch.tensor(0.0), np.float32(1), 3],
        np.broadcast_to(W[:, None], (3, 2))[:, 0],
        W[::-1].copy()[::-1],  # Once: called "not numbers" because of its stride
    )  # fmt: skip

    @pytest.mark.parametrize("w", KINDS)
    def test_kinds(self, w):
        data = LabeledDataset(X, ["a", "b", "b"], weights=w)
        assert data.weights.tolist() == [0, 0.25, 0.75] and data.class_mass.tolist() == [0, 1]


class TestFrozen:
    @pytest.mark.parametrize(
        "name",
        ["x", "y", "weights", "classes", "sample_shape", "law", "law_index", "fixed_laws", "new"],
    )
    def test_no_field_can_be_set(self, name):
        with pytest.raises(AttributeError, match=rf"frozen.*replace\({name}="):
            setattr(LabeledDataset(X, [0, 1, 2]), name, None)

    def test_the_callers_arrays_are_copied(self):
        x, y, names = X.copy(), np.array([0, 1, 2]), ["a", "b", "c"]
        own = torch.tensor(X)  # Once: shared, so that features changed under moments
        w, tensor = np.array([1.0, 1.0, 2.0]), torch.tensor([1.0, 1.0, 2.0])
        made = [
            LabeledDataset(x, y, w, names),
            LabeledDataset(Frame(x), torch.from_numpy(y), tensor, names),
            LabeledDataset(own, y, w, names),
        ]
        x[:], y[:], w[:], tensor[:], own[:] = -1, -1, -1, -1, -1
        names.append("d")
        for data in made:
            assert_array_equal(data.x, X)
            assert data.labels == ["a", "b", "c"] and data.weights.tolist() == [0.25, 0.25, 0.5]
            assert len(data.classes) == 3

    def test_copies_and_pickles(self):
        data = LabeledDataset(X, ["a", "b", "b"], [1, 2, 1], law=two_laws(), law_index=[1, 0, 1])
        data.laws()
        for other in (copy.copy(data), copy.deepcopy(data), pickle.loads(pickle.dumps(data))):
            assert_array_equal(other.x, X)
            assert other.labels == ["a", "b", "b"] and other.weights.tolist() == [0.25, 0.5, 0.25]
            assert other.law_index.tolist() == [1, 0, 1]
            assert other.law.means.tolist() == [[0, 0], [5, 5]]

    def test_replace(self):
        data = LabeledDataset(X, ["a", "b", "b"], law=two_laws())
        data.laws()
        other = data.replace(x=data.x + 1, classes=("c", "d"))
        assert_array_equal(other.x, X + 1)
        assert_array_equal(data.x, X)
        assert other.labels == ["c", "d", "d"] and other.law is data.law
        assert_allclose(other.replace(law=None).laws().means, [[1, 2], [4, 5]])
        assert data.replace(sample_shape=(2, 1)).samples.shape == (3, 2, 1)
        assert data.replace(x=data.x[:, :1], law=None).sample_shape == (1,)
        with refused("bar, foo", "sample_shape"):
            data.replace(foo=1, bar=2)
        with refused("sample_shape (2,) needs 2 features; got 1"):
            data.replace(x=data.x[:, :1], sample_shape=(2,))
        with refused("sample_shape (3,) needs 3 features; got 2"):
            data.replace(sample_shape=(3,))

    def test_replace_converts(self):
        data = LabeledDataset(X, ["a", "b", "b"])
        assert data.replace(y=["b", None, "a"]).labels == ["b", None, "a"]
        assert data.replace(weights=[1, 1, 2]).weights.tolist() == [0.25, 0.25, 0.5]
        assert data.replace(weights="balanced").weights.tolist() == [0.5, 0.25, 0.25]
        assert data.replace(x=np.zeros((3, 2, 2))).sample_shape == (2, 2)


class TestSubset:
    INDICES = (
        [0, 2], (3, 1), [-5, -1], [1, 1, 3], range(3), [True, False, True, False, False],
        torch.tensor([3, -4]), np.array([3, 0], "u1"), np.array([3, 0], "u2"),
        torch.tensor([True, True, False, False, True]),
        torch.tensor([1, 0, 1, 0, 1], dtype=torch.uint8),  # positions, not a mask
        slice(1, 4), slice(None, None, 2), slice(-3, 99), slice(None),
        # Once: each a ValueError of torch
        np.array([3, 2, 0])[::-1], np.array([3, 0], ">i8"), slice(None, None, -1),
    )  # fmt: skip

    @pytest.mark.parametrize("index", INDICES, ids=repr)
    def test_against_numpy(self, index):
        lookup = index if isinstance(index, slice) else np.asarray(index)
        kept, w = np.arange(5)[lookup], np.array([1.0, 2, 3, 4, 0])[lookup]
        part = FIVE.subset(index)
        assert rows(part) == kept.tolist() and part.labels == [FIVE.labels[i] for i in kept]
        assert_allclose(part.weights, w / w.sum(), rtol=1e-15)
        assert part.classes == FIVE.classes and rows(FIVE) == [0, 1, 2, 3, 4]

    def test_classes(self):
        data = numbered(["b", "a", "b"], weights=[1, 2, 3], classes=["b", "never", "a"])
        assert rows(data.of_class("b")) == [0, 2]
        assert data.of_class("b").weights.tolist() == [0.25, 0.75]
        assert data.of_class("a").classes == data.classes
        assert data.counts == {"b": 2, "never": 0, "a": 1}
        assert_allclose(data.class_mass, np.bincount([0, 2, 0], [1, 2, 3]) / 6, rtol=1e-15)
        for absent in ("z", ["b"]):
            with refused("no such class", repr(absent), "b, never, a"):
                data.of_class(absent)
        with refused("at least one sample"):
            data.of_class("never")


@quick
@given(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=20),
    st.floats(0, 1),
    st.integers(0, 99),
)
def test_laws_of_draws(y, part, seed):
    n, w, present = max(1, round(part * len(y))), np.arange(1.0, len(y) + 1), sorted(set(y))
    data = numbered(y, weights=w, classes=["never", "a", "b", "c"])
    share, rest = divmod(n, len(present))
    wanted = {name: share + (i < rest) for i, name in enumerate(present)}
    short = [name for name in present if wanted[name] > y.count(name)]
    for balanced in (False, True):
        if balanced and short:
            with refused(f"class {short[0]!r}"):
                data.sample(n, balanced=True)
            continue
        draw = data.sample(n, balanced=balanced, generator=seeded(seed))
        kept = rows(draw)
        assert len(kept) == len(set(kept)) == n and draw.labels == [y[i] for i in kept]
        assert_allclose(draw.weights, w[kept] / w[kept].sum(), rtol=1e-14)
        assert rows(data.sample(n, balanced=balanced, generator=seeded(seed))) == kept
        assert not balanced or draw.counts == dict.fromkeys(data.classes, 0) | wanted


class TestSplit:
    @quick
    @given(
        st.lists(st.sampled_from("abcde"), min_size=2, max_size=40),
        st.floats(0.001, 0.999),
        st.integers(0, 99),
    )
    def test_laws(self, y, fraction, seed):
        w = np.arange(1.0, len(y) + 1)
        data = numbered(y, weights=w, classes=[*"abcde", "never"])
        parts = data.split(fraction, generator=seeded(seed))
        kept = [rows(part) for part in parts]
        assert sorted(kept[0] + kept[1]) == list(range(len(y))) and all(kept)
        assert [rows(part) for part in data.split(fraction, generator=seeded(seed))] == kept
        for part, places in zip(parts, kept, strict=True):
            assert part.labels == [y[i] for i in places] and part.classes == data.classes
            assert_allclose(part.weights, w[places] / w[places].sum(), rtol=1e-14)
        for name, count in Counter(y).items():
            first = parts[0].counts[name]
            assert count == 1 or 1 <= first < count
            assert count == 1 or abs(first - fraction * count) <= 0.5 or first in (1, count - 1)

    @pytest.mark.parametrize(
        ("fraction", "first"), [(0.01, 1), (0.3, 3), (0.5, 5), (0.8, 8), (0.99, 9)]
    )
    def test_classes_of_one(self, fraction, first):
        split = numbered(list(range(10))).split(fraction, generator=seeded())
        parts = [rows(part) for part in split]
        assert [len(part) for part in parts] == [first, 10 - first]
        assert sorted(parts[0] + parts[1]) == list(range(10))


class TestLawsAndMoments:
    FACTORS = Factored(torch.arange(6.0).double().reshape(3, 2), (2, 1))
    FULL = Full(torch.eye(2).double() * torch.tensor([1.0, 4.0])[:, None, None])

    @pytest.mark.parametrize(
        "covariance", [FACTORS, FULL, two_laws().covariance], ids=lambda c: type(c).__name__
    )
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, None])
    def test_to(self, covariance, dtype):
        law = Gaussians(two_laws().means, covariance)
        bures(law, law)  # what this keeps on the side must not get in the way
        laws = {"law": law, "law_index": [1, 0, 1]}
        data = LabeledDataset(X.reshape(3, 2, 1), ["a", "b", "b"], [1, 1, 2], **laws)
        moved = data.to("cpu", dtype)
        moved_tensors = moved.x, moved.law.means, moved.law.covariances()
        assert {tensor.dtype for tensor in moved_tensors} == {dtype or torch.float64}
        assert type(moved.law.covariance) is type(covariance)
        assert moved.weights.dtype == data.x.dtype == torch.float64
        assert moved.sample_shape == (2, 1) and moved.labels == ["a", "b", "b"]
        assert moved.law_index.tolist() == [1, 0, 1]
        assert moved.weights.tolist() == [0.25, 0.25, 0.5]
        assert_array_equal(moved.x, X)
        assert_array_equal(moved.law.covariances(), law.covariances())

    def test_carried(self):
        law, index = two_laws(), torch.tensor([1, 0, 1], dtype=torch.uint8)
        data = LabeledDataset(X, ["a", "b", "b"], law=law, law_index=index)
        assert data.laws() is data.balanced().law is data.subset([2, 1]).laws() is law
        assert data.law_index.tolist() == [1, 0, 1] and data.law_index.dtype == torch.int64
        assert data.subset([2, 1]).law_index.tolist() == [1, 0]
        assert data.of_class("b").law_index.tolist() == [0, 1]
        by_class = LabeledDataset(X, ["a", "b", "b"], law=law)
        assert by_class.law_index is None and by_class.laws() is law
        assert by_class.to(dtype=torch.float32).law_index is None

    def test_moments_are_kept_unless_they_carry_a_graph(self):
        data = LabeledDataset(X, [0, 0, 1], [1, 3, 1])
        assert data.laws() is data.laws() is data.laws()
        assert_allclose(data.laws().means, [np.average(X[:2], axis=0, weights=[1, 3]), X[2]])
        assert_allclose(data.laws().covariances()[0], np.cov(X[:2].T, aweights=[1, 3]))
        leaf = torch.tensor(X, requires_grad=True)
        tracked = LabeledDataset(leaf, [0, 0, 1], [1, 3, 1])
        assert tracked.laws() is not tracked.laws()
        for _ in range(2):  # each with a graph of its own
            leaf.grad = None
            tracked.laws().means.sum().backward()
            assert_allclose(leaf.grad, [[0.25, 0.25], [0.75, 0.75], [1, 1]])

    def test_fixed_laws_carry_no_graph(self):
        tracked = LabeledDataset(torch.tensor(X, requires_grad=True), [0, 0, 1])
        fixed = tracked.replace(fixed_laws=True)
        assert tracked.laws().means.requires_grad and not fixed.laws().means.requires_grad
        assert fixed.laws() is fixed.laws() and fixed.x.requires_grad
        assert_allclose(fixed.laws().means, [X[:2].mean(0), X[2]])
        for other in (fixed.subset([0, 1]), fixed.to(dtype=torch.float32), fixed.balanced()):
            assert other.fixed_laws


# What is refused: a call, and values by a word of the message

AB, FIVE = ["a", "b", "b"], numbered(["a", "b", "a", "b", "a"], weights=[1, 2, 3, 4, 0])
ONE_LAW = Gaussians(torch.zeros(1, 2), Diagonal(torch.ones(1, 2)))
REFUSED = [
    (lambda x: LabeledDataset(x, [0, 1]), {
        "first in row 1": [np.array([[1, 1], [INF, -INF]]), [[1, 1], [NAN, NAN]]],
        "finite": [[NAN, NAN], torch.tensor([1, -INF]).half(), Frame(np.array([NAN, 1]))],
        "at least one sample": [np.zeros((0, 3)), np.zeros((2, 0)), [], 3.0],
        "numeric": [[[1.0], [1.0, 2.0]], ["a", "b"], "text", None, {"a": 1}, np.array([1, None]), np.zeros(2, "datetime64[s]")],
        "Frame": [Frame(np.array(["a", "b"]))],
        "real": [np.array([1j, 2]), torch.tensor([1j, 2]), [1j, 2]],
        "dense": [torch.eye(2).to_sparse()],
    }),
    (lambda y: LabeledDataset(X, y), {
        "3 features, 2 labels": [[0, 1]],
        "hashable": [[0, [1], 2], [{}, {}, {}], [np.zeros(2)] * 3, [torch.tensor([0])] * 3],
        "sequence": ["abc", 5],
        "argmax": [np.eye(3), torch.zeros(3, 2), np.array(3), torch.tensor(3)],
    }),
    (lambda pair: LabeledDataset(X, list(pair[0]), classes=pair[1]), {
        "'z' with classes": [("abz", ["a", "b"])],
        "'a' with classes": [("aba", [])],
        "differ": [("aab", ["a", "a", "b"]), ([0, 1, 1], [1, 1.0])],
        "sequence": [("aba", "ab"), ([0, 1, 1], 2)],
        "hashable": [("aba", [["a"], ["b"]])],
        "missing": [("aba", ["a", "b", NAN]), ("aba", ["a", "b", None])],
        "-1 with classes": [([-1, 1, 0], ["a", "b"])],
        "2 with classes": [([0, 1, 2], ["a", "b"])],  # not the 0, which is a position
        "0 with classes": [([0, 1, 1], [1, 2])],  # 1 is the name of a class, not a position
    }),
    (lambda weights: LabeledDataset(X, [0, 1, 2], weights=weights), {
        "negative": [[1, -1, 1], torch.tensor([1, -1, 1])],
        "zero": [[0, 0, 0], [False] * 3],
        "finite": [[1, NAN, 1], [1, 1, INF], torch.tensor([1, NAN, 1])],
        "each of the 3 samples": [[1, 1], [], np.ones((3, 1)), 1.0],
        "balanced": ["foo"],
        "must be": [["a", "b", "c"], [[1], [1, 2], [3]], object(), [1, None, 1], [torch.tensor(1.0, requires_grad=True)] * 3],
        "real": [np.array([1j, 1, 1]), torch.tensor([1j, 1, 1])],
    }),
    (lambda columns: LabeledDataset(X, columns=columns), {"columns": [["u"], ["u", "u"], ["u", 1], "uv"]}),
    (lambda pair: LabeledDataset(X, AB, law=pair[0], law_index=pair[1]), {
        "Gaussians": [(None, [0, 1, 1]), (5, None)],
        "one dimension": [(two_laws(3), None)],
        "one of 2 laws": [(two_laws(), index) for index in ([0, 1], [[0], [1], [1]], [0, 1, 2], [0, -1, 1])],
        "each of the 2 classes": [(ONE_LAW, None)],
        "law_index": [(two_laws(), index) for index in ([], "abc", [NAN, 0, 1], [0.5, 1.7, 1.0])],
    }),
    (lambda changes: LabeledDataset(X, AB).replace(**changes), {
        "finite": [{"x": torch.full((3, 2), NAN)}],
        "length": [{"x": torch.zeros(4, 2)}],
        "3 features, 2 labels": [{"y": torch.zeros(2, dtype=torch.long)}],
        "classes": [{"y": torch.tensor([0, 1, 2])}, {"classes": ("a",)}],
        "differ": [{"classes": ("a", "a")}],
        "negative": [{"weights": torch.tensor([1.0, -1.0, 1.0])}],
        "3 samples": [{"weights": torch.ones(2)}],
        "columns": [{"columns": ("u",)}],
        "targets": [{"targets": torch.zeros(2)}],
        "sum to one": [{"probabilities": torch.ones(3, 2)}],
        "law_index": [{"law": two_laws(), "law_index": [0, 1, 2]}],
    }),
    (FIVE.subset, {
        "0 samples": [[], slice(2, 2), [False] * 5, torch.tensor([], dtype=torch.int64)],
        "float": [[0.0, 1.0], torch.tensor([0.5])],
        "shape": [1, np.int64(1), torch.tensor(1), [[0, 1]]],
        "each of the 5 samples": [[True, False], torch.tensor([True, False])],
        "[5]": [[0, 5]],
        "[-6]": [[-6, 0]],
        "zero": [[4]],  # the one sample without mass
        "positions or a mask": [["a"], None, {0, 1}, slice("a")],
        "complex128": [np.array([1j])],
    }),
    (numbered([0, 1, 1]).sample, {
        "whole number": [0, -1, 1.5, NAN, INF],
        "must be a number": ["2", None, True, np.True_, 1j, np.array([1, 2]), torch.ones(2)],
        "at most 3": [4],
        "1000": [10**400],
    }),
    (numbered([0, 1, 1]).split, {"fraction": [0, 1, -0.5, 1.5, NAN, INF, "half", None, True]}),
    (lambda dtype: numbered([0, 1]).to(dtype=dtype), {
        "float32": [torch.float16, torch.bfloat16, torch.int32, torch.complex64, "float64"],
    }),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Casting complex")
@pytest.mark.parametrize(
    ("call", "value", "word"), [(call, value, word) for call, table in REFUSED for word, values in table.items()
    for value in values],
)  # fmt: skip
def test_refused(call, value, word):
    with refused(word):
        call(value)


BLIND, NORM = ad.GroundCost(label=ad.NoLabels()), ad.Potential(ad.norm())


class TestMissingLabels:
    @pytest.mark.parametrize(
        "y", [["a", None, "b"], ["a", NAN, "b"], np.array(["a", None, "b"], dtype=object),
        pd.Series(["a", pd.NA, "b"], dtype="string")],
    )  # fmt: skip
    def test_none_and_nan_are_missing(self, y):
        data = LabeledDataset(X, y)
        assert data.y.tolist() == [0, -1, 1] and data.labels == ["a", None, "b"]
        assert data.classes == ("a", "b")
        assert data.labeled.tolist() == [True, False, True] and not bool(data.labeled.all())
        assert data.counts == {"a": 1, "b": 1}

    def test_no_labels_at_all(self):
        data = LabeledDataset(X)
        assert data.classes == () and data.counts == {} and data.labels == [None] * 3
        assert not bool(data.labeled.all())
        assert LabeledDataset(X, None, classes=["a"]).counts == {"a": 0}
        assert len(data.subset([0, 1])) == 2 and len(data.sample(2)) == 2
        assert [len(part) for part in data.split(0.67)] == [2, 1]

    @pytest.mark.parametrize("y", [None, ["a", None, "b"]])
    @pytest.mark.parametrize(
        "use", {"moments": lambda d: d.laws(), "mass": lambda d: d.class_mass, "balanced": lambda d: d.balanced(),
        "balanced weights": lambda d: LabeledDataset(X, d.labels, weights="balanced"),
        "balanced draw": lambda d: d.sample(2, balanced=True), "otdd": lambda d: ad.otdd(d, d),
        "otdd to": lambda d: ad.otdd(LabeledDataset(X, list("abc")), d),
        "exact labels": lambda d: ad.otdd(d, d, cost=ad.GroundCost(label=ad.ExactLabelOT())),
        "means": lambda d: ad.otdd(d, d, cost=ad.GroundCost(label=ad.MeansOnly())),
        "coupling": lambda d: ad.otdd(d, d, cost=BLIND).class_coupling,
        "matching": lambda d: ad.otdd(d, d, cost=BLIND).class_matching,
        "fd": lambda d: ad.flow(d, ad.OTDD(d), n_steps=1),
        "jd-fl": lambda d: ad.flow(d, NORM, dynamics=ad.JointFixedLabels(), n_steps=1),
        "jd-vl": lambda d: ad.flow(d, NORM, dynamics=ad.JointVariableLabels(), n_steps=1),
        "interaction": lambda d: ad.Interaction(ad.attraction())(d),
        "hinge": lambda d: ad.Potential(ad.hinge([1.0, 0.0]))(d),
        "affine": lambda d: ad.Potential(ad.affine_norm(torch.ones(2, 1, 2)))(d)}.items(), ids=lambda use: use[0],
    )  # fmt: skip
    def test_what_needs_labels_says_so(self, y, use):
        with pytest.raises(ad.InputError, match="label"):
            use[1](LabeledDataset(X, y))

    def test_features_alone_need_none(self):
        some, none = LabeledDataset(X, ["a", None, "b"]), LabeledDataset(np.asarray(X) + 1.0)
        exact = ad.otdd(some, none, cost=BLIND, solver=ad.ExactOT()).value
        assert exact == pytest.approx(np.sqrt(2.0), rel=1e-6)  # every point by (1, 1)
        energy = ad.OTDD(none, cost=BLIND, solver=ad.ExactOT())
        flowed = ad.flow(some, energy, integrator=ad.Euler(1.0), n_steps=1).dataset
        assert flowed.labels == ["a", None, "b"]
        assert_close(flowed.x.sort(dim=0)[0], none.x.sort(dim=0)[0])


class TestColumns:
    def test_kept_and_dropped(self):
        data = LabeledDataset(X, columns=["u", "v"])
        assert data.columns == ("u", "v") and data.subset([1]).columns == ("u", "v")
        assert data.replace(x=data.x + 1).columns == ("u", "v")
        assert data.replace(x=data.x[:, :1], sample_shape=(1,)).columns is None

    def test_other_order_is_refused_by_costs(self):
        a, b = (LabeledDataset(X, list("aab"), columns=list(names)) for names in ("uv", "vu"))
        with pytest.raises(ad.InputError, match="harmonize"):
            ad.otdd(a, b)


def test_class_tables_are_looked_up_by_name_print_and_escape():
    a = LabeledDataset([[0.0], [4.0]], ["<cat>", ("a", 1)])
    b = LabeledDataset([[1.0], [4.0]], [0, "b"])
    table = ad.otdd(a, b, solver=ad.ExactOT()).class_distances
    assert table["<cat>", 0] == pytest.approx(1) and table[("a", 1), "b"] == pytest.approx(0)
    assert np.asarray(table).shape == table.shape == (2, 2)
    assert list(table.to_dict()) == ["<cat>", ("a", 1)] and "<cat>" in str(table)
    assert "&lt;cat&gt;" in table._repr_html_() and "<cat>" not in table._repr_html_()
    for pair in (("dog", 0), ("<cat>", "dog")):
        with refused("'dog'"):  # Once: "tuple.index(x): x not in tuple"
            table[pair]
