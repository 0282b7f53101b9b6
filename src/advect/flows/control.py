"""Whether a step is made, made smaller, or not at all: what stands between an integrator and the
flow.

An integrator proposes the next state; the flow has to evaluate it anyway, for the step after. A
control looks at the value there and accepts, or goes back and asks for a smaller step from the same
state. Where nothing is rejected it costs nothing and changes nothing, to the bit."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Protocol

from advect._util.checks import check_non_negative, check_positive
from advect._util.facts import Numbers
from advect.errors import InputError
from advect.flows.field import Field, Here, NonFiniteError, promise
from advect.flows.integrators import Integrator
from advect.flows.law_motion import Tensors
from advect.transport.notes import rounding

Memory = dict[str, float]


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

    The default for stochastic functionals and integrators; and, but for costs through an
    ``Embedding``, for those with a memory (``Momentum``, ``Adam``, ``Adagrad``) and for
    ``FeatureDriven(through_laws=False)``, whose velocity is not the gradient. The status and the
    diagnosis of a result say when its value rose.

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
    """A step is made if the value falls; otherwise a smaller one from the same state is tried, and
    then a smaller one.

    It falls enough (Armijo's condition) when  F(ρ) − F(ρ') ≥ least_share · Σ w_i ⟨v_i, x'_i − x_i⟩
    up to rounding: what a flow of the features without curvature would gain, times a small share.
    For ``Heun`` the x' on the right is where its first velocity alone leads: its own way is short
    where the field turns back, and would promise as little as it gains. A velocity that is
    −gradient ÷ mass meets it for small steps, so that a flow goes down at every step until it is at
    rest. A step that was made smaller grows back to the integrator's own ``step_size``, and never
    beyond.

    The default with ``Euler``, ``Heun`` and ``Proximal`` for deterministic functionals; where a cost
    goes through an ``Embedding``, for which no step size is safe in advance, with all that is not random. With
    ``Momentum``, ``Adam`` or ``Adagrad`` (all that do not say ``descends``) a rejection also empties their memory,
    which may point uphill where the velocity does not. Noise cannot be controlled: stochastic
    integrators and functionals are refused.

    Args:
        shrink: a rejected step is tried again at this share of its size.
        grow: a step that is below its full size grows by this factor when it is accepted at once.
        least_share: of the fall that a flow without curvature would have.
        smallest: of the integrator's own step; where even that does not descend the flow ends with
            status "stalled".

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[1.0]], ["a"])
        >>> bowl = ad.Potential(lambda x, y: x.square().sum(1) / 2)
        >>> ad.flow(data, bowl, integrator=ad.Euler(3.0), n_steps=3, control=ad.Backtracking()).values[:2]
        [0.5, 0.125]
    """

    shrink: float = 0.5
    grow: float = 1.1
    least_share: float = 0.01
    smallest: float = 1e-10

    def __post_init__(self) -> None:
        for name in ("shrink", "smallest"):
            if not 0 < check_positive(name, getattr(self, name)) < 1:
                raise InputError(
                    f"{name} must be between 0 and 1",
                    getattr(self, name),
                    "0.5 halves a step that rose.",
                )
        if check_positive("grow", self.grow) < 1:
            raise InputError(
                "grow must be at least 1", self.grow, "1.1 lets a step grow by a tenth."
            )
        if not check_non_negative("least_share", self.least_share) < 1:
            raise InputError(
                "least_share must be at least 0 and below 1", self.least_share, "0.01 is usual."
            )

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
        scale = memory["scale"]
        failure: ArithmeticError = StalledError(
            f"a step below {self.smallest:g} of its size was asked for"
        )
        largest = max(memory["largest"], abs(here.value))
        while scale >= self.smallest:
            try:
                # Warnings are of places that may not be gone to.
                with warnings.catch_warnings(record=True) as said:
                    there, after = integrator.step(replace(field, scale=scale), here, state)
                    falls = self._falls(here, there, largest)
            except NonFiniteError as error:
                failure = error
            else:
                if falls:
                    for word in said:
                        warnings.warn_explicit(
                            word.message, word.category, word.filename, word.lineno
                        )
                    grown = min(1.0, scale * self.grow) if scale == memory["scale"] else scale
                    return there, after, {"scale": grown, "largest": largest}
                change = f"the value goes from {here.value:.9g} to {there.value:.9g}"
                failure = StalledError(f"with a step as small as {scale:.0e} of its size {change}")
                del there
            scale *= self.shrink
            if not integrator.descends:  # what it remembers may point uphill
                state = integrator.init(field.dynamics.parameters(here.dataset))
        raise failure

    def _falls(self, here: Here, there: Here, largest: float) -> bool:
        way = Numbers(lambda: (promise(here, there),))
        if there.promised is None:
            there.bring(way)
        size = math.fsum(map(abs, here.terms.values()))
        allowed = rounding(here.dataset.x.dtype, largest, size)
        _ = there.value  # it comes with what the way has promised
        promised = way.values[0] if there.promised is None else there.promised
        return here.value - there.value >= self.least_share * max(0.0, promised) - allowed


def default_control(field: Field, integrator: Integrator) -> StepControl:
    """``Backtracking()`` where small steps go down, otherwise ``FixedSteps()``.

    Through a map of the features with Jacobian J, an Euler step is stable up to about 2/‖J‖², and
    nobody knows that number: a step that makes the value rise is often the first of an explosion.
    So steps are controlled there wherever that is possible. Velocities with laws held fixed are no
    gradients, but near enough to one to go down."""
    if integrator.stochastic or field.functional.stochastic:
        return FixedSteps()
    if field.functional.curved:
        descends = integrator.descends or integrator.descends_at_first
    else:
        descends = integrator.descends and field.dynamics.descends
    return Backtracking() if descends else FixedSteps()
