"""Datasets of different dimensions: an isometric copy is found again, ordinary inputs do no harm."""

import json

import numpy as np
import pytest
import torch

import advect as ad
from advect.classes.rotations import polar
from advect.cli.app import main
from advect.data.spaces import FeatureSpace


def frame(rows, columns, seed=0):
    """Orthonormal rows."""
    generator = torch.Generator().manual_seed(seed)
    square = torch.randn(columns, columns, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(square)[0][:rows]


def mixture(n=120, d=4, k=3, seed=1, population=9):
    """Classes with laws of their own; other seeds are other draws of the same population."""
    laws, draw = (torch.Generator().manual_seed(s) for s in (population, seed))
    means = 2 * torch.randn(k, d, generator=laws, dtype=torch.float64)
    roots = torch.randn(k, d, d, generator=laws, dtype=torch.float64) / d**0.5
    y = torch.arange(n) % k
    noise = torch.randn(n, d, generator=draw, dtype=torch.float64)
    return ad.LabeledDataset(means[y] + torch.einsum("nij,nj->ni", roots[y], noise), y.tolist())


def lifted(data, dim, shift=0.0, scale=1.0, seed=0):
    """The same samples after a rotation into a higher dimension."""
    x = scale * (data.x @ frame(data.dim, dim, seed) + shift)
    return data.replace(x=x, sample_shape=(dim,))


def both(space, a, b):
    return space.apply(a), space.apply(b, side="target")


def misfit(space):
    return space.to_dict()["source"]["steps"][0]["misfit"]


@pytest.mark.parametrize("by", ["names", "geometry"])
@pytest.mark.parametrize(("d", "dim", "k"), [(2, 3, 3), (4, 11, 2), (8, 40, 5)])
def test_an_isometric_copy_is_found_again(by, d, dim, k):
    """Rotation, padding, another order, another place: matched samples coincide, distances stay."""
    a = mixture(d=d, k=k)
    order = torch.randperm(len(a), generator=torch.Generator().manual_seed(3))
    b = lifted(a.subset(order), dim, shift=3.0)
    space = ad.align(a, b, by=by)
    near, there = both(space, a, b)
    torch.testing.assert_close(near.x[order], there.x, atol=1e-9, rtol=0)
    assert misfit(space) < 1e-12
    torch.testing.assert_close(torch.pdist(near.x), torch.pdist(a.x), atol=1e-9, rtol=1e-9)
    back = space.invert(near, side="target")
    torch.testing.assert_close(back.x[order], b.x, atol=1e-9, rtol=0)
    torch.testing.assert_close(space.invert(near).x, a.x, atol=1e-9, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("by", ["names", "geometry"])
def test_distances_are_nearly_those_of_the_space_both_came_from(by):
    """Other draws of one population: up to where each is, the OTDD of the original."""
    a, other = mixture(d=5, k=4, n=200), mixture(d=5, k=4, n=200, seed=2)
    space = ad.align(a, lifted(other, 20, shift=-7.0), by=by)
    found = ad.otdd(*both(space, a, lifted(other, 20, shift=-7.0))).value
    centred = [one.replace(x=one.x - one.x.mean(dim=0)) for one in (a, other)]
    assert found == pytest.approx(ad.otdd(*centred).value, rel=0.1)


def test_the_smaller_side_may_be_either():
    a = mixture()
    space = ad.align(lifted(a, 9), a)
    near, there = both(space, lifted(a, 9), a)
    torch.testing.assert_close(near.x, there.x, atol=1e-9, rtol=0)


@pytest.mark.parametrize("by", ["names", "geometry"])
@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1e-8), (0.0, 1e8), (1e6, 1.0), (-1e6, 1e8)])
def test_offsets_and_units_do_not_matter(by, shift, scale):
    a = mixture()
    b = lifted(a, 7, shift, scale)
    space = ad.align(a, b, by=by)
    near, there = both(space, a, b)
    size = float(there.x.abs().max())
    torch.testing.assert_close(near.x / size, there.x / size, atol=1e-7, rtol=0)
    kept = ad.align(a, b, by=by, scale=False)  # units as they are
    assert float(kept.apply(a).x.square().sum()) == pytest.approx(
        float((a.x - a.x.mean(dim=0)).square().sum()), rel=1e-6
    )


def test_float32_far_from_the_origin():
    a = mixture().to(dtype=torch.float32)
    b = a.replace(x=(a.x.double() @ frame(4, 6) + 1e4).float(), sample_shape=(6,))
    near, there = both(ad.align(a, b), a, b)
    assert near.x.dtype == torch.float32
    assert float((near.x - there.x).abs().max()) < 0.02  # features have 1e-3


def test_given_classes_go_before_names():
    a = mixture()
    turned = lifted(a, 6).replace(classes=("b", "c", "a"))
    space = ad.align(a, turned, classes={0: "b", 1: "c", 2: "a"})
    near, there = both(space, a, turned)
    torch.testing.assert_close(near.x, there.x, atol=1e-9, rtol=0)
    assert "3 classes that correspond" in space.describe()


def test_names_are_compared_as_text_and_auto_needs_two():
    a, b = mixture(), lifted(mixture(), 6)
    assert "3 classes" in ad.align(a, b.replace(classes=("0", 1.0, "2"))).describe()
    assert "distances" in ad.align(a, b.replace(classes=("0", "x", "y"))).describe()
    assert "1 classes" in ad.align(a, b.replace(classes=("0", "x", "y")), by="names").describe()
    assert "distances" in ad.align(ad.LabeledDataset(a.x), b).describe()


def test_classes_of_one_side_only_come_along():
    a = mixture(k=4, n=160)
    b = lifted(a.subset(a.y < 3), 9)
    near, there = both(ad.align(a, b), a, b)
    torch.testing.assert_close(near.x[a.y < 3], there.x, atol=1e-8, rtol=0)


def test_class_shares_do_not_move_the_centre():
    a = mixture(n=150)
    rare = torch.where(a.y == 0, 0.1, 1.0).double()
    b = lifted(a, 8).replace(weights=rare / rare.sum())
    near, there = both(ad.align(a, b), a, b)
    torch.testing.assert_close(near.x, there.x, atol=1e-9, rtol=0)


@pytest.mark.parametrize("by", ["names", "geometry"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: mixture(k=1),
        lambda: mixture(n=3, k=3),  # one sample of each class
        lambda: mixture(n=60, d=2, k=12),  # more classes than dimensions
        lambda: mixture(n=5, d=8, k=2),  # fewer samples than dimensions
        lambda: mixture(d=1, k=2),
        lambda: (one := mixture()).replace(x=one.x * torch.tensor([1.0, 1.0, 0.0, 1.0])),
        lambda: (one := mixture()).replace(x=one.x.round()),  # coinciding samples, ties
    ],
)
def test_ordinary_inputs(by, make):
    a = make()
    b = lifted(a, a.dim + 3, shift=1.0)
    space = ad.align(a, b, by=by)
    near, there = both(space, a, b)
    assert bool(torch.isfinite(near.x).all()) and near.dim == there.dim <= a.dim
    assert 0 <= misfit(space) <= 1
    torch.testing.assert_close(space.invert(near).x, a.x, atol=1e-8, rtol=0)


def test_unequal_weights_and_samples_without_mass():
    a = mixture()
    weights = torch.linspace(0.1, 1.0, len(a), dtype=torch.float64)
    weights[::7] = 0
    a = a.replace(weights=weights / weights.sum())
    near, there = both(ad.align(a, lifted(a, 6)), a, lifted(a, 6))
    torch.testing.assert_close(near.x, there.x, atol=1e-9, rtol=0)


def test_what_distances_cannot_tell():
    """A cloud that its mirror image coincides with: either is right, and the distances agree."""
    x = torch.tensor([[-2.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, -1.0]], dtype=torch.float64)
    a = ad.LabeledDataset(x)
    near, there = both(ad.align(a, lifted(a, 4)), a, lifted(a, 4))
    gaps = torch.cdist(near.x, there.x).amin(dim=1)
    assert float(gaps.max()) < 1e-9


@pytest.mark.slow
def test_fewer_directions_than_there_are():
    a, b = mixture(d=6), lifted(mixture(d=6), 10)
    space = ad.align(a, b, dim=2)
    assert space.sample_shape == (2,) and "only 2 directions of 10" in space.loses("target")
    assert ad.align(mixture(n=200, d=70), mixture(n=200, d=80)).sample_shape == (64,)


def test_it_is_saved_and_read_again():
    a, b = mixture(), lifted(mixture(), 6)
    space = ad.align(a, b)
    text = json.dumps(space.to_dict())
    again = FeatureSpace.from_dict(json.loads(text))
    for side, data in (("source", a), ("target", b)):
        assert torch.equal(space.apply(data, side=side).x, again.apply(data, side=side).x)
    assert again.describe() == space.describe() and again.invertible("target")
    facts = json.loads(text)
    for key, bad in (("axes", [[2.0] * 4]), ("factor", 0.0), ("how", 3), ("centre", [0.0])):
        broken = json.loads(text)
        broken["source"]["steps"][0][key] = bad
        with pytest.raises(ad.InputError, match="damaged"):
            FeatureSpace.from_dict(broken)
    assert facts["source"]["steps"][0]["kind"] == "align"


def test_the_same_seed_gives_the_same_space():
    a, b = mixture(n=150), lifted(mixture(n=150, seed=4), 6)
    first, second = (ad.align(a, b, samples=60, seed=5).to_dict() for _ in range(2))
    assert first == second


def test_polar_factors_are_nearest():
    generator = np.random.default_rng(0)
    matrix = generator.normal(size=(5, 5))
    best = polar(matrix)
    np.testing.assert_allclose(best @ best.T, np.eye(5), atol=1e-12)
    for seed in range(20):
        other = frame(5, 5, seed).numpy()
        assert np.linalg.norm(matrix - best) <= np.linalg.norm(matrix - other)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda a, b: ad.align(a, b, by="labels"), "unknown way to align"),
        (lambda a, b: ad.align(a, b.replace(classes=("x", "y", "z")), by="names"), "no class name"),
        (lambda a, b: ad.align(ad.LabeledDataset(a.x), b, by="names"), "no labels"),
        (lambda a, b: ad.align(a, b, classes={0: "cat"}), "class of the target"),
        (lambda a, b: ad.align(a, b, classes={0: 1, 2: 1}), "one to one"),
        (lambda a, b: ad.align(a, b, classes={}), "at least one"),
        (lambda a, b: ad.align(a, b, classes={0: 0}, by="geometry"), "nothing for geometry"),
        (lambda a, b: ad.align(a, b, dim=5), "spread in 4 directions"),
        (lambda a, b: ad.align(a, b, dim=0), "dim must be"),
        (lambda a, b: ad.align(a, b, samples=1), "samples must be"),
        (lambda a, b: ad.align(a.replace(x=0 * a.x + 7), b), "source has no spread"),
        (lambda a, b: ad.align(a, b.x), "takes two datasets"),
        (lambda a, b: ad.align(ad.JointFixedLabels().start(a), b), "label laws"),
        (lambda a, b: ad.otdd(a, b), "ad.align"),
        (lambda a, b: ad.harmonize(a, b), "ad.align"),
    ],
)
def test_errors(make, said):
    with pytest.raises(ad.InputError, match=said):
        make(mixture(), lifted(mixture(), 6))


@pytest.mark.slow
def test_on_the_command_line(tmp_path, capsys):
    a = mixture(n=60)
    paths = [str(tmp_path / name) for name in ("low.csv", "high.csv")]
    for path, data in zip(paths, (a, lifted(a, 6).replace(x=lifted(a, 6).x + 1)), strict=True):
        ad.LabeledDataset(data.x, data.labels).save(path)
    assert main(["distance", *paths]) == 2
    assert "--space.align auto" in capsys.readouterr().err
    assert main(["distance", *paths, "--space.align", "names", "--space.scale", "unit"]) == 2
    assert "--space.scale" in capsys.readouterr().err
    run = str(tmp_path / "run")
    options = ["--space.align", "geometry", "--steps", "2", "--dtype", "float64", "-o", run]
    assert main(["flow", *paths, *options]) == 0
    home, there = (ad.datasets.load(f"run:{run}@-1", units=side) for side in ("source", "target"))
    assert home.dim == 4 and there.dim == 6
    torch.testing.assert_close(home.x, a.x, atol=1e-3, rtol=0)  # there was nowhere to go
