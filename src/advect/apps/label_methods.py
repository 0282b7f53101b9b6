"""Methods that label a pool from a few samples, and the choice among them on held-out labels.

A method returns scores of all samples from all known labels, and scores of held-out labels from the
others. The choice uses the second table alone, one question after the other: the embedding and the
method, how far labels spread, the number of neighbours, and whether the graph is refined.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from advect._util.checks import check_count
from advect.apps.calibration import log_likelihoods
from advect.classes.clustering import neighbor_graph, of_order_one
from advect.classes.embedding import points_of
from advect.classes.spread import degree_roots, one_hot, solved, spread
from advect.data.dataset import LabeledDataset
from advect.spaces.images import layout

METHODS = ("propagate", "refine", "nearest", "logistic")
_GRAPH_METHODS = ("propagate", "refine")
_MAX_FOLDS, _MAX_COLUMNS = 10, 100  # folds, and folds times classes
_PENALTY = 1.0  # C of the logistic regression
# of refinement: the share of most certain samples that are used, the weight of discriminant directions
# next to the points themselves, the shrinkage of covariances
_USED_SHARE, _WEIGHT, _SHRINKAGE = 0.7, 0.7, 0.5
# Set on parts of the training images of MNIST, USPS, KMNIST and Fashion-MNIST that no number of
# docs/results.md comes from; the first of each is used where there is nothing to choose by.
_ALPHAS, _ALPHA_SINGLE = (0.95, 0.99, 0.9), 0.99  # with one label of each class, labels spread far
_NEIGHBORS = (10, 5)
_MAX_COMPARED = 4000  # samples of a larger pool that methods are compared on
_MAX_REFINED = 10_000  # samples above which a graph for each fold takes too long
_MIN_SIDE = 8  # of images whose gradients are informative


@dataclass(frozen=True)
class LabelMethod:
    """A method, its embedding, and the settings of its graph."""

    method: str
    embedding: str
    neighbors: int | None = None
    alpha: float | None = None

    @property
    def prior_temperature(self) -> float:
        """The temperature that suited other data: scores are flatter, the farther labels spread."""
        if self.alpha is not None:
            return (1 - self.alpha) ** (0.2 if self.method == "refine" else 0.3)
        return {"nearest": 0.2, "logistic": 0.8}[self.method]

    def __str__(self) -> str:
        graph = f", {self.neighbors} neighbors, alpha {self.alpha:g}" if self.alpha else ""
        return f"{self.method} in {self.embedding}{graph}"


@dataclass(frozen=True, eq=False)
class KnownLabels:
    """Class positions (n,) of k classes, −1 where unknown, and the folds in which they are held out."""

    codes: np.ndarray
    k: int
    seed: int = 0

    @cached_property
    def rows(self) -> np.ndarray:
        """Samples with labels."""
        return np.flatnonzero(self.codes >= 0)

    @cached_property
    def folds(self) -> np.ndarray:
        """The fold of each sample; −1 without a label, or with the only label of its class."""
        folds = np.full(len(self.codes), -1)
        generator = np.random.default_rng(self.seed)
        n_folds = max(2, min(_MAX_FOLDS, _MAX_COLUMNS // self.k))
        for code in range(self.k):
            members = generator.permutation(np.flatnonzero(self.codes == code))
            if len(members) > 1:
                folds[members] = np.arange(len(members)) % n_folds
        return folds

    @cached_property
    def held_out(self) -> np.ndarray:
        """Samples that are held out once."""
        return np.flatnonzero(self.folds >= 0)

    def without_folds(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(held-out samples, codes without theirs) for each fold."""
        for fold in range(self.folds.max() + 1):
            out = self.folds == fold
            yield np.flatnonzero(out), np.where(out, -1, self.codes)


@dataclass(eq=False)
class Points:
    """Samples as points of one embedding, and their graphs by the number of neighbours."""

    points: np.ndarray
    graphs: dict[int, Any] = field(default_factory=dict)

    def graph(self, neighbors: int) -> Any:
        if neighbors not in self.graphs:
            self.graphs[neighbors] = neighbor_graph(self.points, neighbors, local=True)
        return self.graphs[neighbors]


def held_out_scores(method: LabelMethod, points: Points, known: KnownLabels) -> np.ndarray:
    """Scores (m, k) of ``known.held_out``, each from the labels of other folds."""
    if method.method == "propagate":
        return _held_out_spread(method, points, known)
    scores = np.zeros((len(known.codes), known.k))
    for rows, codes in known.without_folds():
        scores[rows] = _from_labels(method, points, codes, known.k, rows)
    return scores[known.held_out]


def all_scores(method: LabelMethod, points: Points, known: KnownLabels) -> np.ndarray:
    """Scores (n, k) of all samples from all known labels."""
    return _from_labels(method, points, known.codes, known.k, np.arange(len(known.codes)))


def _from_labels(
    method: LabelMethod, points: Points, codes: np.ndarray, k: int, rows: np.ndarray
) -> np.ndarray:
    """Scores (len(rows), k) of some samples from these labels."""
    if method.method not in _GRAPH_METHODS:
        return _direct(method.method, points.points, codes, k, rows)
    assert method.neighbors and method.alpha
    start = one_hot(codes, k)
    scores = spread(points.graph(method.neighbors), method.alpha, start)
    if method.method == "refine":
        refined = Points(_refined(points.points, np.where(codes[:, None] >= 0, start, scores)))
        scores = spread(refined.graph(method.neighbors), method.alpha, start)
    return scores[rows]


def _refined(points: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """The points and their coordinates in the discriminant directions of the most certain samples."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    codes, confidence = scores.argmax(axis=1), scores.max(axis=1)
    used = np.zeros(len(codes), dtype=bool)
    for code in np.unique(codes):
        members = np.flatnonzero(codes == code)
        ordered = members[np.argsort(-confidence[members], kind="stable")]
        used[ordered[: max(2, round(_USED_SHARE * len(members)))]] = True
    model = LinearDiscriminantAnalysis(solver="eigen", shrinkage=_SHRINKAGE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # classes of one sample
        try:
            directions = model.fit(points[used], codes[used]).transform(points)
        except (np.linalg.LinAlgError, ValueError):  # classes of points that do not differ
            return points
    parts = [_unit_norm(points), _unit_norm(directions) * _WEIGHT]
    return of_order_one(np.concatenate(parts, axis=1))


def _unit_norm(points: np.ndarray) -> np.ndarray:
    """Points with mean squared norm 1."""
    return points / (np.sqrt(np.square(points).sum(axis=1).mean()) or 1.0)


def _held_out_spread(method: LabelMethod, points: Points, known: KnownLabels) -> np.ndarray:
    """Scores are sums over labels: those of each fold are solved for once, and left out in turn."""
    assert method.neighbors and method.alpha
    graph, last = points.graph(method.neighbors), known.folds.max() + 1
    parts = [one_hot(np.where(known.folds == f, known.codes, -1), known.k) for f in range(-1, last)]
    right = np.concatenate(parts, axis=1)  # (n, folds · k); the first fold is never held out
    used = right.any(axis=0)
    columns = np.zeros_like(right)
    columns[:, used] = solved(graph, degree_roots(graph), method.alpha, right[:, used], tol=1e-9)
    columns = columns.reshape(len(right), last + 1, known.k)
    whole, scores = columns.sum(axis=1), np.zeros((len(right), known.k))
    for fold in range(last):
        rows = known.folds == fold
        rest = (whole - columns[:, fold + 1]).clip(min=0)
        scores[rows] = (rest / np.where(rest.sum(axis=0) > 0, rest.sum(axis=0), 1.0))[rows]
    scores = scores[known.held_out]
    sums = scores.sum(axis=1, keepdims=True)
    return np.where(sums > 0, scores / np.where(sums > 0, sums, 1.0), 1 / known.k)


def _direct(
    method: str, points: np.ndarray, codes: np.ndarray, k: int, rows: np.ndarray
) -> np.ndarray:
    """Scores (len(rows), k) by the labeled samples alone."""
    shots = np.flatnonzero(codes >= 0)
    if len(np.unique(codes[shots])) == 1:
        return np.broadcast_to(one_hot(codes[shots[:1]], k), (len(rows), k))
    function = _nearest if method == "nearest" else _logistic
    return function(points[shots], codes[shots], points[rows], k)


def _nearest(shots: np.ndarray, codes: np.ndarray, points: np.ndarray, k: int) -> np.ndarray:
    """exp(−d²/s) of the nearest sample of each class, with s the mean d² between labeled samples."""
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


@dataclass(frozen=True)
class Candidate:
    """A method with its accuracy and mean log-likelihood on held-out labels."""

    method: LabelMethod
    accuracy: float
    log_likelihood: float


@dataclass(eq=False)
class Candidates:
    """The methods to compare on one dataset. Points are computed once for each embedding."""

    embeddings: dict[str, Any]
    methods: Sequence[str]
    neighbors: Sequence[int]
    alphas: Sequence[float]
    seed: int
    cached: dict[tuple[str, int], Points] = field(default_factory=dict)

    @classmethod
    def of(
        cls, data: LabeledDataset, embedding: Any, method: str, neighbors: int | None, seed: int
    ) -> Candidates:
        single = int(np.bincount(data.y[data.labeled].cpu().numpy()).max()) == 1
        methods = [name for name in METHODS if name != "refine" or len(data) <= _MAX_REFINED]
        return cls(
            _embeddings(data, embedding),
            methods if method == "auto" else (method,),
            _NEIGHBORS if neighbors is None else (check_count("neighbors", neighbors),),
            (_ALPHA_SINGLE,) if single else _ALPHAS,
            seed,
        )

    @property
    def n_stages(self) -> int:
        return len(self.embeddings) + 1

    def points(self, method: LabelMethod, data: LabeledDataset) -> Points:
        key = method.embedding, len(data)
        if key not in self.cached:
            points = points_of(data, self.embeddings[method.embedding], self.seed)
            self.cached[key] = Points(of_order_one(points))
        return self.cached[key]

    def first(self, method: str, embedding: str) -> LabelMethod:
        graph = method in _GRAPH_METHODS
        settings = (self.neighbors[0], self.alphas[0]) if graph else (None, None)
        return LabelMethod(method, embedding, *settings)

    def choose(
        self, data: LabeledDataset, known: KnownLabels, advance: Callable[[int], None]
    ) -> tuple[LabelMethod, tuple[Candidate, ...]]:
        """The best method, and all that were compared, the best first."""
        names, methods = list(self.embeddings), list(self.methods)
        refines = "refine" in methods
        if not len(known.held_out):
            advance(self.n_stages)
            return self.first("refine" if refines else methods[0], names[0]), ()
        if len(methods) > 1:  # refinement is compared with what it refines, last
            methods = [method for method in methods if method != "refine"]
        data, known = _part(data, known, self.seed)
        codes = known.codes[known.held_out]
        seen: dict[LabelMethod, Candidate] = {}

        def best(candidates: Sequence[LabelMethod]) -> LabelMethod:
            for one in candidates:
                if one not in seen:
                    scores = held_out_scores(one, self.points(one, data), known)
                    accuracy = float((scores.argmax(axis=1) == codes).mean())
                    likely = log_likelihoods(scores, codes, one.prior_temperature).mean()
                    seen[one] = Candidate(one, accuracy, float(likely))
            return max(candidates, key=lambda one: seen[one].log_likelihood)

        leaders = []
        for name in names:
            leaders.append(best([self.first(method, name) for method in methods]))
            advance(1)
        chosen = best(leaders)
        if chosen.method in _GRAPH_METHODS:
            chosen = best([replace(chosen, alpha=alpha) for alpha in self.alphas])
            chosen = best([replace(chosen, neighbors=count) for count in self.neighbors])
        if chosen.method == "propagate" and refines:
            chosen = best([replace(chosen, method="refine"), chosen])
        advance(1)
        order = sorted(seen.values(), key=lambda one: (one.method != chosen, -one.log_likelihood))
        return chosen, tuple(order) if len(order) > 1 else ()


def _embeddings(data: LabeledDataset, embedding: Any) -> dict[str, Any]:
    """Embeddings to compare by name; the first is used where there is nothing to choose by."""
    if embedding is None:
        return {"features": None}
    if not (isinstance(embedding, str) and embedding == "auto"):
        return {_embedding_name(embedding): embedding}
    image = layout(data.sample_shape)
    if image is not None and min(image[1:]) >= _MIN_SIDE:
        return {"gradients": "gradients", "principal components": "auto"}
    both = {"features": None, "standardized columns": "standardized"}
    return both if data.columns is None else dict(reversed(both.items()))


def _embedding_name(embedding: Any) -> str:
    match embedding:
        case str() | Path():
            return Path(embedding).name
        case int() | float():
            count = f"{embedding}" if embedding >= 1 else f"{embedding:.0%} of the variance in"
            return f"{count} principal components"
    return getattr(embedding, "__name__", type(embedding).__name__)


def _part(
    data: LabeledDataset, known: KnownLabels, seed: int
) -> tuple[LabeledDataset, KnownLabels]:
    """All known labels, and as many other samples as can be compared quickly."""
    if len(data) <= _MAX_COMPARED:
        return data, known
    rest = np.flatnonzero(known.codes < 0)
    size = max(0, min(len(rest), _MAX_COMPARED - len(known.rows)))
    drawn = np.random.default_rng(seed).choice(rest, size, replace=False)
    rows = np.sort(np.concatenate([known.rows, drawn]))
    return data.subset(rows), KnownLabels(known.codes[rows], known.k, known.seed)
