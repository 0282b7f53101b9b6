"""What the labels of two datasets cost: distances between their laws, and the law of each sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from advect.ot.plan import Plan

Index = slice | Tensor
# laws of the target up to which a thin product with the table is cheaper than looking it up
FEW_LAWS = 64
_LIGHT = 1e-6  # share of a law's mass that is not felt
_ENTRIES = 4_000_000  # of a block that is looked up at a time


class LabelPart(Protocol):
    """What a matrix of costs asks of the part of labels."""

    @property
    def values(self) -> Tensor: ...

    @property
    def codes(self) -> tuple[Tensor, Tensor]: ...

    @property
    def thin(self) -> bool: ...

    @property
    def floor(self) -> float: ...

    def factors(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]: ...

    def add(
        self, out: Tensor, rows: Index = slice(None), columns: Tensor | None = None
    ) -> Tensor: ...

    def mean(self, a: Tensor, b: Tensor) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class LabelTable:
    """What labels cost: ``values[i, j]`` for laws i and j, and the law of each sample."""

    values: Tensor
    codes: tuple[Tensor, Tensor]

    @property
    def floor(self) -> float:
        """What no cost is below: sums of squares."""
        return 0.0

    @property
    def thin(self) -> bool:
        """Whether there are so few laws that the label part is a product of thin factors."""
        return self.values.shape[1] <= FEW_LAWS

    def factors(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """(n, k') and (m, k') whose product is the label part."""
        onto = one_hot(self.codes[1], self.values.shape[1])
        return self.values.to(dtype)[self.codes[0]], onto.to(dtype)

    def add(self, out: Tensor, rows: Index = slice(None), columns: Tensor | None = None) -> Tensor:
        """The label part of some rows and columns, looked up and added to ``out``."""
        laws, others = self.codes[0][rows], self.codes[1]
        others = others if columns is None else others[columns]
        step = max(1, _ENTRIES // max(1, len(others)))
        for part, chosen in zip(out.split(step), laws.split(step), strict=True):
            part.add_(self.values[chosen].index_select(1, others).to(out.dtype))
        return out

    def mean(self, a: Tensor, b: Tensor) -> Tensor:
        """Σ a_i b_j of the label part."""
        masses = [
            w.new_zeros(size).index_add_(0, c, w)
            for w, c, size in zip((a, b), self.codes, self.values.shape, strict=True)
        ]
        return masses[0] @ self.values.to(a.dtype) @ masses[1]


@dataclass(frozen=True, eq=False)
class LabelDistances:
    """Squared distances between laws, (k, k') with a graph to whatever the laws come from; the law
    of each sample; and the weight of labels against features.
    """

    distances: Tensor
    codes: tuple[Tensor, Tensor]
    weight: float

    @property
    def floor(self) -> float:
        """What no distance is below."""
        return 0.0

    def table(self, dtype: torch.dtype) -> LabelTable:
        """½ label_weight W₂², without a graph."""
        return LabelTable((self.weight / 2 * self.distances.detach()).to(dtype), self.codes)

    @property
    def onto(self) -> Tensor | None:
        """(m, k'), which law each sample of the target has; None for too many laws."""
        few = self.distances.shape[1]
        return one_hot(self.codes[1], few).to(self.distances.dtype) if few <= FEW_LAWS else None

    def gathered(self, by_law: Tensor) -> Tensor:
        """Rows (n, k') summed by the laws of the source."""
        return by_law.new_zeros(self.distances.shape).index_add_(0, self.codes[0], by_law)

    def class_plan(self, plan: Plan) -> Tensor:
        """The plan summed over pairs of laws, (k, k')."""
        if (onto := self.onto) is not None:
            return self.gathered(plan @ onto)
        (rows, columns), shape = self.codes, self.distances.shape
        result = self.distances.new_zeros(shape)
        for at, to, part in plan.pieces():
            part = part.to(result.dtype)
            by_law = part.new_zeros(len(part), shape[1]).index_add_(1, columns[to], part)
            result.index_add_(0, rows[at], by_law)
        return result

    def contract(self, plan: Plan, by_law: Tensor | None) -> tuple[Tensor, Tensor]:
        """What the plan pays for labels, differentiable in the laws, and the plan summed over pairs of
        laws; ``by_law`` is the plan times ``onto``, where that is known.
        """
        by_class = self.class_plan(plan) if by_law is None else self.gathered(by_law)
        return self.label_gradient(by_class), by_class

    @property
    def largest(self) -> Tensor:
        """The largest distance, or a bound of what labels cost, as a number on the device."""
        return self.distances.detach().abs().max()

    def label_gradient(self, class_plan: Tensor) -> Tensor:
        """½ label_weight Σ Π_ij D_ij, whose gradient is that of the plan's cost in the laws. In float32
        without pairs that have less than a millionth of the mass of either law.
        """
        if class_plan.dtype == torch.float32:
            class_plan = class_plan * significant_pairs(class_plan)
        return self.weight / 2 * (class_plan * self.distances).sum().double()


def significant_pairs(class_plan: Tensor) -> Tensor:
    """Which pairs of laws carry mass that a gradient feels, (k, k') bool: a millionth of either law's."""
    own = torch.minimum(class_plan.sum(dim=1, keepdim=True), class_plan.sum(dim=0, keepdim=True))
    return class_plan > _LIGHT * own
