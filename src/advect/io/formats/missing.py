"""Missing features of tables and arrays: filled with medians, marked, or their rows left out."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np

from advect._util.checks import check_known, refuse_if
from advect.io.formats.content import Content

_ROWS = ("labels", "weights", "probabilities", "targets")


def without_missing(content: Content, missing: str | None) -> tuple[Content, np.ndarray | slice]:
    """The samples without NaN, and which rows stay; ``missing=None`` changes nothing."""
    rows: np.ndarray | slice = slice(None)
    if missing is None:
        return content, rows
    check_known("missing", missing, ("median", "drop", "indicator"))
    x = np.asarray(content.x).reshape(len(content), -1)
    gaps, columns = np.isnan(x), content.columns
    done = "filled with the medians of their columns"
    if missing == "drop":
        rows = np.flatnonzero(~gaps.any(axis=1))
        done = f"left out with their {len(x) - np.size(rows)} rows"
    elif gaps.any():
        empty = np.flatnonzero(gaps.all(axis=0))
        got = [columns[at] if columns else int(at) for at in empty]
        what = f"a column needs at least one value in {content.path}"
        refuse_if(got, what, f"none in {got}", "Leave it out: columns=[…].")
        x = np.where(gaps, np.nanmedian(x, axis=0), x).astype(x.dtype)
    if gaps.any():
        warnings.warn(f"{gaps.sum():,} missing cells of {content.path} are {done}", stacklevel=2)
    shape = content.shape
    if missing == "indicator":  # for all columns, so that it fits data with gaps elsewhere
        x, shape = np.concatenate([x, gaps.astype(x.dtype)], axis=1), (2 * x.shape[1],)
        columns = columns and (*columns, *(f"{name} missing" for name in columns))
    parts = {name: getattr(content, name) for name in _ROWS}
    parts = {
        name: np.array(part, object)[rows].tolist() if type(part) is list else part[rows]
        for name, part in parts.items()
        if part is not None
    }
    return replace(content, x=x[rows].reshape(-1, *shape), columns=columns, **parts), rows
