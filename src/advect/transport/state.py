"""The state that a step of a flow toward a target passes to the next."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields

import torch
from torch import Tensor

from advect.errors import InputError
from advect.ot import NoPlan, Solution

_NAMES = {"within": "self"}  # fields that have another name in files
_CASTS = {"calls": int, "iterations": int, "self_iterations": int}
_CASTS |= dict.fromkeys(("wide", "converged", "target_converged"), bool)


@dataclass(frozen=True, eq=False)
class State:
    """Potentials, numbers that stay fixed during a flow, and how the last step ended.

    Attributes:
        fitted: values that the ground cost has fitted to the first datasets, by the names that it uses.
        f, g, within: potentials between source and target, and within the source.
        target_labels: label distances within the target, for solvers that draw samples.
        epsilon, tol: of the solver.  wide: whether costs are in float64 from here on.
        calls: steps so far, for solvers that draw samples.
        target_value, target_value_error, target_converged: the target's problem with itself, which is
            solved once.
        error, converged, mass_left, iterations, self_iterations: of the last step.
    """

    fitted: dict[str, Tensor] = field(default_factory=dict)
    f: Tensor | None = None
    g: Tensor | None = None
    within: Tensor | None = None
    target_labels: Tensor | None = None
    epsilon: float | None = None
    tol: float | None = None
    wide: bool = False
    calls: int = 0
    target_value: float | None = None
    target_value_error: float | None = None
    target_converged: bool | None = None
    error: float | None = None
    converged: bool | None = None
    mass_left: float | None = None
    iterations: int | None = None
    self_iterations: int | None = None

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> State:
        """Read the state of a checkpoint. Names other than those of fields belong to the cost."""
        fitted, values = dict(tensors), {}
        for one in fields(cls)[1:]:
            value = fitted.pop(_NAMES.get(one.name, one.name), None)
            if value is not None:
                is_tensor = "Tensor" in str(one.type)
                if value.numel() != 1 and not is_tensor:
                    raise InputError(
                        "the state of a flow is damaged",
                        f"{one.name} of shape {tuple(value.shape)}",
                        "Start it again.",
                    )
                values[one.name] = value if is_tensor else _CASTS.get(one.name, float)(value)
        return cls(fitted, **values)

    def to_tensors(self) -> dict[str, Tensor]:
        """A flat dictionary of tensors, numbers as float64."""
        tensors = dict(self.fitted)
        for one in fields(self)[1:]:
            value = getattr(self, one.name)
            if value is not None:
                name = _NAMES.get(one.name, one.name)
                is_tensor = isinstance(value, Tensor)
                tensors[name] = value if is_tensor else torch.tensor(value, dtype=torch.float64)
        return tensors

    def start(self, n: int, m: int) -> tuple[dict[str, Tensor], Solution | None]:
        """Initial potentials that fit datasets of these sizes, and the solved self-problem of the target,
        if there is one, without its potentials and plan.
        """
        # Potentials for another number of samples cannot be used.
        sizes = {"f": (self.f, n), "g": (self.g, m), "self": (self.within, n)}
        warm = {k: p for k, (p, size) in sizes.items() if p is not None and len(p) == size}
        if self.target_value is None:
            return warm, None
        none = torch.empty(0, dtype=torch.float64)
        error = math.inf if self.target_value_error is None else self.target_value_error
        converged = self.target_converged is not False  # older checkpoints lack it
        numbers = self.target_value, (none, none), 0.0, converged, 0, 0.0
        return warm, Solution(*numbers, NoPlan(), error)
