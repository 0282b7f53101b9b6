"""The velocity field of a functional under a dynamics (paper, eqs. 12 and 13).

    v(z) = −∇_z δF/δρ(ρ)(z)

``Field.at`` evaluates a dataset; ``Field.move`` evaluates it after a displacement. Integrators and
step controls may look at several states before a step is made: the state of the functional is part
of the evaluation, so this leaves no trace.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True, eq=False)
class Here:
    """A dataset of a flow and the functional there.

    Attributes:
        index: moves so far.  dataset: the state.  value: F(ρ).  terms: its named parts.
        velocity: −gradient ÷ mass.  before, after: states of the functional around this evaluation.
        noise: state of the generator before.
        promised: first-order decrease on the way here, if the integrator knows it; see ``promise``.
    """

    index: int
    dataset: LabeledDataset
    value: float
    terms: dict[str, float]
    velocity: Tensors
    before: State
    after: State
    noise: Tensor | None = None
    promised: float | None = None


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
        """The evaluation of a dataset, for a functional in this state.

        Raises:
            NonFiniteError: names the first term that is not finite.
        """
        noise = None if self.generator is None else self.generator.get_state()
        # The tensors that move are the leaves of a new graph, which ends with this evaluation.
        leaves = {n: v.detach().requires_grad_() for n, v in self.dynamics.parameters(rho).items()}
        with torch.enable_grad():
            terms, after = self.functional.terms(self.dynamics.attach(rho, leaves), state)
        _check_answer(self.functional, terms, after)
        values = {name: float(value.detach()) for name, value in terms.items()}
        for name, value in values.items():
            if not math.isfinite(value):
                raise NonFiniteError(f"the term {name!r} is {value}")
        moving = [value for value in terms.values() if value.requires_grad]
        gradient = {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
        if moving:
            # One backward pass for the sum of all terms. A tensor that no term uses does not move.
            ones = [torch.ones_like(value) for value in moving]
            found = torch.autograd.grad(moving, list(leaves.values()), ones, allow_unused=True)
            gradient |= {n: g for n, g in zip(leaves, found, strict=True) if g is not None}
        for name, part in gradient.items():
            if not math.isfinite(float(part.sum())):
                names = " + ".join(terms)
                raise NonFiniteError(
                    f"the gradient in {name!r} of {names} has NaN or infinite entries"
                )
        velocity = self.dynamics.velocity(rho, gradient)
        return Here(index, rho, math.fsum(values.values()), values, velocity, state, after, noise)

    def move(self, here: Here, displacement: Tensors) -> Here:
        """The evaluation after a displacement, one step later."""
        _check_displacement(displacement, self.dynamics.parameters(here.dataset))
        if self.scale != 1.0:
            displacement = {name: self.scale * change for name, change in displacement.items()}
        for name, change in displacement.items():
            if not bool(torch.isfinite(change).all()):
                raise NonFiniteError(f"the displacement of {name!r} has NaN or infinite entries")
        rho = self.dynamics.move(here.dataset, displacement, here.index)
        try:
            return self.at(rho, here.after, here.index + 1)
        except (InputError, _SINGULAR) as error:  # the source was fine: the flow made this state
            raise NonFiniteError(f"{self.functional.name} refuses the state ({error})") from error


def promise(here: Here, there: Here) -> float:
    """Σ w_i ⟨v_i, x'_i − x_i⟩: the decrease of the value to first order, from the features."""
    way = torch.linalg.vecdot(here.velocity["x"], there.dataset.x - here.dataset.x)  # (n,)
    return float((here.dataset.weights * way).sum())


def _check_displacement(displacement: Tensors, moving: Tensors) -> None:
    """One tensor of the right shape for each that moves."""
    wanted, found = _shapes(moving), _shapes(displacement)
    if found != wanted:
        raise InputError(
            f"a displacement must have a tensor for each that moves, of its shape, {wanted}",
            found,
            "Return {name: step_size * v for name, v in velocity.items()}, or what is like it.",
        )


def _check_answer(functional: Functional, terms: Tensors, after: State) -> None:
    """What a functional returns: numbers by name, and what it remembers."""
    numbers, remembered = _shapes(terms), _shapes(after)
    if not all(text in ("shape ()", "shape (1,)") for text in numbers.values()):
        raise InputError(
            f"{functional.name} must be a single number, as a tensor that gradients flow through",
            numbers,
            "Sum over the samples with their weights: (rho.weights * values).sum().",
        )
    if not all(text.startswith("shape") for text in remembered.values()):
        raise InputError(
            f"what {functional.name} remembers must be a flat dictionary of tensors",
            remembered,
            "Wrap numbers as torch.tensor(value): a checkpoint holds tensors.",
        )


def _shapes(parts: Any) -> dict[str, str]:
    """The shape of each tensor by name, and the type of anything else."""
    parts = parts if hasattr(parts, "items") else {"all": parts}
    return {
        n: f"shape {tuple(v.shape)}" if torch.is_tensor(v) else type(v).__name__
        for n, v in parts.items()
    }
