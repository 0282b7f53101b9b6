"""The base class of maps: they are fitted on pairs (x_0, x_T), map new samples, and are saved without pickle.

A map is a function h: x_0 ↦ x_T that extends a flow to new samples (paper, section 5.3)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from advect._util import InputError, check_count, refuse_if
from advect.data.class_names import pack_any, unpack_name
from advect.data.coerce import as_codes
from advect.data.dataset import LabeledDataset
from advect.data.store import pack_dataset, read_tensors, unpack_dataset, unpacking, write_tensors
from advect.flows.loop import FlowResult
from advect.spaces.feature_space import as_dataset, in_form_of

_KINDS: dict[str, type[Map]] = {}  # files name a kind, never a class
_NAME, _VERSION = "advect map", 1
_COMMON = ("sample_shape_", "classes_", "columns_")  # fitted attributes of every map


def check_columns(x: Any, columns: tuple[str, ...] | None) -> None:
    """Named columns must be those of the fit, in their order."""
    names = getattr(x, "columns", None)
    if names is not None and columns is not None:
        names = tuple(map(str, names))
        refuse_if(
            names != columns,
            "samples must have the columns of the fit in their order",
            ", ".join(names),
            f"Use x[{list(columns)}].",
        )


class Map(ABC):
    """Base class of maps that are fitted on the first and last states of a flow and applied to new samples.

    ``EntropicMap`` needs no training, uses labels, and had the best accuracy on held-out images.
    ``NearestMap`` is the baseline. ``NeuralMap`` is the network of the paper. ``FlowMatchingMap`` needs two
    datasets and no flow.

    A subclass names its kind for files and defines ``learn`` and ``move``. ``save`` writes the
    attributes that ``learn`` sets: tensors, and values that JSON has. Override ``pack`` and ``unpack``
    for other attributes.

    Attributes:
        sample_shape_: shape of the samples.
        classes_: names of the classes; empty without labels.

    Example:
        >>> import advect as ad
        >>> class Shift(ad.maps.Map, kind="shift"):
        ...     def learn(self, start, end):
        ...         self.by = (end.x - start.x).mean(dim=0)
        ...
        ...     def move(self, x, codes):
        ...         return x + self.by
        >>> Shift().fit([[0.0], [2.0]], [[1.0], [3.0]]).transform([[5.0]]).tolist()
        [[6.0]]
    """

    kind: ClassVar[str]
    sample_shape_: tuple[int, ...] | None = None
    classes_: tuple[Hashable, ...] = ()
    columns_: tuple[str, ...] | None = None

    def __init_subclass__(cls, *, kind: str, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        cls.kind = kind
        if kind:  # empty for an abstract class
            _KINDS[kind] = cls

    def fit(self, start: FlowResult | Any, end: Any = None) -> Self:
        """Fit the map on pairs: row i of ``start`` went to row i of ``end``.

        Args:
            start: the result of ``ad.flow``; or the first states, a dataset or an array (n, …).
            end: the last states in the same order; omit it with the result of a flow.

        Example:
            >>> import advect as ad
            >>> data = ad.LabeledDataset([[4.0], [8.0]], ["a", "b"])
            >>> result = ad.flow(data, ad.Potential(ad.norm()), integrator=ad.Euler(1.0), n_steps=3)
            >>> ad.maps.NearestMap().fit(result).transform([[5.0]]).tolist()
            [[2.0]]
        """
        first, last = _as_pairs(start, end)
        self.sample_shape_ = None  # an error below leaves an unfitted map
        self.classes_, self.columns_ = (), first.columns
        self.learn(first, last)
        self.sample_shape_ = first.sample_shape
        return self

    def transform(self, x: Any, y: Any = None) -> Any:
        """Map samples as the flow would have moved them.

        Args:
            x: an array (n, …) or a dataset, in the sample shape of the fit or flattened.
            y: labels as class names, None for unknown ones; by default those of the dataset. Maps
                that were fitted without labels, and networks, ignore them.

        Returns:
            A dataset for a dataset, a tensor for a tensor, otherwise a numpy array.

        Raises:
            InputError: not fitted; another shape; a class that was not in the fit.
        """
        data = self._checked(x)
        with torch.no_grad():
            moved = self.move(data.x.detach(), self._codes(data, y)).to(data.x)
        if data is x:
            return data.replace(x=moved, law=None, law_index=None)
        return in_form_of(x, moved.reshape(data.samples.shape))

    def save(self, path: str | Path) -> Path:
        """Write the fitted map as a safetensors file; ``ad.maps.load`` reads it bit for bit.

        Class names that JSON does not have come back as strings.
        """
        shape = self._fitted()
        tensors, values = self.pack()
        facts = {
            "kind": _NAME,
            "version": _VERSION,
            "map": self.kind,
            "sample_shape": list(shape),
            "columns": self.columns_ and list(self.columns_),
            "classes": [pack_any(name) for name in self.classes_],
            "own": values,
        }
        write_tensors(Path(path), tensors, facts)
        return Path(path)

    @classmethod
    def load(cls, path: str | Path, device: torch.device | str = "cpu") -> Self:
        """Read a map that ``save`` wrote. No code in the file is run.

        Raises:
            InputError: not the file of a map, damaged, or of another kind than this class.
        """
        tensors, facts = read_tensors(Path(path), device)
        head, name = (facts.get("kind"), facts.get("version")), str(facts.get("map"))
        refuse_if(
            head != (_NAME, _VERSION),
            "not a saved map",
            f"{path} with {head}",
            "Pass a file that map.save(path) of this version of advect wrote.",
        )
        kinds = {key: kind for key, kind in sorted(_KINDS.items()) if issubclass(kind, cls)}
        refuse_if(
            name not in kinds,
            f"the file must hold a map of kind {', '.join(kinds)}",
            name,
            "Use ad.maps.load.",
        )
        with unpacking(Path(path)):
            fitted, columns = kinds[name](), facts["columns"]
            shape = tuple(check_count("side", side) for side in facts["sample_shape"])
            check_count("axes", len(shape))
            fitted.sample_shape_ = shape
            fitted.columns_ = columns and tuple(map(str, columns))
            fitted.classes_ = tuple(map(unpack_name, facts.get("classes", ())))
            fitted.unpack(tensors, facts["own"])
            fitted.move(torch.zeros(1, math.prod(shape)), torch.full((1,), -1))  # parts must fit
        return fitted

    @abstractmethod
    def learn(self, start: LabeledDataset, end: LabeledDataset) -> None:
        """Fit on pairs, row i of both; set ``classes_`` if labels are used."""

    @abstractmethod
    def move(self, x: Tensor, codes: Tensor) -> Tensor:
        """Map rows (n, d) with positions (n,) in ``classes_``, −1 for unknown labels."""

    def pack(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and JSON values that ``move`` needs: by default all attributes."""
        values = {name: value for name, value in vars(self).items() if name not in _COMMON}
        tensors = {name: value for name, value in values.items() if torch.is_tensor(value)}
        return tensors, {name: value for name, value in values.items() if name not in tensors}

    def unpack(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Restore what ``pack`` returned; errors are reported as a damaged file."""
        for name, value in (facts | tensors).items():
            setattr(self, name, value)

    def _fitted(self) -> tuple[int, ...]:
        if self.sample_shape_ is None:
            raise InputError("a map must be fitted first", type(self).__name__, "Call fit(result).")
        return self.sample_shape_

    def _checked(self, x: Any) -> LabeledDataset:
        """Samples in the shape of the fit."""
        shape, data = self._fitted(), as_dataset(x)
        refuse_if(
            data.sample_shape not in (shape, (math.prod(shape),)),
            f"samples must have shape {shape}",
            f"shape {tuple(data.samples.shape)}",
            "Use the FeatureSpace of the flow first.",
        )
        check_columns(x, self.columns_)
        return data

    def _codes(self, data: LabeledDataset, y: Any) -> Tensor:
        """Positions in ``classes_``; −1 for missing labels, and for all if labels are not used."""
        if not self.classes_:
            return torch.full((len(data),), -1)
        codes, names = (data.y.cpu(), data.classes) if y is None else as_codes(y, None, len(data))
        position = {name: code for code, name in enumerate(self.classes_)}
        unknown = [
            names[code] for code in codes.unique() if code >= 0 and names[code] not in position
        ]
        refuse_if(
            unknown,
            f"labels must be classes of the fit, {', '.join(map(str, self.classes_))}",
            repr(unknown[0]) if unknown else "",
            "Pass class names, not positions, or omit labels: map.transform(data.samples).",
        )
        return torch.tensor([*(position.get(name, -1) for name in names), -1])[codes]


load = Map.load


def _as_pairs(start: Any, end: Any) -> tuple[LabeledDataset, LabeledDataset]:
    """First and last states as datasets of one dtype, without rows of no mass, which do not move."""
    remedy = "Call fit(result), or fit(start, end)."
    if isinstance(start, FlowResult):
        refuse_if(end is not None, "fit(result) takes no end", "one", remedy)
        start, end = start.source, start.dataset
    refuse_if(
        end is None,
        "a map needs the result of a flow or two states",
        f"one {type(start).__name__}",
        remedy,
    )
    first, last = as_dataset(start), as_dataset(end)
    shapes = tuple(first.samples.shape), tuple(last.samples.shape)
    devices = first.x.device, last.x.device
    refuse_if(
        shapes[0] != shapes[1] or devices[0] != devices[1],
        "start and end must be the same particles, row by row, on one device",
        f"shapes {shapes[0]} and {shapes[1]} on {devices[0]} and {devices[1]}",
        "Pass the first and the last state of one flow.",
    )
    dtype, rows = torch.promote_types(first.x.dtype, last.x.dtype), first.weights > 0
    last = last.replace(weights=first.weights)
    return _reduced(first, rows, dtype), _reduced(last, rows, dtype)


def _reduced(data: LabeledDataset, rows: Tensor, dtype: torch.dtype) -> LabeledDataset:
    """Some rows, with the classes that they have and without laws."""
    data = data.replace(x=data.x.detach(), law=None, law_index=None, fixed_laws=False).subset(rows)
    present = [code for code, count in enumerate(data.counts.values()) if count]
    position = positions_of(present, len(data.classes)).to(data.y.device)
    classes = tuple(data.classes[code] for code in present)
    return data.replace(x=data.x.to(dtype), y=position[data.y], classes=classes)


def positions_of(codes: Sequence[int], k: int) -> Tensor:
    """The position in ``codes`` of each of k classes, −1 for the others and, as the last, for no label."""
    position = torch.full((k + 1,), -1)
    position[list(codes)] = torch.arange(len(codes))
    return position


def pack_pairs(
    start: LabeledDataset, end: LabeledDataset
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Both states as tensors and facts."""
    (first, first_facts), (last, last_facts) = pack_dataset(start), pack_dataset(end)
    tensors = {f"start.{name}": value for name, value in first.items()}
    tensors |= {f"end.{name}": value for name, value in last.items() if name != "weights"}
    return tensors, {"start": first_facts, "end": last_facts}


def unpack_pairs(
    tensors: dict[str, Tensor], facts: dict[str, Any], shape: tuple[int, ...] | None
) -> tuple[LabeledDataset, LabeledDataset]:
    """What ``pack_pairs`` packed; ValueError for states that do not fit."""
    weights = tensors["start.weights"]
    parts = {side: {name: tensors[f"{side}.{name}"] for name in "xy"} for side in ("start", "end")}
    start, end = (
        unpack_dataset(part | {"weights": weights}, facts[s]) for s, part in parts.items()
    )
    same = start.x.dtype == end.x.dtype and start.sample_shape == end.sample_shape == shape
    if not same or not bool((weights > 0).all()):
        raise ValueError("start and end are not the same particles")
    return start, end
