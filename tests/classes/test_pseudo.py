"""Pseudo-labels and scores, against scikit-learn, brute force and data with known answers."""

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from sklearn import cluster, decomposition, metrics
from sklearn.mixture import GaussianMixture

import advect as ad
from advect.data.laws import Diagonal

CENTRES = np.array([[0.0, 0.0, 0.0], [20.0, 0.0, 0.0], [0.0, 20.0, 0.0], [0.0, 0.0, 20.0]])
SIZES = (50, 40, 30, 20)  # the largest first, as clusters are numbered


def blobs(sizes=SIZES, scale=1.0, shift=0.0, seed=0, dtype=np.float64):
    """Well separated Gaussians in mixed order, labeled a, b, c, d."""
    generator = np.random.default_rng(seed)
    codes = generator.permutation(np.repeat(np.arange(len(sizes)), sizes))
    x = scale * (CENTRES[codes] + generator.normal(size=(len(codes), 3))) + shift
    return ad.LabeledDataset(x.astype(dtype), ["abcd"[code] for code in codes])


def accuracy(codes, truth):
    """Under the best one-to-one naming of clusters."""
    table = metrics.cluster.contingency_matrix(truth, codes)
    return table[linear_sum_assignment(table, maximize=True)].sum() / len(codes)


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
    assert found.y.tolist() == again.y.tolist() == data.y.tolist()  # the largest first
    assert found.classes == (0, 1, 2, 3) and found.labels == found.y.tolist()
    assert torch.equal(found.x, data.x)
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
        assert accuracy(ad.pseudo_labels(unlabeled(digits), n_clusters=10).y, digits.labels) > least


@pytest.mark.parametrize("clusterer", TOLD)
@pytest.mark.parametrize(("scale", "shift"), [(1e-150, 0.0), (1e150, 0.0), (1.0, 1e6)])
def test_scales_and_shifts_change_nothing(clusterer, scale, shift):
    data = blobs(scale=scale, shift=shift)
    assert ad.pseudo_labels(unlabeled(data), clusterer, n_clusters=4).y.tolist() == data.y.tolist()
    embedded = ad.pseudo_labels(unlabeled(data), clusterer, n_clusters=4, embedding=2)
    assert same_partition(embedded.y, data.y) or clusterer == "spectral"


def test_any_scikit_learn_clusterer_keeps_or_takes_its_number():
    data = blobs()
    estimator = cluster.AgglomerativeClustering(3, linkage="average")
    kept = ad.pseudo_labels(data, estimator)
    assert kept.classes == (0, 1, 2)
    assert same_partition(kept.y, estimator.fit_predict(data.x.numpy()))
    assert ad.pseudo_labels(data, estimator, n_clusters=4).y.tolist() == data.y.tolist()
    assert estimator.n_clusters == 3  # a clone was changed
    by_distance = cluster.AgglomerativeClustering(None, distance_threshold=30.0)
    assert ad.pseudo_labels(data, by_distance).y.tolist() == data.y.tolist()


def test_large_data_is_clustered_in_part(monkeypatch):
    monkeypatch.setattr("advect.classes.clustering._MAX_SPECTRAL", 150)
    data = blobs((500, 400, 300, 200))
    assert ad.pseudo_labels(data, target=data).y.tolist() == data.y.tolist()


def test_noise_joins_the_nearest_cluster():
    x = np.concatenate([np.linspace(0, 1, 20), np.linspace(10, 11, 20), [3.0, 7.0]])[:, None]
    assert cluster.DBSCAN(eps=0.2, min_samples=4).fit_predict(x)[-2:].tolist() == [-1, -1]
    found = ad.pseudo_labels(ad.LabeledDataset(x), "dbscan?eps=0.2")
    assert found.y[-2:].tolist() == [found.y[0], found.y[20]] == [0, 1]


def test_embeddings_replace_the_features_for_clustering_alone():
    # Two clusters along the second feature; the first one is larger and says nothing.
    generator = np.random.default_rng(0)
    truth = np.repeat([0, 1], 100)
    first, second = generator.uniform(-100, 100, 200), 5.0 * truth + generator.normal(size=200) / 4
    data = ad.LabeledDataset(np.stack([first, second], axis=1))
    assert accuracy(ad.pseudo_labels(data, n_clusters=2).y, truth) < 0.8

    class Second:
        def fit_transform(self, points):
            return points[:50, 1]

    for embedding in (lambda samples: samples[:, 1:], lambda samples: samples[:, 1]):
        found = ad.pseudo_labels(data, n_clusters=2, embedding=embedding)
        assert accuracy(found.y, truth) == 1 and found.dim == 2
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
    assert ad.pseudo_labels(data, clusterer, n_clusters=2).y.tolist() == [0] * 12 + [1] * 12
    assert ad.pseudo_labels(data, clusterer, n_clusters=1).y.tolist() == [0] * 24
    four = ad.pseudo_labels(data, clusterer, n_clusters=4)
    assert four.y.tolist() == np.repeat(range(4), 6).tolist()
    with pytest.raises(ad.InputError, match="different samples, 4"):
        ad.pseudo_labels(data, clusterer, n_clusters=5)
    alike = ad.LabeledDataset(np.ones((5, 2)))
    assert ad.pseudo_labels(alike, clusterer, n_clusters=1, embedding=0.9).classes == (0,)
    assert ad.pseudo_labels(ad.LabeledDataset([[1.0]]), clusterer, n_clusters=1).y.tolist() == [0]
    three = ad.LabeledDataset([[0.0], [1.0], [9.0]])
    assert ad.pseudo_labels(three, clusterer, n_clusters=2).y.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("options", "message"), [({"clusterer": "kmean"}, "Did you mean 'kmeans'"),
    ({"clusterer": "dbscan?radius=3"}, "clusterer"), ({"clusterer": cluster.KMeans}, "clusterer"),
    ({}, "number of clusters"), ({"n_clusters": 0}, "n_clusters"), ({"n_clusters": 141}, "different samples, 140"),
    ({"n_clusters": 3, "target": blobs()}, "number of clusters"), ({"target": 4}, "target"),
    ({"target": ad.LabeledDataset([[1.0]])}, "target"),
    ({"clusterer": cluster.DBSCAN(), "n_clusters": 3}, "finds the number"),
    ({"clusterer": "dbscan?eps=1e-9"}, "at least one cluster"), ({"clusterer": cluster.KMeans(1000)}, "n_clusters"),
    ({"embedding": 4, "n_clusters": 2}, "at most 3 principal"), ({"embedding": "pca", "n_clusters": 2}, "embedding"),
    ({"embedding": lambda samples: samples[:3], "n_clusters": 2}, "for each"), ({"seed": -1}, "seed")],
)  # fmt: skip
def test_unusable_input_is_an_input_error(options, message):
    with pytest.raises(ad.InputError, match=message):
        ad.pseudo_labels(blobs(), **options)
