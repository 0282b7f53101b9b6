"""An index of datasets on disk, to find the datasets nearest to another one.

A directory with ``index.safetensors`` (feature space, directions, settings) and, in ``sets``, one file
for each dataset with its vector and a sample. Every file is written atomically, so several processes
may add datasets at the same time.
"""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from advect._util.atomic import atomic_directory, is_leftover
from advect._util.checks import check_count, check_kind, check_known
from advect._util.progress import Progress, track
from advect._util.result import Result, Table
from advect.cost import GroundCost, NoLabels
from advect.data.dataset import LabeledDataset
from advect.data.digest import digest
from advect.data.store import pack_dataset, read_tensors, unpack_dataset, unpacking, write_tensors
from advect.errors import DamageWarning, InputError
from advect.ot.exact import ExactOT
from advect.questions.embedding import DatasetEmbedding, Slices, in_space
from advect.spaces import FeatureSpace
from advect.transport.distance import otdd
from advect.transport.transport import check_dataset

_FORMAT = "advect.dataset_index/2"
_SETTINGS, _SETS = "index.safetensors", "sets"


@dataclass(frozen=True)
class Neighbor:
    """A dataset near another one."""

    name: str
    sliced: float  # distance of the embeddings
    low: float  # bounds of the sliced distance
    high: float
    otdd: float | None  # exact, between samples; None if it was not computed
    n: int
    classes: int


@dataclass(frozen=True, repr=False)
class Neighbors(Result):
    """The nearest datasets, nearest first, and the number of candidates sorted by exact OTDD;
    returned by ``DatasetIndex.nearest``.
    """

    title = "Nearest datasets"
    rows: tuple[Neighbor, ...]
    reranked: int

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Neighbor]:
        return iter(self.rows)

    def __getitem__(self, position: int) -> Neighbor:
        return self.rows[position]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the datasets, nearest first."""
        return tuple(row.name for row in self.rows)

    def _summary(self) -> dict[str, Any]:
        return {"nearest": self.names[0], "reranked": self.reranked}

    def _tables(self) -> list[Table]:
        columns = ("name", "sliced", "low", "high", "otdd", "n", "classes")
        rows = [[getattr(row, column) for column in columns] for row in self.rows]
        return [Table("neighbors", columns, rows)]


@dataclass(frozen=True, eq=False)
class _Entry:
    """A dataset of an index."""

    name: str
    embedding: DatasetEmbedding
    path: Path

    def sample(self) -> LabeledDataset:
        """The stored samples, in the space of the index."""
        tensors, facts = read_tensors(self.path)
        with unpacking(self.path):
            return unpack_dataset(tensors, facts["sample"])


class DatasetIndex(Result):
    """Datasets by name as vectors on disk, to find the datasets nearest to another one.

    Use it for a catalogue that grows: a new dataset costs one pass over its samples. Numbers and
    names of classes may differ. For a dozen datasets, ``ad.pairwise`` gives all exact distances.

    Args:
        path: directory created by ``DatasetIndex.create``.
        encoder: encoder of the feature space, if it has one that is not a file.

    Attributes:
        path: the directory.  space: the feature space of all datasets.
        keep: number of samples of each dataset that are stored for exact distances.

    Example:
        >>> import tempfile, advect as ad
        >>> folder = tempfile.TemporaryDirectory()
        >>> digits = ad.datasets.load("digits")
        >>> index = ad.DatasetIndex.create(f"{folder.name}/index", digits)
        >>> _ = index.add("low", digits.subset(digits.y < 5))
        >>> _ = index.add("high", digits.subset(digits.y >= 5))
        >>> index.nearest(digits.subset(digits.y < 4), k=1).names
        ('low',)
        >>> folder.cleanup()
    """

    title = "Dataset index"

    def __init__(self, path: str | os.PathLike[str], *, encoder: Any = None) -> None:
        self.path = Path(path).expanduser()
        if (self.path / "index.json").exists():
            remedy = "Create it again from the datasets."
            raise InputError("the index was written by advect 0.2", self.path, remedy)
        if not (self.path / _SETTINGS).is_file():
            remedy = "Create one with ad.DatasetIndex.create, or advect index add."
            raise InputError("there is no index in this directory", self.path, remedy)
        tensors, facts = read_tensors(self.path / _SETTINGS)
        with unpacking(self.path / _SETTINGS):
            if facts["format"] != _FORMAT:
                raise ValueError(f"format {facts['format']!r}")
            options = {name: facts[name] for name in ("n_levels", "label_weight")}
            self._slices = Slices(tensors["theta"], tensors["psi"], **options)
            self.keep = check_count("keep", facts["keep"])
        self.space = FeatureSpace.from_dict(facts["space"], encoder=encoder)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        space: FeatureSpace | LabeledDataset,
        *,
        n_directions: int = 64,
        n_levels: int = 32,
        label_weight: float = 1.0,
        seed: int = 0,
        keep: int = 500,
    ) -> DatasetIndex:
        """Create an empty index in a new or empty directory, with the options of ``ad.embed``.

        Args:
            path: the directory.
            space: feature space of all datasets: a fitted ``ad.FeatureSpace``, or a dataset whose
                sample shape is used. Images of other sizes or channels are resized.
            keep: number of samples of each dataset to store for exact distances.
        """
        if isinstance(space, LabeledDataset):
            space = FeatureSpace.fit(space, space)
        remedy = "Pass ad.FeatureSpace.fit(data, data), or a dataset."
        check_kind("space must be a FeatureSpace", space, FeatureSpace, remedy)
        dim = math.prod(space.sample_shape)
        slices = Slices.random(dim, n_directions, n_levels, label_weight, seed)
        folder, keep = Path(path).expanduser(), check_count("keep", keep)
        if folder.exists() and not folder.is_dir():
            raise InputError("path must be a directory", folder, "Choose another path.")
        facts = {"format": _FORMAT, "keep": keep, "space": space.to_dict()}
        facts |= {"n_levels": slices.n_levels, "label_weight": slices.label_weight}
        with atomic_directory(folder) as staging:
            (staging / _SETS).mkdir()
            tensors = {"theta": slices.theta, "psi": slices.psi}
            write_tensors(staging / _SETTINGS, tensors, facts)
        return cls(folder, encoder=space.encoder)

    def embed(self, data: LabeledDataset) -> DatasetEmbedding:
        """The vector of a dataset in this index."""
        return self._slices.embedding(self._mapped(data))

    def add(self, name: str, data: LabeledDataset, *, overwrite: bool = False) -> DatasetIndex:
        """Add a dataset and return the index. The dataset is on disk when the call returns.

        The part of the name before the first "/" is its group on maps.
        """
        check_kind("name must be text", name, str, "Pass for instance 'usps'.")
        if not name.strip() or "\n" in name:
            raise InputError("name must be one line of text", repr(name), "Choose another name.")
        path = self._path_of(name)
        if path.exists() and not overwrite:
            remedy = "Choose another name, or pass overwrite=True."
            raise InputError("the index has a dataset of this name", repr(name), remedy)
        mapped = self._mapped(data)
        embedding = self._slices.embedding(mapped)
        tensors, sample = pack_dataset(_subsample(mapped, self.keep))
        facts = {field: value for field, value in vars(embedding).items() if field != "vector"}
        facts |= {"name": name, "sample": sample}
        write_tensors(path, {**tensors, "vector": torch.from_numpy(embedding.vector)}, facts)
        return self

    def remove(self, name: str) -> DatasetIndex:
        """Remove a dataset and return the index."""
        if name not in self:
            check_known("dataset of the index", name, self.names)
        self._path_of(name).unlink()
        return self

    def nearest(
        self, data: LabeledDataset | str, k: int = 5, *, rerank: int = 10, progress: Progress = None
    ) -> Neighbors:
        """Find the k datasets nearest to a dataset.

        Args:
            data: a dataset, or the name of a dataset of the index, which is then left out.
            k: number of neighbors.
            rerank: number of candidates, at least k, that are sorted by exact OTDD between stored
                samples; 0 keeps the order of the embeddings.
            progress: as in ``ad.audit``.
        """
        k, rerank = check_count("k", k), check_count("rerank", rerank, least=0)
        entries = {entry.name: entry for entry in self.entries()}
        if isinstance(data, str):
            check_known("dataset of the index", data, entries)
            query = entries.pop(data)
            embedding, sample = query.embedding, query.sample()
        else:
            mapped = self._mapped(data)
            embedding, sample = self._slices.embedding(mapped), _subsample(mapped, self.keep)
        if not entries:
            raise InputError("the index has no other datasets", "none", "Add some first.")
        rows = []
        for entry in entries.values():
            one, (low, high) = entry.embedding, entry.embedding.bounds(embedding)
            rows.append(Neighbor(entry.name, low, low, high, None, one.n, one.classes))
        rows.sort(key=lambda row: row.sliced)
        if rerank:
            weight, exact = self._slices.label_weight, []
            cost = GroundCost(label_weight=weight) if weight else GroundCost(label=NoLabels())
            with track(min(max(k, rerank), len(rows)), "exact distances", progress) as advance:
                for row in rows[: max(k, rerank)]:
                    other = entries[row.name].sample()
                    value = otdd(sample, other, cost=cost, solver=ExactOT()).value
                    exact.append(replace(row, otdd=value))
                    advance(1)
            rows = sorted(exact, key=lambda row: row.otdd)
        return Neighbors(tuple(rows[:k]), len(rows) if rerank else 0)

    def entries(self) -> list[_Entry]:
        """All datasets, sorted by name. Damaged files are left out with a warning."""
        found = []
        for path in (self.path / _SETS).glob("*.safetensors"):
            try:
                found += [] if is_leftover(path.name) else [self._read(path)]
            except InputError as error:
                if path.exists():  # else removed by another process
                    warnings.warn(f"left out: {error}", DamageWarning, stacklevel=3)
        return sorted(found, key=lambda entry: entry.name)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the datasets, sorted."""
        return tuple(entry.name for entry in self.entries())

    def vectors(self) -> tuple[np.ndarray, tuple[str, ...]]:
        """All vectors, (N, numbers) float64, and the names."""
        entries = self.entries()
        rows = [entry.embedding.vector for entry in entries]
        stacked = np.stack(rows) if rows else np.zeros((0, self._slices.size))
        return stacked, tuple(entry.name for entry in entries)

    def distances(self) -> np.ndarray:
        """Distances between all embeddings, (N, N), in the order of ``names``."""
        from scipy.spatial.distance import cdist

        vectors, _ = self.vectors()
        return cdist(vectors, vectors)

    def map(self, *, title: str | None = None) -> Any:
        """A figure of all datasets in the plane; colours are groups. Needs three datasets."""
        return import_module("advect.viz").pairwise(
            self.distances(), self.names, title=title, heat=False
        )

    def figures(self) -> dict[str, Any]:
        return {"Datasets in the plane": self.map()} if len(self) > 2 else {}

    def _summary(self) -> dict[str, Any]:
        shape = "×".join(map(str, self.space.sample_shape))
        return {"datasets": len(self), "sample shape": shape, "numbers": self._slices.size}

    def _tables(self) -> list[Table]:
        apart, entries = self.distances(), self.entries()
        np.fill_diagonal(apart, np.inf)
        rows = []
        for entry, distances in zip(entries, apart, strict=True):
            near = int(distances.argmin()) if len(entries) > 1 else None
            nearest = (None, None) if near is None else (entries[near].name, float(distances[near]))
            rows.append([entry.name, entry.embedding.n, entry.embedding.classes, *nearest])
        return [Table("datasets", ("name", "n", "classes", "nearest", "distance"), rows)]

    def __len__(self) -> int:
        return len(self.entries())

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._path_of(name).exists()

    def _mapped(self, data: LabeledDataset) -> LabeledDataset:
        return in_space(self.space, check_dataset("data", data))

    def _path_of(self, name: str) -> Path:
        """The file of a dataset: readable, and different for every name."""
        readable = re.sub(r"[^A-Za-z0-9_=@]+", "-", name).strip("-")[:40]
        return self.path / _SETS / f"{readable}-{digest(name)[:12]}.safetensors"

    def _read(self, path: Path) -> _Entry:
        tensors, facts = read_tensors(path)
        with unpacking(path):
            name = str(facts["name"])
            kinds = {"residual": float, "n": int, "classes": int, "key": str}
            values = {name: kind(facts[name]) for name, kind in kinds.items()}
            embedding = DatasetEmbedding(tensors["vector"].numpy(), **values)
        if embedding.key != self._slices.key or path != self._path_of(name):
            raise InputError("the file belongs to another index", path, "Remove the file.")
        return _Entry(name, embedding, path)


def _subsample(data: LabeledDataset, most: int) -> LabeledDataset:
    """At most so many samples, the same ones each time."""
    if len(data) <= most:
        return data
    return data.sample(most, generator=torch.Generator().manual_seed(0))
