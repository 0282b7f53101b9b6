"""Mini-batch pairs for flow matching under a cost with labels (paper, section 2.3; Tong et al. 2024).

    min_P Σ_ij P_ij ½ ( ‖x_i − x'_j‖² + label_weight · W₂²(α_y(i), α_y'(j)) + v ‖t_i − t'_j‖² )   over the plans of a batch

Label laws, and the unit v of continuous targets t, are those of the whole datasets. At label_weight = ∞
classes are never mixed."""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from advect._util import check_count, check_known, check_non_negative, missing_labels, refuse_if
from advect.cost import GroundCost, NoLabels, TargetValues, check_features
from advect.cost.labels import Bures, checked_distances
from advect.data import LabeledDataset, require_labels, require_targets, with_class_laws
from advect.data.coerce import as_codes, as_features, as_targets
from advect.data.sampling import by_turns
from advect.ot import ExactOT, Solver, check_solver
from advect.transport.transport import check_dataset

_WHO = "a pair sampler"
_TINY = torch.finfo(torch.float64).tiny
_ROUNDING = 1e-12


class Pairs(namedtuple("_Pairs", ("x0", "x1", "y0", "y1"))):
    """Pairs, row by row: x0[i] goes to x1[i], with conditions y0[i] and y1[i].

    Attributes:
        plan: the plan that the pairs were drawn from.
        rows, columns: positions of both ends in the arrays that were passed, or in the datasets.
    """

    plan: Tensor
    rows: Tensor
    columns: Tensor


class _Group(NamedTuple):
    """Rows and columns of a batch that are paired among themselves, and the masses of the columns."""

    rows: Tensor
    columns: Tensor
    mass: Tensor | None = None


@dataclass(frozen=True, eq=False)
class PairSampler:
    """Pairs of samples for flow matching, by optimal transport of mini-batches with labels.

    Use it for flow matching between two labeled datasets. Pairs by features alone mix classes; with
    label laws in the cost they do so less, and never at an infinite ``label_weight``. It has the
    methods of torchcfm's ``OTPlanSampler``: ``matcher.ot_sampler = ad.PairSampler(source, target)``.
    Names and numbers of classes may differ.

    Conditions are what the datasets have: labels, continuous targets, or both, as a tuple
    ``(labels, targets)``. Several targets are columns or further entries of the tuple. For several
    discrete conditions use tuples as labels, such as ``("female", "batch 2")``.

    Args:
        source, target: the whole datasets, for label laws.
        label_weight: weight of labels. 0 is plain mini-batch transport, 1 the ground cost of the paper.
            ``math.inf`` pairs samples of matched classes only: classes of the source keep their
            proportions, and samples without a partner are left out.
        match: classes that belong together at infinity. "names": same name. "laws": the cheapest
            coupling of class masses under W₂² of the laws. "auto": names if both datasets have the
            same ones, else laws.
        solver: solver of the batches: ``ExactOT()``, or ``Sinkhorn(epsilon)`` for blurred plans.
        generator: generator of all draws; torch's default by default.
        target_weight: weight of continuous targets, if both datasets have them. At 1, all of them together
            count as much as all features together. 0 ignores them.

    Example:
        >>> import torch, advect as ad
        >>> draw = torch.Generator().manual_seed(0)
        >>> source = ad.datasets.gaussians(300, generator=draw)
        >>> target = ad.datasets.gaussians(300, rotation=1.0, generator=draw)
        >>> pairs = ad.PairSampler(source, target, generator=draw)
        >>> x0, x1, y0, y1 = pairs.sample_plan_with_labels(source.x[:64], target.x[:64], source.y[:64], target.y[:64])
        >>> x0.shape, bool((y0 == y1).all())
        (torch.Size([64, 2]), True)
    """

    source: LabeledDataset
    target: LabeledDataset
    label_weight: float = math.inf
    match: str = "auto"
    solver: Solver = ExactOT()
    generator: torch.Generator | None = field(default=None, repr=False)
    target_weight: float = 1.0

    def __post_init__(self) -> None:
        check_non_negative("target_weight", self.target_weight)
        weight = self.label_weight
        if weight != math.inf:
            check_non_negative("label_weight", weight)
        check_known("match", self.match, ("auto", "names", "laws"))
        check_solver(self.solver)
        for name in ("source", "target"):
            data = check_dataset(name, getattr(self, name))
            if weight > 0:
                require_labels(data, "a pair sampler with a label weight")
        check_features(self.source, self.target)
        _ = self._value_cost  # both must have the same targets

    @cached_property
    def _value_cost(self) -> GroundCost | None:
        """Features and targets, in the units of the whole datasets; None if targets do not count."""
        ends = self.source, self.target
        if not self.target_weight or any(data.targets is None for data in ends):
            return None
        cost = GroundCost(label=TargetValues(), label_weight=self.target_weight)
        return cost.fitted(*(data._replace(x=data.x.detach()) for data in ends))

    @cached_property
    def label_distances(self) -> Tensor:
        """W₂² between the classes of the datasets, (k, k'), in float64."""
        source, target = (with_class_laws(data) for data in (self.source, self.target))
        return checked_distances(Bures()(source, target), source, target).detach().double().cpu()

    @cached_property
    def partners(self) -> Tensor:
        """Matched classes, (k, k'): shares of the target's classes for each class of the source. A
        row of zeros is a class without a partner.
        """
        source, target = self.source, self.target
        same = set(source.classes) == set(target.classes)
        if self.match == "names" or (self.match == "auto" and same):
            names = [[float(a == b) for b in target.classes] for a in source.classes]
            shares = torch.tensor(names, dtype=torch.float64) * (_masses(target) > 0)
        else:
            plan = ExactOT().solve(self.label_distances, _masses(source), _masses(target)).plan()
            plan = plan * (plan > _ROUNDING)
            shares = plan / plan.sum(dim=1, keepdim=True).clamp_min(_TINY)
        refuse_if(
            not bool((shares > 0).any()),
            "no class of the source has a partner",
            (source.classes, target.classes),
            'Pass match="laws".',
        )
        return shares

    @property
    def drawn_classes(self) -> tuple[int, ...]:
        """Positions in ``source.classes`` of the classes in batches."""
        source = self.source
        present = source.y[source.labeled & (source.weights > 0)].unique().cpu()
        if math.isinf(self.label_weight):
            present = present[self.partners.sum(dim=1)[present] > 0]
        return tuple(present.tolist())

    def sample_plan(self, x0: Any, x1: Any, replace: bool = True) -> tuple[Any, Any]:
        """Pairs of a batch by features alone: x0[i], x1[j]."""
        i, j = _draw(self.plan(x0, x1), replace, self.generator)
        return _take(x0, i), _take(x1, j)

    def sample_plan_with_labels(
        self, x0: Any, x1: Any, y0: Any = None, y1: Any = None, replace: bool = True
    ) -> Pairs:
        """Pairs of a batch under the cost with labels: x0[i], x1[j], y0[i], y1[j].

        The four parts also have the ``plan`` of the batch, and i and j as ``rows`` and ``columns``.

        Args:
            x0, x1: samples (n, …) and (m, …), arrays or tensors.
            y0, y1: class names, or positions in the classes of the datasets; continuous targets;
                or a tuple of both, as the datasets have them.
            replace: draw n pairs from the plan, as torchcfm does; False takes each row of ``x0``
                with a partner once, in random order.
        """
        refuse_if(
            self.label_weight and (y0 is None or y1 is None),
            "a label weight needs labels or targets of both sides",
            "None",
            "Pass y0 and y1, or label_weight=0.",
        )
        plan = self.plan(x0, x1, y0, y1)
        i, j = _draw(plan, replace, self.generator)
        y0, y1 = (
            tuple(_take(part, rows) for part in y)
            if self._value_cost is not None and type(y) is tuple
            else _take(y, rows)
            for y, rows in ((y0, i), (y1, j))
        )
        return _pairs(plan, i, j, _take(x0, i), _take(x1, j), y0, y1)

    def plan(self, x0: Any, x1: Any, y0: Any = None, y1: Any = None) -> Tensor:
        """The plan of a batch, (n, m) in float64; by features alone without labels.

        Example:
            >>> import torch, advect as ad
            >>> data = ad.LabeledDataset([[0.0], [1.0]], ["a", "b"])
            >>> ad.PairSampler(data, data).plan(torch.zeros(2, 1), torch.ones(1, 1)).tolist()
            [[0.5], [0.5]]
        """
        a, b = (LabeledDataset(as_features(x).detach()) for x in (x0, x1))
        check_features(a, b)
        everything = _Group(torch.arange(len(a)), torch.arange(len(b)))
        if y0 is None and y1 is None:
            return self._solve(a, b, [everything], None)
        if self._value_cost is not None:
            y0, a = _conditions(y0, self.source, a)
            y1, b = _conditions(y1, self.target, b)
        if not self.label_weight:
            return self._solve(a, b, [everything], None)
        first, last, shares = self._codes(y0, y1, len(a), len(b))
        if math.isfinite(self.label_weight):
            return self._solve(a, b, [everything], self._label_cost(first, last))
        groups = []
        for code in first.unique().tolist():
            columns = (shares[code][last] > 0).nonzero()[:, 0]
            classes = last[columns]
            # partners have their shares, and their samples equal masses
            mass = shares[code][classes] / classes.bincount(minlength=shares.shape[1])[classes]
            if len(columns):
                groups.append(_Group((first == code).nonzero()[:, 0], columns, mass))
        refuse_if(
            not groups,
            "no sample of the batch has a partner of a matching class",
            f"{len(a)} and {len(b)} samples",
            "Use larger batches, or a finite label_weight.",
        )
        return self._solve(a, b, groups, None)

    def batches(
        self, size: int = 128, n: int | None = None, generator: torch.Generator | None = None
    ) -> Iterator[Pairs]:
        """Batches of pairs of the two datasets.

        Samples are drawn by weight, stratified by class, each in one pair; at an infinite label weight
        those of the target are drawn for the classes of the source. Labels are positions in the
        classes of the datasets, −1 without a label. ``rows`` and ``columns`` of a batch are positions in the
        datasets, so ``pairs.source.subset(batch.rows)`` has everything else that is known of them.

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
        n = None if n is None else check_count("n", n, least=0)
        return islice(self._batches(check_count("size", size), generator or self.generator), n)

    def _batches(self, size: int, draw: torch.Generator | None) -> Iterator[Pairs]:
        source, target = self.source, self.target
        first, last = source.samples.detach(), target.samples.detach()
        y0, y1 = source.y.cpu(), target.y.cpu()
        while True:
            if math.isfinite(self.label_weight):
                phase = float(torch.rand((), generator=draw))
                start = by_turns(source.weights.cpu(), size, draw, groups=y0, phase=phase)
                end = by_turns(target.weights.cpu(), size, draw, groups=y1, phase=phase)
                groups = [_Group(torch.arange(size), torch.arange(size))]
            else:
                wanted = source.weights.cpu() * (self.partners.sum(dim=1) > 0)[y0]
                start = by_turns(wanted, size, draw, groups=y0)
                start = start[y0[start].argsort(stable=True)]
                codes, counts = y0[start].unique_consecutive(return_counts=True)
                within = target.weights.cpu() / _masses(target)[y1].clamp_min(_TINY)
                end = torch.cat(
                    [
                        by_turns(within * self.partners[code][y1], count, draw, groups=y1)
                        for code, count in zip(codes, counts.tolist(), strict=True)
                    ]
                )
                groups = [_Group(rows, rows) for rows in torch.arange(size).split(counts.tolist())]
            labels = self._label_cost(y0[start], y1[end])
            plan = self._solve(source.subset(start), target.subset(end), groups, labels)
            i, j = _draw(plan, False, draw)
            start, end = start[i], end[j]
            y = self._known(source, start), self._known(target, end)
            yield _pairs(plan[i][:, j], start, end, first[start], last[end], *y)

    def _known(self, data: LabeledDataset, rows: Tensor) -> Any:
        """The conditions of samples, as ``plan`` takes them."""
        if self._value_cost is None:
            return data.y[rows]
        targets = require_targets(data, _WHO)[rows]
        return (data.y[rows], targets) if data.has_classes else targets

    def _solve(
        self, a: LabeledDataset, b: LabeledDataset, groups: list[_Group], labels: Tensor | None
    ) -> Tensor:
        """The plans of the groups as one plan of the batch."""
        cost = None if a.targets is None else self._value_cost
        cost = cost or GroundCost(label=NoLabels())
        matrix = cost.between(a, b).matrix(torch.float64).cpu()
        if labels is not None:
            matrix = matrix + labels
        plan = matrix.new_zeros(matrix.shape)
        for rows, columns, mass in groups:
            at = rows[:, None], columns
            if mass is None and len(rows) == len(columns) and self.solver == ExactOT():
                part = _assignment(matrix[at])  # the same plan, faster
            else:
                part = self.solver.solve(matrix[at], None, mass).plan().to(plan)
            plan[at] = part * (len(rows) / len(a))
        return plan / plan.sum()

    def _label_cost(self, y0: Tensor, y1: Tensor) -> Tensor | None:
        """(n, m); None if the label weight is 0 or infinite."""
        if not 0 < self.label_weight < math.inf:
            return None
        return (self.label_weight / 2 * self.label_distances)[y0][:, y1]

    def _codes(self, y0: Any, y1: Any, n: int, m: int) -> tuple[Tensor, Tensor, Tensor]:
        """Class positions of both sides, and the partners of these classes."""
        first, last = (
            as_codes(y0, self.source.classes, n)[0],
            as_codes(y1, self.target.classes, m)[0],
        )
        missing = int((first < 0).sum() + (last < 0).sum())
        if missing:
            raise missing_labels("a pair sampler with a label weight", missing, n + m)
        return first, last, self.partners


def _conditions(y: Any, data: LabeledDataset, batch: LabeledDataset) -> tuple[Any, LabeledDataset]:
    """Labels of a batch, and the batch with its targets, from the conditions that ``data`` has."""
    parts = [*y] if type(y) is tuple else [y]
    labels = parts.pop(0) if data.has_classes else [0] * len(batch)  # positions in the one class
    columns = [as_targets(part, len(batch), batch.x.device) for part in parts]
    targets = torch.cat([batch.x[:, :0].double(), *(c for c in columns if c is not None)], dim=1)
    q = require_targets(data, _WHO).shape[1]
    refuse_if(
        targets.shape[1] != q,
        f"conditions must be {'labels and ' * data.has_classes}{q} continuous targets",
        f"{targets.shape[1]} targets",
        f"Pass {'a tuple (labels, targets)' if data.has_classes else 'them'}, or target_weight=0.",
    )
    return labels, batch._replace(targets=targets)


def _draw(plan: Tensor, replace: bool, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """Rows and columns of pairs in proportion to the plan; without replacement each row once."""
    mass = plan.sum(dim=1)
    if replace:
        rows = torch.multinomial(mass, len(mass), replacement=True, generator=generator)
    else:
        rows = torch.randperm(len(mass), generator=generator)
        rows = rows[mass[rows] > 0]
    # a column for each row: multinomial allows no more than 2²⁴ outcomes
    return rows, torch.multinomial(plan[rows], 1, generator=generator)[:, 0]


def _pairs(plan: Tensor, rows: Tensor, columns: Tensor, *ends: Any) -> Pairs:
    pairs = Pairs(*ends)
    pairs.plan, pairs.rows, pairs.columns = plan, rows, columns
    return pairs


def _take(values: Any, rows: Tensor) -> Any:
    if values is None:
        return None
    return values[rows.to(values.device)] if torch.is_tensor(values) else np.asarray(values)[rows]


def _assignment(cost: Tensor) -> Tensor:
    """The exact plan of a square cost between uniform measures."""
    from scipy.optimize import linear_sum_assignment

    plan = torch.zeros_like(cost)
    plan[linear_sum_assignment(cost.numpy())] = 1 / len(cost)
    return plan


def _masses(data: LabeledDataset) -> Tensor:
    """The mass of each class, whether or not samples lack labels."""
    weights, codes = data.weights.cpu()[data.labeled.cpu()], data.y[data.labeled].cpu()
    return weights.new_zeros(len(data.classes)).index_add_(0, codes, weights)
