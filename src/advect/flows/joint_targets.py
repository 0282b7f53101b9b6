"""Features and continuous targets move together."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from advect._util.checks import check_positive
from advect.data.dataset import LabeledDataset
from advect.flows.dynamics import Bounds, Dynamics, bounded, check_bounds, per_mass
from advect.flows.law_motion import Tensors


@dataclass(frozen=True)
class JointTargets(Dynamics):
    """jd-y: features and continuous targets move, each by its own gradient.

    For tables whose targets are to become those of the target dataset too, in its units. Under
    ``TargetValues`` a pair (x, y) goes where its mass is carried, (T(x) − x, T(y) − y). Each target
    moves in a unit of its own, so many of which count as one of the features, so that step sizes,
    Adam's among them, mean the same for both. Labels stay; label laws that the dataset carries are
    not used.

    Args:
        unit: of all targets, against that of the features; by default 1/√w of the first
            ``TargetValues`` in the functional, else √(q · variance of the target / variance of the
            features) of the source, 1 where either does not vary. Found once and kept with the data.
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
        targets = data.require_targets("a flow of targets")
        unit = None if self.unit is None else torch.full_like(targets[0].detach(), self.unit)
        unit = _unit(data, targets) if unit is None else unit
        return data.replace(law=None, law_index=None, target_unit=unit)

    def settled(self, rho: LabeledDataset, memory: Tensors) -> LabeledDataset:
        scales = [v for key, v in memory.items() if key.rpartition(".")[2] == "values_scale"]
        if self.unit is not None or not scales:
            return rho
        return rho.replace(target_unit=1 / scales[0].to(_units(rho)))

    def parameters(self, rho: LabeledDataset) -> Tensors:
        return {"x": rho.x, "targets": _targets(rho) / _units(rho)}

    def attach(self, rho: LabeledDataset, parameters: Tensors) -> LabeledDataset:
        return rho.replace(x=parameters["x"], targets=parameters["targets"] * _units(rho))

    def velocity(self, rho: LabeledDataset, gradient: Tensors) -> Tensors:
        return {name: per_mass(value, rho.weights) for name, value in gradient.items()}

    def move(self, rho: LabeledDataset, displacement: Tensors, step: int) -> LabeledDataset:
        targets = _targets(rho) + displacement["targets"] * _units(rho)
        return rho.replace(x=bounded(rho.x + displacement["x"], self.bounds), targets=targets)


def _targets(rho: LabeledDataset) -> Tensor:
    return rho.require_targets("a flow of targets")


def _units(rho: LabeledDataset) -> Tensor:
    assert rho.target_unit is not None, "a flow of targets starts with their unit"
    return rho.target_unit


def _unit(data: LabeledDataset, targets: Tensor) -> Tensor:
    mass = data.weights.double()
    x, y = (_variance(part.detach().double(), mass) for part in (data.x, targets))
    ratio = targets.shape[1] * y / x.sum()
    return torch.where((y > 0) & (x.sum() > 0), ratio, 1.0).sqrt()


def _variance(x: Tensor, mass: Tensor) -> Tensor:
    """Of each column; exactly 0 for one value."""
    varies = (x.amax(dim=0) > x.amin(dim=0)).double()
    return varies * (mass @ (x - mass @ x).square())
