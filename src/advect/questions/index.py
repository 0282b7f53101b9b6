"""Which dataset is nearest to mine? An index of datasets on disk, each as a vector.

    index.json               the feature space and the settings
    directions.safetensors   the directions themselves: no other version draws others
    sets/….safetensors       one file for each dataset: its vector, and a sample of it

Each dataset is one file that is there whole or not at all, and adding or removing one touches no
other: a process that is killed at any moment loses at most what it was adding, and several may add
at a time."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from advect._util.atomic import atomic_directory, is_leftover, write_atomically
from advect._util.checks import check_count, check_kind, check_known
from advect._util.html import facts_table
from advect._util.progress import Progress
from advect.apps.pages import write_page
from advect.data.dataset import LabeledDataset
from advect.data.spaces import FeatureSpace
from advect.data.store import damaged, read_tensors, unpacking, write_tensors
from advect.errors import DamageWarning, InputError
from advect.ot import Solver
from advect.questions.embedding import DatasetEmbedding, embedded
from advect.questions.embedding_sketch import EmbeddingSketch
from advect.questions.index_entry import Entry, entry_file, read_entry, write_entry
from advect.questions.index_search import find_nearest
from advect.questions.into_space import in_space
from advect.questions.neighbors import Neighbors
from advect.questions.slices import Slices

_FORMAT = "advect.dataset_index/1"
_SETTINGS, _DIRECTIONS, _SETS = "index.json", "directions.safetensors", "sets"


class DatasetIndex:
    """Datasets by name as vectors on disk, to find those nearest to another one.

    For a catalogue of datasets that grows: a new one costs one pass over its samples, whatever the
    number of those that are there; class counts and names may differ. For a handful of datasets,
    ``ad.pairwise`` gives exact distances between all of them.

    Args:
        path: the directory that ``DatasetIndex.create`` made.
        encoder: that of the feature space again, if it has one that is no file (see
            ``ad.FeatureSpace.from_dict``).

    Attributes:
        path: the directory.  space: the feature space that all datasets are taken to.
        keep: how many samples of each dataset are kept for exact distances.

    Raises:
        InputError: there is no index, or it is damaged.

    Example:
        >>> import tempfile, advect as ad
        >>> folder = tempfile.TemporaryDirectory()
        >>> digits = ad.datasets.load("digits")
        >>> index = ad.DatasetIndex.create(f"{folder.name}/index", digits)
        >>> index.add("low", digits.subset(digits.y < 5)).add("high", digits.subset(digits.y >= 5))
        DatasetIndex(2 datasets, sample_shape=(8, 8), numbers=6144)
        >>> index.nearest(digits.subset(digits.y < 4), k=1).names
        ('low',)
        >>> folder.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str], *, encoder: Any = None) -> None:
        self.path = Path(path).expanduser()
        facts = _settings(self.path)
        tensors, more = read_tensors(self.path / _DIRECTIONS)
        with unpacking(self.path / _DIRECTIONS):
            self._slices = Slices(tensors["theta"], tensors["psi"], **more)
            self.keep = check_count("keep", facts["keep"], least=0)
        self.space = FeatureSpace.from_dict(facts["space"], encoder=encoder, folder=self.path)
        if self._slices.dim != math.prod(self.space.sample_shape):
            raise damaged(self.path, "directions of another space")
        self._known: dict[str, tuple[tuple[int, int], Entry]] = {}  # by file, as last seen

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
        """A new index, empty.

        Args:
            path: a directory that is not there yet, or empty.
            space: where all datasets are taken to: a fitted ``ad.FeatureSpace``, or a dataset whose
                samples are as they should be. Images of other sizes or channels are resized to
                these; samples of another kind are refused.
            n_directions, n_levels, label_weight, seed: as in ``ad.embed``.
            keep: how many samples of each dataset to keep for exact distances; 0 keeps none.

        Raises:
            InputError: something is there already, or settings that cannot be used.

        Example:
            >>> import tempfile, advect as ad
            >>> mnist = ad.datasets.load("mnist", n=100)
            >>> space = ad.FeatureSpace.fit(mnist, mnist, size=14, channels="gray")
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     ad.DatasetIndex.create(f"{folder}/images", space, n_directions=32)
            DatasetIndex(0 datasets, sample_shape=(14, 14), numbers=3072)
        """
        if isinstance(space, LabeledDataset):
            space = FeatureSpace.fit(space, space)
        remedy = "Pass ad.FeatureSpace.fit(data, data), or a dataset."
        check_kind("an index needs a FeatureSpace", space, FeatureSpace, remedy)
        slices = Slices.drawn(
            math.prod(space.sample_shape), n_directions, n_levels, label_weight, seed
        )
        place, keep = Path(path).expanduser(), check_count("keep", keep, least=0)
        if place.exists() and not place.is_dir():
            raise InputError("a file is in the way of the index", place, "Choose another place.")
        facts = {"format": _FORMAT, "keep": keep, "space": space.to_dict(place)}
        with atomic_directory(place) as beside:
            (beside / _SETS).mkdir()
            write_tensors(
                beside / _DIRECTIONS,
                {"theta": slices.theta, "psi": slices.psi},
                {"n_levels": slices.n_levels, "label_weight": slices.label_weight},
            )
            write_atomically(beside / _SETTINGS, json.dumps(facts).encode())
        return cls(place, encoder=space.encoder)

    def embed(self, data: LabeledDataset) -> DatasetEmbedding:
        """A dataset as a vector of this index."""
        check_kind("a dataset is needed", data, LabeledDataset, "Wrap arrays as ad.LabeledDataset.")
        return embedded(in_space(self.space, data), self._slices)

    def sketch(self, *, cells: int = 512) -> EmbeddingSketch:
        """An empty ``EmbeddingSketch`` with the space and directions of this index, for data that
        comes in parts; ``add`` takes it.
        """
        return EmbeddingSketch.along(self._slices, self.space, cells=cells)

    def add(
        self,
        name: str,
        data: LabeledDataset | EmbeddingSketch,
        *,
        sample: LabeledDataset | None = None,
        overwrite: bool = False,
    ) -> DatasetIndex:
        """Add a dataset; returns the index.

        When it returns, the dataset is on the disk; when the process is killed before, the index is
        as it was.

        Args:
            name: any text; what stands before the first "/" is its group on maps.
            data: a dataset, or a sketch that ``index.sketch()`` began.
            sample: samples to keep for exact distances instead of ``keep`` drawn ones; a sketch has
                none of its own.
            overwrite: replace a dataset of this name.

        Raises:
            InputError: the name is taken or empty, or samples do not fit the space.
        """
        check_kind("a name must be text", name, str, "Pass for instance 'usps'.")
        if not name.strip() or "\n" in name:
            raise InputError("a name must be one line of text", repr(name), "Choose another.")
        place = self.path / _SETS / entry_file(name)
        if place.exists() and not overwrite:
            raise InputError(
                "the index has a dataset of this name",
                repr(name),
                "Choose another name, remove it first, or pass overwrite=True.",
            )
        embedding, kept = self.measured(data, sample)
        write_entry(place, name, embedding, kept)
        return self

    def remove(self, name: str) -> DatasetIndex:
        """Remove a dataset; returns the index.

        Raises:
            InputError: there is none of this name.
        """
        place = self.path / _SETS / entry_file(name)
        try:
            place.unlink()
        except FileNotFoundError:
            check_known("dataset of the index", name, self.names)
            raise
        return self

    def nearest(
        self,
        data: LabeledDataset | EmbeddingSketch | str,
        k: int = 5,
        *,
        rerank: int = 10,
        references: Mapping[str, LabeledDataset] | None = None,
        solver: Solver | None = None,
        progress: Progress = None,
    ) -> Neighbors:
        """The k datasets nearest to one.

        Args:
            data: a dataset, a sketch, or the name of a dataset of the index, which is then not its
                own neighbour.
            k: how many.
            rerank: so many of the best by embeddings (at least k) are put in the order of
                ``ad.otdd``, between samples that were kept, or ``references``: at most ``keep`` of
                each. Those without samples stay where they are. 0 leaves the order of embeddings.
            references: samples of datasets of the index by name, in place of those that were kept.
            solver: of exact distances; ``ad.ExactOT()`` by default.
            progress: None shows it on stderr when it takes long, False is silent, a function is
                called with (done, total).

        Raises:
            InputError: an empty index, an unknown name, or samples that do not fit the space.

        Example:
            >>> import tempfile, advect as ad
            >>> sets = {str(shift): ad.datasets.gaussians(60, shift=(shift, 0.0)) for shift in (0, 9, 2)}
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     index = ad.DatasetIndex.create(f"{folder}/index", sets["0"])
            ...     for name, data in sets.items():
            ...         _ = index.add(name, data)
            ...     index.nearest("0", k=2).names
            ('2', '9')
        """
        return find_nearest(self, data, k, rerank, references or {}, solver, progress)

    def entry(self, name: str) -> Entry:
        """One dataset of the index.

        Raises:
            InputError: there is none of this name.
        """
        found = {entry.name: entry for entry in self.entries()}
        check_known("dataset of the index", name, found)
        return found[name]

    def entries(self) -> list[Entry]:
        """All datasets, by name; those whose file is damaged are left out, with a warning."""
        found: dict[str, tuple[tuple[int, int], Entry]] = {}
        for file in os.scandir(self.path / _SETS):
            if is_leftover(file.name) or not file.name.endswith(".safetensors"):
                continue
            try:
                facts = file.stat()
                seen = (facts.st_mtime_ns, facts.st_size)
                before = self._known.get(file.name)
                if before is None or before[0] != seen:
                    before = (seen, self._read(Path(file.path)))
                found[file.name] = before
            except FileNotFoundError:  # removed in the meantime
                continue
            except InputError as error:
                warnings.warn(f"left out: {error}", DamageWarning, stacklevel=3)
        self._known = found
        return sorted((entry for _, entry in found.values()), key=lambda entry: entry.name)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the datasets, sorted."""
        return tuple(entry.name for entry in self.entries())

    def vectors(self) -> tuple[np.ndarray, tuple[str, ...]]:
        """All vectors, (N, numbers) float64, and the names: for a vector store with Euclidean
        distance.
        """
        entries = self.entries()
        rows = [entry.embedding.vector for entry in entries]
        stacked = np.stack(rows) if rows else np.zeros((0, self._slices.size))
        return stacked, tuple(entry.name for entry in entries)

    def distances(self) -> np.ndarray:
        """Distances between the embeddings of all datasets, in the order of ``names``, (N, N)."""
        from scipy.spatial.distance import pdist, squareform

        vectors, _ = self.vectors()
        return squareform(pdist(vectors)) if len(vectors) > 1 else np.zeros((len(vectors),) * 2)

    def map(self, *, title: str | None = None) -> Any:
        """All datasets in the plane, near ones near, as a figure; colours are groups,
        what stands in names before the first "/".

        Raises:
            InputError: fewer than three datasets.
        """
        from advect import viz

        return viz.dataset_map(self.distances(), self.names, title=title)

    def report(self, path: str | os.PathLike[str], **options: Any) -> Path:
        """Write a page with the map of all datasets and the nearest ones of each; see
        ``advect.report.write_index_report`` for the options.
        """
        return write_page("write_index_report", self, path, options)

    def __len__(self) -> int:
        return len(self.entries())

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (self.path / _SETS / entry_file(name)).exists()

    def __repr__(self) -> str:
        count = len(self)
        return (
            f"DatasetIndex({count} dataset{'s' * (count != 1)}, "
            f"sample_shape={self.space.sample_shape}, numbers={self._slices.size})"
        )

    def _repr_html_(self) -> str:
        names = self.names
        more = f" and {len(names) - 20} more" if len(names) > 20 else ""
        facts = {"datasets": f"{len(names)}: {', '.join(names[:20])}{more}"}
        facts |= {"directory": str(self.path), "numbers of each": f"{self._slices.size:,}"}
        return facts_table("DatasetIndex", facts)

    @property
    def label_weight(self) -> float:
        """How much labels count; 0 where features alone are compared."""
        return self._slices.label_weight

    def measured(
        self,
        data: LabeledDataset | EmbeddingSketch,
        sample: LabeledDataset | None,
        keep: int | None = None,
    ) -> tuple[DatasetEmbedding, LabeledDataset | None]:
        """A dataset as a vector, and the part of it that is kept."""
        keep = self.keep if keep is None else keep
        given = None if sample is None else in_space(self.space, sample)
        if isinstance(data, EmbeddingSketch):
            embedding = data.embedding()
            if embedding.key != self._slices.key:
                raise InputError(
                    "a sketch for this index must have its directions",
                    "others",
                    "Begin it with index.sketch().",
                )
            return embedding, given
        check_kind("a dataset is needed", data, LabeledDataset, "Wrap arrays as ad.LabeledDataset.")
        inside = in_space(self.space, data)
        if given is None and keep:
            given = self.drawn(inside, keep)
        return embedded(inside, self._slices), given

    def drawn(self, inside: LabeledDataset, most: int) -> LabeledDataset:
        """At most so many samples, the same ones each time."""
        if len(inside) <= most:
            return inside
        return inside.sample(most, generator=torch.Generator().manual_seed(0))

    def _read(self, path: Path) -> Entry:
        entry = read_entry(path)
        if entry.embedding.key != self._slices.key or path.name != entry_file(entry.name):
            raise InputError("an entry of another index, or renamed", path, "Remove the file.")
        return entry


def _settings(path: Path) -> dict[str, Any]:
    place = path / _SETTINGS
    if not place.is_file():
        raise InputError(
            "no index here", path, "Make one with ad.DatasetIndex.create, or advect index add."
        )
    try:
        facts = json.loads(place.read_text(encoding="utf-8"))
        if facts["format"] != _FORMAT:
            raise ValueError(f"format {facts['format']!r}")
        return {"keep": facts["keep"], "space": facts["space"]}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            "not the settings of an index, or damaged",
            f"{place} ({type(error).__name__}: {error})",
            "Take the file from a copy.",
        ) from None
