"""Label laws of data that does not fit into memory: class moments, batch by batch."""

from __future__ import annotations

import os
from collections.abc import Hashable
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advect._util.checks import refuse_if
from advect._util.progress import Progress, track
from advect.data.coerce import as_codes, as_features, as_tensor
from advect.data.laws import Diagonal, Full, Gaussians
from advect.data.laws.moments import Moments
from advect.io.formats import kind_of, open_source, reader_options
from advect.io.formats.content import class_names
from advect.io.loading import Reference, load
from advect.io.named import NAMES, SYNTHETIC


class ClassStatistics:
    """Counts, weights, means and covariances of classes, gathered batch by batch.

    Use it for the label laws of data that does not fit into memory. Samples without a label are
    counted in ``missing`` and left out. Means and covariances agree with those of a
    ``LabeledDataset`` of the same samples.

    Args:
        diagonal: keep variances only.

    Attributes:
        counts, weights: number of samples and sum of weights of each class.
        missing: number of samples without a label.

    Example:
        >>> import advect as ad
        >>> first = ad.ClassStatistics().update([[0.0], [2.0]], ["a", "a"])
        >>> second = ad.ClassStatistics().update([[4.0], [9.0], [5.0]], ["a", "b", None])
        >>> both = first.merge(second)
        >>> both.counts, both.means.flatten().tolist(), both.covariances.flatten().tolist()
        ({'a': 3, 'b': 1}, [2.0, 9.0], [4.0, 0.0])
    """

    def __init__(self, *, diagonal: bool = False) -> None:
        self.diagonal, self.missing = diagonal, 0
        self._moments: dict[Hashable, Moments] = {}

    def update(self, x: Any, y: Any, weights: Any = None) -> ClassStatistics:
        """Add a batch of features (n, …), n labels and n weights (1 by default); returns itself."""
        features = _doubles(x)
        codes, classes = as_codes(y, None, len(features))
        mass = torch.ones(len(features)).double() if weights is None else _doubles(weights)[:, 0]
        refuse_if(
            mass.shape != codes.shape or bool((mass < 0).any()) or not mass.sum().isfinite(),
            "weights must be n non-negative numbers",
            f"shape {tuple(mass.shape)}, from {float(mass.min()):g}",
            "Clip them.",
        )
        self._check_dim(features.shape[1])
        known = codes >= 0
        self.missing += int((~known).sum())
        parts = (features[known], codes[known], mass[known], len(classes), self.diagonal)
        self._join(dict(zip(classes, Moments.of_classes(*parts), strict=True)))
        return self

    def merge(self, other: ClassStatistics) -> ClassStatistics:
        """The statistics of both together, as a new object."""
        what = f"merge takes ClassStatistics(diagonal={self.diagonal})"
        refuse_if(
            other.diagonal != self.diagonal,
            what,
            repr(other),
            "Use the same value of diagonal for both.",
        )
        self._check_dim(other.dim)
        both = ClassStatistics(diagonal=self.diagonal)
        both.missing, both._moments = self.missing + other.missing, dict(self._moments)
        both._join(other._moments)
        return both

    @classmethod
    def from_source(
        cls,
        ref: str | os.PathLike[str],
        *,
        diagonal: bool = False,
        progress: Progress = None,
        **options: Any,
    ) -> ClassStatistics:
        """The statistics of a file or named dataset, gathered in blocks, as float64.

        Args:
            ref, progress, options: as in ``ad.datasets.load``.
            diagonal: whether to keep variances only.

        Example:
            >>> import advect as ad
            >>> ad.ClassStatistics.from_source("digits")
            ClassStatistics(n=1797, classes=10, dim=64, missing=0)
        """
        statistics, reference = cls(diagonal=diagonal), Reference.parse(ref, (*NAMES, *SYNTHETIC))
        if not reference.is_file:
            data = load(ref, progress=progress, **options)
            return statistics.update(data.samples, data.labels, data.weights * len(data))
        kind = kind_of(reference.path) if reference.kind == "path" else reference.kind
        wide = {"dtype": "float64"} if "dtype" in reader_options(kind) else {}
        content = open_source(reference.path, kind, **{**wide, **reference.options, **options})
        labels, weights = content.labels or [None] * len(content), content.weights
        with track(len(content), "reading samples", progress) as advance:
            first = 0
            for x in content.batches(np.arange(len(content))):
                rows, first = slice(first, first + len(x)), first + len(x)
                statistics.update(x, labels[rows], None if weights is None else weights[rows])
                advance(len(x))
        return statistics

    @property
    def classes(self) -> tuple[Hashable, ...]:
        """The class names, sorted if they can be compared."""
        return class_names(self._moments)

    @property
    def dim(self) -> int | None:
        """The number of features; None before the first labeled sample."""
        return next((len(moments.rest) for moments in self._moments.values()), None)

    @property
    def counts(self) -> dict[Hashable, int]:
        return {name: self._moments[name].count for name in self.classes}

    @property
    def weights(self) -> dict[Hashable, float]:
        return {name: self._moments[name].weight for name in self.classes}

    @property
    def means(self) -> Tensor:
        """(k, d), float64."""
        return torch.stack([self._moments[name].mean for name in self.classes])

    @property
    def covariances(self) -> Tensor:
        """(k, d, d), or variances (k, d) if ``diagonal``; unbiased."""
        return torch.stack([self._moments[name].covariance() for name in self.classes])

    def to_gaussians(self) -> Gaussians:
        """The label laws in the order of ``classes``, for ``LabeledDataset(law=…)``.

        Example:
            >>> import advect as ad
            >>> x, y = [[0.0], [2.0], [5.0], [9.0]], ["a", "a", "b", "b"]
            >>> laws = ad.ClassStatistics().update(x, y).to_gaussians()
            >>> few = ad.LabeledDataset(x[::2], y[::2], law=laws)  # two samples, laws of all
            >>> few.laws().means.flatten().tolist()
            [1.0, 7.0]
        """
        refuse_if(
            not self._moments, "there are no classes yet", "no labeled sample", "Update first."
        )
        spread = self.covariances
        covariance = Diagonal(spread.clamp_min(0).sqrt()) if self.diagonal else Full(spread)
        return Gaussians(self.means, covariance)

    def __repr__(self) -> str:
        facts = f"n={sum(self.counts.values())}, classes={len(self._moments)}, dim={self.dim}"
        return f"ClassStatistics({facts}, missing={self.missing})"

    def _join(self, parts: dict[Hashable, Moments]) -> None:
        for name, part in parts.items():
            before = self._moments.get(name)
            self._moments[name] = part if before is None else before.joined(part)

    def _check_dim(self, dim: int | None) -> None:
        differs = None not in (self.dim, dim) and dim != self.dim
        refuse_if(differs, f"samples must have {self.dim} features", dim, "Use one space.")


def _doubles(x: Any) -> Tensor:
    """Features (n, d) in float64."""
    with suppress(TypeError, ValueError, RuntimeError):  # as_features says what is wrong
        x = as_tensor(x).detach().cpu().double()
    return as_features(x).flatten(1)
