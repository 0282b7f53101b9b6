"""What moves in a flow: features, and label laws (paper, section 5.1; algorithms 1 to 3 of appendix C).

A dynamics defines which tensors of a dataset move and what a displacement does to them. It divides gradients
by masses: velocity = −gradient ÷ mass of the row. This is the only place where that happens.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from advect._util import InputError, check_count, check_known, one_or_more, refuse_if
from advect.classes.clustering import as_clusterer, relabel
from advect.cost.targets import column_variances
from advect.data import (
    LabeledDataset,
    law_rows,
    require_classes,
    require_labels,
    require_targets,
    with_class_laws,
)
from advect.data.laws import Gaussians
from advect.flows.law_motion import MOTIONS, LawMotion, Tensors

Bounds = tuple[float | Sequence[float] | None, float | Sequence[float] | None] | None


class Dynamics(ABC):
    """Base class of dynamics; ``FeatureDriven`` is the smallest example.

    Attributes:
        moves_laws: whether label laws move by themselves, so that label costs should compare them.
    """

    moves_laws: ClassVar[bool] = False

    @property
    def descends(self) -> bool:
        """Whether velocities are gradients of the value, so that small steps decrease it."""
        return True

    @abstractmethod
    def start(self, data: LabeledDataset) -> LabeledDataset:
        """The dataset with what moves made explicit (its laws)."""

    def with_units(self, rho: LabeledDataset, state: Tensors) -> LabeledDataset:
        """The started dataset in the units of the functional, whose initial state is given."""
        return rho

    @abstractmethod
    def parameters(self, rho: LabeledDataset) -> Tensors:
        """The tensors that move."""

    @abstractmethod
    def attach(self, rho: LabeledDataset, parameters: Tensors) -> LabeledDataset:
        """The dataset with other tensors in place of those that move, for differentiation."""

    @abstractmethod
    def velocity(self, rho: LabeledDataset, gradient: Tensors) -> Tensors:
        """−gradient ÷ mass, for each row."""

    @abstractmethod
    def move(self, rho: LabeledDataset, displacement: Tensors, step: int) -> LabeledDataset:
        """The dataset after a displacement."""


@dataclass(frozen=True, kw_only=True)
class _Features(Dynamics):
    """Features that move, within bounds and in some columns."""

    bounds: Bounds = None
    columns: Sequence[str | int] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounds", as_bounds(self.bounds))
        if self.columns is not None:
            object.__setattr__(self, "columns", tuple(one_or_more(self.columns)))

    def velocity(self, rho: LabeledDataset, gradient: Tensors) -> Tensors:
        velocity = {name: per_mass(value, rho.weights) for name, value in gradient.items()}
        return velocity if self.columns is None else self.without_fixed(rho, velocity)

    def without_fixed(self, rho: LabeledDataset, velocity: Tensors) -> Tensors:
        """A velocity that is 0 in the columns that are held fixed."""
        return velocity | {"x": velocity["x"].masked_fill(self.fixed(rho), 0)}

    def moved(self, rho: LabeledDataset, displacement: Tensors) -> Tensor:
        """The features after a displacement, within the bounds; fixed columns as they are."""
        x = bounded(rho.x + displacement["x"], self.bounds)
        return x if self.columns is None else torch.where(self.fixed(rho), rho.x, x)

    def fixed(self, rho: LabeledDataset) -> Tensor:
        """Which columns are held fixed, (d,)."""
        names, fixed = rho.columns or (), torch.ones(rho.dim, dtype=torch.bool)
        for column in self.columns or ():
            at: Any = names.index(str(column)) if str(column) in names else column
            refuse_if(
                not isinstance(at, int) or not 0 <= at < rho.dim,
                f"columns must be names of features, or positions below {rho.dim}",
                repr(column),
                f"Columns: {', '.join(names[:8])}." if names else "Pass positions.",
            )
            fixed[at] = False
        return fixed.to(rho.x.device)


@dataclass(frozen=True)
class FeatureDriven(_Features):
    """fd: features move, labels stay, and label laws are estimated from the features at each step (algorithm 1).

    Given laws of a dataset are ignored; ``JointFixedLabels`` starts from them.

    Args:
        through_laws: differentiate through the estimated laws too, which gives the gradient of the
            energy. With False a particle moves along T(x) − x as if laws were fixed; the value may
            then rise, and a flow does not control its steps.
        bounds: keep features in this range, (low, high). Each end is a number, a number for each
            column, or None if it is open.
        columns: names or positions of the columns that move (a name takes precedence); by default
            all. The others keep their values exactly.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[0.0, 1.0], [1.0, 2.0]], ["a", "b"], columns=["age", "dose"])
        >>> target = ad.LabeledDataset([[5.0, 5.0], [6.0, 6.0]], ["a", "b"], columns=["age", "dose"])
        >>> dose = ad.FeatureDriven(columns=["dose"], bounds=(0.0, 4.0))
        >>> ad.flow(data, ad.OTDD(target), dynamics=dose, n_steps=50).dataset.x.tolist()
        [[0.0, 4.0], [1.0, 4.0]]
    """

    through_laws: bool = True

    @property
    def descends(self) -> bool:
        return self.through_laws

    def start(self, data: LabeledDataset) -> LabeledDataset:
        return data._replace(law=None, law_index=None)

    def parameters(self, rho: LabeledDataset) -> Tensors:
        return {"x": rho.x}

    def attach(self, rho: LabeledDataset, parameters: Tensors) -> LabeledDataset:
        return rho._replace(x=parameters["x"], fixed_laws=not self.through_laws)

    def move(self, rho: LabeledDataset, displacement: Tensors, step: int) -> LabeledDataset:
        return rho._replace(x=self.moved(rho, displacement), fixed_laws=False)


class _Joint(_Features):
    """Common parts of the joint dynamics: features and laws move, each by its own gradient."""

    moves_laws = True
    laws: str | None

    @abstractmethod
    def law_form(self, dim: int) -> str:
        """The name of the form in which laws of so many dimensions move."""

    def motion(self, rho: LabeledDataset) -> LawMotion:
        return MOTIONS[self.law_form(rho.dim)]

    def parameters(self, rho: LabeledDataset) -> Tensors:
        return {"x": rho.x, **self.motion(rho).parameters(_laws(rho))}

    def attach(self, rho: LabeledDataset, parameters: Tensors) -> LabeledDataset:
        return rho._replace(x=parameters["x"], law=self.motion(rho).attach(_laws(rho), parameters))

    def velocity(self, rho: LabeledDataset, gradient: Tensors) -> Tensors:
        laws, motion = _laws(rho), self.motion(rho)
        # A law has the mass of its samples: of its class in jd-fl, of its particle in jd-vl.
        if rho.has_soft_labels:
            law_mass = rho.class_mass
        else:
            law_mass = rho.weights.new_zeros(len(laws))
            law_mass.index_add_(0, law_rows(rho), rho.weights)
        # The tensor of covariances may have several rows for each law, such as rows of a factor.
        masses = {"x": rho.weights, "mean": law_mass}
        masses[motion.name] = laws.covariance.each_row(law_mass)
        velocity = {name: per_mass(part, masses[name]) for name, part in gradient.items()}
        velocity = motion.velocity(laws, velocity)
        return velocity if self.columns is None else self.without_fixed(rho, velocity)

    def move(self, rho: LabeledDataset, displacement: Tensors, step: int) -> LabeledDataset:
        law = self.motion(rho).move(_laws(rho), displacement)
        return rho._replace(x=self.moved(rho, displacement), law=law)


@dataclass(frozen=True)
class JointFixedLabels(_Joint):
    """jd-fl: features and one law for each class move, each by its own gradient; labels stay (algorithm 2).

    The initial laws are those of the dataset if it has any, otherwise the moments of its samples. Laws of
    single samples (``law_index``) are joined by class first.

    Args:
        laws: the form in which covariances move. "factored" (default) takes the Wasserstein step
            on factors A with S = AᵀA, "bures" the same step on full matrices, "diagonal" on
            standard deviations. "euclidean" is the step of the paper, S + ΔS and the nearest
            positive semi-definite matrix; it is unstable for classes that are much tighter than
            those of the target.
        bounds, columns: as in ``FeatureDriven``. Laws move in all columns.

    Example:
        >>> import advect as ad
        >>> data = ad.JointFixedLabels().start(ad.LabeledDataset([[0.0], [2.0], [5.0]], ["a", "a", "b"]))
        >>> sorted(ad.JointFixedLabels().parameters(data))
        ['factor', 'mean', 'x']
    """

    laws: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.laws is not None:
            check_known("form of laws", self.laws, MOTIONS)

    def law_form(self, dim: int) -> str:
        return self.laws or "factored"

    def start(self, data: LabeledDataset) -> LabeledDataset:
        require_classes(data, "a flow of label laws")
        require_labels(data, "a flow of label laws")
        data = with_class_laws(data)
        return data._replace(law=self.motion(data).start(_first_laws(data)))


@dataclass(frozen=True)
class JointVariableLabels(_Joint):
    """jd-vl: features and one law for each particle move; labels are clusters of the laws (algorithm 3).

    Each particle starts with its law in the dataset (``law`` of its class, or at its ``law_index``) if
    there is one, otherwise with the moments of its class. A flow that starts where another jd-vl flow ended
    therefore continues with the same laws. The data that moves must have hard labels, since a particle has
    one law; the target may have soft labels.

    Args:
        clustering: how the laws are clustered: ``"kmeans"``, which keeps the number of classes;
            ``"dbscan"``, which finds it (radius 5 and 4 points as in the paper; ``"dbscan?eps=2"``
            for another radius); or any scikit-learn clusterer.
        laws: the form in which covariances move: "bures", "diagonal" or "euclidean", as in
            ``JointFixedLabels``. By default "bures" up to 8 dimensions and "diagonal" beyond,
            where n full matrices would not fit.
        every: cluster at every so many steps.
        bounds, columns: as in ``FeatureDriven``. Laws move in all columns.

    Example:
        >>> import advect as ad
        >>> data = ad.JointVariableLabels().start(ad.LabeledDataset([[0.0], [2.0], [5.0]], ["a", "a", "b"]))
        >>> len(data.law), data.law_index.tolist()
        (3, [0, 1, 2])
    """

    clustering: str | Any = "kmeans"
    laws: str | None = None
    every: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("every", self.every)
        as_clusterer(self.clustering)
        if self.laws is not None:
            # Factors of different classes differ in size, so particles cannot share one tensor.
            check_known("form of laws", self.laws, MOTIONS.keys() - {"factored"})

    def law_form(self, dim: int) -> str:
        return self.laws or ("bures" if dim <= 8 else "diagonal")

    def start(self, data: LabeledDataset) -> LabeledDataset:
        refuse_if(
            data.has_soft_labels,
            "jd-vl moves one label law for each particle",
            "soft labels, with laws of classes",
            "Use JointFixedLabels or FeatureDriven, or the likeliest labels: data.hard().",
        )
        require_classes(data, "a flow of label laws")
        # One law for each particle instead of one for each class (algorithm 3).
        laws = self.motion(data).start(_first_laws(data)).take(law_rows(data))
        return data._replace(law=laws, law_index=torch.arange(len(data), device=data.x.device))

    def move(self, rho: LabeledDataset, displacement: Tensors, step: int) -> LabeledDataset:
        moved = super().move(rho, displacement, step)
        if (step + 1) % self.every:
            return moved
        # Discrete labels are read off by clustering the laws (algorithm 3).
        y = relabel(_laws(moved), moved.y, self.clustering)
        classes, n_classes = moved.classes, int(y.max()) + 1
        # New classes are named by the smallest numbers that are not taken.
        free_names = [name for name in range(len(classes) + n_classes) if name not in classes]
        new_names = free_names[: max(0, n_classes - len(classes))]
        return moved._replace(y=y, classes=(*classes, *new_names))


def _laws(rho: LabeledDataset) -> Gaussians:
    assert rho.law is not None, "joint dynamics need label laws"
    return rho.law


def _first_laws(data: LabeledDataset) -> Gaussians:
    """The laws of a dataset, given or estimated from its samples, in the dtype of its features."""
    require_labels(data, "a flow of label laws")
    # Estimated from a copy, so that the dataset does not cache the estimate.
    return data._replace().laws().to(data.x.device, data.x.dtype)


def per_mass(gradient: Tensor, mass: Tensor) -> Tensor:
    """−gradient ÷ mass by rows; rows whose mass is too small for the dtype stay in place."""
    # F(ρ) = F(Σ w_i δ_(x_i)), so ∂F/∂x_i = w_i ∇δF/δρ(x_i). Dividing by w_i gives the velocity of eq. 15,
    # and ``step_size`` is flow time for any number of particles.
    smallest = torch.finfo(gradient.dtype).tiny  # the inverse of less is infinite in this dtype
    inverse = torch.where(mass >= smallest, 1 / mass.clamp_min(smallest), 0).to(gradient.dtype)
    return -gradient * inverse.reshape(-1, *[1] * (gradient.ndim - 1))


def bounded(x: Tensor, bounds: Bounds) -> Tensor:
    """Features clipped to the bounds, if there are any."""
    if bounds is None:
        return x
    for end in bounds:
        n = len(end) if isinstance(end, tuple) else x.shape[1]
        refuse_if(
            n != x.shape[1],
            f"bounds for each column must be {x.shape[1]} numbers",
            n,
            "Pass a number for all columns, or one for each.",
        )
    low, high = (torch.tensor(end, dtype=x.dtype, device=x.device) for end in bounds)
    return x.clamp(low, high)


def as_bounds(bounds: Any) -> Bounds:
    """(low, high) as numbers or tuples of a number for each column; an open end is infinite."""
    if bounds is None:
        return None
    with suppress(TypeError, ValueError):
        ends = [
            np.nan_to_num(np.asarray(end, float), nan=free, posinf=math.inf, neginf=-math.inf)
            for end, free in zip(bounds, (-math.inf, math.inf), strict=True)
        ]
        if (ends[0] < ends[1]).all():
            low, high = (tuple(end.ravel().tolist()) if end.ndim else float(end) for end in ends)
            return low, high
    raise InputError(
        "bounds must be (low, high) with low < high, each a number or one for each column",
        bounds,
        "Images usually have (0.0, 1.0).",
    )


@dataclass(frozen=True)
class JointTargets(_Features):
    """jd-y: features and continuous targets move, each by its own gradient.

    Under ``TargetValues`` a pair (x, y) moves along (T(x) − x, T(y) − y). Labels stay. Targets move in a
    unit relative to the features, so that step sizes mean the same for both: 1/√w of the first
    ``TargetValues`` in the functional, else √(q · variance of the target / variance of the features) of
    the source, 1 where either does not vary.

    Args:
        bounds, columns: as in ``FeatureDriven``; targets are not bounded.

    Example:
        >>> import advect as ad
        >>> source = ad.LabeledDataset([[0.0], [1.0]], targets=[10.0, 30.0])
        >>> target = ad.LabeledDataset([[5.0], [6.0]], targets=[70.0, 90.0])
        >>> energy = ad.OTDD(target, solver=ad.ExactOT())
        >>> result = ad.flow(source, energy, dynamics=ad.JointTargets(), integrator=ad.Euler(0.5), n_steps=1)
        >>> result.dataset.x.flatten().tolist(), result.dataset.targets.flatten().round().tolist()
        ([2.5, 3.5], [40.0, 60.0])
    """

    def start(self, data: LabeledDataset) -> LabeledDataset:
        targets = require_targets(data, "a flow of targets")
        # √(q · variance of the target / variance of the features)
        mass = data.weights.double()
        x_variance = column_variances(data.x.detach().double(), mass).sum()
        y_variances = column_variances(targets.detach().double(), mass)
        ratio = targets.shape[1] * y_variances / x_variance
        unit = torch.where((y_variances > 0) & (x_variance > 0), ratio, 1.0).sqrt()
        return data._replace(law=None, law_index=None, target_unit=unit)

    def with_units(self, rho: LabeledDataset, state: Tensors) -> LabeledDataset:
        scales = [v for key, v in state.items() if key.rpartition(".")[2] == "values_scale"]
        if not scales:
            return rho
        return rho._replace(target_unit=1 / scales[0].to(_unit(rho)))

    def parameters(self, rho: LabeledDataset) -> Tensors:
        return {"x": rho.x, "targets": require_targets(rho, "a flow of targets") / _unit(rho)}

    def attach(self, rho: LabeledDataset, parameters: Tensors) -> LabeledDataset:
        return rho._replace(x=parameters["x"], targets=parameters["targets"] * _unit(rho))

    def move(self, rho: LabeledDataset, displacement: Tensors, step: int) -> LabeledDataset:
        targets = require_targets(rho, "a flow of targets")
        targets = targets + displacement["targets"] * _unit(rho)
        return rho._replace(x=self.moved(rho, displacement), targets=targets)


def _unit(rho: LabeledDataset) -> Tensor:
    assert rho.target_unit is not None, "a flow of targets needs their unit"
    return rho.target_unit
