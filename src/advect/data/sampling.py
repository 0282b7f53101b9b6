"""Subsets, draws and splits of a dataset, and other weights of its samples.

Rows of a draw are chosen from labels alone, before features are read."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from advect._util import (
    InputError,
    check_count,
    check_methods,
    check_positive,
    check_weights,
    missing_labels,
    refuse_if,
)
from advect.data.coerce import as_class_weights, as_tensor, balanced_weights
from advect.data.laws import Gaussians

if TYPE_CHECKING:
    from advect.io.formats import Table

BY_ROW = ("x", "y", "weights", "law_index", "probabilities", "targets")


class Subsets:
    """The fields of ``LabeledDataset``, and how samples are chosen and weighted."""

    x: Tensor
    y: Tensor
    weights: Tensor
    classes: tuple[Hashable, ...]
    sample_shape: tuple[int, ...]
    law: Gaussians | None
    law_index: Tensor | None
    fixed_laws: bool
    columns: tuple[str, ...] | None
    table: Table | None
    probabilities: Tensor | None
    targets: Tensor | None
    target_columns: tuple[str, ...] | None
    target_unit: Tensor | None
    index: Any
    dim: int
    labeled: Tensor
    has_soft_labels: bool
    has_classes: bool
    _estimate: Gaussians | None
    if TYPE_CHECKING:

        def __init__(self, x: Any, **fields: Any) -> None: ...
        def _replace(self, **changes: Any) -> Self: ...

    @property
    def counts(self) -> dict[Hashable, int]:
        """The number of samples of each class, by ``y``. Missing labels are not counted."""
        counts = torch.bincount(self.y[self.labeled], minlength=len(self.classes)).tolist()
        return dict(zip(self.classes, counts, strict=True))

    def balanced(self) -> Self:
        """The same samples, weighted so that every class that has samples has the same mass.

        With soft labels the masses are as close to equal as the probabilities allow.

        Example:
            >>> import advect as ad
            >>> ad.LabeledDataset([[0.0], [2.0], [7.0]], ["a", "a", "b"]).balanced().weights.tolist()
            [0.25, 0.25, 0.5]
        """
        weights = balanced_weights(self.y, len(self.classes), self.probabilities)
        return self._replace(weights=weights)

    def reweighted(self, proportions: Any) -> Self:
        """The same samples with other class proportions. Relative weights within a class do not change.

        Args:
            proportions: a number for each class, by name or in the order of ``classes``; scaled to
                sum to one. Classes that are not named get 0.

        Example:
            >>> import advect as ad
            >>> data = ad.LabeledDataset([[0.0], [2.0], [7.0]], ["a", "a", "b"])
            >>> data.reweighted({"a": 0.2, "b": 0.8}).weights.tolist()
            [0.1, 0.1, 0.8]
        """
        if not bool(self.labeled.all()):
            raise missing_labels("reweighted", int((~self.labeled).sum()), len(self.y))
        wanted = as_class_weights(proportions, self.classes, self.weights)
        mass = self.weights.new_zeros(len(self.classes)).index_add_(0, self.y, self.weights)
        empty = [self.classes[k] for k in ((wanted > 0) & (mass <= 0)).nonzero()[:, 0].tolist()]
        refuse_if(
            empty,
            "a class without samples must have proportion 0",
            ", ".join(map(str, empty[:5])),
            "Set it to 0, or add samples.",
        )
        factor = torch.where(mass > 0, wanted / mass.clamp_min(1e-300), 0.0)
        weights = self.weights * factor[self.y]
        return self._replace(weights=check_weights("the weights", weights, len(weights)))

    def subset(self, index: Any) -> Self:
        """The samples at ``index`` (positions, slice or boolean mask); weights are rescaled.

        Example:
            >>> import advect as ad
            >>> ad.LabeledDataset([[0.0], [2.0], [7.0]], ["a", "a", "b"]).subset([0, 2]).labels
            ['a', 'b']
        """
        index = rows_at(index, len(self.y), self.y.device)
        fields = {name: getattr(self, name) for name in BY_ROW}
        rows = {name: value[index] for name, value in fields.items() if value is not None}
        if self.index is not None:
            rows["index"] = self.index[index.cpu().numpy()]
        refuse_if(
            not len(rows["y"]),
            "a subset must keep at least one sample",
            "0 samples",
            "Check the index or mask.",
        )
        weights = check_weights("the weights", rows["weights"], len(rows["y"]))
        return self._replace(**fields | rows | {"weights": weights})

    def without(self, index: Any) -> Self:
        """The samples that are not at ``index`` (positions, slice or boolean mask).

        Example:
            >>> import advect as ad
            >>> ad.LabeledDataset([[0.0], [2.0], [7.0]], ["a", "a", "b"]).without([1]).labels
            ['a', 'b']
        """
        keep = torch.ones(len(self.y), dtype=torch.bool, device=self.y.device)
        keep[rows_at(index, len(self.y), self.y.device)] = False
        return self.subset(keep)

    def sample(
        self, n: int, *, balanced: bool = False, generator: torch.Generator | None = None
    ) -> Self:
        """``n`` different samples drawn uniformly; relative weights do not change.

        Args:
            n: number of samples.
            balanced: draw equally many of each class that has samples (one more of the first
                classes if n does not divide).
            generator: source of randomness, for repeatable draws.

        Example:
            >>> import torch, advect as ad
            >>> digits = ad.datasets.load("digits")
            >>> draw = digits.sample(50, balanced=True, generator=torch.Generator().manual_seed(0))
            >>> set(draw.counts.values())
            {5}
        """
        return self.subset(draw_rows(self.y, self.classes, n, balanced, generator))

    def split(
        self, fraction: float, *, generator: torch.Generator | None = None
    ) -> tuple[Self, Self]:
        """Two disjoint parts, stratified by class; the first has ``fraction`` of the samples.

        Example:
            >>> import torch, advect as ad
            >>> train, test = ad.datasets.load("digits").split(0.8, generator=torch.Generator().manual_seed(0))
            >>> len(train) + len(test)
            1797
        """
        first = split_rows(self.y, fraction, generator)
        return self.subset(first), self.subset(~first)

    def of_class(self, name: Hashable) -> Self:
        """The samples of one class; ``classes`` does not change.

        Example:
            >>> import advect as ad
            >>> ad.LabeledDataset([[0.0], [2.0], [7.0]], ["a", "a", "b"]).of_class("a").x.tolist()
            [[0.0], [2.0]]
        """
        known = ", ".join(map(str, self.classes))
        refuse_if(name not in self.classes, "no such class", repr(name), f"Classes: {known}.")
        return self.subset(self.y == self.classes.index(name))


@dataclass(frozen=True)
class Draw:
    """How many rows to draw: ``n`` exactly, ``max_samples`` at most, or all of them in their order."""

    n: int | None = None
    max_samples: int | None = None
    balanced: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("n", 1), ("max_samples", 1), ("seed", 0)):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, check_count(name, value, least))
        refuse_if(
            type(self.balanced) is not bool,
            "balanced must be True or False",
            repr(self.balanced),
            "Pass one of these.",
        )
        refuse_if(
            self.n is not None and self.max_samples is not None,
            "n and max_samples exclude each other",
            f"{self.n} and {self.max_samples}",
            "Pass one of them.",
        )
        refuse_if(
            self.balanced and self.n is None and self.max_samples is None,
            "a balanced draw needs its size",
            "n=None",
            "Pass n or max_samples, or load all and take .balanced() weights.",
        )

    def rows(self, codes: Tensor, classes: Sequence[Hashable]) -> Tensor | None:
        """Positions in the order drawn, among rows with these codes; None for all."""
        n = self.n
        if self.max_samples is not None:
            n = min(self.max_samples, _most_balanced(codes)) if self.balanced else self.max_samples
            if n >= len(codes) and not self.balanced:
                return None
        if n is None:
            return None
        return draw_rows(codes, classes, n, self.balanced, torch.Generator().manual_seed(self.seed))


def draw_rows(
    codes: Tensor,
    classes: Sequence[Hashable],
    n: int,
    balanced: bool,
    generator: torch.Generator | None,
) -> Tensor:
    """``n`` different positions, of equally many of each class where the draw is balanced."""
    n, most = check_count("n", n), len(codes)
    refuse_if(n > most, f"a sample of different rows has at most {most}", n, "Ask for fewer.")
    shuffled = torch.randperm(len(codes), generator=generator).to(codes.device)
    if not balanced:
        return shuffled[:n]
    counts = _counts(codes)
    present = [code for code, count in enumerate(counts) if count]
    chosen = []
    for position, code in enumerate(present):
        wanted = n // len(present) + (position < n % len(present))
        refuse_if(
            wanted > counts[code],
            f"class {classes[code]!r} has too few samples for a balanced draw of {n}",
            f"{counts[code]} where {wanted} are needed",
            "Ask for fewer, or use .balanced() weights instead.",
        )
        chosen.append(shuffled[codes[shuffled] == code][:wanted])
    return torch.cat(chosen)


def some_rows(n: int, most: int | None, generator: torch.Generator | None) -> Sequence[int]:
    """At most so many of n rows, drawn uniformly; all in their order if there are no more."""
    if most is None or check_count("max_samples", most) >= n:
        return range(n)
    return draw_rows(torch.empty(n), (), most, False, generator).tolist()


def by_turns(
    weights: Tensor,
    n: int,
    generator: torch.Generator | None = None,
    *,
    groups: Tensor | None = None,
    phase: float | None = None,
) -> Tensor:
    """``n`` positions drawn by systematic sampling, in random order: a row of weight w is drawn
    ⌊n w⌋ or ⌈n w⌉ times. With ``groups`` this holds for groups too, and equally for draws with
    the same ``phase`` in [0, 1] and the same group weights.
    """
    rows = weights.cpu().nonzero()[:, 0]
    rows = rows[torch.randperm(len(rows), generator=generator)]
    if groups is not None:
        rows = rows[groups.cpu()[rows].argsort(stable=True)]
    ends = weights.cpu()[rows].double().cumsum(dim=0)
    begin = torch.rand((), generator=generator).double() if phase is None else phase
    steps = torch.arange(n, dtype=torch.float64) + begin
    places = torch.searchsorted(ends, steps * (ends[-1] / n), right=True).clamp_max(len(rows) - 1)
    return rows[places][torch.randperm(n, generator=generator)].to(weights.device)


def as_index(index: Any, n: int) -> Any:
    """Names of samples as a pandas index, or None."""
    if index is None:
        return None
    import pandas as pd

    what, remedy = "index must be one name for each sample", "Pass a list of names, or None."
    check_methods(what, index, ("__iter__",), remedy)
    names = index if isinstance(index, pd.Index) else pd.Index([*index])
    refuse_if(len(names) != n, what, f"{len(names)} names for {n} samples", remedy)
    return names


def rows_at(index: Any, n: int, device: torch.device) -> Tensor:
    """Positions among n rows or a mask of them, from a slice, list, array or tensor."""
    what, remedy = "an index must be a vector of positions or a mask", "Pass whole numbers."
    try:
        rows = as_tensor(np.arange(n)[index] if type(index) is slice else index).to(device)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(what, repr(index), remedy) from None
    fractions = rows.is_floating_point() or rows.is_complex()
    refuse_if(
        rows.ndim != 1 or (fractions and len(rows)),  # an empty list is read as floats
        what,
        f"{rows.dtype} of shape {tuple(rows.shape)}",
        remedy,
    )
    if rows.dtype == torch.bool:
        refuse_if(
            len(rows) != n,
            f"a mask needs one entry for each of the {n} samples",
            len(rows),
            "Build it from this dataset.",
        )
        return rows
    rows = rows.long()
    outside = rows[(rows < -n) | (rows >= n)].tolist()
    refuse_if(
        outside,
        f"positions must lie in a dataset of {n} samples",
        outside[:5],
        "Check the index.",
    )
    return rows


def split_rows(codes: Tensor, fraction: float, generator: torch.Generator | None) -> Tensor:
    """Which rows are in the first of two parts, (n,) bool: ``fraction`` of each class, with at least
    one sample of each on both sides if it can. Rows without a label are split as a class.
    """
    fraction, n = check_positive("fraction", fraction), len(codes)
    refuse_if(
        fraction >= 1,
        "fraction must lie between 0 and 1",
        fraction,
        "0.8 puts 80 % of the samples into the first part.",
    )
    refuse_if(n < 2, "a split needs at least two samples", n, "Add samples.")
    shuffled = torch.randperm(n, generator=generator).to(codes.device)
    first = torch.zeros(n, dtype=torch.bool, device=codes.device)
    for code in codes.unique().tolist():
        rows = shuffled[codes[shuffled] == code]
        size = round(fraction * len(rows))
        if len(rows) > 1:
            size = min(max(size, 1), len(rows) - 1)
        first[rows[:size]] = True
    if bool(first.all()) or not bool(first.any()):  # only classes of one sample: split by row
        size = min(max(round(fraction * n), 1), n - 1)
        first[shuffled] = torch.arange(n, device=codes.device) < size
    return first


def _most_balanced(codes: Tensor) -> int:
    """The size of the largest balanced draw: the class at position j gives ⌈(n − j)/k⌉ samples."""
    counts = [count for count in _counts(codes) if count]
    return min(count * len(counts) + position for position, count in enumerate(counts))


def _counts(codes: Tensor) -> list[int]:
    missing = int((codes < 0).sum())
    if missing:
        raise missing_labels("a balanced draw", missing, len(codes))
    return torch.bincount(codes).tolist()
