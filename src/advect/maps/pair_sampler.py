"""Mini-batch pairs for flow matching under a cost with labels (paper, section 2.3; Tong et al. 2024).

    min_P Σ_ij P_ij ½ ( ‖x_i − x'_j‖² + label_weight · W₂²(α_y(i), α_y'(j)) )     over the plans of a batch

Label laws are those of the whole datasets. At label_weight = ∞ classes are never mixed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import NamedTuple

import torch
from torch import Tensor

from advect._util.checks import check_count, check_kind, check_non_negative
from advect.cost.ground import GroundCost, check_features
from advect.cost.labels import Bures, NoLabels, checked_distances
from advect.data.dataset import LabeledDataset, require_labels
from advect.data.labels import with_class_laws
from advect.data.sampling import by_turns
from advect.ot.exact import ExactOT

_TINY = torch.finfo(torch.float64).tiny
_ROUNDING = 1e-12


class Pairs(NamedTuple):
    """Pairs, row by row: x0[i] goes to x1[i], with labels y0[i] and y1[i]."""

    x0: Tensor
    x1: Tensor
    y0: Tensor
    y1: Tensor


@dataclass(frozen=True, eq=False)
class PairSampler:
    """Pairs of samples for flow matching, by optimal transport of mini-batches with labels.

    Use it for flow matching between two labeled datasets. Pairs by features alone mix classes; with
    label laws in the cost they do so less, and never at an infinite ``label_weight``. Names and
    numbers of classes may differ.

    Args:
        source, target: the whole datasets, for label laws.
        label_weight: weight of labels. 0 is plain mini-batch transport, 1 the ground cost of the paper.
            ``math.inf`` pairs samples of matched classes only: classes of the source keep their
            proportions, and samples without a partner are left out.
        generator: generator of all draws; torch's default by default.

    Example:
        >>> import torch, advect as ad
        >>> draw = torch.Generator().manual_seed(0)
        >>> source = ad.datasets.gaussians(300, generator=draw)
        >>> target = ad.datasets.gaussians(300, rotation=1.0, generator=draw)
        >>> pairs = ad.PairSampler(source, target, generator=draw)
        >>> x0, x1, y0, y1 = next(pairs.batches(64))
        >>> x0.shape, bool((y0 == y1).all())
        (torch.Size([64, 2]), True)
    """

    source: LabeledDataset
    target: LabeledDataset
    label_weight: float = math.inf
    generator: torch.Generator | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        weight = self.label_weight
        if weight != math.inf:
            check_non_negative("label_weight", weight)
        for data in (self.source, self.target):
            remedy = "Use ad.LabeledDataset(x, y)."
            check_kind("source and target must be LabeledDataset", data, LabeledDataset, remedy)
            if weight > 0:
                require_labels(data, "a pair sampler with a label weight")
        check_features(self.source, self.target)

    @cached_property
    def label_distances(self) -> Tensor:
        """W₂² between the classes of the datasets, (k, k'), in float64."""
        source, target = (with_class_laws(data) for data in (self.source, self.target))
        values = checked_distances(Bures()(source, target), source, target)
        return values.detach().double().cpu()

    @cached_property
    def partners(self) -> Tensor:
        """Matched classes, (k, k'): shares of the target's classes for each class of the source. A
        row of zeros is a class without a partner. Classes are matched by name if both datasets have
        the same names, otherwise by the cheapest coupling of class masses under W₂² of the laws.
        """
        source, target = self.source, self.target
        if set(source.classes) == set(target.classes):
            rows = [[float(a == b) for b in target.classes] for a in source.classes]
            return torch.tensor(rows, dtype=torch.float64) * (_masses(target) > 0)
        plan = ExactOT().solve(self.label_distances, _masses(source), _masses(target)).plan()
        plan = plan * (plan > _ROUNDING)
        return plan / plan.sum(dim=1, keepdim=True).clamp_min(_TINY)

    @property
    def drawn_classes(self) -> tuple[int, ...]:
        """Positions in ``source.classes`` of the classes in batches."""
        source = self.source
        present = source.y[source.labeled & (source.weights > 0)].unique().cpu()
        if math.isinf(self.label_weight):
            present = present[self.partners.sum(dim=1)[present] > 0]
        return tuple(present.tolist())

    def mixed(self, y0: Tensor, y1: Tensor) -> float:
        """The share of pairs, with labels as in ``batches``, whose classes are not ``partners``.

        Example:
            >>> import torch, advect as ad
            >>> data = ad.LabeledDataset([[0.0], [1.0]], ["a", "b"])
            >>> ad.PairSampler(data, data).mixed(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 1, 1]))
            0.25
        """
        return float((self.partners[y0.cpu(), y1.cpu()] == 0).double().mean())

    def batches(
        self, size: int = 128, n: int | None = None, generator: torch.Generator | None = None
    ) -> Iterator[Pairs]:
        """Batches of pairs of the two datasets.

        Samples are drawn by weight, stratified by class, each in one pair; at an infinite label weight
        those of the target are drawn for the classes of the source. Labels are positions in the
        classes of the datasets, −1 without a label.

        Args:
            size: number of pairs of a batch.
            n: number of batches; None for no end.
            generator: generator of the draws; that of the sampler by default.

        Example:
            >>> import advect as ad
            >>> data = ad.datasets.gaussians(60)
            >>> [batch.x0.shape[0] for batch in ad.PairSampler(data, data).batches(32, 3)]
            [32, 32, 32]
        """
        size, n = check_count("size", size), None if n is None else check_count("n", n, least=0)
        return self._batches(size, n, generator or self.generator)

    def _batches(self, size: int, n: int | None, draw: torch.Generator | None) -> Iterator[Pairs]:
        source, target = self.source, self.target
        for _ in count() if n is None else range(n):
            at, to, sizes = self._drawn_rows(size, draw)
            plan = self._plan(at, to, sizes)
            i = torch.randperm(size, generator=draw)
            j = torch.multinomial(plan[i], 1, generator=draw)[:, 0]
            at, to = at[i], to[j]
            first, last = source.samples.detach()[at], target.samples.detach()[to]
            yield Pairs(first, last, source.y[at], target.y[to])

    def _drawn_rows(
        self, size: int, draw: torch.Generator | None
    ) -> tuple[Tensor, Tensor, list[int]]:
        """Rows of both datasets for a batch, and the sizes of the blocks in which they are paired."""
        sides = (self.source, self.target)
        (a, y0), (b, y1) = ((data.weights.cpu(), data.y.cpu()) for data in sides)
        if math.isfinite(self.label_weight):
            phase = float(torch.rand((), generator=draw))
            at = by_turns(a, size, draw, groups=y0, phase=phase)
            return at, by_turns(b, size, draw, groups=y1, phase=phase), [size]
        at = by_turns(a * (self.partners.sum(dim=1) > 0)[y0], size, draw, groups=y0)
        at = at[y0[at].argsort(stable=True)]
        codes, counts = y0[at].unique_consecutive(return_counts=True)
        within = b / _masses(self.target)[y1].clamp_min(_TINY)
        drawn = [
            by_turns(within * self.partners[code][y1], number, draw, groups=y1)
            for code, number in zip(codes, counts.tolist(), strict=True)
        ]
        return at, torch.cat(drawn), counts.tolist()

    def _plan(self, at: Tensor, to: Tensor, sizes: list[int]) -> Tensor:
        """The plan of a batch: in each block the assignment of least cost."""
        from scipy.optimize import linear_sum_assignment

        a, b = LabeledDataset(self.source.x[at]), LabeledDataset(self.target.x[to])
        cost = GroundCost(label=NoLabels()).between(a, b).matrix(torch.float64).cpu()
        if 0 < self.label_weight < math.inf:
            y0, y1 = self.source.y.cpu()[at], self.target.y.cpu()[to]
            cost = cost + (self.label_weight / 2 * self.label_distances)[y0][:, y1]
        plan = torch.zeros_like(cost)
        for block in torch.arange(len(at)).split(sizes):
            rows, columns = linear_sum_assignment(cost[block][:, block].numpy())
            plan[block[rows], block[columns]] = 1 / len(at)
        return plan


def _masses(data: LabeledDataset) -> Tensor:
    """The mass of each class, whether or not samples lack labels."""
    weights, codes = data.weights.cpu()[data.labeled.cpu()], data.y[data.labeled].cpu()
    return weights.new_zeros(len(data.classes)).index_add_(0, codes, weights)
