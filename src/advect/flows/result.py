"""The result of a flow."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from advect._util.result import Result
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.flows.dynamics import Dynamics
from advect.flows.integrators import Integrator
from advect.flows.law_motion import Tensors
from advect.flows.steps import StepControl
from advect.functionals.base import Functional, State
from advect.io.trajectory import Trajectory
from advect.transport.notes import (
    Note,
    of_growth,
    of_mixing,
    of_noise,
    of_pair,
    of_reach,
    of_solver,
    of_values,
)


@dataclass(frozen=True, eq=False)
class Lowest:
    """The state of a flow with the lowest value, after ``index`` moves."""

    index: int
    value: float
    dataset: LabeledDataset


@dataclass(frozen=True, eq=False)
class FlowResult(Result):
    """The result of ``advect.flow``.

    Attributes:
        dataset: the last state.  source: the first.
        status: "completed"; "rose" (completed, but the value ended above its lowest: see ``best``);
            "stopped" (by a callback); "stalled" (no step, however small, decreases the value);
            "interrupted" (Ctrl-C); "diverged" (not finite).
        message: the status in a sentence, with a remedy where there is one.
        values, terms, speeds, seconds: one entry for each evaluated state.
        n_steps: moves made.
        trajectory: the recorded frames; without a ``Recorder`` the first state and the last.
        metrics: values of ``Metric`` callbacks, ``{name: [(index, value), …]}``.
        functional, dynamics, integrator, control: what was run.
        best: the state with the lowest value: ``best.dataset``, ``best.value``, ``best.index``.
        unconverged: number of steps in which a solver did not meet its tolerance.
        state: state of the functional after the last step, such as "epsilon" and "error".
        integrator_state: state of the integrator after the last step.

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
    metrics: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    functional: Functional | None = None
    dynamics: Dynamics | None = None
    integrator: Integrator | None = None
    control: StepControl | None = None
    best: Lowest | None = None
    unconverged: int = 0
    state: State = field(default_factory=dict)
    integrator_state: Tensors = field(default_factory=dict)

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
        random: list[str] = []
        if self.functional is not None and self.functional.stochastic:
            random.append(self.functional.name)
        if self.integrator is not None and self.integrator.stochastic:
            random.append(type(self.integrator).__name__)
        notes = of_noise(random)
        if self.functional is not None and self.functional.stochastic and self.functional.curved:
            notes += of_growth(self.values)
        if not random:
            sizes, terms = None, list(self.terms.values())
            # A term may be of some steps only.
            if terms and all(len(term) == len(self.values) for term in terms):
                sizes = [sum(map(abs, parts)) for parts in zip(*terms, strict=True)]
            notes += of_values(
                self.values, self.n_steps + 1 - len(self.values), self.dataset.x.dtype, sizes
            )
        notes += of_solver(self.unconverged, len(self.values))
        if self.target is not None and "cost" in self.options:
            leaves = "solver" in self.options and self.options["solver"].reach is not None
            cost = self.options["cost"]
            notes += of_pair(self.source, self.target, cost, leaves_mass=leaves)
        for name, left in self.state.items():
            notes += of_reach(float(left)) if name.rpartition(".")[2] == "mass_left" else []
        return (*notes, *of_mixing(self.source, self.dataset, self.target))

    @property
    def settings(self) -> dict[str, str]:
        """What was run, as text."""
        names = ("functional", "dynamics", "integrator", "control")
        parts = {name: getattr(self, name) for name in names}
        return {name: repr(part) for name, part in parts.items() if part is not None}

    def checked(self) -> FlowResult:
        """This result, or an error: Ctrl-C during the flow is raised again, divergence too."""
        if self.status == "interrupted":
            raise KeyboardInterrupt
        if self.status == "diverged":
            raise InputError(
                "the flow did not stay finite",
                self.message,
                "Try a smaller step_size or a larger epsilon.",
            )
        return self

    @property
    def target(self) -> LabeledDataset | None:
        """The functional's ``target``, if it has one."""
        return None if self.functional is None else self.functional.target

    @property
    def options(self) -> dict[str, Any]:
        """How the functional computes the distance to the target, by name."""
        return {} if self.functional is None else self.functional.options

    def _summary(self) -> dict[str, Any]:
        name = "objective" if self.functional is None else self.functional.name
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
            samples = viz.image_grid(self) if images else viz.particles(self, self.target)
            drawn["Samples"] = samples
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
