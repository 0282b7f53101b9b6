"""The steps of a flow: step control, and the loop over evaluated states (paper, eqs. 15 to 17).

    z_(t+1) = z_t − τ ∇_z δF/δρ(ρ_t)(z_t)

States are immutable. Everything that has a state (functional, integrator, step control, generator)
takes it and returns the next one. An interruption therefore leaves the last complete state, and a
resumed flow continues bit for bit. A step control accepts the step that an integrator proposes, or tries
a smaller one. The flow evaluates the next state anyway, so a control that rejects nothing costs
nothing and changes no bit.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import torch

from advect._util import InputError, check_kind, refuse_if
from advect.data.dataset import LabeledDataset
from advect.flows.dynamics import Dynamics, FeatureDriven
from advect.flows.field import EvaluatedState, Field, NonFiniteError, first_order_decrease, shapes
from advect.flows.integrators import Euler, Integrator
from advect.flows.law_motion import Tensors
from advect.flows.snapshots import Snapshot
from advect.functionals.base import Functional, converged
from advect.io.trajectory import Frame
from advect.transport.transport import rounding

ControlState = dict[str, float]

# Factors of the step size after a rejection, and after a step that was accepted at once.
_SHRINK, _GROW = 0.5, 1.1
_LEAST_SHARE = 0.01  # of the first-order decrease, which a step must reach
_SMALLEST = 1e-10  # multiple of the step size below which a flow has stalled


class StalledError(ArithmeticError):
    """No step, however small, decreases the value."""


@dataclass(frozen=True, eq=False)
class FlowState:
    """An evaluated dataset, with the states of integrator and step control before the next step."""

    evaluated: EvaluatedState
    integrator: Tensors
    control: ControlState


class StepControl(Protocol):
    """Anything with ``begin`` and ``advance``; see ``FixedSteps`` for the smallest."""

    def begin(self, field: Field, integrator: Integrator) -> ControlState:
        """The state of the control before the first step, as numbers that a checkpoint holds."""
        ...

    def advance(self, field: Field, integrator: Integrator, state: FlowState) -> FlowState:
        """The state of the flow after one step."""
        ...


@dataclass(frozen=True)
class FixedSteps:
    """Every step is made as the integrator proposes it, whether the value falls or rises.

    The default for stochastic functionals and integrators, and (except for costs through an
    ``Embedding``) for ``Momentum``, ``Adam`` and ``FeatureDriven(through_laws=False)``.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[1.0]], ["a"])
        >>> bowl = ad.Potential(lambda x, y: x.square().sum(1) / 2)
        >>> ad.flow(data, bowl, integrator=ad.Euler(3.0), n_steps=3, control=ad.FixedSteps()).values
        [0.5, 2.0, 8.0, 32.0]
    """

    def begin(self, field: Field, integrator: Integrator) -> ControlState:
        return {}

    def advance(self, field: Field, integrator: Integrator, state: FlowState) -> FlowState:
        evaluated, integrator_state = integrator.step(field, state.evaluated, state.integrator)
        return FlowState(evaluated, integrator_state, state.control)


@dataclass(frozen=True)
class Backtracking:
    """A step is made if the value falls enough; otherwise a smaller one is tried from the same state.

    Enough is Armijo's condition,  F(ρ) − F(ρ') ≥ 0.01 · Σ w_i ⟨v_i, x'_i − x_i⟩  up to rounding.
    For ``Heun``, x' is where its first velocity alone leads. A step size that was reduced grows back
    to the integrator's ``step_size`` and never beyond.

    The default with ``Euler`` and ``Heun`` for deterministic functionals, and with every deterministic
    integrator where a cost goes through an ``Embedding``. With ``Momentum`` and ``Adam`` a
    rejection resets their state. Stochastic integrators and functionals are refused.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[1.0]], ["a"])
        >>> bowl = ad.Potential(lambda x, y: x.square().sum(1) / 2)
        >>> ad.flow(data, bowl, integrator=ad.Euler(3.0), n_steps=3, control=ad.Backtracking()).values[:2]
        [0.5, 0.125]
    """

    def begin(self, field: Field, integrator: Integrator) -> ControlState:
        for part in (integrator, field.functional):
            refuse_if(
                part.stochastic,
                "noise cannot be controlled",
                type(part).__name__,
                "Leave control out, or pass ad.FixedSteps().",
            )
        return {"scale": 1.0, "largest": 0.0, "time": 0.0}

    def advance(self, field: Field, integrator: Integrator, state: FlowState) -> FlowState:
        current, integrator_state = state.evaluated, state.integrator
        # Values are compared up to rounding, relative to the largest value so far.
        largest = max(state.control["largest"], abs(current.value))
        size = math.fsum(map(abs, current.terms.values()))
        tolerance = rounding(current.dataset.x.dtype, largest, size)
        scale = state.control["scale"]
        failure: ArithmeticError = StalledError(
            f"the step size fell below {_SMALLEST:g} times the given one"
        )
        while scale >= _SMALLEST:
            try:
                # Warnings of a trial are issued only if the flow takes it.
                with warnings.catch_warnings(record=True) as trial_warnings:
                    shorter = replace(field, scale=scale)
                    trial, trial_state = integrator.step(shorter, current, integrator_state)
            except NonFiniteError as error:
                failure = error
            else:
                # Armijo's condition: the value falls by a share of the first-order decrease.
                expected = trial.expected_decrease
                if expected is None:
                    expected = first_order_decrease(current, trial)
                if current.value - trial.value >= _LEAST_SHARE * max(0.0, expected) - tolerance:
                    for word in trial_warnings:
                        warnings.warn_explicit(
                            word.message, word.category, word.filename, word.lineno
                        )
                    made = {"largest": largest, "time": state.control["time"] + scale}
                    # A reduced size grows back after a step that was accepted at once.
                    if scale == state.control["scale"]:
                        scale = min(1.0, scale * _GROW)
                    return FlowState(trial, trial_state, {"scale": scale, **made})
                change = f"the value goes from {current.value:.9g} to {trial.value:.9g}"
                failure = StalledError(f"with {scale:.0e} times the given step size, {change}")
                del trial  # frees the memory for the next one
            scale *= _SHRINK
            if not integrator.descends:
                # Momentum may point uphill. From the initial state a small step descends.
                integrator_state = integrator.init(field.dynamics.parameters(current.dataset))
        raise failure


def default_control(
    functional: Functional, dynamics: Dynamics, integrator: Integrator
) -> StepControl:
    """``Backtracking()`` where small steps decrease the value, otherwise ``FixedSteps()``.

    Through an embedding with Jacobian J an Euler step is stable up to about 2/‖J‖², which is unknown, so
    steps are controlled there wherever that is possible.
    """
    if integrator.stochastic or functional.stochastic:
        return FixedSteps()
    if functional.curved:
        descends = integrator.descends or integrator.descends_at_first
    else:
        descends = integrator.descends and dynamics.descends
    return Backtracking() if descends else FixedSteps()


@dataclass(frozen=True, eq=False, kw_only=True)
class Step(EvaluatedState):
    """One evaluated state of a flow.

    Attributes:
        index: moves so far.  dataset: the state.  value: F(ρ).  terms: its named parts.
        velocity: −gradient ÷ mass of what moves.  seconds: since the flow started.
        snapshot: all that is needed to continue from here.
        state: state of the functional, with "error" and "converged" of what it solved.
    """

    seconds: float
    snapshot: Snapshot

    @property
    def converged(self) -> bool:
        """Whether all that the functional solved here met its tolerance."""
        return converged(self.state)

    @cached_property
    def speed(self) -> float:
        """Root mean square velocity of the features, √(Σ w_i ‖v_i‖²): the slope of the flow."""
        squares = self.velocity["x"].double().square().sum(dim=1)
        return float((self.dataset.weights * squares).sum().sqrt())


def iterate(
    source: LabeledDataset,
    functional: Functional,
    *,
    dynamics: Dynamics | None = None,
    integrator: Integrator | None = None,
    control: StepControl | None = None,
    generator: torch.Generator | None = None,
    start: Snapshot | None = None,
) -> Iterator[Step]:
    """Iterate over the evaluated states of a flow, without end.

    A ``StalledError`` or ``NonFiniteError`` is raised if there is no next state.

    Args:
        source: the dataset to start from.
        functional: what to decrease.
        dynamics: what moves; ``FeatureDriven()`` by default.
        integrator: ``Euler(0.1)`` by default.
        control: the step control, as in ``flow``.
        generator: random numbers of stochastic integrators.
        start: a snapshot to continue from, instead of the source.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[4.0], [8.0]], ["a", "b"])
        >>> for step in ad.iterate(data, ad.Potential(ad.norm()), integrator=ad.Euler(1.0)):
        ...     if step.value < 4:
        ...         break
        >>> step.index, step.dataset.x.flatten().tolist()
        (3, [1.0, 5.0])
    """
    dynamics, integrator = checked_parts(dynamics, integrator)
    started = time.perf_counter()
    if start is None:
        # Make explicit what moves, then let the functional and the integrator set up their states.
        rho, index = dynamics.start(source), 0
        functional_state = functional.begin(rho)
        rho = dynamics.with_units(rho, functional_state)
        integrator_state = integrator.init(dynamics.parameters(rho))
    else:
        # Resume: dataset and states come from the snapshot, and ``source`` is not used.
        rho, integrator_state, index = start.dataset, start.integrator, start.index
        functional_state = start.functional or functional.begin(rho)
        _check_fits(start, dynamics, integrator)
    field = Field(functional, dynamics, _flow_generator(generator, integrator, start))
    control = control or default_control(functional, dynamics, integrator)
    control_state = control.begin(field, integrator)
    if start is not None:
        control_state |= start.control
    try:
        # A snapshot holds the state of the functional before its evaluation. Evaluating the same
        # dataset again from there gives the same value, velocity and state, bit for bit.
        evaluated = field.evaluate(rho, functional_state, index)
    except KeyError as error:
        # Refuse a checkpoint that lacks what the functional starts with.
        if start is None or functional.begin(rho).keys() <= functional_state.keys():
            raise
        raise InputError(
            "the checkpoint was taken with another functional",
            f"no {error} in its state",
            "Resume with the same one.",
        ) from error
    state = FlowState(evaluated, integrator_state, control_state)
    while True:
        current = state.evaluated
        snapshot = Snapshot(
            current.index,
            current.dataset,
            state.integrator,
            current.state_before,
            current.generator_state,
            control=state.control,
        )
        yield Step(**vars(current), seconds=time.perf_counter() - started, snapshot=snapshot)
        with torch.no_grad():
            state = control.advance(field, integrator, state)


def checked_parts(
    dynamics: Dynamics | None, integrator: Integrator | None
) -> tuple[Dynamics, Integrator]:
    """The dynamics and the integrator, checked; defaults for None."""
    dynamics, integrator = dynamics or FeatureDriven(), integrator or Euler()
    check_kind(
        "dynamics must say what moves",
        dynamics,
        Dynamics,
        "Pass ad.FeatureDriven() or another dynamics, or an object of a subclass of one.",
    )
    check_kind(
        "an integrator must make steps",
        integrator,
        Integrator,
        "Pass ad.Euler(0.1) or ad.Adam(0.01), or a subclass of ad.Integrator.",
    )
    return dynamics, integrator


def _flow_generator(
    generator: torch.Generator | None, integrator: Integrator, start: Snapshot | None
) -> torch.Generator | None:
    """The generator of a flow: as in the snapshot; a new one, seeded from torch's, if noise needs it."""
    if start is not None and start.generator is not None:
        # A new generator, since that of the caller may be in use in another flow.
        generator = torch.Generator("cpu" if generator is None else generator.device)
        generator.set_state(start.generator)
    elif generator is None and integrator.stochastic:
        generator = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
    return generator


def _check_fits(start: Snapshot, dynamics: Dynamics, integrator: Integrator) -> None:
    """Refuse a checkpoint of another dynamics or integrator."""
    other_laws = (dynamics.start(start.dataset).law is None) != (start.dataset.law is None)
    kind, part = ("dynamics", dynamics) if other_laws else ("integrator", integrator)
    refuse_if(
        other_laws
        or shapes(integrator.init(dynamics.parameters(start.dataset))) != shapes(start.integrator),
        f"the checkpoint was taken with another {kind}",
        type(part).__name__,
        "Resume with the same one.",
    )


class History:
    """Curves and best state of a flow, continued from a checkpoint on resume."""

    def __init__(self, start: Snapshot | None) -> None:
        curves: dict[str, Any] = start.history if start else {}
        self.values = list(curves.get("values", []))
        self.speeds = list(curves.get("speeds", []))
        self.seconds = list(curves.get("seconds", []))
        self.terms = {name: list(values) for name, values in curves.get("terms", {}).items()}
        self.converged = list(curves.get("converged", [True] * len(self.values)))
        self.seconds_before = self.seconds[-1] if self.seconds else 0.0
        self.best = start.best if start else None

    def add(self, step: Step) -> Step:
        """The step with a snapshot that includes the curves before it, for checkpoints."""
        # The snapshot refers to the growing lists and to their length now, instead of copying them.
        length = len(self.values)
        names = ("values", "speeds", "seconds", "terms", "converged")
        curves = {name: getattr(self, name) for name in names}
        best_before = self.best
        if best_before is None or best_before.value > step.value:
            self.best, best_before = Frame(step.index, step.value, step.dataset), None
        self.values.append(step.value)
        self.speeds.append(step.speed)
        self.seconds.append(step.seconds + self.seconds_before)
        self.converged.append(step.converged)
        for name, value in step.terms.items():
            self.terms.setdefault(name, []).append(value)
        snapshot = replace(step.snapshot, history=curves, length=length, best=best_before)
        return replace(step, snapshot=snapshot)
