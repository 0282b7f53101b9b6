"""Run the cells of an experiment that are not there yet; killed, it goes on where it was.

    ADVECT_DATA=path/to/data python experiments/run.py [NAME] [--jobs 2] [--match text]
    [--limit n] [--list] [--again]

Without a name, it says which experiments there are. Each cell is computed in one thread, and stored
in experiments/results/NAME.json as soon as it is there. A cell that fails is reported, the others go
on, and the exit code is 1."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # before anything imports torch
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = "1"

import evidence

from advect._util.checks import check_count
from advect.errors import InputError


def main(words: list[str] | None = None) -> int:
    """The exit code: 0 if all cells that were asked for are there, 1 if some failed, 2 if what was
    asked for cannot be done.
    """
    options = _options().parse_args(words)
    try:
        return _run(options)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _options() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("name", nargs="?", help="which experiment")
    options.add_argument("--jobs", type=int, default=1, help="processes, one thread each")
    options.add_argument("--match", action="append", default=[], help="cells with this text only")
    options.add_argument("--limit", type=int, help="no more new cells than this")
    options.add_argument("--list", action="store_true", help="say what is there; compute nothing")
    options.add_argument("--again", action="store_true", help="forget these cells first")
    options.add_argument("--folder", type=Path, default=evidence.FOLDER, help="of the experiments")
    options.add_argument("--results", type=Path, default=evidence.RESULTS, help="where files go")
    return options


def _run(options: argparse.Namespace) -> int:
    if options.name is None:
        for name, path in evidence.known(options.folder).items():
            print(f"{name:20s} {path.name}")
        return 0
    check_count("--jobs", options.jobs)
    if options.limit is not None:
        check_count("--limit", options.limit, least=0)
    module = evidence.load(options.name, options.folder)
    planned = module.cells()
    store = evidence.Store(
        options.results / f"{options.name}.json",
        evidence.settings(module),
        dict(Counter(map(evidence.setting, planned))),
    )
    cells = {
        name: arguments
        for name, arguments in planned.items()
        if all(text in name for text in options.match)
    }
    if not cells:
        raise InputError("no cell", f"--match {options.match}", "See --list for their names.")
    if options.again and not options.list:
        store.start_over(set(cells))
    there = store.cells()
    if options.list:
        _print_list(cells, there)
        return 0
    todo = [name for name, given in cells.items() if _missing(there, name, given)]
    todo = todo[: options.limit]
    print(f"{options.name}: {len(cells) - len(todo)} cells there or left out, {len(todo)} to do")
    failed = _compute(options, store, {name: cells[name] for name in todo})
    for name in failed:
        print(f"failed: {name}", file=sys.stderr)
    return 1 if failed else 0


def _missing(there: dict, name: str, arguments: dict) -> bool:
    return name not in there or there[name]["arguments"] != arguments


def _print_list(cells: dict[str, dict], there: dict[str, dict]) -> None:
    for name, arguments in cells.items():
        done = not _missing(there, name, arguments)
        print(f"{there[name]['seconds']:8.1f} s  {name}" if done else f"   to do    {name}")
    spent = sum(there[name]["processor seconds"] for name in cells if name in there)
    done = sum(name in there for name in cells)
    print(f"{done} of {len(cells)} cells, {spent / 60:.1f} processor minutes")


def _compute(
    options: argparse.Namespace, store: evidence.Store, cells: dict[str, dict]
) -> list[str]:
    """Compute cells, in their order, and store each; the names of those that failed."""
    joblib: Any = importlib.import_module("joblib")  # its annotations leave out what it takes
    begun, left = time.perf_counter(), list(cells)
    failed: list[str] = []
    calls = (
        joblib.delayed(evidence.job)(
            name, options.name, str(options.folder), arguments, os.getpid()
        )
        for name, arguments in cells.items()
    )
    workers = joblib.Parallel(
        n_jobs=options.jobs,
        return_as="generator_unordered",
        batch_size=1,
        pre_dispatch=options.jobs,
    )
    try:
        for name, cell in workers(calls):
            left.remove(name)
            if "error" in cell:
                print(f"{name} failed:\n{cell['error']}", file=sys.stderr, flush=True)
                failed.append(name)
                continue
            store.add(name, cell)
            said = " ".join(
                f"{way} {100 * value:.1f}"
                for way, value in cell.get("accuracies", {}).items()
                if value is not None
            )
            clock = (time.perf_counter() - begun) / 60
            print(f"[{clock:5.1f} min, {len(left)} left] {name} {said}", flush=True)
    except (RuntimeError, OSError) as error:  # a process was killed, for want of memory say
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return [*failed, *left]
    return failed


if __name__ == "__main__":
    sys.exit(main())
