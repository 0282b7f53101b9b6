"""Step control: accept the step that an integrator proposes, or try a smaller one.

The flow evaluates the next state anyway, so a control that rejects nothing costs nothing and changes
no bit.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Protocol

from advect.errors import InputError
from advect.flows.field import Field, Here, NonFiniteError, promise
from advect.flows.integrators import Integrator
from advect.flows.law_motion import Tensors
from advect.transport.notes import rounding

Memory = dict[str, float]

# Factors of the step size after a rejection, and after a step made at once.
_SHRINK, _GROW = 0.5, 1.1
_LEAST_SHARE = 0.01  # of the first-order decrease, which a step must reach
_SMALLEST = 1e-10  # share of the step size below which a flow has stalled


class StalledError(ArithmeticError):
    """No step, however small, makes the value fall."""


class StepControl(Protocol):
    """Anything with ``begin`` and ``advance``; see ``FixedSteps`` for the smallest."""

    def begin(self, field: Field, integrator: Integrator) -> Memory:
        """What is remembered before the first step, as numbers that a checkpoint holds."""
        ...

    def advance(
        self, field: Field, integrator: Integrator, here: Here, state: Tensors, memory: Memory
    ) -> tuple[Here, Tensors, Memory]:
        """The next place, with the integrator's state and what is remembered after it."""
        ...


@dataclass(frozen=True)
class FixedSteps:
    """Every step is made as the integrator proposes it, whether the value falls or rises.

    The default for stochastic functionals and integrators, and (except for costs through an
    ``Embedding``) for ``Momentum``, ``Adam``, ``Adagrad`` and ``FeatureDriven(through_laws=False)``.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[1.0]], ["a"])
        >>> bowl = ad.Potential(lambda x, y: x.square().sum(1) / 2)
        >>> ad.flow(data, bowl, integrator=ad.Euler(3.0), n_steps=3, control=ad.FixedSteps()).values
        [0.5, 2.0, 8.0, 32.0]
    """

    def begin(self, field: Field, integrator: Integrator) -> Memory:
        return {}

    def advance(
        self, field: Field, integrator: Integrator, here: Here, state: Tensors, memory: Memory
    ) -> tuple[Here, Tensors, Memory]:
        there, state = integrator.step(field, here, state)
        return there, state, memory


@dataclass(frozen=True)
class Backtracking:
    """A step is made if the value falls enough; otherwise a smaller one is tried from the same state.

    Enough is Armijo's condition,  F(ρ) − F(ρ') ≥ 0.01 · Σ w_i ⟨v_i, x'_i − x_i⟩  up to rounding.
    For ``Heun``, x' is where its first velocity alone leads. A step size that was reduced grows back
    to the integrator's ``step_size`` and never beyond.

    The default with ``Euler`` and ``Heun`` for deterministic functionals, and with every deterministic
    integrator where a cost goes through an ``Embedding``. With ``Momentum``, ``Adam`` and ``Adagrad`` a
    rejection resets their state. Stochastic integrators and functionals are refused.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[1.0]], ["a"])
        >>> bowl = ad.Potential(lambda x, y: x.square().sum(1) / 2)
        >>> ad.flow(data, bowl, integrator=ad.Euler(3.0), n_steps=3, control=ad.Backtracking()).values[:2]
        [0.5, 0.125]
    """

    def begin(self, field: Field, integrator: Integrator) -> Memory:
        noisy = next((part for part in (integrator, field.functional) if part.stochastic), None)
        if noisy is not None:
            raise InputError(
                "noise cannot be controlled",
                type(noisy).__name__,
                "Leave control out, or pass ad.FixedSteps().",
            )
        return {"scale": 1.0, "largest": 0.0}

    def advance(
        self, field: Field, integrator: Integrator, here: Here, state: Tensors, memory: Memory
    ) -> tuple[Here, Tensors, Memory]:
        scale, largest = memory["scale"], max(memory["largest"], abs(here.value))
        allowed = rounding(here.dataset.x.dtype, largest, math.fsum(map(abs, here.terms.values())))
        failure: ArithmeticError = StalledError(
            f"a step below {_SMALLEST:g} of its size was asked for"
        )
        while scale >= _SMALLEST:
            try:
                # Warnings of a state are issued only if the flow goes there.
                with warnings.catch_warnings(record=True) as issued:
                    there, after = integrator.step(replace(field, scale=scale), here, state)
            except NonFiniteError as error:
                failure = error
            else:
                # Armijo's condition: a share of the first-order decrease, up to rounding of the values
                promised = promise(here, there) if there.promised is None else there.promised
                if here.value - there.value >= _LEAST_SHARE * max(0.0, promised) - allowed:
                    for word in issued:
                        warnings.warn_explicit(
                            word.message, word.category, word.filename, word.lineno
                        )
                    # A size that was reduced grows back, unless this step had to reduce it.
                    grown = min(1.0, scale * _GROW) if scale == memory["scale"] else scale
                    return there, after, {"scale": grown, "largest": largest}
                change = f"the value goes from {here.value:.9g} to {there.value:.9g}"
                failure = StalledError(f"with a step as small as {scale:.0e} of its size {change}")
                del there
            scale *= _SHRINK
            if not integrator.descends:  # its state may point uphill
                state = integrator.init(field.dynamics.parameters(here.dataset))
        raise failure


def default_control(field: Field, integrator: Integrator) -> StepControl:
    """``Backtracking()`` where small steps decrease the value, otherwise ``FixedSteps()``.

    Through an embedding with Jacobian J an Euler step is stable up to about 2/‖J‖², which is unknown, so
    steps are controlled there wherever that is possible.
    """
    if integrator.stochastic or field.functional.stochastic:
        return FixedSteps()
    if field.functional.curved:
        descends = integrator.descends or integrator.descends_at_first
    else:
        descends = integrator.descends and field.dynamics.descends
    return Backtracking() if descends else FixedSteps()
