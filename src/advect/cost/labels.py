"""What it costs to change the label: W₂²(α_y, α_y'), a distance between the laws of two classes
(paper, section 2.3).

A label cost maps two datasets to a matrix with a row for each law of the source and a column for
each law of the target, differentiable in whatever the laws come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor

from advect._util.checks import check_finite, check_methods
from advect.cost.features import FeatureCost
from advect.data.dataset import LabeledDataset, require_labels
from advect.data.labels import diagonal_laws, label_samples
from advect.data.laws import Gaussians, bures
from advect.data.laws.linalg import squared_distances, squared_gaps
from advect.errors import InputError
from advect.ot.divergence import debiased, envelope
from advect.ot.exact import ExactOT
from advect.ot.solver import Solver, check_solver, solve_divergence

# relative error of label distances between float32 datasets, as far off as rounding leaves what features cost
SINGLE_LABELS = 4e-6


class LabelCost(ABC):
    """Squared distances between the label laws of two datasets, or of one with itself (``source is
    target``).

    A cost of one's own writes ``__call__``; a plain function does as well.

    Example:
        >>> import advect as ad
        >>> class ByInitial(ad.LabelCost):
        ...     def __call__(self, source, target):
        ...         return source.x.new_tensor([[float(a[0] != b[0]) for b in target.classes] for a in source.classes])
        >>> data = ad.LabeledDataset([[0.0], [0.0]], ["ant", "bee"])
        >>> ad.GroundCost(label=ByInitial()).between(data, data).matrix().tolist()
        [[0.0, 0.5], [0.5, 0.0]]
    """

    # whether labels cost anything
    costs: ClassVar[bool] = True
    # whether names of classes count, beside their laws
    names_count: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, source: LabeledDataset, target: LabeledDataset) -> Tensor:
        """(k, k'), a row for each law of the source, differentiable in what laws come from."""

    def within(self, source: LabeledDataset, target: LabeledDataset) -> tuple[Tensor, Tensor]:
        """The distances within either dataset, (k, k) and (k', k'): needed for soft labels besides
        those between them.
        """
        return self(source, source), self(target, target)

    def coordinates(self, data: LabeledDataset) -> tuple[Tensor, ...]:
        """The laws of a dataset as points whose squared distances are those of the laws: a row for
        each law and columns in some parts, differentiable; none where they are no points.
        """
        return ()

    def check(self, source: LabeledDataset, target: LabeledDataset) -> None:
        """An error for labels that cannot be compared; asked before laws are carried anywhere."""
        return

    def joined(self, feature: FeatureCost, weight: float) -> FeatureCost:
        """The feature cost, where it also holds what labels cost: those that are points beside the
        features (``TargetValues``), which need no table.
        """
        return feature

    def fitted(
        self, source: LabeledDataset, target: LabeledDataset, feature: FeatureCost
    ) -> LabelCost:
        """The cost with what depends on the datasets made fixed; a flow does this once."""
        return self

    def state(self) -> dict[str, Tensor]:
        """What ``fitted`` found, for a checkpoint."""
        return {}

    def with_state(self, state: dict[str, Tensor]) -> LabelCost:
        """The fitted cost again, from a state that may hold more."""
        return self

    @property
    def estimates_covariances(self) -> bool:
        """Whether full covariances of classes are estimated where datasets carry no laws."""
        return False

    def of_pairs(self, source: LabeledDataset, target: LabeledDataset, wanted: Tensor) -> Tensor:
        """The distances of ``wanted`` pairs, (k, k') bool, zero for the others: for ranks that
        share the work. Of a dataset with itself, ``wanted`` is symmetric.
        """
        return checked_distances(self(source, target), source, target) * wanted


@dataclass(frozen=True)
class Bures(LabelCost):
    """Gaussian laws: W₂² = ‖μ − μ'‖² + tr(S + S' − 2 (S^½ S' S^½)^½), covariances estimated with n
    − 1.

    Full covariances are never formed: with class factors A, B the last term is the nuclear norm of
    A Bᵀ, of the size of the smaller of samples and dimensions. Laws that the dataset carries are
    used instead of estimates.

    Every distance is taken anew at each call, from laws in float64 about the classes' own centres.
    For datasets in float64 it is exact to rounding: 1e-9 of itself or 1e-13 of the traces,
    whichever is more. For float32 it is within 4e-6 of itself or 1e-13 of the traces: products are
    taken in float32 where a check shows that to be enough, else in float64. The gradient in the
    features is that of the float64 formula; in float32 to 1e-4 by the norm of each class's part for
    each pair, without pairs that have less than 1e-5 of it, or 1e-6 of the mass of a class, each.

    Args:
        diagonal: keep only the variances; coarser, and cheaper in high dimension with large
            classes.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[0.0], [2.0], [5.0], [7.0]], ["a", "a", "b", "b"])
        >>> ad.Bures()(data, data).tolist()
        [[0.0, 25.0], [25.0, 0.0]]
    """

    diagonal: bool = False

    @property
    def estimates_covariances(self) -> bool:
        return not self.diagonal

    def __call__(self, source: LabeledDataset, target: LabeledDataset) -> Tensor:
        return self._distances(source, target, None)

    def coordinates(self, data: LabeledDataset) -> tuple[Tensor, ...]:
        laws = self._laws(data)
        return (laws.means, laws.covariance.scales()) if laws.covariance.is_diagonal else ()

    def _laws(self, data: LabeledDataset) -> Gaussians:
        return diagonal_laws(data) if self.diagonal else data.laws()

    def of_pairs(self, source: LabeledDataset, target: LabeledDataset, wanted: Tensor) -> Tensor:
        above = wanted.triu(diagonal=1) if source is target else wanted
        return self._distances(source, target, above) * wanted

    def _distances(
        self,
        source: LabeledDataset,
        target: LabeledDataset,
        wanted: Tensor | None,
    ) -> Tensor:
        laws_a = self._laws(source)
        laws_b = laws_a if source is target else self._laws(target)
        mixed = laws_a.covariance.is_diagonal != laws_b.covariance.is_diagonal
        if mixed and laws_a.dim > 64:
            raise InputError(
                "diagonal laws against full ones need d × d matrices for each pair",
                f"d = {laws_a.dim}",
                "Use Bures(diagonal=True).",
            )
        dtype = torch.promote_types(source.x.dtype, target.x.dtype)
        rtol = 0.0 if dtype == torch.float64 else SINGLE_LABELS
        return bures(laws_a, laws_b, rtol=rtol, wanted=wanted).to(dtype)


@dataclass(frozen=True)
class MeansOnly(LabelCost):
    """Classes by their means alone: ‖μ − μ'‖².

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[0.0], [2.0], [5.0]], ["a", "a", "b"])
        >>> ad.MeansOnly()(data, data).tolist()
        [[0.0, 16.0], [16.0, 0.0]]
    """

    def __call__(self, source: LabeledDataset, target: LabeledDataset) -> Tensor:
        a, b = source.laws().means, target.laws().means
        return squared_gaps(a, b).to(torch.promote_types(source.x.dtype, target.x.dtype))


@dataclass(frozen=True)
class NoLabels(LabelCost):
    """Labels cost nothing: plain optimal transport of the features.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[0.0], [5.0]], ["a", "b"])
        >>> ad.NoLabels()(data, data).tolist()
        [[0.0, 0.0], [0.0, 0.0]]
    """

    costs = False

    def __call__(self, source: LabeledDataset, target: LabeledDataset) -> Tensor:
        return source.x.new_zeros(n_laws(source), n_laws(target))


@dataclass(frozen=True)
class ExactLabelOT(LabelCost):
    """No Gaussian assumption: W₂² between the samples of each pair of classes, by an inner
    transport problem.

    Args:
        solver: ``ExactOT()`` for the exact distance, or a ``Sinkhorn`` for its debiased entropic
            approximation (then epsilon is in units of ½‖x − x'‖²).

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[0.0], [2.0], [5.0], [7.0]], ["a", "a", "b", "b"])
        >>> ad.ExactLabelOT()(data, data).tolist()
        [[0.0, 25.0], [25.0, 0.0]]
    """

    solver: Solver = ExactOT()

    def __post_init__(self) -> None:
        check_solver(self.solver)

    def check(self, source: LabeledDataset, target: LabeledDataset) -> None:
        """An error if either dataset carries laws, or lacks labels."""
        if source.law is not None or target.law is not None:
            raise InputError(
                "ExactLabelOT compares samples, not Gaussian laws",
                "a dataset that carries laws",
                "Use Bures or MeansOnly with them, or drop them: .replace(law=None, "
                "law_index=None), FeatureDriven in a flow.",
            )
        for data in (source, target):
            require_labels(data, "ExactLabelOT")

    def __call__(self, source: LabeledDataset, target: LabeledDataset) -> Tensor:
        return self.of_pairs(source, target, torch.ones(n_laws(source), n_laws(target)) > 0)

    def of_pairs(self, source: LabeledDataset, target: LabeledDataset, wanted: Tensor) -> Tensor:
        self.check(source, target)
        symmetric, device = source is target, source.x.device
        if device.type != "cpu":  # many small problems
            host = source.to("cpu")
            other = host if symmetric else target.to("cpu")
            return self.of_pairs(host, other, wanted.cpu()).to(device)
        distances = source.x.new_zeros(len(source.classes), len(target.classes))
        a_parts, b_parts = (_class_samples(*label_samples(data)) for data in (source, target))
        entries = [
            (i, j, self._squared(a_parts[i], b_parts[j]))
            for i, j in (wanted.triu(diagonal=1) if symmetric else wanted).nonzero().tolist()
            if i in a_parts and j in b_parts
        ]
        if not entries:
            return distances
        rows, columns = torch.tensor([(i, j) for i, j, _ in entries], device=distances.device).T
        values = torch.stack([value for *_, value in entries]).to(distances.dtype)
        distances = distances.index_put((rows, columns), values)
        return distances + distances.T if symmetric else distances

    def _squared(self, a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> Tensor:
        """W₂² of two weighted clouds, with the gradient that the plans give (envelope theorem)."""
        (x, p), (y, q) = a, b
        dtype = self.solver.dtype or x.dtype
        xx, xy, yy = (
            squared_distances(s.to(dtype), t.to(dtype)) / 2 for s, t in ((x, x), (x, y), (y, y))
        )
        solved = solve_divergence((xy.detach(), xx.detach(), yy.detach()), p, q, solver=self.solver)
        contracted = [
            (part.plan() * cost).sum().double()
            if cost.requires_grad
            else torch.zeros((), dtype=torch.float64, device=x.device)
            for part, cost in zip(solved.solutions, (xy, xx, yy), strict=True)
        ]
        return envelope(2 * solved.value, 2 * debiased(*contracted))


def _class_samples(x: Tensor, y: Tensor, weights: Tensor) -> dict[int, tuple[Tensor, Tensor]]:
    """The samples of each class that has any, with weights that sum to one."""
    parts = {}
    for code in y.unique().tolist():
        rows = y == code
        mass = weights[rows].double()
        alike = torch.full_like(mass, 1 / len(mass))
        parts[code] = (x[rows], mass / mass.sum() if bool(mass.sum() > 0) else alike)
    return parts


@dataclass(frozen=True)
class _OwnLabels(LabelCost):
    """A function of two datasets of one's own."""

    function: Callable[[LabeledDataset, LabeledDataset], Tensor]

    def __call__(self, source: LabeledDataset, target: LabeledDataset) -> Tensor:
        return torch.as_tensor(self.function(source, target))


def as_label_cost(label: object) -> LabelCost:
    """A label cost, or a function of two datasets as one."""
    if isinstance(label, LabelCost):
        return label
    remedy = "Pass ad.Bures(), ad.NoLabels() or a function."
    check_methods("label must be a label cost", label, ("__call__",), remedy)
    return _OwnLabels(cast(Callable[[LabeledDataset, LabeledDataset], Tensor], label))


def n_laws(data: LabeledDataset) -> int:
    """Rows of a table of label distances for a dataset; unlabeled data has one law, unknown."""
    return len(data.law) if data.law is not None else max(len(data.classes), 1)


def checked_distances(made: object, source: LabeledDataset, target: LabeledDataset) -> Tensor:
    """What a label cost has returned, where it is a number for each pair of laws."""
    distances, shape = (
        torch.as_tensor(made, device=source.x.device),
        (n_laws(source), n_laws(target)),
    )
    if distances.shape != shape:
        raise InputError(
            f"a label cost must return a matrix {shape}, a row for each law of the source and a "
            "column for each law of the target",
            f"shape {tuple(distances.shape)}",
            "There is one law for each class, or for each sample where a dataset carries a law_index.",
        )
    distances = distances if distances.is_floating_point() else distances.to(source.x)
    check_finite("the label distances", distances, "Check the label laws.")
    return distances
