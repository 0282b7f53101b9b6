"""Feature spaces, there and back, against Pillow, numpy, scikit-learn and laws."""

import json

import numpy as np
import pandas as pd
import pytest
import sklearn.datasets
import torch
from PIL import Image
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler
from torch.nn.functional import interpolate

from advect.data.dataset import LabeledDataset
from advect.data.laws import Diagonal, Gaussians
from advect.errors import InputError
from advect.spaces import FeatureSpace, harmonize
from advect.spaces.fitting import choose_scale


def dataset(samples: torch.Tensor, **options) -> LabeledDataset:
    return LabeledDataset(samples, [row % 2 for row in range(len(samples))], **options)


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("channels", [None, "gray", "rgb"])
@pytest.mark.parametrize("size", [None, 4, (12, 5)])
def test_channels_first_and_last_are_the_same_images(channels: str | None, size) -> None:
    last, other = random(3, 6, 8, 3), dataset(random(2, 9, 9, 1))
    first = dataset(last.movedim(3, 1).contiguous())
    assert first.sample_shape == (3, 6, 8)
    options = {"channels": channels, "size": size}
    a, b = (harmonize(data, other, **options)[0] for data in (first, dataset(last)))
    assert a.sample_shape == b.sample_shape
    torch.testing.assert_close(a.x, b.x)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6 + 0.1])
def test_constant_features_are_only_centred(value: float) -> None:
    # the mean of 66 copies of 0.1 is not 0.1
    constant = torch.full((33, 1), value, dtype=torch.float64)
    a, b = (dataset(torch.cat([constant, random(33, 1, seed=seed)], 1)) for seed in (0, 1))
    for data in harmonize(a, b, scale="pooled"):
        assert bool((data.x[:, 0] == 0).all())
        assert data.x[:, 1].std() > 0.5


def test_the_wider_dtype_wins_and_labels_and_weights_stay() -> None:
    a = LabeledDataset(random(4, 5, 5), list("dcba"), weights=[1, 2, 3, 4], classes=list("abcd"))
    after, other = harmonize(a, dataset(random(3, 6, 6, dtype=torch.float64)), scale="pooled")
    assert after.x.dtype == after.weights.dtype == other.x.dtype == torch.float64
    assert after.classes == a.classes and after.labels == a.labels
    np.testing.assert_allclose(after.weights, [0.1, 0.2, 0.3, 0.4])


def test_what_cannot_be_harmonized_is_refused() -> None:
    plain, images = dataset(random(4, 3)), dataset(random(2, 5, 5))
    laws = dataset(random(4, 3), law=Gaussians(torch.zeros(2, 3), Diagonal(torch.ones(2, 3))))
    few, vectors, squares = dataset(random(4, 6)), dataset(random(9, 5)), dataset(random(9, 3, 3))
    cases = [
        (images, images, {"size": (5, 2.5)}, "size"),
        (images, images, {"channels": "grey"}, "channels"),
        (images, images, {"scale": "units"}, "scale"),
        *((images, images, {"columns": columns}, "columns") for columns in ("union", "common")),
        *((images, images, {"project": project}, "project") for project in (0, 4)),
        (plain, images, {}, "images"),
        (plain, plain.x, {}, "Tensor"),
        (plain, laws, {}, "laws"),
        (laws, plain, {}, "laws"),
        (vectors, plain, {"project": 4}, "project"),
        (few, vectors, {"project": 4}, "project"),
        (vectors, plain, {"project": 2, "scale": "target"}, "scale"),
        (vectors, squares, {"project": 2, "size": 4}, "size"),
        (named(random(3, 3), "abc"), named(random(3, 4), "cdea"), {}, "'d', 'e' missing"),
    ]
    for source, target, options, message in cases:
        with pytest.raises(InputError, match=message):
            harmonize(source, target, **options)
    space = FeatureSpace.fit(plain, plain)
    for way in (space.apply, space.invert):
        with pytest.raises(InputError, match="laws"):
            way(laws)


def named(x, columns, **options):
    return dataset(torch.as_tensor(x), columns=list(columns), **options)


def pairs():
    """One of each kind of space."""
    plain, other = dataset(random(6, 4)), dataset(random(5, 4, seed=1))
    images, small = dataset(random(6, 5, 5)), dataset(random(5, 5, 5, seed=1))
    first, second = named(random(6, 3), "abc"), named(random(5, 3, seed=1), "cab")
    wide = dataset(random(5, 3, 7, 6, seed=1, dtype=torch.float64))
    colour = dataset(random(6, 12, 9, 3))
    return {
        "enlarged": (dataset(random(6, 16, 16)), dataset(random(5, 28, 28, seed=1)), {}),
        "shrunk": (colour, dataset(random(5, 6, 6, seed=1)), {"size": 8, "channels": "gray"}),
        "channels first": (images, wide, {"scale": "each"}),
        "vectors": (plain, other, {}),
        "standard": (images, small, {"scale": "pooled"}),
        "by target": (plain, other, {"scale": "target"}),
        "order": (first, second, {"scale": "each"}),
        "common": (first, named(random(5, 3, seed=1), "dca"), {"columns": "common"}),
        "joint components": (plain, other, {"project": 2}),
        "own components": (plain, dataset(wide.x[:, :9]), {"project": 3, "scale": "pooled"}),
    }


PAIRS = pairs()
each_pair = pytest.mark.parametrize(("source", "target", "options"), PAIRS.values(), ids=PAIRS)


@each_pair
def test_there_and_back_row_by_row_and_through_json(source, target, options) -> None:
    """Statistics come from the fit alone, and invert is a generalised inverse of apply."""
    space = FeatureSpace.fit(source, target, **options)
    text = json.dumps(space.to_dict(), allow_nan=False)
    loaded = FeatureSpace.from_dict(json.loads(text))
    for data, side in ((source, "source"), (target, "target")):
        there = space.apply(data, side)
        back = space.invert(there, side)
        assert (back.sample_shape, back.columns) == (data.sample_shape, data.columns)
        assert back.labels == data.labels and back.x.dtype == data.x.dtype
        torch.testing.assert_close(space.apply(back, side).x, there.x, atol=1e-5, rtol=1e-5)
        for row in range(len(data)):
            torch.testing.assert_close(space.apply(data.samples[[row]], side), there.samples[[row]])
            one = space.invert(there.samples[[row]], side).to(data.x.dtype)
            torch.testing.assert_close(one, back.samples[[row]])
        assert torch.equal(loaded.apply(data, side).x, there.x)
        assert torch.equal(loaded.invert(there, side).x, back.x)
        assert loaded.invert(there, side).columns == data.columns
    for name in ("sample_shape", "columns", "dtype"):
        assert getattr(loaded, name) == getattr(space, name)
    assert loaded.describe() == space.describe() and json.dumps(loaded.to_dict()) == text


@pytest.mark.parametrize(
    ("pair", "place", "value"), [("vectors", ("version",), 2), ("vectors", ("dtype",), "int8"),
    ("enlarged", ("source", "sample_shape"), [8, 32]), ("order", ("columns",), ["a", "b", "c"]),
    ("order", ("source", "steps"), None), ("by target", ("source", "steps", 0, "width"), "junk"),
    ("joint components", ("target", "steps", 0, "components"), []),
    ("shrunk", ("source", "steps", 0, "kind"), "align")],
)  # fmt: skip
def test_damage_is_refused(pair: str, place: tuple, value: object) -> None:
    source, target, options = PAIRS[pair]
    facts = FeatureSpace.fit(source, target, **options).to_dict()
    holder = facts
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    for broken in (facts, [facts], None):
        with pytest.raises(InputError, match="saved feature space"):
            FeatureSpace.from_dict(broken)


def test_a_saved_encoder_is_refused() -> None:
    source, target, _ = PAIRS["shrunk"]
    facts = FeatureSpace.fit(source, target).to_dict()
    del facts["digest"]  # as version 0.2 wrote it
    encoder = {"kind": "function", "name": "mine.encode", "digest": None}
    step = {"kind": "encode", "shape": [8, 8], "dim": 4, "encoder": encoder, "decoder": None}
    facts["source"]["steps"].append(step)
    with pytest.raises(InputError, match="saved feature space.*encode"):
        FeatureSpace.from_dict(facts)


@pytest.mark.parametrize(
    ("rows", "side", "message"), [(random(2, 28, 28), "source", "shape.*side='target'"),
    (dataset(random(2, 28, 28)), "source", "shape"), (random(2, 8, 32), "source", "shape"),
    (random(2, 16, 16), "sauce", "side"), (random(2, 16, 16) / 0, "source", "finite"),
    ("images", "source", "features"), (random(0, 16, 16), "source", "sample")],
)  # fmt: skip
def test_samples_of_another_shape_or_side_are_refused(rows, side, message: str) -> None:
    source, target, options = PAIRS["enlarged"]
    space = FeatureSpace.fit(source, target, **options)
    with pytest.raises(InputError, match=message):
        space.apply(rows, side)
    with pytest.raises(InputError, match="common space"):
        space.invert(random(2, 16, 16))


@pytest.mark.parametrize(
    ("before", "after"),
    [((16, 16), (28, 28)), ((96, 96), (32, 32)), ((28, 20), (9, 33)), ((1, 5), (4, 1))],
)
def test_resizing_is_that_of_pillow(before: tuple[int, int], after: tuple[int, int]) -> None:
    images = random(2, *before)
    space = FeatureSpace.fit(dataset(images), dataset(images), size=after, fit="stretch")
    mine = space.apply(images)
    for image, resized in zip(images.numpy(), mine.numpy(), strict=True):
        expected = np.asarray(Image.fromarray(image).resize(after[::-1], Image.Resampling.BILINEAR))
        np.testing.assert_allclose(resized, expected, atol=1e-5)


@pytest.mark.parametrize("shape", [(16, 16), (16, 16, 1), (1, 16, 16), (16, 16, 3), (3, 16, 16)])
@pytest.mark.parametrize("scale", [None, "each", "pooled", "target"])
def test_enlarged_images_come_back(shape: tuple[int, ...], scale: str | None) -> None:
    """Images without any smoothness: nothing is lost when enlarging."""
    a, b = dataset(255 * random(5, *shape)), dataset(random(4, 28, 19, seed=1))
    space = FeatureSpace.fit(a, b, scale=scale)
    for data, side in ((a, "source"), (b, "target")):
        back = space.invert(space.apply(data, side), side)
        assert back.sample_shape == data.sample_shape
        atol = 1e-3 if side == "source" else 1e-5
        torch.testing.assert_close(back.x, data.x, atol=atol, rtol=1e-5)


def test_invert_of_an_enlargement_is_least_squares() -> None:
    """Images that no small one enlarges to, against numpy's least squares with all pixels at once."""
    small, large = (5, 4), (9, 7)
    sides = [dataset(random(2, *shape, dtype=torch.float64)) for shape in (small, large)]
    space = FeatureSpace.fit(*sides)
    basis = torch.eye(20, dtype=torch.float64).reshape(20, 1, *small)
    matrix = interpolate(basis, size=large, mode="bilinear", align_corners=False).reshape(20, -1).T
    images = random(3, *large, seed=5, dtype=torch.float64)
    expected = np.linalg.lstsq(matrix.numpy(), images.reshape(3, -1).T.numpy(), rcond=None)[0].T
    np.testing.assert_allclose(space.invert(images).reshape(3, -1).numpy(), expected, atol=1e-10)


@pytest.mark.parametrize("size", [12, 5, (20, 3), 1])
def test_shrunk_images_come_back_with_nothing_made_up(size) -> None:
    """They shrink to exactly what is given, constants stay constant, and smooth images come back
    at least as well as by plain enlargement."""
    shapes = dataset(random(2, 24, 24, dtype=torch.float64))
    space = FeatureSpace.fit(shapes, shapes, size=size, fit="stretch")
    given = random(3, *space.sample_shape, dtype=torch.float64)
    torch.testing.assert_close(space.apply(space.invert(given)), given)
    constant = torch.full((1, *space.sample_shape), 0.3, dtype=torch.float64)
    np.testing.assert_allclose(space.invert(constant), np.full((1, 24, 24), 0.3))
    line = torch.linspace(0, 3, 24, dtype=torch.float64)
    smooth = torch.sin(line[:, None] + 2 * line)[None] + torch.cos(line[:, None] - line)
    small = space.apply(smooth)[:, None]
    plain = interpolate(small, size=(24, 24), mode="bilinear", align_corners=False)[:, 0]
    worst, usual = ((x - smooth).abs().max() for x in (space.invert(small[:, 0]), plain))
    assert worst <= usual + 1e-9


def test_colour_made_gray_comes_back_gray() -> None:
    colour, gray = random(3, 6, 6, 3), random(2, 6, 6)
    space = FeatureSpace.fit(dataset(colour), dataset(gray), channels="gray")
    luma = np.stack([(colour.numpy() * [0.299, 0.587, 0.114]).sum(3)] * 3, axis=3)
    np.testing.assert_allclose(space.invert(space.apply(colour)).numpy(), luma, atol=1e-6)


def test_columns_go_by_name_in_the_order_of_the_target() -> None:
    a, b = harmonize(named([[1.0, 2.0, 3.0]], "abc"), named([[30.0, 10.0, 20.0]], "cab"))
    assert a.x.tolist() == [[3.0, 1.0, 2.0]]
    assert b.x.tolist() == [[30.0, 10.0, 20.0]]
    assert a.columns == b.columns == ("c", "a", "b")


def test_values_of_a_category_that_a_side_lacks_are_zero() -> None:
    """Both tables have coats; a column that only one table has is still an error."""
    coats = (["long", "short", "long"], ["curly", "long", "curly"])
    frames = [pd.DataFrame({"age": [1.0, 2.0, 3.0], "coat": each}) for each in coats]
    tables = [LabeledDataset.from_frame(frame, categorical="onehot") for frame in frames]
    space = FeatureSpace.fit(*tables)
    assert space.columns == ("age", "coat=curly", "coat=long", "coat=short")
    a, b = space.apply(tables[0]), space.apply(tables[1], "target")
    assert a.x[:, 1:].tolist() == [[0, 1, 0], [0, 0, 1], [0, 1, 0]]
    assert b.x[:, 1:].tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 0]]
    assert torch.equal(space.invert(a).x, tables[0].x)
    bare = LabeledDataset.from_frame(frames[0][["age"]])
    with pytest.raises(InputError, match="missing in the source"):
        harmonize(bare, tables[1])


@pytest.mark.parametrize("scale", ["pooled", "target"])
def test_new_samples_are_scaled_by_the_statistics_of_the_fit(scale: str) -> None:
    source, target, new = random(9, 4), 5 + 3 * random(8, 4, seed=1), 10 * random(3, 4, seed=2)
    seen = target if scale == "target" else torch.cat([source, target])
    expected = StandardScaler().fit(seen.double().numpy())
    weighted = dataset(source, weights=range(1, 10)), dataset(target, weights=range(8))
    space, rows = FeatureSpace.fit(*weighted, scale=scale), new.double().numpy()
    for side in ("source", "target"):
        np.testing.assert_allclose(space.apply(new, side), expected.transform(rows), rtol=1e-5)
        inverse = expected.inverse_transform(rows)
        np.testing.assert_allclose(space.invert(new, side), inverse, rtol=1e-5)


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_deviations_neither_vanish_nor_overflow(size: float) -> None:
    x = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)
    scaled = harmonize(dataset(size * x), dataset(size * x), scale="pooled")[0]
    assert scaled.x.tolist() == x.tolist()


def with_signs(components: np.ndarray) -> np.ndarray:
    return components * np.sign([row[np.abs(row).argmax()] for row in components])[:, None]


@pytest.mark.parametrize("shape", [(6,), (3, 2)])
def test_one_space_is_projected_on_joint_components(shape: tuple[int, ...]) -> None:
    source, target = random(9, *shape), 1 + random(8, *shape, seed=1) ** 3
    new = random(3, *shape, seed=2)
    pca = PCA(3, svd_solver="full").fit(torch.cat([source, target]).flatten(1).double().numpy())
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
@pytest.mark.parametrize("scale", [None, "pooled"])
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
        expected = (x - pca.mean_) @ with_signs(pca.components_).T
        np.testing.assert_allclose(after.x.numpy(), expected, atol=1e-4)
        assert after.sample_shape == (4,) and after.columns is None


def test_signs_do_not_depend_on_the_order_of_samples() -> None:
    """Two loadings of the same size: rounding must not choose between them."""
    line = torch.linspace(-1, 1, 12)[:, None] * torch.tensor([[-1.0, 1.0]])
    for seed in range(20):
        order = torch.randperm(12, generator=torch.Generator().manual_seed(seed))
        space = FeatureSpace.fit(dataset(line[order]), dataset(line), project=1)
        expected = -(2**0.5) * torch.linspace(-1, 1, 12)[:, None]
        torch.testing.assert_close(space.apply(line), expected)
    near = line * torch.tensor([1.0, 1.001])  # the largest loading is positive
    space = FeatureSpace.fit(dataset(near), dataset(near), project=1)
    assert float(space.apply(near[:1])) < 0


@pytest.mark.parametrize(
    ("source", "target", "meet"), [((1, 12, 12), (1, 12, 12), (1, 12, 12)), ((8, 8), (1, 12, 12), (1, 12, 12)),
    ((1, 12, 12), (8, 8, 1), (12, 12, 1)), ((3, 12, 12), (3, 8, 8), (3, 12, 12)), ((12, 12), (8, 8), (12, 12)),
    ((3, 12, 12), (1, 8, 8), (12, 12, 3))],
)  # fmt: skip
def test_the_channel_axis_is_that_of_the_target(source, target, meet):
    sides = [dataset(random(4, *shape)) for shape in (source, target)]
    found = harmonize(*sides)
    assert [data.sample_shape for data in found] == [meet, meet]
    space = FeatureSpace.fit(*sides)
    back = space.invert(space.apply(sides[0]), side="source")
    assert back.sample_shape == source
    if max(source) == max(meet):  # nothing was resized
        torch.testing.assert_close(back.x, sides[0].x)


class TestAutomaticScale:
    table = torch.randn(200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    table = table * torch.tensor([15.0, 40.0, 0.3]) + torch.tensor([60.0, 190.0, 1.0])
    names = ("age", "cholesterol", "creatinine")

    @pytest.mark.parametrize(
        ("change", "scale", "why"),
        [
            ([1.0, 1.0, 1.0], "pooled", "different units"),
            ([1.0, 1 / 38.67, 1.0], "each", "cholesterol"),  # mg/dL and mmol/L
            ([1.0, 1.0, 88.4], "each", "creatinine"),
        ],
    )
    def test_tables(self, change, scale, why):
        first = LabeledDataset(self.table[::2], columns=self.names)
        second = first.replace(x=self.table[1::2] * torch.tensor(change))
        space = FeatureSpace.fit(first, second, scale="auto")
        same = FeatureSpace.fit(first, second, scale=scale)
        assert torch.equal(
            space.apply(second, side="target").x, same.apply(second, side="target").x
        )
        *_, line = space.describe().splitlines()
        assert line.startswith(f"scale {scale}") and why in line
        assert FeatureSpace.from_dict(space.to_dict()).describe() == space.describe()

    def test_each_lets_equal_classes_count_equally(self):
        """By hand: weights ¼, ¼, ½ give mean 5.5 and variance 20.75; weights ½, ½ give 7 and 9."""
        x, y = torch.tensor([[0.0], [2.0], [10.0]]), torch.tensor([[4.0], [10.0]])
        first, second = LabeledDataset(x, ["a", "a", "b"]), LabeledDataset(y, ["b", "a"])
        scaled = harmonize(first, second, scale="each")
        torch.testing.assert_close(scaled[0].x, (x - 5.5) / 20.75**0.5)
        torch.testing.assert_close(scaled[1].x, (y - 7) / 3)
        partly = LabeledDataset(y, ["b", None])
        for other in (second.replace(classes=("b", "c")), partly, LabeledDataset(y)):
            scaled = harmonize(first, other, scale="each")[0]
            torch.testing.assert_close(scaled.x, (x - 4) / (56 / 3) ** 0.5)

    @pytest.mark.parametrize("name", ["digits", "iris"])
    def test_columns_that_share_a_unit_stay(self, name):
        x = getattr(sklearn.datasets, f"load_{name}")().data
        first, second = dataset(torch.from_numpy(x[::2])), dataset(torch.from_numpy(x[1::2]))
        assert torch.equal(harmonize(first, second, scale="auto")[0].x, first.x)

    def test_a_gross_error_is_no_unit(self):
        gross = torch.cat([self.table / self.table.std(0), torch.tensor([[1e9, 0.0, 0.0]])])
        assert choose_scale([gross], (3,))[0] == "none"
