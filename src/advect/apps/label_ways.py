"""Ways to label a pool from a few samples, each of which also answers for labels that it was not
shown.

A way gives two tables of scores whose rows sum to one: of all samples, from all known labels; and
of known labels that were held out, from the others. Which way suits the data is a question for the
second table alone."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from advect.classes.clustering import of_order_one
from advect.classes.neighbor_graph import neighbor_graph
from advect.classes.spread import degree_roots, one_hot, solved, spread

METHODS = ("propagate", "refine", "nearest", "logistic")
GRAPHS = ("propagate", "refine")  # methods over a graph
_FOLDS, _COLUMNS = 10, 100  # at most: folds, and folds times classes
_PENALTY = 1.0  # C of the logistic regression
# of refinement: the share of surest samples whose labels count, the weight of directions that tell
# these apart beside the points themselves, the shrinkage of covariances
_SUREST, _WEIGHT, _SHRINKAGE = 0.7, 0.7, 0.5


@dataclass(frozen=True)
class Way:
    """One way: a method, where distances are measured, and the settings of its graph.

    Example:
        >>> str(Way("propagate", "gradients", 10, 0.99)), str(Way("nearest", "features"))
        ('propagate in gradients, 10 neighbors, alpha 0.99', 'nearest in features')
    """

    method: str
    embedding: str
    neighbors: int | None = None
    alpha: float | None = None

    @property
    def usual_temperature(self) -> float:
        """What its scores were too flat by on other data: the farther labels spread, the more they
        mix, and refinement parts them again.
        """
        if self.alpha is not None:
            return (1 - self.alpha) ** (0.2 if self.method == "refine" else 0.3)
        return {"nearest": 0.2, "logistic": 0.8}[self.method]

    def __str__(self) -> str:
        graph = f", {self.neighbors} neighbors, alpha {self.alpha:g}" if self.alpha else ""
        return f"{self.method} in {self.embedding}{graph}"


@dataclass(frozen=True, eq=False)
class Known:
    """The known labels among n samples, and how they are held out: one fold after the other, with
    labels of all classes in each.

    Attributes:
        codes: (n,) positions of classes, −1 where unknown.  k: how many classes.
        seed: of the order in which labels are held out.
    """

    codes: np.ndarray
    k: int
    seed: int = 0

    @cached_property
    def rows(self) -> np.ndarray:
        """Samples with labels."""
        return np.flatnonzero(self.codes >= 0)

    @cached_property
    def folds(self) -> np.ndarray:
        """The fold of each sample, −1 for those that are never held out: without a label, or the
        only one of its class.
        """
        folds = np.full(len(self.codes), -1)
        generator = np.random.default_rng(self.seed)
        most = max(2, min(_FOLDS, _COLUMNS // self.k))
        for code in range(self.k):
            members = generator.permutation(np.flatnonzero(self.codes == code))
            if len(members) > 1:
                folds[members] = np.arange(len(members)) % most
        return folds

    @cached_property
    def held(self) -> np.ndarray:
        """Samples that are held out once."""
        return np.flatnonzero(self.folds >= 0)

    def without(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(held-out samples, codes without theirs) for each fold."""
        for fold in range(self.folds.max() + 1):
            out = self.folds == fold
            yield np.flatnonzero(out), np.where(out, -1, self.codes)


@dataclass(eq=False)
class Points:
    """Samples as points of one embedding, and their graphs, each made once."""

    points: np.ndarray
    graphs: dict[int, Any] = field(default_factory=dict)

    def graph(self, neighbors: int) -> Any:
        """The locally scaled graph of nearest neighbours."""
        if neighbors not in self.graphs:
            self.graphs[neighbors] = neighbor_graph(self.points, neighbors, local=True)
        return self.graphs[neighbors]


def held_out(way: Way, points: Points, known: Known) -> np.ndarray:
    """Scores (m, k) of ``known.held``, each from the labels of other folds."""
    if way.method == "propagate":
        return _held_out_spread(way, points, known)
    scores = np.zeros((len(known.codes), known.k))
    for rows, codes in known.without():
        scores[rows] = _from_labels(way, points, codes, known.k, rows)
    return scores[known.held]


def scored(way: Way, points: Points, known: Known) -> np.ndarray:
    """Scores (n, k) of all samples from all known labels."""
    return _from_labels(way, points, known.codes, known.k, np.arange(len(known.codes)))


def _from_labels(
    way: Way, points: Points, codes: np.ndarray, k: int, rows: np.ndarray
) -> np.ndarray:
    """Scores (len(rows), k) of some samples from these labels."""
    if way.method not in GRAPHS:
        return _direct(way, points.points, codes, k, rows)
    assert way.neighbors and way.alpha
    start = one_hot(codes, k)
    scores = spread(points.graph(way.neighbors), way.alpha, start)
    if way.method == "refine":
        near = Points(_refined(points.points, np.where(codes[:, None] >= 0, start, scores)))
        scores = spread(near.graph(way.neighbors), way.alpha, start)
    return scores[rows]


def _refined(points: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """The points, beside their coordinates in the directions that best tell apart the surest
    samples of each class (linear discriminant analysis).

    One step of self-training: a graph of these joins fewer samples of different classes."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    codes, sure = scores.argmax(axis=1), scores.max(axis=1)
    used = np.zeros(len(codes), dtype=bool)
    for code in np.unique(codes):
        members = np.flatnonzero(codes == code)
        surest = members[np.argsort(-sure[members], kind="stable")]
        used[surest[: max(2, round(_SUREST * len(members)))]] = True
    model = LinearDiscriminantAnalysis(solver="eigen", shrinkage=_SHRINKAGE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # classes of one sample
        try:
            beside = model.fit(points[used], codes[used]).transform(points)
        except (np.linalg.LinAlgError, ValueError):  # classes of points that do not differ
            return points
    parts = (points, 1.0), (beside, _WEIGHT)
    return of_order_one(np.concatenate([_unit(one) * weight for one, weight in parts], axis=1))


def _unit(points: np.ndarray) -> np.ndarray:
    """Points of mean squared norm 1."""
    return points / (np.sqrt(np.square(points).sum(axis=1).mean()) or 1.0)


def _held_out_spread(way: Way, points: Points, known: Known) -> np.ndarray:
    """Scores are sums over labels: those of each fold are solved for once, and left out in turn."""
    assert way.neighbors and way.alpha
    graph, last = points.graph(way.neighbors), known.folds.max() + 1
    parts = [one_hot(np.where(known.folds == f, known.codes, -1), known.k) for f in range(-1, last)]
    right = np.concatenate(parts, axis=1)  # (n, folds · k), the first fold never held out
    used = right.any(axis=0)
    columns = np.zeros_like(right)
    columns[:, used] = solved(graph, degree_roots(graph), way.alpha, right[:, used], tol=1e-9)
    columns = columns.reshape(len(right), last + 1, known.k)
    whole, scores = columns.sum(axis=1), np.zeros((len(right), known.k))
    for fold in range(last):
        rows = known.folds == fold
        rest = (whole - columns[:, fold + 1]).clip(min=0)
        scores[rows] = (rest / np.where(rest.sum(axis=0) > 0, rest.sum(axis=0), 1.0))[rows]
    scores, sums = scores[known.held], scores[known.held].sum(axis=1, keepdims=True)
    return np.where(sums > 0, scores / np.where(sums > 0, sums, 1.0), 1 / known.k)


def _direct(
    way: Way, points: np.ndarray, codes: np.ndarray, k: int, rows: np.ndarray
) -> np.ndarray:
    """Scores (len(rows), k) by the labeled samples alone."""
    shots = np.flatnonzero(codes >= 0)
    if len(np.unique(codes[shots])) == 1:
        return np.broadcast_to(one_hot(codes[shots[:1]], k), (len(rows), k))
    method = {"nearest": _nearest, "logistic": _logistic}[way.method]
    return method(points[shots], codes[shots], points[rows], k)


def _nearest(shots: np.ndarray, codes: np.ndarray, points: np.ndarray, k: int) -> np.ndarray:
    """exp(−d²/s) of the nearest sample of each class, with the mean d² between labeled samples as
    s.
    """
    from sklearn.neighbors import NearestNeighbors

    squares = np.full((len(points), k), np.inf)
    for code in np.unique(codes):
        near = NearestNeighbors(n_neighbors=1).fit(shots[codes == code])
        squares[:, code] = near.kneighbors(points)[0][:, 0] ** 2
    scale = 2 * np.square(shots - shots.mean(axis=0)).sum(axis=1).mean() or 1.0
    powers = np.exp((squares.min(axis=1, keepdims=True) - squares) / scale)
    return powers / powers.sum(axis=1, keepdims=True)


def _logistic(shots: np.ndarray, codes: np.ndarray, points: np.ndarray, k: int) -> np.ndarray:
    """Logistic regression on points of mean square 1."""
    from sklearn.linear_model import LogisticRegression

    scale = np.sqrt(np.square(shots).sum(axis=1).mean() / shots.shape[1]) or 1.0
    model = LogisticRegression(C=_PENALTY, max_iter=2000).fit(shots / scale, codes)
    scores = np.zeros((len(points), k))
    scores[:, model.classes_] = model.predict_proba(points / scale)
    return scores
