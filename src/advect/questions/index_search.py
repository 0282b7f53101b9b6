"""The search of an index: all vectors are compared, and the best few put in order by exact distances
between samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from advect._util.checks import check_count, check_known
from advect._util.progress import Progress, track
from advect.cost import GroundCost, NoLabels
from advect.data.dataset import LabeledDataset
from advect.data.spaces import FeatureSpace
from advect.errors import InputError
from advect.ot import ExactOT, Solver
from advect.ot.solver import check_solver
from advect.questions.embedding import DatasetEmbedding
from advect.questions.embedding_sketch import EmbeddingSketch
from advect.questions.index_entry import Entry
from advect.questions.into_space import in_space
from advect.questions.neighbors import Neighbor, Neighbors
from advect.transport.distance import otdd

_FEW = 500  # samples of a query where an index keeps none of its own


class Searched(Protocol):
    """What a search asks of an index."""

    space: FeatureSpace
    keep: int

    @property
    def label_weight(self) -> float: ...
    def entry(self, name: str) -> Entry: ...
    def entries(self) -> list[Entry]: ...
    def drawn(self, inside: LabeledDataset, most: int) -> LabeledDataset: ...
    def measured(
        self,
        data: LabeledDataset | EmbeddingSketch,
        sample: LabeledDataset | None,
        keep: int | None = None,
    ) -> tuple[DatasetEmbedding, LabeledDataset | None]: ...


def find_nearest(
    index: Searched,
    data: LabeledDataset | EmbeddingSketch | str,
    k: int,
    rerank: int,
    references: Mapping[str, LabeledDataset],
    solver: Solver | None,
    progress: Progress,
) -> Neighbors:
    """What ``DatasetIndex.nearest`` gives."""
    k, rerank = check_count("k", k), check_count("rerank", rerank, least=0)
    solver, most = check_solver(solver or ExactOT()), index.keep or _FEW
    if isinstance(data, str):
        own = index.entry(data)
        embedding, sample = own.embedding, own.sample() if rerank else None
        others = [entry for entry in index.entries() if entry.name != own.name]
    else:
        embedding, sample = index.measured(data, None, keep=most)
        others = index.entries()
    if not others:
        raise InputError("the index has no other datasets", len(others), "Add some first.")
    for name in references:
        check_known("dataset of the index", name, [entry.name for entry in others])
    apart = [entry.embedding.distance(embedding) for entry in others]
    best = [others[at] for at in np.argsort(apart, kind="stable")]
    exact: dict[str, float] = {}
    if rerank and sample is not None:
        best = best[: max(k, rerank)]
        cost = _cost(index.label_weight)
        with track(len(best), "exact distances", progress) as advance:
            for entry in best:
                given = references.get(entry.name)
                there = entry.sample() if given is None else in_space(index.space, given)
                if there is not None:
                    there = index.drawn(there, most)
                    exact[entry.name] = otdd(sample, there, cost=cost, solver=solver).value
                advance(1)
    order = _reordered(best, exact)[:k]
    rows = [_neighbor(entry, embedding, exact.get(entry.name)) for entry in order]
    return Neighbors(tuple(rows), len(exact))


def _cost(label_weight: float) -> GroundCost:
    return GroundCost(label_weight=label_weight) if label_weight else GroundCost(label=NoLabels())


def _reordered(best: list[Entry], exact: dict[str, float]) -> list[Entry]:
    """Those with exact distances in their order, in the places that they have together."""
    places = [at for at, entry in enumerate(best) if entry.name in exact]
    by_exact = sorted((best[at] for at in places), key=lambda entry: exact[entry.name])
    order = list(best)
    for at, entry in zip(places, by_exact, strict=True):
        order[at] = entry
    return order


def _neighbor(entry: Entry, embedding: DatasetEmbedding, exact: float | None) -> Neighbor:
    of = entry.embedding
    low, high = of.bounds(embedding)
    return Neighbor(entry.name, of.distance(embedding), low, high, exact, of.n, of.classes)
