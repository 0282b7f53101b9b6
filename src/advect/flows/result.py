"""What a flow leaves behind, and what a careful user would want to know of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from advect._util.html import facts_table
from advect.data.dataset import LabeledDataset
from advect.datasets.trajectory import Trajectory
from advect.errors import InputError
from advect.flows.control import StepControl
from advect.flows.dynamics import Dynamics
from advect.flows.integrators import Integrator
from advect.flows.law_motion import Tensors
from advect.functionals.base import Functional, State
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
    """The state of a flow with the lowest value.

    Attributes:
        index: how many moves led there.  value: F(ρ).  dataset: the state.
    """

    index: int
    value: float
    dataset: LabeledDataset


@dataclass(frozen=True, eq=False)
class FlowResult:
    """What a flow leaves behind.

    Attributes:
        dataset: the last state.  source: the first.
        status: "completed"; "rose" (completed, but the value ended above its lowest: see ``best``);
            "stopped" (by a callback); "stalled" (no step, however small, makes the value fall);
            "interrupted" (Ctrl-C); "diverged" (not finite).
        message: the same in a sentence, with a remedy where there is one.
        values, terms, speeds, seconds: one entry for each evaluated state.
        n_steps: moves made.
        trajectory: the recorded frames; without a ``Recorder`` the first state and the last.
        metrics: what ``Metric`` callbacks measured: ``{name: [(index, value), …]}``.
        functional, dynamics, integrator, control: what was run.
        best: the state with the lowest value, as ``best.dataset``, ``best.value`` and
            ``best.index``.
        unconverged: in how many steps a solver did not meet its tolerance.
        state: what the functional remembers after the last step, such as the "epsilon" that a
            relative one was made, and the "error" of the last value.
        integrator_state: what the integrator remembers after the last step.
        diagnosis: in plain sentences, what a careful user would want to know, each with a remedy.

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
    control: StepControl | None = None
    best: Lowest | None = None
    unconverged: int = 0
    state: State = field(default_factory=dict)
    integrator_state: Tensors = field(default_factory=dict)

    @cached_property
    def diagnosis(self) -> tuple[Note, ...]:
        """What a careful user would want to know of this flow; nothing where there is nothing to
        say.

        Example:
            >>> import advect as ad
            >>> data = ad.LabeledDataset([[1.0]], ["a"])
            >>> bowl = ad.Potential(lambda x, y: x.square().sum(1) / 2)
            >>> result = ad.flow(data, bowl, integrator=ad.Euler(3.0), n_steps=3, control=ad.FixedSteps())
            >>> result.status, result.best.index
            ('rose', 0)
            >>> print(result.diagnosis[0].what)
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
        if self.integrator is not None and self.integrator_state:
            notes += self.integrator.notes(self.integrator_state)
        if self.target is not None and "cost" in self.options:
            leaves = "solver" in self.options and self.options["solver"].leaves_mass
            cost = self.options["cost"]
            notes += of_pair(self.source, self.target, cost, leaves_mass=leaves)
        for name, left in self.state.items():
            notes += of_reach(float(left)) if name.rpartition(".")[2] == "mass_left" else []
        return (*notes, *of_mixing(self.source, self.dataset, self.target))

    def checked(self) -> FlowResult:
        """This result, for code that goes on with it: Ctrl-C during the flow is raised again,
        divergence is an error.

        Example:
            >>> import advect as ad
            >>> data = ad.LabeledDataset([[4.0], [8.0]], ["a", "b"])
            >>> ad.flow(data, ad.Potential(ad.norm()), n_steps=3).checked().n_steps
            3
        """
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
        """Where the flow was going, if that is a dataset: the functional's ``target``."""
        return None if self.functional is None else self.functional.target

    @property
    def options(self) -> dict[str, Any]:
        """How the functional computes the distance to the target, by name."""
        return {} if self.functional is None else self.functional.options

    def report(
        self,
        path: str | Path | None = None,
        target: LabeledDataset | None = None,
        *,
        beside: Any = None,
        **options: Any,
    ) -> Any:
        """The flow as one HTML page that plays it: written to a path, which is returned, or without
        one as an object that a notebook shows. See ``advect.report.write_report`` for the options.

        Args:
            path: the file to write, or None.
            target: where the flow was going; by default the functional's ``target``.
            beside: another flow, or several by name: then the page sets them side by side, with what
                differs between them; see ``advect.report.write_runs_report``.
            options: of the page.

        Example:
            >>> import tempfile, advect as ad
            >>> data = ad.LabeledDataset([[4.0], [8.0]], ["a", "b"])
            >>> result = ad.flow(data, ad.Potential(ad.norm()), n_steps=3, callbacks=[ad.Recorder()])
            >>> other = ad.flow(data, ad.Potential(ad.norm()), n_steps=3, integrator=ad.Adam())
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     result.report(f"{folder}/flow.html", title="Two points").name
            ...     result.report(f"{folder}/both.html", beside={"Adam": other}).name
            'flow.html'
            'both.html'
        """
        # Upward, for the user's convenience: the one such door (tests/test_architecture.py names
        # it).
        report = import_module("advect.report")
        if beside is not None:
            named = isinstance(beside, Mapping)
            runs = {"this run": self, **beside} if named else [self, beside]
            if path is None:
                return report.inline_runs(runs, **options)
            return report.write_runs_report(runs, path, **options)
        if path is None:
            return report.inline_report(self, target=target, **options)
        return report.write_report(self, path, target=target, **options)

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
            **{
                metric: f"{curve[0][1]:.4g} → {curve[-1][1]:.4g}"
                for metric, curve in self.metrics.items()
                if curve
            },
            "frames": f"{len(self.trajectory)}",
            **{f"note {k}": str(note) for k, note in enumerate(self.diagnosis, start=1)},
        }
        return facts_table("FlowResult", facts)
