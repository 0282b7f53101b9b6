"""Datasets to other libraries and back: what is kept, what is refused, and that draws are uniform."""

import math
from collections import Counter

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from covering import examples
from flow_cases import seeded
from hypothesis import HealthCheck, assume, example, given, strategies as st
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset

from advect import InputError, LabeledDataset

QUICK = examples(30, suppress_health_check=list(HealthCheck))
X = np.arange(12.0, dtype=np.float32).reshape(4, 3)
texts = st.text(max_size=6) | st.sampled_from(["a\0", "1", "nan", " a"])
numbers = st.integers(-3, 12), st.integers(2**62, 2**70)
fractions = st.floats(allow_nan=False).filter(lambda value: not value.is_integer())
tuples = st.tuples(st.integers(0, 3), st.text(max_size=2))
mixed = st.text(max_size=3) | st.integers(2, 9) | st.tuples(st.integers(0, 3))
names = st.sampled_from([texts, *numbers, st.booleans(), fractions, tuples, mixed])


@st.composite
def datasets(draw):
    n, width = draw(st.integers(1, 7)), draw(st.sampled_from([32, 64]))
    shape = draw(st.sampled_from([(1,), (3,), (2, 3), (2, 1, 2), (4, 4, 3)]))
    finite = st.floats(allow_nan=False, allow_infinity=False, width=width)
    size = n * math.prod(shape)
    numbers = draw(st.lists(finite, min_size=size, max_size=size))
    classes = draw(st.lists(draw(names), max_size=4, unique=True))
    labels = [draw(st.sampled_from([None, *classes])) for _ in range(n)]
    name, count = st.text(min_size=1, max_size=5), shape[0]
    columns = draw(st.lists(name, min_size=count, max_size=count, unique=True))
    return LabeledDataset(
        np.array(numbers, f"float{width}").reshape(n, *shape),
        labels,
        draw(st.none() | st.lists(st.floats(1, 9), min_size=n, max_size=n)),
        classes,
        columns=columns if len(shape) == 1 and draw(st.booleans()) else None,
    )


def same(one, other, *apart):
    """Equal but for these fields."""
    assert torch.equal(one.x, other.x) and one.x.dtype == other.x.dtype
    assert one.sample_shape == other.sample_shape
    assert repr(one.labels) == repr(other.labels)  # 1 and True differ
    if "classes" not in apart:
        assert repr(one.classes) == repr(other.classes)
        assert torch.equal(one.y, other.y)
    if "weights" not in apart:
        torch.testing.assert_close(one.weights, other.weights, rtol=1e-14, atol=0)
    if "columns" not in apart:
        assert one.columns == other.columns


@QUICK
@given(datasets())
def test_numpy_and_back(data):
    x, labels = data.numpy()
    assert x.shape == (len(data), *data.sample_shape) and labels.shape == (len(data),)
    same(LabeledDataset(x, labels, data.weights, data.classes, columns=data.columns), data)
    same(LabeledDataset(x, labels), data, "classes", "weights", "columns")
    before = data.x.clone()
    x[...] = 3
    assert torch.equal(data.x, before)


@pytest.mark.parametrize(
    ("labels", "kind"),
    [(["a", "bc"], "U"), ([1, 2], "i"), ([True, False], "b"), ([0.5, 1.5], "f"), (["a", None], "O"), ([1, "a"], "O"),
     ([(1,), (2,)], "O"), ([None, None], "O"), (["a\0", "b"], "O"), ([2**70, 1], "O")],
)  # fmt: skip
def test_labels_have_a_plain_dtype_where_they_can(labels, kind):
    array = LabeledDataset(np.zeros((2, 1)), labels).numpy()[1]
    assert array.dtype.kind == kind and array.tolist() == labels


@QUICK
@given(datasets(), st.integers(1, 3))
def test_torch_and_back(data, batch):
    pairs = data.to_torch()
    same(LabeledDataset.from_torch(pairs), data, "weights", "columns")
    same(LabeledDataset.from_torch(Subset(pairs, range(len(data)))), data, "weights", "columns")
    same(LabeledDataset.from_torch(DataLoader(pairs, batch_size=batch)), data, "weights", "columns")
    same(LabeledDataset.from_torch(DataLoader(pairs, batch_size=None)), data, "weights", "columns")
    stream = zip(data.samples, data.labels, strict=True)
    same(LabeledDataset.from_torch(stream), data, "classes", "weights", "columns")


@QUICK
@given(datasets())
@example(LabeledDataset(np.zeros((2, 2)), [("a", 1), None], classes=[("a", 1), ("b", 2)]))
def test_pandas_and_back(data):
    assume(not {"label", "w"} & set(data.columns or ()))
    back = LabeledDataset.from_frame(data.to_pandas(weights="w"), label="label", weights="w")
    same(back, data, "columns")
    if data.columns is not None:
        assert back.columns == data.columns
    elif len(data.sample_shape) == 1:
        assert back.columns == tuple(f"x{i}" for i in range(data.dim))
    bare = LabeledDataset.from_frame(data.to_pandas(label=None), label=None)
    assert torch.equal(bare.x, data.x) and not bare.labeled.any()


class Stream(IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return ((torch.full((2,), float(i)), i % 3) for i in range(self.n))


class Pictures:
    """As torchvision's: images of Pillow, and names in ``classes``."""

    classes = ("cat", "dog")

    def __init__(self, *pictures):
        self.pictures, self.read = pictures, Counter()

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, row):
        self.read[row] += 1
        return self.pictures[row], row % 2


def picture(mode="L", size=(4, 3), value=None):
    usual = {"L": 51, "RGB": (255, 0, 51), "1": 1}
    return Image.new(mode, size, usual[mode] if value is None else value)


def test_pictures_have_values_from_0_to_1():
    gray = LabeledDataset.from_torch(Pictures(picture(), picture("1")))
    assert gray.sample_shape == (3, 4) and gray.labels == ["cat", "dog"]
    assert gray.classes == ("cat", "dog")
    assert gray.x[0].tolist() == [51 / np.float32(255)] * 12 and gray.x[1].tolist() == [1.0] * 12
    colour = LabeledDataset.from_torch(Pictures(picture("RGB")))
    assert colour.samples[0, 0, 0].tolist() == [1.0, 0.0, np.float32(51) / np.float32(255)]
    pictures = Pictures(picture(), picture())
    join = lambda items: tuple(zip(*items, strict=True))
    loader = DataLoader(pictures, batch_size=2, collate_fn=join)
    same(LabeledDataset.from_torch(loader), LabeledDataset.from_torch(pictures))


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.int64, torch.bool, torch.float16, torch.bfloat16]
)
def test_values_of_tensors_stay(dtype):
    x = torch.arange(12).reshape(2, 2, 3).to(dtype)
    loader, arrays = DataLoader(list(x), batch_size=2), list(x.float().numpy().astype("f2"))
    for dataset in (TensorDataset(x), list(x), loader, arrays):
        data = LabeledDataset.from_torch(dataset)
        assert torch.equal(data.samples, x.float()) and not data.labeled.any()
        assert data.classes == ()


def test_labels_of_many_kinds():
    def read(*labels, **options):
        return LabeledDataset.from_torch([(torch.zeros(2), label) for label in labels], **options)

    found = read(1, torch.tensor(2), np.int64(5), torch.tensor([7]), np.array(9)).labels
    assert found == [1, 2, 5, 7, 9]
    assert read("b", "a").classes == ("a", "b")
    assert read(2, 0, -1, None, 1.0, classes="abc").labels == ["c", "a", None, None, "b"]
    assert read(1, 0, classes=[1, 0]).labels == [0, 1]  # positions, whatever the names are
    assert read("b", "a", classes=["b", "a"]).y.tolist() == [0, 1]
    assert read("b", None).labels == ["b", None]


def test_draws_choose_before_they_read():
    dataset = Pictures(*[picture(value=row) for row in range(40)])
    data = LabeledDataset.from_torch(dataset, max_samples=7, generator=seeded(3))
    assert sum(dataset.read.values()) == 7
    same(data, LabeledDataset.from_torch(dataset).sample(7, generator=seeded(3)))
    tensors = LabeledDataset(X, [0, 1, 2, 0]).to_torch()
    for each in (tensors, Subset(tensors, range(4))):
        drawn = LabeledDataset.from_torch(each, max_samples=2, generator=seeded(1))
        same(drawn, LabeledDataset(X, [0, 1, 2, 0]).sample(2, generator=seeded(1)))
        same(LabeledDataset.from_torch(each, max_samples=9), LabeledDataset(X, [0, 1, 2, 0]))


@pytest.mark.slow
@pytest.mark.parametrize("loader", [False, True])
def test_a_reservoir_draws_uniformly(loader):
    """Each of 12 samples is kept in a third of 600 draws, within five standard errors."""
    counts, generator = Counter(), seeded()
    stream = DataLoader(Stream(12), batch_size=5) if loader else Stream(12)
    for _ in range(600):
        data = LabeledDataset.from_torch(stream, max_samples=4, generator=generator, progress=False)
        assert len(set(data.x[:, 0].tolist())) == 4
        assert data.labels == [int(i) % 3 for i in data.x[:, 0].tolist()]
        counts.update(data.x[:, 0].int().tolist())
    assert max(abs(counts[i] - 200) for i in range(12)) < 5 * math.sqrt(600 * 2 / 9)
    assert len(LabeledDataset.from_torch(stream, max_samples=20)) == 12


BAD_TORCH = [
    ([(torch.zeros(2), 0), (torch.zeros(3), 0)], {}, "one shape.*sample 1"),
    (Pictures(picture(), picture("RGB")), {}, "one shape"),
    (Pictures(picture("I;16", value=9)), {}, "8 bits"),
    ([{"x": 1, "y": 2}], {}, "Pass pairs"),
    (TensorDataset(*[torch.zeros(2)] * 3), {}, "3 parts"),
    (TensorDataset(torch.zeros(2, 2), torch.eye(2)), {}, "argmax"),
    ([(torch.zeros(2), [0, 1])], {}, "hashable"),
    ([], {}, "at least one sample"),
    (["text"], {}, "numbers or images"),
    ([(torch.zeros(2), 2)], {"classes": ["a", "b"]}, "positions"),
    ([(torch.zeros(2), "c")], {"classes": ["a", "b"]}, "among classes"),
    *((wrong, {}, "torch dataset") for wrong in (3, "text", {"train": []}, pd.DataFrame({"a": [1]}))),
    (DataLoader([(torch.zeros(2), 0)], batch_size=1, collate_fn=lambda items: (torch.tensor(1.0), 0)), {}, "axis of samples"),
]  # fmt: skip


@pytest.mark.parametrize(("dataset", "options", "message"), BAD_TORCH)
def test_bad_torch_datasets(dataset, options, message):
    with pytest.raises(InputError, match=message):
        LabeledDataset.from_torch(dataset, **options)


def test_frames_of_many_dtypes():
    frame = pd.DataFrame(
        {
            "f4": np.array([1.5, 2.5], "f4"),
            "i": [1, 2],
            "Int": pd.array([3, 4], dtype="Int64"),
            "b": [True, False],
            "boolean": pd.array([True, False], dtype="boolean"),
            7: [0, 1],
            "y": pd.Categorical(["lo", None], categories=["lo", "mid", "hi"], ordered=True),
        },
        index=[5, 5],
    )
    data = LabeledDataset.from_frame(frame, label="y")
    assert data.x.tolist() == [[1.5, 1, 3, 1, 1, 0], [2.5, 2, 4, 0, 0, 1]]
    assert data.x.dtype == torch.float32
    assert data.columns == ("f4", "i", "Int", "b", "boolean", "7")
    assert data.classes == ("lo", "mid", "hi") and data.labels == ["lo", None]
    assert LabeledDataset.from_frame(frame.assign(f8=0.5), label="y").x.dtype == torch.float64
    assert LabeledDataset.from_frame(frame[["i", 7]], label=7).labels == [0, 1]


def test_categories_become_columns():
    categories = pd.Categorical([2, 1], categories=[3, 2, 1])
    frame = pd.DataFrame({"c": ["b", "a"], "n": [1.0, 2.0], "k": categories, "y": [1.0, np.nan]})
    data = LabeledDataset.from_frame(frame, label="y", categorical="onehot")
    assert data.columns == ("c=a", "c=b", "n", "k=3", "k=2", "k=1")
    assert data.x.tolist() == [[0, 1, 1, 0, 1, 0], [1, 0, 2, 0, 0, 1]] and data.labels == [1, None]


def test_weights_of_frames():
    frame = pd.DataFrame({"u": [1.0, 2.0, 3.0], "w": [1, 1, 2], "y": list("aab")})
    weighted = LabeledDataset.from_frame(frame, label="y", weights="w")
    assert weighted.weights.tolist() == [0.25, 0.25, 0.5] and weighted.columns == ("u",)
    for weights, wanted in (("balanced", [0.25, 0.25, 0.5]), ([0, 0, 1], [0, 0, 1])):
        found = LabeledDataset.from_frame(frame, label="y", weights=weights)
        assert found.weights.tolist() == wanted


BAD_FRAMES = [
    ({"u": [1.0, None, None], "v": [1, 2, 3]}, {}, "row 1, column 'u'"),
    ({"u": [1], "d": pd.to_datetime(["2020"])}, {}, "date.*'d'.*Timedelta"),
    ({"u": [1, 2], "t": ["a", None]}, {"categorical": "onehot"}, "row 1, column 't'"),
    ({"u": [1, 2], "t": ["a", "b"]}, {}, "'a' in row 0, column 't'"),
    ({"u": [1, 2], "t": pd.Categorical([1, 2])}, {}, "onehot"),
    ({"u": [str(i) for i in range(1001)]}, {"categorical": "onehot"}, "not a category"),
    ({"u": [1], "kind": ["a"]}, {"label": "knd"}, "Did you mean 'kind'"),
    ({"u": [1], "w": ["a"]}, {"weights": "w"}, "column 'w'"),
    ({"y": [1]}, {"label": "y"}, "column of features"),
    ({1: [1], "1": [2]}, {}, "different names"),
    ({"u": [1.0, math.inf]}, {}, "finite"),
    ({"u": [1j]}, {}, "numbers"),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "options", "message"), BAD_FRAMES)
def test_bad_frames(columns, options, message):
    with pytest.raises(InputError, match=message):
        LabeledDataset.from_frame(pd.DataFrame(columns), **{"label": None, **options})


def test_enumerations_of_polars():
    y = pl.Series("y", ["b", None], pl.Enum(["b", "a"]))
    data = LabeledDataset.from_frame(pl.DataFrame({"u": [1, 2]}).with_columns(y), label="y")
    assert data.classes == ("b", "a") and data.labels == ["b", None]


def test_what_is_no_frame():
    with pytest.raises(InputError, match="data frame"):
        LabeledDataset.from_frame(X, label=None)
    data = LabeledDataset(X, [0, 1, 2, 0], columns=["u", "v", "label"])
    weights = {"label": None, "weights": "v"}, {"label": "y", "weights": "y"}
    for options in ({}, {"label": "u"}, *weights):
        with pytest.raises(InputError, match="names"):
            data.to_pandas(**options)
