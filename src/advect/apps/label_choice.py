"""Which way to label a pool: candidates compared on known labels that are held out, one question
after the other: where distances are measured and by which method; how far labels spread; how many
neighbours; whether the graph is refined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from advect._util.checks import check_count, check_positive
from advect.apps.calibration import log_likelihoods
from advect.apps.label_ways import GRAPHS, METHODS, Known, Points, Way, held_out
from advect.classes.clustering import of_order_one
from advect.classes.embedding import Embedded, points_of
from advect.data.dataset import LabeledDataset
from advect.data.spaces.images import layout
from advect.errors import InputError

# Frozen on parts of the training images of MNIST, USPS, KMNIST and Fashion-MNIST that no figure of
# docs/results.md comes from; the first of each is taken where there is nothing to choose by.
_ALPHAS, _ALONE = (0.95, 0.99, 0.9), 0.99  # labels of one sample a class have to go far
_NEIGHBORS = (10, 5)
_COMPARED_ON = 4000  # samples, of a larger pool
_REFINED = 10_000  # samples, above which a graph for each fold takes too long
_SMALLEST = 8  # side of images whose gradients say something


@dataclass(frozen=True)
class Compared:
    """A way and how it did on held-out labels: the share that came out right, and the mean
    logarithm of the probability of what is true.

    Example:
        >>> Compared(Way("nearest", "features"), 0.8, -0.5).accuracy
        0.8
    """

    way: Way
    accuracy: float
    log_likelihood: float


@dataclass(eq=False)
class Ways:
    """The candidates for one dataset; points are made once for each embedding and part of the
    data.
    """

    embeddings: dict[str, Any]
    methods: Sequence[str]
    neighbors: Sequence[int]
    alphas: Sequence[float]
    kept: dict[tuple[str, int], Points] = field(default_factory=dict)

    @property
    def n_stages(self) -> int:
        return len(self.embeddings) + 1

    def points(self, way: Way, data: LabeledDataset, seed: int) -> Points:
        key = way.embedding, len(data)
        if key not in self.kept:
            points = points_of(data, self.embeddings[way.embedding], seed)
            self.kept[key] = Points(of_order_one(points))
        return self.kept[key]


def ways_for(
    data: LabeledDataset,
    embedding: Embedded,
    method: str,
    neighbors: int | None,
    alpha: float | None,
) -> Ways:
    """The candidates that the options leave open."""
    if alpha is not None and check_positive("alpha", alpha) >= 1:
        raise InputError(
            "alpha must lie between 0 and 1", alpha, "0.99 spreads labels far, 0.5 stays near them."
        )
    single = int(np.bincount(data.y[data.labeled].cpu().numpy()).max()) == 1
    alphas = (_ALONE,) if single else _ALPHAS
    methods = [name for name in METHODS if name != "refine" or len(data) <= _REFINED]
    return Ways(
        _embeddings(data, embedding),
        methods if method == "auto" else (method,),
        _NEIGHBORS if neighbors is None else (check_count("neighbors", neighbors),),
        alphas if alpha is None else (alpha,),
    )


def _embeddings(data: LabeledDataset, embedding: Embedded) -> dict[str, Any]:
    """Embeddings to compare by name, the one to take unseen first."""
    if embedding is None:
        return {"features": None}
    if not (isinstance(embedding, str) and embedding == "auto"):
        return {_name(embedding): embedding}
    picture = layout(data.sample_shape)
    if picture is not None and min(picture[1:]) >= _SMALLEST:
        return {"gradients": "gradients", "principal components": "auto"}
    if data.columns is not None:
        return {"standardized columns": "standardized", "features": None}
    return {"features": None, "standardized columns": "standardized"}


def _name(embedding: Any) -> str:
    match embedding:
        case str() | Path():
            return Path(embedding).name
        case int() | float():
            count = f"{embedding}" if embedding >= 1 else f"{embedding:.0%} of the variance in"
            return f"{count} principal components"
    return getattr(embedding, "__name__", type(embedding).__name__)


def choose(
    data: LabeledDataset, known: Known, ways: Ways, seed: int, advance: Callable[[int], None]
) -> tuple[Way, tuple[Compared, ...]]:
    """The way to take, and all that were compared, the best first."""
    neighbors, alpha = ways.neighbors[0], ways.alphas[0]
    names, methods = list(ways.embeddings), list(ways.methods)
    refines = "refine" in methods
    if not len(known.held):
        advance(ways.n_stages)
        return _way("refine" if refines else methods[0], names[0], neighbors, alpha), ()
    if len(methods) > 1:  # what refines is compared with what it refines, last
        methods = [method for method in methods if method != "refine"]
    first = [_way(method, name, neighbors, alpha) for name in names for method in methods]
    data, known = _part(data, known, seed)
    seen: dict[Way, np.ndarray] = {}

    def best(candidates: Sequence[Way]) -> Way:
        for way in candidates:
            if way not in seen:
                seen[way] = held_out(way, ways.points(way, data, seed), known)
        return max(candidates, key=lambda way: _compared(way, seen[way], known).log_likelihood)

    leaders = []
    for name in names:
        leaders.append(best([way for way in first if way.embedding == name]))
        advance(1)
    way = best(leaders)
    if way.method in GRAPHS:
        way = best([replace(way, alpha=alpha) for alpha in ways.alphas])
        way = best([replace(way, neighbors=neighbors) for neighbors in ways.neighbors])
    if way.method == "propagate" and refines:
        way = best([replace(way, method="refine"), way])
    advance(1)
    found = sorted(
        (_compared(other, seen[other], known) for other in seen),
        key=lambda one: (one.way != way, -one.log_likelihood),
    )
    return way, tuple(found) if len(found) > 1 else ()


def _way(method: str, name: str, neighbors: int, alpha: float) -> Way:
    return Way(method, name, neighbors, alpha) if method in GRAPHS else Way(method, name)


def _compared(way: Way, scores: np.ndarray, known: Known) -> Compared:
    codes = known.codes[known.held]
    right = float((scores.argmax(axis=1) == codes).mean())
    likely = float(log_likelihoods(scores, codes, way.usual_temperature).mean())
    return Compared(way, right, likely)


def _part(data: LabeledDataset, known: Known, seed: int) -> tuple[LabeledDataset, Known]:
    """All known labels, and so many of the other samples that ways are compared quickly."""
    if len(data) <= _COMPARED_ON:
        return data, known
    rest = np.flatnonzero(known.codes < 0)
    size = max(0, min(len(rest), _COMPARED_ON - len(known.rows)))
    drawn = np.random.default_rng(seed).choice(rest, size, replace=False)
    rows = np.sort(np.concatenate([known.rows, drawn]))
    return data.subset(rows), Known(known.codes[rows], known.k, known.seed)
