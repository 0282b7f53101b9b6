"""The velocity field of a flow: what a functional and a dynamics say at a dataset (paper, eqs. 12
and 13).

    v(z) = −∇_z δF/δρ(ρ)(z)

``Field.at`` evaluates and differentiates; ``Field.move`` carries out a displacement. Integrators
and step controls are given a field, so that one may look at several states before a step is made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.flows.dynamics import Dynamics
from advect.flows.integrators import Tensors
from advect.functionals import Functional


class NonFiniteError(ArithmeticError):
    """A term of the functional, or its gradient, is not a finite number."""


@dataclass(frozen=True, eq=False)
class Here:
    """A dataset with what the functional says there.

    Attributes:
        index: how many moves led here.  dataset: the state.  terms: F(ρ) by named parts.  velocity:
            −gradient ÷ mass.
        before, after: the functional's memory before it was evaluated here, and after.
        noise: the generator's state before.
        converged: whether all that the functional solves met its tolerance.
    """

    index: int
    dataset: LabeledDataset
    terms: dict[str, float]
    velocity: Tensors
    before: Tensors
    after: Tensors
    noise: Tensor | None = None
    converged: bool = True

    @property
    def value(self) -> float:
        """F(ρ)."""
        return math.fsum(self.terms.values())


@dataclass(frozen=True, eq=False)
class Field:
    """The field of a functional under a dynamics.

    Attributes:
        functional: what decreases.  dynamics: what may move.  generator: randomness of stochastic
            integrators.
    """

    functional: Functional
    dynamics: Dynamics
    generator: torch.Generator | None = None

    def at(self, rho: LabeledDataset, index: int = 0) -> Here:
        """Value and velocity at a dataset, from the memory that the functional has now.

        Raises:
            NonFiniteError: names the first term that is not finite.
        """
        before, noise = (
            self.functional.state(),
            None if self.generator is None else self.generator.get_state(),
        )
        terms, gradient = _evaluate(self.functional, self.dynamics, rho)
        velocity = self.dynamics.velocity(rho, gradient)
        return Here(
            index,
            rho,
            terms,
            velocity,
            before,
            self.functional.state(),
            noise,
            self.functional.converged,
        )

    def after(self, rho: LabeledDataset, index: int) -> Here:
        """``at`` for a state that a move has made: one that the functional refuses is no fault of
        the input.
        """
        try:
            return self.at(rho, index)
        except (InputError, torch.linalg.LinAlgError) as error:  # pyright: ignore[reportPrivateImportUsage]
            raise NonFiniteError(f"{self.functional.name} refuses the state ({error})") from error

    def move(self, here: Here, displacement: Tensors) -> LabeledDataset:
        """The dataset after a displacement."""
        bad = [
            name for name, change in displacement.items() if not bool(torch.isfinite(change).all())
        ]
        if bad:
            raise NonFiniteError(f"the displacement of {bad[0]!r} has NaN or infinite entries")
        return self.dynamics.move(here.dataset, displacement, here.index)

    def back_to(self, here: Here) -> None:
        """Let the functional remember ``here`` as the last state that it saw: what was tried since
        leaves no trace.
        """
        self.functional.load_state(here.after)


def _evaluate(
    functional: Functional, dynamics: Dynamics, rho: LabeledDataset
) -> tuple[dict[str, float], Tensors]:
    """The terms of F at ρ and its gradient in what moves; names the first term that is not
    finite.
    """
    leaves = {
        name: value.detach().requires_grad_() for name, value in dynamics.parameters(rho).items()
    }
    with torch.enable_grad():
        terms = functional.terms(dynamics.attach(rho, leaves))
    values = {name: float(value.detach()) for name, value in terms.items()}
    for name, value in values.items():
        if not math.isfinite(value):
            raise NonFiniteError(f"the term {name!r} is {value}")
    moving = [value for value in terms.values() if value.requires_grad]
    gradients: Sequence[Tensor | None] = [None] * len(leaves)
    if moving:
        gradients = torch.autograd.grad(
            moving, list(leaves.values()), [torch.ones_like(v) for v in moving], allow_unused=True
        )
    result = {}
    for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True):
        if gradient is not None and not bool(torch.isfinite(gradient.sum())):
            raise NonFiniteError(
                f"the gradient in {name!r} of {' + '.join(terms)} has NaN or infinite entries"
            )
        result[name] = torch.zeros_like(leaf) if gradient is None else gradient
    return values, result
