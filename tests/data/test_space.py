"""Resizing, channels, columns, scales and projections, there and back.

Against properties that any correct version has, and against Pillow, numpy and scikit-learn.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
import torch
from covering import examples
from hypothesis import given, strategies as st
from PIL import Image
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler
from torch.nn.functional import interpolate

import advect as ad
from advect.data.dataset import LabeledDataset
from advect.data.laws import Diagonal, Gaussians
from advect.data.spaces import FeatureSpace, harmonize
from advect.datasets import load
from advect.errors import InputError


def dataset(samples: torch.Tensor, **options) -> LabeledDataset:
    return LabeledDataset(samples, [row % 2 for row in range(len(samples))], **options)


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


# Sizes


def test_digits_and_mnist_become_28_by_28() -> None:
    source, target = load("digits", n=40), load("mnist", n=30)
    small, large = harmonize(source, target)
    assert small.sample_shape == large.sample_shape == (28, 28)
    assert len(small) == 40
    assert small.labels == source.labels
    assert small.classes == source.classes
    assert torch.equal(large.x, target.x)
    assert small.x.min() >= 0
    assert small.x.max() <= 1 + 1e-6


@pytest.mark.parametrize("shape", [(28, 28), (5, 9), (6, 7, 3)])
def test_images_of_one_size_stay_bit_for_bit(shape: tuple[int, ...]) -> None:
    a, b = dataset(random(4, *shape)), dataset(random(3, *shape, seed=1))
    for given_size in (None, shape[:2]):
        out = harmonize(a, b, size=given_size)  # pyright: ignore[reportArgumentType]
        assert torch.equal(out[0].x, a.x)
        assert torch.equal(out[1].x, b.x)
        assert out[0].sample_shape == out[1].sample_shape == shape


def test_the_default_size_is_the_larger_height_and_the_larger_width() -> None:
    a, b = harmonize(dataset(random(2, 10, 6)), dataset(random(2, 7, 12)))
    assert a.sample_shape == b.sample_shape == (10, 12)


@examples(30)
@given(
    before=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    after=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    value=st.floats(-100, 100),
)
def test_constant_images_stay_constant(
    before: tuple[int, int], after: tuple[int, int], value: float
) -> None:
    constant = dataset(torch.full((2, *before), value, dtype=torch.float64))
    a, _ = harmonize(constant, dataset(random(2, 4, 4, dtype=torch.float64)), size=after)
    torch.testing.assert_close(a.samples, torch.full((2, *after), value, dtype=torch.float64))


# a triangle filter keeps ramps exactly when enlarging and at whole ratios, otherwise to a hundredth
# of a pixel
@pytest.mark.parametrize(
    ("before", "after", "pixels"), [(8, 28, 1e-6), (10, 25, 1e-6), (32, 16, 1e-6), (28, 8, 1e-2)]
)
@pytest.mark.parametrize("axis", [1, 2])
def test_a_ramp_stays_a_ramp_away_from_the_border(
    before: int, after: int, pixels: float, axis: int
) -> None:
    centres = (
        torch.arange(before, dtype=torch.float64) + 0.5
    ) / before  # value of a pixel = where its centre is
    ramp = (
        centres.expand(1, before, before)
        if axis == 2
        else centres[:, None].expand(1, before, before)
    )
    resized = harmonize(dataset(ramp), dataset(ramp), size=after)[0].samples
    expected = (torch.arange(after, dtype=torch.float64) + 0.5) / after
    margin = -(-after // before) + 1  # pixels whose filter reaches beyond the border
    profile = resized.movedim(axis, 0)[margin:-margin].reshape(after - 2 * margin, -1)
    torch.testing.assert_close(
        profile, expected[margin:-margin, None].expand_as(profile), atol=pixels / after, rtol=0
    )


def test_shrinking_looks_at_every_pixel() -> None:
    """Stripes 0 1 1 0 shrunk by 4 become their mean; sampling around the centres alone would see
    only the ones.
    """
    stripes = torch.tensor([0.0, 1.0, 1.0, 0.0]).repeat(8).expand(1, 32, 32)
    small = harmonize(dataset(stripes), dataset(random(1, 8, 8)), size=8)[0].samples
    torch.testing.assert_close(small[:, :, 1:-1], torch.full((1, 8, 6), 0.5))


def test_resizing_commutes_with_transposition() -> None:
    images, other = random(3, 9, 14), dataset(random(1, 4, 4))
    wide = harmonize(dataset(images), other, size=(6, 20))[0].samples
    tall = harmonize(dataset(images.mT.contiguous()), other, size=(20, 6))[0].samples
    torch.testing.assert_close(wide, tall.mT)


# Channels


def test_gray_is_the_luma_and_ignores_alpha() -> None:
    colours = torch.eye(4)[:, None, None].expand(4, 5, 5, 4)  # red, green, blue, transparent black
    gray = harmonize(dataset(colours), dataset(random(2, 5, 5)), channels="gray")[0]
    assert gray.sample_shape == (5, 5)
    torch.testing.assert_close(gray.samples[:, 2, 3], torch.tensor([0.299, 0.587, 0.114, 0.0]))


def test_gray_is_repeated_against_colour() -> None:
    gray, colour = dataset(random(2, 6, 7)), dataset(random(3, 6, 7, 3))
    a, b = harmonize(gray, colour)
    assert a.sample_shape == b.sample_shape == (6, 7, 3)
    assert torch.equal(a.samples, gray.samples[..., None].expand(2, 6, 7, 3))
    assert torch.equal(b.x, colour.x)


def test_gray_to_rgb_and_back_is_the_identity() -> None:
    a, b = dataset(random(2, 6, 7)), dataset(random(2, 6, 7, seed=1))
    for before, after in zip(
        (a, b), harmonize(*harmonize(a, b, channels="rgb"), channels="gray"), strict=True
    ):
        torch.testing.assert_close(after.x, before.x)
        assert after.sample_shape == before.sample_shape


@pytest.mark.parametrize("channels", [None, "gray", "rgb"])
@pytest.mark.parametrize("size", [None, 4, (12, 5)])
def test_channels_first_and_last_are_the_same_images(channels: str | None, size) -> None:
    last, other = random(3, 6, 8, 3), dataset(random(2, 9, 9, 1))
    first = dataset(last.movedim(3, 1).contiguous())
    assert first.sample_shape == (3, 6, 8)
    a, b = (
        harmonize(data, other, channels=channels, size=size)[0] for data in (first, dataset(last))
    )
    assert a.sample_shape == b.sample_shape
    torch.testing.assert_close(a.x, b.x)


@pytest.mark.parametrize("shape", [(6, 8), (6, 8, 1), (1, 6, 8)])
def test_one_channel_comes_out_without_axis(shape: tuple[int, ...]) -> None:
    images = dataset(random(3, *shape))
    a, b = harmonize(images, dataset(random(2, 6, 8)))
    assert a.sample_shape == b.sample_shape == (6, 8)
    assert torch.equal(a.x, images.x)


# Scales and vectors


@pytest.mark.parametrize("shape", [(7,), (5, 6), (5, 6, 3)])
def test_standardize_gives_joint_mean_0_and_deviation_1(shape: tuple[int, ...]) -> None:
    a, b = dataset(10 + 3 * random(8, *shape)), dataset(random(5, *shape, seed=1))
    together = torch.cat([data.x for data in harmonize(a, b, scale="standardize")]).double()
    torch.testing.assert_close(together.mean(0), torch.zeros_like(together[0]), atol=1e-6, rtol=0)
    torch.testing.assert_close(together.std(0, correction=0), torch.ones_like(together[0]))


def test_standardize_is_one_affine_map_for_both() -> None:
    shared = random(4, 3)
    a, b = harmonize(
        dataset(shared), dataset(torch.cat([shared, 5 * random(6, 3, seed=1)])), scale="standardize"
    )
    assert torch.equal(a.x, b.x[:4])


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6 + 0.1])
def test_constant_features_are_only_centred(value: float) -> None:
    constant = torch.full(
        (33, 1), value, dtype=torch.float64
    )  # the mean of 66 copies of 0.1 is not 0.1
    a, b = (dataset(torch.cat([constant, random(33, 1, seed=seed)], 1)) for seed in (0, 1))
    for data in harmonize(a, b, scale="standardize"):
        assert bool((data.x[:, 0] == 0).all())
        assert data.x[:, 1].std() > 0.5


def test_features_constant_in_each_but_different_are_not_constant() -> None:
    a, b = harmonize(
        dataset(torch.zeros(4, 1)), dataset(torch.full((4, 1), 8.0)), scale="standardize"
    )
    assert a.x.flatten().tolist() == [-1.0] * 4
    assert b.x.flatten().tolist() == [1.0] * 4


def test_unit_maps_each_dataset_by_its_own_range() -> None:
    a, b = harmonize(
        dataset(torch.tensor([[-2.0, 0.0], [2.0, 1.0]])),
        dataset(torch.full((2, 2), 7.0)),
        scale="unit",
    )
    assert a.x.tolist() == [[0.0, 0.5], [1.0, 0.75]]
    assert b.x.tolist() == [[0.0, 0.0], [0.0, 0.0]]


@examples(25)
@given(
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=12),
    st.floats(0.01, 100),
    st.floats(-100, 100),
)
def test_unit_does_not_see_affine_changes(
    values: list[float], factor: float, offset: float
) -> None:
    x = torch.tensor(values, dtype=torch.float64)[:, None]
    if x.max() - x.min() < 1e-3:
        return
    a, b = harmonize(dataset(x), dataset(factor * x + offset), scale="unit")
    assert a.x.min() == 0
    assert a.x.max() == 1
    torch.testing.assert_close(a.x, b.x, atol=1e-6, rtol=0)


def test_vectors_of_one_dimension_pass_through() -> None:
    a, b = dataset(random(4, 3)), dataset(random(5, 3, seed=1), weights=[1, 2, 3, 4, 5])
    out = harmonize(a, b)
    for before, after in zip((a, b), out, strict=True):
        assert torch.equal(before.x, after.x)
        assert torch.equal(before.weights, after.weights)


def test_the_wider_dtype_wins_and_labels_and_weights_stay() -> None:
    a = LabeledDataset(random(4, 5, 5), list("dcba"), weights=[1, 2, 3, 4], classes=list("abcd"))
    b = dataset(random(3, 6, 6, dtype=torch.float64))
    after, other = harmonize(a, b, scale="standardize")
    assert after.x.dtype == after.weights.dtype == other.x.dtype == torch.float64
    assert after.classes == a.classes
    assert after.labels == a.labels
    torch.testing.assert_close(
        after.weights, torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    )


@pytest.mark.parametrize("scale", [None, "unit", "standardize"])
def test_the_inputs_are_left_alone(scale: str | None) -> None:
    a, b = dataset(random(3, 6, 6)), dataset(random(3, 4, 8, 3))
    kept = a.x.clone(), b.x.clone()
    harmonize(a, b, scale=scale)
    assert torch.equal(a.x, kept[0])
    assert torch.equal(b.x, kept[1])
    assert a.sample_shape == (6, 6)
    assert b.sample_shape == (4, 8, 3)


# Misuse


@pytest.mark.parametrize(
    ("first", "second"),
    [((3,), (4,)), ((8, 8), (64,)), ((4,), (5, 5, 3)), ((3, 5, 4, 5), (5, 5)), ((2, 9, 9), (9, 9))],
)
def test_different_spaces_are_refused_with_remedies(
    first: tuple[int, ...], second: tuple[int, ...]
) -> None:
    for shapes in ((first, second), (second, first)):
        with pytest.raises(InputError, match="datasets must share a feature space") as caught:
            harmonize(*(dataset(random(2, *shape)) for shape in shapes))
        assert str(shapes[0]) in str(caught.value)
        assert str(shapes[1]) in str(caught.value)
        assert all(word in str(caught.value) for word in ("resize", "PCA", "embedding"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size must be a whole number of at least 1; got 0"),
        ({"size": (5, 2.5)}, "size must be a whole number of at least 1; got 2.5"),
        ({"size": (1, 2, 3)}, r"size must be one side or \(height, width\); got \(1, 2, 3\)"),
        ({"size": "large"}, "size must be a number; got 'large'"),
        ({"channels": "grey"}, "unknown channels; got 'grey'. Did you mean 'gray'"),
        ({"scale": "units"}, "unknown scale; got 'units'. Did you mean 'unit'"),
        ({"scale": 1}, "unknown scale; got 1"),
        ({"columns": "shared"}, "unknown columns; got 'shared'"),
        (
            {"columns": "common"},
            "columns needs names of columns on both sides; got columns='common'",
        ),
        ({"project": 0}, "project must be a whole number of at least 1; got 0"),
        ({"project": True}, "project must be a number; got True"),
        ({"project": 2.5}, "project must be a whole number of at least 1; got 2.5"),
        (
            {"project": 4},
            r"4 samples of dimension 25 \(both .*\) have at most 3 principal components; got project=4",
        ),
    ],
)
def test_bad_options(options: dict, message: str) -> None:
    images = dataset(random(2, 5, 5))
    for fit in (harmonize, FeatureSpace.fit):
        with pytest.raises(InputError, match=message):
            fit(images, images, **options)


@pytest.mark.parametrize("options", [{"size": 5}, {"channels": "gray"}])
def test_options_for_images_are_refused_for_vectors(options: dict) -> None:
    with pytest.raises(InputError, match="size and channels are for images"):
        harmonize(dataset(random(2, 5)), dataset(random(2, 5)), **options)


def test_different_devices_are_refused() -> None:
    here, there = dataset(random(2, 5)), dataset(random(2, 5))
    there = there.replace(x=there.x.to("meta"))
    with pytest.raises(InputError, match="datasets must be on one device; got cpu and meta"):
        harmonize(here, there)


def test_datasets_with_laws_are_refused() -> None:
    plain = dataset(random(4, 3))
    carrying = dataset(random(4, 3), law=Gaussians(torch.zeros(2, 3), Diagonal(torch.ones(2, 3))))
    for pair in ((plain, carrying), (carrying, plain)):
        with pytest.raises(
            InputError,
            match=r"label laws live in the space they were made in.*got a dataset with 2 laws",
        ):
            FeatureSpace.fit(*pair)


def test_other_things_than_datasets_are_refused() -> None:
    with pytest.raises(InputError, match="harmonize takes two datasets; got Tensor"):
        harmonize(dataset(random(2, 5)), random(2, 5))  # pyright: ignore[reportArgumentType]


# A fitted space


def named(x: Any, columns: str, **options) -> LabeledDataset:
    return dataset(torch.as_tensor(x), columns=list(columns), **options)


def pairs() -> dict[str, tuple[LabeledDataset, LabeledDataset, dict[str, Any]]]:
    """One of each kind of space, with other samples of the same kind a matter of the seed."""
    f64 = torch.float64
    return {
        "enlarged": (dataset(random(6, 16, 16)), dataset(random(5, 28, 28, seed=1)), {}),
        "shrunk": (
            dataset(random(6, 12, 9, 3)),
            dataset(random(5, 6, 6, seed=1)),
            {"size": 8, "channels": "gray"},
        ),
        "alpha": (
            dataset(random(6, 5, 5, 4)),
            dataset(random(5, 3, 7, 6, seed=1, dtype=f64)),
            {"scale": "unit"},
        ),
        "vectors": (dataset(random(6, 4)), dataset(random(5, 4, seed=1)), {}),
        "standard": (
            dataset(random(6, 5, 5)),
            dataset(random(5, 5, 5, seed=1)),
            {"scale": "standardize"},
        ),
        "by target": (
            dataset(random(6, 4)),
            dataset(random(5, 4, seed=1)),
            {"scale": "standardize-target"},
        ),
        "order": (
            named(random(6, 3), "abc"),
            named(random(5, 3, seed=1), "cab"),
            {"scale": "unit"},
        ),
        "common": (
            named(random(6, 3), "abc"),
            named(random(5, 3, seed=1), "dca"),
            {"columns": "common"},
        ),
        "union": (
            named(random(6, 3), "abc"),
            named(random(5, 3, seed=1), "dca"),
            {"columns": "union", "scale": "standardize"},
        ),
        "plain union": (
            named(random(6, 2), "ab"),
            named(random(5, 2, seed=1), "bc"),
            {"columns": "union"},
        ),
        "joint components": (dataset(random(6, 4)), dataset(random(5, 4, seed=1)), {"project": 2}),
        "own components": (
            dataset(random(6, 4)),
            dataset(random(5, 3, 3, seed=1)),
            {"project": 3, "scale": "standardize"},
        ),
    }


PAIRS = pairs()
each_pair = pytest.mark.parametrize(("source", "target", "options"), PAIRS.values(), ids=PAIRS)


@each_pair
def test_harmonize_is_fit_and_apply(
    source: LabeledDataset, target: LabeledDataset, options: dict
) -> None:
    space = FeatureSpace.fit(source, target, **options)
    for before, after, side in zip(
        (source, target), harmonize(source, target, **options), ("source", "target"), strict=True
    ):
        mine = space.apply(before, side=side)
        assert torch.equal(mine.x, after.x)
        assert mine.x.dtype == space.dtype
        assert mine.sample_shape == after.sample_shape == space.sample_shape
        assert mine.columns == after.columns == space.columns
        assert mine.labels == after.labels == before.labels


@each_pair
def test_rows_go_one_by_one_and_come_back_in_their_own_form(source, target, options) -> None:
    """A statistic taken from what is applied, rather than from the fit, would see one row alone."""
    space = FeatureSpace.fit(source, target, **options)
    for data, side in ((source, "source"), (target, "target")):
        whole = space.apply(data, side)
        back = space.invert(whole, side)
        assert (back.sample_shape, back.columns, back.labels) == (
            data.sample_shape,
            data.columns,
            data.labels,
        )
        assert back.x.dtype == data.x.dtype
        for row in range(len(data)):
            torch.testing.assert_close(space.apply(data.samples[[row]], side), whole.samples[[row]])
            one = space.invert(whole.samples[[row]], side).to(
                data.x.dtype
            )  # arrays keep their dtype
            torch.testing.assert_close(one, back.samples[[row]])


@each_pair
def test_what_comes_back_goes_to_the_same_place(source, target, options) -> None:
    """invert is a generalised inverse of apply, whatever apply loses."""
    space = FeatureSpace.fit(source, target, **options)
    for data, side in ((source, "source"), (target, "target")):
        there = space.apply(data, side)
        torch.testing.assert_close(
            space.apply(space.invert(there, side), side).x, there.x, atol=1e-5, rtol=1e-5
        )


@each_pair
def test_json_keeps_every_bit(source, target, options) -> None:
    space = FeatureSpace.fit(source, target, **options)
    text = json.dumps(space.to_dict(), allow_nan=False)
    loaded = FeatureSpace.from_dict(json.loads(text))
    for data, side in ((source, "source"), (target, "target")):
        there = space.apply(data, side)
        assert torch.equal(loaded.apply(data, side).x, there.x)
        assert torch.equal(loaded.invert(there, side).x, space.invert(there, side).x)
        assert loaded.invert(there, side).columns == data.columns
    assert (loaded.sample_shape, loaded.columns, loaded.dtype) == (
        space.sample_shape,
        space.columns,
        space.dtype,
    )
    assert loaded.describe() == space.describe()
    assert json.dumps(loaded.to_dict()) == text


def places(part: Any, path: tuple = ()) -> list[tuple]:
    """Paths to everything in nested lists and dictionaries; of long lists, to the first entry."""
    inside = (
        part.items()
        if isinstance(part, dict)
        else enumerate(part[:1])
        if isinstance(part, list)
        else ()
    )
    return [path, *(place for key, value in inside for place in places(value, (*path, key)))]


@pytest.mark.slow
@each_pair
def test_damaged_spaces_are_refused(source, target, options) -> None:
    facts = FeatureSpace.fit(source, target, **options).to_dict()
    for place in places(facts)[1:]:
        for junk in (None, "junk", -1, 0.5, [], {}, [float("nan")], 10**400, True, "missing"):
            broken = copy.deepcopy(facts)
            holder = broken
            for key in place[:-1]:
                holder = holder[key]
            if junk == holder[place[-1]]:
                continue
            if junk == "missing" and isinstance(holder, dict):
                del holder[place[-1]]
            else:
                holder[place[-1]] = junk
            try:
                FeatureSpace.from_dict(broken)
            except InputError:
                continue
            last = [key for key in place if isinstance(key, str)][-1]
            number = last in ("offset", "width", "centre", "alpha", *"abcd") and junk in (
                -1,
                0.5,
                True,
            )
            sound = junk in (None, []) and last in (
                "columns",
                "steps",
            )  # a space too, where nothing else contradicts it
            older = junk in (None, "missing") and place[-1] in (
                "dtype",
                "table",
            )  # which older files lack
            assert number or sound or older, f"{place} = {junk!r} was taken"


@pytest.mark.parametrize(
    ("pair", "place", "value", "message"),
    [
        ("vectors", ("kind",), "other", "kind must be one of advect.FeatureSpace; got 'other'"),
        ("vectors", ("version",), 2, "must be of version 1; got 2"),
        (
            "vectors",
            ("sample_shape",),
            [5],
            r"both sides must lead to samples of shape \(5,\); got 4 features",
        ),
        ("vectors", ("columns",), ["a"], "one name for each feature"),
        (
            "enlarged",
            ("source", "sample_shape"),
            [8, 32],
            r"must have the shape \(8, 32\) of their side; got \(16, 16\)",
        ),
        (
            "enlarged",
            ("source", "sample_shape"),
            [8, 8],
            "must take the 64 features that reach it; got 256",
        ),
        ("order", ("source", "columns"), ["a", "b", "d"], "columns must be those of their side"),
        ("order", ("columns",), ["a", "a", "b"], "must be different names"),
        (
            "order",
            ("columns",),
            ["a", "b", "c"],
            "must lead to the columns 'a', 'b', 'c'; got 'c', 'a', 'b'",
        ),
        (
            "order",
            ("source", "steps"),
            [],
            "must lead to the columns 'c', 'a', 'b'; got 'a', 'b', 'c'",
        ),
        (
            "by target",
            ("source", "steps", 0, "width"),
            [1.0, 1.0, 0.0, 1.0],
            "width must be above 0; got 0.0",
        ),
        (
            "by target",
            ("source", "steps", 0, "width"),
            [1.0, 1.0],
            r"need one number, or 4; got shapes \(4,\) and \(2,\)",
        ),
        (
            "joint components",
            ("target", "steps", 0, "components"),
            [[1.0, 1, 0, 0]] * 2,
            "must be orthonormal",
        ),
        (
            "joint components",
            ("target", "steps", 0, "centre"),
            [0.0],
            "components must have 1 loadings each; got 4",
        ),
        (
            "shrunk",
            ("source", "steps", 0, "alpha"),
            1.0,
            "alpha belongs to images of four channels",
        ),
        (
            "shrunk",
            ("source", "steps", 0, "kind"),
            "squash",
            "a step must be one of pixels, columns, scale, project",
        ),
    ],
)
def test_damage_is_named(pair: str, place: tuple, value: object, message: str) -> None:
    source, target, options = PAIRS[pair]
    facts = FeatureSpace.fit(source, target, **options).to_dict()
    holder: Any = facts
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    with pytest.raises(InputError, match=message):
        FeatureSpace.from_dict(facts)
    with pytest.raises(InputError, match="a part must be a dictionary; got list"):
        FeatureSpace.from_dict([facts])


def test_what_is_described() -> None:
    def lines(pair: str) -> list[str]:
        source, target, options = PAIRS[pair]
        return FeatureSpace.fit(source, target, **options).describe().splitlines()

    assert lines("alpha")[0].startswith(
        "source (5, 5, 4): resized from 5 × 5 to 7 × 6, alpha dropped; all features less 0.0"
    )
    assert lines("vectors") == [
        "source (4,): as it is",
        "target (4,): as it is",
        "common (4,), float32",
    ]
    assert lines("order")[0].startswith("source (3,): columns reordered; all features less")
    assert lines("common") == [
        "source (3,): columns dropped: 'b'",
        "target (3,): columns dropped: 'd'",
        "common (2,), columns 'c', 'a', float32",
    ]
    assert lines("plain union")[0] == "source (2,): columns filled with a constant: 'c'"
    assert (
        lines("by target")[0]
        == "source (4,): each feature less its mean, divided by its deviation (of the target)"
    )
    assert lines("own components")[1].endswith(
        "projected from 9 dimensions on the first 3 principal components of the target"
    )


def test_labels_that_are_missing_stay_missing() -> None:
    a, b = LabeledDataset(random(4, 5, 5)), LabeledDataset(random(3, 6, 6), ["x", None, "y"])
    space = FeatureSpace.fit(a, b, scale="standardize")
    assert space.apply(a).labels == space.invert(space.apply(a)).labels == [None] * 4
    assert space.apply(b, "target").labels == ["x", None, "y"]
    assert space.apply(a).classes == ()


def test_the_form_that_goes_in_comes_out() -> None:
    pandas = pytest.importorskip("pandas")
    source = named([[1.0, 2.0, 3.0], [4.0, 5.0, 7.0]], "abc")
    space = FeatureSpace.fit(source, named([[1.0, 2.0, 3.0], [4.0, 5.0, 7.0]], "cab"))
    expected = [[3.0, 1.0, 2.0]]
    assert space.apply(torch.tensor([[1, 2, 3]])).tolist() == expected
    for rows in (
        np.array([[1.0, 2.0, 3.0]]),
        [[1, 2, 3]],
        pandas.DataFrame({"c": [3], "b": [2], "a": [1]}),
    ):
        out = space.apply(rows)  # pyright: ignore[reportArgumentType]
        assert isinstance(out, np.ndarray)
        assert out.dtype == np.float32
        assert out.tolist() == expected
        assert space.invert(out).tolist() == [[1.0, 2.0, 3.0]]
    assert (
        space.apply(source.replace(x=source.x[:, [2, 0, 1]], columns=("c", "a", "b"))).x.tolist()
        == space.apply(source).x.tolist()
    )
    flat = FeatureSpace.fit(dataset(random(4, 6, 6)), dataset(random(4, 8, 8)))
    assert flat.apply(random(2, 36)).shape == (2, 8, 8)
    assert flat.invert(random(2, 64)).shape == (2, 6, 6)


def test_dtypes() -> None:
    space = FeatureSpace.fit(
        dataset(random(4, 3)), dataset(random(4, 3, dtype=torch.float64)), scale="unit"
    )
    assert space.dtype == space.apply(random(2, 3)).dtype == torch.float64
    assert space.invert(random(2, 3)).dtype == torch.float32
    resized, _ = harmonize(
        dataset(random(4, 7, 7)),
        dataset(random(4, 9, 9, dtype=torch.float64)),
        size=5,
        scale="unit",
    )
    assert resized.x.max() == 1  # the range was taken in float64 too
    narrow = FeatureSpace.fit(dataset(random(4, 3)), dataset(random(4, 3)))
    assert narrow.apply(random(2, 3, dtype=torch.float64)).dtype == torch.float32
    with pytest.raises(InputError, match="features must be finite.*fit the space on float64"):
        narrow.apply(np.full((2, 3), 1e300))


def test_gradients_pass_through_the_features_alone() -> None:
    x = random(4, 3).requires_grad_()
    fixed = dataset(random(4, 3))
    space = FeatureSpace.fit(fixed.replace(x=x), fixed, scale="standardize")
    space.apply(x).sum().backward()
    deviation = torch.cat([x, fixed.x]).std(0, correction=0)
    assert x.grad is not None
    torch.testing.assert_close(x.grad, (1 / deviation).detach().expand(4, 3))


def test_the_arrays_of_the_caller_are_left_alone() -> None:
    array = np.ones((2, 3), dtype=np.float32)
    space = FeatureSpace.fit(dataset(random(4, 3)), dataset(random(4, 3)))
    space.apply(array)[:] = 5
    space.invert(array)[:] = 5
    assert (array == 1).all()


@pytest.mark.parametrize(
    ("rows", "side", "message"),
    [
        (
            random(2, 28, 28),
            "source",
            r"samples of the source must have shape \(16, 16\).*\(28, 28\).*side='target'",
        ),
        (
            random(2, 16, 16),
            "target",
            r"samples of the target must have shape \(28, 28\).*\(16, 16\).*side='source'",
        ),
        (dataset(random(2, 28, 28)), "source", r"must have shape \(16, 16\)"),
        (random(16, 16), "source", r"must have shape \(16, 16\), one sample to a row; got \(16,\)"),
        (random(2, 16, 16, 3), "source", "must have shape"),
        (
            random(2, 8, 32),
            "source",
            r"must have shape \(16, 16\), one sample to a row; got \(8, 32\)",
        ),
        (random(2, 16, 16), "sauce", "unknown side; got 'sauce'. Did you mean 'source'"),
        (random(2, 16, 16), None, "unknown side; got None"),
        (random(2, 16, 16) / 0, "source", "features must be finite"),
        ("images", "source", "features must be"),
        (random(0, 16, 16), "source", "at least one sample"),
    ],
)
def test_samples_of_another_shape_or_side_are_refused(rows, side, message: str) -> None:
    source, target, options = PAIRS["enlarged"]
    space = FeatureSpace.fit(source, target, **options)
    with pytest.raises(InputError, match=message):
        space.apply(rows, side)
    if "shape" not in message:
        with pytest.raises(InputError, match=message):
            space.invert(rows, side)
    with pytest.raises(
        InputError,
        match=r"samples of the common space must have shape \(28, 28\).*apply brings them there",
    ):
        space.invert(random(2, 16, 16))


def test_other_columns_are_refused_at_apply_and_invert() -> None:
    source, target, options = PAIRS["order"]
    space = FeatureSpace.fit(source, target, **options)
    other = named(random(2, 3), "abd")
    with pytest.raises(
        InputError,
        match="samples of the source must have the columns 'a', 'b', 'c'; got 'a', 'b', 'd'",
    ):
        space.apply(other)
    with pytest.raises(
        InputError, match="samples of the common space must have the columns 'c', 'a', 'b'"
    ):
        space.invert(other)


def test_laws_are_refused_at_apply_and_invert() -> None:
    plain = dataset(random(4, 3))
    carrying = dataset(random(4, 3), law=Gaussians(torch.zeros(2, 3), Diagonal(torch.ones(2, 3))))
    space = FeatureSpace.fit(plain, plain)
    for way in (space.apply, space.invert):
        with pytest.raises(InputError, match="label laws live in the space they were made in"):
            way(carrying)


# Images there and back


def smooth(n: int, height: int, width: int) -> torch.Tensor:
    """Sums of a few low waves."""
    down, across = torch.meshgrid(
        torch.linspace(0, 3, height), torch.linspace(0, 3, width), indexing="ij"
    )
    a, b, c = random(3, n, 1, 1)
    return (
        0.5
        + 0.25 * torch.sin(a * down + 2 * b * across)
        + 0.25 * torch.cos(b * down - c * across + a)
    )


@pytest.mark.parametrize(
    ("before", "after"), [((16, 16), (28, 28)), ((96, 96), (32, 32)), ((28, 20), (9, 33))]
)
def test_resizing_is_that_of_pillow(before: tuple[int, int], after: tuple[int, int]) -> None:
    images = random(2, *before)
    mine = FeatureSpace.fit(dataset(images), dataset(images), size=after).apply(images)
    for image, resized in zip(images.numpy(), mine.numpy(), strict=True):
        expected = np.asarray(Image.fromarray(image).resize(after[::-1], Image.Resampling.BILINEAR))
        np.testing.assert_allclose(resized, expected, atol=1e-5)


@pytest.mark.parametrize("shape", [(16, 16), (16, 16, 1), (1, 16, 16), (16, 16, 3), (3, 16, 16)])
@pytest.mark.parametrize("channels", [None, "rgb"])
@pytest.mark.parametrize("scale", [None, "unit", "standardize", "standardize-target"])
def test_enlarged_images_come_back(
    shape: tuple[int, ...], channels: str | None, scale: str | None
) -> None:
    """Images without any smoothness: nothing is lost when enlarging."""
    a, b = dataset(255 * random(5, *shape)), dataset(random(4, 28, 19, seed=1))
    space = FeatureSpace.fit(a, b, channels=channels, scale=scale)
    for data, side in ((a, "source"), (b, "target")):
        back = space.invert(space.apply(data, side), side)
        assert back.sample_shape == data.sample_shape
        torch.testing.assert_close(
            back.x, data.x, atol=1e-3 if side == "source" else 1e-5, rtol=1e-5
        )


def test_images_of_the_size_already_come_back_bit_for_bit() -> None:
    images = dataset(random(3, 28, 28))
    space = FeatureSpace.fit(dataset(random(3, 16, 16)), images)
    assert torch.equal(space.apply(images, "target").x, images.x)
    assert torch.equal(space.invert(images, "target").x, images.x)


def test_invert_of_an_enlargement_is_least_squares() -> None:
    """Images that no small one enlarges to, against numpy's least squares with all pixels at
    once.
    """
    small, large = (5, 4), (9, 7)
    space = FeatureSpace.fit(
        dataset(random(2, *small, dtype=torch.float64)),
        dataset(random(2, *large, dtype=torch.float64)),
    )
    basis = torch.eye(20, dtype=torch.float64).reshape(20, 1, *small)
    matrix = interpolate(basis, size=large, mode="bilinear", align_corners=False).reshape(20, -1).T
    images = random(3, *large, seed=5, dtype=torch.float64)
    expected = np.linalg.lstsq(matrix.numpy(), images.reshape(3, -1).T.numpy(), rcond=None)[0].T
    np.testing.assert_allclose(space.invert(images).reshape(3, -1).numpy(), expected, atol=1e-10)


@pytest.mark.parametrize("size", [12, 5, (20, 3), 1])
def test_shrunk_images_come_back_with_nothing_made_up(size) -> None:
    """They shrink to exactly what is given, constants stay constant, and smooth images hardly
    change.
    """
    shapes = dataset(random(2, 24, 24, dtype=torch.float64))
    space = FeatureSpace.fit(shapes, shapes, size=size)
    given = random(3, *space.sample_shape, dtype=torch.float64)
    torch.testing.assert_close(space.apply(space.invert(given)), given)
    constant = torch.full((1, *space.sample_shape), 0.3, dtype=torch.float64)
    torch.testing.assert_close(
        space.invert(constant), torch.full((1, 24, 24), 0.3, dtype=torch.float64)
    )
    images = smooth(4, 24, 24).double()
    worst = (space.invert(space.apply(images)) - images).abs().max()
    plain = interpolate(
        space.apply(images)[:, None], size=(24, 24), mode="bilinear", align_corners=False
    )[:, 0]
    assert worst <= (plain - images).abs().max() + 1e-9
    if size == 12:
        assert worst < 0.03


def test_usps_like_images_survive_noise_in_28_by_28() -> None:
    """What a flow adds is not amplified much: noise of deviation s comes back below 2 s."""
    images = smooth(20, 16, 16)
    space = FeatureSpace.fit(dataset(images), dataset(random(3, 28, 28)))
    torch.testing.assert_close(space.invert(space.apply(images)), images, atol=1e-5, rtol=0)
    noise = 0.1 * torch.randn(20, 28, 28, generator=torch.Generator().manual_seed(0))
    assert (space.invert(space.apply(images) + noise) - images).std() < 0.2


def test_colour_made_gray_comes_back_gray() -> None:
    colour, gray = random(3, 6, 6, 3), random(2, 6, 6)
    space = FeatureSpace.fit(dataset(colour), dataset(gray), channels="gray")
    luma = (colour.numpy() * [0.299, 0.587, 0.114]).sum(3)
    np.testing.assert_allclose(
        space.invert(space.apply(colour)).numpy(), np.stack([luma] * 3, axis=3), atol=1e-6
    )


def test_colour_that_a_gray_side_cannot_hold_becomes_the_mean() -> None:
    space = FeatureSpace.fit(dataset(random(2, 6, 6)), dataset(random(2, 6, 6, 3)))
    colour = random(3, 6, 6, 3)
    torch.testing.assert_close(space.invert(colour), colour.mean(dim=3))
    torch.testing.assert_close(space.invert(colour, "target"), colour)


def test_alpha_comes_back_as_its_mean() -> None:
    images = random(4, 6, 6, 4)
    space = FeatureSpace.fit(dataset(images), dataset(random(2, 9, 9, 3)), scale="unit")
    back = space.invert(space.apply(images))
    torch.testing.assert_close(back[..., :3], images[..., :3], atol=1e-5, rtol=0)
    torch.testing.assert_close(back[..., 3], images[..., 3].mean().expand(4, 6, 6))


# Columns


def test_columns_go_by_name_in_the_order_of_the_target() -> None:
    a, b = harmonize(named([[1.0, 2.0, 3.0]], "abc"), named([[30.0, 10.0, 20.0]], "cab"))
    assert a.x.tolist() == [[3.0, 1.0, 2.0]]
    assert b.x.tolist() == [[30.0, 10.0, 20.0]]
    assert a.columns == b.columns == ("c", "a", "b")


@pytest.mark.parametrize("named_side", [0, 1])
def test_names_on_one_side_are_taken_for_both(named_side: int) -> None:
    data = [dataset(random(3, 2)), dataset(random(4, 2))]
    data[named_side] = data[named_side].replace(columns=("p", "q"))
    space = FeatureSpace.fit(*data)
    assert space.columns == space.apply(data[0]).columns == ("p", "q")
    assert torch.equal(space.apply(data[0]).x, data[0].x)
    assert space.invert(space.apply(data[0])).columns == data[0].columns
    with pytest.raises(InputError, match="datasets must share a feature space"):
        FeatureSpace.fit(data[named_side], dataset(random(3, 4)))


def test_missing_columns_are_listed_with_the_choices() -> None:
    with pytest.raises(InputError) as caught:
        harmonize(named(random(3, 3), "abc"), named(random(3, 4), "cdea"))
    for words in (
        "'d', 'e' missing in the source",
        "'b' missing in the target",
        '"common"',
        '"union"',
        "project=k",
    ):
        assert words in str(caught.value)
    many = [f"column {i}" for i in range(20)]
    with pytest.raises(
        InputError, match="'column 7' and 12 more missing in the source, 'a' missing in the target"
    ):
        harmonize(named(random(3, 1), "a"), dataset(random(3, 20), columns=many))


def test_common_columns() -> None:
    source, target = (
        named([[1.0, 2.0, 3.0], [5.0, 6.0, 7.0]], "abc"),
        named([[40.0, 30.0, 10.0]], "dca"),
    )
    space = FeatureSpace.fit(source, target, columns="common")
    assert space.columns == ("c", "a")
    assert space.apply(source).x.tolist() == [[3.0, 1.0], [7.0, 5.0]]
    assert space.apply(target, "target").x.tolist() == [[30.0, 10.0]]
    assert space.invert([[0.0, 9.0]]).tolist() == [[9.0, 4.0, 0.0]]  # b: its mean in the source
    assert space.invert([[0.0, 9.0]], "target").tolist() == [[40.0, 0.0, 9.0]]
    with pytest.raises(
        InputError, match=r"the datasets share no column; got 'a' in the source, 'b' in the target"
    ):
        harmonize(named(random(3, 1), "a"), named(random(3, 1), "b"), columns="common")


@pytest.mark.parametrize("scale", [None, "unit", "standardize", "standardize-target"])
def test_columns_that_a_side_lacks_are_at_the_mean_of_the_other(scale: str | None) -> None:
    source, target = (
        named(3 * random(6, 3, dtype=torch.float64), "abc"),
        named(random(5, 3, seed=1, dtype=torch.float64), "dca"),
    )
    a, b = harmonize(source, target, columns="union", scale=scale)
    assert a.columns == b.columns == ("d", "c", "a", "b")
    for filled, other, column in ((a, b, 0), (b, a, 3)):
        expected = other.x[:, column].mean().expand(len(filled))
        torch.testing.assert_close(filled.x[:, column], expected, atol=1e-12, rtol=1e-12)
        assert other.x[:, column].std() > 0
    if scale is None:
        assert torch.equal(a.x[:, 1:], source.x[:, [2, 0, 1]])
    if scale is not None and scale.startswith("standardize"):  # by the samples that have the column
        np.testing.assert_allclose(
            a.x[:, 3:].numpy(), StandardScaler().fit_transform(source.x[:, 1:2].numpy())
        )
        np.testing.assert_allclose(
            b.x[:, :1].numpy(), StandardScaler().fit_transform(target.x[:, :1].numpy())
        )
    if scale == "unit":  # by the columns that the side has
        assert a.x[:, 1:].min() == b.x[:, :3].min() == 0
        assert a.x[:, 1:].max() == b.x[:, :3].max() == 1


def test_names_must_differ() -> None:
    with pytest.raises(InputError, match="columns must be different names"):
        named(random(3, 3), "aba")


@examples(60)
@given(data=st.data())
def test_tables_come_back(data: st.DataObject) -> None:
    """Any order and choice of columns, any scale, constant columns and far-away ones; new samples
    too.
    """
    source_names = data.draw(st.permutations("abcd"))
    target_names = data.draw(st.permutations("abcd" if data.draw(st.booleans()) else "cdef"))
    scale = data.draw(st.sampled_from([None, "unit", "standardize", "standardize-target"]))
    draw = np.random.default_rng(data.draw(st.integers(0, 1000)))
    tables = []
    for names in (source_names, target_names):
        spread = np.array(
            data.draw(st.lists(st.sampled_from([0.0, 1e-3, 1.0, 1e3]), min_size=4, max_size=4))
        )
        x = draw.normal(size=(7, 4)) * spread + data.draw(st.sampled_from([0.0, 0.1, -1e4]))
        tables.append(named(x, "".join(names)))
    space = FeatureSpace.fit(*tables, columns="union", scale=scale)
    assert space.columns is not None
    assert set(space.columns) == set(source_names) | set(target_names)
    for table, side in zip(tables, ("source", "target"), strict=True):
        there = space.apply(table, side)
        back = space.invert(there, side)
        assert back.columns == table.columns
        torch.testing.assert_close(back.x, table.x, atol=1e-9, rtol=1e-12)
        moved = there.replace(x=there.x + torch.from_numpy(draw.normal(size=there.x.shape)))
        kept = [
            position for position, name in enumerate(space.columns) if name in (table.columns or ())
        ]
        again = space.apply(space.invert(moved, side), side)
        torch.testing.assert_close(again.x[:, kept], moved.x[:, kept], atol=1e-6, rtol=1e-6)


# Scales of new samples


@pytest.mark.parametrize("scale", ["standardize", "standardize-target"])
def test_new_samples_are_scaled_by_the_statistics_of_the_fit(scale: str) -> None:
    source, target, new = random(9, 4), 5 + 3 * random(8, 4, seed=1), 10 * random(3, 4, seed=2)
    seen = target if scale == "standardize-target" else torch.cat([source, target])
    expected = StandardScaler().fit(seen.double().numpy())
    space = FeatureSpace.fit(
        dataset(source, weights=range(1, 10)), dataset(target, weights=range(8)), scale=scale
    )
    for side in ("source", "target"):
        np.testing.assert_allclose(
            space.apply(new, side).numpy(), expected.transform(new.double().numpy()), rtol=1e-5
        )
        np.testing.assert_allclose(
            space.invert(new, side).numpy(),
            expected.inverse_transform(new.double().numpy()),
            rtol=1e-5,
        )


def test_new_samples_may_leave_the_unit_range() -> None:
    space = FeatureSpace.fit(
        dataset(torch.tensor([[2.0], [4.0]])), dataset(torch.tensor([[10.0], [30.0]])), scale="unit"
    )
    assert space.apply([[0.0], [5.0]]).tolist() == [[-1.0], [1.5]]
    assert space.apply([[40.0]], "target").tolist() == [[1.5]]
    assert space.invert([[-1.0], [1.5]]).tolist() == [[0.0], [5.0]]


def test_features_constant_in_the_target_are_only_centred() -> None:
    a, b = harmonize(
        dataset(torch.tensor([[1.0], [9.0]])),
        dataset(torch.full((3, 1), 5.0)),
        scale="standardize-target",
    )
    assert a.x.tolist() == [[-4.0], [4.0]]
    assert b.x.tolist() == [[0.0]] * 3


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_deviations_neither_vanish_nor_overflow(size: float) -> None:
    x = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)
    assert (
        harmonize(dataset(size * x), dataset(size * x), scale="standardize")[0].x.tolist()
        == x.tolist()
    )


@pytest.mark.parametrize("scale", ["unit", "standardize", "standardize-target"])
def test_features_beyond_any_scale_are_refused(scale: str) -> None:
    huge = dataset(torch.tensor([[-1.7e308], [1.7e308]], dtype=torch.float64))
    with pytest.raises(InputError, match="too large to scale"):
        harmonize(huge, huge, scale=scale)


# Projections


def with_signs(components: np.ndarray) -> np.ndarray:
    return components * np.sign([row[np.abs(row).argmax()] for row in components])[:, None]


@pytest.mark.parametrize("shape", [(6,), (3, 2)])
def test_one_space_is_projected_on_joint_components(shape: tuple[int, ...]) -> None:
    source, target, new = (
        random(9, *shape),
        1 + random(8, *shape, seed=1) ** 3,
        random(3, *shape, seed=2),
    )
    seen = torch.cat([source, target]).flatten(1).double().numpy()
    pca = PCA(3, svd_solver="full").fit(seen)
    axes = with_signs(pca.components_)
    space = FeatureSpace.fit(dataset(source), dataset(target), project=3)
    assert space.sample_shape == (3,)
    for side in ("source", "target"):
        there = (new.flatten(1).double().numpy() - pca.mean_) @ axes.T
        np.testing.assert_allclose(space.apply(new, side).numpy(), there, atol=1e-5)
        back = space.invert(space.apply(new, side), side)
        assert back.shape == (3, *shape)
        np.testing.assert_allclose(back.flatten(1).numpy(), there @ axes + pca.mean_, atol=1e-5)


@pytest.mark.parametrize(
    ("first", "second"),
    [((6,), (5,)), ((4, 4), (16,)), ((5,), (3, 3, 3)), ((3, 2, 4, 5), (7,)), ("abcd", "abce")],
)
@pytest.mark.parametrize("scale", [None, "standardize"])
def test_other_spaces_are_projected_each_on_its_own_components(
    first, second, scale: str | None
) -> None:
    data = [
        named(random(9, len(shape), seed=seed), shape)
        if isinstance(shape, str)
        else dataset(random(9, *shape, seed=seed))
        for seed, shape in enumerate((first, second))
    ]
    out = harmonize(*data, project=4, scale=scale)
    for before, after in zip(data, out, strict=True):
        x = before.x.double().numpy()
        x = StandardScaler().fit_transform(x) if scale else x
        pca = PCA(4, svd_solver="full").fit(x)
        np.testing.assert_allclose(
            after.x.numpy(), (x - pca.mean_) @ with_signs(pca.components_).T, atol=1e-4
        )
        assert after.sample_shape == (4,)
        assert after.columns is None


@pytest.mark.parametrize("scale", [None, "unit", "standardize", "standardize-target"])
def test_all_components_lose_nothing(scale: str | None) -> None:
    a, b = (
        named(random(9, 4, dtype=torch.float64), "abcd"),
        named(5 * random(7, 4, seed=1, dtype=torch.float64), "dbca"),
    )
    space = FeatureSpace.fit(a, b, scale=scale, project=4)
    assert space.columns is None
    for data, side in ((a, "source"), (b, "target")):
        back = space.invert(space.apply(data, side), side)
        assert back.columns == data.columns
        torch.testing.assert_close(back.x, data.x)


def test_signs_do_not_depend_on_the_order_of_samples() -> None:
    """Two loadings of the same size: rounding must not choose between them."""
    line = torch.linspace(-1, 1, 12)[:, None] * torch.tensor([[-1.0, 1.0]])
    for seed in range(20):
        order = torch.randperm(12, generator=torch.Generator().manual_seed(seed))
        space = FeatureSpace.fit(dataset(line[order]), dataset(line), project=1)
        torch.testing.assert_close(
            space.apply(line), -(2**0.5) * torch.linspace(-1, 1, 12)[:, None]
        )


def test_projections_that_cannot_be() -> None:
    with pytest.raises(
        InputError, match=r"9 samples of dimension 3 \(the target\) have at most 3 .* got project=4"
    ):
        harmonize(dataset(random(9, 5)), dataset(random(9, 3)), project=4)
    with pytest.raises(
        InputError, match=r"4 samples of dimension 5 \(the source\) have at most 3 .* got project=4"
    ):
        harmonize(dataset(random(4, 5)), dataset(random(9, 6)), project=4)
    with pytest.raises(
        InputError,
        match="the target's means and deviations are for a source with the same features",
    ):
        harmonize(
            dataset(random(9, 5)), dataset(random(9, 3)), project=2, scale="standardize-target"
        )
    with pytest.raises(InputError, match="size and channels are for images"):
        harmonize(dataset(random(9, 5)), dataset(random(9, 3, 3)), project=2, size=4)


@pytest.mark.parametrize(
    ("source", "target", "meet"),
    [
        ((1, 12, 12), (1, 12, 12), (1, 12, 12)),
        ((8, 8), (1, 12, 12), (1, 12, 12)),
        ((1, 12, 12), (8, 8, 1), (12, 12, 1)),
        ((3, 12, 12), (3, 8, 8), (3, 12, 12)),
        ((12, 12), (8, 8), (12, 12)),
        ((3, 12, 12), (1, 8, 8), (12, 12, 3)),
    ],
)
def test_the_channel_axis_is_that_of_the_target(source, target, meet):
    generator = torch.Generator().manual_seed(0)
    sides = [
        ad.LabeledDataset(torch.rand(4, *shape, generator=generator), [0, 0, 1, 1])
        for shape in (source, target)
    ]
    found = ad.harmonize(*sides)
    assert [data.sample_shape for data in found] == [meet, meet]
    space = ad.FeatureSpace.fit(*sides)
    back = space.invert(space.apply(sides[0]), side="source")
    assert back.sample_shape == source
    if max(source) == max(meet):  # nothing was resized
        torch.testing.assert_close(back.x, sides[0].x)
    again = ad.FeatureSpace.from_dict(space.to_dict())
    torch.testing.assert_close(again.apply(sides[1], side="target").x, found[1].x)


def test_a_convolution_takes_harmonized_images_as_they_are():
    images = [torch.rand(4, *shape) for shape in ((8, 8), (1, 12, 12))]
    small, large = (ad.LabeledDataset(x, [0, 0, 1, 1]) for x in images)
    moved = ad.harmonize(small, large)[0]
    assert torch.nn.Conv2d(1, 2, 3)(moved.samples).shape == (4, 2, 10, 10)
