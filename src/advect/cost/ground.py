"""The ground cost of labeled samples (paper, section 2.3), with the ½ inside:

    c(z, z') = ½ ( ‖x − x'‖² + label_weight · W₂²(α_y, α_y') )

so that the gradient of a transport value in x_i is mass_i · (x_i − T(x_i)), and epsilon is in the
units of c."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from advect._util.checks import check_finite, check_methods, check_non_negative
from advect._util.linalg import centred
from advect._util.memory import readable
from advect.cost.features import EUCLIDEAN, Embedding, FeatureCost, Sketch, SquaredEuclidean
from advect.cost.labels import Bures, ExactLabelOT, LabelCost, MeansOnly, NoLabels, n_laws
from advect.cost.rows import FEW_LAWS, FeatureRows, LabelTable, OwnRows
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.ot.blocks import BlockedCost
from advect.ot.plan import Plan, as_plan


@dataclass(frozen=True)
class GroundCost:
    """c(z, z') = ½ (d(x, x')² + label_weight · W₂²(α_y, α_y')).

    Args:
        feature: ``SquaredEuclidean()``, ``Embedding(map)``, ``Sketch(dim)``, or a function of one's
            own, (x, x') ↦ a matrix (n, m), for any rows of either.
        label: what it costs to change the label: ``Bures()``, ``ExactLabelOT()``, ``MeansOnly()``
            or ``NoLabels()``.
        label_weight: how much a change of label costs against a change of features; 1 in the paper.

    Example:
        >>> import advect as ad
        >>> a = ad.LabeledDataset([[0.0], [1.0]], ["low", "high"])
        >>> b = ad.LabeledDataset([[0.0], [3.0]], ["low", "high"])
        >>> ad.GroundCost(label=ad.MeansOnly()).between(a, b).matrix().tolist()
        [[0.0, 9.0], [1.0, 4.0]]
    """

    feature: FeatureCost = SquaredEuclidean()
    label: LabelCost = Bures()
    label_weight: float = 1.0

    def __post_init__(self) -> None:
        check_non_negative("label_weight", self.label_weight)
        check_methods(
            "label must be a label cost",
            self.label,
            ("__call__",),
            "Pass ad.Bures(), ad.NoLabels() or a function.",
        )
        if not isinstance(self.feature, EUCLIDEAN):
            remedy = "Pass ad.SquaredEuclidean(), ad.Sketch(dim) or a function of (x, x')."
            check_methods("feature must be a feature cost", self.feature, ("__call__",), remedy)

    @property
    def by_columns(self) -> bool:
        """Whether columns of the features count by the squares of their differences."""
        return isinstance(self.feature, SquaredEuclidean)

    @property
    def has_labels(self) -> bool:
        """Whether labels cost anything."""
        return self.label_weight > 0 and not isinstance(self.label, NoLabels)

    @property
    def estimates_covariances(self) -> bool:
        """Whether full covariances of classes are estimated, in as many dimensions as there are
        columns.
        """
        return (
            self.by_columns
            and self.label_weight > 0
            and isinstance(self.label, Bures)
            and not self.label.diagonal
        )

    def fitted(self, source: LabeledDataset, target: LabeledDataset) -> GroundCost:
        """The cost with a feature sketch fitted to these datasets, where there is one that needs
        it.
        """
        _check_scale(source, target)
        if isinstance(self.feature, Sketch) and self.feature.basis is None:
            return replace(self, feature=self.feature.fit(source, target))
        return self

    def between(self, source: LabeledDataset, target: LabeledDataset) -> PairCost:
        """The cost between the samples of two datasets (or of one with itself)."""
        if source.dim != target.dim and not isinstance(self.feature, Embedding):
            raise InputError(
                "both datasets must live in one feature space",
                f"dimensions {source.dim} and {target.dim} (sample shapes {source.sample_shape} "
                f"and {target.sample_shape})",
                "Bring them together with ad.harmonize(source, target).",
            )
        if (
            source.columns != target.columns
            and source.columns
            and target.columns
            and not isinstance(self.feature, Embedding)
        ):
            raise InputError(
                "both datasets must have the same columns in the same order",
                f"{', '.join(source.columns[:5])} … and {', '.join(target.columns[:5])} …",
                "Align them by name with ad.harmonize(source, target).",
            )
        if source.x.device != target.x.device:
            raise InputError(
                "both datasets must be on one device",
                f"{source.x.device} and {target.x.device}",
                "Move one with .to(device).",
            )
        return PairCost(self, source, target)

    def between_all(
        self, source: LabeledDataset, target: LabeledDataset, limit: float = math.inf
    ) -> tuple[PairCost, PairCost, PairCost]:
        """The costs of a debiased distance: between source and target, within the source, within
        the target.

        Label distances are taken at once on copies, so that what the estimate of laws keeps goes
        before a solve starts. A table of them that would pass ``limit`` bytes is an error."""
        a = source.replace()
        b = a if target is source else target.replace()
        drafts = (self.between(a, b), self.between(a, a), self.between(b, b))
        pairs = (
            self.between(source, target),
            self.between(source, source),
            self.between(target, target),
        )
        for pair, draft in zip(pairs, drafts, strict=True):
            if drafts[0].points is not None:
                x, y = drafts[0].points
                points = {id(source): x, id(target): y}
                draft.__dict__["points"] = pair.__dict__["points"] = (
                    points[id(pair.source)],
                    points[id(pair.target)],
                )
            if pair.has_labels:
                draft.check_table(limit)
                pair.__dict__["label_distances"], pair.__dict__["law_rows"] = (
                    draft.label_distances,
                    draft.law_rows,
                )
        return pairs


def check_cost(cost: object) -> GroundCost | None:
    """A ground cost or None; an error for a part of one."""
    if cost is None or isinstance(cost, GroundCost):
        return cost
    part = (
        "label"
        if callable(cost) and isinstance(cost, (Bures, ExactLabelOT, MeansOnly, NoLabels))
        else "feature"
    )
    raise InputError(
        "cost must be a GroundCost",
        repr(cost),
        f"Wrap it as ad.GroundCost({part}=…), or pass None.",
    )


def _check_scale(*datasets: LabeledDataset) -> None:
    """Squares of features must not vanish in their dtype: all distances would be 0."""
    if len({data.dim for data in datasets}) > 1:
        return  # ``between`` says so
    limits = [torch.aminmax(data.x.detach(), dim=0) for data in datasets]
    low, high = (torch.stack(parts) for parts in zip(*limits, strict=True))
    spread = float((high.amax(dim=0) - low.amin(dim=0)).max())
    tiny = min(torch.finfo(data.x.dtype).tiny for data in datasets)
    if 0 < spread < math.sqrt(tiny) * 1e4:
        raise InputError(
            "features must differ by enough for their squares not to vanish in "
            f"{datasets[0].x.dtype}",
            f"a range of {spread:.1e}",
            "Multiply them by a number, or take data.to(dtype=torch.float64).",
        )


@dataclass(frozen=True, eq=False)
class PairCost:
    """The ground cost between two given datasets: a matrix to solve with, and a differentiable
    contraction.

    Example:
        >>> import torch, advect as ad
        >>> x = torch.tensor([[0.0], [1.0]], requires_grad=True)
        >>> a, b = ad.LabeledDataset(x, ["s", "s"]), ad.LabeledDataset([[2.0], [3.0]], ["t", "t"])
        >>> pair = ad.GroundCost(label=ad.NoLabels()).between(a, b)
        >>> pair.contract(torch.eye(2) / 2).backward()       # ½ Σ P_ij ‖x_i − y_j‖²
        >>> x.grad.flatten().tolist()
        [-1.0, -1.0]
    """

    cost: GroundCost
    source: LabeledDataset
    target: LabeledDataset

    def by_classes(self) -> PairCost:
        """The cost with one law for each class on both sides: laws of single samples are joined by
        class.
        """
        source = self.source.with_class_laws()
        target = source if self.target is self.source else self.target.with_class_laws()
        same = source is self.source and target is self.target
        return self if same else replace(self, source=source, target=target)

    @cached_property
    def label_distances(self) -> Tensor:
        """W₂² between label laws, a row for each law of the source; differentiable."""
        distances = self.cost.label(*self._sides)
        check_finite("the label distances", distances, "Check the label laws.")
        return distances

    @cached_property
    def law_rows(self) -> tuple[Tensor, Tensor]:
        """For each sample of the source its row of ``label_distances``, for each of the target its
        column.
        """
        return self._sides[0].law_rows, self._sides[1].law_rows

    @cached_property
    def _sides(self) -> tuple[LabeledDataset, LabeledDataset]:
        """The datasets in the space where features are compared: label laws live there too. Equal
        laws are one.
        """
        source, target, feature = self.source, self.target, self.cost.feature
        if isinstance(
            self.cost.label, ExactLabelOT
        ):  # before laws are carried, which may have a reason of its own against it
            self.cost.label.check(source, target)
        if self.points is not None and isinstance(feature, EUCLIDEAN):
            source, target = (
                feature.carry(*side) for side in zip((source, target), self.points, strict=True)
            )
        source = source.with_shared_laws()
        return source, source if self.source is self.target else target.with_shared_laws()

    @cached_property
    def points(self) -> tuple[Tensor, Tensor] | None:
        """The samples as points whose squared distance is the feature cost, if the cost is of that
        kind.
        """
        feature = self.cost.feature
        if not isinstance(feature, EUCLIDEAN):
            return None
        x = feature.embed(self.source)
        y = x if self.source is self.target else feature.embed(self.target)
        if x.shape[1] != y.shape[1]:
            raise InputError(
                "an embedding must map both datasets to one space",
                f"dimensions {x.shape[1]} and {y.shape[1]}",
                "Check it.",
            )
        return x, y

    def _centred(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return centred(x, y, (self.source.weights, self.target.weights))

    def matrix(self, dtype: torch.dtype | None = None) -> Tensor:
        """The cost as an (n, m) matrix, without a graph.

        The product x yᵀ, and a thin one in place for the rest: −x_i·y_j + (½‖x_i‖², 1, ½ w D[y_i])
        · (1, ½‖y_j‖², e_{y_j})."""
        dtype = dtype or torch.promote_types(self.source.x.dtype, self.target.x.dtype)
        points = self.points
        if self.has_labels:
            _ = (
                self.label_distances
            )  # first, so that what it needs has gone when the matrix is made
        labels = self._labels(dtype)
        if points is None:
            matrix = self._own_feature_cost().detach().to(dtype, copy=True).mul_(0.5)
            return matrix if labels is None else labels.add(matrix)
        x, y = self._centred(*(part.detach().to(dtype) for part in points))
        product = x @ y.T
        norms = [
            torch.linalg.vector_norm(part, dim=1, keepdim=True).square() / 2 for part in (x, y)
        ]
        del x, y
        left, right = _thin(norms, labels)
        matrix = torch.addmm(product, left, right.T, beta=-1, out=product)
        return (matrix if labels is None or labels.thin else labels.add(matrix)).clamp_min_(0)

    def blocked(
        self, dtype: torch.dtype | None = None, limit: int = 0, beside: int = 0
    ) -> BlockedCost:
        """The cost as blocks of rows, for solves that may take ``limit`` bytes: no (n, m) matrix
        unless it fits.

        ``beside`` are bytes of the limit that are spoken for.

        Example:
            >>> import torch, advect as ad
            >>> data = ad.datasets.gaussians(90, generator=torch.Generator().manual_seed(0))
            >>> pair = ad.GroundCost().between(data, data)
            >>> torch.allclose(pair.blocked(limit=2**20).rows(slice(3, 9)), pair.matrix()[3:9], atol=1e-5)
            True
        """
        dtype = dtype or torch.promote_types(self.source.x.dtype, self.target.x.dtype)
        shape = (len(self.source), len(self.target))
        copies = (
            beside + sum(part.shape[1] * len(part) for part in self.points or ()) * dtype.itemsize
        )
        least = copies + BlockedCost.least(shape[1], dtype)
        if limit < least:
            raise InputError(
                "memory_limit must leave room for the features and some rows of costs, "
                f"{readable(least)}",
                readable(limit),
                "Raise it, take fewer samples, or fewer dimensions with Sketch.",
            )
        if self.has_labels:
            copies += self.check_table(limit - least)
            _ = self.label_distances  # outside no_grad: it is kept with its graph
        return BlockedCost(
            lambda: self._open_rows(dtype),
            shape,
            dtype,
            self.source.x.device,
            max(0, limit - copies),
        )

    def check_table(self, room: float) -> int:
        """Bytes of the table of label distances and a copy of it; an error if there is no room for
        them.
        """
        sizes = [n_laws(side) for side in self._sides]
        table = 2 * sizes[0] * sizes[1] * 8  # distances of laws are computed in float64
        if table > room:
            raise InputError(
                f"the distances between {sizes[0]} and {sizes[1]} label laws need "
                f"{readable(table)}",
                f"{readable(int(max(0, room)))} of memory_limit beside the features",
                "Join the laws of single samples by class (data.with_class_laws(); "
                "JointFixedLabels in a flow), raise "
                "memory_limit, or take fewer samples.",
            )
        return table

    @torch.no_grad()
    def _open_rows(self, dtype: torch.dtype) -> FeatureRows | OwnRows:
        labels = self._labels(dtype)
        if self.points is None:
            return OwnRows(self._own_rows, labels, (len(self.source), len(self.target)), dtype)
        x, y = self._centred(*(part.detach().to(dtype) for part in self.points))
        norms = [
            torch.linalg.vector_norm(part, dim=1, keepdim=True).square() / 2 for part in (x, y)
        ]
        return FeatureRows(x, y, *_thin(norms, labels), labels)

    def _labels(self, dtype: torch.dtype) -> LabelTable | None:
        """½ label_weight W₂² between laws, and the law of each sample; None where labels cost
        nothing.
        """
        if not self.has_labels:
            return None
        return LabelTable(
            (self.cost.label_weight / 2 * self.label_distances.detach()).to(dtype), self.law_rows
        )

    def _own_rows(self, rows: slice | Tensor, columns: Tensor | None) -> Tensor:
        feature, y = self.cost.feature, self.target.x.detach()
        assert not isinstance(feature, EUCLIDEAN)
        return torch.as_tensor(
            feature(self.source.x.detach()[rows], y if columns is None else y[columns])
        )

    def contract(self, plan: Tensor | Plan) -> Tensor:
        """⟨P, C⟩ as a differentiable number: the gradient of a transport value, by the envelope
        theorem.

        The features enter through P [v, ‖v‖², 1, e_y] in one pass over the plan, and Pᵀ [u, 1] where
        the target moves; the laws through the plan summed over pairs of laws."""
        plan = as_plan(plan)
        if self.points is None:
            laws = self._contract_laws(self.class_plan(plan)) if self.has_labels else 0
            return self._contract_own(plan) / 2 + laws
        x, y = self.points
        labels = self._labels(y.dtype)
        with torch.no_grad():
            u, v = self._centred(x, y)
            lengths = [
                torch.linalg.vector_norm(part, dim=1, keepdim=True).square() for part in (u, v)
            ]
            onto = [labels.factors(v.dtype)[1]] if labels is not None and labels.thin else []
            factors = [v, lengths[1], torch.ones_like(lengths[1]), *onto]
            width = sum(part.shape[1] for part in factors)
            # products whose width is no multiple of 16 take half as long again
            factors.append(v.new_zeros(len(v), -width % 16))
            product = plan @ torch.cat(factors, dim=1)
            image, squares, rows, by_law = product.tensor_split(
                [v.shape[1], v.shape[1] + 1, v.shape[1] + 2], dim=1
            )
            by_law = by_law[:, : width - v.shape[1] - 2]
            value = (
                (rows * lengths[0]).double().sum()
                + squares.double().sum()
                - 2 * torch.linalg.vecdot(u, image).double().sum()
            )
            # The gradients 2 (diag(P1) x − P y) and 2 (diag(Pᵀ1) y − Pᵀ x); the plan of a
            # self-problem is symmetric.
            pulls = [(x, image.mul_(-2).addcmul_(rows, u, value=2))] if x.requires_grad else []
            if y is x:
                pulls = [(x, pull.mul_(2)) for _, pull in pulls]
            elif y.requires_grad:
                back = plan.T @ torch.cat([u, torch.ones_like(lengths[0])], dim=1)
                pulls.append((y, 2 * (back[:, -1:] * v - back[:, :-1])))
        for point, pull in pulls:
            moving = (point * pull.to(point.dtype)).sum()
            value = value + moving - moving.detach()
        if labels is None:
            return value / 2
        sums = (
            by_law.new_zeros(labels.values.shape).index_add_(0, labels.codes[0], by_law)
            if onto
            else self.class_plan(plan)
        )
        return value / 2 + self._contract_laws(sums)

    def class_plan(self, plan: Tensor | Plan) -> Tensor:
        """The plan summed over pairs of label laws, of the shape of ``label_distances``."""
        (rows, columns), shape = self.law_rows, self.label_distances.shape
        plan = as_plan(plan)
        if shape[1] <= FEW_LAWS:
            by_law = plan @ torch.nn.functional.one_hot(columns, shape[1]).to(self.source.x)
            return by_law.new_zeros(shape).index_add_(0, rows, by_law)
        result = None
        for at, onto, part in plan.pieces():
            by_law = part.new_zeros(len(part), shape[1]).index_add_(1, columns[onto], part)
            result = part.new_zeros(shape) if result is None else result
            result.index_add_(0, rows[at], by_law)
        assert result is not None
        return result

    @property
    def moves(self) -> bool:
        """Whether a gradient is wanted in anything that the cost depends on."""
        with_labels = self.has_labels and self.label_distances.requires_grad
        return with_labels or self.source.x.requires_grad or self.target.x.requires_grad

    @property
    def has_labels(self) -> bool:
        """Whether labels cost anything."""
        return self.cost.label_weight > 0 and not isinstance(self.cost.label, NoLabels)

    def _contract_laws(self, class_plan: Tensor) -> Tensor:
        return self.cost.label_weight / 2 * (class_plan * self.label_distances).sum().double()

    def _contract_own(self, plan: Plan) -> Tensor:
        """⟨P, d²⟩ for a feature cost of one's own, each block with its gradient."""
        feature, total = (
            self.cost.feature,
            torch.zeros((), dtype=torch.float64, device=self.source.x.device),
        )
        assert not isinstance(feature, EUCLIDEAN)
        leaves = [
            part.detach().requires_grad_(part.requires_grad)
            for part in (self.source.x, self.target.x)
        ]
        gradients = [torch.zeros_like(leaf) for leaf in leaves]
        for rows, columns, part in plan.pieces():
            with torch.enable_grad():
                value = (part * torch.as_tensor(feature(leaves[0][rows], leaves[1][columns]))).sum()
            total = total + value.detach()
            wanted = [k for k, leaf in enumerate(leaves) if leaf.requires_grad]
            found = (
                torch.autograd.grad(value, [leaves[k] for k in wanted], allow_unused=True)
                if wanted
                else ()
            )
            for k, gradient in zip(wanted, found, strict=True):
                gradients[k] += 0 if gradient is None else gradient
        for point, gradient in zip((self.source.x, self.target.x), gradients, strict=True):
            if point.requires_grad:
                moving = (point * gradient).sum()
                total = total + moving - moving.detach()
        return total

    def _own_feature_cost(self) -> Tensor:
        feature = self.cost.feature
        assert not isinstance(feature, EUCLIDEAN)
        matrix = torch.as_tensor(feature(self.source.x, self.target.x))
        if matrix.shape != (len(self.source), len(self.target)):
            raise InputError(
                f"a feature cost must return a matrix ({len(self.source)}, {len(self.target)})",
                f"shape {tuple(matrix.shape)}",
                "One entry for each pair.",
            )
        check_finite("the feature cost", matrix, "Check it on these samples.")
        return matrix


def _thin(norms: list[Tensor], labels: LabelTable | None) -> tuple[Tensor, Tensor]:
    """Factors (n, r) and (m, r) of the norms of rows and columns, and of the label part if that is
    thin.
    """
    left, right = [norms[0], torch.ones_like(norms[0])], [torch.ones_like(norms[1]), norms[1]]
    if labels is not None and labels.thin:
        for side, factor in zip((left, right), labels.factors(norms[0].dtype), strict=True):
            side.append(factor)
    return torch.cat(left, dim=1), torch.cat(right, dim=1)
