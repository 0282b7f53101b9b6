"""Many independent jobs with small results, each written as JSON as soon as it is there.

joblib runs them, where the caller has configured it to: in this process, in others, on a Dask or Ray
cluster. A job that fails leaves a message and the others go on; one whose result is on the disk is
not done again. What the jobs are is for others."""

from __future__ import annotations

import json
import os
import time
import warnings
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from advect._util.atomic import write_atomically
from advect._util.checks import check_kind
from advect._util.progress import Progress, track
from advect.errors import InputError

# jobs for each worker between two looks at the results, where these do not come one by one
_ROUND = 4
_WARM = 10.0  # seconds that no first use of a library takes


@dataclass(frozen=True)
class Job:
    """A call to make: its name for readers, its arguments, the key of its stored result."""

    name: str
    arguments: tuple[Any, ...] = ()
    key: str = ""


@dataclass(frozen=True)
class Outcome:
    """What came of a job: a result or an error, and the seconds that it took."""

    result: dict[str, Any] | None
    error: str | None
    seconds: float


def run_jobs(
    function: Callable[..., dict[str, Any]],
    jobs: Sequence[Job],
    *,
    label: str,
    n_jobs: int | None = None,
    store: str | os.PathLike[str] | None = None,
    progress: Progress | bool = None,
    begun: Callable[[float, int, int], None] | None = None,
) -> list[Outcome]:
    """``function(*job.arguments)`` for each of the jobs, in their order.

    Args:
        function: gives a dictionary of what JSON has; numbers and arrays of numpy and torch become
            plain ones.
        jobs: what to do.
        label: what to call the work.
        n_jobs: how many at a time, −1 for one on each core; None leaves it to
            ``joblib.parallel_config``, else 1.
        store: a directory for results; one that is there already is taken from it.
        progress: None or True shows it on stderr, False is silent, a function is called with (done,
            total).
        begun: called once, with the seconds that a job took, how many are left, and how many are done
            at a time: of the first, or of the second where loading libraries may have been most of it.

    Raises:
        InputError: options that cannot be used, or a directory that cannot be written.

    Example:
        >>> outcomes = run_jobs(lambda x: {"half": 6 / x}, [Job("two", (2,)), Job("none", (0,))], label="halving")
        >>> [outcome.result or outcome.error for outcome in outcomes]
        [{'half': 3.0}, 'ZeroDivisionError: division by zero']
    """
    if n_jobs is not None and (type(n_jobs) is not int or n_jobs == 0):
        raise InputError(
            "n_jobs must be a whole number other than 0",
            repr(n_jobs),
            "Pass how many, or -1 for every core.",
        )
    folder = None if store is None else _make_folder(store)
    found = [None if folder is None else _read(folder, job) for job in jobs]
    todo = [index for index, outcome in enumerate(found) if outcome is None]
    with track(len(jobs), label, None if progress is True else progress) as advance:
        if len(todo) < len(jobs):
            advance(len(jobs) - len(todo))
        with closing(_run(function, jobs, todo, n_jobs)) as results:
            for count, (index, outcome) in enumerate(results, start=1):
                telling = count == 2 or (count == 1 and outcome.seconds > _WARM)
                if begun is not None and telling and outcome.error is None:
                    begun(outcome.seconds, len(todo) - count, jobs_at_once(n_jobs))
                    begun = None
                found[index] = outcome
                if folder is not None and outcome.error is None:
                    _write(folder, jobs[index], outcome)
                advance(1)
    return [outcome for outcome in found if outcome is not None]


def jobs_at_once(n_jobs: int | None) -> int:
    """How many jobs one machine does at the same time."""
    joblib = _joblib()
    return min(joblib.effective_n_jobs(n_jobs), joblib.cpu_count())


def _run(
    function: Callable[..., Any], jobs: Sequence[Job], todo: list[int], n_jobs: int | None
) -> Generator[tuple[int, Outcome]]:
    if not todo:
        return
    joblib = _joblib()
    # no more than there are jobs: to start a worker takes longer than many a job
    workers = min(joblib.effective_n_jobs(n_jobs), len(todo))
    threads = max(1, joblib.cpu_count() // workers) if workers > 1 else None
    calls = [
        joblib.delayed(_attempt)(function, index, jobs[index].arguments, threads) for index in todo
    ]
    with _limited(threads):  # for workers that are threads of this process
        try:
            parallel = joblib.Parallel(
                n_jobs=workers, return_as="generator_unordered", batch_size=1
            )
        except ValueError:
            # a backend, such as Ray's, that gives no result before all are there: ask for a few at
            # a time
            size = 1 if workers == 1 else _ROUND * workers
            with joblib.Parallel(n_jobs=workers, batch_size=1) as parallel:
                for start in range(0, len(calls), size):
                    yield from parallel(calls[start : start + size])
            return
        yield from parallel(calls)


def _joblib() -> Any:
    """joblib, whose own annotations leave out values that it takes; it is slow to import."""
    import joblib

    return joblib


def _attempt(
    function: Callable[..., Any], index: int, arguments: tuple[Any, ...], threads: int | None
) -> tuple[int, Outcome]:
    began = time.perf_counter()
    try:
        with _limited(threads):
            result, error = _as_json(function(*arguments)), None
    except Exception as caught:
        result, error = None, f"{type(caught).__name__}: {caught}"
    return index, Outcome(result, error, time.perf_counter() - began)


@contextmanager
def _limited(threads: int | None) -> Iterator[None]:
    """No more threads of torch than these: workers share the cores."""
    before = torch.get_num_threads()
    if threads is None or threads >= before:
        yield
        return
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _as_json(result: Any) -> dict[str, Any]:
    """The result as it is once written and read: a fresh one does not differ from a stored one."""
    check_kind("a job must give a dictionary", result, dict, "Return {'name': value, …}.")
    return json.loads(json.dumps(result, default=_plain))


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # arrays and scalars of numpy and torch
        return value.tolist()
    raise InputError(
        "a result must be what JSON has",
        type(value).__name__,
        "Return numbers, text, lists and dictionaries.",
    )


def _make_folder(store: str | os.PathLike[str]) -> Path:
    folder = Path(store).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            "cannot keep results there", f"{folder} ({error.strerror})", "Choose another directory."
        ) from None
    return folder


def _write(folder: Path, job: Job, outcome: Outcome) -> None:
    record = {"name": job.name, "key": job.key, "result": outcome.result}
    record |= {"seconds": outcome.seconds}
    text = json.dumps(record | {"check": _check(record)})
    write_atomically(folder / f"{job.key}.json", text.encode())


def _read(folder: Path, job: Job) -> Outcome | None:
    path = folder / f"{job.key}.json"
    try:
        record = json.loads(path.read_bytes())
        sound = record["key"] == job.key and record["check"] == _check(record)
        if sound and type(record["result"]) is dict:
            return Outcome(record["result"], None, float(record["seconds"]))
        why = "its content is not what was written"
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
    warnings.warn(
        f"the stored result of {job.name} is damaged and made again: {path} ({why})", stacklevel=4
    )
    return None


def _check(record: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps([record["key"], record["result"], record["seconds"]]).encode())
