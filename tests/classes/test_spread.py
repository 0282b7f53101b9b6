"""Scores of spread labels, weights of the graph and oriented gradients, by brute force and laws."""

import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist

import advect as ad
from advect.classes.embedding import oriented_gradients, points_of
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
    rows = oriented_gradients(ramp, bins=4, cells=3).reshape(4, 9)
    assert (rows[0] > 0).all() and rows[1:].abs().max() == 0
    down = oriented_gradients(ramp.mT, bins=4, cells=3).reshape(4, 9)
    assert (down[1] > 0).all() and down[[0, 2, 3]].abs().max() < 1e-3
    both = oriented_gradients(ramp + ramp.mT, bins=8, cells=3).reshape(8, 9)
    assert (both[1, [0, 4, 8]] > 0).all() and both[[0, 2]].max() <= both[1].max()


def test_turning_an_image_turns_cells_and_directions():
    x = images()
    rows = oriented_gradients(x, bins=8, cells=5).reshape(-1, 8, 5, 5)
    turned = oriented_gradients(x.rot90(dims=(1, 2)), bins=8, cells=5).reshape(-1, 8, 5, 5)
    # counterclockwise on the screen, where the first axis goes down: two directions back
    torch.testing.assert_close(turned, rows.rot90(dims=(2, 3)).roll(-2, dims=1))


def test_gradients_do_not_know_brightness_contrast_or_layout():
    x = images()
    rows = oriented_gradients(x)
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(6).double())
    torch.testing.assert_close(oriented_gradients(x * 300 - 7), rows)
    torch.testing.assert_close(oriented_gradients(x * 1e-200), rows)
    torch.testing.assert_close(oriented_gradients(x[:, None].expand(-1, 3, -1, -1)), rows)
    torch.testing.assert_close(oriented_gradients(x[..., None].expand(-1, -1, -1, 3)), rows)
    torch.testing.assert_close(oriented_gradients(x.float()), rows.float())
    bytes_ = (x * 255).round()
    torch.testing.assert_close(
        oriented_gradients(bytes_.to(torch.uint8)), oriented_gradients(bytes_).float()
    )
    assert oriented_gradients(torch.full((2, 9, 9), 3.0)).abs().max() == 0
    assert oriented_gradients(images(side=3)).shape == (6, 12)


def test_standardized_columns():
    x = np.random.default_rng(0).normal(size=(30, 3)) * [1.0, 1e-6, 1e6] + [5.0, 2.0, 0.0]
    x[:, 2] = 7.0
    points = points_of(ad.LabeledDataset(x), "standardized", 0)
    np.testing.assert_allclose(points[:, :2].std(axis=0), 1)
    np.testing.assert_allclose(points[:, :2].mean(axis=0), 0, atol=1e-9)
    assert (points[:, 2] == 0).all()
