"""What moves in a flow: features, and label laws (paper, section 5.1; algorithms 1 to 3 of appendix
C).

A dynamics says which tensors of a dataset move, which mass each row carries, and what a
displacement does to them. The mass factor of particle methods appears here and nowhere else:
velocity = −gradient ÷ mass of the row, so that ``step_size`` is flow time whatever n is. Costs and
functionals never ask which dynamics is running."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from advect._util.checks import check_count
from advect._util.facts import remembered
from advect.classes.clusterers import KMeans, as_clusterer
from advect.classes.relabel import relabel
from advect.data.dataset import LabeledDataset
from advect.data.laws import Gaussians
from advect.errors import InputError
from advect.flows.law_motion import (
    BuresMotion,
    DiagonalMotion,
    FactoredMotion,
    LawMotion,
    Tensors,
)

Bounds = tuple[float, float] | None


class Dynamics(ABC):
    """How a dataset may move; see ``FeatureDriven`` for the smallest. A class with all of these
    that is no subclass works too.
    """

    @property
    def descends(self) -> bool:
        """Whether velocities are those of the value that is shown: small steps make it fall."""
        return True

    @abstractmethod
    def start(self, data: LabeledDataset) -> LabeledDataset:
        """The dataset with what moves made explicit (its laws)."""

    def settled(self, rho: LabeledDataset, memory: Tensors) -> LabeledDataset:
        """The started dataset with what depends on what the functional begins with."""
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

    def mass(self, rho: LabeledDataset) -> Tensors:
        """The mass of each row of what moves: Σ mass ‖displacement‖² is a squared length in W₂."""
        return {
            name: rho.weights if name == "x" else rho.weights.new_ones(len(value))
            for name, value in self.parameters(rho).items()
        }

    def pulled(self, rho: LabeledDataset, displacement: Tensors, velocity: Tensors) -> Tensors:
        """A velocity after a displacement, as a change of that displacement."""
        return velocity


@dataclass(frozen=True)
class FeatureDriven(Dynamics):
    """fd: features move, labels stay, label laws are estimated anew from the features at each step.

    Laws that a dataset carries are not used: they would not move along. ``JointFixedLabels`` starts
    from them.

    Args:
        through_laws: let the gradient pass through the estimated laws too, as it must to be the
            gradient of the energy. With False a particle's velocity under ``OTDD`` is T(x) − x as
            if laws stood still: not the gradient of the value that is shown, which may then rise; a
            flow does not control its steps.
        bounds: keep features in this range, so that images stay images.

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
        return data.replace(law=None, law_index=None)

    def parameters(self, rho: LabeledDataset) -> Tensors:
        return {"x": rho.x}

    def attach(self, rho: LabeledDataset, parameters: Tensors) -> LabeledDataset:
        return rho.replace(x=parameters["x"], fixed_laws=not self.through_laws)

    def velocity(self, rho: LabeledDataset, gradient: Tensors) -> Tensors:
        return {"x": per_mass(gradient["x"], rho.weights)}

    def move(self, rho: LabeledDataset, displacement: Tensors, step: int) -> LabeledDataset:
        return rho.replace(x=bounded(rho.x + displacement["x"], self.bounds), fixed_laws=False)


class _Joint(Dynamics):
    """What both joint dynamics do: features and laws move, each by its own gradient."""

    bounds: Bounds

    @abstractmethod
    def motion(self, dim: int) -> LawMotion:
        """How laws of so many dimensions move."""

    def parameters(self, rho: LabeledDataset) -> Tensors:
        return {"x": rho.x, **self.motion(rho.dim).parameters(_laws(rho))}

    def attach(self, rho: LabeledDataset, parameters: Tensors) -> LabeledDataset:
        law = self.motion(rho.dim).attach(_laws(rho), parameters)
        return rho.replace(x=parameters["x"], law=law)

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
            if rho.has_doubt
            else rho.weights.new_zeros(len(laws)).index_add_(0, rho.law_rows, rho.weights)
        )
        names = motion.parameters(laws)
        return {"x": rho.weights, **{name: motion.mass(laws, mass, name) for name in names}}

    def pulled(self, rho: LabeledDataset, displacement: Tensors, velocity: Tensors) -> Tensors:
        return self.motion(rho.dim).pulled(_laws(rho), displacement, velocity)

    def move(self, rho: LabeledDataset, displacement: Tensors, step: int) -> LabeledDataset:
        law = self.motion(rho.dim).move(_laws(rho), displacement)
        return rho.replace(x=bounded(rho.x + displacement["x"], self.bounds), law=law)


@dataclass(frozen=True)
class JointFixedLabels(_Joint):
    """jd-fl: features and one law for each class move, each by its own gradient; labels stay.

    Laws start as those the dataset carries, otherwise as the moments of its samples. Laws of single
    samples (``law_index``), such as a jd-vl flow leaves, are joined by class first
    (``class_laws``).

    Args:
        laws: how covariances move; by default factored, which is the Wasserstein step:
            ``FactoredMotion()``, ``BuresMotion()`` (the same on full matrices),
            ``DiagonalMotion()``, or ``EuclideanMotion()``, the paper's step, projected: from classes
            tight against the target's it is unstable, since the slope of W₂² in S is as 1/√S.
        bounds: keep features in this range.

    Example:
        >>> import advect as ad
        >>> data = ad.JointFixedLabels().start(ad.LabeledDataset([[0.0], [2.0], [5.0]], ["a", "a", "b"]))
        >>> sorted(ad.JointFixedLabels().parameters(data))
        ['factor', 'mean', 'x']
    """

    laws: LawMotion | None = None
    bounds: Bounds = None

    def __post_init__(self) -> None:
        check_bounds(self.bounds)

    def motion(self, dim: int) -> LawMotion:
        return self.laws or FactoredMotion()

    def start(self, data: LabeledDataset) -> LabeledDataset:
        data.require_classes("a flow of label laws")
        data.require_labels("a flow of label laws")
        data = data.with_class_laws()
        return data.replace(law=self.motion(data.dim).start(_first_laws(data)))


@dataclass(frozen=True)
class JointVariableLabels(_Joint):
    """jd-vl: features and one law for each particle move; labels are read off by clustering the
    laws.

    Each particle starts with the law that the dataset carries for it (``law`` of its class, or at
    its ``law_index``), otherwise with the moments of its class. So a flow from where another jd-vl
    flow ended goes on with the laws as they were. Labels that are probabilities are an error, in the
    data that moves: a particle has one law here. A target may have them.

    Args:
        clustering: how labels are found: ``KMeans()``, ``DBSCAN()`` (the paper's radius 5, 4
            points), or any other that ``pseudo_labels`` takes: an object such as ``Ward()``, a name,
            a scikit-learn clusterer, a function of the points and the clusters before.
        laws: how covariances move; by default Bures up to 8 dimensions, diagonal beyond (n full
            matrices would not fit).
        every: cluster at every so many steps.
        bounds: keep features in this range.

    Example:
        >>> import advect as ad
        >>> data = ad.JointVariableLabels().start(ad.LabeledDataset([[0.0], [2.0], [5.0]], ["a", "a", "b"]))
        >>> len(data.law), data.law_index.tolist()
        (3, [0, 1, 2])
    """

    clustering: Any = field(default_factory=KMeans)
    laws: LawMotion | None = None
    every: int = 1
    bounds: Bounds = None

    def __post_init__(self) -> None:
        check_bounds(self.bounds)
        check_count("every", self.every)
        as_clusterer(self.clustering)
        if self.laws is not None and not self.laws.even:
            raise InputError(
                "one law for each particle needs equal sizes",
                type(self.laws).__name__,
                "Use DiagonalMotion or BuresMotion.",
            )

    def motion(self, dim: int) -> LawMotion:
        return self.laws or (BuresMotion() if dim <= 8 else DiagonalMotion())

    def start(self, data: LabeledDataset) -> LabeledDataset:
        if data.has_doubt:
            raise InputError(
                "jd-vl moves one label law for each particle",
                "labels that are probabilities, with laws of classes",
                "Use JointFixedLabels or FeatureDriven, or the likeliest labels: data.hard().",
            )
        data.require_classes("a flow of label laws")
        laws = self.motion(data.dim).start(_first_laws(data))
        each = laws.take(data.law_rows)
        return data.replace(law=each, law_index=torch.arange(len(data), device=data.x.device))

    def move(self, rho: LabeledDataset, displacement: Tensors, step: int) -> LabeledDataset:
        moved = super().move(rho, displacement, step)
        if (step + 1) % self.every:
            return moved
        y = relabel(_laws(moved), moved.y, self.clustering)
        classes, largest = moved.classes, remembered(y, "largest", lambda: int(y.max()))
        if largest >= len(classes):  # a class is born: name it by the next number that is free
            names = (name for name in range(len(classes) + largest + 1) if name not in classes)
            classes = (*classes, *(next(names) for _ in range(largest + 1 - len(classes))))
        return moved.replace(y=y, classes=classes)


def _laws(rho: LabeledDataset) -> Gaussians:
    assert rho.law is not None, "joint dynamics start with laws"
    return rho.law


def _first_laws(data: LabeledDataset) -> Gaussians:
    """The laws that a dataset carries, or those of its samples, in the dtype of its features."""
    data.require_labels("a flow of label laws")
    # of a copy, which does not keep the estimate
    return data.replace().laws().to(data.x.device, data.x.dtype)


def per_mass(gradient: Tensor, mass: Tensor) -> Tensor:
    """−gradient ÷ mass by rows; those with too little mass for the dtype stay where they are."""
    least = torch.finfo(
        gradient.dtype
    ).tiny  # the inverse of a smaller mass is infinite in this dtype
    inverse = torch.where(mass >= least, 1 / mass.clamp_min(least), 0).to(gradient.dtype)
    return -gradient * inverse.reshape(-1, *[1] * (gradient.ndim - 1))


def bounded(x: Tensor, bounds: Bounds) -> Tensor:
    """Features within bounds, if there are any."""
    return x if bounds is None else x.clamp(*bounds)


def check_bounds(bounds: Bounds) -> None:
    """Two numbers in their order, or None."""
    if bounds is not None and not (
        isinstance(bounds, (tuple, list)) and len(bounds) == 2 and bounds[0] < bounds[1]
    ):
        raise InputError(
            "bounds must be (low, high) with low < high", bounds, "Images usually have (0.0, 1.0)."
        )
