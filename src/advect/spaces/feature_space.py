"""A feature space common to two datasets, with the maps to it and back."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from advect._util import InputError, check_finite, check_kind, check_known, refuse_if
from advect.data.dataset import LabeledDataset, Table
from advect.spaces.fitting import fit_steps
from advect.spaces.images import Pixels
from advect.spaces.steps import (
    Columns,
    Names,
    Projection,
    Scale,
    Step,
    applied,
    inverted,
    listed,
    select,
)

_NAME, _VERSION = "advect.FeatureSpace", 1
_STEPS = {step.kind: step for step in (Pixels, Columns, Scale, Projection)}
_DTYPES = {"float32": torch.float32, "float64": torch.float64, None: None}
Samples = TypeVar("Samples", LabeledDataset, Tensor, np.ndarray)


@dataclass(frozen=True, eq=False)
class Side:
    """Samples of one side and the steps from them to the common space."""

    shape: tuple[int, ...]
    columns: Names
    steps: tuple[Step, ...]
    dtype: torch.dtype | None = None
    table: Table | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "sample_shape": list(self.shape),
            "columns": self.columns and list(self.columns),
            "dtype": self.dtype and str(self.dtype)[6:],
            "table": self.table and self.table.to_dict(),
            "steps": [{"kind": step.kind, **step.to_dict()} for step in self.steps],
        }

    @classmethod
    def from_dict(cls, facts: Any) -> Side:
        steps = [_STEPS[entry["kind"]].from_dict(entry) for entry in facts["steps"]]
        table = None if facts.get("table") is None else Table.from_dict(facts["table"])
        return cls(*_shape_and_columns(facts), tuple(steps), _DTYPES[facts.get("dtype")], table)


@dataclass(frozen=True, eq=False, repr=False)
class FeatureSpace:
    """A feature space common to two datasets, with the maps from each side to it and back.

    Attributes:
        sample_shape: shape of one sample in the space.
        columns: names of its features, or None.
        dtype: of the features in the space, the wider one of the two datasets.

    Example:
        >>> import advect as ad
        >>> digits, mnist = ad.datasets.load("digits"), ad.datasets.load("mnist", n=60)
        >>> space = ad.FeatureSpace.fit(digits.subset(range(50)), mnist)
        >>> there = space.apply(digits)
        >>> there.sample_shape, bool((space.invert(there).x - digits.x).abs().max() < 1e-5)
        ((28, 28), True)
        >>> print(space.describe())
        source (8, 8): images of shape (8, 8) as (28, 28)
        target (28, 28): unchanged
        common (28, 28), float32
    """

    sample_shape: tuple[int, ...]
    columns: Names
    dtype: torch.dtype
    _source: Side
    _target: Side
    _reason: str = ""  # of an automatic scale

    @classmethod
    def fit(
        cls,
        source: LabeledDataset,
        target: LabeledDataset,
        *,
        size: int | tuple[int, int] | None = None,
        channels: str | None = None,
        columns: str | None = None,
        scale: str | None = None,
        project: int | None = None,
        fit: str = "pad",
    ) -> FeatureSpace:
        """Fit the space of ``harmonize``, which describes the options."""
        for data in (source, target):
            check_kind(
                "harmonize needs datasets",
                data,
                LabeledDataset,
                "Wrap arrays as LabeledDataset(x, y).",
            )
            _refuse_laws(data)
        devices = source.x.device, target.x.device
        refuse_if(
            devices[0] != devices[1],
            "datasets must be on one device",
            devices[1],
            "Use .to(device).",
        )
        dtype = torch.promote_types(source.x.dtype, target.x.dtype)
        sets = source.to(dtype=dtype), target.to(dtype=dtype)
        steps, shape, names, reason = fit_steps(sets, size, channels, columns, scale, project, fit)
        first, second = (
            Side(data.sample_shape, data.columns, tuple(side), data.x.dtype, data.table)
            for data, side in zip((source, target), steps, strict=True)
        )
        return cls(shape, names, dtype, first, second, reason)

    def apply(self, data: Samples, side: str = "source") -> Samples:
        """Map samples of one side, old or new, to the common space.

        Args:
            data: a dataset, or an array (n, …). Columns are matched by name if both have names.
            side: ``"source"`` or ``"target"``.

        Returns:
            A dataset, tensor or numpy array as ``data``, in the dtype of the space. Gradients pass
            through the features.
        """
        chosen, other = self._side(side), "target" if side == "source" else "source"
        remedy = f"Pass side={other!r} for samples of the {other}."
        samples = as_dataset(data)
        x = _read(samples, chosen, f"samples of the {side}", remedy)
        if x.dtype != self.dtype:
            x = x.to(self.dtype)
            check_finite("features", x, "Fit the space on float64, or rescale the features.")
        table = samples.table
        if not all(step.keeps_kinds for step in chosen.steps):
            table = table and table.without_kinds
        common = Side(self.sample_shape, self.columns, (), None, table)
        return _like(data, samples, applied(chosen.steps, x), common)

    def invert(self, data: Samples, side: str = "source") -> Samples:
        """Map samples of the common space to the units, size, channels and columns of one side.

        What ``apply`` kept comes back up to rounding. What it lost is filled in: dropped columns by
        their mean, dropped principal components by least squares, color by gray, shrunk images by
        the bilinear enlargement with the least change that shrinks to the given image. Enlarged
        images come back by least squares. Resizing can exceed the range of the pixels at edges.

        Args:
            data: a dataset in the space, or an array (n, …).
            side: ``"source"`` or ``"target"``.
        """
        chosen, samples = self._side(side), as_dataset(data)
        common = Side(self.sample_shape, self.columns, ())
        remedy = "Use apply to bring samples to the common space."
        x = _read(samples, common, "samples of the common space", remedy)
        return _like(data, samples, inverted(chosen.steps, x), chosen)

    def shape_of(self, side: str) -> tuple[int, ...]:
        """Shape of one sample of a side."""
        return self._side(side).shape

    def kinds(self, side: str) -> tuple[str, ...]:
        """Kinds of the steps of a side: columns, pixels, scale, project."""
        return tuple(step.kind for step in self._side(side).steps)

    def dropped(self, side: str) -> tuple[str, ...]:
        """Columns of a side that ``columns="common"`` left out; ``invert`` gives their mean."""
        return tuple(name for step in self._side(side).steps for name in step.dropped)

    def describe(self) -> str:
        """The steps of each side in three lines, and a line for an automatic scale."""
        lines = [
            f"{name} {side.shape}: {'; '.join(step.describe() for step in side.steps) or 'unchanged'}"
            for name, side in {"source": self._source, "target": self._target}.items()
        ]
        names = f", columns {listed(self.columns)}" if self.columns else ""
        lines.append(f"common {self.sample_shape}{names}, {str(self.dtype)[6:]}")
        return "\n".join([*lines, self._reason] if self._reason else lines)

    def __repr__(self) -> str:
        sides = f"source={self._source.shape}, target={self._target.shape}"
        return f"FeatureSpace(sample_shape={self.sample_shape}, {sides})"

    def to_dict(self) -> dict[str, Any]:
        """The space as JSON-ready values.

        Example:
            >>> import json, advect as ad
            >>> source, target = ad.LabeledDataset([[0.0], [2.0]]), ad.LabeledDataset([[4.0], [8.0]])
            >>> text = json.dumps(ad.FeatureSpace.fit(source, target, scale="each").to_dict())
            >>> ad.FeatureSpace.from_dict(json.loads(text)).apply([[2.0]]).tolist()
            [[1.0]]
        """
        facts = {
            "kind": _NAME,
            "version": _VERSION,
            "dtype": str(self.dtype)[6:],
            "sample_shape": list(self.sample_shape),
            "columns": self.columns and list(self.columns),
            "source": self._source.to_dict(),
            "target": self._target.to_dict(),
            "reason": self._reason,
        }
        return facts | {"digest": _digest(facts)}

    @classmethod
    def from_dict(cls, facts: Any) -> FeatureSpace:
        """The space that ``to_dict`` returned, with bit-identical results."""
        try:
            content = {name: value for name, value in facts.items() if name != "digest"}
            saved = facts["kind"], facts["version"], facts.get("digest", _digest(content))
            if saved != (_NAME, _VERSION, _digest(content)):  # 0.2.0 wrote no digest
                raise ValueError("another version or changed content")
            common = *_shape_and_columns(facts), _DTYPES[facts["dtype"]]
            source, target = (Side.from_dict(facts[side]) for side in ("source", "target"))
            reason = str(facts.get("reason", ""))
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as e:
            raise InputError(
                "not a saved feature space of this version, or damaged",
                f"{type(e).__name__}: {e!s:.200}",
                "Pass the result of FeatureSpace.to_dict, or fit the space again.",
            ) from None
        return cls(*common, source, target, reason)

    def _side(self, side: str) -> Side:
        check_known("side", side, ("source", "target"))
        return self._source if side == "source" else self._target


def _read(data: LabeledDataset, side: Side, what: str, remedy: str) -> Tensor:
    """Features (n, d) of a dataset, with columns in the order of a side."""
    _refuse_laws(data)
    names, columns, shape = data.columns, side.columns, side.shape
    if names is not None and columns is not None:
        same = {*names} == {*columns}
        refuse_if(
            not same, f"{what} must have the columns {listed(columns)}", listed(names), remedy
        )
        return data.x if names == columns else select(data.x, names, columns, {})
    fits = data.sample_shape in (shape, (math.prod(shape),))
    refuse_if(
        not fits, f"{what} must have shape {shape}, one sample to a row", data.sample_shape, remedy
    )
    return data.x


def _like(data: Any, samples: LabeledDataset, x: Tensor, side: Side) -> Any:
    """Features of a side in the form of ``data``: a dataset, a tensor or an array."""
    if samples is not data:
        return in_form_of(data, x.reshape(len(x), *side.shape))
    fields = {"sample_shape": side.shape, "columns": side.columns, "table": side.table}
    if x is not data.x or any(getattr(data, name) != value for name, value in fields.items()):
        data = data.replace(x=x, **fields)
    return data if side.dtype is None else data.to(dtype=side.dtype)


def as_dataset(data: Any) -> LabeledDataset:
    """A dataset as it is, an array (n, …) as a dataset without labels."""
    return data if isinstance(data, LabeledDataset) else LabeledDataset(data)


def in_form_of(data: Any, samples: Tensor) -> Any:
    """Samples as a tensor if ``data`` is one, otherwise as a numpy array."""
    return samples if torch.is_tensor(data) else samples.numpy()


def _shape_and_columns(facts: Any) -> tuple[tuple[int, ...], Names]:
    return tuple(facts["sample_shape"]), facts["columns"] and tuple(facts["columns"])


def _refuse_laws(data: LabeledDataset) -> None:
    refuse_if(
        data.law is not None,
        "label laws belong to the space in which they were computed",
        "a dataset with laws",
        "Harmonize first, or drop them with .replace(law=None, law_index=None).",
    )


def _digest(facts: Any) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def harmonize(
    source: LabeledDataset,
    target: LabeledDataset,
    *more: LabeledDataset,
    size: int | tuple[int, int] | None = None,
    channels: str | None = None,
    columns: str | None = None,
    scale: str | None = None,
    project: int | None = None,
    fit: str = "pad",
) -> tuple[LabeledDataset, ...]:
    """Bring two or more datasets into one feature space and one dtype.

    Images are samples of shape (H, W), (H, W, C) with C = 1 or 3, or (C, H, W) with H, W > 4. They
    get the channel axis of the target where it has as many channels, otherwise the shape (H, W) or
    (H, W, 3). Other samples are vectors, matched by column names if both sides have them (in the
    order of the target), otherwise by position.
    ``FeatureSpace.fit`` takes the same options and also maps new samples, and samples back.

    Args:
        source: a dataset of images or vectors.
        target: another one, on the same device.
        *more: further ones. Images get the size and channels of the largest. Options that are
            estimated from two datasets (columns, project, scale except "each") are not available.
        size: side or (height, width) of images; by default the larger height and width. Resizing
            is bilinear and antialiased.
        channels: ``"gray"`` (0.299 R + 0.587 G + 0.114 B), ``"rgb"``, or None: rgb if either is.
        columns: None for an error if the columns differ, ``"common"`` to keep the shared ones. A
            value of a category (``coat=long``) that a side lacks is 0 there.
        scale: ``"each"`` standardises each dataset by itself (mean 0 and deviation 1 in each column),
            for other instruments or units; ``"pooled"`` by the statistics of both, for columns with
            different units; ``"target"`` by those of the target. ``"auto"`` keeps images and columns
            that share a unit, otherwise chooses "each" if a column changes its unit between the datasets and "pooled" if not;
            ``FeatureSpace.describe`` says why. None and ``"none"`` change nothing. With "each",
            classes count equally if both datasets are labeled with the same class names, so that
            class proportions do not move the means. Weights are ignored, and constant features are
            only centred.
        project: number of principal components to keep, of both datasets together. If the features
            differ (other dimensions, images with vectors, other columns), each side is projected to
            its own components; then only the geometry within each dataset is meaningful.
        fit: how images of other proportions get the size: ``"pad"`` adds margins of 0, ``"crop"`` cuts
            margins off (``invert`` fills them with 0), ``"stretch"`` changes the proportions.

    To work in the features of a network, encode the samples of both datasets first:
    ``data.replace(x=network(data.samples))``.

    Raises:
        InputError: vectors of different dimension or columns, images with vectors, different
            devices, or a dataset with label laws.

    Example:
        >>> import advect as ad
        >>> small, large = ad.datasets.load("digits", n=50), ad.datasets.load("mnist", n=60)
        >>> ad.harmonize(small, large)[0]
        LabeledDataset(n=50, sample_shape=(28, 28), classes=10, dtype=float32)
        >>> first = ad.LabeledDataset([[180.0, 80.0], [160.0, 60.0]], columns=["height", "weight"])
        >>> second = ad.LabeledDataset([[70.0, 170.0], [50.0, 150.0]], columns=["weight", "height"])
        >>> ad.harmonize(first, second)[0].x.tolist()
        [[80.0, 180.0], [60.0, 160.0]]
    """
    options = {"size": size, "channels": channels, "scale": scale, "fit": fit}
    if not more:
        space = FeatureSpace.fit(source, target, **options, columns=columns, project=project)
        return space.apply(source), space.apply(target, side="target")
    what = "more than two datasets can only be resized or scaled one by one"
    remedy = 'Use size, channels or scale="each", or harmonize pairs.'
    pairs_only = scale not in (None, "none", "each") or project is not None or columns is not None
    refuse_if(pairs_only, what, "scale, project or columns", remedy)
    sets = [source, target, *more]
    if len({data.sample_shape for data in sets}) == 1 and not (size or channels or scale):
        return (*sets,)
    largest = max(sets, key=lambda data: (len(data.sample_shape), data.dim))
    moved = [FeatureSpace.fit(data, largest, **options).apply(data) for data in sets]
    shapes = {data.sample_shape for data in moved}
    got, remedy = ", ".join(map(str, shapes)), "Give images a size and channels."
    refuse_if(len(shapes) != 1, "the datasets do not fit one feature space", got, remedy)
    return (*moved,)
