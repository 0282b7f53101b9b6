"""The distances between all pairs of several labeled datasets (paper, eq. 5), by as many workers as
there are.

Each pair is a job of its own: see ``_jobs`` for what happens to results and errors. What is known
about one dataset alone, its label laws and the distances between them, is found once in each worker
and used for all of its pairs. The self terms OT(A, A) are solved for each pair, since a relative
epsilon belongs to the pair."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from torch import Tensor

from advect import datasets as references
from advect._util.checks import check_kind
from advect._util.jobs import Job, jobs_at_once, run_jobs
from advect._util.memory import MemoryLimit, ScaleWarning, as_bytes
from advect._util.progress import Progress, time_left
from advect.apps.pairwise_table import FORMAT, Pairwise
from advect.cost import GroundCost
from advect.cost.ground import check_cost
from advect.cost.labels import Hints, LabelCost
from advect.data.dataset import LabeledDataset
from advect.data.digest import digest
from advect.data.spaces.harmonize import harmonize
from advect.datasets.reference import Reference
from advect.errors import InputError
from advect.ot import Sinkhorn, Solver
from advect.ot.solver import check_solver
from advect.transport.distance import Distance, otdd

# pairs are taken in tiles of so many datasets by so many, so that a worker finds most of them at
# hand
_TILE = 4
_LONG = 60.0  # seconds: before longer runs there is a word
_REFERENCE = (str, os.PathLike)


@dataclass(frozen=True)
class _Item:
    """A dataset on its way to a worker, or a reference and its options; what it holds is known by
    its digest.
    """

    held: LabeledDataset | None = field(default=None, compare=False, repr=False)
    reference: str | Path = field(default="", compare=False, repr=False)
    options: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    content: str = ""
    shape: tuple[int, ...] = ()

    def read(self) -> LabeledDataset:
        if self.held is not None:
            return self.held
        data = references.load(self.reference, progress=False, **self.options)
        if self.content and digest(data) != self.content:
            raise InputError(
                "a dataset has changed while distances to it were computed",
                self.reference,
                "Compute them again.",
            )
        return data


@dataclass(frozen=True)
class _Settings:
    cost: GroundCost = field(compare=False, repr=False)
    solver: Solver = field(compare=False, repr=False)
    memory_limit: MemoryLimit
    at_once: int
    content: str
    errors: bool = True


class _Ready:
    """A dataset in a worker, with what is known about it alone."""

    def __init__(self, data: LabeledDataset, label: LabelCost) -> None:
        self.data, self.label = data, label

    @cached_property
    def label_distances(self) -> Tensor:
        return self.label(self.data, self.data)


class _KnownLabels(LabelCost):
    """A label cost that has been asked before about some datasets and themselves."""

    def __init__(self, label: LabelCost, *ready: _Ready) -> None:
        self.label, self.ready = label, ready

    def __call__(self, source: LabeledDataset, target: LabeledDataset) -> Tensor:
        return self.hinted(source, target, Hints())

    def hinted(self, source: LabeledDataset, target: LabeledDataset, hints: Hints) -> Tensor:
        for one in self.ready:
            if source is target is one.data:
                return one.label_distances
        return self.label.hinted(source, target, hints)

    def check(self, source: LabeledDataset, target: LabeledDataset) -> None:
        self.label.check(source, target)

    @property
    def estimates_covariances(self) -> bool:
        return self.label.estimates_covariances


@lru_cache(maxsize=2 * _TILE)
def _ready(item: _Item, settings: _Settings) -> _Ready:
    return _Ready(item.read(), settings.cost.label_cost)


def _fingerprint(item: _Item) -> dict[str, Any]:
    data = item.read()
    return {"content": digest(data), "shape": list(data.sample_shape)}


def _distance(a: _Item, b: _Item, settings: _Settings) -> dict[str, Any]:
    source, target = _ready(a, settings), _ready(b, settings)
    cost = settings.cost.fitted(source.data, target.data)
    if cost.label_cost.costs and cost.label is settings.cost.label:  # not fitted to the pair
        cost = replace(cost, label=_KnownLabels(cost.label_cost, source, target))
    limit = settings.memory_limit
    if settings.at_once > 1:
        limit = as_bytes(limit, source.data.x.device) // settings.at_once
    found = otdd(source.data, target.data, cost=cost, solver=settings.solver, memory_limit=limit)
    return {
        "value": found.value,
        "converged": found.converged,
        "marginal_error": found.marginal_error,
        "n_iter": found.n_iter,
        "standard_error": _standard_error(found) if settings.errors else None,
    }


def _standard_error(found: Distance) -> float | None:
    """None where the first order does not tell, or the potentials that it comes of are not right."""
    if not found.converged:
        return None
    try:
        return found.standard_error()
    except InputError:
        return None


def pairwise(
    datasets: Mapping[str, LabeledDataset | str | os.PathLike[str]]
    | Sequence[LabeledDataset | str | os.PathLike[str]],
    *,
    cost: GroundCost | None = None,
    solver: Solver | None = None,
    memory_limit: MemoryLimit = None,
    n_jobs: int | None = None,
    store: str | os.PathLike[str] | None = None,
    progress: Progress | bool = None,
    standard_errors: bool = True,
) -> Pairwise:
    """The distance ``otdd`` between each two of several datasets.

    Args:
        datasets: by name, or in order (then a reference is its own name, and other datasets are
            called "0", "1", …). A reference such as ``"csv:pets.csv?label=kind"`` is read by the
            workers, with ``ad.datasets.load``. Images of different sizes or colours are brought to
            those of the largest first (``ad.harmonize``), with a word; other datasets must live in
            one feature space.
        cost, solver: as for ``otdd``.
        memory_limit: as for ``otdd``, for all pairs on one machine that are computed at the same
            time.
        n_jobs: how many pairs at a time, −1 for one on each core. By default one, or what
            ``joblib.parallel_config`` says, which is also how to use a Dask or Ray cluster.
        store: a directory where the result of each pair is written as soon as it is there. A later
            call finds those of equal data, cost and solver, and computes the others: also those
            that failed.
        progress: None or True shows it on stderr when it takes long, False is silent, a function is
            called with (done, total).
        standard_errors: how much each distance would vary with other samples
            (``Distance.standard_error``), for about as much work again; without, nothing says
            whether two distances differ by more than noise.

    Returns:
        A ``Pairwise``. A pair that fails is NaN there, with the reason in ``errors``; the others
        are not lost. With as many threads for each worker, values are those of ``otdd`` to the last
        bit.

    Raises:
        InputError: fewer than two datasets, unknown references, or options that cannot be used.

    Example:
        >>> import advect as ad
        >>> found = ad.pairwise({"near": "toy:moons?n=50", "far": "toy:moons?n=50&seed=1", "ring": "toy:rings?n=50&classes=2"})
        >>> found.values.shape, found.nearest("near")[0][0]
        ((3, 3), 'far')
    """
    cost, solver = check_cost(cost) or GroundCost(), check_solver(solver or Sinkhorn())
    items, failed = _recognised(_named(datasets), n_jobs)
    items = _in_one_space(items, failed)
    names = tuple(items)
    content = uuid4().hex if store is None else digest(FORMAT, cost, solver, standard_errors)
    at_once = jobs_at_once(n_jobs)
    settings = _Settings(cost, solver, memory_limit, at_once, content, standard_errors)
    errors = {
        (a, b): f"{bad}: {failed[bad]}"
        for a, b in combinations(names, 2)
        for bad in (b, a)
        if bad in failed
    }
    places = combinations(range(len(names)), 2)
    tiles = sorted(places, key=lambda place: (place[0] // _TILE, place[1] // _TILE, place))
    pairs = [(names[i], names[j]) for i, j in tiles if (names[i], names[j]) not in errors]
    jobs = [
        Job(
            f"{a} and {b}",
            (items[a], items[b], settings),
            digest(items[a].content, items[b].content, settings.content),
        )
        for a, b in pairs
    ]
    try:
        outcomes = run_jobs(
            _distance,
            jobs,
            label="pairs of datasets",
            n_jobs=n_jobs,
            store=store,
            progress=progress,
            begun=_warn_if_long,
        )
    finally:
        _ready.cache_clear()
    values = np.diag(
        [math.nan if name in failed else 0.0 for name in names]
    )  # a divergence of equal measures vanishes
    converged, seconds = np.diag([name not in failed for name in names]), np.zeros_like(values)
    varying = np.full_like(values, math.nan)
    for a, b in errors:
        _set(values, names, (a, b), math.nan)
    for pair, outcome in zip(pairs, outcomes, strict=True):
        result = outcome.result or {"value": math.nan, "converged": False}
        _set(values, names, pair, result["value"])
        _set(converged, names, pair, result["converged"])
        _set(seconds, names, pair, outcome.seconds)
        stated = result.get("standard_error")
        _set(varying, names, pair, math.nan if stated is None else stated)
        if outcome.error is not None:
            errors[pair] = outcome.error
    return Pairwise(names, values, converged, seconds, errors, varying)


def _warn_if_long(seconds: float, left: int, workers: int) -> None:
    """A word before a long run, when its first pairs are done."""
    if seconds * left / workers < _LONG:
        return
    warnings.warn(
        f"{left} more pairs take about {time_left(left / workers, 1 / seconds)}: one took {seconds:.2g} s. "
        "Shorter: fewer samples (data.sample(500)), n_jobs=-1 for "
        "all cores, standard_errors=False, or a sliced distance (ad.SlicedOTDD); store=directory "
        "keeps what is done when you stop it.",
        ScaleWarning,
        stacklevel=4,
    )


def _set(matrix: np.ndarray, names: tuple[str, ...], pair: tuple[str, str], value: float) -> None:
    i, j = map(names.index, pair)
    matrix[i, j] = matrix[j, i] = value


def _named(datasets: Any) -> dict[str, _Item]:
    match datasets:
        case Mapping():
            given = {str(name): data for name, data in datasets.items()}
        case [*some]:
            plain = all(isinstance(data, _REFERENCE) for data in some) and len({*some}) == len(some)
            given = {str(data if plain else place): data for place, data in enumerate(some)}
        case _:
            raise InputError(
                "datasets must be several, by name or in order",
                type(datasets).__name__,
                "Pass a dict or a list.",
            )
    if len(given) < 2 or len(given) < len(datasets):
        raise InputError(
            "pairs need two or more datasets with different names",
            f"{len(given)}",
            "Add some, or rename them.",
        )
    return {name: _item(name, data) for name, data in given.items()}


def _item(name: str, data: Any) -> _Item:
    if isinstance(data, LabeledDataset):
        held = data.replace(x=data.x.detach()) if data.x.requires_grad else data
        return _Item(held, content=digest(data), shape=data.sample_shape)
    what = f"{name} must be a LabeledDataset or a reference"
    check_kind(what, data, _REFERENCE, "Wrap arrays as ad.LabeledDataset(x, y).")
    parsed = Reference.parse(data, [known.name for known in references.names()])
    if not (parsed.is_file or parsed.kind == "run"):
        return _Item(reference=os.fspath(data))
    # workers may have been started in another directory
    place = os.path.abspath(os.path.expanduser(parsed.path))
    reference = Path(place) if parsed.kind == "path" else f"{parsed.kind}:{place}"
    return _Item(reference=reference, options=parsed.options)


def _recognised(
    items: dict[str, _Item], n_jobs: int | None
) -> tuple[dict[str, _Item], dict[str, str]]:
    """The items with the digests of what is behind references; for those that cannot be read,
    why.
    """
    unread = {name: item for name, item in items.items() if not item.content}
    jobs = [Job(name, (item,)) for name, item in unread.items()]
    outcomes = run_jobs(_fingerprint, jobs, label="reading datasets", n_jobs=n_jobs, progress=False)
    told = dict(zip(unread, outcomes, strict=True))
    found = {name: told[name].result or {} for name in unread}
    known = {
        name: replace(
            item, content=found[name].get("content", ""), shape=tuple(found[name].get("shape", ()))
        )
        for name, item in unread.items()
    }
    return items | known, {
        name: outcome.error for name, outcome in told.items() if outcome.error is not None
    }


def _in_one_space(items: dict[str, _Item], failed: Mapping[str, str]) -> dict[str, _Item]:
    """Images of different shapes in the one of the largest, with a word; others as they are, and
    pairs that do not fit say so.
    """
    sound = {name: item for name, item in items.items() if name not in failed}
    shapes = {item.shape for item in sound.values()}
    if len(shapes) < 2 or min(map(len, shapes)) < 2:
        return items
    sets = [item.read() for item in sound.values()]
    try:
        made = harmonize(*sets)
    except InputError:
        return items
    warnings.warn(
        f"images of {len(shapes)} shapes are brought to {made[0].sample_shape}, that of the largest: "
        "ad.harmonize(…, size=…, channels=…) chooses another",
        stacklevel=3,
    )
    pairs = zip(sound, made, strict=True)
    return items | {
        name: _Item(data, content=digest(data), shape=data.sample_shape) for name, data in pairs
    }
