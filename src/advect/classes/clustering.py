"""What a clusterer is: points in, a whole number for each out. One protocol for pseudo-labels and
for the classes of a flow with variable labels (paper, sections 5.1 and 5.3).

A clusterer of one's own writes ``fit``. Calling it does the rest: how many clusters, points of a
scale that no square overflows at, a random part of the points where all of them are too many.
"""

from __future__ import annotations

import sys
from typing import ClassVar

import numpy as np

from advect._util.checks import check_count
from advect.errors import InputError

_NEIGHBORS = 5  # that decide about a point outside the part that was clustered


class Clusterer:
    """Base of all clusterers; ``ad.pseudo_labels`` and ``ad.JointVariableLabels`` take any of them.

    Attributes:
        n_clusters: how many clusters; None takes the number that the caller asks for.
        max_samples: the largest number of points to fit at once. Others join their nearest
            neighbours.
        takes_number: False for a clusterer that finds the number of clusters itself.
        needs_number: whether ``fit`` cannot do without a number.
        scale_free: whether points may be moved and scaled before ``fit``; False for a clusterer
            with a radius in units of the features.

    Example:
        >>> import numpy as np, advect as ad
        >>> class Signs(ad.classes.Clusterer):
        ...     takes_number = False
        ...
        ...     def fit(self, points, k, seed, previous):
        ...         return (points[:, 0] > 0).astype(int)
        >>> ad.pseudo_labels(ad.LabeledDataset([[-2.0], [-1.0], [3.0]]), Signs()).codes.tolist()
        [0, 0, 1]
    """

    n_clusters: int | None = None
    max_samples: int = sys.maxsize
    takes_number: bool = True
    scale_free: ClassVar[bool] = False

    @property
    def needs_number(self) -> bool:
        return self.takes_number and self.n_clusters is None

    @property
    def name(self) -> str:
        return type(self).__name__

    def fit(self, points: np.ndarray, k: int, seed: int, previous: np.ndarray | None) -> np.ndarray:
        """k clusters of the points (n, p) as whole numbers (n,), −1 for noise.

        Args:
            points: float64.
            k: how many; 0 where neither the clusterer nor the caller has a number.
            seed: of everything random, below 2³².
            previous: the clusters (n,) that these points were in before, in a flow.
        """
        raise NotImplementedError

    def __call__(
        self,
        points: np.ndarray,
        previous: np.ndarray | None = None,
        n_clusters: int | None = None,
        seed: int = 0,
    ) -> np.ndarray:
        """The cluster of each point, (n,) int64, −1 for noise.

        Args:
            points: (n, p).
            previous: the clusters before. Where no other number is known there will be as many, or
                as many as there are different points.
            n_clusters: how many; overrides the clusterer's own number.
            seed: of everything random.

        Raises:
            InputError: more clusters are asked for than there are different points; a fit that
                fails, or does not give a whole number to each point.
        """
        if self.scale_free:
            points = of_order_one(points)
        k = self.n_clusters if n_clusters is None else n_clusters
        if k is None and previous is not None and self.needs_number:
            k = len(np.unique(previous))
        if k is not None and self.takes_number:
            distinct = count_distinct(points, k + 1)
            if k > distinct and previous is None:
                raise InputError(
                    f"there cannot be more clusters than different samples, {distinct}",
                    f"{k} clusters",
                    "Ask for fewer.",
                )
            k = min(k, distinct)
            if k == 1:
                return np.zeros(len(points), dtype=np.int64)
            if k == distinct:
                return np.unique(points, axis=0, return_inverse=True)[1].reshape(-1)
        if len(points) <= self.max_samples:
            return self._checked(points, k, seed, previous)
        generator = np.random.default_rng(seed)
        part = np.sort(generator.choice(len(points), self.max_samples, replace=False))
        codes = np.full(len(points), -1)
        before = None if previous is None else previous[part]
        codes[part] = join_nearest(points[part], self._checked(points[part], k, seed, before), 1)
        return join_nearest(points, codes, _NEIGHBORS)

    def _checked(
        self, points: np.ndarray, k: int | None, seed: int, previous: np.ndarray | None
    ) -> np.ndarray:
        """What ``fit`` answers, as whole numbers."""
        try:
            codes = np.asarray(self.fit(points, k or 0, seed % 2**32, previous))
        except InputError:
            raise
        except ValueError as error:
            raise InputError(
                "the clusterer could not cluster these samples",
                error,
                "Change its options, or take another one.",
            ) from error
        if codes.shape != (len(points),) or codes.dtype.kind not in "biu":
            raise InputError(
                f"a clusterer must give a whole number to each of the {len(points)} samples",
                f"{codes.dtype} of shape {codes.shape}",
                "Check what it returns.",
            )
        return codes.astype(np.int64)

    def _check_options(self) -> None:
        """For the ``__post_init__`` of clusterers with options."""
        check_count("max_samples", self.max_samples)
        if self.n_clusters is not None:
            check_count("n_clusters", self.n_clusters)


def of_order_one(points: np.ndarray) -> np.ndarray:
    """Points moved and scaled to entries in [−1, 1] around 0, so that no square overflows or
    vanishes.
    """
    points = points / (np.abs(points).max() or 1.0)
    points = points - points.mean(axis=0)
    return points / (np.abs(points).max() or 1.0)


def count_distinct(points: np.ndarray, most: int) -> int:
    """How many different points there are; counting ends at ``most``."""
    seen: set[bytes] = set()
    for row in points + 0.0:  # −0 is 0
        if len(seen) >= most:
            break
        seen.add(row.tobytes())
    return len(seen)


def join_nearest(points: np.ndarray, codes: np.ndarray, neighbors: int) -> np.ndarray:
    """Points without a cluster, −1, join that of most of their nearest neighbours that have one, if
    there are any.
    """
    from sklearn.neighbors import KNeighborsClassifier

    lost = codes < 0
    if not lost.any() or lost.all():
        return codes
    near = KNeighborsClassifier(min(neighbors, int((~lost).sum()))).fit(points[~lost], codes[~lost])
    codes = codes.copy()
    codes[lost] = near.predict(points[lost])
    return codes
