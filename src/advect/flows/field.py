"""The velocity field of a functional under a dynamics (paper, eq. 15).

    dz/dt = v(z) = −∇_z δF/δρ(ρ)(z)

``Field.evaluate`` computes the value and the velocity of a dataset, ``Field.move`` those after a
displacement. The state of the functional is part of the result. Integrators and step controls can
therefore evaluate states that the flow does not take.
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
from advect.transport.transport import threads_for

_SINGULAR: type[RuntimeError] = vars(torch.linalg)["LinAlgError"]  # which torch's types leave out


class NonFiniteError(ArithmeticError):
    """A term of the functional, or its gradient, is not a finite number."""


@dataclass(frozen=True, eq=False)
class EvaluatedState:
    """A dataset of a flow with the value of the functional and the velocity there.

    Attributes:
        index: moves so far.  dataset: the state.  value: F(ρ).  terms: its named parts.
        velocity: −gradient ÷ mass of what moves.
        state: state of the functional after this evaluation, with "error" and "converged" of what
            it solved.
        state_before: state of the functional before this evaluation.
        generator_state: state of the random generator before this evaluation.
        expected_decrease: first-order decrease of the value on the way here, if the integrator
            knows it; otherwise see ``first_order_decrease``.
    """

    index: int
    dataset: LabeledDataset
    value: float
    terms: dict[str, float]
    velocity: Tensors
    state: State
    state_before: State
    generator_state: Tensor | None = None
    expected_decrease: float | None = None


@dataclass(frozen=True, eq=False)
class Field:
    """The field of a functional under a dynamics.

    ``scale`` multiplies displacements: this is how a step control asks any integrator for a smaller step.
    """

    functional: Functional
    dynamics: Dynamics
    generator: torch.Generator | None = None
    scale: float = 1.0

    def evaluate(self, rho: LabeledDataset, state: State, index: int = 0) -> EvaluatedState:
        """The value and the velocity at a dataset, for a functional in this state.

        Raises:
            NonFiniteError: names the first term that is not finite.
        """
        generator_state = None if self.generator is None else self.generator.get_state()
        with threads_for(rho.x, rho.x):
            # The tensors that move are the leaves of a new graph, which ends with this evaluation.
            parameters = self.dynamics.parameters(rho)
            leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
            with torch.enable_grad():
                terms, state_after = self.functional.terms(self.dynamics.attach(rho, leaves), state)
            _check_answer(self.functional, terms, state_after)
            values = {name: float(value.detach()) for name, value in terms.items()}
            for name, value in values.items():
                if not math.isfinite(value):
                    raise NonFiniteError(f"the term {name!r} is {value}")

            # One backward pass for the sum of all terms. It does not pass through solver iterations: by the
            # envelope theorem, an optimal value has the gradient of its cost at the optimal plan.
            # A tensor that no term uses has gradient zero.
            inputs = list(leaves.values())
            outputs = [value for value in terms.values() if value.requires_grad]
            if outputs:
                parts = torch.autograd.grad(outputs, inputs, materialize_grads=True)
            else:
                parts = [torch.zeros_like(leaf) for leaf in inputs]
            gradient = dict(zip(leaves, parts, strict=True))
            for name, part in gradient.items():
                if not math.isfinite(float(part.sum())):
                    names = " + ".join(terms)
                    message = f"the gradient in {name!r} of {names} has NaN or infinite entries"
                    raise NonFiniteError(message)
            velocity = self.dynamics.velocity(rho, gradient)
        value = math.fsum(values.values())
        return EvaluatedState(
            index, rho, value, values, velocity, state_after, state, generator_state
        )

    def move(self, current: EvaluatedState, displacement: Tensors) -> EvaluatedState:
        """The evaluation after a displacement, one step later."""
        wanted = shapes(self.dynamics.parameters(current.dataset))
        if shapes(displacement) != wanted:
            raise InputError(
                f"a displacement must have a tensor for each that moves, of its shape, {wanted}",
                shapes(displacement),
                "Return {name: step_size * v for name, v in velocity.items()}, or similar.",
            )
        # A step control shortens a step by scaling its displacement, for any integrator.
        if self.scale != 1.0:
            displacement = {name: self.scale * change for name, change in displacement.items()}
        for name, change in displacement.items():
            if not bool(torch.isfinite(change).all()):
                raise NonFiniteError(f"the displacement of {name!r} has NaN or infinite entries")
        rho = self.dynamics.move(current.dataset, displacement, current.index)
        try:
            return self.evaluate(rho, current.state, current.index + 1)
        except (InputError, _SINGULAR) as error:  # the source was fine: the flow made this state
            raise NonFiniteError(f"{self.functional.name} refuses the state ({error})") from error


def first_order_decrease(current: EvaluatedState, moved: EvaluatedState) -> float:
    """Σ w_i ⟨v_i, x'_i − x_i⟩: the decrease of the value to first order, from the features."""
    products = torch.linalg.vecdot(current.velocity["x"], moved.dataset.x - current.dataset.x)
    return float((current.dataset.weights * products).sum())


def _check_answer(functional: Functional, terms: Tensors, state: State) -> None:
    """A functional returns numbers by name, and tensors to remember."""
    for value in terms.values():
        if not torch.is_tensor(value) or value.numel() != 1 or value.ndim > 1:
            raise InputError(
                f"{functional.name} must be a single number, as a tensor that gradients flow through",
                shapes(terms),
                "Sum over the samples with their weights: (rho.weights * values).sum().",
            )
    if not isinstance(state, dict) or not all(map(torch.is_tensor, state.values())):
        raise InputError(
            f"the state of {functional.name} must be a flat dictionary of tensors",
            shapes(state),
            "Wrap numbers as torch.tensor(value): a checkpoint holds tensors.",
        )


def shapes(tensors: Any) -> dict[str, Any]:
    """The shape of each tensor by name, and the type of anything else."""
    return {
        name: tuple(value.shape) if torch.is_tensor(value) else type(value).__name__
        for name, value in (tensors if isinstance(tensors, dict) else {"all": tensors}).items()
    }
