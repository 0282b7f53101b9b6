"""Resizing, channels and scales of harmonize, against properties that any correct version has."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from advect.data import LabeledDataset
from advect.datasets import load
from advect.errors import InputError
from advect.gaussians import Diagonal, Gaussians
from advect.space import harmonize


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


@settings(max_examples=30, deadline=None)
@given(
    before=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    after=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    value=st.floats(-100, 100),
)
def test_constant_images_stay_constant(before: tuple[int, int], after: tuple[int, int], value: float) -> None:
    constant = dataset(torch.full((2, *before), value, dtype=torch.float64))
    a, _ = harmonize(constant, dataset(random(2, 4, 4, dtype=torch.float64)), size=after)
    torch.testing.assert_close(a.samples, torch.full((2, *after), value, dtype=torch.float64))


# a triangle filter keeps ramps exactly when enlarging and at whole ratios, otherwise to a hundredth of a pixel
@pytest.mark.parametrize(("before", "after", "pixels"), [(8, 28, 1e-6), (10, 25, 1e-6), (32, 16, 1e-6), (28, 8, 1e-2)])
@pytest.mark.parametrize("axis", [1, 2])
def test_a_ramp_stays_a_ramp_away_from_the_border(before: int, after: int, pixels: float, axis: int) -> None:
    centres = (torch.arange(before, dtype=torch.float64) + 0.5) / before  # value of a pixel = where its centre is
    ramp = centres.expand(1, before, before) if axis == 2 else centres[:, None].expand(1, before, before)
    resized = harmonize(dataset(ramp), dataset(ramp), size=after)[0].samples
    expected = (torch.arange(after, dtype=torch.float64) + 0.5) / after
    margin = -(-after // before) + 1  # pixels whose filter reaches beyond the border
    profile = resized.movedim(axis, 0)[margin:-margin].reshape(after - 2 * margin, -1)
    torch.testing.assert_close(profile, expected[margin:-margin, None].expand_as(profile), atol=pixels / after, rtol=0)


def test_shrinking_looks_at_every_pixel() -> None:
    """Stripes 0 1 1 0 shrunk by 4 become their mean; sampling around the centres alone would see only the ones."""
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
    for before, after in zip((a, b), harmonize(*harmonize(a, b, channels="rgb"), channels="gray"), strict=True):
        torch.testing.assert_close(after.x, before.x)
        assert after.sample_shape == before.sample_shape


@pytest.mark.parametrize("channels", [None, "gray", "rgb"])
@pytest.mark.parametrize("size", [None, 4, (12, 5)])
def test_channels_first_and_last_are_the_same_images(channels: str | None, size) -> None:
    last, other = random(3, 6, 8, 3), dataset(random(2, 9, 9, 1))
    first = dataset(last.movedim(3, 1).contiguous())
    assert first.sample_shape == (3, 6, 8)
    a, b = (harmonize(data, other, channels=channels, size=size)[0] for data in (first, dataset(last)))
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
    a, b = harmonize(dataset(shared), dataset(torch.cat([shared, 5 * random(6, 3, seed=1)])), scale="standardize")
    assert torch.equal(a.x, b.x[:4])


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6 + 0.1])
def test_constant_features_are_only_centred(value: float) -> None:
    constant = torch.full((33, 1), value, dtype=torch.float64)  # the mean of 66 copies of 0.1 is not 0.1
    a, b = (dataset(torch.cat([constant, random(33, 1, seed=seed)], 1)) for seed in (0, 1))
    for data in harmonize(a, b, scale="standardize"):
        assert bool((data.x[:, 0] == 0).all())
        assert data.x[:, 1].std() > 0.5


def test_features_constant_in_each_but_different_are_not_constant() -> None:
    a, b = harmonize(dataset(torch.zeros(4, 1)), dataset(torch.full((4, 1), 8.0)), scale="standardize")
    assert a.x.flatten().tolist() == [-1.0] * 4
    assert b.x.flatten().tolist() == [1.0] * 4


def test_unit_maps_each_dataset_by_its_own_range() -> None:
    a, b = harmonize(dataset(torch.tensor([[-2.0, 0.0], [2.0, 1.0]])), dataset(torch.full((2, 2), 7.0)), scale="unit")
    assert a.x.tolist() == [[0.0, 0.5], [1.0, 0.75]]
    assert b.x.tolist() == [[0.0, 0.0], [0.0, 0.0]]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=12), st.floats(0.01, 100), st.floats(-100, 100))
def test_unit_does_not_see_affine_changes(values: list[float], factor: float, offset: float) -> None:
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
    torch.testing.assert_close(after.weights, torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64))


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
    ("first", "second"), [((3,), (4,)), ((8, 8), (64,)), ((4,), (5, 5, 3)), ((3, 5, 4, 5), (5, 5)), ((2, 9, 9), (9, 9))]
)
def test_different_spaces_are_refused_with_remedies(first: tuple[int, ...], second: tuple[int, ...]) -> None:
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
    ],
)
def test_bad_options(options: dict, message: str) -> None:
    images = dataset(random(2, 5, 5))
    with pytest.raises(InputError, match=message):
        harmonize(images, images, **options)


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
        with pytest.raises(InputError, match=r"label laws live in the space they were made in.*got a dataset with 2 laws"):
            harmonize(*pair)


def test_other_things_than_datasets_are_refused() -> None:
    with pytest.raises(InputError, match="harmonize takes two datasets; got Tensor"):
        harmonize(dataset(random(2, 5)), random(2, 5))  # pyright: ignore[reportArgumentType]
