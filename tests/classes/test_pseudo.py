"""Pseudo-labels, filled labels, alignment and scores, against scipy, scikit-learn, brute force and
data with known answers.
"""

import itertools

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from scipy.spatial.distance import cdist
from sklearn import cluster, decomposition, metrics
from sklearn.metrics import cluster as contingency
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import kneighbors_graph

import advect as ad
from advect.classes.naming import clustering_accuracy, name_clusters, purity
from advect.classes.neighbor_graph import neighbor_graph
from advect.classes.spread import one_hot, solved, spread
from advect.data.laws import Diagonal

CENTRES = np.array([[0.0, 0.0, 0.0], [20.0, 0.0, 0.0], [0.0, 20.0, 0.0], [0.0, 0.0, 20.0]])
SIZES = (50, 40, 30, 20)  # the largest first, as clusters are numbered


def blobs(sizes=SIZES, scale=1.0, shift=0.0, seed=0, dtype=np.float64):
    """Well separated Gaussians in mixed order, labeled a, b, c, d."""
    generator = np.random.default_rng(seed)
    codes = generator.permutation(np.repeat(np.arange(len(sizes)), sizes))
    x = scale * (CENTRES[codes] + generator.normal(size=(len(codes), 3))) + shift
    return ad.LabeledDataset(x.astype(dtype), ["abcd"[code] for code in codes])


def unlabeled(data):
    return ad.LabeledDataset(data.x)


def same_partition(a, b):
    return metrics.adjusted_rand_score(np.asarray(a), np.asarray(b)) == 1.0


TOLD = ["kmeans", "spectral"]
FAMILY = {
    "kmeans": "kmeans",
    "spectral": "spectral",
    "dbscan": "dbscan",
    "KMeans": cluster.KMeans(4),
    "Ward": cluster.AgglomerativeClustering(4),
    "GaussianMixture": GaussianMixture(4, covariance_type="diag"),
    "HDBSCAN": cluster.HDBSCAN(min_cluster_size=10),
    "MeanShift": cluster.MeanShift(bandwidth=8),
}


@pytest.mark.parametrize("clusterer", FAMILY.values(), ids=FAMILY)
def test_every_clusterer_recovers_separated_gaussians(clusterer):
    data = blobs()
    number = 4 if isinstance(clusterer, str) and clusterer != "dbscan" else None
    found, again = (ad.pseudo_labels(unlabeled(data), clusterer, n_clusters=number) for _ in "ab")
    assert found.n_clusters == 4
    assert found.codes.tolist() == again.codes.tolist() == data.y.tolist()  # the largest first
    assert found.dataset.classes == (0, 1, 2, 3) and found.dataset.labels == found.codes.tolist()
    assert torch.equal(found.dataset.x, data.x)
    dynamics = ad.JointVariableLabels(clusterer, laws="diagonal")
    laws = ad.Gaussians(data.x, Diagonal(torch.ones_like(data.x)))
    each = data.replace(law=laws, law_index=torch.arange(len(data)))
    still = ad.Potential(lambda x, y: 0 * x.sum(dim=1))  # nothing moves, so classes stay
    last = ad.flow(each, still, dynamics=dynamics, n_steps=2).dataset
    assert torch.equal(last.y, data.y) and last.classes == data.classes


def test_the_default_clusterer_recovers_digits():
    """Accuracies of release 0.2.0: 0.8675 and 0.8988."""
    for seed, least in ((0, 0.86), (1, 0.89)):
        digits = ad.datasets.load("digits", n=800, seed=seed)
        found = ad.pseudo_labels(unlabeled(digits), n_clusters=10)
        assert clustering_accuracy(found, digits) > least


@pytest.mark.parametrize("clusterer", TOLD)
@pytest.mark.parametrize(("scale", "shift"), [(1e-150, 0.0), (1e150, 0.0), (1.0, 1e6)])
def test_scales_and_shifts_change_nothing(clusterer, scale, shift):
    data = blobs(scale=scale, shift=shift)
    assert (
        ad.pseudo_labels(unlabeled(data), clusterer, n_clusters=4).codes.tolist() == data.y.tolist()
    )
    embedded = ad.pseudo_labels(unlabeled(data), clusterer, n_clusters=4, embedding=2)
    assert same_partition(embedded.codes, data.y) or clusterer == "spectral"


@pytest.mark.parametrize("clusterer", TOLD)
def test_number_of_clusters_is_found(clusterer):
    data = blobs()
    found = ad.pseudo_labels(unlabeled(data), clusterer, n_clusters=range(2, 8))
    assert found.n_clusters == 4 and found.codes.tolist() == data.y.tolist()
    expected = metrics.silhouette_score(data.x.numpy(), found.codes)
    assert (
        found.scores[4] == pytest.approx(expected, rel=1e-9)
        and max(found.scores.values()) == found.scores[4]
    )


def test_any_scikit_learn_clusterer_keeps_or_takes_its_number():
    data = blobs()
    estimator = cluster.AgglomerativeClustering(3, linkage="average")
    kept = ad.pseudo_labels(data, estimator)
    assert kept.method == "AgglomerativeClustering" and kept.n_clusters == 3
    assert same_partition(kept.codes, estimator.fit_predict(data.x.numpy()))
    assert ad.pseudo_labels(data, estimator, n_clusters=4).codes.tolist() == data.y.tolist()
    assert estimator.n_clusters == 3  # a clone was changed
    by_distance = cluster.AgglomerativeClustering(None, distance_threshold=30.0)
    assert ad.pseudo_labels(data, by_distance).codes.tolist() == data.y.tolist()


def test_large_data_is_clustered_in_part(monkeypatch):
    monkeypatch.setattr("advect.classes.clustering._LARGEST", 150)
    data = blobs((500, 400, 300, 200))
    assert ad.pseudo_labels(data, target=data).codes.tolist() == data.y.tolist()


def test_noise_joins_the_nearest_cluster():
    x = np.concatenate([np.linspace(0, 1, 20), np.linspace(10, 11, 20), [3.0, 7.0]])[:, None]
    raw = cluster.DBSCAN(eps=0.2, min_samples=4).fit_predict(x)
    assert raw[-2:].tolist() == [-1, -1]
    found = ad.pseudo_labels(ad.LabeledDataset(x), "dbscan?eps=0.2")
    assert found.codes[-2:].tolist() == [found.codes[0], found.codes[20]] == [0, 1]


def test_embeddings_replace_the_features_for_clustering_alone():
    # Two clusters along the second feature; the first one is larger and says nothing.
    generator = np.random.default_rng(0)
    truth = np.repeat([0, 1], 100)
    x = np.stack(
        [generator.uniform(-100, 100, 200), 5.0 * truth + generator.normal(size=200) / 4], axis=1
    )
    data = ad.LabeledDataset(x)
    assert clustering_accuracy(ad.pseudo_labels(data, n_clusters=2), truth) < 0.8

    class Second:
        def fit_transform(self, points):
            return points[:50, 1]

    for embedding in (lambda samples: samples[:, 1:], ad.Embedding(lambda samples: samples[:, 1])):
        found = ad.pseudo_labels(data, n_clusters=2, embedding=embedding)
        assert clustering_accuracy(found, truth) == 1 and found.dataset.dim == 2
    with pytest.raises(ad.InputError, match="embedding"):
        ad.pseudo_labels(data, n_clusters=2, embedding=Second())


@pytest.mark.parametrize("shape", [(60, 8), (8, 60)])
def test_principal_components_are_scikit_learns(shape):
    from advect.classes.embedding import points_of

    x = np.random.default_rng(0).normal(size=shape) * np.linspace(1, 5, shape[1])
    data = ad.LabeledDataset(x)
    for wanted in (3, 0.6, 0.95):
        expected = decomposition.PCA(wanted, svd_solver="full").fit_transform(x)
        got = points_of(data, wanted, 0)
        assert got.shape == expected.shape
        np.testing.assert_allclose(np.abs(got), np.abs(expected), atol=1e-9)


@pytest.mark.parametrize("clusterer", TOLD)
def test_constant_features_duplicates_and_edges(clusterer):
    x = np.repeat(np.array([[0.0, 7.0], [1.0, 7.0], [5.0, 7.0], [6.0, 7.0]]), 6, axis=0)
    data = ad.LabeledDataset(x)
    pairs = ad.pseudo_labels(data, clusterer, n_clusters=2)
    assert pairs.codes.tolist() == [0] * 12 + [1] * 12
    assert ad.pseudo_labels(data, clusterer, n_clusters=1).codes.tolist() == [0] * 24
    assert (
        ad.pseudo_labels(data, clusterer, n_clusters=4).codes.tolist()
        == np.repeat(range(4), 6).tolist()
    )
    with pytest.raises(ad.InputError, match="different samples, 4"):
        ad.pseudo_labels(data, clusterer, n_clusters=5)
    alike = ad.LabeledDataset(np.ones((5, 2)))
    assert ad.pseudo_labels(alike, clusterer).n_clusters == 1
    assert ad.pseudo_labels(alike, clusterer, n_clusters=1, embedding=0.9).n_clusters == 1
    assert ad.pseudo_labels(ad.LabeledDataset([[1.0]]), clusterer).codes.tolist() == [0]
    assert ad.pseudo_labels(
        ad.LabeledDataset([[0.0], [1.0], [9.0]]), clusterer, n_clusters=2
    ).codes.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clusterer": "kmean"}, "Did you mean 'kmeans'"),
        ({"clusterer": "dbscan?radius=3"}, "clusterer"),
        ({"clusterer": 3}, "clusterer"),
        ({"clusterer": cluster.KMeans}, "clusterer"),
        ({"n_clusters": 0}, "n_clusters"),
        ({"n_clusters": 2.5}, "n_clusters"),
        ({"n_clusters": "two"}, "n_clusters"),
        ({"n_clusters": []}, "empty"),
        ({"n_clusters": [2, 500]}, "between 2 and"),
        ({"n_clusters": [1, 2]}, "at least 2"),
        ({"n_clusters": 141}, "different samples, 140"),
        ({"n_clusters": 3, "target": blobs()}, "both"),
        ({"target": 4}, "target"),
        ({"target": ad.LabeledDataset([[1.0]])}, "target"),
        ({"clusterer": cluster.DBSCAN(), "n_clusters": 3}, "finds the number"),
        ({"clusterer": "dbscan?eps=1e-9"}, "at least one cluster"),
        ({"clusterer": cluster.KMeans(1000)}, "n_clusters"),
        ({"clusterer": cluster.HDBSCAN(min_cluster_size=1000)}, "clusterer"),
        ({"embedding": 4, "n_clusters": 2}, "at most 3 principal"),
        ({"embedding": 1.5, "n_clusters": 2}, "embedding"),
        ({"embedding": True, "n_clusters": 2}, "embedding"),
        ({"embedding": "pca", "n_clusters": 2}, "embedding"),
        ({"embedding": lambda samples: samples[:3], "n_clusters": 2}, "for each"),
        ({"seed": -1}, "seed"),
    ],
)
def test_unusable_input_is_an_input_error(options, message):
    with pytest.raises(ad.InputError, match=message):
        ad.pseudo_labels(blobs(), **options)


# ---- partly labeled data


def partly(data, each, seed=0):
    """The same data with ``each`` labels of each class."""
    generator = np.random.default_rng(seed)
    keep = np.concatenate(
        [
            generator.permutation(np.flatnonzero(data.y == code))[:each]
            for code in range(len(data.classes))
        ]
    )
    y = torch.full_like(data.y, -1)
    y[keep] = data.y[keep]
    return data.replace(y=y)


def test_labels_follow_two_moons():
    moons = ad.datasets.load("moons", n=400)
    few = partly(moons, 5)
    filled = ad.fill_labels(few)
    accuracy = float((filled.y == moons.y).double().mean())
    assert accuracy > 0.95
    assert accuracy > float((ad.fill_labels(few, "nearest").y == moons.y).double().mean())


@pytest.mark.parametrize("method", ["propagate", "nearest"])
def test_known_labels_names_and_the_rest_stay(method):
    data = blobs()
    few = partly(data, 2).replace(classes=("d", "c", "b", "a"))
    filled = ad.fill_labels(few, method)
    assert bool(filled.labeled.all()) and filled.classes == few.classes
    assert (
        torch.equal(filled.y, data.y)
        and torch.equal(filled.x, data.x)
        and torch.equal(filled.weights, data.weights)
    )
    wrong = few.replace(
        y=few.y.clone().index_fill_(0, few.labeled.nonzero()[:1, 0], 3)
    )  # a label against its neighbours
    assert torch.equal(ad.fill_labels(wrong, method).y[wrong.labeled], wrong.y[wrong.labeled])
    assert ad.fill_labels(data, method) is data


@pytest.mark.parametrize("neighbors", [1, 2])
def test_the_graph_is_in_one_piece_by_shortest_bridges(neighbors):
    x = np.random.default_rng(0).normal(size=(200, 2))
    x[:50] = x[0]  # a heap of equal points
    graph = neighbor_graph(x, neighbors)
    assert (
        connected_components(graph)[0] == 1
        and abs(graph - graph.T).max() == 0
        and graph.diagonal().sum() == 0
    )
    plain = kneighbors_graph(x, neighbors)
    added = (graph != (plain + plain.T) / 2).nnz // 2
    pieces, names = connected_components(plain, directed=False)
    assert 1 < pieces <= added + 1 < 2 * pieces
    # a spanning tree of the points is the shortest way to join the pieces: bridges are among its
    # edges, in length
    tree = minimum_spanning_tree(cdist(x, x) + 1e-9).data
    lengths = [
        np.linalg.norm(x[i] - x[j])
        for i, j in zip(*graph.nonzero(), strict=True)
        if names[i] != names[j]
    ]
    assert max(lengths) <= tree.max() + 1e-8


def test_propagation_solves_its_equation():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(60, 2))
    codes = np.where(np.arange(60) < 6, np.arange(60) % 3, -1)
    distances = np.linalg.norm(x[:, None] - x[None], axis=2) + np.diag(np.full(60, np.inf))
    near = np.argsort(distances, axis=1)[:, :7]
    graph = np.zeros((60, 60))
    np.put_along_axis(graph, near, 1.0, axis=1)
    graph = (graph + graph.T) / 2
    roots = np.sqrt(graph.sum(axis=1))
    system = np.eye(60) - 0.9 * graph / np.outer(roots, roots)
    start = np.eye(3)[codes] * (codes >= 0)[:, None]
    expected = np.linalg.solve(system, start)
    np.testing.assert_allclose(
        solved(csr_array(graph), roots[:, None], 0.9, start), expected, atol=1e-10
    )
    expected = expected / expected.sum(axis=0)
    got = spread(neighbor_graph(x, 7), 0.9, one_hot(codes, 3))
    np.testing.assert_allclose(got, expected / expected.sum(axis=1, keepdims=True), atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.3, 0.9])
def test_propagation_far_from_labels_solves_its_equation(alpha):
    """The scores as a sum over walks: no term is negative, so that the least of them is as exact as
    the greatest.
    """
    generator = np.random.default_rng(1)
    x = np.sort(generator.uniform(size=400))[:, None]
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


def test_fill_refuses_what_it_cannot_use():
    data = partly(blobs(), 1)
    for options, message in (
        ({"method": "propagte"}, "Did you mean 'propagate'"),
        ({"alpha": 1.0}, "alpha"),
        ({"alpha": 0.0}, "alpha"),
        ({"neighbors": 0}, "neighbors"),
    ):
        with pytest.raises(ad.InputError, match=message):
            ad.fill_labels(data, **options)
    with pytest.raises(ad.InputError, match="pseudo_labels"):
        ad.fill_labels(unlabeled(data))


# ---- names for clusters


def rotated(data, angle, shift):
    turn = np.array(
        [[np.cos(angle), -np.sin(angle), 0.0], [np.sin(angle), np.cos(angle), 0.0], [0.0, 0.0, 1.0]]
    )
    return data.replace(x=data.x @ torch.from_numpy(turn).T + shift)


@pytest.mark.parametrize(("angle", "shift"), [(0.0, 0.0), (0.4, 0.0), (0.3, 5.0), (0.0, 1000.0)])
def test_align_names_clusters_after_a_moved_copy(angle, shift):
    data = blobs()
    reference = rotated(blobs((20, 30, 40, 50), seed=1), angle, shift)  # sizes tell nothing
    reference = reference.replace(
        classes=("d", "b", "a", "c"), y=torch.tensor([2, 1, 3, 0])[reference.y]
    )
    assert (
        name_clusters(ad.pseudo_labels(unlabeled(data), n_clusters=4), reference).labels
        == data.labels
    )


def test_align_with_other_numbers_of_classes():
    data = blobs()
    fewer = data.subset(data.y < 3)
    found = ad.pseudo_labels(unlabeled(fewer), n_clusters=3)
    assert (
        name_clusters(found, data).labels == fewer.labels
        and name_clusters(found, data).classes == data.classes
    )
    many = ad.pseudo_labels(unlabeled(data), n_clusters=8)
    assert name_clusters(many, data).labels == data.labels
    assert name_clusters(many, data.replace(x=data.x + 500.0)).labels == data.labels
    # a class of the reference without samples gives no name
    assert name_clusters(found, fewer).labels == fewer.labels


def test_align_refuses_what_it_cannot_use():
    data = blobs()
    found = ad.pseudo_labels(data, n_clusters=4)
    for arguments, message in (
        ((found, unlabeled(data)), "label"),
        ((unlabeled(data), data), "label"),
        ((found, data.x), "reference"),
        ((found, ad.LabeledDataset([[0.0], [1.0]], [0, 1])), "one feature space"),
    ):
        with pytest.raises(ad.InputError, match=message):
            name_clusters(*arguments)
    with pytest.raises(ad.InputError, match="NoLabels"):
        name_clusters(found, data, cost=ad.GroundCost(label=ad.NoLabels()))


# ---- scores


@pytest.mark.parametrize(("k", "m"), [(4, 4), (5, 3), (3, 5)])
def test_accuracy_is_the_best_of_all_namings(k, m):
    generator = np.random.default_rng(k)
    codes, truth = generator.integers(k, size=200), generator.integers(m, size=200)
    if k <= m:
        best = max(
            np.mean(np.array(order)[codes] == truth)
            for order in itertools.permutations(range(m), k)
        )
    else:
        best = max(
            np.mean(codes == np.array(order)[truth])
            for order in itertools.permutations(range(k), m)
        )
    assert clustering_accuracy(codes, truth) == pytest.approx(best, abs=1e-12)
    table = contingency.contingency_matrix(truth, codes)
    assert purity(codes, truth) == pytest.approx(table.max(axis=0).sum() / 200)


def test_scores_refuse_what_they_cannot_use():
    for codes, truth, message in (
        ([], [], "one entry for each"),
        ([0], [0, 1], "one entry for each"),
        ([0, 1], ["a", None], "missing"),
        ([0.0, float("nan")], [0, 1], "missing"),
        ([0, 1], ad.LabeledDataset([[0.0], [1.0]]), "needs a label"),
    ):
        for score in (clustering_accuracy, purity):
            with pytest.raises(ad.InputError, match=message):
                score(codes, truth)
