"""Spread labels, weights of the graph and oriented gradients, by brute force and laws."""

import itertools

import numpy as np
import pytest
import torch
from flow_cases import partly
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from scipy.spatial.distance import cdist
from sklearn.neighbors import kneighbors_graph

import advect as ad
from advect.classes.clustering import neighbor_graph
from advect.classes.embedding import oriented_gradients, points_of
from advect.classes.pseudo import one_hot, solved, spread


def images(n=6, side=12, seed=0):
    return torch.rand(n, side, side, generator=torch.Generator().manual_seed(seed)).double()


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
    graph = neighbor_graph(x, neighbors)
    pieces = connected_components(expected)[0]
    if pieces == 1:
        np.testing.assert_allclose(graph.toarray(), expected, rtol=1e-6)
    else:
        bridged = graph.toarray() - expected
        assert set(np.unique(bridged[bridged > 1e-9])) == {5e-4}


def test_local_weights_of_heaps_and_of_far_pieces():
    x = np.concatenate([np.zeros((30, 2)), np.ones((30, 2)), [[1e6, 0.0]]])
    graph = neighbor_graph(x, 5)
    assert connected_components(graph)[0] == 1 and abs(graph - graph.T).max() == 0
    assert np.isfinite(graph.data).all() and graph.data.min() >= 5e-4
    data = ad.LabeledDataset(x, ["a", *[None] * 58, "b", None])
    assert ad.fill_labels(data, neighbors=5).labels[:60] == ["a"] * 30 + ["b"] * 30


def test_probabilities_sum_to_one_and_known_labels_are_sure():
    moons = ad.datasets.load("moons", n=200)
    y = torch.full_like(moons.y, -1)
    y[[0, 1, 150]] = moons.y[[0, 1, 150]]
    few = moons.replace(y=y, classes=(*moons.classes, "nobody"))
    rows = ad.fill_labels(few, soft=True).probabilities.numpy()
    np.testing.assert_allclose(rows.sum(axis=1), 1, atol=1e-6)
    assert (rows >= 0).all() and (rows[:, 2] == 0).all()
    assert rows[[0, 1, 150], moons.y[[0, 1, 150]]].tolist() == [1.0, 1.0, 1.0]
    assert ad.fill_labels(few).y.tolist() == rows.argmax(axis=1).tolist()


@pytest.mark.parametrize(
    ("options", "message"), [({"alpha": 1.0}, "alpha"), ({"alpha": 0.0}, "alpha"), ({"neighbors": 0}, "neighbors"),
    ({"embedding": "gradients"}, "images")],
)  # fmt: skip
def test_spreading_refuses_what_it_cannot_use(options, message):
    moons = ad.datasets.load("moons", n=20)
    with pytest.raises(ad.InputError, match=message):
        ad.fill_labels(partly(moons, 1), **options)
    with pytest.raises(ad.InputError, match="pseudo_labels"):
        ad.fill_labels(ad.LabeledDataset(moons.x))


def test_known_labels_names_and_the_rest_stay():
    data = ad.datasets.load("toy:gaussians?n=90&classes=3&seed=1")
    few = partly(data, 2).replace(classes=("d", "c", "b"))
    filled = ad.fill_labels(few)
    assert filled.classes == few.classes and torch.equal(filled.y, data.y)
    assert torch.equal(filled.x, data.x) and torch.equal(filled.weights, data.weights)
    wrong = few.y.clone().index_fill_(0, few.labeled.nonzero()[:1, 0], 2)  # unlike its neighbours
    assert torch.equal(ad.fill_labels(few.replace(y=wrong)).y[few.labeled], wrong[few.labeled])
    assert ad.fill_labels(data) is data


@pytest.mark.parametrize("neighbors", [1, 2])
def test_the_graph_is_in_one_piece_by_shortest_bridges(neighbors):
    x = np.random.default_rng(0).normal(size=(200, 2))
    x[:50] = x[0]  # a heap of equal points
    graph = neighbor_graph(x, neighbors)
    assert connected_components(graph)[0] == 1
    assert abs(graph - graph.T).max() == 0 and graph.diagonal().sum() == 0
    plain = kneighbors_graph(x, neighbors)
    both = ((plain + plain.T) > 0).toarray()
    added = np.count_nonzero((graph.toarray() > 0) & ~both) // 2
    pieces, names = connected_components(plain, directed=False)
    assert 1 < pieces <= added + 1 < 2 * pieces
    # a spanning tree is the shortest way to join the pieces: no bridge is longer than its edges
    tree = minimum_spanning_tree(cdist(x, x) + 1e-9).data
    i, j = graph.nonzero()
    lengths = np.linalg.norm(x[i] - x[j], axis=1)[names[i] != names[j]]
    assert lengths.max() <= tree.max() + 1e-8


def test_propagation_solves_its_equation():
    x = np.random.default_rng(0).normal(size=(60, 2))
    codes = np.where(np.arange(60) < 6, np.arange(60) % 3, -1)
    graph = neighbor_graph(x, 7).toarray()
    roots = np.sqrt(graph.sum(axis=1))
    system = np.eye(60) - 0.9 * graph / np.outer(roots, roots)
    start = np.eye(3)[codes] * (codes >= 0)[:, None]
    expected = np.linalg.solve(system, start)
    found = solved(csr_array(graph), roots[:, None], 0.9, start)
    np.testing.assert_allclose(found, expected, atol=1e-10)
    expected = expected / expected.sum(axis=0)
    got = spread(neighbor_graph(x, 7), 0.9, one_hot(codes, 3))
    np.testing.assert_allclose(got, expected / expected.sum(axis=1, keepdims=True), atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.3, 0.9])
def test_propagation_far_from_labels_solves_its_equation(alpha):
    """The scores as a sum over walks: no term is negative, so the smallest is exact too."""
    x = np.sort(np.random.default_rng(1).uniform(size=400))[:, None]
    known = np.array([3, 150, 170, 390])
    codes = np.full(400, -1)
    codes[known] = [2, 0, 1, 1]
    graph = neighbor_graph(x, 4).toarray()
    roots = np.sqrt(graph.sum(axis=1))
    walks, scores = np.zeros((400, 3)), np.zeros((400, 3))
    walks[known, codes[known]] = 1.0
    for _ in range(1500):
        scores += walks
        walks = alpha * (graph @ (walks / roots[:, None])) / roots[:, None]
    scores /= scores.sum(axis=0)
    assert scores.max(axis=1).min() < 1e-12
    for names in itertools.permutations(range(3)):
        renamed = np.where(codes >= 0, np.array(names)[codes], -1)
        got = spread(neighbor_graph(x, 4), alpha, one_hot(renamed, 3))[:, names]
        assert got.argmax(axis=1).tolist() == scores.argmax(axis=1).tolist()


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
    channels = x[:, None].expand(-1, 3, -1, -1), x[..., None].expand(-1, -1, -1, 3)
    for same in (x * 300 - 7, x * 1e-200, *channels):
        torch.testing.assert_close(oriented_gradients(same), rows)
    torch.testing.assert_close(oriented_gradients(x.float()), rows.float())
    whole = (x * 255).round()
    expected = oriented_gradients(whole).float()
    torch.testing.assert_close(oriented_gradients(whole.to(torch.uint8)), expected)
    assert oriented_gradients(torch.full((2, 9, 9), 3.0)).abs().max() == 0
    assert oriented_gradients(images(side=3)).shape == (6, 12)


def test_standardized_columns():
    x = np.random.default_rng(0).normal(size=(30, 3)) * [1.0, 1e-6, 1e6] + [5.0, 2.0, 0.0]
    x[:, 2] = 7.0
    points = points_of(ad.LabeledDataset(x), "standardized", 0)
    np.testing.assert_allclose(points[:, :2].std(axis=0), 1)
    np.testing.assert_allclose(points[:, :2].mean(axis=0), 0, atol=1e-9)
    assert (points[:, 2] == 0).all()
