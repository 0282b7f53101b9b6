"""A whole flow: ``iterate`` with callbacks, an end, and a ``FlowResult`` of what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from advect._util import defaults
from advect._util.checks import check_count, check_kind
from advect.data.class_names import stored_name
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.flows.callbacks import Callback, Watchers
from advect.flows.dynamics import Dynamics
from advect.flows.field import Field, NonFiniteError
from advect.flows.integrators import Integrator
from advect.flows.result import FlowResult, Lowest
from advect.flows.snapshots import Snapshot, load_snapshot
from advect.flows.steps import StalledError, Step, StepControl, default_control, iterate, parts_of
from advect.functionals import Functional
from advect.io.trajectory import Frame, Trajectory
from advect.transport.notes import ended_above


def flow(
    source: LabeledDataset,
    functional: Functional,
    *,
    dynamics: Dynamics | None = None,
    integrator: Integrator | None = None,
    control: StepControl | None = None,
    n_steps: int = defaults.LOOK.n_steps,
    callbacks: Sequence[Callback] = (),
    generator: torch.Generator | None = None,
    resume: str | Path | None = None,
) -> FlowResult:
    """Move a dataset down a functional for ``n_steps`` steps, or until a callback stops it.

    Args:
        source: the dataset to start from.
        functional: what to decrease, e.g. ``OTDD(target) + 0.1 * Potential(norm())``.
        dynamics: what moves: ``FeatureDriven()`` (default), ``JointFixedLabels()``,
            ``JointVariableLabels()``, ``JointTargets()``.
        integrator: ``Euler(0.1)`` (default), ``Heun``, ``Momentum``, ``Adam``, ``Adagrad`` or
            ``EulerMaruyama``.
        control: ``Backtracking()`` reduces a step until the value falls, ``FixedSteps()`` makes every
            step. The default is the first where velocities are gradients of a value without noise.
        n_steps: total number of moves, including those before a resume.
        callbacks: functions of a ``Step``; a true answer stops the flow. See ``Recorder``,
            ``Checkpoint``, ``StopWhen``, ``Progress``, ``Metric``.
        generator: random numbers of stochastic integrators.
        resume: a directory or file written by ``Checkpoint``, to continue from bit for bit.

    Returns:
        A ``FlowResult``, also after Ctrl-C (status "interrupted"), a value that is not finite
        ("diverged", with the last good state) or one that no step decreases ("stalled").

    Example:
        >>> import torch, advect as ad
        >>> generator = torch.Generator().manual_seed(0)
        >>> source = ad.datasets.gaussians(60, generator=generator)
        >>> target = ad.datasets.gaussians(60, shift=(5.0, 0.0), generator=generator)
        >>> result = ad.flow(source, ad.OTDD(target), integrator=ad.Euler(0.2), n_steps=20)
        >>> result.status, result.values[-1] < 0.01 * result.values[0]
        ('completed', True)
    """
    watchers = Watchers(callbacks)
    try:
        remedy = "Wrap arrays as ad.LabeledDataset(x, y)."
        check_kind("source must be a LabeledDataset", source, LabeledDataset, remedy)
        remedy = "Use ad.OTDD(target), or wrap v as ad.Potential(v)."
        check_kind("a flow needs a Functional", functional, Functional, remedy)
        n_steps = check_count("n_steps", n_steps, least=0)
        dynamics, integrator = parts_of(dynamics, integrator)
        control = control or default_control(Field(functional, dynamics), integrator)
        start = None if resume is None else _resumed(Path(resume), source, n_steps)
        history = _History(start)
        watchers.begin(source, start)
        parts = {"dynamics": dynamics, "integrator": integrator, "control": control}
        steps = iterate(source, functional, **parts, generator=generator, start=start)
        status, message, last = _walk(steps, history, watchers, n_steps)
        if status == "completed" and not (functional.stochastic or integrator.stochastic):
            rose = ended_above(history.values, last.dataset.x.dtype)
            if rose:
                status, message = "rose", f"{n_steps} steps made; {rose}"
        watchers.end(last, status)
        trajectory = watchers.trajectory
        if not len(trajectory):  # nobody recorded: it has its ends
            first = Frame(0, history.values[0], source)
            trajectory = Trajectory.of(first, Frame(last.index, last.value, last.dataset))
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
            watchers.metrics,
            functional,
            **parts,
            best=history.best,
            unconverged=history.unconverged,
            state=last.state,
            integrator_state=last.snapshot.integrator,
        )
    finally:
        watchers.close()


def _resumed(path: Path, source: LabeledDataset, n_steps: int) -> Snapshot:
    """The snapshot to continue from."""
    start = load_snapshot(path, source.x.device)
    if start.index > n_steps:
        raise InputError(
            f"the checkpoint is at step {start.index}",
            f"n_steps={n_steps}",
            "n_steps counts the steps before too.",
        )
    # Names that a file cannot hold are those of the source.
    known = {stored_name(name): name for name in source.classes}
    classes = tuple(known.get(name, name) for name in start.dataset.classes)
    return replace(start, dataset=start.dataset.replace(classes=classes))


def _walk(
    steps: Iterator[Step], history: _History, watchers: Watchers, n_steps: int
) -> tuple[str, str, Step]:
    """Follow the steps to their end: status, message, last step."""
    last: Step | None = None
    try:
        for step in steps:
            last = step = history.add(step)
            if reason := watchers(step):
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
    """Curves and best state of a flow, continued from a checkpoint on resume."""

    def __init__(self, start: Snapshot | None) -> None:
        kept: dict[str, Any] = start.history if start else {}
        self.values = list(kept.get("values", []))
        self.speeds = list(kept.get("speeds", []))
        self.seconds = list(kept.get("seconds", []))
        self.terms = {name: list(values) for name, values in kept.get("terms", {}).items()}
        self.converged = list(kept.get("converged", [True] * len(self.values)))
        self.offset = self.seconds[-1] if self.seconds else 0.0
        self.best = None if start is None or start.best is None else Lowest(*start.best)

    @property
    def unconverged(self) -> int:
        """In how many steps a solver did not meet its tolerance."""
        return self.converged.count(False)

    def add(self, step: Step) -> Step:
        """The step with a snapshot that includes the curves before it, for checkpoints."""
        curves = {"values": self.values, "speeds": self.speeds, "seconds": self.seconds}
        before = {**curves, "terms": self.terms, "converged": self.converged}
        length, lower = len(self.values), None
        if self.best is not None and self.best.value <= step.value:
            lower = (self.best.index, self.best.value, self.best.dataset)
        else:  # it is this state, which the snapshot has anyway
            self.best = Lowest(step.index, step.value, step.dataset)
        self.values.append(step.value)
        self.speeds.append(step.speed)
        self.seconds.append(step.seconds + self.offset)
        self.converged.append(step.converged)
        for name, value in step.terms.items():
            self.terms.setdefault(name, []).append(value)
        snapshot = replace(step.snapshot, history=before, length=length, best=lower)
        return replace(step, snapshot=snapshot)
