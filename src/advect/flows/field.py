"""The velocity field of a flow: what a functional and a dynamics say at a dataset (paper, eqs. 12
and 13).

    v(z) = −∇_z δF/δρ(ρ)(z)

``Field.at`` is a place, ``Field.move`` the one after a displacement. A place is evaluated when its
value or velocity is first asked for, and once. Integrators and step controls are given a field, so
that they may look at several places before a step is made; none of that leaves a trace, since what
the functional remembers is part of the place."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from advect._util.facts import Numbers, fetched, leaf_of, waits_are_free
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
    """A dataset of a flow with what the functional says there, computed when it is first asked for.

    Attributes:
        index: how many moves led here.  dataset: the state.  value: F(ρ).  terms: by named parts.
        velocity: −gradient ÷ mass.  before, after: what the functional remembers before it is
            evaluated here, and after.
        noise: the generator's state before.  moved: whether the flow has made this dataset; one
            that the functional refuses is then no fault of the input.
        promised: how far the value would have fallen on the way here without curvature, where the
            integrator knows better than the way itself says; see ``promise``.

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
    def brought(self) -> Numbers:
        """What is fetched from the device along with the value."""
        return Numbers(lambda: ())

    def bring(self, numbers: Numbers) -> None:
        """Fetch these along with the value, if that is not known yet."""
        object.__setattr__(self, "brought", numbers)

    @cached_property
    def _found(self) -> _Found:
        functional, dynamics = self.field.functional, self.field.dynamics
        try:
            terms, gradient, after = _evaluate(
                functional, dynamics, self.dataset, self.before, self.brought
            )
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

    Attributes:
        functional: what decreases.  dynamics: what may move.  generator: randomness of stochastic
            integrators.  scale: displacements are made this share of their size: how a step
            control asks any integrator for a smaller step.
    """

    functional: Functional
    dynamics: Dynamics
    generator: torch.Generator | None = None
    scale: float = 1.0

    def at(self, rho: LabeledDataset, state: State, index: int = 0) -> Here:
        """The place of a dataset, for a functional that remembers ``state``."""
        noise = None if self.generator is None else self.generator.get_state()
        return Here(self, index, rho, state, noise)

    def move(self, here: Here, displacement: Tensors) -> Here:
        """The place after a displacement, one step on."""
        _check_displacement(displacement, self.dynamics.parameters(here.dataset))
        if self.scale != 1.0:
            displacement = {name: self.scale * change for name, change in displacement.items()}
        # elsewhere the next value shows it, which has to come from the device anyway
        if waits_are_free(here.dataset.x.device):
            for name, change in displacement.items():
                if not bool(torch.isfinite(change).all()):
                    raise NonFiniteError(
                        f"the displacement of {name!r} has NaN or infinite entries"
                    )
        rho = self.dynamics.move(here.dataset, displacement, here.index)
        return replace(self.at(rho, here.after, here.index + 1), moved=True)


def promise(here: Here, there: Here) -> Tensor:
    """Σ w_i ⟨v_i, x'_i − x_i⟩: the fall of the value by the way of the features, to first order."""
    way = torch.linalg.vecdot(here.velocity["x"], there.dataset.x - here.dataset.x)  # (n,)
    return (here.dataset.weights * way).sum()


def _check_displacement(displacement: Tensors, moving: Tensors) -> None:
    """A tensor for each of those that move, of its shape: others would be broadcast or ignored."""
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
    functional: Functional,
    dynamics: Dynamics,
    rho: LabeledDataset,
    state: State,
    brought: Numbers,
) -> tuple[dict[str, float], Tensors, State]:
    """The terms of F at ρ, its gradient in what moves, and what is remembered after; names the
    first term that is not finite.
    """
    leaves = {name: leaf_of(value) for name, value in dynamics.parameters(rho).items()}
    with torch.enable_grad():
        terms, after = functional.terms(dynamics.attach(rho, leaves), state)
    _check_said(functional, terms, after)
    device = rho.x.device  # terms may be on another, where a function has left them
    parts = [value.detach().to(device).reshape(()) for value in terms.values()]
    gradients = dict.fromkeys(leaves) | _gradients(terms, leaves, parts)
    sums = {name: g.sum() for name, g in gradients.items() if g is not None}
    values, found = brought.split(parts, list(sums.values()))
    _check_terms(terms, values)
    for name, number in zip(sums, found, strict=True):
        if not math.isfinite(number):
            raise NonFiniteError(
                f"the gradient in {name!r} of {' + '.join(terms)} has NaN or infinite entries"
            )
    result = {
        name: torch.zeros_like(leaf) if (gradient := gradients[name]) is None else gradient
        for name, leaf in leaves.items()
    }
    return dict(zip(terms, values, strict=True)), result, after


def _gradients(
    terms: Mapping[str, Tensor], leaves: Tensors, parts: list[Tensor]
) -> dict[str, Tensor | None]:
    """The gradient of the sum of the terms in each leaf; None where it has none."""
    moving = [value for value in terms.values() if value.requires_grad]
    if not moving:
        return {}
    ones = [torch.ones_like(value) for value in moving]
    try:
        found = torch.autograd.grad(moving, list(leaves.values()), ones, allow_unused=True)
    except _SINGULAR:
        _check_terms(terms, fetched(*parts))  # what has no value has no gradient either
        raise
    return dict(zip(leaves, found, strict=True))


def _check_terms(terms: Iterable[str], values: Iterable[float]) -> None:
    for name, value in zip(terms, values, strict=True):
        if not math.isfinite(value):
            raise NonFiniteError(f"the term {name!r} is {value}")
