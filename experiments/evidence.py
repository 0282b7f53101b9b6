"""Experiments as cells: small independent jobs, all of whose results go into one JSON file.

An experiment is a module of this folder with ``NAME``, ``cells()`` (from the name of a cell to the
arguments of ``run``) and ``run(**arguments)``, which gives a dictionary of what JSON has. One cell
is one draw of one setting, called "<setting>, draw <seed>"; settings are constants of the module in
capitals. ``run.py`` computes cells, ``tables.py`` reads them."""

from __future__ import annotations

import ast
import functools
import importlib
import json
import math
import os
import re
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from advect._util.atomic import write_atomically
from advect._util.checks import check_known
from advect._util.lock import Hold
from advect.errors import InputError

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / "results"
DIGITS = 6  # of a stored number
HOW_MANY = ("DRAWS", "SEEDS")  # say which draws there are, not what one of them is


def known(folder: Path = FOLDER) -> dict[str, Path]:
    """The experiments of a folder by name, without running any of their code."""
    named = (
        (_name(path.read_text(encoding="utf-8")), path) for path in sorted(folder.glob("*.py"))
    )
    return {name: path for name, path in named if name is not None}


@functools.cache
def _name(source: str) -> str | None:
    for line in ast.parse(source).body:
        if not isinstance(line, ast.Assign) or not isinstance(line.value, ast.Constant):
            continue
        if [getattr(target, "id", None) for target in line.targets] == ["NAME"]:
            return str(line.value.value)
    return None


def load(name: str, folder: Path = FOLDER) -> ModuleType:
    """The module of an experiment."""
    there = known(folder)
    check_known("experiment", name, there)
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return importlib.import_module(there[name].stem)


def settings(module: ModuleType) -> dict[str, Any]:
    """The constants of a module that JSON has: what its results depend on, besides the code."""
    found = {}
    for name, value in vars(module).items():
        if name.isupper() and not name.startswith("_") and name != "NAME":
            try:
                found[name] = json.loads(json.dumps(value))
            except TypeError:
                continue  # an object, made of other constants
    return found


def job(
    cell: str, name: str, folder: str, arguments: dict[str, Any], parent: int
) -> tuple[str, dict[str, Any]]:
    """A cell of an experiment, computed in this process or in one that ``parent`` started."""
    if os.getpid() != parent:
        _end_with(parent)
        _keep_memory()
    return cell, compute(name, folder, arguments)


@functools.cache
def _end_with(parent: int) -> None:
    """End this process when the one that started it is gone: nobody waits for its results."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@functools.cache
def _keep_memory() -> None:
    """Networks and data that cells share are kept by their process: joblib would start another one
    when it has grown, and they would be made again.
    """
    with suppress(ImportError):
        executor: Any = importlib.import_module("joblib.externals.loky.process_executor")
        executor._MAX_MEMORY_LEAK_SIZE = math.inf


def compute(name: str, folder: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Run one cell and see how long it took: seconds on the clock, and seconds of one processor,
    which do not depend on what else the machine was doing. A failure comes back as ``error``.
    """
    import torch

    torch.set_num_threads(1)
    start, busy = time.perf_counter(), time.process_time()
    try:
        result = load(name, Path(folder)).run(**arguments)
        if not isinstance(result, dict):
            raise InputError("run must give a dictionary", type(result).__name__, "Return one.")
        plain = rounded(json.loads(json.dumps(result, default=_plain)))
    except Exception:
        return {"error": traceback.format_exc()}
    spent = time.perf_counter() - start, time.process_time() - busy
    took = {"seconds": round(spent[0], 2), "processor seconds": round(spent[1], 2)}
    return {"arguments": arguments, **plain, **took}


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # arrays and scalars of numpy and torch
        return value.tolist()
    raise TypeError(f"JSON has no {type(value).__name__}: return numbers, text, lists")


def rounded(value: Any) -> Any:
    """The same with fewer digits, so that files stay small and differences can be read.

    >>> rounded({"a": [0.123456789, 3]})
    {'a': [0.123457, 3]}
    """
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.{DIGITS}g}")
    return value


@dataclass(frozen=True)
class Store:
    """The file of an experiment: its settings, and a dictionary for each cell.

    Several processes may add to it at a time. Cells that were computed with other settings are not
    mixed with new ones.
    """

    path: Path
    settings: dict[str, Any]
    planned: dict[str, int]  # draws of each setting

    def cells(self) -> dict[str, dict[str, Any]]:
        """What is there.

        Raises:
            InputError: it was computed with other settings, or is damaged.
        """
        if not self.path.exists():
            return {}
        try:
            kept = json.loads(self.path.read_text(encoding="utf-8"))
            before, cells = kept["settings"], kept["cells"]
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{self.path.name} is no file of results",
                f"{type(error).__name__}: {error}",
                "Take it from a copy, or start over with --again.",
            ) from None
        names = sorted({*before, *self.settings})
        other = [
            key
            for key in names
            if before.get(key) != self.settings.get(key) and key not in HOW_MANY
        ]
        if other and cells:
            said = "; ".join(
                f"{key} is {json.dumps(before.get(key))} there and "
                f"{json.dumps(self.settings.get(key))} now"
                for key in other
            )
            raise InputError(
                f"{self.path.name} holds cells of other settings",
                said,
                "Put the settings back, or start over with --again.",
            )
        return cells

    def add(self, name: str, cell: dict[str, Any]) -> None:
        """Store one cell at once."""
        with _held(self.path):
            self._write({**self.cells(), name: cell})

    def start_over(self, names: set[str]) -> None:
        """Forget these cells, or all of them where the settings are not those of before."""
        with _held(self.path):
            try:
                kept = self.cells()
            except InputError:
                kept = {}
            self._write({name: cell for name, cell in kept.items() if name not in names})

    def _write(self, cells: dict[str, dict[str, Any]]) -> None:
        """One line for each cell, so that versions can be compared."""
        lines = [
            f"  {json.dumps(name, ensure_ascii=False)}: {json.dumps(cells[name], ensure_ascii=False)}"
            for name in sorted(cells, key=natural)
        ]
        constants = json.dumps(self.settings, indent=2, sort_keys=True, ensure_ascii=False)
        planned = json.dumps(self.planned, ensure_ascii=False)
        text = f'{{"settings": {constants},\n"planned": {planned},\n"cells": {{\n'
        text += ",\n".join(lines) + "\n}}\n"
        write_atomically(self.path, text.encode())


def setting(cell: str) -> str:
    """What a cell is a draw of.

    >>> setting("usps, 5 shots, draw 1003")
    'usps, 5 shots'
    """
    return re.sub(r",? draw \d+$", "", cell)


def natural(name: str) -> list[tuple[int, str]]:
    """An order in which "5 shots" is before "10 shots"."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def _held(path: Path) -> Hold:
    """The lock of a file; writes take milliseconds, so that another writer is waited for."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return Hold(path)
        except InputError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
