"""The loop of a flow, one evaluated state after the other (paper, eqs. 12 to 14).

    z_(t+1) = z_t − τ ∇_z δF/δρ(ρ_t)(z_t)

States are immutable, and everything with memory (functional, integrator, step control, generator)
passes its state on. So an interruption leaves the last complete state, and a resumed flow continues
bit for bit. A step control accepts the step that an integrator proposes, or tries a smaller one. The
flow evaluates the next state anyway, so a control that rejects nothing costs nothing and changes no
bit.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import torch

from advect._util.checks import check_kind
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.flows.dynamics import Dynamics, FeatureDriven
from advect.flows.field import Field, Here, NonFiniteError, promise
from advect.flows.integrators import Euler, Integrator
from advect.flows.law_motion import Tensors
from advect.flows.snapshots import Snapshot
from advect.functionals.base import Functional, State, met
from advect.transport.transport import rounding

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


@dataclass(frozen=True, eq=False)
class Step:
    """One evaluated state of a flow.

    Attributes:
        index: moves so far.  dataset: the state.  value: F(ρ).  terms: its named parts.
        velocity: −gradient ÷ mass of what moves.  seconds: since the flow started.
        snapshot: all that is needed to continue from here.
        state: state of the functional, with "error" and "converged" of what it solved.
    """

    index: int
    dataset: LabeledDataset
    value: float
    terms: dict[str, float]
    velocity: Tensors
    seconds: float
    snapshot: Snapshot
    state: State = field(default_factory=dict)

    @property
    def converged(self) -> bool:
        """Whether all that the functional solved here met its tolerance."""
        return met(self.state)

    @cached_property
    def speed(self) -> float:
        """Root mean square velocity of the features, √(Σ w_i ‖v_i‖²): the slope of the flow."""
        return float(
            (self.dataset.weights * self.velocity["x"].double().square().sum(dim=1)).sum().sqrt()
        )


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
        control: as in ``flow``.
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
    dynamics, integrator = parts_of(dynamics, integrator)
    begun = time.perf_counter()
    if start is None:
        rho = dynamics.start(source)
        index, memory = 0, functional.begin(rho)
        if hasattr(dynamics, "settled"):  # one that is no subclass may have none
            rho = dynamics.settled(rho, memory)
        state = integrator.init(dynamics.parameters(rho))
    else:
        rho, state, index = start.dataset, start.integrator, start.index
        memory = start.functional or functional.begin(rho)
        _check_fits(start, dynamics, integrator)
    space = Field(functional, dynamics, _randomness(generator, integrator, start))
    control = control or default_control(space, integrator)
    kept = control.begin(space, integrator) | (start.control if start is not None else {})
    try:
        here = space.at(rho, memory, index)
    except KeyError as error:
        # Refuse a checkpoint that lacks what the functional starts with.
        if start is None or functional.begin(rho).keys() <= memory.keys():
            raise
        raise InputError(
            "the checkpoint was taken with another functional",
            f"no {error} in what it remembers",
            "Resume with the same one.",
        ) from error
    while True:
        snapshot = Snapshot(here.index, here.dataset, state, here.before, here.noise, control=kept)
        evaluated = here.dataset, here.value, here.terms, here.velocity
        yield Step(here.index, *evaluated, time.perf_counter() - begun, snapshot, here.after)
        with torch.no_grad():
            here, state, kept = control.advance(space, integrator, here, state, kept)


def parts_of(
    dynamics: Dynamics | None, integrator: Integrator | None
) -> tuple[Dynamics, Integrator]:
    """The dynamics and the integrator, checked; defaults for None."""
    dynamics, integrator = dynamics or FeatureDriven(), integrator or Euler()
    names = ("start", "parameters", "attach", "velocity", "move", "descends")
    missing = [name for name in names if not hasattr(dynamics, name)]
    if missing or isinstance(dynamics, type):
        raise InputError(
            "dynamics must say what moves",
            f"{dynamics!r}, without {', '.join(missing)}" if missing else repr(dynamics),
            "Pass ad.FeatureDriven(), or an object of a subclass of it.",
        )
    remedy = "Pass ad.Euler(0.1) or ad.Adam(0.01), or a subclass of ad.Integrator."
    check_kind("an integrator must make steps", integrator, Integrator, remedy)
    return dynamics, integrator


def _randomness(
    generator: torch.Generator | None, integrator: Integrator, start: Snapshot | None
) -> torch.Generator | None:
    """The generator of a flow: as in the snapshot; a new one, seeded from torch's, if noise needs it."""
    if start is not None and start.generator is not None:
        # one of its own: that of the caller may be at work in another walk
        generator = torch.Generator("cpu" if generator is None else generator.device)
        generator.set_state(start.generator)
    elif generator is None and integrator.stochastic:
        generator = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
    return generator


def _check_fits(start: Snapshot, dynamics: Dynamics, integrator: Integrator) -> None:
    """Refuse a checkpoint of another dynamics or integrator."""
    fits = (dynamics.start(start.dataset).law is None) == (start.dataset.law is None)
    other = None if fits else ("dynamics", dynamics)
    if fits:
        wanted = integrator.init(dynamics.parameters(start.dataset))
        shapes = [{n: v.shape for n, v in each.items()} for each in (wanted, start.integrator)]
        other = None if shapes[0] == shapes[1] else ("integrator", integrator)
    if other is not None:
        what = f"the checkpoint was taken with another {other[0]}"
        raise InputError(what, type(other[1]).__name__, "Resume with the same one.")
