"""Barycenters of labeled datasets, labels included (Agueh and Carlier 2011), on a free support.

    min_ρ Σ_s w_s d(ρ, D_s)²        d² = min_P Σ P (‖x − x'‖² + label_weight · W₂²(α, α'))

by the fixed point of Cuturi and Doucet (2014) and Álvarez-Esteban et al. (2016): for given plans the
best place of a sample is the mean of the places that it goes to, and the best label law the Bures
barycenter of the laws that it goes to; for given samples the best plans are those of transport. With
exact transport neither raises the sum, and no step size is to be chosen, which is why it is not done by
a flow. Samples that begin with the same classes share one label law, as the samples of a class do.

It begins with the inductive mean (Sturm 2003): from the first dataset along the geodesic to the second,
from there to the third, …, which is the barycenter of two datasets, and of any number on a line."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from advect._util.checks import check_count, check_non_negative, check_weights
from advect._util.memory import MemoryLimit
from advect._util.progress import Progress, track
from advect.apps.between_labels import SoftLabels, class_shares, with_soft_labels
from advect.apps.interpolate import Coupled
from advect.apps.pages import write_page
from advect.cost import GroundCost
from advect.cost.ground import check_cost, check_features
from advect.cost.labels import n_laws
from advect.data.coerce import as_tensor
from advect.data.dataset import LabeledDataset
from advect.data.laws import Gaussians
from advect.data.laws.between import detached, geodesic, law_barycenters, replaced
from advect.errors import InputError
from advect.ot import ExactOT, Solver, check_solver
from advect.ot.plan import Plan, SparsePlan
from advect.transport.distance import otdd
from advect.transport.transport import check_dataset

_HALVINGS = 4  # of a step that does not lower the value
_SAME = 1e-9  # shares of classes that differ by less are as before


@dataclass(frozen=True, eq=False)
class Barycenter:
    """The dataset in the middle of several, of ``ad.barycenter``.

    Attributes:
        dataset: its samples, weights, most likely labels, and label laws (``law``, ``law_index``).
            Classes are those of all datasets, equal names once.
        probabilities: soft labels over ``dataset.classes``, (n, k): of dataset s the share w_s, on the
            classes that the plan sends a sample to.
        datasets, weights: what it is of; weights sum to one.
        distances: d(ρ, D_s) to each dataset; NaN where the weight is 0.
        plans: from the samples to those of each dataset, as something that multiplies,
            ``plan @ values``; None where the weight is 0.
        values: Σ w_s d(ρ, D_s)² at the start and after each step; it never rises.
        converged: whether the last step lowered the value by no more than ``tolerance`` of it, and all
            transport problems were solved. A fixed point is there then, which need not be the best.
        message: why it ended.
        cost, solver: what distances were taken with.

    Example:
        >>> import advect as ad
        >>> sets = [ad.LabeledDataset([[at], [at + 1.0]], ["a", "a"]) for at in (0.0, 3.0, 9.0)]
        >>> middle = ad.barycenter(sets)
        >>> middle.dataset.x.flatten().tolist(), round(middle.value, 6), middle.converged
        ([4.0, 5.0], 28.0, True)
    """

    dataset: LabeledDataset
    probabilities: Tensor
    datasets: tuple[LabeledDataset, ...]
    weights: Tensor
    distances: tuple[float, ...]
    plans: tuple[Plan | None, ...]
    values: tuple[float, ...]
    converged: bool
    message: str
    cost: GroundCost
    solver: Solver

    def __repr__(self) -> str:
        shares = ", ".join(f"{weight:.3g}" for weight in self.weights.tolist())
        state = "converged" if self.converged else "not converged"
        return f"Barycenter(weights=({shares}), value={self.value:.6g}, {state}, {self.dataset!r})"

    @property
    def value(self) -> float:
        """Σ w_s d(ρ, D_s)², label part included."""
        return self.values[-1]

    @cached_property
    def bound(self) -> float:
        """Σ_{s<r} w_s w_r d(D_s, D_r)²: with exact transport no dataset whatever has a smaller value,
        so that what is between ``bound`` and ``value`` is all that a better fixed point could gain.

        Equal for two datasets, and for any number on a line. It takes a distance for each pair.
        """
        pairs = itertools.combinations(range(len(self.datasets)), 2)
        total = 0.0
        for s, r in pairs:
            share = float(self.weights[s] * self.weights[r])
            if share > 0:
                one, two = self.datasets[s], self.datasets[r]
                total += share * otdd(one, two, cost=self.cost, solver=self.solver).value ** 2
        return total

    @property
    def n_iter(self) -> int:
        """Steps that were made."""
        return len(self.values) - 1

    @property
    def laws(self) -> Gaussians | None:
        """The label laws of the samples, row ``dataset.law_index``; None where labels are missing."""
        return self.dataset.law

    def soft(self) -> LabeledDataset:
        """The same samples with their probabilities as labels, and laws of classes by these weights.

        Example:
            >>> import advect as ad
            >>> a, b = ad.LabeledDataset([[0.0]], ["cat"]), ad.LabeledDataset([[1.0]], ["dog"])
            >>> ad.barycenter([a, b], [3, 1]).soft().probabilities.tolist()
            [[0.75, 0.25]]
        """
        return with_soft_labels(self.dataset, self.probabilities)

    def report(self, path: str | Path, **options: Any) -> Path:
        """Write a page: samples beside those of the datasets, classes, and the value step by step; see
        ``advect.report.write_barycenter_report`` for the options.

        Example:
            >>> import tempfile, advect as ad
            >>> sets = [ad.datasets.load(f"toy:gaussians?n=20&shift={at},0") for at in (0, 3, 9)]
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     ad.barycenter(sets).report(f"{folder}/middle.html").name
            'middle.html'
        """
        return write_page("write_barycenter_report", self, path, options)


def barycenter(
    datasets: Sequence[LabeledDataset],
    weights: Sequence[float] | Tensor | None = None,
    *,
    cost: GroundCost | None = None,
    solver: Solver | None = None,
    size: int | None = None,
    max_iterations: int = 20,
    tolerance: float = 1e-4,
    generator: torch.Generator | None = None,
    memory_limit: MemoryLimit = None,
    progress: Progress = None,
) -> Barycenter:
    """The dataset ρ that minimises Σ w_s d(ρ, D_s)² over its samples and label laws, with soft labels
    over the classes of all.

    For a dataset in the middle of several tasks, as one to pretrain on. Of two datasets it is
    ``ad.interpolate``; one dataset, or weights that are 0 but for one, give that dataset back.

    Args:
        datasets: one or more, in one feature space; names and numbers of classes may differ. The order
            decides where the fixed point begins, and so may change where it ends.
        weights: one for each, not negative; scaled to sum to one, by default equal. Datasets of weight
            0 give the names of their classes and nothing else.
        cost: as for ``otdd``, with squared Euclidean features.
        solver: by default ``ExactOT()``, with which the value falls at each step. With ``Sinkhorn``
            places are debiased, steps that do not lower the value are halved, and ``size`` is that of
            the largest dataset unless it is given.
        size: draw so many samples from the start, and give them equal weights: fewer samples are less
            work, and can be less near. By default there are at most Σ n_s − S + 1, among which there is
            a barycenter (Anderes et al. 2016).
        max_iterations: steps at most.
        tolerance: of the value: what a step may still take off when it has converged.
        generator: source of randomness of the draw.
        memory_limit: as for ``otdd``, of each problem.
        progress: None shows it on stderr when it takes long, False is silent, a function is called
            with (done, total).

    Raises:
        InputError: no dataset, other feature spaces, weights that do not fit, a feature cost under
            which means are not the best places.

    Example:
        >>> import advect as ad
        >>> a, b = (ad.datasets.load(f"toy:gaussians?n=30&shift={at},0&seed={at}") for at in (0, 8))
        >>> middle, way = ad.barycenter([a, b], [0.75, 0.25]), ad.interpolate(a, b, 0.25)
        >>> whole = way.distance.value ** 2
        >>> round(middle.value / whole, 6)        # w (1 - w) d(a, b)²
        0.1875
    """
    sets, shares = _checked(datasets, weights)
    cost = check_cost(cost) or GroundCost()
    if not cost.by_columns:
        raise InputError(
            "a barycenter needs squared Euclidean features, of which means are the best places",
            repr(cost.feature),
            "Embed the datasets first, or go from one to another with ad.interpolate.",
        )
    max_iterations = check_count("max_iterations", max_iterations, least=0)
    tolerance = check_non_negative("tolerance", tolerance)
    size = None if size is None else check_count("size", size)
    some = (shares > 0).nonzero()[:, 0].tolist()
    solver = check_solver(solver or ExactOT())
    problem = _Problem([sets[s] for s in some], shares[some], cost, solver, memory_limit)
    with track(max_iterations, "barycenter", progress) as advance:
        if len(some) == 1:
            state = problem.at_itself()
            values, converged, message = (state.value,), True, "one dataset is its own barycenter"
        else:
            state = problem.measured(*problem.start(size, generator))
            state, values, converged, message = problem.solved(
                state, max_iterations, tolerance, advance
            )
    soft = problem.soft(state, sets)
    dataset = state.rho.replace(y=soft.most_likely(), classes=soft.classes)
    found = dict(zip(some, state.legs, strict=True))
    legs = [found.get(s) for s in range(len(sets))]
    return Barycenter(
        dataset,
        soft.probabilities,
        sets,
        shares,
        tuple(math.nan if leg is None else math.sqrt(leg.squared) for leg in legs),
        tuple(None if leg is None else leg.plan for leg in legs),
        values,
        converged,
        message,
        cost,
        solver,
    )


def _checked(datasets: Any, weights: Any) -> tuple[tuple[LabeledDataset, ...], Tensor]:
    remedy = "Pass a list of datasets: ad.barycenter([a, b, c])."
    if not hasattr(datasets, "__iter__") or hasattr(datasets, "classes"):
        raise InputError("datasets must be a list", type(datasets).__name__, remedy)
    sets = tuple(check_dataset("each of datasets", data) for data in datasets)
    if not sets:
        raise InputError("a barycenter needs a dataset", "none", remedy)
    for data in sets[1:]:
        check_features(sets[0], data)
    shares = torch.full((len(sets),), 1 / len(sets), dtype=torch.float64)
    if weights is not None:
        try:
            shares = as_tensor(weights).double().cpu()
        except (TypeError, ValueError, RuntimeError):
            raise InputError(
                "weights must be numbers", repr(weights), "Pass one for each dataset."
            ) from None
        if shares.shape != (len(sets),):
            raise InputError(
                f"weights must be one number for each of the {len(sets)} datasets",
                f"shape {tuple(shares.shape)}",
                "Pass a list of that length, or None for equal ones.",
            )
        shares = check_weights("weights", shares, len(sets))
    return sets, shares


@dataclass(frozen=True, eq=False)
class _Leg:
    """From a dataset on its way to one of those given."""

    plan: Plan
    own: Plan | None  # within the dataset, where that is not to stay
    squared: float  # distance
    solved: bool


@dataclass(frozen=True, eq=False)
class _State:
    """A dataset on its way, and how far it is from all."""

    rho: LabeledDataset
    legs: tuple[_Leg, ...]
    value: float
    shares: Tensor | None = None  # of label laws, (laws of rho, laws of all), that it was made with

    @property
    def solved(self) -> bool:
        return all(leg.solved for leg in self.legs)


@dataclass(frozen=True, eq=False)
class _Problem:
    """The datasets that have weight."""

    sets: list[LabeledDataset]
    weights: Tensor
    cost: GroundCost
    solver: Solver
    memory_limit: MemoryLimit

    def start(
        self, size: int | None, generator: torch.Generator | None
    ) -> tuple[LabeledDataset, None]:
        """The inductive mean: along geodesics from one to the next."""
        rho, total = self.sets[0], float(self.weights[0])
        if size is None and not self.solver.stays:  # plans have too many pairs to keep
            size = max(len(data) for data in self.sets)
        for at in range(1, len(self.sets)):
            data, weight = self.sets[at], float(self.weights[at])
            total += weight
            coupled = Coupled.of(rho, data, self._leg(rho, data).plan)
            last = at == len(self.sets) - 1
            wanted = size if last or not self.solver.stays else None
            coupled = coupled.drawn(wanted, generator)
            coupled.check_room()
            rho = coupled.at(weight / total)[0]
        return rho, None

    def at_itself(self) -> _State:
        """One dataset, as it is."""
        (data,) = self.sets
        every = torch.arange(len(data), device=data.x.device).expand(2, -1)
        stay = torch.sparse_coo_tensor(
            every, data.weights, (len(data), len(data)), check_invariants=True
        )
        return _State(data, (_Leg(SparsePlan(stay.coalesce()), None, 0.0, True),), 0.0)

    def measured(self, rho: LabeledDataset, shares: Tensor | None) -> _State:
        legs = tuple(self._leg(rho, data) for data in self.sets)
        parts = zip(self.weights.tolist(), legs, strict=True)
        return _State(rho, legs, sum(weight * leg.squared for weight, leg in parts), shares)

    def _leg(self, rho: LabeledDataset, data: LabeledDataset) -> _Leg:
        if self.solver.stays and self.memory_limit is None:
            matrix = self.cost.between(rho, data).matrix(torch.float64)
            found = self.solver.solve(matrix, rho.weights, data.weights)
            return _Leg(found.coupling, None, 2 * max(0.0, found.value), found.converged)
        whole = otdd(rho, data, cost=self.cost, solver=self.solver, memory_limit=self.memory_limit)
        parts = whole.divergence
        own = None if self.solver.stays else parts.source.coupling
        return _Leg(parts.cross.coupling, own, 2 * whole.energy, parts.met)

    def solved(
        self, state: _State, most: int, tolerance: float, advance: Any
    ) -> tuple[_State, tuple[float, ...], bool, str]:
        """Steps until they take off no more than the tolerance; values, whether that was so, why."""
        values = [state.value]
        for _ in range(most):
            if state.value == 0:
                return state, tuple(values), state.solved, "nothing is left"
            wanted = self._wanted(state)
            better = self._better(state, *wanted)
            advance(1)
            if better is None:
                left = self._left(state, wanted[0])
                settled = left <= tolerance * state.value and state.solved
                why = "no step lowers the value"
                return state, tuple(values), settled, why
            gain = state.value - better.value
            state = better
            values.append(state.value)
            if gain <= tolerance * state.value:
                return state, tuple(values), state.solved, "the value has settled"
        return state, tuple(values), False, f"after max_iterations={most} steps"

    def _wanted(self, state: _State) -> tuple[Tensor, Gaussians | None, Tensor | None]:
        """Places and label laws that are best for the plans, and the shares of these laws."""
        rho = state.rho
        x = rho.x.double()
        centre = (rho.weights[:, None] * x).sum(dim=0)
        x = x - centre
        move = torch.zeros_like(x)
        for weight, data, leg in self._parts(state):
            there = (leg.plan @ (data.x.detach().double() - centre)) / (leg.plan @ _ones(data))
            here = x if leg.own is None else (leg.own @ x) / (leg.own @ _ones(rho))
            move += weight * (there - here)
        places = x + move + centre
        if rho.law is None:
            return places, rho.law, None
        shares = self._law_shares(state)
        return places, self._laws(state, shares), shares

    def _parts(self, state: _State) -> list[tuple[float, LabeledDataset, _Leg]]:
        return list(zip(self.weights.tolist(), self.sets, state.legs, strict=True))

    def _law_shares(self, state: _State) -> Tensor:
        """Of each label law of ρ, which laws of the datasets its samples go to, (g, K)."""
        rho, tables = state.rho, []
        assert rho.law is not None
        for weight, data, leg in self._parts(state):
            onto = one_hot(data.law_rows, n_laws(data)).double()
            by_sample = leg.plan @ onto
            by_law = onto.new_zeros(len(rho.law), onto.shape[1])
            by_law.index_add_(0, rho.law_rows, by_sample)
            tables.append(weight * by_law / by_law.sum(dim=1, keepdim=True))
        return torch.cat(tables, dim=1)

    def _laws(self, state: _State, shares: Tensor) -> Gaussians:
        """The barycenters; those whose shares have not changed stay."""
        before, known = state.rho.law, state.shares
        assert before is not None
        changed = torch.ones(len(shares), dtype=torch.bool, device=shares.device)
        if known is not None:
            changed = (shares - known).abs().amax(dim=1) > _SAME
        if not bool(changed.any()):
            return before
        laws = [detached(data.laws()) for data in self.sets]
        return replaced(before, changed, law_barycenters(laws, shares[changed])[0])

    def _better(
        self, state: _State, places: Tensor, laws: Gaussians | None, shares: Tensor | None
    ) -> _State | None:
        """The state after a step, halved until the value falls; None where it never does."""
        rho = state.rho
        for halving in range(_HALVINGS):
            step = 0.5**halving
            x = torch.lerp(rho.x.double(), places, step).to(rho.x.dtype)
            law = laws
            if halving and laws is not None and rho.law is not None and laws is not rho.law:
                law, shares = geodesic(rho.law, laws, step), None
            found = self.measured(rho.replace(x=x, law=law), shares)
            if found.value <= state.value:
                return found
        return None

    def _left(self, state: _State, places: Tensor) -> float:
        """About what a step would take off: the mean square of what samples would move."""
        gaps = (places - state.rho.x.double()).square().sum(dim=1)
        return float((state.rho.weights * gaps).sum())

    def soft(self, state: _State, sets: tuple[LabeledDataset, ...]) -> SoftLabels:
        """Shares of the classes of all datasets; those without weight give their names."""
        rho = state.rho
        if len(self.sets) == 1:
            shares = [class_shares(rho, torch.arange(len(rho), device=rho.x.device))]
        else:
            shares = []
            for weight, data, leg in self._parts(state):
                every = torch.arange(len(data), device=data.x.device)
                arrived = (leg.plan @ class_shares(data, every)) / (leg.plan @ _ones(data))
                shares.append(weight * arrived)
        # all names first, in their order
        every_name = [name for data in sets for name in data.classes]
        blank = shares[0].new_zeros(len(rho), len(every_name))
        return SoftLabels.of([blank, *shares], [every_name, *(data.classes for data in self.sets)])


def _ones(data: LabeledDataset) -> Tensor:
    """(n, 1) ones, float64."""
    return torch.ones(len(data), 1, dtype=torch.float64, device=data.x.device)
