"""The steps that bring two datasets into one feature space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advect._util import InputError, check_count, check_known, check_sides, refuse_if
from advect.data.dataset import LabeledDataset
from advect.spaces.images import Pixels, image_shape, layout
from advect.spaces.steps import (
    SCALES,
    Columns,
    Names,
    Projection,
    Scale,
    Step,
    applied,
    difference,
    listed,
)

Pair = tuple[LabeledDataset, LabeledDataset]
Steps = tuple[list[Step], list[Step]]  # of the source and of the target
_KNOWN = {"channels": ("gray", "rgb"), "columns": ("common",), "scale": SCALES}
_FITS = ("pad", "crop", "stretch")
_UNITS = 10.0  # ratio of the spreads of columns from which they have different units
_CHANGE = 2.0  # ratio of the spreads of a column in two datasets from which its unit differs
_APART = 4.0  # spreads between the medians of a column from which its unit differs


def fit_steps(
    sets: Pair,
    size: Any,
    channels: str | None,
    columns: str | None,
    scale: str | None,
    project: int | None,
    fit: str,
) -> tuple[Steps, tuple[int, ...], Names, str]:
    """The steps of both sides, the shape and columns of the space, and the reason of an automatic
    scale; see ``harmonize``.
    """
    for name, value in {"channels": channels, "columns": columns, "scale": scale}.items():
        check_known(name, _KNOWN[name][0] if value is None else value, _KNOWN[name])
    check_count("project", 1 if project is None else project)
    check_known("fit", fit, _FITS)
    steps, shape, names, shared = _layout_steps(sets, size, channels, columns, project, fit)
    refuse_if(
        not shared and scale == "target",
        'scale="target" needs the same features on both sides',
        "others",
        'Pass scale="each".',
    )
    if scale in (None, "none") and project is None:
        return steps, shape, names, ""
    x = [applied(side, data.x.detach()) for side, data in zip(steps, sets, strict=True)]
    reason = ""
    if scale == "auto":
        scale, reason = choose_scale(x, shape if shared else (), names)
    if scale not in (None, "none"):
        fitted_to = [x[1], x[1]] if scale == "target" else x
        if shared and scale == "pooled":
            fitted_to = [torch.cat(x)] * 2
        by_class = scale == "each" and _same_classes(*sets)
        weights = [data.balanced().weights if by_class else None for data in sets]
        scales = [Scale.fit(*each) for each in zip(fitted_to, weights, strict=True)]
        steps = [*steps[0], scales[0]], [*steps[1], scales[1]]
        x = [step.apply(part) for step, part in zip(scales, x, strict=True)]
    if project is not None:
        fitted_to = [torch.cat(x)] * 2 if shared else x
        first, second = (Projection.fit(project, each) for each in fitted_to)
        steps = [*steps[0], first], [*steps[1], second]
        shape, names = (project,), None
    return steps, shape, names, reason and f"scale {scale}: {reason}"


def choose_scale(
    sides: Sequence[Tensor], shape: tuple[int, ...], columns: Sequence[str] | None = None
) -> tuple[str, str]:
    """The choice of ``scale="auto"`` for the features (n, d) of one or two datasets, and its reason.

    Columns share a unit if the 10 % and 90 % quantiles of their spreads differ by less than a
    factor of ten. The spread of a column is the mean deviation from its median over the
    entries that differ from it: pixels that are rarely on have the spread of the others.
    """
    if layout(shape) is not None:
        return "none", "pixels share a unit"
    medians, spreads = zip(*map(_location_and_spread, sides), strict=True)
    ratio = np.nanmax([1.0, *(each.quantile(0.9) / each.quantile(0.1) for each in spreads)])
    reason = f"their spreads differ by a factor of {ratio:.2g}"
    if ratio < _UNITS:
        return "none", f"columns share a unit: {reason}"
    if len(sides) == 2 and len(spreads[0]) == len(spreads[1]):
        change = np.exp(np.abs(np.log(spreads[0] / spreads[1])))
        apart = (medians[0] - medians[1]).abs() / np.fmax(*spreads)
        score = np.fmax(change / _CHANGE, apart / _APART)
        at = int(score.argmax())
        if score[at] >= 1:
            name = repr(columns[at]) if columns else at
            facts = " and ".join(
                f"{m[at]:.3g} ± {s[at]:.2g}" for m, s in zip(medians, spreads, strict=True)
            )
            return "each", f"units differ between the datasets: column {name} is {facts}"
    return "pooled", f"columns have different units: {reason}"


def _location_and_spread(x: Tensor) -> tuple[Any, Any]:
    """Medians, and spreads of up to 10,000 rows without gross errors; NaN for constant columns."""
    import pandas as pd

    frame = pd.DataFrame(x.detach()[:: max(1, len(x) // 10_000)].cpu().double().numpy())
    deviations = (frame - frame.median()).abs()
    deviations = deviations.where(deviations > 0)
    return frame.median(), deviations.clip(upper=deviations.quantile(0.95), axis=1).mean()


def _same_classes(*sets: LabeledDataset) -> bool:
    """Whether all samples of both sides have labels, with the same class names."""
    first, second = ({str(name) for name, n in data.counts.items() if n} for data in sets)
    return first == second and all(data.has_classes and bool(data.labeled.all()) for data in sets)


def _layout_steps(
    sets: Pair,
    size: Any,
    channels: str | None,
    columns: str | None,
    project: int | None,
    fit: str,
) -> tuple[Steps, tuple[int, ...], Names, bool]:
    """Steps to one image size or one order of columns, the sample shape and columns after them, and
    whether both sides have the same features then.
    """
    source, target = sets
    images = [layout(data.sample_shape) for data in sets]
    shapes = f"sample shapes {source.sample_shape} and {target.sample_shape}"
    size = None if size is None else check_sides(size)
    named = source.columns is not None and target.columns is not None
    refuse_if(
        columns is not None and not named,
        "columns needs column names on both sides",
        shapes,
        "Name them with LabeledDataset(…, columns=…), or leave the option out.",
    )
    if images[0] is not None and images[1] is not None:
        gray = channels == "gray" or (channels is None and images[0][0] == images[1][0] == 1)
        size = size or (max(images[0][1], images[1][1]), max(images[0][2], images[1][2]))
        shape = image_shape(target.sample_shape, 1 if gray else 3, size)
        steps: Steps = ([], [])
        for side, data in zip(steps, sets, strict=True):
            if data.sample_shape != shape:
                side.append(Pixels(data.sample_shape, shape, fit))
        return steps, shape, None, True
    absent = size is None and channels is None
    refuse_if(not absent, "size and channels are for images", shapes, "Leave them out.")
    if source.columns is not None and target.columns is not None:
        if columns or project is None or {*source.columns} == {*target.columns}:
            steps, names = _column_steps(sets, source.columns, target.columns, columns)
            return steps, (len(names),), names, True
    elif images == [None, None] and source.dim == target.dim:
        names = target.columns or source.columns
        return ([], []), target.sample_shape if names is None else (len(names),), names, True
    if project is not None:
        return ([], []), (project,), None, False
    raise InputError(
        "datasets must share a feature space: both images, or vectors of one dimension",
        shapes,
        "Give flattened images their shape with .replace(sample_shape=(H, W)), project both to "
        "principal components (project=k), or use an embedding in the cost.",
    )


def _column_steps(
    sets: Pair, first: tuple[str, ...], second: tuple[str, ...], columns: str | None
) -> tuple[Steps, tuple[str, ...]]:
    """Columns by name. A one-hot column ``name=value`` that a side lacks is 0 if that side has other
    values of the category.
    """
    tables = [data.table for data in sets if data.table is not None]
    kinds = [column for table in tables for column in table.columns if column.values]
    category = {name: column.name for column in kinds for name in column.names}
    lacking = difference(second, first), difference(first, second)
    wanted = tuple(name for name in second if name not in lacking[0])
    if columns is None:
        for given, absent in zip((first, second), lacking, strict=True):
            categories = {category.get(name) for name in given} - {None}
            refuse_if(
                not all(category.get(name) in categories for name in absent),
                "both datasets must have the same columns",
                f"{listed(lacking[0])} missing in the source, {listed(lacking[1])} missing in the target",
                'Pass columns="common", or rename them with .replace(columns=…).',
            )
        wanted = (*second, *lacking[1])
    refuse_if(
        not wanted,
        "the datasets share no column",
        listed(first),
        "Rename them with .replace(columns=…), or pass project=k.",
    )
    steps: Steps = ([], [])
    for side, data, given in zip(steps, sets, (first, second), strict=True):
        if given != wanted:
            means = dict(zip(given, data.x.double().mean(dim=0).tolist(), strict=True))
            one_sided = (*difference(given, wanted), *difference(wanted, given))
            side.append(Columns(given, wanted, {name: means.get(name, 0.0) for name in one_sided}))
    return steps, wanted
