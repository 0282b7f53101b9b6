"""Displacement interpolation of labeled datasets (McCann 1997), labels included.

A labeled sample is a point (x, α_y) of a space in which the ground cost of the paper, section 2.3, is
half a squared geodesic distance: straight lines in x, W₂ geodesics in α. A pair of the plan P becomes

    x_t = (1 − t) x_i + t x'_j ,   α_t = the law at t from α_y(i) to α_y'(j) ,   mass P_ij

so that with exact transport d(a, ρ_t) = t d(a, b) and d(ρ_t, b) = (1 − t) d(a, b).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advect._util import (
    MemoryLimit,
    Result,
    Table,
    check_count,
    check_number,
    check_room,
    refuse_if,
)
from advect.apps.training import sample_figures
from advect.cost import GroundCost, check_features
from advect.data import LabeledDataset, law_rows, memberships, with_shared_laws
from advect.data.laws import Gaussians, detached, geodesic
from advect.data.sampling import by_turns
from advect.ot import ExactOT, Solver, check_solver
from advect.transport.distance import Distance, otdd
from advect.transport.transport import check_dataset

_MIN_MASS = 1e-12  # total mass of the pairs that may be left out
_TIE = 1e-9  # probabilities that differ by less are equal


@dataclass(frozen=True, eq=False)
class Interpolated(Result):
    """A dataset between two others, of ``ad.interpolate``.

    Attributes:
        t: position between a (t = 0) and b (t = 1).
        dataset: the samples, weighted by the masses of their pairs, with the most likely label and a
            label law for each pair of classes. Its classes are those of a, then the others of b.
        probabilities: soft labels (n, k): 1 − t on the class of a, t on that of b.
        rows: (n, 2), the sample of a and the sample of b that each one is between.
        distance: the ``Distance`` whose plan pairs the samples.
    """

    title = "Interpolation between datasets"
    t: float
    dataset: LabeledDataset
    probabilities: Tensor
    rows: Tensor
    distance: Distance

    @property
    def notes(self) -> tuple[str, ...]:
        late = not (self.distance.converged or self.distance.same)
        return ("The transport problem has not converged.",) if late else ()

    def _summary(self) -> dict[str, Any]:
        return {
            "t": self.t,
            "samples": len(self.dataset),
            "samples of a": len(self.distance.source),
            "samples of b": len(self.distance.target),
            "distance of a and b": self.distance.value,
        }

    def _tables(self) -> list[Table]:
        masses = self._class_pairs[1].bincount(self.dataset.weights.double()).tolist()
        rows = [
            ["no label" if name is None else str(name) for name in pair] + [mass]
            for pair, mass in zip(self.pairs, masses, strict=True)
        ]
        return [Table("Pairs of classes", ("class of a", "class of b", "mass"), rows)]

    def figures(self) -> dict[str, Any]:
        i, j = self.rows.unbind(dim=1)
        ends = self.distance.source.subset(i), self.distance.target.subset(j)
        frames = [ends[0], self.dataset.replace(law=None, law_index=None), ends[1]]
        return sample_figures("Pairs of samples", frames, ["a", f"t = {self.t:g}", "b"])

    @property
    def pairs(self) -> tuple[tuple[Hashable, Hashable], ...]:
        """Pairs of classes with mass, in their order in a and b; None for a missing label."""
        sides = self.distance.source.classes, self.distance.target.classes
        names, other_names = ([*side, None] for side in sides)  # position −1 is a missing label
        return tuple((names[i], other_names[j]) for i, j in self._class_pairs[0].tolist())

    @cached_property
    def _class_pairs(self) -> tuple[Tensor, Tensor]:
        """Unique pairs of class positions, and the pair of each sample."""
        i, j = self.rows.unbind(dim=1)
        codes = torch.stack([self.distance.source.y[i], self.distance.target.y[j]], dim=1)
        return codes.unique(dim=0, return_inverse=True)


def interpolate(
    a: LabeledDataset,
    b: LabeledDataset,
    t: float | Sequence[float],
    *,
    cost: GroundCost | None = None,
    solver: Solver | None = None,
    size: int | None = None,
    seed: int | torch.Generator | None = None,
    memory_limit: MemoryLimit = None,
) -> Any:
    """The dataset at position t from a to b: samples on straight lines, soft labels, and label laws on
    Bures geodesics.

    Use it for a curriculum, for augmentation, or to see what a model does between two tasks. With
    ``ExactOT`` the result is a geodesic, d(a, ρ_t) = t d(a, b), for squared Euclidean features and
    Gaussian label laws; ρ_0 is a, ρ_1 is b, and there are at most n + m − 1 samples.

    Args:
        a, b: datasets in one feature space (``ad.harmonize``); classes may differ.
        t: from 0 to 1; a list of positions gives a list of results with the same pairs.
        cost: the ground cost of the plan, as for ``otdd``.
        solver: by default ``ExactOT()``, for some thousands of samples. The plan of another solver is
            used as it is: an entropic one has n × m pairs, of which ``size`` draws some.
        size: draw so many pairs, in proportion to their mass, and give them equal weights; by default
            all pairs, with their masses as weights.
        seed: seed or generator of the draw.
        memory_limit: as for ``otdd``.

    Returns:
        An ``Interpolated`` result, or a list of them.

    Example:
        >>> import advect as ad
        >>> a = ad.LabeledDataset([[0.0], [1.0], [8.0], [9.0]], ["low", "low", "high", "high"])
        >>> b = ad.LabeledDataset([[2.0], [3.0], [18.0], [19.0]], ["small", "small", "big", "big"])
        >>> quarter = ad.interpolate(a, b, 0.25)
        >>> quarter.dataset.x.flatten().tolist(), quarter.dataset.labels
        ([0.5, 1.5, 10.5, 11.5], ['low', 'low', 'high', 'high'])
        >>> quarter.pairs, quarter.probabilities[0].tolist()
        ((('high', 'big'), ('low', 'small')), [0.0, 0.75, 0.0, 0.25])
    """
    positions = _positions(t)
    a, b = (check_dataset(name, data) for name, data in (("a", a), ("b", b)))
    check_features(a, b)
    solver = check_solver(solver or ExactOT())
    distance = otdd(a, b, cost=cost, solver=solver, memory_limit=memory_limit)
    i, j, mass = distance.divergence.cross.coupling.entries()
    massive = mass > _MIN_MASS / (len(a) * len(b))
    rows, mass = torch.stack([i[massive], j[massive]], dim=1), mass[massive]
    mass = mass / mass.sum()
    if size is not None:
        generator = torch.Generator().manual_seed(seed) if isinstance(seed, int) else seed
        drawn = by_turns(mass.cpu(), check_count("size", size), generator).sort()[0]
        rows = rows[drawn.to(rows.device)]
        mass = torch.full((len(rows),), 1 / len(rows), dtype=mass.dtype, device=mass.device)
    check_room(
        f"{len(rows):,} pairs of samples",
        4 * len(rows) * a.dim * a.x.dtype.itemsize,
        "Draw some with size=…, or use solver=ad.ExactOT(), whose plans have few pairs.",
        a.x.device,
    )
    laws = _law_pairs(a, b, rows)
    path = [
        Interpolated(at, *_between(a, b, rows, mass, laws, at), rows, distance) for at in positions
    ]
    return path[0] if np.ndim(t) == 0 else path


def _positions(t: Any) -> list[float]:
    positions = [check_number("t", value) for value in ([t] if np.ndim(t) == 0 else t)]
    refuse_if(
        not (positions and min(positions) >= 0 and max(positions) <= 1),
        "t must be a number from 0 to 1, or several",
        repr(t),
        "Pass a number such as 0.5, or a list of them.",
    )
    return positions


def _law_pairs(
    a: LabeledDataset, b: LabeledDataset, rows: Tensor
) -> tuple[Gaussians, Gaussians, Tensor] | None:
    """The laws at both ends of each pair of laws with mass, and the pair of each sample."""
    if not all(bool(data.labeled.all()) or data.law_index is not None for data in (a, b)):
        return None
    sides = [with_shared_laws(data) for data in (a, b)]
    codes = torch.stack([law_rows(data)[rows[:, at]] for at, data in enumerate(sides)], dim=1)
    pairs, index = codes.unique(dim=0, return_inverse=True)
    start, end = (detached(data.laws()).take(pairs[:, at]) for at, data in enumerate(sides))
    return start, end, index


def _between(
    a: LabeledDataset,
    b: LabeledDataset,
    rows: Tensor,
    mass: Tensor,
    laws: tuple[Gaussians, Gaussians, Tensor] | None,
    t: float,
) -> tuple[LabeledDataset, Tensor]:
    """The dataset at t, and its soft labels."""
    i, j = rows.unbind(dim=1)
    x = (1 - t) * a.x.detach()[i].double() + t * b.x.detach()[j].double()
    classes = tuple(dict.fromkeys([*a.classes, *b.classes]))
    probabilities = x.new_zeros(len(x), len(classes))
    for share, data, at in ((1 - t, a, i), (t, b, j)):
        columns = torch.tensor([classes.index(name) for name in data.classes], dtype=torch.long)
        probabilities.index_add_(1, columns.to(x.device), share * _soft_labels(data, at))
    dataset = a.replace(
        x=x.to(torch.promote_types(a.x.dtype, b.x.dtype)),
        y=_most_likely(probabilities),
        weights=mass,
        classes=classes,
        law=None if laws is None else geodesic(laws[0], laws[1], t),
        law_index=None if laws is None else laws[2],
        fixed_laws=False,
    )
    return dataset, probabilities


def _soft_labels(data: LabeledDataset, rows: Tensor) -> Tensor:
    """Class probabilities of some samples, (n, k); zeros where there is no label."""
    if data.has_soft_labels:
        return memberships(data)[rows].double()
    return (data.y[rows, None] == torch.arange(len(data.classes), device=data.y.device)).double()


def _most_likely(probabilities: Tensor) -> Tensor:
    """The class with the largest probability, the first of equal ones; −1 where more is unknown."""
    every = torch.cat([probabilities, 1 - probabilities.sum(dim=1, keepdim=True)], dim=1)
    first = (every >= every.amax(dim=1, keepdim=True) - _TIE).to(torch.int64).argmax(dim=1)
    return torch.where(first == probabilities.shape[1], -1, first)
