"""The embedding of data that comes in parts: batches of what does not fit in memory, shards on many
machines, merged in any order.

A projected sample is ψ·(θ·x, √w θ·μ_y, √w σ_y): the feature θ·x, and a number that its class alone
decides once all samples are known. So what is kept for each class and direction is the distribution
of θ·x as a histogram, with the exact mean and variance, and they are put together at the end.

Cells of a histogram have the width 2^e and begin at multiples of it, so that two cells of a finer
one are one cell of a coarser one: where samples come that lie outside, cells are joined. The width
depends on the range of all samples alone, not on their order, and a merged sketch is that of all
samples at once. Each sample moves by at most half a cell, which bounds the error of the vector."""

from __future__ import annotations

import math
import os
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from advect._util.checks import check_count, check_kind, missing_labels
from advect._util.linalg import root
from advect._util.progress import Progress
from advect.data.coerce import as_codes
from advect.data.dataset import LabeledDataset
from advect.data.spaces import FeatureSpace
from advect.data.store import read_tensors, unpacking, write_tensors
from advect.datasets.statistics import ClassStatistics, in_batches, plain_weights
from advect.errors import InputError
from advect.questions.embedding import DatasetEmbedding
from advect.questions.histograms import Histograms
from advect.questions.into_space import in_space
from advect.questions.slices import ENTRIES, Slices

_FORMAT = "advect.embedding_sketch/1"
_ALL = "all"  # the one class of samples whose labels are not looked at


class EmbeddingSketch:
    """What the embedding of a dataset is made from, gathered batch by batch and merged over shards.

    Memory does not grow with the number of samples: ``cells`` numbers for each class and direction.
    For data that fits in memory ``ad.embed`` is exact, and simpler.

    Args:
        space: where samples are taken to first; None leaves them as they are.
        n_directions, n_levels, label_weight, seed: as in ``ad.embed``.
        cells: of a histogram, which covers the range of the samples; ``grid_error`` of the
            embedding says how far it may be off, and falls as 1 / cells.

    Example:
        >>> import advect as ad
        >>> data = ad.datasets.gaussians(300)
        >>> first, second = (ad.EmbeddingSketch().update(part.x, part.labels)
        ...                  for part in (data.subset(slice(0, 100)), data.subset(slice(100, 300))))
        >>> merged, exact = first.merge(second).embedding(), ad.embed(data)
        >>> merged.distance(exact) <= merged.grid_error < 0.1
        True
    """

    def __init__(
        self,
        space: FeatureSpace | None = None,
        *,
        n_directions: int = 64,
        n_levels: int = 32,
        label_weight: float = 1.0,
        seed: int = 0,
        cells: int = 512,
    ) -> None:
        self.space, self.cells = space, check_count("cells", cells, least=2)
        self._settings = {
            "n_directions": n_directions,
            "n_levels": n_levels,
            "label_weight": label_weight,
            "seed": seed,
        }
        Slices.drawn(1, **self._settings)  # says what cannot be used
        self._slices: Slices | None = None
        self._statistics = ClassStatistics(diagonal=True)
        self._histograms: Histograms | None = None

    @classmethod
    def along(
        cls, slices: Slices, space: FeatureSpace | None = None, *, cells: int = 512
    ) -> EmbeddingSketch:
        """An empty one with these directions."""
        sketch = cls(
            space,
            n_directions=slices.n_directions,
            n_levels=slices.n_levels,
            label_weight=slices.label_weight,
            cells=cells,
        )
        sketch._slices = slices
        return sketch

    def update(self, x: Any, y: Any = None, weights: Any = None) -> EmbeddingSketch:
        """Take in a batch: features (n, …), n labels, and n non-negative weights (1 each by
        default); returns itself.

        Raises:
            InputError: missing labels, or samples and weights that do not fit.
        """
        part = LabeledDataset(x)
        if self.space is not None:
            part = in_space(self.space, part)
        slices = self._directions(part.dim)
        heavy = plain_weights(weights, len(part))
        labels: Any = y if slices.label_weight else [_ALL] * len(part)
        codes, classes = as_codes(labels, None, len(part))
        if bool((codes < 0).any()):
            raise missing_labels("an embedding with labels", int((codes < 0).sum()), len(part))
        features = part.x.detach().cpu().double() @ slices.theta  # (n, p)
        names = [classes[code] for code in codes.tolist()]
        self._statistics.update(features, names, heavy)
        kept = heavy > 0
        if bool(kept.any()):
            if self._histograms is None:
                self._histograms = Histograms.empty(slices.n_directions, self.cells)
            self._histograms = self._histograms.with_samples(
                features[kept], codes[kept], classes, heavy[kept]
            )
        return self

    def merge(self, other: EmbeddingSketch) -> EmbeddingSketch:
        """The sketch of both together, as a new object; the order of merging does not matter, up to
        rounding.

        Raises:
            InputError: one with other directions, levels, label weight or cells.
        """
        what = "sketches to merge must be EmbeddingSketch with equal settings"
        check_kind(what, other, EmbeddingSketch, "Gather both alike.")
        mine, its = self._slices, other._slices
        alike = self.cells == other.cells and self._settings == other._settings
        if mine is not None and its is not None:
            alike = self.cells == other.cells and mine.key == its.key
        if not alike:
            raise InputError(what, "others", "Gather both alike, with one seed.")
        both = EmbeddingSketch.__new__(EmbeddingSketch)
        both.space, both.cells, both._settings = self.space, self.cells, self._settings
        both._slices = mine or its
        both._statistics = self._statistics.merge(other._statistics)
        parts = [one for one in (self._histograms, other._histograms) if one is not None]
        both._histograms = parts[0].merged(parts[1]) if len(parts) == 2 else next(iter(parts), None)
        return both

    @classmethod
    def from_source(
        cls,
        ref: str | os.PathLike[str],
        space: FeatureSpace | None = None,
        *,
        batch: int = 8192,
        progress: Progress | bool = None,
        **settings: Any,
    ) -> EmbeddingSketch:
        """The sketch of a file or named dataset, read ``batch`` samples at a time.

        Args:
            ref: a path, or what ``ad.datasets.load`` takes.
            space: as for the class.
            batch: how many samples are in memory at once.
            progress: None or True shows it on stderr when it takes long, False is silent, a
                function is called with (done, total).
            **settings: those of the class.

        Example:
            >>> import tempfile, advect as ad
            >>> digits = ad.datasets.load("digits", n=300)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = digits.save(f"{folder}/digits.npz")
            ...     made = ad.EmbeddingSketch.from_source(path, batch=100).embedding()
            >>> made.distance(ad.embed(digits)) <= made.grid_error
            True
        """
        return cls(space, **settings).read(ref, batch=batch, progress=progress)

    def read(
        self,
        ref: str | os.PathLike[str],
        *,
        batch: int = 8192,
        progress: Progress | bool = None,
    ) -> EmbeddingSketch:
        """Take in a file or named dataset, ``batch`` samples at a time; returns itself."""
        for part in in_batches(ref, batch, progress, {}):
            self.update(*part)
        return self

    def embedding(self) -> DatasetEmbedding:
        """The embedding of all samples that were taken in.

        Raises:
            InputError: there are none with weight.
        """
        if self._slices is None or self._histograms is None:
            raise InputError(
                "there is nothing to embed yet",
                "no sample with weight",
                "Update with samples first.",
            )
        slices, held = self._slices, self._histograms
        values, offsets = held.centres()[:, None, :], None  # (p, 1, cells)
        masses = held.masses.permute(1, 0, 2)  # (p, k, cells)
        group = max(1, ENTRIES // (slices.psi.shape[1] * masses.shape[1] * self.cells))
        if slices.label_weight:
            position = {name: at for at, name in enumerate(self._statistics.classes)}
            rows = torch.tensor([position[name] for name in held.classes])
            means, spread = self._statistics.means[rows], self._statistics.covariances[rows]
            offsets = slices.offsets(means, root(spread))  # (p, q, k)

        def images(start: int) -> tuple[Tensor, Tensor]:
            chosen = slice(start, start + group)
            found = slices.psi[chosen, :, :1, None] * values[chosen, None]  # (g, q, 1, cells)
            found = found.expand(-1, -1, masses.shape[1], -1)
            if offsets is not None:
                found = found + offsets[chosen, :, :, None]
            return found.flatten(2), masses[chosen].flatten(1)[:, None]

        vector, residual = slices.steps(images, group)
        # ψ are orthonormal: over those of one direction, the squares of their first parts sum to 1
        shares = slices.scale / (slices.psi.shape[0] * slices.psi.shape[1])
        grid = math.sqrt(shares * float((held.widths() / 2).square().sum()))
        n = sum(self._statistics.counts.values())
        present = len(held.classes) if slices.label_weight else 0
        return DatasetEmbedding(vector.numpy(), residual, grid, n, present, slices.key)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write everything but the space to a safetensors file, whole or not at all.

        Raises:
            InputError: nothing was taken in yet.
        """
        if self._slices is None or self._histograms is None:
            raise InputError(
                "there is nothing to save yet",
                "no sample with weight",
                "Update with samples first.",
            )
        place = Path(path).expanduser()
        own, facts = self._statistics.packed()
        tensors = {f"statistics.{name}": value for name, value in own.items()}
        tensors |= {"theta": self._slices.theta, "psi": self._slices.psi}
        held, more = self._histograms.packed()
        tensors |= {f"histograms.{name}": value for name, value in held.items()}
        settings = {"n_levels": self._slices.n_levels, "label_weight": self._slices.label_weight}
        about = {"format": _FORMAT, "settings": settings, "statistics": facts, "histograms": more}
        write_tensors(place, tensors, about)
        return place

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], space: FeatureSpace | None = None
    ) -> EmbeddingSketch:
        """What ``save`` wrote, to go on with, or to merge; ``space`` is that of before.

        Example:
            >>> import tempfile, advect as ad
            >>> data = ad.datasets.gaussians(100)
            >>> sketch = ad.EmbeddingSketch().update(data.x, data.labels)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     again = ad.EmbeddingSketch.load(sketch.save(f"{folder}/shard.safetensors"))
            >>> again.embedding().distance(sketch.embedding())
            0.0
        """
        place = Path(path).expanduser()
        tensors, facts = read_tensors(place)
        if facts.get("format") != _FORMAT:
            raise InputError("not a file of EmbeddingSketch.save", path, "Give the path of one.")

        def part(name: str) -> dict[str, Tensor]:
            return {
                key.removeprefix(f"{name}."): value
                for key, value in tensors.items()
                if key.startswith(f"{name}.")
            }

        with unpacking(place):
            slices = Slices(tensors["theta"], tensors["psi"], **facts["settings"])
            histograms = Histograms.unpacked(part("histograms"), facts["histograms"])
            sketch = cls.along(slices, space, cells=histograms.masses.shape[2])
            sketch._statistics = ClassStatistics.unpacked(part("statistics"), facts["statistics"])
            sketch._histograms = histograms
        return sketch

    @property
    def classes(self) -> tuple[Hashable, ...]:
        """The names of the classes so far."""
        return self._statistics.classes

    def __repr__(self) -> str:
        n = sum(self._statistics.counts.values())
        return f"EmbeddingSketch(n={n}, classes={len(self.classes)}, cells={self.cells})"

    def _directions(self, dim: int) -> Slices:
        if self._slices is None:
            self._slices = Slices.drawn(dim, **self._settings)
        if self._slices.dim != dim:
            raise InputError(
                f"samples must have {self._slices.dim} features, as the directions have",
                dim,
                "Bring them to one space first.",
            )
        return self._slices
