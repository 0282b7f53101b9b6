"""Rates of one rank from what it took: seconds by part of evaluations at sizes of their own, divided by
what the model counts in them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from cost_model import (
    ENTRYWISE,
    MULTIPLIED,
    PRODUCTS,
    Curve,
    Evaluation,
    Measured,
    Rates,
    Shape,
    messages,
    passes,
)
from scipy.optimize import nnls

Cell = dict[str, Any]  # {"n", "d", "kept", "records"}
SINGLE = ("law", "squeeze", "root", "call", "number", "feature", "sample", "fixed", "mark", "sort")
_LEAST = 1e-13  # seconds of an entry, where a difference says less


def fit(cells: Sequence[Cell], labels: Sequence[Cell], mark: float, sort: float) -> Rates:
    """Rates of one rank that was alone with n = m samples in each cell.

    Every n needs a cell of few dimensions; those with one of many dimensions say what a flop costs."""
    entry: dict[str, Curve] = {}
    flop: dict[str, Curve] = {}
    for name in (*ENTRYWISE, "anew"):
        measured = [cell for cell in cells if cell["kept"] == (name != "anew")]
        by_size = {(cell["n"], cell["d"]): _by_entry(cell, name) for cell in measured}
        sizes = sorted({n for n, _ in by_size})
        if name in MULTIPLIED:
            slopes = {n: _slope({d: y for (k, d), y in by_size.items() if k == n}) for n in sizes}
            known = {n: slope for n, slope in slopes.items() if slope is not None}
            flop[name] = Curve(tuple((4.0 * n * n, slope) for n, slope in known.items()))
        points = []
        for n in sizes:
            least = min(d for k, d in by_size if k == n)
            value = statistics.fmean(y for (k, _), y in by_size.items() if k == n)
            if name in MULTIPLIED:
                value = by_size[n, least] - 2 * least * flop[name](4.0 * n * n)
            points.append((4.0 * n * n, max(value, _LEAST)))
        entry[name] = Curve(tuple(points))
    cells = [cell for cell in cells if cell["kept"]]
    vectors = _solved(cells, "vectors", lambda n, _, calls: [calls, calls * 2.0 * n])
    rest = _solved(cells, "rest", lambda n, d, _: [float(n * d), float(n), 1.0], first=False)
    return Rates(entry, flop, *_laws(labels), *vectors, *rest, mark, sort)


def _evaluations(cell: Cell) -> list[tuple[Evaluation, dict[str, float]]]:
    return [(Evaluation.read(record), record["parts"]) for record in cell["records"]]


def _by_entry(cell: Cell, name: str) -> float:
    """Seconds of a pass, for each entry of the matrix."""
    shape, seconds, entries = Shape(cell["n"], cell["n"], cell["d"]), 0.0, 0
    names = PRODUCTS if name == "anew" else (name,)
    for evaluation, parts in _evaluations(cell):
        if evaluation.first and name != "softmins":  # which only a start from nothing asks for
            continue
        seconds += sum(parts[each] for each in names)
        for side in shape.sides(evaluation.first):
            found = passes(shape, evaluation, side)
            entries += sum(found[each] for each in names) * shape.entries(side)
    return seconds / entries


def _slope(by_dimension: dict[int, float]) -> float | None:
    """Seconds of a flop, where two numbers of dimensions were measured."""
    if len(by_dimension) < 2:
        return None
    low, high = min(by_dimension), max(by_dimension)
    return max(_LEAST, (by_dimension[high] - by_dimension[low]) / (2 * (high - low)))


def _solved(
    cells: Sequence[Cell], part: str, counts: Callable[..., list[float]], first: bool = True
) -> list[float]:
    """Non-negative rates of counts, by least squares of relative errors."""
    rows, wanted = [], []
    for cell in cells:
        for evaluation, parts in _evaluations(cell):
            if evaluation.first and not first:
                continue
            calls = sum(evaluation.iterations(side) for side in evaluation.calls)
            rows.append(np.array(counts(cell["n"], cell["d"], calls)) / parts[part])
            wanted.append(1.0)
    table = np.array(rows)
    scale = table.max(axis=0)
    return [float(each) for each in nnls(table / scale, np.array(wanted))[0] / scale]


def _laws(labels: Sequence[Cell]) -> tuple[Curve, float, float, float]:
    """Of a pair, by rank; of a law, for each number; and where there are more samples than dimensions, for
    each sample × d² and for each d³.
    """
    pairs: dict[int, list[float]] = {}
    for each in labels:
        pairs.setdefault(min(each["size"], each["d"]), []).append(max(each["pair"], 1e-9))
    curve = Curve(tuple((r, statistics.fmean(y)) for r, y in sorted(pairs.items())), beyond=3.0)
    narrow = [each for each in labels if each["size"] <= each["d"]]
    law = statistics.median(each["law"] / (each["size"] * each["d"]) for each in narrow)
    wide = [each for each in labels if each["size"] > each["d"]]
    counts = [[each["size"] * each["d"] ** 2, each["d"] ** 3] for each in wide]
    beyond = [max(0.0, each["law"] - each["size"] * each["d"] * law) for each in wide]
    weights = np.array([1 / each["law"] for each in wide])
    found = nnls(np.array(counts, dtype=float) * weights[:, None], np.array(beyond) * weights)[0]
    return curve, law, float(found[0]), float(found[1])


def exchanges(probes: Sequence[Cell]) -> Measured:
    """Messages by their bytes alone, without latency."""
    said: dict[tuple[str, int], list[Cell]] = {}
    for each in probes:
        said.setdefault((each["kind"], each["size"]), []).append(each)

    def curves(what: str) -> dict[str, Curve]:
        points: dict[str, list[tuple[float, float]]] = {}
        for (kind, size), of in said.items():
            value = statistics.fmean(each[what] for each in of)
            points.setdefault(kind, []).append((float(size), value))
        made = {kind: Curve(tuple(each), beyond=1.0) for kind, each in points.items()}
        return made | {"max": made["sum"]}

    return Measured(curves("seconds"), curves("work"))


def network(probes: Sequence[Cell], walks: Sequence[Cell], cores: int) -> Measured:
    """Messages of some ranks: what their bytes take from messages of several sizes, one after the other; and
    latency and lateness from flows at sizes of their own (``walks``: {"shape", "ranks": records of each}), as
    what the clock has beyond work and bytes. The largest of the ranks' numbers takes what their sum takes.
    """
    bare = exchanges(probes)
    rows, wanted = [], []
    for walk in walks:
        shape: Shape = walk["shape"]
        for index, record in enumerate(walk["ranks"][0]):
            every = messages(shape, Evaluation.read(record))
            clock, work = (
                statistics.fmean(rank[index][name] for rank in walk["ranks"])
                for name in ("seconds", "work")
            )
            base = work * max(1.0, shape.ranks / cores)
            beside = sum(each.count * bare.seconds(each, shape.ranks) for each in every)
            rows.append([sum(each.count for each in every) / clock, base / clock])
            wanted.append((clock - base - beside) / clock)
    table = np.array(rows)
    latency, late = nnls(table, np.maximum(0.0, wanted))[0]
    return replace(bare, latency=float(latency), late=float(late))


def told(rates: Rates) -> dict[str, Any]:
    """The rates as plain numbers, for a file."""
    return {
        "entry": {name: list(map(list, curve.points)) for name, curve in rates.entry.items()},
        "flop": {name: list(map(list, curve.points)) for name, curve in rates.flop.items()},
        "pair": list(map(list, rates.pair.points)),
        **{name: getattr(rates, name) for name in SINGLE},
    }


def restored(kept: dict[str, Any]) -> Rates:
    """Rates from a file."""
    curves = {
        part: {name: Curve(tuple(map(tuple, points))) for name, points in kept[part].items()}
        for part in ("entry", "flop")
    }
    pair = Curve(tuple(map(tuple, kept["pair"])), beyond=3.0)
    return Rates(**curves, pair=pair, **{name: kept[name] for name in SINGLE})
