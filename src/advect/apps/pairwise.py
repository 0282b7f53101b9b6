"""The distances between all pairs of several labeled datasets (paper, eq. 5), in parallel."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from advect._util import (
    InputError,
    MemoryLimit,
    Progress,
    Result,
    Table,
    as_bytes,
    plain,
    refuse_if,
    track,
    write_atomically,
)
from advect.cost import GroundCost, check_cost
from advect.data.class_table import ClassTable
from advect.data.dataset import LabeledDataset
from advect.data.digest import digest
from advect.io.loading import load
from advect.ot import Sinkhorn, Solver, check_solver
from advect.transport.distance import otdd
from advect.transport.sampling_error import between_values, check_level, energy_error_of
from advect.transport.transport import check_dataset, threads_for

if TYPE_CHECKING:
    from pandas import DataFrame

FORMAT = "advect.pairwise/2"  # of stored pairs
_HALF_INTERVAL = check_level(0.95)  # half a 95 % interval in standard errors
_ROUND = 4  # pairs per worker between two writes, for backends that do not return one by one
Pair = tuple[str, str]


@dataclass(frozen=True, eq=False)
class Pairwise(Result):
    """Distances between k datasets, of ``ad.pairwise``.

    Attributes:
        names: names of the datasets.
        values: (k, k) distances, symmetric, 0 on the diagonal, NaN where a pair failed.
        converged: (k, k), whether the transport problems of the pair converged.
        seconds: (k, k), the computing time of each pair.
        errors: the error message of each pair of names that failed.
        standard_errors: (k, k), standard errors of the distances over new samples of the same size
            (``Distance.standard_error``); NaN where unknown.  freedom: their degrees of freedom.
    """

    title = "Distances between datasets"
    names: tuple[str, ...]
    values: np.ndarray
    converged: np.ndarray
    seconds: np.ndarray
    errors: dict[Pair, str]
    standard_errors: np.ndarray
    freedom: np.ndarray

    def __getitem__(self, pair: Pair) -> float:
        return self.table[pair]

    def _summary(self) -> dict[str, Any]:
        k, failed = len(self.names), len(self.errors)
        late = int(np.triu(~self.converged, 1).sum()) - failed
        problems = {"failed pairs": failed, "pairs that did not converge": late}
        shown = {name: count for name, count in problems.items() if count}
        return {"datasets": k, "pairs": k * (k - 1) // 2, **shown}

    def _tables(self) -> list[Table]:
        rows = [
            [name, *map(_with_error, self.values[i], self.standard_errors[i])]
            for i, name in enumerate(self.names)
        ]
        caption = "± 1.96 standard errors, for new samples with the same class sizes."
        failed = [[" and ".join(pair), why] for pair, why in self.errors.items()]
        tables = [
            Table("Distances", ("", *self.names), rows, caption=caption),
            Table("Failed pairs", ("pair", "error"), failed),
        ]
        return [table for table in tables if table.rows]

    def figures(self) -> dict[str, Any]:
        return {"Distances": import_module("advect.viz").pairwise(self)}

    def to_dict(self) -> dict[str, Any]:
        names = ("names", "values", "standard_errors", "converged", "seconds")
        errors = [{"pair": pair, "error": message} for pair, message in self.errors.items()]
        fields = {name: getattr(self, name) for name in names}
        return plain({**fields, "errors": errors, "notes": self.notes})

    @property
    def table(self) -> ClassTable:
        """The distances as a matrix with names on both sides."""
        return ClassTable(self.values, self.names, self.names)

    def nearest(self, name: str) -> list[tuple[str, float]]:
        """The other datasets with their distances, the nearest first; without failed pairs."""
        distances = [(other, self[name, other]) for other in self.names if other != name]
        finite = [pair for pair in distances if not math.isnan(pair[1])]
        return sorted(finite, key=lambda pair: pair[1])

    def interval(self, one: str, other: str, level: float = 0.95) -> tuple[float, float]:
        """Confidence interval of the mean distance over new samples, as ``Distance.interval``."""
        tables = (self.values, self.standard_errors, self.freedom)
        value, error, freedom = (
            float(ClassTable(table, self.names, self.names)[one, other]) for table in tables
        )
        return between_values(value**2, check_level(level, freedom) * energy_error_of(value, error))

    def to_pandas(self) -> DataFrame:
        """The distances as a data frame with the names as index and columns."""
        from pandas import DataFrame

        return DataFrame(self.values, index=list(self.names), columns=list(self.names))


def _with_error(value: float, error: float) -> str:
    return f"{value:.4g} ± {_HALF_INTERVAL * error:.2g}" if error > 0 else f"{value:.4g}"


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
    """Compute the distance ``otdd`` between each two of several datasets.

    Args:
        datasets: by name, or in order (then a reference is its own name, and other datasets are
            called "0", "1", …). References such as ``"csv:pets.csv?label=kind"`` are loaded. All must
            have the same features (``ad.harmonize``).
        cost, solver: as for ``otdd``.
        memory_limit: as for ``otdd``, for all pairs together that one machine computes at a time.
        n_jobs: how many pairs at a time, −1 for one on each core. By default one, or what
            ``joblib.parallel_config`` says, which is also how to use a Dask or Ray cluster.
        store: a directory. The result of each pair is written there at once; a later call reads
            those of equal data, cost and solver, and computes the others and those that failed.
        progress: None or True shows long runs on stderr, False is silent, a function gets (done,
            total).
        standard_errors: whether to compute ``Distance.standard_error``, for about twice the work.

    Returns:
        A ``Pairwise`` result. A pair that fails is NaN there, with the message in ``errors``.

    Example:
        >>> import advect as ad
        >>> sets = {"a": "toy:moons?n=50", "b": "toy:moons?n=50&seed=1", "c": "toy:rings?n=50&classes=2"}
        >>> found = ad.pairwise(sets, progress=False)
        >>> found.values.shape, found.nearest("a")[0][0]
        ((3, 3), 'b')
    """
    cost, solver = check_cost(cost) or GroundCost(), check_solver(solver or Sinkhorn())
    refuse_if(
        not (n_jobs is None or (type(n_jobs) is int and n_jobs != 0)),
        "n_jobs must be a whole number other than 0",
        repr(n_jobs),
        "Pass a number of pairs, or -1 for every core.",
    )
    folder = None if store is None else Path(store).expanduser()
    sets = _read_all(datasets)
    pairs, files, results = list(combinations(sets, 2)), {}, {}
    settings = (cost, solver, standard_errors)
    if folder is not None:  # files are named after the content of both datasets and the settings
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                "the store must be a writable directory", error, "Choose another directory."
            ) from None
        contents = {name: digest(data) for name, data in sets.items()}
        common = digest(FORMAT, *settings)
        for a, b in pairs:
            key = digest(contents[a], contents[b], common)
            files[a, b] = folder / f"{key}.json"
        stored = {pair: _read(path) for pair, path in files.items()}
        results = {pair: result for pair, result in stored.items() if result is not None}
    jobs = [
        (pair, sets[pair[0]], sets[pair[1]], memory_limit, settings)
        for pair in pairs
        if pair not in results
    ]
    with track(len(pairs), "pairs of datasets", None if progress is True else progress) as advance:
        if results:
            advance(len(results))
        for pair, result in _run(jobs, n_jobs):
            if pair in files and "error" not in result:
                record = {"name": " and ".join(pair), "key": files[pair].stem, **result}
                write_atomically(files[pair], json.dumps(record).encode())
            results[pair] = result
            advance(1)
    return _collected(tuple(sets), [results[pair] for pair in pairs])


def _collected(names: tuple[str, ...], results: Sequence[Mapping[str, Any]]) -> Pairwise:
    """Symmetric matrices from the results of the pairs, in the order of their upper triangle."""
    failed = {"value": math.nan, "converged": False}
    rows = [
        {
            "standard_error": None,
            "freedom": None,
            **row.get("result", failed),
            "seconds": row["seconds"],
        }
        for row in results
    ]

    def table(name: str, diagonal: float = 0.0) -> np.ndarray:
        matrix = diagonal * np.eye(len(names))
        upper = np.triu_indices(len(names), 1)
        matrix[upper] = matrix.T[upper] = np.array(
            [row[name] for row in rows], float
        )  # None is NaN
        return matrix

    pairs = zip(combinations(names, 2), results, strict=True)
    return Pairwise(
        names,
        values=table("value"),
        converged=table("converged", diagonal=1.0) > 0,
        seconds=table("seconds"),
        errors={pair: row["error"] for pair, row in pairs if "error" in row},
        standard_errors=table("standard_error"),
        freedom=np.nan_to_num(table("freedom"), nan=math.inf),  # JSON has no infinity
    )


def _run(jobs: Sequence[tuple[Any, ...]], n_jobs: Any) -> Iterator[Any]:
    """The results of the jobs, as they come."""
    import joblib

    if not jobs:
        return
    workers = min(joblib.effective_n_jobs(n_jobs), len(jobs))
    share = min(workers, joblib.cpu_count())  # of memory and threads on one machine
    calls = [joblib.delayed(_attempt)(os.getpid(), share, *job) for job in jobs]
    options: dict[str, Any] = {"n_jobs": workers, "batch_size": 1}
    try:
        parallel = joblib.Parallel(return_as="generator_unordered", **options)
    except ValueError:  # a backend such as Ray returns all results at once: submit jobs in rounds
        size = 1 if workers == 1 else _ROUND * workers
        with joblib.Parallel(**options) as parallel:
            for start in range(0, len(calls), size):
                yield from parallel(calls[start : start + size])
        return
    yield from parallel(calls)


@cache
def _end_with(parent: int) -> None:
    """In a worker that the process ``parent`` started: end when it has ended, which a worker would outlive."""
    started_by = multiprocessing.parent_process()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    if started_by is not None and started_by.pid == parent:  # it may have ended already
        threading.Thread(target=watch, daemon=True).start()


def _attempt(
    parent: int,
    share: int,
    pair: Pair,
    source: LabeledDataset,
    target: LabeledDataset,
    memory_limit: MemoryLimit,
    settings: tuple[GroundCost, Solver, bool],
) -> tuple[Pair, dict[str, Any]]:
    """The distance of a pair, or its error; ``share`` jobs share the memory of a machine."""
    _end_with(parent)
    start, (cost, solver, standard_errors) = time.perf_counter(), settings
    try:
        limit = memory_limit if share == 1 else as_bytes(memory_limit, source.x.device) // share
        with threads_for(source.x, target.x):
            distance = otdd(source, target, cost=cost, solver=solver, memory_limit=limit)
            names = ("value", "converged", "n_iter", "marginal_error")
            result = {name: getattr(distance, name) for name in names} | {"standard_error": None}
            if standard_errors and distance.converged:
                with suppress(InputError):  # if the first-order term vanishes or is not known
                    result["standard_error"] = distance.standard_error()
                    result["freedom"] = distance.energy_spread[1]
        outcome = {"result": plain(result)}
    except Exception as error:
        outcome = {"error": f"{type(error).__name__}: {error}"}
    return pair, {**outcome, "seconds": time.perf_counter() - start}


def _read_all(datasets: Any) -> dict[str, LabeledDataset]:
    """The datasets by name; references are loaded."""
    match datasets:
        case Mapping():
            sets = {str(name): data for name, data in datasets.items()}
        case [*some]:
            references = all(isinstance(data, (str, os.PathLike)) for data in some)
            unique = references and len({*some}) == len(some)
            sets = {str(data if unique else at): data for at, data in enumerate(some)}
        case _:
            raise InputError(
                "datasets must be a mapping or a sequence",
                type(datasets).__name__,
                "Pass a dict or a list.",
            )
    refuse_if(
        not len(datasets) == len(sets) > 1,
        "pairwise needs two or more datasets with different names",
        f"{len(sets)}",
        "Add some, or rename them.",
    )
    for name, data in sets.items():
        if isinstance(data, (str, os.PathLike)):
            data = load(data, progress=False)
        data = check_dataset(f"{name}, unless it is a reference,", data)
        sets[name] = data.replace(x=data.x.detach()) if data.x.requires_grad else data
    return sets


def _read(path: Path) -> dict[str, Any] | None:
    """A stored result, or None if it has to be computed."""
    if not path.exists():
        return None
    try:
        record = json.loads(path.read_bytes())
        if record["key"] != path.stem:
            raise ValueError(f"a record of {record['key']}")
        result, seconds = record["result"], float(record["seconds"])
        checked = {"value": float(result["value"]), "converged": bool(result["converged"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        warnings.warn(
            f"{path} is damaged and computed again ({type(error).__name__}: {error})", stacklevel=3
        )
        return None
    return {"result": {**result, **checked}, "seconds": seconds}
