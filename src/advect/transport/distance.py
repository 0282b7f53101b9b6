"""The Optimal Transport Dataset Distance (paper, eq. 5; Alvarez-Melis and Fusi 2020), debiased.

    energy(A, B) = S(A, B) = OT_c(A, B) − ½ OT_c(A, A) − ½ OT_c(B, B) ,     value = √(2 energy)

with the ground cost c(z, z') = ½(‖x − x'‖² + label_weight W₂²(α_y, α_y')). Under exact transport
the self terms vanish and the value is the metric W₂ on labeled samples."""

from __future__ import annotations

import math
import warnings
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from typing import Any, ClassVar

import torch
from torch import Tensor

from advect._util import InputError, MemoryLimit, Result, ScaleWarning, Table, refuse_if
from advect.cost import GroundCost, PairCost, cost_for
from advect.data import LabeledDataset, memberships, require_classes, require_labels
from advect.data.class_table import ClassTable
from advect.ot import Divergence, Sinkhorn, Solver, check_solver, debiased, envelope
from advect.ot.divergence import warn_unresolved
from advect.transport.class_tables import class_distances, left_by_class, match_classes
from advect.transport.notes import (
    Note,
    of_batches,
    of_matching,
    of_pair,
    of_reach,
    of_soft_labels,
    of_solver,
    of_unresolved,
)
from advect.transport.same import same_measure
from advect.transport.sampling_error import between_values, check_level, energy_error, value_error
from advect.transport.transport import Transport, check_dataset, threads_for

_MAX_INTERVAL = 1_000_000  # pairs of samples for which the summary has an interval
_MAX_CLASSES = 30  # in tables of the summary
MAX_PAIRS = 25_000_000  # pairs of samples from which a distance takes more than about a minute
_SECONDS_PER_PAIR = 2e-6


@dataclass(frozen=True, eq=False)
class Distance(Result):
    """The result of ``otdd``: the distance between two labeled datasets. Costly parts are computed on
    first use.

    Attributes:
        source, target: the datasets.
        divergence: the three solved transport problems, with their potentials and plans.
        notes: warnings in plain sentences, each with a remedy.

    Example:
        >>> import advect as ad
        >>> a = ad.LabeledDataset([[0.0], [1.0], [8.0], [9.0]], ["low", "low", "high", "high"])
        >>> b = ad.LabeledDataset([[1.0], [2.0], [9.0], [10.0]], ["small", "small", "big", "big"])
        >>> distance = ad.otdd(a, b, solver=ad.ExactOT())
        >>> round(distance.value, 6), round(distance.energy, 6)      # each sample, and each class, moves by 1
        (1.414214, 1.0)
        >>> print(distance.class_matching)
                big  small
        high    0.5      0
        low       0    0.5
    """

    source: LabeledDataset
    target: LabeledDataset
    divergence: Divergence
    pairs: tuple[PairCost, PairCost, PairCost]
    cost: GroundCost = field(default_factory=GroundCost)
    solver: Solver = field(default_factory=Sinkhorn)
    memory_limit: MemoryLimit = None

    @property
    def energy(self) -> float:
        """The ½-squared distance S(A, B): what a flow toward the target decreases.

        Exactly 0 between datasets that are the ``same`` and solved: what solvers find there is the
        rounding of costs that cancel."""
        cancels = self.same and self.converged and not self.divergence.sampled
        return 0.0 if cancels else self.divergence.value

    @property
    def value(self) -> float:
        """The distance √(2 energy), in the units of the features."""
        return math.sqrt(2 * self.energy)

    def __float__(self) -> float:
        return self.value

    def __repr__(self) -> str:
        state = "converged"
        if not self.converged:
            state = f"not converged, marginal error {self.marginal_error:.1e}"
        return f"Distance(value={self.value:.6g}, energy={self.energy:.6g} ± {self.error:.2g}, {state})"

    title: ClassVar[str] = "Dataset distance"

    def _summary(self) -> dict[str, Any]:
        summary: dict[str, Any] = {
            "value": self.value,
            "energy": self.energy,
            "error": self.error,
            "converged": self.converged,
        }
        if self.value > 0 and len(self.source) * len(self.target) <= _MAX_INTERVAL:
            with suppress(InputError):  # no first-order error
                low, high = self.interval()
                summary["95 % interval"] = f"{low:#.4g} to {high:#.4g}"
        return summary

    def _class_tables(self) -> dict[str, ClassTable]:
        try:
            return {"class distances": self.class_distances, "class matching": self.class_matching}
        except InputError:  # no labels to compare
            return {}

    def _tables(self) -> list[Table]:
        return [
            Table(
                title,
                ("", *map(str, table.columns)),
                [
                    (str(name), *map(float, row))
                    for name, row in zip(table.rows, table.values, strict=True)
                ],
            )
            for title, table in self._class_tables().items()
            if max(table.shape) <= _MAX_CLASSES
        ]

    @property
    def settings(self) -> dict[str, Any]:
        return {"cost": repr(self.cost), "solver": repr(self.solver)}

    def figures(self) -> dict[str, Any]:
        """Heat maps of class distances and of the class matching."""
        viz = import_module("advect.viz")
        return {title: viz.class_table(table) for title, table in self._class_tables().items()}

    @property
    def converged(self) -> bool:
        """Whether all three problems met their tolerance with an error below 1 % of the energy.

        A distance of 0 between different datasets has not converged. With ``MiniBatch`` it means
        that the batches are solved: see ``error`` and ``notes``."""
        if self.same:
            return self.divergence.met and self.divergence.value <= self.divergence.error
        return self.divergence.converged and not self.divergence.equal

    @property
    def error(self) -> float:
        """A bound of the error of ``energy`` at this ``epsilon``, rounding included.

        With ``MiniBatch`` it includes the standard error over batches, but not their bias."""
        if self.divergence.met and self.same:
            return self.energy
        spread = self.divergence.standard_error
        return self.divergence.error + (math.inf if math.isnan(spread) else spread)

    @cached_property
    def same(self) -> bool:
        """Whether the datasets are equal up to the order of samples and the names of classes (unless
        names matter: ``ByName``).
        """
        if self.source is self.target:
            return True
        near = self.divergence.value <= self.divergence.error
        if not (near or self.divergence.sampled):  # parts of one dataset are apart
            return False
        cost, sides = self.cost, [self.source, self.target]
        if any(data.targets is not None for data in sides):
            features = self.pairs[0].features
            points = zip(sides, (features.x, features.y), strict=True)  # targets are part of points
            sides = [data._replace(x=x, sample_shape=tuple(x.shape[1:])) for data, x in points]
        labels = {"labels": cost.has_labels, "names": cost.names_count}
        return same_measure(sides[0], sides[1], **labels)

    @cached_property
    def notes(self) -> tuple[Note, ...]:
        """Warnings about this distance, each with a remedy."""
        pair, sampled = self.pairs[0], self.divergence.sampled
        leaves_mass = self.divergence.cross.reach is not None
        soft = self.source.has_soft_labels or self.target.has_soft_labels
        return (
            *self._solver_notes(),
            *of_reach(self.mass_left),
            *(of_batches(self.divergence.standard_error) if sampled else ()),
            *(of_soft_labels(pair.labels.floor) if soft and pair.labels is not None else ()),
            *of_pair(self.source, self.target, self.cost, leaves_mass=leaves_mass),
            *of_matching(pair),
        )

    def _solver_notes(self) -> list[Note]:
        if self.converged or (self.divergence.met and self.same and self.divergence.sampled):
            return []
        if not (self.divergence.met or self.divergence.equal):
            return of_solver(1, 1)
        return of_unresolved(self.energy, self.error, self.epsilon, self.pairs[0].sizes.largest)

    def standard_error(self) -> float:
        """The standard deviation of the value over new samples of the same size of each class.

        A first-order estimate, from the dual potentials and the gradient through label laws. It costs
        about as much as the distance. It includes neither the error of the solver (``error``) nor the
        upward bias of small samples.

        Raises:
            InputError: no draw can differ from another (one sample in each class), or there is no
                first-order estimate (a ``reach``, ``MiniBatch``, soft labels).

        Example:
            >>> import torch, advect as ad
            >>> generator = torch.Generator().manual_seed(0)
            >>> a = ad.datasets.gaussians(60, generator=generator)
            >>> b = ad.datasets.gaussians(60, shift=(5.0, 0.0), generator=generator)
            >>> 0.05 < ad.otdd(a, b).standard_error() < 0.5
            True
        """
        error, _ = self.energy_spread
        return 0.0 if self.energy == self.error == 0 else value_error(self.value, error)

    @cached_property
    def energy_spread(self) -> tuple[float, float]:
        """The first-order standard error of ``energy`` and its degrees of freedom."""
        return energy_error(self.divergence, self.pairs)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """A confidence interval for the mean distance over new samples of the same size.

        It comes from the first-order standard error and the solver's error. Use it to see whether
        two distances differ by more than chance. Degrees of freedom for Student's t account for small
        classes and heavy tails; if rare samples dominate the mean, coverage is still lower. It does not include
        the bias of small samples. It is too wide for two samples of one distribution; use ``ad.drift``
        to test for this case.

        Args:
            level: confidence level.

        Example:
            >>> import torch, advect as ad
            >>> generator = torch.Generator().manual_seed(0)
            >>> a, b = (ad.datasets.gaussians(90, shift=(s, 0.0), generator=generator) for s in (0.0, 5.0))
            >>> distance = ad.otdd(a, b)
            >>> low, high = distance.interval()
            >>> low < distance.value < high, ad.otdd(a, a).interval()
            (True, (0.0, 0.0))
        """
        # an interval for the energy, then its root
        check_level(level)
        if self.energy == self.error == 0:
            return 0.0, 0.0
        error, freedom = self.energy_spread
        return between_values(2 * self.energy, check_level(level, freedom) * error + self.error)

    @property
    def marginal_error(self) -> float:
        """The largest marginal error among the three problems."""
        return max(part.marginal_error for part in self.divergence.solutions)

    @property
    def n_iter(self) -> int:
        """Iterations of the problem between source and target."""
        return self.divergence.cross.n_iter

    @property
    def epsilon(self) -> float:
        """The regularisation used, in units of the ground cost; 0 for exact transport."""
        return self.divergence.cross.epsilon

    @property
    def potentials(self) -> tuple[Tensor, Tensor]:
        """The dual potentials (f, g) between source and target."""
        return self.divergence.cross.potentials

    def plan(self) -> Tensor:
        """The transport plan (n, m) between source and target samples."""
        return self.divergence.cross.plan()

    @property
    def mass_left(self) -> float:
        """The share of the mass that the plan does not move; 0 unless the solver has a ``reach``.

        Example:
            >>> import advect as ad
            >>> a = ad.LabeledDataset([[0.0], [1.0], [90.0]], ["a", "a", "odd"])
            >>> b = ad.LabeledDataset([[0.0], [1.0]], ["a", "a"])
            >>> blind = ad.GroundCost(label=ad.NoLabels())
            >>> near = ad.otdd(a, b, cost=blind, solver=ad.Sinkhorn(epsilon=0.1, reach=2.0))
            >>> 0.15 < near.mass_left < 0.35, ad.otdd(a, b, cost=blind).mass_left
            (True, 0.0)
            >>> [round(near.left_in_source[name, "left"], 2) for name in ("a", "odd")]
            [-0.14, 0.33]
        """
        return self.divergence.mass_left

    @cached_property
    def left_in_source(self) -> ClassTable:
        """For each class of the source: its mass, the mass that the plan moves, and the rest."""
        coupling = self.divergence.cross.coupling
        return left_by_class(self.source, coupling @ torch.ones(len(self.target), 1).double())

    @cached_property
    def left_in_target(self) -> ClassTable:
        """For each class of the target: its mass, the mass that the plan moves to it, and the rest."""
        sums = self.divergence.cross.coupling.T @ torch.ones(len(self.source), 1).double()
        return left_by_class(self.target, sums)

    @property
    def contributions(self) -> tuple[Tensor, Tensor]:
        """The contribution of each source and target sample to the energy, which is their sum:
        a_i (f_i − f^aa_i) and b_j (g_j − g^bb_j).
        """
        return self.divergence.contributions

    @cached_property
    def loss(self) -> Tensor:
        """The energy as a tensor, differentiable in features and laws (envelope theorem).

        Values that were fitted to the datasets (a relative epsilon, for instance) are fixed.

        Example:
            >>> import torch, advect as ad
            >>> x = torch.tensor([[0.0], [1.0]], requires_grad=True)
            >>> a, b = ad.LabeledDataset(x, ["u", "u"]), ad.LabeledDataset([[2.0], [3.0]], ["v", "v"])
            >>> ad.otdd(a, b, cost=ad.GroundCost(label=ad.NoLabels()), solver=ad.ExactOT()).loss.backward()
            >>> x.grad.flatten().tolist()                # weight ½ each, two units from home
            [-1.0, -1.0]
        """
        parts = zip(self.pairs, self.divergence.solutions, strict=True)
        cross, source, target = (pair.contract(part.coupling).double() for pair, part in parts)
        return envelope(self.energy, debiased(cross, source, target))

    @cached_property
    def class_distances(self) -> ClassTable:
        """W₂ between the laws of each pair of classes (not squared), under the label cost in use.

        Laws of single samples are joined by class (``LabeledDataset.class_laws``). Classes without samples
        have NaN. ``NoLabels`` does not compare classes and raises an error.
        """
        refuse_if(
            not self.cost.label_cost.costs,
            "class distances need a label cost",
            "NoLabels",
            "Use GroundCost(label=ad.Bures()).",
        )
        return class_distances(self.pairs[0])

    @cached_property
    def class_matching(self) -> ClassTable:
        """Which class matches which: the exact W₂ coupling of class masses under
        ``class_distances`` (paper, section 5.4).

        As in the ground cost, distances are squared.
        """
        return match_classes(self.class_distances.values, self.source, self.target)

    @cached_property
    def class_coupling(self) -> ClassTable:
        """The mass that the plan sends from each class of the source to each class of the target."""
        for data in (self.source, self.target):
            require_classes(data, "class_coupling")
            require_labels(data, "class_coupling")
        first, second = memberships(self.source), memberships(self.target)
        mass = first.T @ (self.divergence.cross.coupling @ second).double()
        return ClassTable(mass.cpu().numpy(), self.source.classes, self.target.classes)


def otdd(
    source: LabeledDataset,
    target: LabeledDataset,
    *,
    cost: GroundCost | None = None,
    solver: Solver | None = None,
    memory_limit: MemoryLimit = None,
) -> Distance:
    """The Optimal Transport Dataset Distance between two labeled datasets.

        value² / 2 = OT_c(A, B) − ½ OT_c(A, A) − ½ OT_c(B, B)

    Label sets, sizes and numbers of classes may differ.

    Args:
        source, target: datasets in one feature space (see ``harmonize``).
        cost: the ground cost; by default squared Euclidean features and full Gaussian label laws,
            and ``TargetValues`` for continuous targets.
        solver: ``Sinkhorn(...)`` (by default with epsilon 1 % of the mean cost), ``ExactOT()``, or
            for many samples ``MiniBatch(...)``; see docs/solvers.md.
        memory_limit: bytes, or a text like "2GiB", that may be used in addition to the datasets; by default
            half of the free memory. Costs that do not fit are recomputed in blocks, which gives the same
            distance and takes longer.

    Returns:
        A ``Distance``: value, energy, error, class_distances, class_matching, plan(), potentials,
        contributions, converged. If float32 has too few digits, costs and problems are computed in
        float64.

    Raises:
        InputError: when the datasets do not share a feature space or a device.

    Example:
        >>> import advect as ad
        >>> source, target = ad.harmonize(ad.datasets.load("digits", n=200), ad.datasets.load("mnist", n=200))
        >>> distance = ad.otdd(source, target)
        >>> distance.converged, distance.class_distances.shape
        (True, (10, 10))
        >>> ad.otdd(source, source).value
        0.0
    """
    for name, data in (("source", source), ("target", target)):
        if not isinstance(data, LabeledDataset):
            check_dataset(name, data)
    solver = Sinkhorn() if solver is None else check_solver(solver)
    if (samples := len(source) * len(target)) > MAX_PAIRS and not solver.stochastic:
        warnings.warn(
            f"{len(source):,} × {len(target):,} samples take {samples * _SECONDS_PER_PAIR / 60:.0f} minutes or more. Pass "
            "solver=ad.MiniBatch(size=2000), or draw fewer samples: data.sample(5000).",
            ScaleWarning,
            stacklevel=2,
        )
    with threads_for(source.x, target.x):
        # Data-dependent parts of the cost (a penalty, a scale) are fitted once, then fixed.
        cost = cost_for(cost, source, target).fitted(source, target)
        transport = Transport(cost, solver, memory_limit)
        triple, prepared, pairs = transport.prepared(source, target)
        solved = triple.solve(prepared)
        found = Distance(source, target, solved, pairs, cost, solver, memory_limit)
        # All problems are solved, but their difference is not known to 1 %: float64 from the start.
        if solved.met and not found.converged:
            found = replace(found, divergence=transport.refined(source, target))
    if not (found.converged or found.same):
        warn_unresolved(found.divergence)
    return found
