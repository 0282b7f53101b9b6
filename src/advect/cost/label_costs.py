"""Label costs other than ``Bures``: means only, none, transport between samples, given distances, a
function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from advect._util import check_methods, refuse_if
from advect.cost.labels import LabelCost, n_laws
from advect.data import LabeledDataset, label_samples, require_labels
from advect.data.laws import squared_distances, squared_gaps
from advect.ot import ExactOT, Solver, check_solver, debiased, envelope, solve_divergence


@dataclass(frozen=True)
class MeansOnly(LabelCost):
    """Compare classes by their means only: ‖μ − μ'‖².

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
    """No label cost: plain optimal transport of the features.

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

    def __call__(self, source: LabeledDataset, target: LabeledDataset) -> Tensor:
        refuse_if(
            source.law is not None or target.law is not None,
            "ExactLabelOT compares samples, not Gaussian laws",
            "a dataset with laws",
            "Use Bures or MeansOnly with them, or drop them: .replace(law=None, "
            "law_index=None), FeatureDriven in a flow.",
        )
        for data in (source, target):
            require_labels(data, "ExactLabelOT")
        symmetric, device = source is target, source.x.device
        if device.type != "cpu":  # many small problems
            host = source.to("cpu")
            return self(host, host if symmetric else target.to("cpu")).to(device)
        distances = source.x.new_zeros(len(source.classes), len(target.classes))
        a_parts, b_parts = (_class_samples(*label_samples(data)) for data in (source, target))
        pairs = [(i, j) for i in a_parts for j in b_parts if i < j or not symmetric]
        if not pairs:
            return distances
        values = torch.stack([self._squared(a_parts[i], b_parts[j]) for i, j in pairs])
        rows, columns = torch.tensor(pairs).T
        distances = distances.index_put((rows, columns), values.to(distances.dtype))
        return distances + distances.T if symmetric else distances

    def _squared(self, a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> Tensor:
        """W₂² of two weighted clouds, with the gradient that the plans give (envelope theorem)."""
        # The debiased value of the inner problem, with the gradient of ⟨P, C⟩ at its fixed plans.
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


@dataclass(frozen=True, eq=False)
class KnownDistances(LabelCost):
    """A label cost with given distances."""

    distances: Tensor

    def __call__(self, source: LabeledDataset, target: LabeledDataset) -> Tensor:
        return self.distances


@dataclass(frozen=True)
class _OwnLabels(LabelCost):
    """A user-defined function of two datasets."""

    function: Callable[[LabeledDataset, LabeledDataset], Tensor]

    def __call__(self, source: LabeledDataset, target: LabeledDataset) -> Tensor:
        return torch.as_tensor(self.function(source, target))


def as_label_cost(label: object) -> LabelCost:
    """A label cost, or a function of two datasets as one."""
    if isinstance(label, LabelCost):
        return label
    check_methods(
        "label must be a label cost",
        label,
        ("__call__",),
        "Pass ad.Bures(), ad.NoLabels() or a function.",
    )
    return _OwnLabels(cast(Callable[[LabeledDataset, LabeledDataset], Tensor], label))
