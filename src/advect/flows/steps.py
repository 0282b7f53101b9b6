"""The loop of a flow, one evaluated state after the other (paper, eqs. 12 to 14).

    z_(t+1) = z_t − τ ∇_z δF/δρ(ρ_t)(z_t)

States are immutable, and everything with memory (functional, integrator, step control, generator)
passes its state on. So an interruption leaves the last complete state, and a resumed flow continues
bit for bit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import torch

from advect._util.checks import check_kind
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.flows.control import StepControl, default_control
from advect.flows.dynamics import Dynamics, FeatureDriven
from advect.flows.field import Field
from advect.flows.integrators import Euler, Integrator
from advect.flows.law_motion import Tensors
from advect.flows.snapshots import Snapshot
from advect.functionals.base import Functional, State, met


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
