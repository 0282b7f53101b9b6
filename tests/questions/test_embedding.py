"""Embeddings against sliced distances, closed forms and transport in one dimension."""

import math

import numpy as np
import ot as pot
import pytest
import torch
from covering import examples
from flow_cases import seeded, widening
from hypothesis import given, strategies as st

import advect as ad
from advect.data.labels import law_rows
from advect.errors import InputError
from advect.functionals.sliced import wasserstein_1d
from advect.questions.embedding import Slices, quantile_means


def labeled(n, seed=0, names="abcdefgh", dtype=torch.float64, **options):
    data = widening(n, seed, **options).to(dtype=dtype)
    return data.replace(classes=tuple(names[: len(data.classes)]))


def points(data, slices):
    """ψ·(θ·x, √w θ·μ, √w σ) by the laws that a dataset has, one projection after another, (P, n)."""
    laws, rows = data.laws(), law_rows(data)
    found = []
    for theta, frame in zip(slices.theta.T, slices.psi, strict=True):
        mean = laws.means.double() @ theta
        variances = [theta @ one.double() @ theta for one in laws.covariances()]
        deviation = torch.stack(variances).clamp_min(0).sqrt()
        described = torch.stack([data.x.double() @ theta, mean[rows], deviation[rows]], dim=1)
        described[:, 1:] *= math.sqrt(slices.label_weight)
        found += [described @ psi for psi in frame]
    return torch.stack(found)


def exact(a, b, slices):
    """The sliced distance along these directions, by transport in one dimension."""
    squares = wasserstein_1d(points(a, slices), points(b, slices), a.weights, b.weights)
    return math.sqrt(3 * a.dim * float(squares.mean()))


@examples(40)
@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 40), st.integers(0, 99))
def test_steps_and_what_they_leave_bound_transport(n, m, levels, seed):
    draws = np.random.default_rng(seed)
    x, y = draws.normal(size=n).round(1), draws.normal(size=m) * 3 + 1
    a, b = draws.dirichlet(np.ones(n)), draws.dirichlet(np.ones(m))
    squared = pot.emd2_1d(x, y, a, b)
    sides = (map(torch.tensor, side) for side in ((x, a), (y, b)))
    u, v = (quantile_means(*side, levels) for side in sides)
    assert float((u - v).square().mean()) <= squared + 1e-9


def test_mean_over_a_level_is_that_of_numerical_integration():
    draws = np.random.default_rng(0)
    x, a = draws.normal(size=9), draws.dirichlet(np.ones(9))
    order = np.argsort(x)
    fine = (np.arange(300_000) + 0.5) / 300_000
    quantiles = x[order][np.searchsorted(np.cumsum(a[order]), fine).clip(max=8)]
    steps = quantile_means(torch.tensor(x), torch.tensor(a), 5)
    assert np.allclose(steps, quantiles.reshape(5, -1).mean(axis=1), atol=1e-4)


@pytest.mark.parametrize(("dim", "n"), [(3, 2), (3, 3), (3, 8), (1, 4), (40, 16)])
def test_blocks_are_orthonormal(dim, n):
    slices = Slices.random(dim, n, 32, 1.0, 0)
    for first in range(0, n, dim):
        block = slices.theta[:, first : first + dim]
        assert torch.allclose(block.T @ block, torch.eye(block.shape[1]).double(), atol=1e-12)
    assert torch.allclose(slices.psi @ slices.psi.mT, torch.eye(3).double(), atol=1e-12)


@examples(25)
@given(
    n=st.integers(3, 25),
    m=st.integers(3, 25),
    seed=st.integers(0, 99),
    weighted=st.booleans(),
    weight=st.sampled_from([0.3, 1.0, 4.0]),
)
def test_distance_is_below_the_sliced_one(n, m, seed, weighted, weight):
    a, b = labeled(n, seed, weighted=weighted), labeled(m, seed + 1, k=2, shift=1.0)
    slices = Slices.random(3, 4, 16, weight, 7)
    options = {"n_directions": 4, "n_levels": 16, "label_weight": weight, "seed": 7}
    first, second = (ad.embed(data, **options) for data in (a, b))
    assert first.distance(second) - 1e-9 <= exact(a, b, slices)


def test_many_levels_give_the_sliced_distance_itself():
    a, b = labeled(60), labeled(90, 1, k=2, shift=0.5)
    slices = Slices.random(3, 5, 180, 1.0, 0)  # jumps of both are at multiples of 1 / 180
    first, second = (ad.embed(data, n_directions=5, n_levels=180) for data in (a, b))
    assert first.distance(second) == pytest.approx(exact(a, b, slices), rel=1e-9)


def test_it_agrees_with_sliced_otdd():
    a, b = labeled(200), labeled(150, 3, k=2, shift=0.5)
    other = ad.sliced_otdd(a, b, n_projections=4000, generator=seeded(5))
    found = []
    for seed in range(10):
        one, two = (ad.embed(data, seed=seed, n_levels=100) for data in (a, b))
        found.append(one.distance(two) ** 2 / 2)
    assert np.mean(found) == pytest.approx(other.energy, abs=4 * other.standard_error)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("d", [1, 5, 60])
def test_a_translation_is_measured_exactly(d, dtype):
    """Features move by v, and means of labels by v: √(1 + w) ‖v‖, from d directions on."""
    data, weight = labeled(40, d=d, dtype=dtype), 0.5
    by = torch.linspace(-1, 2, d, dtype=dtype)
    moved = data.replace(x=data.x + by)
    first, second = (ad.embed(one, n_directions=d, label_weight=weight) for one in (data, moved))
    expected = math.sqrt(1 + weight) * float(by.norm())
    assert first.distance(second) == pytest.approx(expected, rel=1e-5)


def test_a_scaled_gaussian_class():
    """One class, x ↦ c x: along every direction features differ by (c − 1) θ·x and deviations
    by (c − 1) σ; with the mean at 0, E over ψ and θ is (c − 1)² (Σ‖x‖²/n + tr S)."""
    x = torch.randn(300, 6, generator=seeded(0), dtype=torch.float64)
    x = x - x.mean(dim=0)
    a, b = (ad.LabeledDataset(c * x, ["one"] * 300) for c in (1.0, 1.7))
    expected = 0.7 * math.sqrt(float(x.square().sum() / 300 + x.square().sum() / 299))
    # along ψ the image of one class is monotone in θ·x, and the same monotone one for both
    first, second = (ad.embed(data, n_directions=6, n_levels=300) for data in (a, b))
    assert first.distance(second) == pytest.approx(expected, rel=1e-9)


def test_without_labels_it_is_transport_of_features():
    a, b = (ad.LabeledDataset(labeled(30, seed, d=1).x) for seed in (0, 1))
    first, second = (ad.embed(data, n_directions=1, n_levels=30, label_weight=0) for data in (a, b))
    expected = pot.emd2_1d(a.x[:, 0].numpy(), b.x[:, 0].numpy())
    assert first.distance(second) ** 2 == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("offset", [0.0, 1e6, -1e9])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e8])
def test_offsets_and_scales(offset, scale):
    a, b = labeled(20), labeled(30, 1, shift=1.0)
    before = ad.embed(a).distance(ad.embed(b))
    after = [ad.embed(data.replace(x=data.x * scale + offset * scale)) for data in (a, b)]
    assert after[0].distance(after[1]) == pytest.approx(scale * before, rel=1e-5)


@pytest.mark.parametrize(
    ("data", "options", "said"), [(ad.LabeledDataset([[0.0], [1.0]], ["a", None]), {}, "label for each sample"),
    (np.zeros((3, 2)), {}, "LabeledDataset"), (labeled(5), {"n_directions": 0}, "n_directions"),
    (labeled(5), {"n_levels": 0}, "n_levels"), (labeled(5), {"label_weight": -1}, "label_weight")],
)  # fmt: skip
def test_bad_input_is_refused(data, options, said):
    with pytest.raises(InputError, match=said):
        ad.embed(data, **options)


def test_embeddings_with_other_directions_are_not_compared():
    with pytest.raises(InputError, match="same"):
        ad.embed(labeled(9)).distance(ad.embed(labeled(9), seed=1))
