"""How a clusterer is run: with a number of clusters and a seed, on a part of the data where all of
it is too much.

What comes out has no gaps and no noise: clusters are 0 … k − 1, the largest first.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from advect._util.checks import check_count
from advect.classes.clustering import AnyClusterer, Clustering, KMeans
from advect.classes.points import of_order_one
from advect.errors import InputError

_NEIGHBORS = 5  # that decide about a sample outside the part that was clustered
_SCORED = 2000  # samples on which numbers of clusters are compared
_MOST = 20  # clusters that are looked for


class Wrapped:
    """Base of the clusterers that fit a scikit-learn estimator, with a bound on the samples it
    gets.
    """

    max_samples: int

    def __post_init__(self) -> None:
        if getattr(self, "n_clusters", None) is not None:
            check_count("n_clusters", self.n_clusters)  # pyright: ignore[reportAttributeAccessIssue]
        check_count("max_samples", self.max_samples)

    def fit(self, points: np.ndarray, k: int, seed: int) -> np.ndarray:
        """k clusters of the points, −1 for noise; where the number is found, k says nothing."""
        raise NotImplementedError

    def __call__(self, points: np.ndarray, previous: np.ndarray) -> np.ndarray:
        """Clusters of ``points``; as many as there were before, unless the clusterer has its own
        number.
        """
        return run(self, points, own_number(self) or len(np.unique(previous)), 0)


def takes_number(clusterer: Clustering) -> bool:
    """Whether the number of clusters can be set."""
    if isinstance(clusterer, AnyClusterer):
        return _number_option(clusterer) is not None
    return dataclasses.is_dataclass(clusterer) and any(
        field.name == "n_clusters" for field in dataclasses.fields(clusterer)
    )


def own_number(clusterer: Clustering) -> int | None:
    """The number of clusters that a clusterer brings along."""
    if isinstance(clusterer, AnyClusterer):
        option = _number_option(clusterer)
        return None if option is None else clusterer.estimator.get_params()[option]
    return getattr(clusterer, "n_clusters", None)


def needs_number(clusterer: Clustering) -> bool:
    """Whether there is nothing to run before a number of clusters is known."""
    return (
        takes_number(clusterer)
        and own_number(clusterer) is None
        and not isinstance(clusterer, AnyClusterer)
    )


def run(clusterer: Clustering, points: np.ndarray, k: int | None, seed: int) -> np.ndarray:
    """The cluster of each point, int64; ``k`` None leaves the number to the clusterer."""
    if isinstance(clusterer, (Wrapped, KMeans)):
        points = of_order_one(points)  # others may have a radius, in units of the features
    if k is not None and takes_number(clusterer):
        distinct = count_distinct(points, k + 1)
        if k > distinct:
            raise InputError(
                f"there cannot be more clusters than different samples, {distinct}",
                f"{k} clusters",
                "Ask for fewer.",
            )
        if k == 1:
            return np.zeros(len(points), dtype=np.int64)
        if k == distinct:
            return renumbered(np.unique(points, axis=0, return_inverse=True)[1].reshape(-1))
    most = clusterer.max_samples if isinstance(clusterer, Wrapped) else len(points)
    if len(points) <= most:
        return renumbered(_noise_joined(points, _fitted(clusterer, points, k, seed)))
    part = np.sort(np.random.default_rng(seed).choice(len(points), most, replace=False))
    codes = np.full(len(points), -1)
    codes[part] = _noise_joined(points[part], _fitted(clusterer, points[part], k, seed))
    return renumbered(joined(points, codes, _NEIGHBORS))


def silhouettes(
    clusterer: Clustering, points: np.ndarray, candidates: Sequence[int] | None, seed: int
) -> dict[int, float]:
    """The mean silhouette of each number of clusters, on at most 2000 points drawn at random; by
    default of 2 … 20.
    """
    from sklearn.metrics import pairwise_distances, silhouette_score

    if len(points) > _SCORED:
        points = points[
            np.sort(np.random.default_rng(seed).choice(len(points), _SCORED, replace=False))
        ]
    distinct = count_distinct(
        points, max(candidates, default=0) if candidates is not None else _MOST
    )
    limit = min(distinct, len(points) - 1)
    if candidates is None:
        candidates = range(2, min(limit, _MOST) + 1)
    for k in candidates:
        if not 2 <= k <= limit:
            raise InputError(
                f"numbers of clusters to compare must lie between 2 and {limit}, given "
                f"{len(points)} samples for it",
                k,
                "A single number is taken as it is.",
            )
    distances = pairwise_distances(of_order_one(points))
    np.fill_diagonal(distances, 0.0)
    scores = {}
    for k in candidates:
        codes = run(clusterer, points, k, seed)
        scores[k] = (
            float(silhouette_score(distances, codes, metric="precomputed")) if codes.any() else -1.0
        )
    return scores


def renumbered(codes: np.ndarray) -> np.ndarray:
    """The same clusters as 0 … k − 1: the largest first, of equal ones that with the first
    sample.
    """
    _, first, inverse, counts = np.unique(
        codes, return_index=True, return_inverse=True, return_counts=True
    )
    rank = np.empty(len(counts), dtype=np.int64)
    rank[np.lexsort((first, -counts))] = np.arange(len(counts))
    return rank[inverse]


def count_distinct(points: np.ndarray, most: int) -> int:
    """How many different points there are; counting ends at ``most``."""
    seen: set[bytes] = set()
    for row in points + 0.0:  # −0 is 0
        if len(seen) >= most:
            break
        seen.add(row.tobytes())
    return len(seen)


def _fitted(clusterer: Clustering, points: np.ndarray, k: int | None, seed: int) -> np.ndarray:
    """What a clusterer answers, as whole numbers, −1 for noise."""
    with warnings.catch_warnings():
        if isinstance(clusterer, (Wrapped, KMeans)):
            warnings.simplefilter(
                "ignore"
            )  # of graphs in pieces and of few iterations: harmless here
        try:
            codes = np.asarray(
                _bound(clusterer, k, seed)(points, np.zeros(len(points), dtype=np.int64))
            )
        except InputError:
            raise
        except ValueError as error:
            raise InputError(
                "the clusterer could not cluster these samples",
                error,
                "Change its options, or take another one.",
            ) from error
    if codes.shape != (len(points),) or not np.issubdtype(codes.dtype, np.integer):
        raise InputError(
            f"a clusterer must give a whole number to each of the {len(points)} samples",
            f"{codes.dtype} of shape {codes.shape}",
            "Check what it returns.",
        )
    return codes.astype(np.int64)


def _bound(clusterer: Clustering, k: int | None, seed: int) -> Clustering:
    """The clusterer with its number of clusters and its seed."""
    seed %= 2**32  # what scikit-learn takes
    if isinstance(clusterer, Wrapped):
        return lambda points, previous: clusterer.fit(points, k or 0, seed)
    if isinstance(
        clusterer, KMeans
    ):  # a flow starts it from the classes before; here there are none, but a seed
        from sklearn.cluster import KMeans as SklearnKMeans

        return AnyClusterer(SklearnKMeans(k or 0, random_state=seed).set_params(n_init=10))
    if isinstance(clusterer, AnyClusterer):
        from sklearn.base import clone

        estimator: Any = clone(clusterer.estimator)
        option = _number_option(clusterer)
        if k is not None and option is not None:
            estimator.set_params(**{option: k})
        if estimator.get_params().get("random_state", 0) is None:
            estimator.set_params(random_state=seed)
        return AnyClusterer(estimator)
    return clusterer if k is None else dataclasses.replace(clusterer, n_clusters=k)  # pyright: ignore[reportArgumentType, reportCallIssue]


def _number_option(clusterer: AnyClusterer) -> str | None:
    options = clusterer.estimator.get_params() if hasattr(clusterer.estimator, "get_params") else {}
    return next((name for name in ("n_clusters", "n_components") if name in options), None)


def _noise_joined(points: np.ndarray, codes: np.ndarray) -> np.ndarray:
    if (codes < 0).all():
        raise InputError(
            "the clusterer must find at least one cluster",
            f"noise alone, of {len(codes)} samples",
            "Ask for smaller or less dense clusters, or take one that is told their number, such "
            "as ad.Ward().",
        )
    return joined(points, codes, 1)


def joined(points: np.ndarray, codes: np.ndarray, neighbors: int) -> np.ndarray:
    """Points without a cluster join that of most of their nearest neighbours that have one."""
    from sklearn.neighbors import KNeighborsClassifier

    lost = codes < 0
    if not lost.any():
        return codes
    near = KNeighborsClassifier(min(neighbors, int((~lost).sum()))).fit(points[~lost], codes[~lost])
    codes = codes.copy()
    codes[lost] = near.predict(points[lost])
    return codes
