"""A whole flow: ``iterate`` with callbacks, an end, and a ``FlowResult``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import torch

from advect._util import (
    InputError,
    MemoryLimit,
    Result,
    check_count,
    check_kind,
    defaults,
    refuse_if,
)
from advect.cost import LabelCost
from advect.data.class_names import pack_any, unpack_name
from advect.data.dataset import LabeledDataset
from advect.flows.callbacks import Callback, CallbackList
from advect.flows.choices import Advice, suggest
from advect.flows.dynamics import Dynamics
from advect.flows.field import NonFiniteError
from advect.flows.integrators import Integrator
from advect.flows.snapshots import Snapshot, load_snapshot
from advect.flows.steps import (
    History,
    StalledError,
    Step,
    StepControl,
    checked_parts,
    default_control,
    iterate,
)
from advect.functionals.base import Functional, State
from advect.io.trajectory import Frame, Trajectory
from advect.ot import Solver
from advect.transport import notes as transport_notes
from advect.transport.notes import Note


def flow(
    source: LabeledDataset,
    functional: Functional | LabeledDataset,
    *,
    dynamics: Dynamics | None = None,
    integrator: Integrator | None = None,
    control: StepControl | None = None,
    n_steps: int | None = None,
    label: LabelCost | None = None,
    label_weight: float | None = None,
    solver: Solver | None = None,
    equal_mass: bool | None = None,
    memory_limit: MemoryLimit = None,
    max_samples: int | None = None,
    callbacks: Sequence[Callback] = (),
    generator: torch.Generator | None = None,
    resume: str | Path | None = None,
) -> FlowResult:
    """Move a dataset toward another one, or down any functional.

    ``ad.flow(source, target)`` decreases ``OTDD(target)``. What is not given is chosen from the data, and
    ``result.settings`` has every choice with its reason. Among the choices are equal masses of the
    classes and, where both datasets have the same class names, a matching by name. ``ad.suggest``
    shows the choices without running the flow.

    ``ad.flow(source, ad.OTDD(target, …))`` is the explicit form, with the definition of the paper.

    Args:
        source: the dataset to start from.
        functional: a dataset to move toward, or what to decrease, e.g.
            ``OTDD(target) + 0.1 * Potential(norm())``.
        dynamics: what moves: ``FeatureDriven()`` (default), ``JointFixedLabels()``,
            ``JointVariableLabels()``, ``JointTargets()``.
        integrator: ``Euler``, ``Heun``, ``Momentum``, ``Adam`` or ``EulerMaruyama``. The
            default is ``Euler(0.1)`` for a functional and chosen for a dataset.
        control: ``Backtracking()`` reduces a step until the value falls, ``FixedSteps()`` makes every
            step. The default is the first where velocities are gradients of a value without noise.
        n_steps: number of moves, including those before a resume. The flow ends earlier if a callback
            stops it. The default is 100 for a functional and chosen for a dataset.
        label, label_weight, solver, equal_mass, memory_limit, max_samples: as for ``ad.suggest``, where
            the second argument is a dataset. ``label=ad.Bures()`` compares class distributions instead of names.
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
        >>> result = ad.flow(source, target, n_steps=20)
        >>> result.status, result.values[-1] < 0.01 * result.values[0]
        ('completed', True)
        >>> print(result.settings["equal_mass"])
        no: class proportions are equal
        >>> explicit = ad.flow(source, ad.OTDD(target), integrator=ad.Euler(0.2), n_steps=20)
        >>> "equal_mass" in explicit.settings
        False
    """
    choices: dict[str, Any] = {"label": label, "label_weight": label_weight, "solver": solver}
    choices |= {"equal_mass": equal_mass, "memory_limit": memory_limit, "max_samples": max_samples}
    if isinstance(functional, LabeledDataset):
        choices |= {"dynamics": dynamics, "integrator": integrator, "n_steps": n_steps}
        chosen = suggest(source, functional, **choices)
        made = flow(
            chosen.source,
            chosen.objective,
            dynamics=chosen.dynamics,
            integrator=chosen.integrator,
            control=control,
            n_steps=chosen.n_steps,
            callbacks=callbacks,
            generator=generator,
            resume=resume,
        )
        return replace(made, advice=chosen.advice)
    watchers = CallbackList(callbacks)
    try:
        given = ", ".join(name for name, value in choices.items() if value is not None)
        refuse_if(given, "a functional has its own cost and solver", given, "Pass them to it.")
        check_kind(
            "source must be a LabeledDataset",
            source,
            LabeledDataset,
            "Wrap arrays as ad.LabeledDataset(x, y).",
        )
        check_kind(
            "a flow needs a Functional",
            functional,
            Functional,
            "Use a LabeledDataset, ad.OTDD(target), or wrap v as ad.Potential(v).",
        )
        total = (
            defaults.LOOK.n_steps if n_steps is None else check_count("n_steps", n_steps, least=0)
        )
        dynamics, integrator = checked_parts(dynamics, integrator)
        control = control or default_control(functional, dynamics, integrator)
        start = None if resume is None else _load_start(Path(resume), source, total)
        # A resumed flow continues the curves of the checkpoint, and its states bit for bit.
        history = History(start)
        watchers.begin(source, start)
        parts = {"dynamics": dynamics, "integrator": integrator, "control": control}
        steps = iterate(source, functional, **parts, generator=generator, start=start)
        status, message, last = _follow(steps, history, watchers, total)
        if status == "completed" and not (functional.stochastic or integrator.stochastic):
            rise = transport_notes.ended_above(history.values, last.dataset.x.dtype)
            if rise:
                status, message = "rose", f"{total} steps made; {rise}"
        watchers.end(last, status)
        trajectory = watchers.trajectory
        if not len(trajectory):  # without a recorder: the first state and the last
            first = Frame(0, history.values[0], source)
            trajectory = Trajectory.of(first, Frame(last.index, last.value, last.dataset))
        return FlowResult(
            dataset=last.dataset,
            source=source,
            status=status,
            message=message,
            values=history.values,
            terms=history.terms,
            speeds=history.speeds,
            seconds=history.seconds,
            n_steps=last.index,
            trajectory=trajectory,
            metrics=watchers.metrics,
            functional=functional,
            **parts,
            best=history.best,
            unconverged=history.converged.count(False),
            state=last.state,
            time=last.snapshot.control.get("time", float(last.index)),
        )
    finally:
        watchers.close()


def _load_start(path: Path, source: LabeledDataset, n_steps: int) -> Snapshot:
    """The snapshot to continue from."""
    start = load_snapshot(path, source.x.device)
    refuse_if(
        start.index > n_steps,
        f"the checkpoint is at step {start.index}",
        f"n_steps={n_steps}",
        "n_steps includes the steps before the checkpoint.",
    )
    # A file holds some class names as text. The names of the source replace them.
    names = {unpack_name(pack_any(name)): name for name in source.classes}  # as a run stores them
    classes = tuple(names.get(name, name) for name in start.dataset.classes)
    index = source.index if len(source) == len(start.dataset) else None  # not in files
    return replace(start, dataset=start.dataset.replace(classes=classes, index=index))


def _follow(
    steps: Iterator[Step], history: History, watchers: CallbackList, n_steps: int
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
        raise AssertionError("iterate never ends")
    except KeyboardInterrupt:
        if last is None:
            raise
        return "interrupted", f"interrupted after step {last.index}", last
    except StalledError as error:
        assert last is not None
        advice = "If this is not the minimum, try a smaller step_size, a smaller tol of the solver, or float64."
        return "stalled", f"stopped at step {last.index}: {error}. {advice}", last
    except NonFiniteError as error:
        if last is None:
            raise InputError(
                "the functional is not finite on the source",
                f"stopped at step 0: {error}",
                "Check the data and the functional.",
            ) from error
        advice = "The previous state is kept. Try a smaller step_size."
        return "diverged", f"stopped at step {last.index + 1}: {error}. {advice}", last


@dataclass(frozen=True, eq=False)
class FlowResult(Result):
    """The result of ``advect.flow``.

    Attributes:
        dataset: the last state.  source: the first, a draw if ``notes`` says so.
        status: "completed"; "rose" (completed, but the value ended above its lowest: see ``best``);
            "stopped" (by a callback); "stalled" (no step, however small, decreases the value);
            "interrupted" (Ctrl-C); "diverged" (not finite).
        message: the status in a sentence, with a remedy where there is one.
        values, terms, speeds, seconds: one entry for each evaluated state.
        n_steps: moves made.
        trajectory: the recorded frames; without a ``Recorder`` the first state and the last.
        metrics: values of ``Metric`` callbacks, ``{name: [(index, value), …]}``.
        functional, dynamics, integrator, control: what was run.
        advice: what was chosen from the data, with the reasons; empty for an explicit functional.
        best: the frame with the lowest value: ``best.dataset``, ``best.value``, ``best.index``.
        unconverged: number of steps in which a solver did not meet its tolerance.
        state: state of the functional after the last step, such as "epsilon" and "error".
        time: flow time in units of step_size: ``n_steps`` if no step was shortened.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[4.0], [8.0]], ["a", "b"])
        >>> result = ad.flow(data, ad.Potential(ad.norm()), integrator=ad.Euler(1.0), n_steps=3)
        >>> result.status, result.values, result.dataset.x.flatten().tolist()
        ('completed', [6.0, 5.0, 4.0, 3.0], [1.0, 5.0])
    """

    title: ClassVar[str] = "Flow"

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
    metrics: dict[str, list[tuple[int, float]]]
    functional: Functional
    dynamics: Dynamics
    integrator: Integrator
    control: StepControl
    best: Frame | None
    unconverged: int
    state: State
    time: float
    advice: tuple[Advice, ...] = ()

    @cached_property
    def notes(self) -> tuple[Note, ...]:
        """Problems that were noticed, each with a remedy; empty if there are none.

        Example:
            >>> import advect as ad
            >>> data = ad.LabeledDataset([[1.0]], ["a"])
            >>> bowl = ad.Potential(lambda x, y: x.square().sum(1) / 2)
            >>> result = ad.flow(data, bowl, integrator=ad.Euler(3.0), n_steps=3, control=ad.FixedSteps())
            >>> print(result.notes[0].what)
            The value rose in 3 of 3 steps, first at step 1, and ended at 32, above its lowest of 0.5 at step 0.
        """
        functional, integrator = self.functional, self.integrator
        noisy = [functional.name] if functional.stochastic else []
        noisy += [type(integrator).__name__] if integrator.stochastic else []
        observations = transport_notes.of_noise(noisy)
        if not noisy:
            sizes, terms = None, list(self.terms.values())
            # A term may be missing in some steps.
            if terms and all(len(term) == len(self.values) for term in terms):
                sizes = [sum(map(abs, parts)) for parts in zip(*terms, strict=True)]
            observations += transport_notes.of_values(
                self.values, self.n_steps + 1 - len(self.values), self.dataset.x.dtype, sizes
            )
        share = self.time / self.n_steps if self.n_steps else 1.0
        observations += transport_notes.of_steps(share, self.values)
        observations += transport_notes.of_solver(self.unconverged, len(self.values))
        if self.target is not None and "cost" in self.options:
            leaves_mass = "solver" in self.options and self.options["solver"].reach is not None
            cost = self.options["cost"].fitted(self.source, self.target)
            observations += (
                *transport_notes.of_pair(self.source, self.target, cost, leaves_mass=leaves_mass),
                *transport_notes.of_matching(cost.between(self.source, self.target)),
            )
        for name, mass_left in self.state.items():
            if name.rpartition(".")[2] == "mass_left":
                observations += transport_notes.of_reach(float(mass_left))
        draws = (choice.reason for choice in self.advice if choice.option == "max_samples")
        return (
            *(Note(*text.split(". ")) for text in draws),
            *observations,
            *transport_notes.of_mixing(self.source, self.dataset, self.target),
        )

    @property
    def settings(self) -> dict[str, str]:
        """What was run, as text; what was chosen from the data comes with the reason."""
        names = ("functional", "dynamics", "integrator", "control")
        chosen = {option: f"{value}: {reason}" for option, value, reason in self.advice}
        return {name: repr(getattr(self, name)) for name in names} | chosen

    def checked(self) -> FlowResult:
        """This result, or an error: Ctrl-C during the flow is raised again, divergence too."""
        if self.status == "interrupted":
            raise KeyboardInterrupt
        refuse_if(
            self.status == "diverged",
            "the flow did not stay finite",
            self.message,
            "Try a smaller step_size or a larger epsilon.",
        )
        return self

    @property
    def target(self) -> LabeledDataset | None:
        """The functional's ``target``, if it has one."""
        return self.functional.target

    @property
    def options(self) -> dict[str, Any]:
        """How the functional computes the distance to the target, by name."""
        return self.functional.options

    def _summary(self) -> dict[str, Any]:
        name = self.functional.name
        curves = {metric: curve for metric, curve in self.metrics.items() if curve}
        return {
            "status": self.status,
            "message": self.message,
            "steps": self.n_steps,
            f"first {name}": self.values[0],
            f"last {name}": self.values[-1],
            **{f"last {metric}": curve[-1][1] for metric, curve in curves.items()},
            "seconds": self.seconds[-1],
            "frames": len(self.trajectory),
        }

    def figures(self) -> dict[str, Any]:
        """The curves, and the samples over time where they are images or in two or three
        dimensions.
        """
        viz = import_module("advect.viz")
        drawn = {"Objective": viz.curves(self)}
        with suppress(InputError):  # samples that cannot be drawn
            images = len(self.source.sample_shape) > 1
            drawn["Samples"] = viz.image_grid(self) if images else viz.particles(self, self.target)
        return drawn

    def report(
        self,
        path: str | Path,
        target: LabeledDataset | None = None,
        *,
        title: str | None = None,
        **options: Any,
    ) -> Path:
        """Write the flow as one HTML page that plays it, and return its path.

        Args:
            path: the file to write.
            target: drawn next to the flow; by default the functional's ``target``.
            title: the heading.
            options: of ``advect.report.write_report``.

        Example:
            >>> import tempfile, advect as ad
            >>> data = ad.LabeledDataset([[4.0], [8.0]], ["a", "b"])
            >>> result = ad.flow(data, ad.Potential(ad.norm()), n_steps=3, callbacks=[ad.Recorder()])
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     result.report(f"{folder}/flow.html", title="Two points").name
            'flow.html'
        """
        report = import_module("advect.report")
        return report.write_report(self, path, target=target, title=title, **options)

    def __repr__(self) -> str:
        first, last = (f"{value:.4g}" for value in (self.values[0], self.values[-1]))
        return f"FlowResult({self.status} after {self.n_steps} steps, value {first} → {last}, {self.seconds[-1]:.1f} s)"
