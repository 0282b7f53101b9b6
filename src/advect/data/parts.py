"""Some samples of a dataset: by position, by class, drawn, split; and classes of one mass."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from advect._util.checks import check_weights
from advect.data.coerce import as_shares, balanced_weights
from advect.data.doubt import balanced_doubt
from advect.data.sampling import chosen_rows, draw_rows, rows_at, split_rows
from advect.errors import InputError


class Parts:
    """What ``LabeledDataset`` has for parts of it; it has the fields."""

    x: Tensor
    y: Tensor
    weights: Tensor
    classes: tuple[Hashable, ...]
    law_index: Tensor | None
    probabilities: Tensor | None
    targets: Tensor | None
    if TYPE_CHECKING:
        counts: Any

        def __len__(self) -> int: ...
        def require_labels(self, who: str) -> None: ...
        def replace(self, **changes: Any) -> Any: ...

    def balanced(self) -> Self:
        """The same samples, reweighted so that every class that has samples has the same mass,
        uniform within; as near to it as labels with doubt let them.

        Example:
            >>> import advect as ad
            >>> ad.LabeledDataset([[0.0], [2.0], [7.0]], ["a", "a", "b"]).balanced().weights.tolist()
            [0.25, 0.25, 0.5]
        """
        if self.probabilities is not None:
            return self.replace(weights=balanced_doubt(self.probabilities))
        self.require_labels("balancing of classes")
        return self.replace(weights=balanced_weights(self.y, len(self.classes)))

    def reweighted(self, shares: Any) -> Self:
        """The same samples with other shares of classes; within a class they keep their relative
        weights.

        Args:
            shares: a number for each class, by name or in the order of ``classes``; scaled to sum
                to one. Classes that are not named get none.

        Raises:
            InputError: names or numbers that do not fit, or a share for a class without mass.

        Example:
            >>> import advect as ad
            >>> data = ad.LabeledDataset([[0.0], [2.0], [7.0]], ["a", "a", "b"])
            >>> data.reweighted({"a": 0.2, "b": 0.8}).weights.tolist()
            [0.1, 0.1, 0.8]
            >>> data.reweighted([1, 1]).class_mass.tolist()
            [0.5, 0.5]
        """
        self.require_labels("other shares of classes")
        wanted = as_shares(shares, self.classes, self.weights)
        mass = self.weights.new_zeros(len(self.classes)).index_add_(0, self.y, self.weights)
        empty = [self.classes[k] for k in ((wanted > 0) & (mass <= 0)).nonzero()[:, 0].tolist()]
        if empty:
            raise InputError(
                "a class without mass can have no share",
                ", ".join(map(str, empty[:5])),
                "Leave it at 0, or add samples.",
            )
        factor = torch.where(mass > 0, wanted / mass.clamp_min(1e-300), 0.0)
        weights = self.weights * factor[self.y]
        return self.replace(weights=check_weights("the weights", weights, len(weights)))

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
            probabilities=None if self.probabilities is None else self.probabilities[index],
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
