"""What it costs to change the label: W₂²(α_y, α_y'), a distance between the laws of two classes
(paper, section 2.3).

A label cost maps two datasets to a matrix with a row for each law of the source and a column for
each law of the target, differentiable in whatever the laws come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from advect._util.linalg import squared_distances, squared_gaps
from advect.data.dataset import LabeledDataset
from advect.data.laws import Gaussians, bures
from advect.errors import InputError
from advect.ot.divergence import debiased, envelope
from advect.ot.exact import ExactOT
from advect.ot.solver import Solver, check_solver, solve_divergence

_SINGLE = (
    9e-7  # relative error of label distances between float32 datasets; rounding them adds 6e-8
)


class LabelCost(Protocol):
    """Squared distances between the label laws of two datasets, or of one with itself (``source is
    target``).
    """

    def __call__(self, source: LabeledDataset, target: LabeledDataset) -> Tensor: ...


@dataclass(frozen=True)
class Bures:
    """Gaussian laws: W₂² = ‖μ − μ'‖² + tr(S + S' − 2 (S^½ S' S^½)^½), covariances estimated with n
    − 1.

    Full covariances are never formed: with class factors A, B the last term is the nuclear norm of
    A Bᵀ, of the size of the smaller of samples and dimensions. Laws that the dataset carries are
    used instead of estimates.

    Every distance is taken anew at each call, from laws in float64 about the classes' own centres.
    For datasets in float64 it is exact to rounding: 1e-9 of itself or 1e-13 of the traces,
    whichever is more. For float32 it is within 1e-6 of itself or 1e-13 of the traces: products are
    taken in float32 where a check proves that to be enough, else in float64. The gradient in the
    features is within 1e-6 of that of the float64 formula, in float32 by the norm of each class's
    part.

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

    def __call__(
        self, source: LabeledDataset, target: LabeledDataset, wanted: Tensor | None = None
    ) -> Tensor:
        """W₂² between classes; where only some pairs are ``wanted``, (k, k') bool, others are of no
        meaning.
        """
        laws_a = source.laws()
        laws_b = laws_a if source is target else target.laws()
        mixed = laws_a.covariance.is_diagonal != laws_b.covariance.is_diagonal
        if mixed and not self.diagonal and laws_a.dim > 64:
            raise InputError(
                "diagonal laws against full ones need d × d matrices for each pair",
                f"d = {laws_a.dim}",
                "Use Bures(diagonal=True).",
            )
        if self.diagonal:
            laws_a, laws_b = (
                (laws_a.diagonal(),) * 2
                if laws_a is laws_b
                else (laws_a.diagonal(), laws_b.diagonal())
            )
        dtype = torch.promote_types(source.x.dtype, target.x.dtype)
        return law_distances(laws_a, laws_b, dtype, wanted)


def law_distances(
    a: Gaussians, b: Gaussians, dtype: torch.dtype, wanted: Tensor | None = None
) -> Tensor:
    """``bures`` between the laws of datasets in ``dtype``, as right as ``Bures`` promises; of
    ``wanted`` pairs alone.
    """
    return bures(a, b, rtol=0.0 if dtype == torch.float64 else _SINGLE, wanted=wanted).to(dtype)


@dataclass(frozen=True)
class MeansOnly:
    """Classes by their means alone: ‖μ − μ'‖².

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[0.0], [2.0], [5.0]], ["a", "a", "b"])
        >>> ad.MeansOnly()(data, data).tolist()
        [[0.0, 16.0], [16.0, 0.0]]
    """

    def __call__(self, source: LabeledDataset, target: LabeledDataset) -> Tensor:
        a, b = source.laws().means, target.laws().means
        return squared_gaps(a.double(), b.double()).to(
            torch.promote_types(source.x.dtype, target.x.dtype)
        )


@dataclass(frozen=True)
class NoLabels:
    """Labels cost nothing: plain optimal transport of the features.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[0.0], [5.0]], ["a", "b"])
        >>> ad.NoLabels()(data, data).tolist()
        [[0.0, 0.0], [0.0, 0.0]]
    """

    def __call__(self, source: LabeledDataset, target: LabeledDataset) -> Tensor:
        return source.x.new_zeros(n_laws(source), n_laws(target))


@dataclass(frozen=True)
class ExactLabelOT:
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
            data.require_labels("ExactLabelOT")

    def __call__(
        self, source: LabeledDataset, target: LabeledDataset, wanted: Tensor | None = None
    ) -> Tensor:
        """W₂² between classes, or between ``wanted`` pairs of them, (k, k') bool."""
        self.check(source, target)
        symmetric = source is target
        distances = source.x.new_zeros(len(source.classes), len(target.classes))
        a_parts, b_parts = _class_samples(source), _class_samples(target)
        entries = []
        for i, a in a_parts.items():
            for j, b in b_parts.items():
                if not (symmetric and j <= i) and (wanted is None or bool(wanted[i, j])):
                    entries.append((i, j, self._squared(a, b)))
        if not entries:
            return distances
        rows, columns = torch.tensor([(i, j) for i, j, _ in entries], device=distances.device).T
        values = torch.stack([value for *_, value in entries]).to(distances.dtype)
        distances = distances.index_put((rows, columns), values)
        return distances + distances.T if symmetric else distances

    def _squared(self, a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> Tensor:
        """W₂² of two weighted clouds: the value from the solver, the gradient from the plans
        (envelope theorem).
        """
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


def n_laws(data: LabeledDataset) -> int:
    """How many rows a table of label distances has for a dataset."""
    return (
        len(data.law) if data.law is not None else max(len(data.classes), 1)
    )  # unlabeled data has one law, unknown


def _class_samples(data: LabeledDataset) -> dict[int, tuple[Tensor, Tensor]]:
    parts = {}
    for code in data.y.unique().tolist():
        rows = data.y == code
        mass = data.weights[rows].double()
        parts[code] = (
            data.law_features[rows],
            mass / mass.sum() if bool(mass.sum() > 0) else torch.full_like(mass, 1 / len(mass)),
        )
    return parts
