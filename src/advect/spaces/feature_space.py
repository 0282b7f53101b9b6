"""A feature space common to two datasets: fitted once, applied to new samples, inverted, saved."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from advect._util.checks import check_finite, check_kind, check_known
from advect._util.progress import Progress
from advect.data.dataset import LabeledDataset, Table
from advect.errors import InputError
from advect.spaces.encoding import Coder, Encoding
from advect.spaces.fitting import fit_steps
from advect.spaces.images import Pixels
from advect.spaces.steps import (
    Columns,
    Names,
    Projection,
    Scale,
    Step,
    applied,
    difference,
    inverted,
    listed,
    select,
)

_NAME, _VERSION = "advect.FeatureSpace", 1
_STEPS = {step.kind: step for step in (Pixels, Columns, Scale, Projection, Encoding)}
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

    @property
    def coders(self) -> dict[str, Coder]:
        """The encoder and the decoder, if there are any."""
        step = next((step for step in self.steps if isinstance(step, Encoding)), None)
        coders = {} if step is None else {"encoder": step.encoder, "decoder": step.decoder}
        return {what: coder for what, coder in coders.items() if coder is not None}

    def to_dict(self) -> dict[str, Any]:
        return {
            "sample_shape": list(self.shape),
            "columns": None if self.columns is None else list(self.columns),
            "dtype": None if self.dtype is None else str(self.dtype)[6:],
            "table": None if self.table is None else self.table.to_dict(),
            "steps": [{"kind": step.kind, **step.to_dict()} for step in self.steps],
        }

    @classmethod
    def from_dict(cls, facts: Any, **coders: Any) -> Side:
        steps = [_STEPS[entry["kind"]].from_dict(entry, **coders) for entry in facts["steps"]]
        columns = None if facts["columns"] is None else tuple(facts["columns"])
        table = None if facts.get("table") is None else Table.from_dict(facts["table"])
        dtype = _DTYPES[facts.get("dtype")]
        return cls(tuple(facts["sample_shape"]), columns, tuple(steps), dtype, table)


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
        sets = source.to(dtype=dtype), target.to(dtype=dtype)
        coders = encoder, decoder, progress
        steps, shape, names = fit_steps(sets, size, channels, columns, scale, project, *coders)
        sides = (
            Side(data.sample_shape, data.columns, tuple(side), data.x.dtype, data.table)
            for data, side in zip((source, target), steps, strict=True)
        )
        return cls(shape, names, dtype, *sides)

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
        x = _read(data, chosen.shape, chosen.columns, f"samples of the {side}", remedy)
        if x.dtype != self.dtype:
            x = x.to(self.dtype)
            check_finite("features", x, "Fit the space on float64, or rescale the features.")
        x = applied(chosen.steps, x)
        table = data.table if isinstance(data, LabeledDataset) else None
        if table is not None and not all(isinstance(step, Columns) for step in chosen.steps):
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
        x = inverted(chosen.steps, x)
        return _like(data, x, chosen.shape, chosen.columns, chosen.table, chosen.dtype)

    def shape_of(self, side: str) -> tuple[int, ...]:
        """Shape of one sample of a side."""
        return self._side(side).shape

    def kinds(self, side: str) -> tuple[str, ...]:
        """Kinds of the steps of a side: columns, pixels, encode, scale, project."""
        return tuple(step.kind for step in self._side(side).steps)

    def invertible(self, side: str) -> bool:
        """False for an encoder without a decoder."""
        return all(step.invertible for step in self._side(side).steps)

    def dropped(self, side: str) -> tuple[str, ...]:
        """Columns of a side that ``columns="common"`` left out; ``invert`` gives their mean."""
        steps = (step for step in self._side(side).steps if isinstance(step, Columns))
        return tuple(name for step in steps for name in difference(step.given, step.wanted))

    @property
    def encoder(self) -> Any:
        """The encoder, fitted; None if there is none or if it was not passed to ``from_dict``."""
        coder = self._source.coders.get("encoder")
        return None if coder is None else coder.given

    def digests(self) -> dict[str, str]:
        """Digests, or names, of the encoder and the decoder."""
        coders = self._source.coders
        return {what: coder.get_digest() or coder.name for what, coder in coders.items()}

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

    def to_dict(self) -> dict[str, Any]:
        """The space as JSON-ready values; an encoder is saved as its name and digest alone.

        Example:
            >>> import json, advect as ad
            >>> source, target = ad.LabeledDataset([[0.0], [2.0]]), ad.LabeledDataset([[4.0], [8.0]])
            >>> text = json.dumps(ad.FeatureSpace.fit(source, target, scale="unit").to_dict())
            >>> ad.FeatureSpace.from_dict(json.loads(text)).apply([[1.0]]).tolist()
            [[0.5]]
        """
        facts = {
            "kind": _NAME,
            "version": _VERSION,
            "dtype": str(self.dtype)[6:],
            "sample_shape": list(self.sample_shape),
            "columns": None if self.columns is None else list(self.columns),
            "source": self._source.to_dict(),
            "target": self._target.to_dict(),
        }
        return facts | {"digest": _digest(facts)}

    @classmethod
    def from_dict(
        cls, facts: Any, *, encoder: Any = None, decoder: Any = None, progress: Progress = None
    ) -> FeatureSpace:
        """The space that ``to_dict`` returned, with bit-identical results.

        Args:
            facts: the dictionary.
            encoder, decoder: those of the fit; others are refused. ONNX files are opened again if
                their path and content are the same.
            progress: as in ``harmonize``.
        """
        coders = {"encoder": encoder, "decoder": decoder}
        try:
            content = {name: value for name, value in facts.items() if name != "digest"}
            saved = facts["kind"], facts["version"], facts.get("digest", _digest(content))
            if saved != (_NAME, _VERSION, _digest(content)):  # 0.2.0 wrote no digest
                raise ValueError("another version or changed content")
            columns = None if facts["columns"] is None else tuple(facts["columns"])
            common = tuple(facts["sample_shape"]), columns, _DTYPES[facts["dtype"]]
            options = {**coders, "progress": progress}
            source, target = (Side.from_dict(facts[s], **options) for s in ("source", "target"))
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as e:
            raise InputError(
                "not a saved feature space of this version, or damaged",
                f"{type(e).__name__}: {e!s:.200}",
                "Pass the result of FeatureSpace.to_dict, or fit the space again.",
            ) from None
        for what, coder in coders.items():
            if coder is not None and what not in source.coders:
                kind = type(coder).__name__
                raise InputError(f"this space was fitted without {what}", kind, "Leave it out.")
        return cls(*common, source, target)

    def _side(self, side: str) -> Side:
        check_known("side", side, ("source", "target"))
        return self._source if side == "source" else self._target


def _read(data: Any, shape: tuple[int, ...], columns: Names, what: str, remedy: str) -> Tensor:
    """Features (n, d) of a dataset or an array, with columns in the given order."""
    data = data if isinstance(data, LabeledDataset) else LabeledDataset(data)
    _refuse_laws(data)
    names, given = data.columns, data.sample_shape
    if names is not None and columns is not None:
        if {*names} != {*columns}:
            what = f"{what} must have the columns {listed(columns)}"
            raise InputError(what, listed(names), remedy)
        return data.x if names == columns else select(data.x, names, columns, {})
    if given not in (shape, (math.prod(shape),)):
        raise InputError(f"{what} must have shape {shape}, one sample to a row", given, remedy)
    return data.x


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
        if x is data.x and (shape, columns, table) == (data.sample_shape, data.columns, data.table):
            return data if dtype is None else data.to(dtype=dtype)
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


def _digest(facts: Any) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
