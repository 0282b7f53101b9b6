"""An index of datasets, to find the datasets nearest to another one.

Each dataset is a vector (``embed``) and a small sample for exact distances. One file holds the index:
feature space, directions, vectors and samples.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from advect._util import (
    Progress,
    Result,
    Table,
    check_count,
    check_finite,
    check_kind,
    check_known,
    refuse_if,
    track,
)
from advect.cost import GroundCost, NoLabels
from advect.data.dataset import LabeledDataset
from advect.data.store import (
    is_ours,
    pack_dataset,
    read_tensors,
    unpack_dataset,
    unpacking,
    write_tensors,
)
from advect.functionals.base import under
from advect.ot import ExactOT
from advect.questions.embedding import DatasetEmbedding, Slices, in_space
from advect.spaces import FeatureSpace
from advect.transport.distance import otdd
from advect.transport.transport import check_dataset

_FORMAT = "advect.dataset_index/3"


@dataclass(frozen=True)
class Neighbor:
    """A dataset near another one."""

    name: str
    sliced: float  # distance of the embeddings, a lower bound of the sliced distance
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

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the datasets, nearest first."""
        return tuple(row.name for row in self.rows)

    def _summary(self) -> dict[str, Any]:
        return {"nearest": self.names[0], "reranked": self.reranked}

    def _tables(self) -> list[Table]:
        rows = [list(vars(row).values()) for row in self.rows]
        return [Table("neighbors", list(vars(self.rows[0])), rows)]


class DatasetIndex(Result):
    """Datasets by name as vectors, to find the datasets nearest to another one.

    Use it for a catalogue that grows: a new dataset costs one pass over its samples. Numbers and
    names of classes may differ. For a dozen datasets, ``ad.pairwise`` gives all exact distances.

    Args:
        space: feature space of all datasets: a fitted ``ad.FeatureSpace``, or a dataset whose
            sample shape is used. Images of other sizes or channels are resized.
        n_directions, n_levels, label_weight, seed: as in ``ad.embed``.
        keep: number of samples of each dataset that are stored for exact distances.

    Attributes:
        names: names of the datasets, in the order in which they were added.

    Example:
        >>> import tempfile, advect as ad
        >>> digits = ad.datasets.load("digits")
        >>> index = ad.DatasetIndex(digits)
        >>> index.add("low", digits.subset(digits.y < 5))
        >>> index.add("high", digits.subset(digits.y >= 5))
        >>> index.nearest(digits.subset(digits.y < 4), k=1).names
        ('low',)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = index.save(f"{folder}/digits.index")
        ...     ad.DatasetIndex.load(path).names
        ('low', 'high')
    """

    title = "Dataset index"

    def __init__(
        self,
        space: FeatureSpace | LabeledDataset,
        *,
        n_directions: int = 64,
        n_levels: int = 32,
        label_weight: float = 1.0,
        seed: int = 0,
        keep: int = 500,
    ) -> None:
        if isinstance(space, LabeledDataset):
            space = FeatureSpace.fit(space, space)
        check_kind(
            "space must be a FeatureSpace",
            space,
            FeatureSpace,
            "Pass ad.FeatureSpace.fit(data, data), or a dataset.",
        )
        self.space, self.keep = space, check_count("keep", keep)
        dim = math.prod(space.sample_shape)
        self._slices = Slices.random(dim, n_directions, n_levels, label_weight, seed)
        self._entries: dict[str, tuple[DatasetEmbedding, LabeledDataset]] = {}

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the index to one file, atomically, and return its path."""
        path = Path(path).expanduser()
        is_free = not path.exists() or is_ours(path)
        refuse_if(not is_free, "there is something else at this path", path, "Choose another path.")
        tensors = {"theta": self._slices.theta, "psi": self._slices.psi}
        entries = []
        for number, (name, (embedding, sample)) in enumerate(self._entries.items()):
            parts, facts = pack_dataset(sample)
            parts["vector"] = torch.from_numpy(embedding.vector)
            tensors |= {f"{number}.{part}": tensor for part, tensor in parts.items()}
            sizes = {key: getattr(embedding, key) for key in ("n", "classes")}
            entries.append({"name": name, "sample": facts, **sizes})
        settings = {"n_levels": self._slices.n_levels, "label_weight": self._slices.label_weight}
        facts = {"format": _FORMAT, "keep": self.keep, "space": self.space.to_dict()}
        write_tensors(path, tensors, facts | {"slices": settings, "entries": entries})
        return path

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> DatasetIndex:
        """Read an index."""
        path = Path(path).expanduser()
        tensors, facts = read_tensors(path)
        index = cls.__new__(cls)
        with unpacking(path):
            if facts["format"] != _FORMAT:
                raise ValueError(f"format {facts['format']!r}")
            index.space = FeatureSpace.from_dict(facts["space"])
            index.keep, dim = (
                check_count("keep", facts["keep"]),
                math.prod(index.space.sample_shape),
            )
            index._slices = Slices(tensors["theta"], tensors["psi"], **facts["slices"])
            index._entries = {}
            for number, entry in enumerate(facts["entries"]):
                dataset = under(f"{number}.", tensors)
                vector = dataset.pop("vector")
                check_finite("vector", vector)
                sizes = check_count("n", entry["n"]), check_count("classes", entry["classes"], 0)
                embedding = DatasetEmbedding(vector.numpy(), *sizes, index._slices.key)
                sample = unpack_dataset(dataset, entry["sample"])
                fits = vector.shape == (index._slices.size,) and vector.dtype == torch.float64
                if not fits or sample.dim != dim or index._slices.theta.shape[0] != dim:
                    raise ValueError(f"the sizes of dataset {number}")
                index._entries[entry["name"]] = embedding, sample
            if len(index._entries) != len(facts["entries"]) or {*map(type, index._entries)} - {str}:
                raise ValueError("names")
        return index

    def add(self, name: str, data: LabeledDataset, *, overwrite: bool = False) -> None:
        """Add a dataset. The part of the name before the first "/" is its group on maps."""
        check_kind("name must be text", name, str, "Pass for instance 'usps'.")
        is_line = name.strip() and "\n" not in name
        refuse_if(not is_line, "name must be one line of text", repr(name), "Choose another name.")
        refuse_if(
            not overwrite and name in self._entries,
            "the index has a dataset of this name",
            repr(name),
            "Choose another name, or pass overwrite=True.",
        )
        self._entries[name] = self._embedded(data)

    def remove(self, name: str) -> None:
        """Remove a dataset."""
        check_known("dataset of the index", name, self.names)
        del self._entries[name]

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
        entries = dict(self._entries)
        if isinstance(data, str):
            check_known("dataset of the index", data, entries)
            query, sample = entries.pop(data)
        else:
            query, sample = self._embedded(data)
        refuse_if(not entries, "the index has no other datasets", "none", "Add some first.")
        rows = [
            Neighbor(name, query.distance(entry), None, entry.n, entry.classes)
            for name, (entry, _) in entries.items()
        ]
        rows.sort(key=lambda row: row.sliced)
        if rerank:
            weight = self._slices.label_weight
            cost = GroundCost(label_weight=weight) if weight else GroundCost(label=NoLabels())
            candidates, rows = rows[: max(k, rerank)], []
            with track(len(candidates), "exact distances", progress) as advance:
                for row in candidates:
                    distance = otdd(sample, entries[row.name][1], cost=cost, solver=ExactOT())
                    rows.append(replace(row, otdd=distance.value))
                    advance(1)
            rows.sort(key=lambda row: row.otdd or 0.0)
        return Neighbors(tuple(rows[:k]), len(rows) if rerank else 0)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the datasets."""
        return tuple(self._entries)

    def vectors(self) -> np.ndarray:
        """All vectors, (N, numbers) float64, in the order of ``names``."""
        rows = [embedding.vector for embedding, _ in self._entries.values()]
        return np.stack(rows) if rows else np.zeros((0, self._slices.size))

    def __len__(self) -> int:
        return len(self._entries)

    def _summary(self) -> dict[str, Any]:
        shape = "×".join(map(str, self.space.sample_shape))
        return {"datasets": len(self), "sample shape": shape, "numbers": self._slices.size}

    def _tables(self) -> list[Table]:
        rows = [[name, entry.n, entry.classes] for name, (entry, _) in self._entries.items()]
        return [Table("datasets", ("name", "n", "classes"), rows)]

    def _embedded(self, data: LabeledDataset) -> tuple[DatasetEmbedding, LabeledDataset]:
        """The vector of a dataset, and at most ``keep`` samples, the same ones each time."""
        mapped, draw = in_space(self.space, check_dataset("data", data)), torch.Generator()
        size = min(len(mapped), self.keep)
        sample = (
            mapped.sample(size, generator=draw.manual_seed(0)) if size < len(mapped) else mapped
        )
        return self._slices.embedding(mapped), sample
