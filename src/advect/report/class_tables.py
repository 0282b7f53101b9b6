"""The classes of a flow: how far they are from the target's before and after, which match, how many
samples each has.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from advect.cost import Bures, GroundCost
from advect.data.class_table import ClassTable
from advect.data.dataset import LabeledDataset
from advect.errors import ConvergenceWarning, InputError
from advect.ot import Solver
from advect.report.story import shown
from advect.transport.class_tables import class_distances, match_classes

MOST_CLASSES = 30  # of a table that one can still read
_HOT = 0.88  # shades on which white letters read better than dark ones
_PARTNERS = 3
_WORTH_NAMING = 0.2  # share of a class that goes to another


@dataclass(frozen=True)
class Partners:
    """The target samples that each sample is coupled to: positions (n, k), nearest share first, and
    shares (n, k).
    """

    positions: np.ndarray
    shares: np.ndarray
    note: str | None


def partners(
    rho: LabeledDataset, target: LabeledDataset, cost: GroundCost, solver: Solver
) -> Partners:
    """The largest entries of each row of the transport plan from ``rho`` to ``target``.

    Example:
        >>> import advect as ad
        >>> a = ad.LabeledDataset([[0.0], [5.0]], ["u", "v"])
        >>> partners(a, a.subset([1, 0]), ad.GroundCost(), ad.ExactOT()).positions[:, 0].tolist()
        [1, 0]
    """
    dtype = solver.dtype or torch.promote_types(rho.x.dtype, target.x.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the page says it
        solved = solver.solve(cost.between(rho, target).matrix(dtype), rho.weights, target.weights)
    note = None
    if not solved.converged:
        note = f"The final coupling has not converged: its marginal error is {solved.marginal_error:.1e}. Raise epsilon."
    plan = solved.plan().double()
    shares = plan / plan.sum(dim=1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
    top = shares.topk(min(_PARTNERS, shares.shape[1]), dim=1)
    return Partners(top.indices.numpy(), top.values.numpy(), note)


def compare(
    before: LabeledDataset, after: LabeledDataset, target: LabeledDataset, cost: GroundCost
) -> dict[str, Any]:
    """Class distances before and after, and the matching after; with what they were measured."""
    cost = replace(cost, label=Bures()) if not cost.label_cost.costs else cost
    cost = cost.fitted(before, target)  # what a flow does at its first step
    tables = [class_distances(cost.between(data, target)) for data in (before, after)]
    matching = match_classes(tables[1].values, after, target)
    return {
        "before": tables[0],
        "after": tables[1],
        "matching": matching,
        "measure": shown(cost.label),
    }


def heat(
    table: ClassTable, *, share: bool = False, low: float | None = None, high: float | None = None
) -> dict[str, Any]:
    """A table for the page: names, and for each cell its text, shade from 0 to 1, and whether it is
    the row's best.

    Args:
        table: the numbers.
        share: numbers are masses: show them as shares of their row; the best is the largest. Else
            the smallest.
        low, high: the range of shades; by default that of the numbers.

    Example:
        >>> cells = heat(ClassTable(np.array([[1.0, 3.0]]), ("a",), ("b", "c")))["rows"][0]["cells"]
        >>> [(cell["text"], cell["shade"], cell["best"]) for cell in cells]
        [('1.00', 0.0, True), ('3.00', 1.0, False)]
    """
    values = np.asarray(table, dtype=float)
    if share:
        values = values / np.maximum(values.sum(axis=1, keepdims=True), 1e-300)
    known = values[np.isfinite(values)]
    low = low if low is not None else 0.0 if share or not known.size else float(known.min())
    high = high if high is not None else 1.0 if share or not known.size else float(known.max())
    # three that count, of the largest
    digits = 2 - math.floor(math.log10(high)) if 0.01 < high < 1e5 else -1
    rows = []
    for name, line in zip(table.rows, values, strict=True):
        score = np.where(np.isfinite(line), line if share else -line, -math.inf)
        best = int(score.argmax()) if len(line) else -1
        cells = []
        for column, value in enumerate(line.tolist()):
            known_value = math.isfinite(value)
            shade = (
                round(min(max((value - low) / ((high - low) or 1.0), 0.0), 1.0), 3)
                if known_value
                else 0.0
            )
            plain = f"{value:.{max(0, digits)}f}" if digits >= 0 else f"{value:.2e}"
            text = (
                "–"
                if not known_value
                else (f"{value:.0%}" if value >= 0.005 else "·")
                if share
                else plain
            )
            cells.append(
                {
                    "text": text,
                    "shade": shade,
                    "best": column == best and known_value,
                    "hot": shade > _HOT,
                }
            )
        rows.append({"name": str(name), "cells": cells})
    return {"columns": [str(name) for name in table.columns], "rows": rows}


def pairs_of(matching: ClassTable) -> list[dict[str, str]]:
    """Each class with the classes of the target that take the most of its mass, in words."""
    found = []
    for name, line in zip(matching.rows, np.asarray(matching, dtype=float), strict=True):
        if line.sum() > 0:
            shares = line / line.sum()
            worth = [
                k
                for k in np.argsort(-shares, kind="stable")
                if shares[k] >= min(_WORTH_NAMING, shares.max())
            ]
            goals = [
                f"{matching.columns[k]}" + ("" if shares[k] > 0.995 else f" {shares[k]:.0%}")
                for k in worth
            ]
            found.append({"source": str(name), "target": ", ".join(goals)})
    return found


def tables_for_page(
    before: LabeledDataset,
    after: LabeledDataset,
    target: LabeledDataset,
    cost: GroundCost,
    notes: list[str],
) -> dict[str, Any] | None:
    """Heat tables and pairs for the page, or a note that says why there are none."""
    if not (before.complete and after.complete and target.complete):
        notes.append("Classes are not compared: some samples have no label.")
        return None
    try:
        found = compare(before, after, target, cost)
    except InputError as error:
        notes.append(f"Classes are not compared: {error}")
        return None
    tables, pairs = (found["before"], found["after"]), pairs_of(found["matching"])
    result = {
        "measure": found["measure"],
        "pairs": pairs[:60],
        "more_pairs": max(0, len(pairs) - 60),
        "tables": None,
    }
    if max(*tables[0].shape, *tables[1].shape) > MOST_CLASSES:
        rows, columns = tables[1].shape
        notes.append(
            f"The tables of {rows} × {columns} classes are left out: only pairs are listed."
        )
        return result
    known = np.concatenate([np.asarray(table, dtype=float).ravel() for table in tables])
    known = known[np.isfinite(known)]
    low, high = (float(known.min()), float(known.max())) if known.size else (None, None)
    result["tables"] = [heat(table, low=low, high=high) for table in tables] + [
        heat(found["matching"], share=True)
    ]
    return result
