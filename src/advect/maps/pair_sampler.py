"""Mini-batch pairs for flow matching that look at labels (the ground cost of the paper, section 2.3,
in the place of ‖x − x'‖² in mini-batch optimal transport, Tong et al. 2024).

    min_P Σ_ij P_ij ½ ( ‖x_i − x'_j‖² + label_weight · W₂²(α_y(i), α_y'(j)) )     over the plans of a batch

Label laws are those of the whole datasets, taken once: a batch of a few samples of each class has no
covariances worth the name. At label_weight = ∞ the label part comes first and classes are never
mixed. What is learned from the pairs is left to others."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from advect._util.checks import (
    check_count,
    check_kind,
    check_known,
    check_non_negative,
    missing_labels,
)
from advect.cost.features import FeatureCost, SquaredEuclidean, as_feature_cost
from advect.cost.ground import GroundCost, check_features
from advect.cost.labels import Bures, LabelCost, NoLabels, as_label_cost, checked_distances
from advect.data.coerce import as_codes, as_features
from advect.data.dataset import LabeledDataset
from advect.data.sampling import by_turns
from advect.errors import InputError
from advect.maps.batches import Group, assigned, drawn_from, taken
from advect.ot.exact import ExactOT
from advect.ot.solver import Solver, check_solver

_MATCHES = ("auto", "names", "laws")
_TINY = torch.finfo(torch.float64).tiny
_ROUNDING = 1e-12


class Pairs(NamedTuple):
    """Pairs, row by row: x0[i] goes to x1[i], whose labels are y0[i] and y1[i]."""

    x0: Any
    x1: Any
    y0: Any
    y1: Any


class Both(NamedTuple):
    """The datasets that pairs are drawn from."""

    source: LabeledDataset
    target: LabeledDataset


@dataclass(frozen=True, eq=False)
class PairSampler:
    """Pairs of samples for flow matching, by optimal transport of mini-batches under a cost that
    counts labels.

    Use it where flow matching carries one labeled dataset to another. Pairs by features alone mix
    classes; with label laws in the cost they do so less the greater ``label_weight`` is, and never
    at infinity. It has the methods of torchcfm's ``OTPlanSampler``, so that it can take its place:
    ``matcher.ot_sampler = ad.PairSampler(source, target)``.

    Label sets may differ in names and number: classes are compared by their laws.

    Args:
        source, target: the whole datasets, from which label laws are taken. Without them labels
            count by name alone, at a label weight of 0 or infinity.
        label_weight: what a change of label costs against one of features. 0 is plain mini-batch
            transport, 1 the ground cost of the paper. ``math.inf`` pairs samples of matched classes
            only: classes of the source keep their shares, those of the target give way, and a
            sample is left out of a batch that has no partner for it.
        label: distances between classes, as in ``GroundCost``.
        match: which classes belong together at infinity. "names": those of the same name. "laws":
            by the cheapest coupling of the classes' masses under ``label``, so that a class may go
            to several. "auto": by names where both datasets have the same ones, else by laws.
        solver: of the batches: ``ExactOT()``, or ``Sinkhorn(epsilon)`` for plans that are blurred.
        feature: the cost of features, as in ``GroundCost``.
        generator: of all draws; torch's own by default.

    Raises:
        InputError: one dataset without the other; other dimensions; samples without labels where
            labels count; no laws for a finite label weight.

    Example:
        >>> import torch, advect as ad
        >>> draw = torch.Generator().manual_seed(0)
        >>> source = ad.datasets.gaussians(300, generator=draw)
        >>> target = ad.datasets.gaussians(300, rotation=1.0, generator=draw)
        >>> pairs = ad.PairSampler(source, target, generator=draw)
        >>> x0, x1, y0, y1 = pairs.sample_plan_with_labels(source.x[:64], target.x[:64], source.y[:64], target.y[:64])
        >>> x0.shape, bool((y0 == y1).all())
        (torch.Size([64, 2]), True)
        >>> blind = ad.PairSampler(source, target, label_weight=0.0, generator=draw)
        >>> batch = next(blind.batches(64))                    # or straight from the datasets
        >>> pairs.mixed(batch.y0, batch.y1) > 0.1
        True
    """

    source: LabeledDataset | None = None
    target: LabeledDataset | None = None
    label_weight: float = math.inf
    label: LabelCost | Callable[[LabeledDataset, LabeledDataset], Tensor] = Bures()
    match: str = "auto"
    solver: Solver = ExactOT()
    feature: FeatureCost | Callable[[Tensor, Tensor], Tensor] = SquaredEuclidean()
    generator: torch.Generator | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        weight = self.label_weight
        if weight != math.inf:
            check_non_negative("label_weight", weight)
        check_known("way to match classes", self.match, _MATCHES)
        check_solver(self.solver)
        _ = as_label_cost(self.label), as_feature_cost(self.feature)
        if self.generator is not None:
            remedy = "Pass torch.Generator().manual_seed(0), or None."
            check_kind(
                "generator must be a torch.Generator", self.generator, torch.Generator, remedy
            )
        if (self.source is None) != (self.target is None):
            raise InputError(
                "pairs need both datasets or none", "one", "Pass PairSampler(source, target)."
            )
        if self.source is None or self.target is None:
            if 0 < weight < math.inf or (weight > 0 and self.match == "laws"):
                raise InputError(
                    "label laws come from whole datasets",
                    f"label_weight={weight} without datasets",
                    "Pass PairSampler(source, target), or label_weight=0 or math.inf.",
                )
            return
        for data in (self.source, self.target):
            remedy = "Wrap arrays: ad.LabeledDataset(x, y)."
            check_kind("source and target must be labeled datasets", data, LabeledDataset, remedy)
            if weight > 0:
                data.require_labels("a pair sampler with a label weight")
        check_features(self.source, self.target)

    # what is known of the classes

    @cached_property
    def label_distances(self) -> Tensor:
        """W₂² between the classes of the whole datasets, (k, k'), in float64."""
        source, target = (data.with_class_laws() for data in self.whole)
        made = as_label_cost(self.label)(source, target)
        return checked_distances(made, source, target).detach().double().cpu()

    @cached_property
    def partners(self) -> Tensor:
        """Which classes belong together, (k, k'): a row for each class of the source, its shares of
        the target's classes. A row of zeros is a class without a partner.
        """
        source, target = self.whole
        alike = set(source.classes) == set(target.classes)
        if self.match == "names" or (self.match == "auto" and alike):
            found = _same_names(source.classes, target.classes) * (_masses(target) > 0)
        else:
            plan = ExactOT().solve(self.label_distances, _masses(source), _masses(target)).plan()
            plan = plan * (plan > _ROUNDING)  # of masses that add up to one
            found = plan / plan.sum(dim=1, keepdim=True).clamp_min(_TINY)
        if not bool((found.sum(dim=1) > 0).any()):
            raise InputError(
                "no class of the source has a partner of its name",
                f"{', '.join(map(str, source.classes))} and {', '.join(map(str, target.classes))}",
                'Match classes by their laws, match="laws".',
            )
        return found

    def mixed(self, y0: Any, y1: Any) -> float:
        """The share of pairs whose classes do not belong together, as ``partners`` says.

        Args:
            y0, y1: labels of pairs, row by row.

        Example:
            >>> import advect as ad
            >>> data = ad.LabeledDataset([[0.0], [1.0]], ["a", "b"])
            >>> ad.PairSampler(data, data).mixed(["a", "a", "b", "b"], ["a", "b", "b", "b"])
            0.25
        """
        codes, shares = self._codes(y0, y1)
        return float((shares[codes] == 0).double().mean())

    # batches that a user has

    def sample_plan(self, x0: Any, x1: Any, replace: bool = True) -> tuple[Any, Any]:
        """Pairs of a batch by features alone: no labels are given.

        Args:
            x0, x1: samples (n, …) and (m, …).
            replace: draw n pairs from the plan; False takes each row of ``x0`` once.

        Returns:
            x0[i], x1[j] of the pairs.

        Example:
            >>> import torch, advect as ad
            >>> x0, x1 = ad.PairSampler(label_weight=0).sample_plan(torch.tensor([[0.0], [9.0]]), torch.tensor([[8.0], [1.0]]))
            >>> bool(((x0 - x1).abs() == 1).all())
            True
        """
        i, j = drawn_from(self.plan(x0, x1), replace, self.generator)
        return taken(x0, i), taken(x1, j)

    def sample_plan_with_labels(
        self, x0: Any, x1: Any, y0: Any = None, y1: Any = None, replace: bool = True
    ) -> Pairs:
        """Pairs of a batch under the cost with labels.

        Args:
            x0, x1: samples (n, …) and (m, …), arrays or tensors.
            y0, y1: their labels: names of classes, or positions in ``source.classes`` and
                ``target.classes`` where these are no names. At a label weight of 0 anything that
                has a row for each sample, or None.
            replace: draw n pairs from the plan, as torchcfm does; False takes each row of ``x0``
                that has a partner once, in random order.

        Returns:
            x0[i], x1[j], y0[i], y1[j] of the pairs, each as it came.

        Raises:
            InputError: labels that are missing or unknown while they count.

        Example:
            >>> import advect as ad
            >>> pairs = ad.PairSampler()        # by names, without laws
            >>> pairs.sample_plan_with_labels([[0.0]], [[0.0], [5.0]], ["cat"], ["dog", "cat"]).x1
            array([[5.]])
        """
        if self.label_weight and (y0 is None or y1 is None):
            raise InputError(
                "a label weight needs labels of both sides",
                "None",
                "Pass y0 and y1, or label_weight=0 to pair by features alone.",
            )
        i, j = drawn_from(self.plan(x0, x1, y0, y1), replace, self.generator)
        return Pairs(taken(x0, i), taken(x1, j), taken(y0, i), taken(y1, j))

    def plan(self, x0: Any, x1: Any, y0: Any = None, y1: Any = None) -> Tensor:
        """The plan that pairs are drawn from, (n, m) in float64; without labels by features alone.

        Example:
            >>> import torch, advect as ad
            >>> ad.PairSampler(label_weight=0).plan(torch.zeros(2, 1), torch.ones(1, 1)).tolist()
            [[0.5], [0.5]]
        """
        a, b = (LabeledDataset(as_features(x).detach()) for x in (x0, x1))
        check_features(a, b)
        n, m = len(a), len(b)
        whole = Group(torch.arange(n), torch.arange(m))
        if not self.label_weight or (y0 is None and y1 is None):
            return self._solved(a, b, [whole], None)
        (codes, others), shares = self._codes(y0, y1, (n, m))
        if math.isfinite(self.label_weight):
            return self._solved(a, b, [whole], self._label_part(codes, others))
        groups = [
            Group.of_class(code, codes, others, shares[code]) for code in codes.unique().tolist()
        ]
        found = [group for group in groups if len(group.columns)]
        if not found:
            raise InputError(
                "no sample of the batch has a partner of a matching class",
                f"{n} and {m} samples",
                "Take larger batches, or a finite label_weight.",
            )
        return self._solved(a, b, found, None)

    # batches from the datasets

    def batches(
        self, size: int = 128, n: int | None = None, generator: torch.Generator | None = None
    ) -> Iterator[Pairs]:
        """Batches of pairs of the two datasets, without end or ``n`` of them.

        Samples are drawn by weight, so that each batch has the class shares of its dataset to one
        sample, and each drawn sample is in one pair; at an infinite label weight the target's are
        drawn for the classes of the source's.

        Args:
            size: pairs of a batch.
            n: how many batches; None for no end.
            generator: of these draws; the sampler's own by default.

        Returns:
            An iterator of ``Pairs``: samples (size, …) in their shape, labels as positions in
            ``source.classes`` and ``target.classes``, −1 where there is none.

        Example:
            >>> import advect as ad
            >>> data = ad.datasets.gaussians(60)
            >>> [batch.x0.shape[0] for batch in ad.PairSampler(data, data).batches(32, 3)]
            [32, 32, 32]
        """
        size, n = check_count("size", size), None if n is None else check_count("n", n, least=0)
        return self._batches(self.whole, size, n, generator or self.generator)

    @property
    def drawn_classes(self) -> tuple[int, ...]:
        """Positions in ``source.classes`` of those that batches have."""
        source = self.whole.source
        present = source.y[source.labeled & (source.weights > 0)].unique().cpu()
        if math.isinf(self.label_weight):
            present = present[self.partners.sum(dim=1)[present] > 0]
        return tuple(present.tolist())

    def _batches(
        self, both: Both, size: int, n: int | None, draw: torch.Generator | None
    ) -> Iterator[Pairs]:
        (source, target), done = both, 0
        first, last = source.samples.detach(), target.samples.detach()
        while n is None or done < n:
            at, to = self._rows(both, size, draw)
            yield Pairs(first[at], last[to], source.y[at], target.y[to])
            done += 1

    def _rows(self, both: Both, size: int, draw: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Rows of one batch of pairs, in random order."""
        source, target = both
        y0, y1 = source.y.cpu(), target.y.cpu()
        if math.isfinite(self.label_weight):
            phase = float(torch.rand((), generator=draw))
            own, others = (
                by_turns(data.weights.cpu(), size, draw, groups=codes, phase=phase)
                for data, codes in ((source, y0), (target, y1))
            )
            groups = [Group(torch.arange(size), torch.arange(size))]
        else:
            wanted = source.weights.cpu() * (self.partners.sum(dim=1) > 0)[y0]
            own = by_turns(wanted, size, draw, groups=y0)
            own = own[y0[own].argsort(stable=True)]
            codes, counts = y0[own].unique_consecutive(return_counts=True)
            share = target.weights.cpu() / _masses(target)[y1].clamp_min(_TINY)
            shares = [share * self.partners[code][y1] for code in codes]
            drawn = zip(shares, counts.tolist(), strict=True)
            others = torch.cat([by_turns(each, n, draw, groups=y1) for each, n in drawn])
            places = torch.arange(size).split(counts.tolist())
            groups = [Group(place, place) for place in places]
        a, b = LabeledDataset(source.x[own]), LabeledDataset(target.x[others])
        plan = self._solved(a, b, groups, self._label_part(y0[own], y1[others]))
        i, j = drawn_from(plan, False, draw)
        return own[i], others[j]

    # how

    def _solved(
        self, a: LabeledDataset, b: LabeledDataset, groups: list[Group], labels: Tensor | None
    ) -> Tensor:
        """The plans of groups of rows and columns, as one of the whole batch."""
        cost = GroundCost(feature=self.feature, label=NoLabels()).between(a, b)
        matrix = cost.matrix(torch.float64).cpu()
        if labels is not None:
            matrix = matrix + labels
        plan, solver = matrix.new_zeros(matrix.shape), check_solver(self.solver)
        for rows, columns, mass in groups:
            at = rows[:, None], columns
            part = matrix[at]
            if mass is None and len(rows) == len(columns) and solver == ExactOT():
                found = assigned(part)  # the same plan, for less
            else:
                found = solver.solve(part, None, mass).plan().to(plan)
            plan[at] = found * (len(rows) / len(a))
        return plan / plan.sum()

    def _label_part(self, y0: Tensor, y1: Tensor) -> Tensor | None:
        """What labels cost, a row for each of ``y0``; None where that is nothing, or ∞ elsewhere."""
        if not 0 < self.label_weight < math.inf:
            return None
        return (self.label_weight / 2 * self.label_distances)[y0][:, y1]

    @property
    def whole(self) -> Both:
        """The two datasets."""
        if self.source is None or self.target is None:
            raise InputError(
                "this needs the two datasets",
                "a sampler without",
                "Pass PairSampler(source, target).",
            )
        return Both(self.source, self.target)

    def _codes(
        self, y0: Any, y1: Any, sizes: tuple[int, int] | None = None
    ) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """Class positions of both sides, and ``partners`` of these classes."""
        n, m = sizes or (len(y0), len(y1))
        if self.source is None or self.target is None:
            (first, own), (last, others) = as_codes(y0, None, n), as_codes(y1, None, m)
            shares = _same_names(own, others)
        else:
            first, _ = as_codes(y0, self.source.classes, n)
            last, _ = as_codes(y1, self.target.classes, m)
            shares = self.partners
        missing = int((first < 0).sum() + (last < 0).sum())
        if missing:
            raise missing_labels("a pair sampler with a label weight", missing, n + m)
        return (first, last), shares


def _same_names(names: Sequence[Hashable], others: Sequence[Hashable]) -> Tensor:
    """(k, k'), one where names are the same."""
    return torch.tensor([[float(a == b) for b in others] for a in names], dtype=torch.float64)


def _masses(data: LabeledDataset) -> Tensor:
    """The mass of each class, whatever has no label."""
    weights, codes = data.weights.cpu()[data.labeled.cpu()], data.y[data.labeled].cpu()
    return weights.new_zeros(len(data.classes)).index_add_(0, codes, weights)
