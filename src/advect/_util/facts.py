"""What was found out about a tensor once, kept with it for as long as nobody writes to it.

A flow asks the same weights and labels the same questions at each step: is one negative, how many
samples has a class. Each answer makes the program wait for the device that the tensor is on. Here it
is asked once. And numbers that are needed together come in one transfer (``fetched``)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch
from torch import Tensor

Fact = TypeVar("Fact")

_KEPT = "_advect_facts"  # under which a tensor carries them


def remembered(tensor: Tensor, what: Hashable, find: Callable[[], Fact]) -> Fact:
    """``find()``, or what it has returned before for this tensor, as long as that is the same object
    and has not been written to. What is found must not refer to the tensor.

    On a processor looking is free, and memory may be shared with arrays that nobody watches: there
    it is found anew each time.

    Example:
        >>> import torch
        >>> from advect.testing import Waits
        >>> with Waits() as waits:
        ...     weights = waits.on_device(torch.tensor([1.0, 2.0]))
        ...     found = [remembered(weights, "largest", lambda: float(weights.max())) for _ in range(3)]
        >>> found, waits.count
        ([2.0, 2.0, 2.0], 1)
    """
    if waits_are_free(tensor.device) or tensor.is_inference():
        return find()
    kept: Any = getattr(tensor, _KEPT, None)
    if kept is None or kept[0] != tensor._version:
        kept = (tensor._version, {})
        setattr(tensor, _KEPT, kept)
    facts: dict[Hashable, Fact] = kept[1]
    if what not in facts:
        facts[what] = find()
    return facts[what]


def detached(tensor: Tensor) -> Tensor:
    """The same numbers without a graph; what is known of one is known of the other."""
    alone = tensor.detach()
    remembered(tensor, "known", lambda: True)
    if (kept := getattr(tensor, _KEPT, None)) is not None:
        setattr(alone, _KEPT, kept)
    return alone


def leaf_of(tensor: Tensor) -> Tensor:
    """The same numbers as a leaf of a new graph; what is known of one is known of the other."""
    return detached(tensor).requires_grad_()


def with_fact(tensor: Tensor, what: Hashable, fact: Any) -> Tensor:
    """The tensor, of which this is known: a copy of one that was looked at."""
    remembered(tensor, what, lambda: fact)
    return tensor


def fetched(*numbers: Tensor) -> list[float]:
    """Single numbers of one device, in one transfer, as Python has them.

    Example:
        >>> import torch
        >>> fetched(torch.tensor(1.5), torch.tensor(True), torch.tensor(3))
        [1.5, 1.0, 3.0]
    """
    return torch.stack([number.detach().to(torch.float64) for number in numbers]).tolist()


class Numbers:
    """Numbers of a device that are not needed yet: they come along with others that are, or when
    they are asked for.

    Example:
        >>> import torch
        >>> sizes = Numbers(lambda: (torch.tensor(2.0), torch.tensor(3.0)))
        >>> sizes.values                             # nobody has brought them along
        [2.0, 3.0]
    """

    def __init__(self, make: Callable[[], tuple[Tensor, ...]]) -> None:
        self._make: Callable[[], tuple[Tensor, ...]] | None = make
        self._values: list[float] = []

    @property
    def values(self) -> list[float]:
        self.along()
        return self._values

    def along(self, *others: Tensor) -> list[float]:
        """Other numbers, which are needed now, and with them these."""
        made = () if self._make is None else self._make()
        if not (made or others):
            return []
        found = fetched(*others, *made)
        if self._make is not None:
            self._values, self._make = found[len(others) :], None
        return found[: len(others)]

    def split(self, *groups: list[Tensor]) -> list[list[float]]:
        """``along`` for several lists of numbers."""
        found = iter(self.along(*(number for group in groups for number in group)))
        return [[next(found) for _ in group] for group in groups]


def waits_are_free(device: torch.device) -> bool:
    """Whether looking at a number costs nothing, since there is nobody to wait for.

    Example:
        >>> import torch
        >>> waits_are_free(torch.device("cpu")), waits_are_free(torch.device("cuda"))
        (True, False)
    """
    return device.type == "cpu"
