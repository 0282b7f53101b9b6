"""The velocity field of a functional under a dynamics (paper, eqs. 12 and 13).

    v(z) = −∇_z δF/δρ(ρ)(z)

``Field.at`` evaluates a dataset, lazily and once; ``Field.move`` evaluates it after a displacement.
Integrators and step controls may look at several states before a step is made: the state of the
functional is part of the evaluation, so this leaves no trace.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.flows.dynamics import Dynamics
from advect.flows.law_motion import Tensors
from advect.functionals.base import Functional, State

_SINGULAR: type[RuntimeError] = vars(torch.linalg)["LinAlgError"]  # which torch's types leave out


class NonFiniteError(ArithmeticError):
    """A term of the functional, or its gradient, is not a finite number."""


class _Found(NamedTuple):
    terms: dict[str, float]
    velocity: Tensors
    after: State


@dataclass(frozen=True, eq=False)
class Here:
    """A dataset of a flow and the functional there, evaluated on first use.

    Attributes:
        index: moves so far.  dataset: the state.  value: F(ρ).  terms: its named parts.
        velocity: −gradient ÷ mass.  before, after: states of the functional around this evaluation.
        noise: state of the generator before.  moved: whether the flow made this dataset.
        promised: first-order decrease on the way here, if the integrator knows it; see ``promise``.

    Raises:
        NonFiniteError: names the first term that is not finite.
    """

    field: Field
    index: int
    dataset: LabeledDataset
    before: State
    noise: Tensor | None = None
    moved: bool = False
    promised: float | None = None

    @cached_property
    def _found(self) -> _Found:
        functional, dynamics = self.field.functional, self.field.dynamics
        try:
            terms, gradient, after = _evaluate(functional, dynamics, self.dataset, self.before)
            return _Found(terms, dynamics.velocity(self.dataset, gradient), after)
        except (InputError, _SINGULAR) as error:
            if not self.moved:
                raise
            raise NonFiniteError(f"{functional.name} refuses the state ({error})") from error

    @property
    def terms(self) -> dict[str, float]:
        return self._found.terms

    @property
    def value(self) -> float:
        return math.fsum(self.terms.values())

    @property
    def velocity(self) -> Tensors:
        return self._found.velocity

    @property
    def after(self) -> State:
        return self._found.after


@dataclass(frozen=True, eq=False)
class Field:
    """The field of a functional under a dynamics.

    ``scale`` multiplies displacements: this is how a step control asks any integrator for a smaller step.
    """

    functional: Functional
    dynamics: Dynamics
    generator: torch.Generator | None = None
    scale: float = 1.0

    def at(self, rho: LabeledDataset, state: State, index: int = 0) -> Here:
        """The evaluation of a dataset, for a functional in this state."""
        noise = None if self.generator is None else self.generator.get_state()
        return Here(self, index, rho, state, noise)

    def move(self, here: Here, displacement: Tensors) -> Here:
        """The evaluation after a displacement, one step later."""
        _check_displacement(displacement, self.dynamics.parameters(here.dataset))
        if self.scale != 1.0:
            displacement = {name: self.scale * change for name, change in displacement.items()}
        for name, change in displacement.items():
            if not bool(torch.isfinite(change).all()):
                raise NonFiniteError(f"the displacement of {name!r} has NaN or infinite entries")
        rho = self.dynamics.move(here.dataset, displacement, here.index)
        return replace(self.at(rho, here.after, here.index + 1), moved=True)


def promise(here: Here, there: Here) -> Tensor:
    """Σ w_i ⟨v_i, x'_i − x_i⟩: the decrease of the value to first order, from the features."""
    way = torch.linalg.vecdot(here.velocity["x"], there.dataset.x - here.dataset.x)  # (n,)
    return (here.dataset.weights * way).sum()


def _check_displacement(displacement: Tensors, moving: Tensors) -> None:
    """One tensor of the right shape for each that moves."""
    wanted = {name: tuple(value.shape) for name, value in moving.items()}
    shown = type(displacement).__name__
    if isinstance(displacement, Mapping):
        found = {name: tuple(getattr(v, "shape", ())) for name, v in displacement.items()}
        tensors = all(isinstance(change, Tensor) for change in displacement.values())
        if tensors and found == wanted:
            return
        kinds = {name: type(v).__name__ for name, v in displacement.items()}
        shown = str(found if tensors else kinds)
    raise InputError(
        f"a displacement must have a tensor for each that moves, of its shape, {wanted}",
        shown,
        "Return {name: step_size * v for name, v in velocity.items()}, or what is like it.",
    )


def _check_said(functional: Functional, terms: object, after: object) -> None:
    """What a functional returns: numbers by name, and what it remembers."""
    if not isinstance(terms, Mapping) or not all(
        isinstance(value, Tensor) and value.numel() == 1 for value in terms.values()
    ):
        parts = terms if isinstance(terms, Mapping) else {"terms": terms}
        raise InputError(
            f"{functional.name} must be a single number, as a tensor that gradients flow through",
            ", ".join(f"{name!r}: {_shown(value)}" for name, value in parts.items()),
            "Sum over the samples with their weights: (rho.weights * values).sum().",
        )
    if not isinstance(after, Mapping) or not all(isinstance(v, Tensor) for v in after.values()):
        parts = after if isinstance(after, Mapping) else {"state": after}
        raise InputError(
            f"what {functional.name} remembers must be a flat dictionary of tensors",
            ", ".join(f"{name!r}: {_shown(value)}" for name, value in parts.items()),
            "Wrap numbers as torch.tensor(value): a checkpoint holds tensors.",
        )


def _shown(value: object) -> str:
    return f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def _evaluate(
    functional: Functional, dynamics: Dynamics, rho: LabeledDataset, state: State
) -> tuple[dict[str, float], Tensors, State]:
    """The terms of F at ρ, its gradient in what moves, and the state of the functional after it."""
    leaves = {
        name: value.detach().requires_grad_() for name, value in dynamics.parameters(rho).items()
    }
    with torch.enable_grad():
        terms, after = functional.terms(dynamics.attach(rho, leaves), state)
    _check_said(functional, terms, after)
    values = {name: float(value.detach()) for name, value in terms.items()}
    for name, value in values.items():
        if not math.isfinite(value):
            raise NonFiniteError(f"the term {name!r} is {value}")
    moving = [value for value in terms.values() if value.requires_grad]
    gradients: dict[str, Tensor | None] = dict.fromkeys(leaves)
    if moving:
        ones = [torch.ones_like(value) for value in moving]
        found = torch.autograd.grad(moving, list(leaves.values()), ones, allow_unused=True)
        gradients = dict(zip(leaves, found, strict=True))
    for name, gradient in gradients.items():
        if gradient is not None and not math.isfinite(float(gradient.sum())):
            raise NonFiniteError(
                f"the gradient in {name!r} of {' + '.join(terms)} has NaN or infinite entries"
            )
    result = {
        name: torch.zeros_like(leaf) if (gradient := gradients[name]) is None else gradient
        for name, leaf in leaves.items()
    }
    return values, result, after
