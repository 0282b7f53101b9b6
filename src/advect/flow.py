"""The flow: a short loop that evaluates, differentiates, moves (paper, eqs. 12 to 14).

    z_(t+1) = z_t − τ ∇_z δF/δρ(ρ_t)(z_t)

``iterate`` is the loop; ``flow`` runs it with callbacks and hands back a ``FlowResult``. Every state is immutable, so an
interruption at any moment leaves the last complete one, and a resumed flow continues bit for bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from advect._checks import check_count
from advect._html import facts_table
from advect.data import LabeledDataset
from advect.dynamics import Dynamics, FeatureDriven
from advect.errors import InputError
from advect.functionals import OTDD, Functional, Scaled, Sum
from advect.integrators import Euler, Integrator, Tensors
from advect.snapshots import Snapshot, load_snapshot
from advect.storage import stored_name
from advect.trajectory import Trajectory


@dataclass(frozen=True, eq=False)
class Step:
    """One evaluated state of a flow, before it moves on.

    Attributes:
        index: how many moves led here.  dataset: the state.  value: F(ρ).  terms: its named parts.
        velocity: −gradient ÷ mass for what moves.  seconds: time since the flow started.
        snapshot: all that is needed to continue from here, for checkpoints.

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

    @cached_property
    def speed(self) -> float:
        """Root mean square velocity of the features, √(Σ w_i ‖v_i‖²): the slope of the flow."""
        return float((self.dataset.weights * self.velocity["x"].double().square().sum(dim=1)).sum().sqrt())


class NonFiniteError(ArithmeticError):
    """A term of the functional, or its gradient, is not a finite number."""


def iterate(
    source: LabeledDataset,
    functional: Functional,
    *,
    dynamics: Dynamics | None = None,
    integrator: Integrator | None = None,
    generator: torch.Generator | None = None,
    start: Snapshot | None = None,
) -> Iterator[Step]:
    """Walk along the flow of a functional, one evaluated state at a time, without end.

    Args:
        source: the dataset to start from.
        functional: what to decrease.
        dynamics: what may move; ``FeatureDriven()`` by default.
        integrator: how far; ``Euler(0.1)`` by default.
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
    begun = time.perf_counter()
    functional.reset()
    if start is None:
        rho = dynamics.start(source)
        state = integrator.init(dynamics.parameters(rho))
        index = 0
    else:
        rho, state, index = start.dataset, start.integrator, start.index
        functional.load_state(start.functional)
        _check_fits(start, dynamics, integrator)
        if start.generator is not None:
            generator = generator or torch.Generator()
            generator.set_state(start.generator)
    first = index
    while True:
        noise = None if generator is None else generator.get_state()
        snapshot = Snapshot(index, rho, state, functional.state(), noise)
        try:
            terms, gradient = _evaluate(functional, dynamics, rho)
        except (InputError, torch.linalg.LinAlgError) as error:  # pyright: ignore[reportPrivateImportUsage]
            if index == first:
                raise
            raise NonFiniteError(f"{functional.name} refuses the state ({error})") from error  # the moves made it so
        velocity = dynamics.velocity(rho, gradient)
        del gradient  # nothing of the size of the data is kept while the next state is evaluated, but what is needed
        yield Step(index, rho, math.fsum(terms.values()), terms, velocity, time.perf_counter() - begun, snapshot)
        with torch.no_grad():
            displacement, state = integrator.displace(velocity, state, index, generator)
            bad = [name for name, change in displacement.items() if not bool(torch.isfinite(change).all())]
            if bad:
                raise NonFiniteError(f"the displacement of {bad[0]!r} has NaN or infinite entries")
            del velocity
            rho = dynamics.move(rho, displacement, index)
            del displacement, snapshot
        index += 1


def _check_fits(start: Snapshot, dynamics: Dynamics, integrator: Integrator) -> None:
    """A snapshot continues under the dynamics and integrator it was taken with."""
    carries_laws = dynamics.start(start.dataset).law is not None
    if carries_laws != (start.dataset.law is not None):
        raise InputError("the checkpoint was taken with another dynamics", type(dynamics).__name__, "Resume with the same one.")
    wanted = set(integrator.init(dynamics.parameters(start.dataset)))
    if wanted != set(start.integrator):
        raise InputError(
            "the checkpoint was taken with another integrator", type(integrator).__name__, "Resume with the same one."
        )


def _evaluate(functional: Functional, dynamics: Dynamics, rho: LabeledDataset) -> tuple[dict[str, float], Tensors]:
    """The terms of F at ρ and its gradient in what moves; names the first term that is not finite."""
    leaves = {name: value.detach().requires_grad_() for name, value in dynamics.parameters(rho).items()}
    with torch.enable_grad():
        terms = functional.terms(dynamics.attach(rho, leaves))
    values = {name: float(value.detach()) for name, value in terms.items()}
    for name, value in values.items():
        if not math.isfinite(value):
            raise NonFiniteError(f"the term {name!r} is {value}")
    moving = [value for value in terms.values() if value.requires_grad]
    gradients: Sequence[Tensor | None] = [None] * len(leaves)
    if moving:
        gradients = torch.autograd.grad(moving, list(leaves.values()), [torch.ones_like(v) for v in moving], allow_unused=True)
    result = {}
    for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True):
        if gradient is not None and not bool(torch.isfinite(gradient.sum())):
            raise NonFiniteError(f"the gradient in {name!r} of {' + '.join(terms)} has NaN or infinite entries")
        result[name] = torch.zeros_like(leaf) if gradient is None else gradient
    return values, result


Callback = Callable[[Step], bool | None]


@dataclass(frozen=True, eq=False)
class FlowResult:
    """What a flow leaves behind.

    Attributes:
        dataset: the last state.  source: the first.
        status: "completed", "stopped" (by a callback), "interrupted" (Ctrl-C) or "diverged" (a value was not finite).
        message: the same in a sentence, with a remedy where there is one.
        values, terms, speeds, seconds: one entry for each evaluated state.
        n_steps: moves made.
        trajectory: the recorded frames, if there was a ``Recorder``.
        metrics: what ``Metric`` callbacks measured: ``{name: [(index, value), …]}``.
        functional, dynamics, integrator: what was run.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[4.0], [8.0]], ["a", "b"])
        >>> result = ad.flow(data, ad.Potential(ad.norm()), integrator=ad.Euler(1.0), n_steps=3)
        >>> result.status, result.values, result.dataset.x.flatten().tolist()
        ('completed', [6.0, 5.0, 4.0, 3.0], [1.0, 5.0])
    """

    dataset: LabeledDataset
    source: LabeledDataset
    status: str
    message: str
    values: list[float]
    terms: dict[str, list[float]]
    speeds: list[float]
    seconds: list[float]
    n_steps: int
    trajectory: Trajectory
    metrics: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    functional: Functional | None = None
    dynamics: Dynamics | None = None
    integrator: Integrator | None = None

    def checked(self) -> FlowResult:
        """This result, for code that goes on with it: Ctrl-C during the flow is raised again, divergence is an error.

        Example:
            >>> import advect as ad
            >>> data = ad.LabeledDataset([[4.0], [8.0]], ["a", "b"])
            >>> ad.flow(data, ad.Potential(ad.norm()), n_steps=3).checked().n_steps
            3
        """
        if self.status == "interrupted":
            raise KeyboardInterrupt
        if self.status == "diverged":
            raise InputError("the flow did not stay finite", self.message, "Try a smaller step_size or a larger epsilon.")
        return self

    @property
    def distance_term(self) -> OTDD | None:
        """The first ``OTDD`` in the functional, if there is one."""
        return None if self.functional is None else _first_distance(self.functional)

    @property
    def target(self) -> LabeledDataset | None:
        """Where the flow was going: the target of the functional's first ``OTDD``."""
        return None if self.distance_term is None else self.distance_term.target

    def report(self, path: str | Path, target: LabeledDataset | None = None, **options: Any) -> Path:
        """Write the flow as one HTML page that plays it; see ``advect.report.write_report`` for the options.

        Example:
            >>> import tempfile, advect as ad
            >>> data = ad.LabeledDataset([[4.0], [8.0]], ["a", "b"])
            >>> result = ad.flow(data, ad.Potential(ad.norm()), n_steps=3, callbacks=[ad.Recorder()])
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     result.report(f"{folder}/flow.html", title="Two points").name
            'flow.html'
        """
        from advect.report import write_report  # upward, for the user's convenience: the one such door

        return write_report(self, path, target=target, **options)

    def __repr__(self) -> str:
        first, last = (f"{value:.4g}" for value in (self.values[0], self.values[-1]))
        return f"FlowResult({self.status} after {self.n_steps} steps, value {first} → {last}, {self.seconds[-1]:.1f} s)"

    def _repr_html_(self) -> str:
        name = "objective" if self.functional is None else self.functional.name
        facts = {
            "status": f"{self.status}: {self.message}",
            "steps": f"{self.n_steps}",
            name: f"{self.values[0]:.4g} → {self.values[-1]:.4g}",
            "time": f"{self.seconds[-1]:.1f} s",
            **{metric: f"{curve[0][1]:.4g} → {curve[-1][1]:.4g}" for metric, curve in self.metrics.items() if curve},
            "frames": f"{len(self.trajectory)}",
        }
        return facts_table("FlowResult", facts)


def _first_distance(functional: Functional) -> OTDD | None:
    if isinstance(functional, OTDD):
        return functional
    if isinstance(functional, Scaled):
        return _first_distance(functional.functional)
    parts = functional.functionals if isinstance(functional, Sum) else ()
    return next((found for found in map(_first_distance, parts) if found is not None), None)


def flow(
    source: LabeledDataset,
    functional: Functional,
    *,
    dynamics: Dynamics | None = None,
    integrator: Integrator | None = None,
    n_steps: int = 100,
    callbacks: Sequence[Callback] = (),
    generator: torch.Generator | None = None,
    resume: str | Path | None = None,
) -> FlowResult:
    """Move a dataset down a functional for ``n_steps`` steps, or until a callback says stop.

    Args:
        source: the dataset to start from.
        functional: what to decrease, e.g. ``OTDD(target) + 0.1 * Potential(norm())``.
        dynamics: what may move: ``FeatureDriven()`` (default), ``JointFixedLabels()``, ``JointVariableLabels()``.
        integrator: how: ``Euler(0.1)`` (default), ``Momentum``, ``Adam``, ``Adagrad``, ``EulerMaruyama``.
        n_steps: how many moves in all, those before a resume included.
        callbacks: functions of a ``Step``; a true answer stops the flow. See ``Recorder``, ``Checkpoint``, ``StopWhen``,
            ``Progress``, ``Metric``.
        generator: source of randomness for stochastic integrators.
        resume: a directory or file written by ``Checkpoint``, to continue from bit for bit.

    Returns:
        A ``FlowResult``. Ctrl-C ends the flow cleanly with status "interrupted", after a last checkpoint where there is a
        ``Checkpoint``; a value that is not finite ends it with status "diverged" and the last good state.

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
        raise InputError("source must be a LabeledDataset", type(source).__name__, "Wrap arrays as ad.LabeledDataset(x, y).")
    if not isinstance(functional, Functional):
        raise InputError(
            "a flow needs a Functional", type(functional).__name__, "Use ad.OTDD(target), or wrap v as ad.Potential(v)."
        )
    n_steps = check_count("n_steps", n_steps, least=0)
    dynamics, integrator = dynamics or FeatureDriven(), integrator or Euler(0.1)
    start = None if resume is None else load_snapshot(Path(resume), source.x.device)
    if start is not None and start.index > n_steps:
        raise InputError(
            f"the checkpoint is at step {start.index}", f"n_steps={n_steps}", "n_steps counts the steps before too."
        )
    if start is not None:  # names that a file cannot hold are those of the source
        known = {stored_name(name): name for name in source.classes}
        classes = tuple(known.get(name, name) for name in start.dataset.classes)
        start = replace(start, dataset=start.dataset.replace(classes=classes))
    history = _History(start)
    for callback in callbacks:
        _hook(callback, "begin", source, start)
    status, message, last = "completed", "", None
    steps = iterate(source, functional, dynamics=dynamics, integrator=integrator, generator=generator, start=start)
    try:
        for step in steps:
            last = step
            history.add(step)
            stopped = [callback for callback in callbacks if callback(step)]
            if stopped:
                status, message = (
                    "stopped",
                    _hook(stopped[0], "reason") or f"{_name(stopped[0])} asked to stop at step {step.index}",
                )
                break
            if step.index >= n_steps:
                message = f"{n_steps} steps made"
                break
    except KeyboardInterrupt:
        status, message = "interrupted", f"interrupted after step {last.index if last else 0}"
    except NonFiniteError as error:
        at = last.index + 1 if last else 0
        status, message = (
            "diverged",
            f"stopped at step {at}: {error}. The state of the step before is kept; try a smaller step_size.",
        )
    if last is None:
        if status == "diverged":
            raise InputError("the functional is not finite on the source", message, "Check the data and the functional.")
        raise KeyboardInterrupt
    for callback in callbacks:
        _hook(callback, "end", last, status)
    trajectory = next(
        (t for t in (getattr(callback, "trajectory", None) for callback in callbacks) if t is not None), Trajectory()
    )
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
        trajectory,
        metrics,
        functional,
        dynamics,
        integrator,
    )


class _History:
    """Numbers of each evaluated state; those before a resume come from the checkpoint."""

    def __init__(self, start: Snapshot | None) -> None:
        kept: dict[str, Any] = start.history if start else {}
        self.values = list(kept.get("values", []))
        self.speeds = list(kept.get("speeds", []))
        self.seconds = list(kept.get("seconds", []))
        self.terms = {name: list(values) for name, values in kept.get("terms", {}).items()}
        self.offset = self.seconds[-1] if self.seconds else 0.0

    def add(self, step: Step) -> None:
        # The snapshot knows what came before it, so that a checkpoint can restore the curves as well.
        before = {"values": self.values, "speeds": self.speeds, "seconds": self.seconds, "terms": self.terms}
        object.__setattr__(step.snapshot, "history", before)
        object.__setattr__(step.snapshot, "length", len(self.values))
        self.values.append(step.value)
        self.speeds.append(step.speed)
        self.seconds.append(step.seconds + self.offset)
        for name, value in step.terms.items():
            self.terms.setdefault(name, []).append(value)


def _hook(callback: Callback, name: str, *arguments: Any) -> Any:
    """Call an optional method of a callback object."""
    method = getattr(callback, name, None)
    return method(*arguments) if callable(method) else None


def _name(callback: Callback) -> str:
    return getattr(callback, "__name__", type(callback).__name__)
