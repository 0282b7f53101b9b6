"""Whether to standardise columns: do they share a unit, and do both datasets have the same units?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from advect.data.dataset import LabeledDataset
from advect.spaces.images import layout

PIXELS = "pixels share a unit"
_MAX_ROWS = 10_000  # evenly spaced, from which spreads are estimated
_CLIP = 0.95  # quantile at which deviations are clipped: a gross error is no spread
_UNITS = 10.0  # ratio of the spreads of columns from which they have different units
_CHANGE = 2.0  # ratio of the spreads of a column in two datasets from which its unit differs
_APART = 4.0  # spreads between the medians of a column from which its unit differs


def choose_scale(*sets: LabeledDataset) -> tuple[str, str]:
    """The choice of ``scale="auto"`` for datasets with the same or other features, and its reason.

    Columns share a unit if the 10 % and 90 % quantiles of their spreads differ by less than a
    factor of ten. The spread of a column is the mean deviation from its median over the
    entries that differ from it: pixels that are rarely on have the spread of the others.
    """
    if all(layout(data.sample_shape) is not None for data in sets):
        return "none", PIXELS
    columns = next((data.columns for data in sets if data.columns is not None), None)
    return scale_of([data.x for data in sets], columns)


def scale_of(sides: Sequence[Tensor], columns: Sequence[str] | None) -> tuple[str, str]:
    """``choose_scale`` for features (n, d) that are not images."""
    medians, spreads = zip(*map(_location_and_spread, sides), strict=True)
    varying = [spread[spread > 0] for spread in spreads if (spread > 0).any()]
    ends = [np.quantile(each, [0.1, 0.9]) for each in varying]
    ratio = max((float(high / low) for low, high in ends), default=1.0)
    reason = f"spreads of columns differ by a factor of {ratio:.2g}"
    if ratio < _UNITS:
        return "none", f"columns share a unit: {reason}"
    if len(sides) == 2 and len(spreads[0]) == len(spreads[1]):
        wide = np.maximum(*spreads)
        narrow = np.where(np.minimum(*spreads) > 0, np.minimum(*spreads), wide)
        change = np.where(wide > 0, wide / np.where(wide > 0, narrow, 1), 1)
        apart = np.abs(medians[0] - medians[1]) / np.where(wide > 0, wide, np.inf)
        column = int(np.argmax(np.maximum(change / _CHANGE, apart / _APART)))
        if change[column] >= _CHANGE or apart[column] >= _APART:
            name = repr(columns[column]) if columns else column
            facts = (
                f"{change[column]:.3g} times the spread, medians {apart[column]:.2g} spreads apart"
            )
            return "each", f"units differ between the datasets: column {name} has {facts}"
    return "pooled", f"columns have different units: {reason}"


def _location_and_spread(x: Tensor) -> tuple[np.ndarray, np.ndarray]:
    values = x.detach()[:: max(1, len(x) // _MAX_ROWS)].cpu().double().numpy()
    median = np.median(values, axis=0)
    deviations = np.ma.masked_equal(np.abs(values - median), 0)
    ordered = np.ma.sort(deviations, axis=0)  # masked entries last
    last = (_CLIP * (deviations.count(axis=0) - 1)).clip(min=0).round().astype(int)
    clip = ordered.filled(0)[last, np.arange(x.shape[1])]
    return median, np.ma.minimum(deviations, clip).mean(axis=0).filled(0)
