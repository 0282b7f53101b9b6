"""Methods that label a pool from a few samples, and the choice among them on held-out labels.

A method gives scores of samples from known labels. The choice uses scores of held-out labels alone, one
question after the other: the embedding, how far labels spread, the number of neighbours, and whether
the graph is refined.

Probabilities are calibrated by one temperature, fitted on held-out labels (Guo et al. 2017). Its
logarithm has a normal prior, which decides alone where no label can be held out.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from advect.apps.training import folds_of
from advect.classes.clustering import neighbor_graph, of_order_one
from advect.classes.embedding import points_of
from advect.classes.pseudo import one_hot, spread
from advect.data.dataset import LabeledDataset
from advect.spaces.images import layout

METHODS = ("propagate", "refine")
_MAX_FOLDS, _MAX_COLUMNS = 10, 100  # folds, and folds times classes
# of refinement: the share of most certain samples that are used, the weight of discriminant directions
# next to the points themselves, the shrinkage of covariances
_USED_SHARE, _WEIGHT, _SHRINKAGE = 0.7, 0.7, 0.5
# Set on parts of the training images of MNIST, USPS, KMNIST and Fashion-MNIST that no number of
# docs/results.md comes from; the first of each is tried first.
_ALPHAS, _ALPHA_SINGLE = (0.95, 0.99, 0.9), 0.99  # with one label of each class, labels spread far
_NEIGHBORS = (10, 5)
_MAX_COMPARED = 4000  # samples of a larger pool that methods are compared on
_MAX_REFINED = 10_000  # samples above which a graph for each fold takes too long
_MIN_SIDE = 8  # of images whose gradients are informative
_MIN_SCORE, _MIN_PROBABILITY = 1e-9, 1e-3  # shares of the uniform law: no class is impossible
_PRIOR_DEVIATION, _RANGE = 0.7, (-3.0, 3.0)  # of the logarithm of the temperature


@dataclass(frozen=True)
class LabelMethod:
    """A method, its embedding, and the settings of its graph."""

    method: str
    embedding: str
    neighbors: int = _NEIGHBORS[0]
    alpha: float = _ALPHAS[0]

    @property
    def prior_temperature(self) -> float:
        """The temperature that suited other data: scores are flatter, the farther labels spread."""
        return (1 - self.alpha) ** (0.2 if self.method == "refine" else 0.3)

    def __str__(self) -> str:
        graph = f"{self.neighbors} neighbors, alpha {self.alpha:g}"
        return f"{self.method} in {self.embedding}, {graph}"


@dataclass(frozen=True, eq=False)
class KnownLabels:
    """Class positions (n,) of k classes, −1 where unknown, and the folds in which they are held out."""

    codes: np.ndarray
    k: int
    seed: int = 0

    @cached_property
    def folds(self) -> np.ndarray:
        """The fold of each sample; −1 without a label, or with the only label of its class."""
        n_folds = max(2, min(_MAX_FOLDS, _MAX_COLUMNS // self.k))
        counts = np.bincount(self.codes[self.codes >= 0], minlength=self.k)
        repeated = (self.codes >= 0) & (counts[self.codes] > 1)
        folds = np.full(len(self.codes), -1)
        folds[repeated] = folds_of(self.codes[repeated], n_folds, self.seed)
        return folds

    @property
    def held_out(self) -> np.ndarray:
        """Samples that are held out once."""
        return np.flatnonzero(self.folds >= 0)


@dataclass(eq=False)
class Points:
    """Samples as points of one embedding, and their graphs by the number of neighbours."""

    points: np.ndarray
    graphs: dict[int, Any] = field(default_factory=dict)

    def graph(self, neighbors: int) -> Any:
        if neighbors not in self.graphs:
            self.graphs[neighbors] = neighbor_graph(self.points, neighbors)
        return self.graphs[neighbors]


def all_scores(method: LabelMethod, points: Points, codes: np.ndarray, k: int) -> np.ndarray:
    """Scores (n, k) of all samples from known labels, codes (n,) with −1 where unknown."""
    known = one_hot(codes, k)
    scores = spread(points.graph(method.neighbors), method.alpha, known)
    if method.method == "refine":
        refined = Points(_refined(points.points, np.where(codes[:, None] >= 0, known, scores)))
        scores = spread(refined.graph(method.neighbors), method.alpha, known)
    return scores


def held_out_scores(method: LabelMethod, points: Points, known: KnownLabels) -> np.ndarray:
    """Scores (m, k) of ``known.held_out``, each from the labels of other folds."""
    scores = np.zeros((len(known.codes), known.k))
    for fold in range(known.folds.max() + 1):
        held = known.folds == fold
        scores[held] = all_scores(method, points, np.where(held, -1, known.codes), known.k)[held]
    return scores[known.held_out]


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
    return of_order_one(np.hstack([_unit_norm(points), _unit_norm(directions) * _WEIGHT]))


def _unit_norm(points: np.ndarray) -> np.ndarray:
    """Points with mean squared norm 1."""
    return points / (np.sqrt(np.square(points).sum(axis=1).mean()) or 1.0)


@dataclass(frozen=True)
class Candidate:
    """A method with its accuracy and mean log-likelihood on held-out labels."""

    method: LabelMethod
    accuracy: float
    log_likelihood: float


@dataclass(eq=False)
class Comparison:
    """Methods on the held-out labels of one dataset; each embedding and method is computed once."""

    data: LabeledDataset
    known: KnownLabels
    embeddings: dict[str, Any]
    candidates: dict[LabelMethod, Candidate] = field(default_factory=dict)
    computed: dict[str, Points] = field(default_factory=dict)

    def points(self, embedding: str) -> Points:
        if embedding not in self.computed:
            points = points_of(self.data, self.embeddings[embedding], self.known.seed)
            self.computed[embedding] = Points(of_order_one(points))
        return self.computed[embedding]

    def best(self, methods: Sequence[LabelMethod]) -> LabelMethod:
        """The method with the highest likelihood of the held-out labels."""
        codes = self.known.codes[self.known.held_out]
        for method in methods:
            if method not in self.candidates:
                scores = held_out_scores(method, self.points(method.embedding), self.known)
                accuracy = float((scores.argmax(axis=1) == codes).mean())
                likelihood = log_likelihoods(scores, codes, method.prior_temperature).mean()
                self.candidates[method] = Candidate(method, accuracy, float(likelihood))
        return max(methods, key=lambda method: self.candidates[method].log_likelihood)


def choose_method(
    comparison: Comparison, method: str, n: int, advance: Callable[[int], None]
) -> tuple[LabelMethod, tuple[Candidate, ...]]:
    """The best method for n samples, and all that were compared, the best first."""
    embeddings = list(comparison.embeddings)
    first = "propagate" if method == "auto" else method
    may_refine = method == "auto" and n <= _MAX_REFINED
    if not len(comparison.known.held_out):
        advance(len(embeddings) + 1)
        name = "refine" if may_refine else first
        return LabelMethod(name, embeddings[0], alpha=_ALPHA_SINGLE), ()
    chosen = comparison.best([LabelMethod(first, embedding) for embedding in embeddings])
    advance(len(embeddings))
    chosen = comparison.best([replace(chosen, alpha=alpha) for alpha in _ALPHAS])
    chosen = comparison.best([replace(chosen, neighbors=count) for count in _NEIGHBORS])
    if may_refine:
        chosen = comparison.best([replace(chosen, method="refine"), chosen])
    advance(1)
    every = comparison.candidates.values()
    order = sorted(every, key=lambda each: (each.method != chosen, -each.log_likelihood))
    return chosen, tuple(order) if len(order) > 1 else ()


def embeddings_to_compare(data: LabeledDataset, embedding: Any) -> dict[str, Any]:
    """Embeddings by name; the first is used where there is nothing to choose by."""
    if embedding is None:
        return {"features": None}
    if embedding != "auto":
        plain = isinstance(embedding, (str, int, float))
        return {str(embedding) if plain else type(embedding).__name__: embedding}
    image = layout(data.sample_shape)
    if image is not None and min(image[1:]) >= _MIN_SIDE:
        return {"gradients": "gradients"}
    both = {"features": None, "standardized columns": "standardized"}
    return both if data.columns is None else dict(reversed(both.items()))


def part_to_compare(data: LabeledDataset, known: KnownLabels) -> tuple[LabeledDataset, KnownLabels]:
    """All known labels, and as many other samples as can be compared quickly."""
    if len(data) <= _MAX_COMPARED or not len(known.held_out):
        return data, known
    labeled, rest = np.flatnonzero(known.codes >= 0), np.flatnonzero(known.codes < 0)
    size = max(0, min(len(rest), _MAX_COMPARED - len(labeled)))
    drawn = np.random.default_rng(known.seed).choice(rest, size, replace=False)
    rows = np.sort(np.concatenate([labeled, drawn]))
    return data.subset(rows), KnownLabels(known.codes[rows], known.k, known.seed)


@dataclass(frozen=True, eq=False)
class Calibration:
    """The temperature (scores p become p^(1/temperature)), and on held-out labels, if any, the accuracy
    with its 95 % interval (Wilson).
    """

    temperature: float
    n_held_out: int = 0
    accuracy: float | None = None
    interval: tuple[float, float] | None = None

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """Probabilities (n, k) of scores whose rows sum to one."""
        return _scaled(scores, self.temperature)


def calibrated(scores: np.ndarray, codes: np.ndarray, prior: float = 1.0) -> Calibration:
    """Fit the temperature of scores (m, k) to true class positions (m,); ``prior`` is the expected
    temperature.

    Example:
        >>> scores = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
        >>> found = calibrated(scores, np.array([0, 0, 1, 1]))
        >>> found.accuracy, [round(end, 2) for end in found.interval]
        (0.75, [0.3, 0.95])
    """
    n = len(codes)
    if not n:
        return Calibration(prior)
    right = int((scores.argmax(axis=1) == codes).sum())  # a temperature does not change the order
    return Calibration(_fitted(scores, codes, prior), n, right / n, wilson(right, n))


def log_likelihoods(scores: np.ndarray, codes: np.ndarray, prior: float = 1.0) -> np.ndarray:
    """Log probabilities of the true classes at the fitted temperature, (m,)."""
    return np.log(_scaled(scores, _fitted(scores, codes, prior))[np.arange(len(codes)), codes])


def wilson(right: int, n: int) -> tuple[float, float]:
    """95 % interval of a share of ``right`` among n (Wilson)."""
    from scipy.stats import binomtest

    interval = binomtest(right, n).proportion_ci(method="wilson")
    return float(interval.low), float(interval.high)


def _fitted(scores: np.ndarray, codes: np.ndarray, prior: float) -> float:
    from scipy.optimize import minimize_scalar

    def loss(log_temperature: float) -> float:
        probabilities = _scaled(scores, math.exp(log_temperature))
        penalty = ((log_temperature - math.log(prior)) / _PRIOR_DEVIATION) ** 2 / 2
        return penalty - float(np.log(probabilities[np.arange(len(codes)), codes]).sum())

    return math.exp(minimize_scalar(loss, bounds=_RANGE, method="bounded").x)


def _scaled(scores: np.ndarray, temperature: float) -> np.ndarray:
    logs = np.log(scores + _MIN_SCORE) / temperature
    powers = np.exp(logs - logs.max(axis=1, keepdims=True))
    sums = powers.sum(axis=1, keepdims=True)
    return (1 - _MIN_PROBABILITY) * powers / sums + _MIN_PROBABILITY / scores.shape[1]
