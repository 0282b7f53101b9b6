"""Some samples of a dataset: by position, by class, drawn, split; and classes of one mass."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from advect._util.checks import check_weights
from advect.data.coerce import balanced_weights
from advect.data.sampling import chosen_rows, draw_rows, rows_at, split_rows
from advect.errors import InputError


class Parts:
    """What ``LabeledDataset`` has for parts of it; it has the fields."""

    x: Tensor
    y: Tensor
    weights: Tensor
    classes: tuple[Hashable, ...]
    law_index: Tensor | None
    targets: Tensor | None
    if TYPE_CHECKING:
        counts: Any

        def __len__(self) -> int: ...
        def require_labels(self, who: str) -> None: ...
        def replace(self, **changes: Any) -> Any: ...

    def balanced(self) -> Self:
        """The same samples, reweighted so that every class that has samples has the same mass,
        uniform within.

        Example:
            >>> import advect as ad
            >>> ad.LabeledDataset([[0.0], [2.0], [7.0]], ["a", "a", "b"]).balanced().weights.tolist()
            [0.25, 0.25, 0.5]
        """
        self.require_labels("balancing of classes")
        return self.replace(weights=balanced_weights(self.y, len(self.classes)))

    def subset(self, index: Any) -> Self:
        """The samples at ``index`` (positions, slice or boolean mask), weights scaled to sum to one
        again.

        Example:
            >>> import advect as ad
            >>> ad.LabeledDataset([[0.0], [2.0], [7.0]], ["a", "a", "b"]).subset([0, 2]).labels
            ['a', 'b']
        """
        index = chosen_rows(index, len(self), self.x.device)
        weights = self.weights[index]
        return self.replace(
            x=self.x[index],
            y=self.y[index],
            weights=check_weights("the subset's weights", weights, len(weights)),
            law_index=None if self.law_index is None else self.law_index[index],
            targets=None if self.targets is None else self.targets[index],
        )

    def without(self, index: Any) -> Self:
        """The samples that are not at ``index`` (positions, slice or boolean mask; none is fine),
        weights scaled to sum to one again.

        For what an audit found: ``data.without(ad.audit(data).suspects)``.

        Raises:
            InputError: nothing would be left, or a position that is not there.

        Example:
            >>> import advect as ad
            >>> ad.LabeledDataset([[0.0], [2.0], [7.0]], ["a", "a", "b"]).without([1]).labels
            ['a', 'b']
        """
        keep = torch.ones(len(self), dtype=torch.bool, device=self.x.device)
        keep[rows_at(index, len(self), self.x.device)] = False
        return self.subset(keep)

    def sample(
        self, n: int, *, balanced: bool = False, generator: torch.Generator | None = None
    ) -> Self:
        """``n`` different samples drawn uniformly; they keep their relative weights.

        Args:
            n: how many.
            balanced: draw equally many of each class that has samples (one more of the first ones
                when n does not divide).
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
        """Two disjoint parts, the first with ``fraction`` of each class (at least one sample of
        each on both sides if it can).

        Example:
            >>> import torch, advect as ad
            >>> train, test = ad.datasets.load("digits").split(0.8, generator=torch.Generator().manual_seed(0))
            >>> len(train) + len(test)
            1797
        """
        first = split_rows(self.y, fraction, generator)
        return self.subset(first), self.subset(~first)

    def of_class(self, name: Hashable) -> Self:
        """The samples of one class; the set of classes stays.

        Example:
            >>> import advect as ad
            >>> ad.LabeledDataset([[0.0], [2.0], [7.0]], ["a", "a", "b"]).of_class("a").x.tolist()
            [[0.0], [2.0]]
        """
        if name not in self.classes:
            raise InputError(
                "no such class", repr(name), f"Classes: {', '.join(map(str, self.classes))}."
            )
        return self.subset(self.y == self.classes.index(name))

    def by_class(self) -> Iterator[tuple[Hashable, Self]]:
        """(name, samples) for each class that has samples."""
        for name, count in self.counts.items():
            if count:
                yield name, self.of_class(name)
