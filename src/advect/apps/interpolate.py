"""Displacement interpolation of labeled datasets (McCann 1997): samples with soft labels, and label
laws along Bures geodesics.

A labeled sample is a point (x, α_y) of a space in which the ground cost of the paper, section 2.3, is
half a squared geodesic distance: straight lines in x, W₂ geodesics in α. A pair of the plan P becomes

    x_t = (1 − t) x_i + t x'_j ,   α_t = the law at t from α_y(i) to α_y'(j) ,   mass P_ij

so that with exact transport d(a, ρ_t) = t d(a, b) and d(ρ_t, b) = (1 − t) d(a, b), labels included."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from advect._util.checks import check_count, check_number
from advect._util.memory import MemoryLimit, check_room
from advect.apps.between_labels import SoftLabels, class_name, class_shares, with_soft_labels
from advect.apps.pages import write_page
from advect.cost import GroundCost
from advect.cost.ground import check_features
from advect.data.dataset import LabeledDataset
from advect.data.laws import Gaussians
from advect.data.laws.between import detached, geodesic
from advect.data.sampling import by_turns
from advect.errors import InputError
from advect.ot import ExactOT, Solver, check_solver
from advect.ot.plan import Plan
from advect.transport.distance import Distance, otdd
from advect.transport.transport import check_dataset

_NOTHING = 1e-12  # of the mass: what all pairs that are left out may have together


@dataclass(frozen=True, eq=False)
class Interpolated:
    """A dataset between two others, of ``ad.interpolate``.

    Attributes:
        t: how far it is from a (0) to b (1).
        dataset: the samples with the masses of their pairs as weights, the most likely label, and the
            label law of each pair of classes (``law``, ``law_index``). Classes are those of a, then
            those of b that have other names. At ½ the label is that of a.
        probabilities: soft labels over ``dataset.classes``, (n, k): 1 − t on the class of a, t on that
            of b, together where their names are equal. Rows of samples without a label sum to less.
        rows: (n, 2), which sample of a and which of b each one is between.
        distance: of the plan, as ``ad.otdd`` gives it.

    Example:
        >>> import advect as ad
        >>> a = ad.LabeledDataset([[0.0], [1.0], [8.0], [9.0]], ["low", "low", "high", "high"])
        >>> b = ad.LabeledDataset([[2.0], [3.0], [18.0], [19.0]], ["small", "small", "big", "big"])
        >>> half = ad.interpolate(a, b, 0.25)
        >>> half.dataset.x.flatten().tolist(), half.dataset.labels
        ([0.5, 1.5, 10.5, 11.5], ['low', 'low', 'high', 'high'])
        >>> half.dataset.classes, half.probabilities[0].tolist(), half.pairs
        (('high', 'low', 'big', 'small'), [0.0, 0.75, 0.0, 0.25], (('high', 'big'), ('low', 'small')))
    """

    t: float
    dataset: LabeledDataset
    probabilities: Tensor
    rows: Tensor
    distance: Distance

    def __repr__(self) -> str:
        return f"Interpolated(t={self.t:g}, {self.dataset!r})"

    @property
    def laws(self) -> Gaussians | None:
        """The label laws of the samples, one for each pair of laws that has mass: row
        ``dataset.law_index``. None where labels are missing.
        """
        return self.dataset.law

    @cached_property
    def pairs(self) -> tuple[tuple[Hashable, Hashable], ...]:
        """Pairs of classes that have mass, in their order in a and b; None for a missing label."""
        return tuple(
            (class_name(self.distance.source, one), class_name(self.distance.target, two))
            for one, two in self._codes.unique(dim=0).tolist()
        )

    @property
    def _codes(self) -> Tensor:
        one, two = self.distance.source.y, self.distance.target.y
        return torch.stack([one[self.rows[:, 0]], two[self.rows[:, 1]]], dim=1)

    def soft(self) -> LabeledDataset:
        """The same samples with their probabilities as labels, and laws of classes by these weights in
        place of those of pairs: for whoever goes on with labels in doubt.

        Example:
            >>> import advect as ad
            >>> a, b = ad.LabeledDataset([[0.0]], ["cat"]), ad.LabeledDataset([[1.0]], ["dog"])
            >>> ad.interpolate(a, b, 0.25).soft().probabilities.tolist()
            [[0.75, 0.25]]
        """
        return with_soft_labels(self.dataset, self.probabilities)

    def joined(self) -> LabeledDataset:
        """The same samples and laws with a class for each pair of classes, "3 → coat": for whoever
        needs one hard label that tells both.

        Example:
            >>> import advect as ad
            >>> a, b = ad.LabeledDataset([[0.0]], ["cat"]), ad.LabeledDataset([[1.0]], ["dog"])
            >>> ad.interpolate(a, b, 0.5).joined().classes
            ('cat → dog',)
        """
        names = [" → ".join("?" if n is None else str(n) for n in pair) for pair in self.pairs]
        classes = tuple(dict.fromkeys(names))
        which = self._codes.unique(dim=0, return_inverse=True)[1]
        places = torch.tensor([classes.index(name) for name in names], device=which.device)
        return self.dataset.replace(y=places[which], classes=classes)


@dataclass(frozen=True, eq=False)
class InterpolationPath(Sequence[Interpolated]):
    """Datasets along one plan from a to b, of ``ad.interpolate`` with several times: the same pairs at
    each.

    Attributes:
        states: an ``Interpolated`` for each time, in the order asked for.
        distance: of the plan.

    Example:
        >>> import advect as ad
        >>> a, b = ad.datasets.load("toy:gaussians?n=30"), ad.datasets.load("toy:gaussians?n=30&shift=9,0")
        >>> path = ad.interpolate(a, b, [0, 0.5, 1])
        >>> len(path), [state.t for state in path], len(path[1].dataset)
        (3, [0.0, 0.5, 1.0], 30)
        >>> [axes.get_title() for axes in path.figure().axes]
        ['t = 0', 't = 0.5', 't = 1']
    """

    states: tuple[Interpolated, ...]
    distance: Distance

    @overload
    def __getitem__(self, at: int) -> Interpolated: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Interpolated]: ...

    def __getitem__(self, at: int | slice) -> Interpolated | Sequence[Interpolated]:
        return self.states[at]

    def __len__(self) -> int:
        return len(self.states)

    def __iter__(self) -> Iterator[Interpolated]:
        return iter(self.states)

    def __repr__(self) -> str:
        times = ", ".join(f"{state.t:g}" for state in self)
        return f"InterpolationPath(t=[{times}], {self[0].dataset!r})"

    @property
    def datasets(self) -> list[LabeledDataset]:
        """The datasets in order."""
        return [state.dataset for state in self]

    def figure(self, **options: Any) -> Any:
        """The path as a picture: images in rows, points of the plane in panels, others by their
        principal components. See ``viz.between.path_figure`` for the options.
        """
        from advect.viz.between import path_figure

        times, soft = ([getattr(one, name) for one in self] for name in ("t", "probabilities"))
        return path_figure(self.datasets, times, soft, **options)

    def report(self, path: str | Path, **options: Any) -> Path:
        """Write a page: the picture, samples on their way class by class, and which classes are
        paired; see ``advect.report.write_path_report`` for the options.

        Example:
            >>> import tempfile, advect as ad
            >>> a, b = ad.datasets.load("toy:gaussians?n=30"), ad.datasets.load("toy:gaussians?n=30&shift=9,0")
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     ad.interpolate(a, b, [0, 0.5, 1]).report(f"{folder}/path.html").name
            'path.html'
        """
        return write_page("write_path_report", self, path, options)


@overload
def interpolate(
    a: LabeledDataset,
    b: LabeledDataset,
    t: float,
    *,
    cost: GroundCost | None = None,
    solver: Solver | None = None,
    size: int | None = None,
    generator: torch.Generator | None = None,
    memory_limit: MemoryLimit = None,
) -> Interpolated: ...


@overload
def interpolate(
    a: LabeledDataset,
    b: LabeledDataset,
    t: Sequence[float],
    *,
    cost: GroundCost | None = None,
    solver: Solver | None = None,
    size: int | None = None,
    generator: torch.Generator | None = None,
    memory_limit: MemoryLimit = None,
) -> InterpolationPath: ...


def interpolate(
    a: LabeledDataset,
    b: LabeledDataset,
    t: float | Sequence[float],
    *,
    cost: GroundCost | None = None,
    solver: Solver | None = None,
    size: int | None = None,
    generator: torch.Generator | None = None,
    memory_limit: MemoryLimit = None,
) -> Interpolated | InterpolationPath:
    """The dataset that is t of the way from a to b: samples on straight lines, soft labels, and label
    laws on Bures geodesics.

    For data that is between two tasks: a curriculum, an augmentation, a check of what a model does on
    the way. A flow goes there by small steps and may stop anywhere; this goes by one plan, and knows
    every point of the way at once. For three datasets and more use ``ad.barycenter``.

    With ``ExactOT`` the result is a as a measure at t = 0 and b at t = 1 (a sample of a that is split
    is there several times, with its weight in all), it has at most n + m − 1 samples, and it is on a
    geodesic: d(a, ρ_t) = t d(a, b), under the ground cost with squared Euclidean features and Gaussian
    label laws. Under another cost the plan is that of the cost, and lines are straight all the same.

    Args:
        a, b: datasets in one feature space (see ``harmonize``); names and numbers of classes may
            differ.
        t: from 0 to 1; a list of times gives a path.
        cost: the ground cost of the plan, as for ``otdd``.
        solver: by default ``ExactOT()``, for some thousands of samples. The plan of another solver is
            kept whole: an entropic one has n × m pairs, of which ``size`` draws some.
        size: draw so many pairs from the plan, in proportion to their mass and as evenly as possible,
            and give them equal weights; by default all pairs, with their masses as weights.
        generator: source of randomness of the draw.
        memory_limit: as for ``otdd``.

    Returns:
        An ``Interpolated`` (``dataset``, ``probabilities``, ``laws``, ``rows``, ``distance``), or an
        ``InterpolationPath`` of them.

    Raises:
        InputError: other feature spaces, times outside 0 … 1, labels that are missing while they cost
            something, more pairs than there is room for.

    Example:
        >>> import advect as ad
        >>> a = ad.datasets.load("toy:gaussians?n=60")
        >>> b = ad.datasets.load("toy:gaussians?n=40&shift=8,0&seed=1")
        >>> near = ad.interpolate(a, b, 0.25)
        >>> whole, part = (ad.otdd(a, other, solver=ad.ExactOT()).value for other in (b, near.dataset))
        >>> round(part / whole, 4), len(near.dataset) < 100
        (0.25, True)
    """
    times = _times(t)
    a, b = (check_dataset(name, data) for name, data in (("a", a), ("b", b)))
    check_features(a, b)
    solver = check_solver(solver or ExactOT())
    found = otdd(a, b, cost=cost, solver=solver, memory_limit=memory_limit)
    coupled = Coupled.of(a, b, found.divergence.cross.coupling).drawn(size, generator)
    coupled.check_room()
    states = tuple(Interpolated(time, *coupled.at(time), coupled.rows, found) for time in times)
    return states[0] if np.ndim(t) == 0 else InterpolationPath(states, found)


def _times(t: Any) -> list[float]:
    remedy = "Pass a number such as 0.5, or a list of them."
    try:
        times = [t] if np.ndim(t) == 0 else list(t)
    except (TypeError, ValueError):
        raise InputError("t must be a number from 0 to 1", repr(t), remedy) from None
    if not times:
        raise InputError("a path needs a time", "none", remedy)
    times = [check_number("t", time) for time in times]
    for time in times:
        if not 0 <= time <= 1:
            raise InputError("t must be from 0 to 1", time, "Beyond the ends there is no geodesic.")
    return times


@dataclass(frozen=True, eq=False)
class Coupled:
    """Pairs of samples of two datasets, with their masses."""

    a: LabeledDataset
    b: LabeledDataset
    rows: Tensor  # (p, 2)
    mass: Tensor  # (p,)

    @classmethod
    def of(cls, a: LabeledDataset, b: LabeledDataset, plan: Plan) -> Coupled:
        """The pairs of a plan that have mass."""
        i, j, mass = plan.entries()
        kept = mass > _NOTHING / (len(a) * len(b))
        i, j, mass = i[kept], j[kept], mass[kept]
        return cls(a, b, torch.stack([i, j], dim=1), mass / mass.sum())

    def drawn(self, size: int | None, generator: torch.Generator | None) -> Coupled:
        """So many pairs, with equal masses; all of them for None."""
        if size is None:
            return self
        some = by_turns(self.mass.cpu(), check_count("size", size), generator).sort()[0]
        some = some.to(self.rows.device)
        mass = torch.full_like(self.mass[some], 1 / len(some))
        return Coupled(self.a, self.b, self.rows[some], mass)

    def check_room(self) -> None:
        """An error for more pairs than memory has room for."""
        needed = 4 * len(self.rows) * self.a.dim * self.a.x.dtype.itemsize
        remedy = "Draw some, size=…, or take solver=ad.ExactOT(), whose plans have few pairs."
        check_room(f"{len(self.rows):,} pairs of samples", needed, remedy, self.a.x.device)

    def at(self, t: float) -> tuple[LabeledDataset, Tensor]:
        """The dataset at a time, and its soft labels."""
        a, b = self.a, self.b
        i, j = self.rows.unbind(dim=1)
        dtype = torch.promote_types(a.x.dtype, b.x.dtype)
        x = (1 - t) * a.x.detach()[i].double() + t * b.x.detach()[j].double()
        shares = [(1 - t) * class_shares(a, i), t * class_shares(b, j)]
        soft = SoftLabels.of(shares, [a.classes, b.classes])
        law, law_index = self._laws(t)
        dataset = a.replace(
            x=x.to(dtype),
            y=soft.most_likely(),
            weights=self.mass,
            classes=soft.classes,
            law=law,
            law_index=law_index,
            fixed_laws=False,
        )
        return dataset, soft.probabilities

    def _laws(self, t: float) -> tuple[Gaussians | None, Tensor | None]:
        """A law for each pair of laws that has mass, and which is whose."""
        if self._law_pairs is None:
            return None, None
        (one, two), index = self._law_pairs
        return geodesic(one, two, t), index

    @cached_property
    def _law_pairs(self) -> tuple[tuple[Gaussians, Gaussians], Tensor] | None:
        if not all(data.complete or data.law_index is not None for data in (self.a, self.b)):
            return None
        sides = [data.with_shared_laws() for data in (self.a, self.b)]
        own = torch.stack([data.law_rows[self.rows[:, at]] for at, data in enumerate(sides)], dim=1)
        pairs, index = own.unique(dim=0, return_inverse=True)
        one, two = (detached(data.laws()).take(pairs[:, at]) for at, data in enumerate(sides))
        return (one, two), index
