"""Scores of spread labels, weights of the graph and oriented gradients, by brute force and laws."""

import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist

import advect as ad
from advect.classes import OrientedGradients
from advect.classes.embedding import points_of
from advect.classes.neighbor_graph import neighbor_graph


def images(n=6, side=12, seed=0):
    return torch.rand(n, side, side, generator=torch.Generator().manual_seed(seed)).double()


# ---- the graph


@pytest.mark.parametrize("neighbors", [3, 12])
def test_local_weights_by_brute_force(neighbors):
    x = np.random.default_rng(0).normal(size=(40, 3)) * np.linspace(0.2, 3, 40)[:, None]
    distances = cdist(x, x) + np.diag(np.full(40, np.inf))
    order = np.argsort(distances, axis=1)[:, :neighbors]
    scale = np.sort(distances, axis=1)[:, min(7, neighbors) - 1]
    expected = np.zeros((40, 40))
    for i in range(40):
        for j in order[i]:
            weight = np.exp(-(distances[i, j] ** 2) / scale[i] / scale[j])
            expected[i, j] += max(weight, 1e-3) / 2
            expected[j, i] += max(weight, 1e-3) / 2
    graph = neighbor_graph(x, neighbors, local=True)
    pieces = connected_components(expected)[0]
    if pieces == 1:
        np.testing.assert_allclose(graph.toarray(), expected, rtol=1e-6)
    else:
        bridged = graph.toarray() - expected
        assert set(np.unique(bridged[bridged > 1e-9])) == {5e-4}


def test_local_weights_of_heaps_and_of_far_pieces():
    x = np.concatenate([np.zeros((30, 2)), np.ones((30, 2)), [[1e6, 0.0]]])
    graph = neighbor_graph(x, 5, local=True)
    assert connected_components(graph)[0] == 1 and abs(graph - graph.T).max() == 0
    assert np.isfinite(graph.data).all() and graph.data.min() >= 5e-4
    data = ad.LabeledDataset(x, ["a", *[None] * 58, "b", None])
    assert ad.fill_labels(data, neighbors=5).labels[:60] == ["a"] * 30 + ["b"] * 30


# ---- scores


def test_shares_sum_to_one_and_known_labels_are_sure():
    moons = ad.datasets.load("moons", n=200)
    y = torch.full_like(moons.y, -1)
    y[[0, 1, 150]] = moons.y[[0, 1, 150]]
    few = moons.replace(y=y, classes=(*moons.classes, "nobody"))
    shares = ad.spread_labels(few)
    np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-12)
    assert (shares >= 0).all() and (shares[:, 2] == 0).all()
    assert shares[[0, 1, 150], moons.y[[0, 1, 150]]].tolist() == [1.0, 1.0, 1.0]
    assert ad.fill_labels(few).y.tolist() == shares.argmax(axis=1).tolist()


@pytest.mark.parametrize(("shift", "scale"), [(1e4, 1.0), (0.0, 1e-120), (-3.0, 1e100)])
def test_shares_do_not_know_units(shift, scale):
    moons = ad.datasets.load("moons", n=150).to(dtype=torch.float64)
    few = moons.replace(y=torch.where(torch.arange(150) < 10, moons.y, -1))
    moved = few.replace(x=(few.x + shift) * scale)
    np.testing.assert_allclose(ad.spread_labels(moved), ad.spread_labels(few), atol=1e-6)


def test_spreading_refuses_what_it_cannot_use():
    moons = ad.datasets.load("moons", n=20)
    with pytest.raises(ad.InputError, match="pseudo_labels"):
        ad.spread_labels(moons.replace(y=torch.full_like(moons.y, -1)))
    with pytest.raises(ad.InputError, match="alpha"):
        ad.spread_labels(moons, alpha=1.0)
    with pytest.raises(ad.InputError, match="images"):
        ad.spread_labels(moons, embedding="gradients")
    alone = ad.LabeledDataset([[1.0]], ["a"])
    assert ad.spread_labels(alone).tolist() == [[1.0]]


# ---- oriented gradients


def test_a_ramp_has_one_direction():
    ramp = torch.arange(12.0).expand(1, 12, 12)  # brighter to the right
    rows = OrientedGradients(bins=4, cells=3)(ramp).reshape(4, 9)
    assert (rows[0] > 0).all() and rows[1:].abs().max() == 0
    down = OrientedGradients(bins=4, cells=3)(ramp.mT).reshape(4, 9)
    assert (down[1] > 0).all() and down[[0, 2, 3]].abs().max() < 1e-3
    both = OrientedGradients(bins=8, cells=3)(ramp + ramp.mT).reshape(8, 9)
    assert (both[1, [0, 4, 8]] > 0).all() and both[[0, 2]].max() <= both[1].max()


def test_turning_an_image_turns_cells_and_directions():
    x = images()
    rows = OrientedGradients(bins=8, cells=5)(x).reshape(-1, 8, 5, 5)
    turned = OrientedGradients(bins=8, cells=5)(x.rot90(dims=(1, 2))).reshape(-1, 8, 5, 5)
    # counterclockwise on the screen, where the first axis goes down: two directions back
    torch.testing.assert_close(turned, rows.rot90(dims=(2, 3)).roll(-2, dims=1))


def test_gradients_do_not_know_brightness_contrast_or_layout():
    x = images()
    rows = OrientedGradients()(x)
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(6).double())
    torch.testing.assert_close(OrientedGradients()(x * 300 - 7), rows)
    torch.testing.assert_close(OrientedGradients()(x * 1e-200), rows)
    torch.testing.assert_close(OrientedGradients()(x[:, None].expand(-1, 3, -1, -1)), rows)
    torch.testing.assert_close(OrientedGradients()(x[..., None].expand(-1, -1, -1, 3)), rows)
    torch.testing.assert_close(OrientedGradients()(x.float()), rows.float())
    bytes_ = (x * 255).round()
    torch.testing.assert_close(
        OrientedGradients()(bytes_.to(torch.uint8)), OrientedGradients()(bytes_).float()
    )
    assert OrientedGradients()(torch.full((2, 9, 9), 3.0)).abs().max() == 0
    assert OrientedGradients()(images(side=3)).shape == (6, 12)


def test_a_shift_is_smaller_than_in_pixels():
    x = torch.zeros(1, 20, 20)
    x[:, 4:15, 9:11] = 1.0
    other = torch.zeros(1, 20, 20)
    other[:, 9:11, 4:15] = 1.0
    moved = x.roll(2, dims=2)

    def compare(of):
        return float((of(moved) - of(x)).norm() / (of(other) - of(x)).norm())

    assert compare(OrientedGradients()) < 0.6 * compare(lambda image: image)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["usps", "kmnist"])
def test_labels_spread_better_over_gradients_than_over_pixels(name):
    try:
        data = ad.datasets.load(name, n=600, seed=3)
    except ad.InputError:
        pytest.skip(f"needs the images of {name} in ADVECT_DATA")
    few = data.replace(y=torch.where(torch.arange(600) < 50, data.y, -1))

    def accuracy(embedding):
        return float((ad.fill_labels(few, embedding=embedding).y == data.y).double().mean())

    assert accuracy("gradients") > accuracy(None) + 0.05


def test_standardized_columns():
    x = np.random.default_rng(0).normal(size=(30, 3)) * [1.0, 1e-6, 1e6] + [5.0, 2.0, 0.0]
    x[:, 2] = 7.0
    points = points_of(ad.LabeledDataset(x), "standardized", 0)
    np.testing.assert_allclose(points[:, :2].std(axis=0), 1)
    np.testing.assert_allclose(points[:, :2].mean(axis=0), 0, atol=1e-9)
    assert (points[:, 2] == 0).all()
