"""The rows of a draw, a subset or a split, chosen from labels alone, before features are read."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advect._util.checks import check_count, check_positive, missing_labels
from advect.data.coerce import as_tensor
from advect.errors import InputError


@dataclass(frozen=True)
class Draw:
    """How many rows to draw: ``n`` exactly, ``max_samples`` at most, or all of them in their order."""

    n: int | None = None
    max_samples: int | None = None
    balanced: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("n", 1), ("max_samples", 1), ("seed", 0)):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, check_count(name, value, least))
        if type(self.balanced) is not bool:
            raise InputError(
                "balanced must be True or False", repr(self.balanced), "Pass one of these."
            )
        if self.n is not None and self.max_samples is not None:
            raise InputError(
                "n and max_samples exclude each other",
                f"{self.n} and {self.max_samples}",
                "Pass the one that you mean.",
            )
        if self.balanced and self.n is None and self.max_samples is None:
            raise InputError(
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
    n = check_count("n", n)
    if n > len(codes):
        raise InputError(
            f"a sample of different rows has at most {len(codes)}", n, "Ask for fewer."
        )
    shuffled = torch.randperm(len(codes), generator=generator).to(codes.device)
    if not balanced:
        return shuffled[:n]
    counts = _counts(codes)
    present = [code for code, count in enumerate(counts) if count]
    chosen = []
    for position, code in enumerate(present):
        wanted = n // len(present) + (position < n % len(present))
        if wanted > counts[code]:
            raise InputError(
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


def chosen_rows(index: Any, n: int, device: torch.device) -> Tensor:
    """``rows_at``, at least one of them."""
    rows = rows_at(index, n, device)
    if len(rows) == 0 or (rows.dtype == torch.bool and not bool(rows.any())):
        raise InputError(
            "a subset must keep at least one sample", "0 samples", "Check the index or mask."
        )
    return rows


def rows_at(index: Any, n: int, device: torch.device) -> Tensor:
    """Positions among n rows, or a mask of them, from what users write: a slice, a list, an array;
    none are some too.
    """
    what = "an index must be a vector of positions or a mask"
    try:
        if type(index) is slice:
            index = np.arange(n)[index]
        rows = as_tensor(index).to(device)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(what, repr(index), "Pass whole numbers.") from None
    if (rows.numel() and (rows.is_floating_point() or rows.is_complex())) or rows.ndim != 1:
        got = f"{rows.dtype} of shape {tuple(rows.shape)}"
        raise InputError(what, got, "Pass whole numbers.")
    if rows.dtype != torch.bool:
        rows = rows.long()
        if rows.numel() and not (-n <= int(rows.min()) and int(rows.max()) < n):
            raise InputError(
                f"positions must lie in a dataset of {n} samples",
                f"{int(rows.min())} to {int(rows.max())}",
                "Check the index.",
            )
    elif len(rows) != n:
        raise InputError(
            f"a mask needs one entry for each of the {n} samples",
            len(rows),
            "Build it from this dataset.",
        )
    return rows


def split_rows(codes: Tensor, fraction: float, generator: torch.Generator | None) -> Tensor:
    """Which rows are in the first of two parts, (n,) bool: ``fraction`` of each class, with at least
    one sample of each on both sides if it can. Rows without a label are split as a class.
    """
    fraction, n = check_positive("fraction", fraction), len(codes)
    if fraction >= 1:
        raise InputError(
            "fraction must lie between 0 and 1",
            fraction,
            "0.8 keeps four fifths in the first part.",
        )
    if n < 2:
        raise InputError("a split needs at least two samples", n, "Add samples.")
    shuffled = torch.randperm(n, generator=generator).to(codes.device)
    first = torch.zeros(n, dtype=torch.bool, device=codes.device)
    for code in codes.unique().tolist():
        rows = shuffled[codes[shuffled] == code]
        kept = round(fraction * len(rows))
        if len(rows) > 1:
            kept = min(max(kept, 1), len(rows) - 1)
        first[rows[:kept]] = True
    if bool(first.all()) or not bool(first.any()):  # only classes of one sample: split by row
        kept = min(max(round(fraction * n), 1), n - 1)
        first[shuffled] = torch.arange(n, device=codes.device) < kept
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
