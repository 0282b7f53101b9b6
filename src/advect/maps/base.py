"""What every map does: be fitted on pairs (x_0, x_T), carry new samples in the form in which they
come, live in a file.

A map is the action of a flow, h: x_0 ↦ x_T, made into a function (paper, section 5.3). How a point
is carried is left to each map (``learn`` and ``move``); here are the checks, the forms of data, and
files that are never unpickled."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from advect.data.coerce import as_codes, as_features
from advect.data.dataset import LabeledDataset
from advect.data.formats.names import pack_any, unpack_name
from advect.data.store import read_tensors, write_tensors
from advect.errors import InputError
from advect.flows.loop import FlowResult
from advect.maps.pairs import as_pairs

_KINDS: dict[str, type[Map]] = {}  # files name a kind, never a class
_NAME, _VERSION = "advect map", 1
_OF_FIT = ("sample_shape_", "classes_", "columns_")  # what files hold of every map


class Samples(NamedTuple):
    """Samples that a user passed: their values (n, …), codes and names of their labels if they came
    with any, and how tensors are given back.
    """

    values: Tensor
    labels: tuple[Tensor, Sequence[Hashable]] | None
    as_came: Callable[[Tensor], Any]

    @classmethod
    def of(cls, x: Any) -> Samples:
        match x:
            case LabeledDataset():
                return cls(x.samples.detach(), (x.y.cpu(), x.classes), lambda rows: rows)
            case Tensor():
                return cls(as_features(x).detach(), None, lambda rows: rows)
            case _:
                return cls(as_features(x), None, Tensor.numpy)


def check_columns(x: Any, columns: tuple[str, ...] | None) -> None:
    """Samples that come with names of columns have those of a fit, in their order."""
    names = getattr(x, "columns", None)
    if names is not None and columns is not None and tuple(map(str, names)) != columns:
        raise InputError(
            "samples must have the columns of the fit in their order",
            ", ".join(map(str, names)),
            f"Take x[{list(columns)}].",
        )


class Map(ABC):
    """A map fitted on the first and last states of particles; it carries samples that the flow
    never saw.

    Which to take: ``EntropicMap`` first, which needs no training, looks at labels where they are
    known and carried held-out images best; ``GaussianMap`` to carry no more than means and
    covariances of classes, as for few target samples; ``NearestMap`` to see at once what any map must beat, or
    where the flow moved neighbours alike; ``NeuralMap`` where very many samples are to be carried,
    or a network is to be exported; ``FlowMatchingMap`` where there is no flow, but two datasets.

    A map of your own names its kind, for files, and defines ``learn`` and ``move``. What ``learn``
    sets on the map is what ``save`` writes: tensors, and facts that JSON has. One that keeps other
    things there defines ``pack`` and ``unpack`` too.

    Attributes:
        sample_shape_: shape of the samples that it was fitted on, and takes.
        classes_: names of the classes that it tells apart; empty without labels.

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
        _KINDS[kind] = cls

    def fit(self, start: FlowResult | Any, end: Any = None) -> Self:
        """Learn from pairs: row i of ``start`` went to row i of ``end``.

        Args:
            start: what ``ad.flow`` returned; or the first states, a dataset or an array (n, …).
            end: the last states in the same order, a dataset or an array; left out with the result
                of a flow.

        Returns:
            The map itself.

        Raises:
            InputError: states that are not the same particles, or no second state.

        Example:
            >>> import advect as ad
            >>> data = ad.LabeledDataset([[4.0], [8.0]], ["a", "b"])
            >>> result = ad.flow(data, ad.Potential(ad.norm()), integrator=ad.Euler(1.0), n_steps=3)
            >>> ad.maps.NearestMap().fit(result).transform([[5.0]]).tolist()
            [[2.0]]
        """
        first, last = as_pairs(start, end)
        self.sample_shape_ = None  # a failure below leaves a map that says it is not fitted
        self.classes_, self.columns_ = (), first.columns
        self.learn(first, last)
        self.sample_shape_ = first.sample_shape
        return self

    def transform(self, x: Any, y: Any = None) -> Any:
        """Carry samples to where the flow would have taken them.

        Args:
            x: an array (n, …) or a dataset, in the sample shape of the fit or flattened.
            y: their labels, names of classes as in ``data.labels``, None for one that is not known;
                by default those of ``x`` if it is a dataset. A map that was fitted without labels
                does not look at them, and neither does a network.

        Returns:
            A dataset for a dataset, a tensor for a tensor, otherwise a numpy array; shape, dtype
            and device as they came.

        Raises:
            InputError: not fitted; another shape; NaN or infinite values; a label that was not
                there in the fit.

        Example:
            >>> import numpy as np, advect as ad
            >>> images = np.zeros((3, 4, 4))
            >>> ad.maps.NearestMap().fit(images, images + 1).transform(images[:2]).shape
            (2, 4, 4)
        """
        samples = self._opened(x)
        rows = samples.values.reshape(len(samples.values), -1)
        with torch.no_grad():
            moved = self.move(rows, self._codes(samples, y)).to(rows)
        if isinstance(x, LabeledDataset):
            return x.replace(x=moved, law=None, law_index=None)
        return samples.as_came(moved.reshape(samples.values.shape))

    def save(self, path: str | Path) -> Path:
        """Write the fitted map as one safetensors file; read back, it gives the same results to the
        last bit.

        Class names of kinds that JSON does not have come back as strings.

        Example:
            >>> import tempfile, pathlib, advect as ad
            >>> fitted = ad.maps.NearestMap(k=2).fit([[0.0], [2.0]], [[1.0], [5.0]])
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = fitted.save(pathlib.Path(folder) / "map.safetensors")
            ...     ad.maps.load(path)
            NearestMap(k=2, bandwidth=None)
        """
        shape = self._fitted()
        tensors, own = self.pack()
        facts = {
            "kind": _NAME,
            "version": _VERSION,
            "map": self.kind,
            "sample_shape": list(shape),
            "columns": None if self.columns_ is None else list(self.columns_),
            "classes": [pack_any(name) for name in self.classes_],
            "own": own,
        }
        write_tensors(Path(path), tensors, facts)
        return Path(path)

    def export(self, path: str | Path) -> Path:
        """Write the map for use without advect; only networks can be.

        Raises:
            InputError: a map that is no network.
        """
        raise InputError(
            "only a neural map can be exported",
            f"a map of kind {self.kind}",
            "Fit one with --name neural, or ad.maps.NeuralMap.",
        )

    @classmethod
    def load(cls, path: str | Path, device: torch.device | str = "cpu") -> Self:
        """The map that ``save`` wrote; any other file is an error, and nothing in it is run.

        Raises:
            InputError: no such file, not one of a map, damaged, or of another kind than the class
                that is asked.

        Example:
            >>> import advect as ad
            >>> try:
            ...     ad.maps.load("no-such-map.safetensors")
            ... except ad.InputError as error:
            ...     print(error)
            no such file; got no-such-map.safetensors. Check the path.
        """
        tensors, facts = read_tensors(Path(path), device)
        if not isinstance(facts, dict) or facts.get("kind") != _NAME:
            raise InputError("not a saved map", path, "Pass a file that map.save(path) wrote.")
        if facts.get("version") != _VERSION:
            raise InputError(
                f"a saved map must be of version {_VERSION}",
                repr(facts.get("version")),
                "Read it with the advect that wrote it.",
            )
        kind = _KINDS.get(str(facts.get("map")))
        if kind is None or not issubclass(kind, cls):
            wanted = ", ".join(
                sorted(name for name, known in _KINDS.items() if issubclass(known, cls))
            )
            raise InputError(
                f"not a map of kind {wanted}",
                repr(facts.get("map")),
                "Load it with ad.maps.load, or its own class.",
            )
        try:
            found, shape, columns = kind(), tuple(facts["sample_shape"]), facts["columns"]
            if not shape or not all(type(side) is int and side > 0 for side in shape):
                raise ValueError(f"sample shape {shape}")
            found.columns_, found.sample_shape_ = (
                None if columns is None else tuple(map(str, columns)),
                shape,
            )
            found.classes_ = tuple(map(unpack_name, facts.get("classes", ())))
            found.unpack(tensors, facts["own"])
            # parts that do not fit show here
            found.move(torch.zeros(1, math.prod(shape)), torch.full((1,), -1))
        except (
            KeyError,
            TypeError,
            ValueError,
            RuntimeError,
            IndexError,
            AttributeError,
            OverflowError,
        ) as error:
            raise InputError(
                "not a saved map, or damaged", f"{path} ({error})", "Fit the map again and save it."
            ) from None
        return found

    @abstractmethod
    def learn(self, start: LabeledDataset, end: LabeledDataset) -> None:
        """Learn from pairs, row i of both; set ``classes_`` if labels are looked at. All weights
        are positive, all classes have samples.
        """

    @abstractmethod
    def move(self, x: Tensor, codes: Tensor) -> Tensor:
        """Carry rows (n, d) with positions (n,) in ``classes_``, −1 where the label is not
        known.
        """

    def pack(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All that ``move`` needs, as tensors and facts for JSON: by default what is set on the
        map, its options among it.
        """
        own = {name: value for name, value in vars(self).items() if name not in _OF_FIT}
        tensors = {name: value for name, value in own.items() if torch.is_tensor(value)}
        return tensors, {name: value for name, value in own.items() if name not in tensors}

    def unpack(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Take up what ``pack`` gave, ``sample_shape_`` and ``classes_`` being known; any error is
        reported as a damaged file.
        """
        for name, value in (facts | tensors).items():
            setattr(self, name, value)

    def _fitted(self) -> tuple[int, ...]:
        if self.sample_shape_ is None:
            raise InputError(
                "a map must be fitted first",
                f"{type(self).__name__} without fit",
                "Call fit(result) or fit(start, end).",
            )
        return self.sample_shape_

    def _opened(self, x: Any) -> Samples:
        """The samples as they came, once they fit."""
        shape, samples = self._fitted(), Samples.of(x)
        values = samples.values
        if tuple(values.shape[1:]) not in (shape, (math.prod(shape),)):
            raise InputError(
                f"this map takes samples of shape {shape}, one to a row",
                f"shape {tuple(values.shape)}",
                "Bring them to the space of the flow first: the FeatureSpace of ad.harmonize does.",
            )
        check_columns(x, self.columns_)
        return samples

    def _codes(self, samples: Samples, y: Any) -> Tensor:
        """Positions in ``classes_``; −1 for labels that are missing, and for all where labels do
        not count.
        """
        n = len(samples.values)
        known = samples.labels if y is None or not self.classes_ else as_codes(y, None, n)
        if not self.classes_ or known is None:
            return torch.full((n,), -1)
        codes, names = known  # by names alone: never positions
        position = {name: code for code, name in enumerate(self.classes_)}
        strange = [
            names[code]
            for code in codes.unique().tolist()
            if code >= 0 and names[code] not in position
        ]
        if strange:
            raise InputError(
                "labels must be among the classes of the fit, "
                f"{', '.join(map(str, self.classes_))}",
                repr(strange[0]),
                "Rename them (labels are names, not positions as in data.y), or leave them out: "
                "map.transform(data.samples).",
            )
        return torch.tensor([*(position.get(name, -1) for name in names), -1])[codes]


load = Map.load
