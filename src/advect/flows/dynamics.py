"""What moves in a flow: features, and label laws (paper, section 5.1; algorithms 1 to 3 of appendix C).

A dynamics defines which tensors of a dataset move, the mass of each row, and what a displacement does.
Velocity = −gradient ÷ mass of the row, here and nowhere else, so that ``step_size`` is flow time
whatever n is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from advect._util.checks import check_count, check_known, check_positive
from advect.classes.clustering import as_clusterer, relabel
from advect.cost.targets import column_variances
from advect.data.dataset import LabeledDataset, require_labels
from advect.data.labels import law_rows, require_classes, require_targets, with_class_laws
from advect.data.laws import Gaussians
from advect.errors import InputError
from advect.flows.law_motion import MOTIONS, LawMotion, Tensors

Bounds = tuple[float, float] | None


class Dynamics(ABC):
    """How a dataset may move; ``FeatureDriven`` is the smallest example. Subclassing is optional."""

    @property
    def descends(self) -> bool:
        """Whether velocities are gradients of the value, so that small steps decrease it."""
        return True

    @abstractmethod
    def start(self, data: LabeledDataset) -> LabeledDataset:
        """The dataset with what moves made explicit (its laws)."""

    def settled(self, rho: LabeledDataset, memory: Tensors) -> LabeledDataset:
        """The started dataset, given the initial state of the functional."""
        return rho

    @abstractmethod
    def parameters(self, rho: LabeledDataset) -> Tensors:
        """The tensors that move."""

    @abstractmethod
    def attach(self, rho: LabeledDataset, parameters: Tensors) -> LabeledDataset:
        """The dataset with given tensors in place of its own, for differentiation."""

    @abstractmethod
    def velocity(self, rho: LabeledDataset, gradient: Tensors) -> Tensors:
        """−gradient ÷ mass, for each row."""

    @abstractmethod
    def move(self, rho: LabeledDataset, displacement: Tensors, step: int) -> LabeledDataset:
        """The dataset after a displacement."""


@dataclass(frozen=True)
class FeatureDriven(Dynamics):
    """fd: features move, labels stay, and label laws are estimated from the features at each step.

    Laws that a dataset carries are ignored; ``JointFixedLabels`` starts from them.

    Args:
        through_laws: differentiate through the estimated laws too, which gives the gradient of the
            energy. With False a particle moves along T(x) − x as if laws were fixed; the value may
            then rise, and a flow does not control its steps.
        bounds: keep features in this range, for images.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[0.0], [1.0]], ["a", "b"])
        >>> list(ad.FeatureDriven().parameters(data))
        ['x']
    """

    through_laws: bool = True
    bounds: Bounds = None

    def __post_init__(self) -> None:
        check_bounds(self.bounds)

    @property
    def descends(self) -> bool:
        return self.through_laws

    def start(self, data: LabeledDataset) -> LabeledDataset:
        return data._replace(law=None, law_index=None)

    def parameters(self, rho: LabeledDataset) -> Tensors:
        return {"x": rho.x}

    def attach(self, rho: LabeledDataset, parameters: Tensors) -> LabeledDataset:
        return rho._replace(x=parameters["x"], fixed_laws=not self.through_laws)

    def velocity(self, rho: LabeledDataset, gradient: Tensors) -> Tensors:
        return {"x": per_mass(gradient["x"], rho.weights)}

    def move(self, rho: LabeledDataset, displacement: Tensors, step: int) -> LabeledDataset:
        return rho._replace(x=bounded(rho.x + displacement["x"], self.bounds), fixed_laws=False)


class _Joint(Dynamics):
    """Common parts of the joint dynamics: features and laws move, each by its own gradient."""

    laws: str | None
    bounds: Bounds

    @abstractmethod
    def law_form(self, dim: int) -> str:
        """The name of the form in which laws of so many dimensions move."""

    def motion(self, dim: int) -> LawMotion:
        return MOTIONS[self.law_form(dim)]

    def parameters(self, rho: LabeledDataset) -> Tensors:
        return {"x": rho.x, **self.motion(rho.dim).parameters(_laws(rho))}

    def attach(self, rho: LabeledDataset, parameters: Tensors) -> LabeledDataset:
        law = self.motion(rho.dim).attach(_laws(rho), parameters)
        return rho._replace(x=parameters["x"], law=law)

    def velocity(self, rho: LabeledDataset, gradient: Tensors) -> Tensors:
        mass = self.mass(rho)
        per_law = {
            name: per_mass(value, mass[name]) for name, value in gradient.items() if name != "x"
        }
        per_law = self.motion(rho.dim).velocity(_laws(rho), per_law)
        return {"x": per_mass(gradient["x"], rho.weights), **per_law}

    def mass(self, rho: LabeledDataset) -> Tensors:
        laws, motion = _laws(rho), self.motion(rho.dim)
        mass = (
            rho.class_mass
            if rho.has_soft_labels
            else rho.weights.new_zeros(len(laws)).index_add_(0, law_rows(rho), rho.weights)
        )
        names = motion.parameters(laws)
        return {"x": rho.weights, **{name: motion.mass(laws, mass, name) for name in names}}

    def move(self, rho: LabeledDataset, displacement: Tensors, step: int) -> LabeledDataset:
        law = self.motion(rho.dim).move(_laws(rho), displacement)
        return rho._replace(x=bounded(rho.x + displacement["x"], self.bounds), law=law)


@dataclass(frozen=True)
class JointFixedLabels(_Joint):
    """jd-fl: features and one law for each class move, each by its own gradient; labels stay.

    Laws start as those the dataset carries, otherwise as the moments of its samples. Laws of single
    samples (``law_index``) are joined by class first.

    Args:
        laws: the form in which covariances move. "factored" (default) takes the Wasserstein step
            on factors A with S = AᵀA, "bures" the same step on full matrices, "diagonal" on
            standard deviations. "euclidean" is the step of the paper, S + ΔS and the nearest
            positive semi-definite matrix; it is unstable for classes that are much tighter than
            those of the target.
        bounds: keep features in this range.

    Example:
        >>> import advect as ad
        >>> data = ad.JointFixedLabels().start(ad.LabeledDataset([[0.0], [2.0], [5.0]], ["a", "a", "b"]))
        >>> sorted(ad.JointFixedLabels().parameters(data))
        ['factor', 'mean', 'x']
    """

    laws: str | None = None
    bounds: Bounds = None

    def __post_init__(self) -> None:
        check_bounds(self.bounds)
        if self.laws is not None:
            check_known("form of laws", self.laws, MOTIONS)

    def law_form(self, dim: int) -> str:
        return self.laws or "factored"

    def start(self, data: LabeledDataset) -> LabeledDataset:
        require_classes(data, "a flow of label laws")
        require_labels(data, "a flow of label laws")
        data = with_class_laws(data)
        return data._replace(law=self.motion(data.dim).start(_first_laws(data)))


@dataclass(frozen=True)
class JointVariableLabels(_Joint):
    """jd-vl: features and one law for each particle move; labels are read off by clustering the
    laws.

    Each particle starts with the law that the dataset carries for it (``law`` of its class, or at
    its ``law_index``), otherwise with the moments of its class. So a flow from where another jd-vl
    flow ended goes on with the laws as they were. Labels that are probabilities are an error, in the
    data that moves: a particle has one law here. A target may have them.

    Args:
        clustering: how the laws are clustered: ``"kmeans"``, which keeps the number of classes;
            ``"dbscan"``, which finds it (radius 5 and 4 points as in the paper; ``"dbscan?eps=2"``
            for another radius); or any scikit-learn clusterer.
        laws: the form in which covariances move: "bures", "diagonal" or "euclidean", as in
            ``JointFixedLabels``. By default "bures" up to 8 dimensions and "diagonal" beyond,
            where n full matrices would not fit.
        every: cluster at every so many steps.
        bounds: keep features in this range.

    Example:
        >>> import advect as ad
        >>> data = ad.JointVariableLabels().start(ad.LabeledDataset([[0.0], [2.0], [5.0]], ["a", "a", "b"]))
        >>> len(data.law), data.law_index.tolist()
        (3, [0, 1, 2])
    """

    clustering: str | Any = "kmeans"
    laws: str | None = None
    every: int = 1
    bounds: Bounds = None

    def __post_init__(self) -> None:
        check_bounds(self.bounds)
        check_count("every", self.every)
        as_clusterer(self.clustering)
        if self.laws is not None:
            # factors of different classes differ in size, so particles cannot share one tensor
            check_known("form of laws", self.laws, [each for each in MOTIONS if each != "factored"])

    def law_form(self, dim: int) -> str:
        return self.laws or ("bures" if dim <= 8 else "diagonal")

    def start(self, data: LabeledDataset) -> LabeledDataset:
        if data.has_soft_labels:
            raise InputError(
                "jd-vl moves one label law for each particle",
                "labels that are probabilities, with laws of classes",
                "Use JointFixedLabels or FeatureDriven, or the likeliest labels: data.hard().",
            )
        require_classes(data, "a flow of label laws")
        laws = self.motion(data.dim).start(_first_laws(data))
        each = laws.take(law_rows(data))
        return data._replace(law=each, law_index=torch.arange(len(data), device=data.x.device))

    def move(self, rho: LabeledDataset, displacement: Tensors, step: int) -> LabeledDataset:
        moved = super().move(rho, displacement, step)
        if (step + 1) % self.every:
            return moved
        y = relabel(_laws(moved), moved.y, self.clustering)
        classes, largest = moved.classes, int(y.max())
        if largest >= len(classes):  # a class is born: name it by the next number that is free
            names = (name for name in range(len(classes) + largest + 1) if name not in classes)
            classes = (*classes, *(next(names) for _ in range(largest + 1 - len(classes))))
        return moved._replace(y=y, classes=classes)


def _laws(rho: LabeledDataset) -> Gaussians:
    assert rho.law is not None, "joint dynamics start with laws"
    return rho.law


def _first_laws(data: LabeledDataset) -> Gaussians:
    """The laws that a dataset carries, or those of its samples, in the dtype of its features."""
    require_labels(data, "a flow of label laws")
    # of a copy, which does not keep the estimate
    return data._replace().laws().to(data.x.device, data.x.dtype)


def per_mass(gradient: Tensor, mass: Tensor) -> Tensor:
    """−gradient ÷ mass by rows; rows whose mass is too small for the dtype stay in place."""
    least = torch.finfo(
        gradient.dtype
    ).tiny  # the inverse of a smaller mass is infinite in this dtype
    inverse = torch.where(mass >= least, 1 / mass.clamp_min(least), 0).to(gradient.dtype)
    return -gradient * inverse.reshape(-1, *[1] * (gradient.ndim - 1))


def bounded(x: Tensor, bounds: Bounds) -> Tensor:
    """Features clipped to the bounds, if there are any."""
    return x if bounds is None else x.clamp(*bounds)


def check_bounds(bounds: Bounds) -> None:
    """Two numbers in their order, or None."""
    if bounds is not None and not (
        isinstance(bounds, (tuple, list)) and len(bounds) == 2 and bounds[0] < bounds[1]
    ):
        raise InputError(
            "bounds must be (low, high) with low < high", bounds, "Images usually have (0.0, 1.0)."
        )


@dataclass(frozen=True)
class JointTargets(Dynamics):
    """jd-y: features and continuous targets move, each by its own gradient.

    Under ``TargetValues`` a pair (x, y) moves along (T(x) − x, T(y) − y). Targets move in units of
    ``unit``, so that step sizes mean the same for both. Labels stay.

    Args:
        unit: of all targets, relative to the features; by default 1/√w of the first
            ``TargetValues`` in the functional, else √(q · variance of the target / variance of the
            features) of the source, 1 where either does not vary.
        bounds: keep features in this range.

    Example:
        >>> import advect as ad
        >>> source = ad.LabeledDataset([[0.0], [1.0]], targets=[10.0, 30.0])
        >>> target = ad.LabeledDataset([[5.0], [6.0]], targets=[70.0, 90.0])
        >>> energy = ad.OTDD(target, solver=ad.ExactOT())
        >>> result = ad.flow(source, energy, dynamics=ad.JointTargets(), integrator=ad.Euler(0.5), n_steps=1)
        >>> result.dataset.x.flatten().tolist(), result.dataset.targets.flatten().round().tolist()
        ([2.5, 3.5], [40.0, 60.0])
    """

    unit: float | None = None
    bounds: Bounds = None

    def __post_init__(self) -> None:
        check_bounds(self.bounds)
        if self.unit is not None:
            check_positive("unit", self.unit)

    def start(self, data: LabeledDataset) -> LabeledDataset:
        targets = require_targets(data, "a flow of targets")
        unit = None if self.unit is None else torch.full_like(targets[0].detach(), self.unit)
        unit = _unit(data, targets) if unit is None else unit
        return data._replace(law=None, law_index=None, target_unit=unit)

    def settled(self, rho: LabeledDataset, memory: Tensors) -> LabeledDataset:
        scales = [v for key, v in memory.items() if key.rpartition(".")[2] == "values_scale"]
        if self.unit is not None or not scales:
            return rho
        return rho._replace(target_unit=1 / scales[0].to(_units(rho)))

    def parameters(self, rho: LabeledDataset) -> Tensors:
        return {"x": rho.x, "targets": _targets(rho) / _units(rho)}

    def attach(self, rho: LabeledDataset, parameters: Tensors) -> LabeledDataset:
        return rho._replace(x=parameters["x"], targets=parameters["targets"] * _units(rho))

    def velocity(self, rho: LabeledDataset, gradient: Tensors) -> Tensors:
        return {name: per_mass(value, rho.weights) for name, value in gradient.items()}

    def move(self, rho: LabeledDataset, displacement: Tensors, step: int) -> LabeledDataset:
        targets = _targets(rho) + displacement["targets"] * _units(rho)
        return rho._replace(x=bounded(rho.x + displacement["x"], self.bounds), targets=targets)


def _targets(rho: LabeledDataset) -> Tensor:
    return require_targets(rho, "a flow of targets")


def _units(rho: LabeledDataset) -> Tensor:
    assert rho.target_unit is not None, "a flow of targets starts with their unit"
    return rho.target_unit


def _unit(data: LabeledDataset, targets: Tensor) -> Tensor:
    mass = data.weights.double()
    x, y = (column_variances(part.detach().double(), mass) for part in (data.x, targets))
    ratio = targets.shape[1] * y / x.sum()
    return torch.where((y > 0) & (x.sum() > 0), ratio, 1.0).sqrt()
