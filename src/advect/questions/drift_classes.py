"""Drift class by class: shares, features, and labels that trade places."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from advect.questions.drift_permutations import holm, p_values_of_largest
from advect.questions.drift_result import ClassDrift, Trade

_NEIGHBOURS = 5


def class_drifts(
    codes: tuple[np.ndarray, np.ndarray],
    names: Sequence[Hashable],
    p_values: Mapping[int, float] | None,
    pool: Any,
) -> tuple[ClassDrift, ...]:
    """A row for each class: codes of all labeled samples of both sides, p-values of the features of
    those classes that were tested, and the samples that took part.
    """
    k = len(names)
    counts = np.stack([np.bincount(side, minlength=k) for side in codes])
    totals = counts.sum(axis=1)
    both = bool(totals.all())
    share_p = [_fisher(counts[:, code], totals) if both else math.nan for code in range(k)]
    features = [(p_values or {}).get(code, math.nan) for code in range(k)]
    rows = []
    for code, (share_adjusted, adjusted) in enumerate(
        zip(holm(share_p), holm(features), strict=True)
    ):
        shares = [int(counts[side, code]) / max(int(totals[side]), 1) for side in (0, 1)]
        shift = math.nan if pool is None else _shift(pool, code)
        rows.append(
            ClassDrift(
                names[code],
                n_reference=int(counts[0, code]),
                n_window=int(counts[1, code]),
                share_reference=shares[0],
                share_window=shares[1],
                share_p_value=share_p[code],
                share_adjusted=float(share_adjusted),
                shift=shift,
                p_value=features[code],
                adjusted=float(adjusted),
            )
        )
    return tuple(rows)


def _fisher(counts: np.ndarray, totals: np.ndarray) -> float:
    from scipy.stats import fisher_exact

    table = np.stack([counts, totals - counts])
    found: Any = fisher_exact(table)
    return float(found.pvalue)


def _shift(pool: Any, code: int) -> float:
    """|mean of the window − mean of the reference| ÷ the deviation of the class along it."""
    mine = pool.codes == code
    one, other = pool.points[mine & ~pool.window], pool.points[mine & pool.window]
    if not len(one) or not len(other):
        return math.nan
    way = other.mean(axis=0) - one.mean(axis=0)
    size = float(np.linalg.norm(way))
    if size == 0:
        return 0.0
    along = [part @ (way / size) for part in (one, other)]
    free = len(one) + len(other) - 2
    spread = math.sqrt(sum(float(np.square(a - a.mean()).sum()) for a in along) / max(free, 1))
    return size / spread if spread > 1e-12 * size else math.nan


def trades_of(
    statistics: np.ndarray,
    pairs: np.ndarray,
    apart: np.ndarray,
    codes: np.ndarray,
    window: np.ndarray,
    names: Sequence[Hashable],
) -> tuple[Trade, ...]:
    """Pairs of classes, the surest trade first, by statistics (pairs, 1 + B)."""
    p_values = p_values_of_largest(statistics)
    near = _nearest_label(apart, codes, window)
    found = []
    for place in np.argsort(p_values, kind="stable"):
        a, b = pairs[place]
        shares = [
            _share(near, codes, side, *order)
            for order in ((a, b), (b, a))
            for side in (window, ~window)
        ]
        found.append(Trade(names[a], names[b], float(p_values[place]), *shares))
    return tuple(found)


def _nearest_label(apart: np.ndarray, codes: np.ndarray, window: np.ndarray) -> np.ndarray:
    """The label that most of the nearest samples of the reference have, for each sample; a sample
    of the reference does not count itself.
    """
    known = np.flatnonzero(~window)
    to = apart[:, known].copy()
    to[known, np.arange(len(known))] = np.inf
    k = min(_NEIGHBOURS, max(len(known) - 1, 1))
    order = np.argsort(to, axis=1, kind="stable")[:, :k]
    votes = np.zeros((len(codes), int(codes.max()) + 1))
    for column in range(k):
        votes[np.arange(len(codes)), codes[known[order[:, column]]]] += 1 + 1e-3 * (k - column)
    return votes.argmax(axis=1)


def _share(near: np.ndarray, codes: np.ndarray, side: np.ndarray, a: int, b: int) -> float:
    """Of samples of a side among neighbours of class a, labeled a or b: the share labeled b."""
    there = side & (near == a) & ((codes == a) | (codes == b))
    return float((codes[there] == b).mean()) if there.any() else math.nan
