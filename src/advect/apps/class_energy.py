"""Σ_c p_c · ½ OT²(ρ_c, β_c): how far each class of a dataset is from the same class of another."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from advect.cost import GroundCost, NoLabels, SquaredEuclidean
from advect.cost.features import FeatureCost
from advect.data.dataset import LabeledDataset
from advect.functionals.base import Functional, State, under
from advect.functionals.otdd import OTDD
from advect.ot import Solver


class ClassEnergy(Functional):
    """The debiased transport energy to a target, class by class and by name; no mass changes its class.

    Laws of a few samples say little, and with names on both sides they are not needed: each class is a
    transport problem of its own, as large as that class, and its share of the target's mass weighs it.

    Args:
        target: where to; every class of what moves must have samples there.
        feature: where distances are measured; the features themselves by default.
        solver: of the transport problems.

    Example:
        >>> import advect as ad
        >>> target = ad.LabeledDataset([[0.0], [2.0], [9.0]], ["a", "a", "b"])
        >>> few = ad.LabeledDataset([[0.0], [9.0]], ["a", "b"])
        >>> round(ClassEnergy(target, solver=ad.ExactOT())(few).item(), 4)    # ⅔ · ½ · (0 + 4)/2
        0.6667
    """

    target: LabeledDataset

    def __init__(
        self, target: LabeledDataset, *, feature: FeatureCost | None = None, solver: Solver
    ) -> None:
        self.target, self.solver = target, solver
        self.cost = GroundCost(feature=feature or SquaredEuclidean(), label=NoLabels())
        self.energies = {
            code: OTDD(target.subset(target.y == code), cost=self.cost, solver=solver)
            for code in target.y.unique().tolist()
        }
        self.shares = target.class_mass / target.class_mass.sum()

    @property
    def stochastic(self) -> bool:
        return self.solver.stochastic

    @property
    def curved(self) -> bool:
        return not self.cost.feature_cost.linear

    @property
    def options(self) -> dict[str, Any]:
        return {"cost": self.cost, "solver": self.solver}

    def begin(self, rho: LabeledDataset) -> State:
        return {
            f"{code}.{key}": value
            for code, energy in self.energies.items()
            for key, value in energy.begin(_part(rho, code)).items()
        }

    def terms(self, rho: LabeledDataset, state: State) -> tuple[dict[str, Tensor], State]:
        parts: list[Tensor] = []
        after: State = {}
        for code, energy in self.energies.items():
            part = _part(rho, code)
            own = under(f"{code}.", state) or energy.begin(part)
            found, own = energy.terms(part, own)
            parts += [self.shares[code].to(value) * value for value in found.values()]
            after |= {f"{code}.{key}": value for key, value in own.items()}
        return {self.name: torch.stack(parts).sum()}, after


def _part(rho: LabeledDataset, code: int) -> LabeledDataset:
    return rho.subset(rho.y == code)
