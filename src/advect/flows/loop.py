"""The flow: a short loop that evaluates, differentiates, moves (paper, eqs. 12 to 14).

    z_(t+1) = z_t − τ ∇_z δF/δρ(ρ_t)(z_t)

``iterate`` is the loop; ``flow`` runs it with callbacks and hands back a ``FlowResult``. Every
state is immutable, so an interruption at any moment leaves the last complete one, and a resumed
flow continues bit for bit."""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

import torch

from advect._util.checks import check_count, check_methods
from advect.data.dataset import LabeledDataset
from advect.data.store import stored_name
from advect.datasets.trajectory import Trajectory
from advect.errors import InputError
from advect.flows.control import Backtracking, StalledError, StepControl, default_control
from advect.flows.dynamics import Dynamics, FeatureDriven
from advect.flows.field import Field, NonFiniteError
from advect.flows.integrators import Euler, Integrator, Tensors
from advect.flows.result import FlowResult, State
from advect.flows.snapshots import Snapshot, load_snapshot
from advect.functionals import Functional
from advect.transport.notes import ended_above


@dataclass(frozen=True, eq=False)
class Step:
    """One evaluated state of a flow, before it moves on.

    Attributes:
        index: how many moves led here.  dataset: the state.  value: F(ρ).  terms: its named parts.
        velocity: −gradient ÷ mass for what moves.  seconds: time since the flow started.
        snapshot: all that is needed to continue from here, for checkpoints.
        converged: whether all that the functional solved here met its tolerance.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[1.0], [2.0]], ["a", "b"])
        >>> steps = ad.iterate(data, ad.Potential(lambda x, y: x.square().sum(1) / 2), integrator=ad.Euler(0.5))
        >>> [round(next(steps).value, 4) for _ in range(3)]
        [1.25, 0.3125, 0.0781]
    """

    index: int
    dataset: LabeledDataset
    value: float
    terms: dict[str, float]
    velocity: Tensors
    seconds: float
    snapshot: Snapshot
    converged: bool = True

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
    """Walk along the flow of a functional, one evaluated state at a time, without end.

    A ``StalledError`` or ``NonFiniteError`` says that there is no next one.

    Args:
        source: the dataset to start from.
        functional: what to decrease.
        dynamics: what may move; ``FeatureDriven()`` by default.
        integrator: how far; ``Euler(0.1)`` by default.
        control: whether a step is made; by default ``Backtracking()`` where small steps go down,
            else ``FixedSteps()``.
        generator: source of randomness for stochastic integrators.
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
    dynamics, integrator = dynamics or FeatureDriven(), integrator or Euler(0.1)
    check_methods(
        "dynamics must say what moves",
        dynamics,
        ("start", "parameters"),
        "Pass ad.FeatureDriven().",
    )
    check_methods(
        "an integrator must make steps",
        integrator,
        ("init",),
        "Pass ad.Euler(0.1) or ad.Adam(0.01).",
    )
    begun = time.perf_counter()
    functional.reset()
    if start is None:
        rho = dynamics.start(source)
        state = integrator.init(dynamics.parameters(rho))
        index = 0
    else:
        rho, state, index = start.dataset, start.integrator, start.index
        try:
            functional.load_state(start.functional)
        except (KeyError, ValueError, RuntimeError) as error:
            why = f"{type(error).__name__}: {error}"
            raise InputError(
                "the checkpoint was taken with another functional", why, "Resume with the same one."
            ) from error
        _check_fits(start, dynamics, integrator)
    field = Field(functional, dynamics, _randomness(generator, integrator, start))
    control = control or default_control(field, integrator)
    memory = control.begin(field, integrator) | (start.control if start is not None else {})
    here = field.at(rho, index)
    while True:
        snapshot = Snapshot(
            here.index, here.dataset, state, here.before, here.noise, control=memory
        )
        seconds = time.perf_counter() - begun
        yield Step(
            here.index,
            here.dataset,
            here.value,
            here.terms,
            here.velocity,
            seconds,
            snapshot,
            here.converged,
        )
        del snapshot
        with torch.no_grad():
            here, state, memory = control.advance(field, integrator, here, state, memory)


def _randomness(
    generator: torch.Generator | None, integrator: Integrator, start: Snapshot | None
) -> torch.Generator | None:
    """The generator of a flow: as it was at the snapshot; one of the flow's own where noise is
    needed and none is given.

    Its own is seeded from torch's, so that ``torch.manual_seed`` decides as ever, and a checkpoint
    can hold its state."""
    if start is not None and start.generator is not None:
        generator = generator or torch.Generator()
        generator.set_state(start.generator)
    elif generator is None and getattr(integrator, "stochastic", False):
        generator = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
    return generator


def _check_fits(start: Snapshot, dynamics: Dynamics, integrator: Integrator) -> None:
    """A snapshot continues under the dynamics and integrator it was taken with."""
    carries_laws = dynamics.start(start.dataset).law is not None
    if carries_laws != (start.dataset.law is not None):
        raise InputError(
            "the checkpoint was taken with another dynamics",
            type(dynamics).__name__,
            "Resume with the same one.",
        )
    wanted = {
        name: value.shape
        for name, value in integrator.init(dynamics.parameters(start.dataset)).items()
    }
    if wanted != {name: value.shape for name, value in start.integrator.items()}:
        raise InputError(
            "the checkpoint was taken with another integrator",
            type(integrator).__name__,
            "Resume with the same one.",
        )


Callback = Callable[[Step], bool | None]
_Flow = TypeVar("_Flow", bound=Callable[..., Any])


def _closing(walk: _Flow) -> _Flow:
    """Whatever becomes of a flow, its callbacks are closed at the end of it."""

    @functools.wraps(walk)
    def closed(*arguments: Any, **options: Any) -> Any:
        try:
            return walk(*arguments, **options)
        finally:
            for callback in options.get("callbacks", ()):
                _hook(callback, "close")

    return cast(_Flow, closed)


@_closing
def flow(
    source: LabeledDataset,
    functional: Functional,
    *,
    dynamics: Dynamics | None = None,
    integrator: Integrator | None = None,
    control: StepControl | None = None,
    n_steps: int = 100,
    callbacks: Sequence[Callback] = (),
    generator: torch.Generator | None = None,
    resume: str | Path | None = None,
) -> FlowResult:
    """Move a dataset down a functional for ``n_steps`` steps, or until a callback says stop.

    Args:
        source: the dataset to start from.
        functional: what to decrease, e.g. ``OTDD(target) + 0.1 * Potential(norm())``.
        dynamics: what may move: ``FeatureDriven()`` (default), ``JointFixedLabels()``,
            ``JointVariableLabels()``.
        integrator: how: ``Euler(0.1)`` (default), ``Momentum``, ``Adam``, ``Adagrad``,
            ``EulerMaruyama``.
        control: whether a step is made: ``Backtracking()`` makes it smaller until the value falls,
            ``FixedSteps()`` makes it whatever comes. By default the first with ``Euler`` where
            velocities are gradients of a value without noise.
        n_steps: how many moves in all, those before a resume included.
        callbacks: functions of a ``Step``; a true answer stops the flow. See ``Recorder``,
            ``Checkpoint``, ``StopWhen``, ``Progress``, ``Metric``.
        generator: source of randomness for stochastic integrators.
        resume: a directory or file written by ``Checkpoint``, to continue from bit for bit.

    Returns:
        A ``FlowResult``. Ctrl-C ends the flow cleanly with status "interrupted", after a last
        checkpoint where there is a ``Checkpoint``; a value that is not finite ends it with status
        "diverged" and the last good state, one that no step makes fall with "stalled", and one that
        ended above its lowest is told as "rose" (``result.best`` is the lowest).

    Example:
        >>> import torch, advect as ad
        >>> generator = torch.Generator().manual_seed(0)
        >>> source = ad.datasets.gaussians(60, generator=generator)
        >>> target = ad.datasets.gaussians(60, shift=(5.0, 0.0), generator=generator)
        >>> result = ad.flow(source, ad.OTDD(target), integrator=ad.Euler(0.2), n_steps=20)
        >>> result.status, result.values[-1] < 0.01 * result.values[0]
        ('completed', True)
    """
    if not isinstance(source, LabeledDataset):
        raise InputError(
            "source must be a LabeledDataset",
            type(source).__name__,
            "Wrap arrays as ad.LabeledDataset(x, y).",
        )
    if not isinstance(functional, Functional):
        raise InputError(
            "a flow needs a Functional",
            type(functional).__name__,
            "Use ad.OTDD(target), or wrap v as ad.Potential(v).",
        )
    n_steps = check_count("n_steps", n_steps, least=0)
    dynamics, integrator = dynamics or FeatureDriven(), integrator or Euler(0.1)
    check_methods(
        "dynamics must say what moves",
        dynamics,
        ("start", "parameters"),
        "Pass ad.FeatureDriven().",
    )
    check_methods(
        "an integrator must make steps",
        integrator,
        ("init",),
        "Pass ad.Euler(0.1) or ad.Adam(0.01).",
    )
    for callback in callbacks:
        check_methods(
            "a callback must be a function of a step",
            callback,
            ("__call__",),
            "Pass ad.Recorder() or a function.",
        )
    control = control or default_control(Field(functional, dynamics), integrator)
    start = None if resume is None else _resumed(Path(resume), source, n_steps)
    if start is not None and start.before_control and isinstance(control, Backtracking):
        warnings.warn(
            "the checkpoint is of an earlier version, which did not control steps and whose fd "
            "followed T(x) − x: this goes on "
            "with controlled steps and exact gradients. To go on as before: "
            "control=ad.FixedSteps() and "
            "ad.FeatureDriven(through_laws=False), or --control fixed and "
            "--dynamics.no-through-laws in a new run.",
            stacklevel=2,
        )
    history = _History(start)
    for callback in callbacks:
        _hook(callback, "begin", source, start)
    steps = iterate(
        source,
        functional,
        dynamics=dynamics,
        integrator=integrator,
        control=control,
        generator=generator,
        start=start,
    )
    status, message, last = _walk(steps, history, callbacks, n_steps)
    noisy = functional.stochastic or getattr(integrator, "stochastic", False)
    if (
        status == "completed"
        and not noisy
        and (rose := ended_above(history.values, last.dataset.x.dtype))
    ):
        status, message = "rose", f"{n_steps} steps made; {rose}"
    for callback in callbacks:
        _hook(callback, "end", last, status)
    kept = (getattr(callback, "trajectory", None) for callback in callbacks)
    metrics: dict[str, list[tuple[int, float]]] = {}
    for callback in callbacks:
        metrics |= getattr(callback, "metrics", {})
    return FlowResult(
        last.dataset,
        source,
        status,
        message,
        history.values,
        history.terms,
        history.speeds,
        history.seconds,
        last.index,
        next((trajectory for trajectory in kept if trajectory is not None), Trajectory()),
        metrics,
        functional,
        dynamics,
        integrator,
        control,
        history.best,
        history.unconverged,
    )


def _resumed(path: Path, source: LabeledDataset, n_steps: int) -> Snapshot:
    """The snapshot to go on from."""
    start = load_snapshot(path, source.x.device)
    if start.index > n_steps:
        raise InputError(
            f"the checkpoint is at step {start.index}",
            f"n_steps={n_steps}",
            "n_steps counts the steps before too.",
        )
    known = {
        stored_name(name): name for name in source.classes
    }  # names that a file cannot hold are those of the source
    classes = tuple(known.get(name, name) for name in start.dataset.classes)
    return replace(start, dataset=start.dataset.replace(classes=classes))


def _walk(
    steps: Iterator[Step], history: _History, callbacks: Sequence[Callback], n_steps: int
) -> tuple[str, str, Step]:
    """Go along the steps until they are made, a callback says stop, or there is no next one:
    status, message, last step.
    """
    last: Step | None = None
    try:
        for step in steps:
            last = step
            history.add(step)
            stopped = [callback for callback in callbacks if callback(step)]
            if stopped:
                reason = (
                    _hook(stopped[0], "reason")
                    or f"{_name(stopped[0])} asked to stop at step {step.index}"
                )
                return "stopped", reason, step
            if step.index >= n_steps:
                return "completed", f"{n_steps} steps made", step
        raise AssertionError("a walk has no end of its own")
    except KeyboardInterrupt:
        if last is None:
            raise
        return "interrupted", f"interrupted after step {last.index}", last
    except StalledError as error:
        assert last is not None
        advice = "If this is not its minimum, try a smaller step_size, a smaller tol of the solver, or float64."
        return "stalled", f"stopped at step {last.index}: {error}. {advice}", last
    except NonFiniteError as error:
        if last is None:
            message = f"stopped at step 0: {error}"
            raise InputError(
                "the functional is not finite on the source",
                message,
                "Check the data and the functional.",
            ) from error
        advice = "The state of the step before is kept; try a smaller step_size."
        return "diverged", f"stopped at step {last.index + 1}: {error}. {advice}", last


class _History:
    """Numbers of each evaluated state, and the best state; those before a resume come from the
    checkpoint.
    """

    def __init__(self, start: Snapshot | None) -> None:
        kept: dict[str, Any] = start.history if start else {}
        self.values = list(kept.get("values", []))
        self.speeds = list(kept.get("speeds", []))
        self.seconds = list(kept.get("seconds", []))
        self.terms = {name: list(values) for name, values in kept.get("terms", {}).items()}
        self.converged = list(kept.get("converged", [True] * len(self.values)))
        self.offset = self.seconds[-1] if self.seconds else 0.0
        self.best = None if start is None or start.best is None else State(*start.best)

    @property
    def unconverged(self) -> int:
        """In how many steps a solver did not meet its tolerance."""
        return self.converged.count(False)

    def add(self, step: Step) -> None:
        # The snapshot knows what came before it, so that a checkpoint can restore the curves as
        # well.
        curves = {"values": self.values, "speeds": self.speeds, "seconds": self.seconds}
        before = {**curves, "terms": self.terms, "converged": self.converged}
        lower = self.best is not None and self.best.value <= step.value
        self.best = self.best if lower else State(step.index, step.value, step.dataset)
        object.__setattr__(step.snapshot, "history", before)
        object.__setattr__(step.snapshot, "length", len(self.values))
        if (
            lower and self.best is not None
        ):  # otherwise it is this state, which the snapshot has anyway
            object.__setattr__(
                step.snapshot, "best", (self.best.index, self.best.value, self.best.dataset)
            )
        self.values.append(step.value)
        self.speeds.append(step.speed)
        self.seconds.append(step.seconds + self.offset)
        self.converged.append(step.converged)
        for name, value in step.terms.items():
            self.terms.setdefault(name, []).append(value)


def _hook(callback: Callback, name: str, *arguments: Any) -> Any:
    """Call an optional method of a callback object."""
    method = getattr(callback, name, None)
    return method(*arguments) if callable(method) else None


def _name(callback: Callback) -> str:
    return getattr(callback, "__name__", type(callback).__name__)
