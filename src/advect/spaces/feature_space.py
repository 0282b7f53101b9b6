"""A feature space common to two datasets: fitted once, applied to new samples, inverted, saved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from advect._util.checks import check_finite, check_kind, check_known
from advect._util.progress import Progress
from advect.data.coerce import as_features
from advect.data.dataset import LabeledDataset, Table
from advect.errors import InputError
from advect.spaces import steps as step_kinds
from advect.spaces.encoding import Encoding
from advect.spaces.fitting import Fit
from advect.spaces.images import Pixels
from advect.spaces.pictures import Pictures, nearest_samples
from advect.spaces.steps import Columns, Names, Step, listed, read_shape, require, select

_NAME, _VERSION = "advect.FeatureSpace", 1
_STEPS = {s.kind: s for s in (Pixels, Columns, step_kinds.Scale, step_kinds.Projection)}
_DTYPES = {"float32": torch.float32, "float64": torch.float64}
Samples = TypeVar("Samples", LabeledDataset, Tensor, np.ndarray)


@dataclass(frozen=True, eq=False)
class Side:
    """Samples of one side and the steps from them to the common space."""

    shape: tuple[int, ...]
    columns: Names
    steps: tuple[Step, ...]
    dtype: torch.dtype | None = None
    table: Table | None = None

    @property
    def n_layout(self) -> int:
        """How many of the steps change only the size of images or the order of columns."""
        changed = (not (step.only_resizes or step.keeps_units) for step in self.steps)
        return next((at for at, change in enumerate(changed) if change), len(self.steps))

    def shape_after(self, count: int) -> tuple[int, ...]:
        return self.steps[count - 1].shapes[1] if count else self.shape

    @property
    def encoding(self) -> Encoding | None:
        return next((step for step in self.steps if isinstance(step, Encoding)), None)

    def to_dict(self, folder: Path | None) -> dict[str, Any]:
        return {
            "sample_shape": list(self.shape),
            "columns": None if self.columns is None else list(self.columns),
            "dtype": None if self.dtype is None else str(self.dtype)[6:],
            "table": None if self.table is None else self.table.to_dict(),
            "steps": [{"kind": step.kind, **step.to_dict(folder)} for step in self.steps],
        }

    @classmethod
    def from_dict(cls, facts: Any, coders: dict[str, Any], folder: Path | None) -> Side:
        shape, columns = _read_shape_and_columns(facts)
        dtype = None if facts.get("dtype") is None else _DTYPES[facts["dtype"]]
        table = None if facts.get("table") is None else Table.from_dict(facts["table"])
        require(type(facts["steps"]) is list, "steps must be a list")
        steps: list[Step] = []
        before = shape
        for entry in facts["steps"]:
            encoded = entry["kind"] == Encoding.kind
            step = Encoding.load(entry, coders, folder) if encoded else None
            step = step or _STEPS[entry["kind"]].from_dict(entry)
            fits = math.prod(step.shapes[0]) == math.prod(before)
            fits &= not step.only_resizes or step.shapes[0] == before
            fits &= not isinstance(step, Columns) or step.given == columns
            require(fits, f"the step {step.kind!r} does not fit samples of shape {before}")
            steps.append(step)
            before = step.shapes[1]
        return cls(shape, columns, tuple(steps), dtype, table)


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
        encoder: Any = None,
        decoder: Any = None,
        progress: Progress = None,
    ) -> FeatureSpace:
        """Fit the space of ``harmonize``, which describes the options."""
        for data in (source, target):
            remedy = "Wrap arrays as LabeledDataset(x, y)."
            check_kind("harmonize needs datasets", data, LabeledDataset, remedy)
            _refuse_laws(data)
        if source.x.device != target.x.device:
            raise InputError("datasets must be on one device", target.x.device, "Use .to(device).")
        dtype = torch.promote_types(source.x.dtype, target.x.dtype)
        options = (size, channels, columns, scale, project, encoder, decoder, progress)
        fit = Fit(source.to(dtype=dtype), target.to(dtype=dtype), *options)
        sides = (
            Side(data.sample_shape, data.columns, tuple(steps), data.x.dtype, data.table)
            for data, steps in zip((source, target), fit.steps, strict=True)
        )
        return cls(fit.shape, fit.names, dtype, *sides)

    def apply(self, data: Samples, side: str = "source") -> Samples:
        """Map samples of one side, old or new, to the common space.

        Args:
            data: a dataset, or an array (n, …). Columns are matched by name if both have names.
            side: ``"source"`` or ``"target"``.

        Returns:
            A dataset, tensor or numpy array as ``data``, in the dtype of the space. Gradients pass
            through the features.
        """
        chosen = self._side(side)
        x = _applied(chosen.steps, self._features(data, side))
        table = data.table if isinstance(data, LabeledDataset) else None
        if table is not None and not all(step.keeps_units for step in chosen.steps):
            table = table.without_kinds
        return _like(data, x, self.sample_shape, self.columns, table)

    def invert(self, data: Samples, side: str = "source") -> Samples:
        """Map samples of the common space to the units, size, channels and columns of one side.

        What ``apply`` kept comes back up to rounding. What it lost is filled in: columns and an
        alpha channel that were dropped by their mean, dropped principal components by least
        squares, color by gray, shrunk images by the bilinear enlargement with the least change that
        shrinks to the given image. Enlarged images come back by least squares. Resizing can exceed
        the range of the pixels at edges.

        Args:
            data: a dataset in the space, or an array (n, …).
            side: ``"source"`` or ``"target"``.
        """
        chosen = self._side(side)
        remedy = "Use apply to bring samples to the common space."
        x = _read(data, self.sample_shape, self.columns, "samples of the common space", remedy)
        x = _inverted(chosen.steps, x)
        return _like(data, x, chosen.shape, chosen.columns, chosen.table, chosen.dtype)

    def pictures(self, source: LabeledDataset, target: LabeledDataset | None = None) -> Pictures:
        """A function that shows samples of the space before scaling, projection and encoding.

        It inverts these steps. For an encoder without a decoder it shows the nearest sample of
        ``source`` and ``target`` instead.
        """
        count = self._source.n_layout
        shape, dim = self._source.shape_after(count), math.prod(self.sample_shape)
        hidden = self._source.steps[count:]
        if all(step.invertible for step in hidden):
            maker = "decoder" if self._source.encoding in hidden else "inverse"
            lossy = any(step.loses() for step in hidden)
            how = f"the {maker} of their features" if lossy else ""
            return Pictures(shape, how, dim, partial(_inverted, hidden))
        samples, features = [], []
        for side, data in (("source", source), ("target", target)):
            if data is not None:
                steps, count = self._side(side).steps, self._side(side).n_layout
                samples.append(_applied(steps[:count], self._features(data, side)))
                features.append(_applied(steps[count:], samples[-1]))
        show = nearest_samples(torch.cat(features), torch.cat(samples))
        how = f"the nearest of {sum(map(len, samples)):,} real samples"
        return Pictures(shape, how, dim, show)

    def shape_of(self, side: str) -> tuple[int, ...]:
        """Shape of one sample of a side."""
        return self._side(side).shape

    def changes(self, side: str) -> bool:
        """Whether samples of a side differ from those of the space in more than their dtype."""
        return len(self._side(side).steps) > 0

    def only_resizes(self, side: str) -> bool:
        """Whether images of a side change in size and channels, and nothing else does."""
        return self.changes(side) and all(step.only_resizes for step in self._side(side).steps)

    def invertible(self, side: str) -> bool:
        """False for an encoder without a decoder."""
        return all(step.invertible for step in self._side(side).steps)

    def dropped(self, side: str) -> tuple[str, ...]:
        """Columns of a side that ``columns="common"`` left out; ``invert`` gives their mean."""
        steps = self._side(side).steps
        return steps[0].dropped if steps and isinstance(steps[0], Columns) else ()

    def loses(self, side: str) -> str:
        """What projection or encoding leaves out of the samples of a side, in words."""
        return next(filter(None, (step.loses() for step in self._side(side).steps)), "")

    @property
    def encoder(self) -> Any:
        """The encoder, fitted; None if there is none or if it was not passed to ``from_dict``."""
        step = self._source.encoding
        return None if step is None else step.encoder.given

    def digests(self) -> dict[str, str]:
        """Digests, or names, of the encoder and the decoder."""
        step = self._source.encoding
        coders = {} if step is None else {"encoder": step.encoder, "decoder": step.decoder}
        return {what: one.get_digest() or one.name for what, one in coders.items() if one}

    def describe(self) -> str:
        """The steps of each side, in three lines."""
        lines = []
        for side in ("source", "target"):
            steps = "; ".join(step.describe() for step in self._side(side).steps)
            lines.append(f"{side} {self.shape_of(side)}: {steps or 'unchanged'}")
        names = f", columns {listed(self.columns)}" if self.columns else ""
        return "\n".join([*lines, f"common {self.sample_shape}{names}, {str(self.dtype)[6:]}"])

    def __repr__(self) -> str:
        sides = f"source={self._source.shape}, target={self._target.shape}"
        return f"FeatureSpace(sample_shape={self.sample_shape}, {sides})"

    def to_dict(self, folder: str | Path | None = None) -> dict[str, Any]:
        """The space as JSON-ready values; an encoder is saved as its name and digest alone.

        Args:
            folder: directory of the saved file, relative to which an ONNX file is found again.

        Example:
            >>> import json, advect as ad
            >>> source, target = ad.LabeledDataset([[0.0], [2.0]]), ad.LabeledDataset([[4.0], [8.0]])
            >>> text = json.dumps(ad.FeatureSpace.fit(source, target, scale="unit").to_dict())
            >>> ad.FeatureSpace.from_dict(json.loads(text)).apply([[1.0]]).tolist()
            [[0.5]]
        """
        place = None if folder is None else Path(folder)
        return {
            "kind": _NAME,
            "version": _VERSION,
            "dtype": str(self.dtype)[6:],
            "sample_shape": list(self.sample_shape),
            "columns": None if self.columns is None else list(self.columns),
            "source": self._source.to_dict(place),
            "target": self._target.to_dict(place),
        }

    @classmethod
    def from_dict(
        cls,
        facts: Any,
        *,
        encoder: Any = None,
        decoder: Any = None,
        folder: str | Path | None = None,
        progress: Progress = None,
    ) -> FeatureSpace:
        """The space that ``to_dict`` returned, with bit-identical results.

        Args:
            facts: the dictionary.
            encoder, decoder: those of the fit; others are refused. ONNX files are found again.
            folder: directory of the saved file.
            progress: as in ``harmonize``.
        """
        coders = {"encoder": encoder, "decoder": decoder, "progress": progress}
        place = None if folder is None else Path(folder)
        try:
            require(facts["kind"] == _NAME and facts["version"] == _VERSION, "unknown version")
            dtype, (shape, names) = _DTYPES[facts["dtype"]], _read_shape_and_columns(facts)
            sides = [Side.from_dict(facts[side], coders, place) for side in ("source", "target")]
            for side in sides:
                fits = math.prod(side.shape_after(len(side.steps))) == math.prod(shape)
                after = reduce(lambda a, step: step.columns_after(a), side.steps, side.columns)
                require(fits and after in (None, names), "sides must lead to the common space")
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as e:
            raise InputError(
                "not a saved feature space of this version, or damaged",
                f"{type(e).__name__}: {e!s:.200}",
                "Pass the result of FeatureSpace.to_dict, or fit the space again.",
            ) from None
        step = sides[0].encoding
        used = {"encoder": step is not None, "decoder": step is not None and step.invertible}
        for what, is_used in used.items():
            if coders[what] is not None and not is_used:
                kind = type(coders[what]).__name__
                raise InputError(f"this space was fitted without {what}", kind, "Leave it out.")
        return cls(shape, names, dtype, sides[0], sides[1])

    def _side(self, side: str) -> Side:
        check_known("side", side, ("source", "target"))
        return self._source if side == "source" else self._target

    def _features(self, data: Any, side: str) -> Tensor:
        """Samples of one side as flat features in the dtype of the space."""
        chosen = self._side(side)
        other = "target" if side == "source" else "source"
        remedy = f"Pass side={other!r} for samples of the {other}."
        x = _read(data, chosen.shape, chosen.columns, f"samples of the {side}", remedy)
        if x.dtype != self.dtype:
            x = x.to(self.dtype)
            check_finite("features", x, "Fit the space on float64, or rescale the features.")
        return x


def _applied(steps: Sequence[Step], x: Tensor) -> Tensor:
    return reduce(lambda x, step: step.apply(x), steps, x)


def _inverted(steps: Sequence[Step], x: Tensor) -> Tensor:
    return reduce(lambda x, step: step.invert(x), reversed(steps), x)


def _read(data: Any, shape: tuple[int, ...], columns: Names, what: str, remedy: str) -> Tensor:
    """Features (n, d) of a dataset or an array, with columns in the given order."""
    if isinstance(data, LabeledDataset):
        _refuse_laws(data)
        x, given = data.x, data.sample_shape
    else:
        values = as_features(data)
        x, given = values.reshape(len(values), -1), tuple(values.shape[1:])
    names = getattr(data, "columns", None)
    if names is not None and columns is not None:
        names = tuple(map(str, names))
        if sorted(names) != sorted(columns):
            raise InputError(
                f"{what} must have the columns {listed(columns)}", listed(names), remedy
            )
        return x if names == columns else select(x, names, columns, {})
    if given not in (shape, (math.prod(shape),)):
        raise InputError(f"{what} must have shape {shape}, one sample to a row", given, remedy)
    return x


def _like(
    data: Any,
    x: Tensor,
    shape: tuple[int, ...],
    columns: Names,
    table: Table | None,
    dtype: torch.dtype | None = None,
) -> Any:
    """Features in the form of ``data``: a dataset, a tensor or an array."""
    if isinstance(data, LabeledDataset):
        same = x is data.x and (shape, columns) == (data.sample_shape, data.columns)
        if same and table is data.table and dtype is None:
            return data
        moved = data.replace(x=x, sample_shape=shape, columns=columns, table=table)
        return moved if dtype is None else moved.to(dtype=dtype)
    samples = x.reshape(len(x), *shape)
    return samples if isinstance(data, Tensor) else samples.numpy()


def _refuse_laws(data: LabeledDataset) -> None:
    if data.law is not None:
        raise InputError(
            "label laws belong to the space in which they were computed",
            f"a dataset with {len(data.law)} laws",
            "Harmonize first, or drop them with .replace(law=None, law_index=None).",
        )


def _read_shape_and_columns(facts: Any) -> tuple[tuple[int, ...], Names]:
    shape = read_shape(facts["sample_shape"])
    columns = None if facts["columns"] is None else tuple(map(str, facts["columns"]))
    require(columns is None or shape == (len(columns),), "one name for each feature")
    return shape, columns
