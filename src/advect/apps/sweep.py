"""One function over many combinations of parameters; each result is kept as soon as it is there
(see ``_jobs``).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advect._util.checks import check_count
from advect._util.jobs import Job, run_jobs
from advect._util.progress import Progress
from advect.apps.pages import write_page
from advect.data.digest import digest
from advect.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame

_FORMAT = "advect.sweep/1"


@dataclass(frozen=True, eq=False)
class Run:
    """One call of a sweep: its parameters, and either its result or why it failed.

    Example:
        >>> import advect as ad
        >>> ad.sweep(lambda step: {"value": step**2}, {"step": [3]}, progress=False)[0].result
        {'value': 9}
    """

    parameters: dict[str, Any]
    result: dict[str, Any] | None
    error: str | None
    seconds: float

    @property
    def row(self) -> dict[str, Any]:
        """Parameters, results, ``seconds`` and ``error`` side by side; a result called like a
        parameter is ``result.name``.
        """
        taken = {*self.parameters, "seconds", "error"}
        results = {
            f"result.{name}" if name in taken else name: value
            for name, value in (self.result or {}).items()
        }
        return {**self.parameters, **results, "seconds": self.seconds, "error": self.error}


@dataclass(frozen=True, eq=False)
class Sweep:
    """The runs of a sweep, in the order of the grid.

    Example:
        >>> import advect as ad
        >>> found = ad.sweep(lambda a, b: {"ratio": a / b}, {"a": [1, 2], "b": [0, 4]}, progress=False)
        >>> found
        Sweep(4 runs, 2 failed)
        >>> found.best("ratio").parameters, found.errors[0]
        ({'a': 1, 'b': 4}, 'ZeroDivisionError: division by zero')
    """

    runs: tuple[Run, ...]

    def __len__(self) -> int:
        return len(self.runs)

    def __getitem__(self, index: int) -> Run:
        return self.runs[index]

    def __repr__(self) -> str:
        failed = f", {len(self.errors)} failed" if self.errors else ""
        return f"Sweep({len(self)} run{'s' * (len(self) != 1)}{failed})"

    @property
    def errors(self) -> dict[int, str]:
        """Why runs failed, by their position."""
        return {index: run.error for index, run in enumerate(self.runs) if run.error is not None}

    def best(self, key: str, *, largest: bool = False) -> Run:
        """The run with the smallest ``key`` among its results, or with the largest; failed runs and
        NaN do not count.

        Raises:
            InputError: no run has such a number.
        """
        scored = [
            (run.result[key], run)
            for run in self.runs
            if run.result is not None and _is_number(run.result.get(key))
        ]
        if not scored:
            known = dict.fromkeys(name for run in self.runs for name in run.result or ())
            raise InputError(
                f"no run has a number called {key!r}",
                f"{', '.join(known) or 'no results'}",
                "Ask for another.",
            )
        return (max if largest else min)(scored, key=lambda pair: pair[0])[1]

    def report(self, path: str | os.PathLike[str], **options: Any) -> Path:
        """Write a page: what each parameter does to a result, the best run, all runs; see
        ``advect.report.write_sweep_report`` for the options.
        """
        return write_page("write_sweep_report", self, path, options)

    def to_pandas(self) -> DataFrame:
        """A data frame with a row for each run: parameters, results, seconds, error."""
        from pandas import DataFrame

        return DataFrame([run.row for run in self.runs])


def sweep(
    function: Callable[..., Any],
    grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]],
    *,
    seeds: int | Sequence[int] | None = None,
    n_jobs: int | None = None,
    store: str | os.PathLike[str] | None = None,
    progress: Progress | bool = None,
) -> Sweep:
    """Call a function with every combination of parameters.

    Args:
        function: takes the parameters by name; gives a dictionary of what JSON has, or a number,
            which is then called ``value``. Numbers and arrays of numpy and torch become plain ones.
        grid: a list of values for each parameter, all combined with all; or the combinations
            themselves.
        seeds: also pass ``seed``: 0 … seeds − 1, or each of these.
        n_jobs: how many calls at a time, −1 for one on each core. By default one, or what
            ``joblib.parallel_config`` says, which is also how to use a Dask or Ray cluster.
        store: a directory where each result is written as soon as it is there. A later call finds
            those of the same function and parameters, and makes the others: also those that failed.
            Functions are the same if their code is, with the constants, data and functions of their
            own module that they use; what they call elsewhere is not compared.
        progress: None or True shows it on stderr when it takes long, False is silent, a function is
            called with (done, total).

    Returns:
        A ``Sweep``: ``runs``, ``errors``, ``best(key)``, ``to_pandas()``. A call that fails does
            not stop the others.

    Raises:
        InputError: a grid or an option that cannot be used.

    Example:
        >>> import advect as ad
        >>> def distance(epsilon, seed):
        ...     a, b = (ad.datasets.load(f"toy:{name}?n=40&classes=2&seed={seed}") for name in ("gaussians", "rings"))
        ...     return {"distance": ad.otdd(a, b, solver=ad.Sinkhorn(epsilon)).value}
        >>> found = ad.sweep(distance, {"epsilon": [0.1, 1.0]}, seeds=2, progress=False)
        >>> [run.parameters for run in found.runs][:2]
        [{'epsilon': 0.1, 'seed': 0}, {'epsilon': 0.1, 'seed': 1}]
    """
    if not callable(function):
        raise InputError(
            "a sweep needs a function",
            type(function).__name__,
            "Pass one that takes the parameters by name.",
        )
    combinations = _combinations(grid, seeds)
    known = "" if store is None else digest(function)  # once: it may hold a large dataset
    jobs = [
        Job(
            _shown(parameters),
            (function, parameters),
            "" if store is None else digest(_FORMAT, known, parameters),
        )
        for parameters in combinations
    ]
    outcomes = run_jobs(_call, jobs, label="runs", n_jobs=n_jobs, store=store, progress=progress)
    made = zip(combinations, outcomes, strict=True)
    return Sweep(
        tuple(
            Run(parameters, found.result, found.error, found.seconds) for parameters, found in made
        )
    )


def _call(function: Callable[..., Any], parameters: dict[str, Any]) -> dict[str, Any]:
    result = function(**parameters)
    return result if isinstance(result, dict) else {"value": result}


def _combinations(grid: Any, seeds: int | Sequence[int] | None) -> list[dict[str, Any]]:
    match grid:
        case Mapping():
            for name, values in grid.items():
                _check_values(name, values)
            found = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
        case [*rows] if all(isinstance(row, Mapping) for row in rows):
            found = [dict(row) for row in rows]
        case _:
            raise InputError(
                "a grid must be lists by name, or a list of dictionaries",
                type(grid).__name__,
                "Pass one of these.",
            )
    if not {type(name) for parameters in found for name in parameters} <= {str}:
        raise InputError("parameters must have names", "a key that is not text", "Use strings.")
    if seeds is not None:
        some = range(check_count("seeds", seeds)) if isinstance(seeds, int) else list(seeds)
        if any("seed" in parameters for parameters in found):
            raise InputError(
                "seeds are given twice", "a parameter called seed", "Leave one of them out."
            )
        found = [{**parameters, "seed": seed} for parameters in found for seed in some]
    if not found:
        raise InputError(
            "a sweep needs at least one combination", "none", "Give each parameter a value."
        )
    return found


def _check_values(name: str, values: Any) -> None:
    """Several values: text, which has a length too, is one."""
    if isinstance(values, (str, bytes)) or not {"__len__", "__iter__"} <= {*dir(values)}:
        raise InputError(
            f"{name} needs a list of values", repr(values), f"Write [{values!r}] for a single one."
        )


def _shown(parameters: dict[str, Any]) -> str:
    text = ", ".join(f"{name}={value!r}" for name, value in parameters.items())
    return text if len(text) <= 200 else f"{text[:199]}…"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not math.isnan(value)
