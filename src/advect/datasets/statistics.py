"""Gaussian label laws of data that does not fit in memory: counts, means and covariances of classes
in one pass, batch by batch (``advect.data.laws.moments`` says how parts are joined).
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from advect._util.checks import check_count, check_finite
from advect._util.progress import Progress, track
from advect.data.coerce import as_codes, as_features, as_tensor
from advect.data.dataset import LabeledDataset
from advect.data.formats import Source, kind_of, open_source, reader_options
from advect.data.formats.content import class_names
from advect.data.formats.names import pack_name, unpack_name
from advect.data.laws import Diagonal, Full, Gaussians
from advect.data.laws.moments import Moments
from advect.data.store import read_tensors, unpacking, write_tensors
from advect.datasets import load, names
from advect.datasets.named import NAMES, open_named
from advect.datasets.reference import Reference
from advect.errors import InputError

_FORMAT = "advect.class_statistics/2"
# with Σ w² in place of the freedom, and no moments of classes without weight
_FORMER = "advect.class_statistics/1"
_TENSORS = ("near", "rest", "scatter")


class ClassStatistics:
    """Counts, weights, means and covariances of classes, gathered batch by batch.

    Classes are discovered on the way; samples without a label are left out and counted. Memory does
    not grow with the number of samples: a (d, d) matrix for each class, or d numbers if
    ``diagonal``. Means and covariances are those of a dataset of the same samples: a class without
    any weight is described by its samples with equal weights.

    Args:
        diagonal: keep variances only.

    Attributes:
        missing: how many samples had no label.

    Example:
        >>> import advect as ad
        >>> first = ad.ClassStatistics().update([[0.0], [2.0]], ["a", "a"])
        >>> second = ad.ClassStatistics().update([[4.0], [9.0], [5.0]], ["a", "b", None])
        >>> both = first.merge(second)
        >>> both
        ClassStatistics(n=4, classes=2, dim=1, missing=1)
        >>> both.counts, both.means.flatten().tolist(), both.covariances.flatten().tolist()
        ({'a': 3, 'b': 1}, [2.0, 9.0], [4.0, 0.0])
    """

    def __init__(self, *, diagonal: bool = False) -> None:
        self.diagonal, self.missing = diagonal, 0
        self._moments: dict[Hashable, Moments] = {}

    def update(self, x: Any, y: Any, weights: Any = None) -> ClassStatistics:
        """Take in a batch: features (n, …), n labels, and n non-negative weights (1 each by
        default); returns itself.

        Raises:
            InputError: features that are not finite numbers, or do not fit those before; a wrong
                number of labels or weights.
        """
        features = _features(x)
        codes, classes = as_codes(y, None, len(features))
        self._check_dim(features.shape[1])
        heavy, known = plain_weights(weights, len(features)), codes >= 0
        self.missing += int((~known).sum())
        if not bool(known.all()):
            features, codes, heavy = features[known], codes[known], heavy[known]
        parts = Moments.of_classes(features, codes, heavy, len(classes), self.diagonal)
        for name, part in zip(classes, parts, strict=True):
            self._join(name, part)
        return self

    def merge(self, other: ClassStatistics) -> ClassStatistics:
        """The statistics of both together, as a new object; the order of merging does not matter,
        up to rounding.

        Raises:
            InputError: other dimensions, or one with full and one with diagonal covariances.
        """
        alike = isinstance(other, ClassStatistics)
        if not alike or other.diagonal != self.diagonal:
            got = f"diagonal={other.diagonal}" if alike else type(other).__name__
            raise InputError(
                f"statistics to merge must be ClassStatistics(diagonal={self.diagonal})",
                got,
                "Gather both alike.",
            )
        if other.dim is not None:
            self._check_dim(other.dim)
        both = ClassStatistics(diagonal=self.diagonal)
        both.missing, both._moments = self.missing + other.missing, dict(self._moments)
        for name, moments in other._moments.items():
            both._join(name, moments)
        return both

    @classmethod
    def from_source(
        cls,
        ref: str | os.PathLike[str],
        *,
        batch: int = 8192,
        diagonal: bool = False,
        progress: Progress | bool = None,
        **options: Any,
    ) -> ClassStatistics:
        """The statistics of a file or named dataset, read ``batch`` samples at a time.

        Args:
            ref: a path, or what ``ad.datasets.load`` takes. Numbers of tables are read as float64.
            batch: how many samples are in memory at once.
            diagonal: keep variances only.
            progress: None or True shows it on stderr when it takes long, False is silent, a
                function is called with (done, total).
            **options: those of the format, as in ``label="kind"``.

        Raises:
            InputError: a reference, file or option that cannot be used.

        Example:
            >>> import tempfile, advect as ad
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = ad.datasets.load("digits").save(f"{folder}/digits.npz")
            ...     digits = ad.ClassStatistics.from_source(path, batch=500)
            >>> digits.counts[0], digits.to_gaussians().means.shape
            (178, torch.Size([10, 64]))
        """
        found = cls(diagonal=diagonal)
        for part in in_batches(ref, batch, progress, options):
            found.update(*part)
        return found

    @property
    def classes(self) -> tuple[Hashable, ...]:
        """The names, sorted where they compare, else in order of appearance."""
        return class_names(self._moments)

    @property
    def dim(self) -> int | None:
        """d, the number of features; None before the first sample with a label."""
        return next((len(moments.rest) for moments in self._moments.values()), None)

    @property
    def counts(self) -> dict[Hashable, int]:
        """How many samples each class has."""
        return {name: self._moments[name].count for name in self.classes}

    @property
    def weights(self) -> dict[Hashable, float]:
        """The sum of weights of each class."""
        return {name: self._moments[name].weight for name in self.classes}

    @property
    def means(self) -> Tensor:
        """(k, d), float64."""
        return self._stacked([moments.mean for moments in self._ordered()])

    @property
    def covariances(self) -> Tensor:
        """(k, d, d), or variances (k, d) if ``diagonal``; unbiased, so n − 1 for equal weights."""
        return self._stacked([moments.covariance() for moments in self._ordered()])

    def to_gaussians(self) -> Gaussians:
        """The label laws, in the order of ``classes``; for the ``law`` of a dataset, or
        ``ad.bures``.

        Example:
            >>> import advect as ad
            >>> x, y = [[0.0], [2.0], [5.0], [9.0]], ["a", "a", "b", "b"]
            >>> laws = ad.ClassStatistics().update(x, y).to_gaussians()
            >>> few = ad.LabeledDataset(x[::2], y[::2], law=laws)     # two samples, with the laws of all
            >>> few.laws().means.flatten().tolist()
            [1.0, 7.0]
        """
        covariances = self.covariances
        return Gaussians(
            self.means,
            Diagonal(covariances.clamp_min(0).sqrt()) if self.diagonal else Full(covariances),
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write everything to a safetensors file, whole or not at all."""
        place = Path(path).expanduser()
        write_tensors(place, *self.packed())
        return place

    def packed(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything as tensors and facts."""
        moments = list(self._moments.values())
        facts = {
            "format": _FORMAT,
            "diagonal": self.diagonal,
            "missing": self.missing,
            "classes": [pack_name(name) for name in self._moments],
        }
        sums = torch.tensor([[part.weight, part.freedom] for part in moments], dtype=torch.float64)
        tensors = {"counts": torch.tensor([part.count for part in moments]), "sums": sums}
        if moments:
            tensors |= {
                name: torch.stack([getattr(part, name) for part in moments]) for name in _TENSORS
            }
        return tensors, facts

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ClassStatistics:
        """What ``save`` wrote, to go on with; earlier files did not keep the means of classes
        without weight, which are NaN.

        Example:
            >>> import tempfile, advect as ad
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = ad.ClassStatistics().update([[0.0], [2.0]], ["a", "a"]).save(f"{folder}/part.safetensors")
            ...     ad.ClassStatistics.load(path).update([[4.0]], ["a"]).means.tolist()
            [[2.0]]
        """
        tensors, facts = read_tensors(Path(path).expanduser())
        if facts.get("format") not in (_FORMAT, _FORMER):
            raise InputError("not a file of ClassStatistics.save", path, "Give the path of one.")
        with unpacking(Path(path)):
            return cls.unpacked(tensors, facts)

    @classmethod
    def unpacked(cls, tensors: dict[str, Tensor], facts: dict[str, Any]) -> ClassStatistics:
        """What ``packed`` gave; ValueError for parts that do not fit."""
        found = cls(diagonal=facts["diagonal"])
        found.missing = check_count("missing", facts["missing"], least=0)
        if any(len(values) != len(facts["classes"]) for values in tensors.values()):
            raise ValueError("not one entry for each class")
        for at, packed in enumerate(facts["classes"]):
            weight, freedom = tensors["sums"][at].tolist()
            count, parts = int(tensors["counts"][at]), [tensors[name][at] for name in _TENSORS]
            make = Moments if facts["format"] == _FORMAT else _former
            found._moments[unpack_name(packed)] = make(count, weight, freedom, *parts)
        return found

    def __repr__(self) -> str:
        n = sum(self.counts.values())
        return f"ClassStatistics(n={n}, classes={len(self._moments)}, dim={self.dim}, missing={self.missing})"

    def _ordered(self) -> list[Moments]:
        return [self._moments[name] for name in self.classes]

    def _stacked(self, parts: list[Tensor]) -> Tensor:
        if not parts:
            raise InputError(
                "there are no classes yet",
                "no sample with a label",
                "Update with labeled samples first.",
            )
        return torch.stack(parts)

    def _join(self, name: Hashable, moments: Moments) -> None:
        before = self._moments.get(name)
        self._moments[name] = moments if before is None else before.joined(moments)

    def _check_dim(self, dim: int) -> None:
        if self.dim not in (None, dim):
            raise InputError(
                f"samples must have {self.dim} features, as those before",
                dim,
                "Bring them to one space first.",
            )


def _former(
    count: int, weight: float, squares: float, near: Tensor, rest: Tensor, scatter: Tensor
) -> Moments:
    """From the sums of earlier files, which kept nothing of a class without weight."""
    if weight == 0:
        return Moments(count, weight, 0.0, near.new_full(near.shape, torch.nan), rest, scatter)
    freedom = weight - squares / weight
    return Moments(count, weight, freedom if freedom > 1e-12 * weight else 0.0, near, rest, scatter)


def _numbers(x: Any) -> Tensor:
    """Real numbers in float64, also where a dataset would take float32."""
    values = as_tensor(x).detach().cpu()
    return values if values.is_complex() else values.double()


def _features(x: Any) -> Tensor:
    with suppress(TypeError, ValueError, RuntimeError):  # the next line says what is wrong
        x = _numbers(x)
    features = as_features(x)
    return features.reshape(len(features), -1).double()


def plain_weights(weights: Any, n: int) -> Tensor:
    """Non-negative weights for n samples as they are, float64; 1 each for None."""
    if weights is None:
        return torch.ones(n, dtype=torch.float64)
    try:
        values = _numbers(weights)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(
            "weights must be numbers", type(weights).__name__, "Pass one for each sample."
        ) from None
    if values.shape != (n,):
        raise InputError(
            f"weights must be {n} numbers",
            f"shape {tuple(values.shape)}",
            "Pass one for each sample.",
        )
    check_finite("weights", values, "Weights are plain non-negative numbers.")
    if bool((values < 0).any()):
        raise InputError(
            "weights must not be negative",
            f"{values.min().item():g}",
            "Clip or drop these samples.",
        )
    if not bool(values.sum().isfinite()):
        raise InputError(
            "weights must have a finite sum",
            f"up to {values.max().item():g}",
            "Divide all by one number.",
        )
    return values


def in_batches(
    ref: str | os.PathLike[str], batch: int, progress: Progress | bool, options: dict[str, Any]
) -> Iterator[tuple[Any, Any, Any]]:
    """Features, labels and weights of a file or named dataset, ``batch`` samples at a time where
    its format can be read so.
    """
    batch, source = check_count("batch", batch), _open(ref, options)
    if isinstance(source, LabeledDataset):
        yield source.samples, source.labels, source.weights * len(source)
        return
    labels = [None] * len(source) if source.labels is None else source.labels
    with track(len(source), "reading samples", None if progress is True else progress) as advance:
        first = 0
        for x in source.blocks(batch, advance):
            rows, first = slice(first, first + len(x)), first + len(x)
            yield x, labels[rows], None if source.weights is None else source.weights[rows]


def _open(ref: str | os.PathLike[str], options: dict[str, Any]) -> Source | LabeledDataset:
    reference = Reference.parse(ref, [known.name for known in names()])
    options = reference.merged(options)
    if reference.is_file:
        kind = kind_of(reference.path) if reference.kind == "path" else reference.kind
        if "dtype" in reader_options(kind):
            options.setdefault("dtype", "float64")
        return open_source(reference.path, kind, **options)
    if reference.kind == "name" and reference.path in NAMES and options.keys() <= {"split"}:
        return open_named(reference.path, options.get("split"))
    return load(ref, progress=False, **options)
