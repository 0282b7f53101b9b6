"""The ground cost of labeled samples (paper, section 2.3), with the ½ inside:

    c(z, z') = ½ ( ‖x − x'‖² + label_weight · W₂²(α_y, α_y') )

so that the gradient of a transport value in x_i is mass_i · (x_i − T(x_i)), and epsilon is in the units of c.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from advect._checks import check_finite, check_non_negative
from advect.cost.features import Embedding, FeatureCost, SquaredEuclidean
from advect.cost.labels import Bures, LabelCost, NoLabels
from advect.cost.lagged import LaggedBures
from advect.data import LabeledDataset
from advect.errors import InputError
from advect.linalg import centred


@dataclass(frozen=True)
class GroundCost:
    """c(z, z') = ½ (d(x, x')² + label_weight · W₂²(α_y, α_y')).

    Args:
        feature: ``SquaredEuclidean()``, ``Embedding(map)``, or a function (x, x') ↦ (n, m) matrix of one's own.
        label: ``Bures()``, ``ExactLabelOT()``, ``MeansOnly()`` or ``NoLabels()``.
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

    def between(self, source: LabeledDataset, target: LabeledDataset, *, lag: LaggedBures | None = None) -> PairCost:
        """The cost between the samples of two datasets (or of one with itself); ``lag`` remembers label laws along a flow."""
        if source.dim != target.dim and not isinstance(self.feature, Embedding):
            raise InputError(
                "both datasets must live in one feature space",
                f"dimensions {source.dim} and {target.dim} (sample shapes {source.sample_shape} and {target.sample_shape})",
                "Bring them together with ad.harmonize(source, target).",
            )
        if source.columns != target.columns and source.columns and target.columns and not isinstance(self.feature, Embedding):
            raise InputError(
                "both datasets must have the same columns in the same order",
                f"{', '.join(source.columns[:5])} … and {', '.join(target.columns[:5])} …",
                "Align them by name with ad.harmonize(source, target).",
            )
        if source.x.device != target.x.device:
            raise InputError(
                "both datasets must be on one device", f"{source.x.device} and {target.x.device}", "Move one with .to(device)."
            )
        return PairCost(self, source, target, lag)


@dataclass(frozen=True, eq=False)
class PairCost:
    """The ground cost between two given datasets: a matrix to solve with, and a differentiable contraction.

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
    lag: LaggedBures | None = None

    @cached_property
    def label_distances(self) -> Tensor:
        """W₂² between label laws, a row for each law of the source; differentiable."""
        distances = self.cost.label(*self._embedded)
        check_finite("the label distances", distances, "Check the label laws.")
        return distances

    @cached_property
    def _embedded(self) -> tuple[LabeledDataset, LabeledDataset]:
        """The datasets in the space where features are compared: label laws live there too."""
        if self.points is None or isinstance(self.cost.feature, SquaredEuclidean):
            return self.source, self.target
        x, y = self.points
        source = self.source.replace(x=x, sample_shape=tuple(x.shape[1:]))
        return source, source if self.source is self.target else self.target.replace(x=y, sample_shape=tuple(y.shape[1:]))

    @cached_property
    def points(self) -> tuple[Tensor, Tensor] | None:
        """The samples as points whose squared distance is the feature cost, if the cost is of that kind."""
        feature = self.cost.feature
        if not isinstance(feature, (SquaredEuclidean, Embedding)):
            return None
        x = feature.embed(self.source)
        y = x if self.source is self.target else feature.embed(self.target)
        if x.shape[1] != y.shape[1]:
            raise InputError(
                "an embedding must map both datasets to one space", f"dimensions {x.shape[1]} and {y.shape[1]}", "Check it."
            )
        return x, y

    def matrix(self, dtype: torch.dtype | None = None) -> Tensor:
        """The cost as an (n, m) matrix, without a graph.

        The product x yᵀ, and a thin one in place for the rest: −x_i·y_j + (½‖x_i‖², 1, ½ w D[y_i]) · (1, ½‖y_j‖², e_{y_j}).
        """
        dtype = dtype or torch.promote_types(self.source.x.dtype, self.target.x.dtype)
        points = self.points
        if points is None or self.lag is None:
            _ = self.label_distances  # outside no_grad: it is kept with its graph
        if points is None:
            return self._with_labels(self._own_feature_cost().detach().to(dtype).mul_(-0.5), -1)
        x, y = centred(*(part.detach().to(dtype) for part in points))
        product = x @ y.T
        norms = [torch.linalg.vector_norm(part, dim=1, keepdim=True).square() / 2 for part in (x, y)]
        del x, y
        if self.lag is not None:
            self.__dict__["label_distances"] = self.lag.distances(self.source, self.target, product)
        return self._with_labels(product, -1, *norms).clamp_min_(0)

    def _with_labels(self, matrix: Tensor, sign: float, *norms: Tensor) -> Tensor:
        """sign · matrix + norms of rows and columns + the label part, by one thin product and in place."""
        left, right = [], []
        if norms:
            left += [norms[0], torch.ones_like(norms[0])]
            right += [torch.ones_like(norms[1]), norms[1]]
        if self._has_labels:
            labels = (self.cost.label_weight / 2 * self.label_distances.detach()).to(matrix.dtype)
            left.append(labels[self.source.law_rows])
            right.append(torch.nn.functional.one_hot(self.target.law_rows, labels.shape[1]).to(matrix.dtype))
        if not left:
            return matrix.mul_(sign)
        return torch.addmm(matrix, torch.cat(left, dim=1), torch.cat(right, dim=1).T, beta=sign, out=matrix)

    def contract(self, plan: Tensor) -> Tensor:
        """⟨P, C⟩ as a differentiable number: the gradient of a transport value, by the envelope theorem.

        The features enter through the products P y and Pᵀ x, the laws through the plan summed over pairs of laws.
        """
        plan = plan.detach()
        if not self._has_labels:
            return self._contract_features(plan) / 2
        class_plan = self.class_plan(plan)
        laws = self.cost.label_weight / 2 * (class_plan * self.label_distances).sum()
        if self.lag is not None and self.label_distances.requires_grad:
            plan = self.lag.joined(plan, class_plan, self.source, self.target, self.cost.label_weight)
        return self._contract_features(plan) / 2 + laws

    def class_plan(self, plan: Tensor) -> Tensor:
        """The plan summed over pairs of label laws, of the shape of ``label_distances``."""
        by_row = plan.new_zeros(self.label_distances.shape[0], plan.shape[1]).index_add_(0, self.source.law_rows, plan)
        result = plan.new_zeros(self.label_distances.shape)
        return result.index_add_(1, self.target.law_rows, by_row)

    @property
    def moves(self) -> bool:
        """Whether a gradient is wanted in anything that the cost depends on."""
        with_labels = self._has_labels and self.label_distances.requires_grad
        return with_labels or self.source.x.requires_grad or self.target.x.requires_grad

    @property
    def _has_labels(self) -> bool:
        return self.cost.label_weight > 0 and not isinstance(self.cost.label, NoLabels)

    def _contract_features(self, plan: Tensor) -> Tensor:
        if self.points is None:
            return (plan * self._own_feature_cost()).sum()
        x, y = self.points
        plan = plan.to(torch.promote_types(x.dtype, y.dtype))
        with torch.no_grad():
            u, v = centred(x, y)
            rows, columns = plan.sum(dim=1, keepdim=True), plan.sum(dim=0)[:, None]
            image = plan @ v
            lengths = [torch.linalg.vector_norm(part, dim=1, keepdim=True).square() for part in (u, v)]
            value = (rows * lengths[0]).sum() + (columns * lengths[1]).sum() - 2 * torch.linalg.vecdot(u, image).sum()
            # The gradients 2 (diag(P1) x − P y) and 2 (diag(Pᵀ1) y − Pᵀ x); the plan of a self-problem is symmetric.
            pulls = [(x, image.mul_(-2).addcmul_(rows, u, value=2))] if x.requires_grad else []
            if y is x:
                pulls = [(x, pull.mul_(2)) for _, pull in pulls]
            elif y.requires_grad:
                pulls.append((y, (plan.T @ u).mul_(-2).addcmul_(columns, v, value=2)))
        for point, pull in pulls:
            moving = (point * pull).sum()
            value = value + moving - moving.detach()
        return value

    def _own_feature_cost(self) -> Tensor:
        feature = self.cost.feature
        assert not isinstance(feature, (SquaredEuclidean, Embedding))
        matrix = torch.as_tensor(feature(self.source.x, self.target.x))
        if matrix.shape != (len(self.source), len(self.target)):
            raise InputError(
                f"a feature cost must return a matrix ({len(self.source)}, {len(self.target)})",
                f"shape {tuple(matrix.shape)}",
                "One entry for each pair.",
            )
        check_finite("the feature cost", matrix, "Check it on these samples.")
        return matrix
