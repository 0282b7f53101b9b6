"""``advect flow`` and ``advect resume``: make the directory of a run, or continue it bit for bit."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

import advect as ad
import advect.registry as registry
from advect._util import InputError, defaults, refuse_if, write_atomically
from advect._util.lock import Hold
from advect.cli import rundir
from advect.cli.options import WRITE, FlowSettings, Out, Report, Write
from advect.cli.session import (
    FAILED,
    INTERRUPTED,
    Exit,
    Facts,
    Session,
    absolute_reference,
    say,
    session,
    write_json,
)
from advect.cli.terms import Term, functional

if TYPE_CHECKING:
    from advect.flows.loop import FlowResult

_SETTINGS = FlowSettings()
_FIRST_PAGE, _REFRESH, _SHARE = 2.0, 5, 0.1  # of the page of a run: seconds, and share of the time


def flow(
    source: str,
    target: str | None = None,
    *,
    out: Out,
    settings: Annotated[FlowSettings, Parameter(name="*")] = _SETTINGS,
    report: Report = True,
    write: Write = WRITE,
) -> None:
    """Move a dataset to another one, or along the gradient flow of a sum of functionals.

    Options that are not given are chosen from the data.

    Args:
        source: The dataset to move.
        target: The dataset to move toward.

    Example:
        advect flow digits mnist --max-samples 500 --n-steps 25 -o run
    """
    directory = out.expanduser()
    directory = directory.resolve() if directory.is_symlink() else directory
    from advect.io.logs import recover_run

    with session(write) as running, Hold(directory):
        remedy = f"Continue the run: advect resume {directory}. "
        recover_run(directory)
        has_results = rundir.check_free(directory, write.overwrite, remedy=remedy)
        job = prepare(_absolute(source, target, settings), directory, running, draw=True)
        with rundir.aside(directory) if has_results else nullcontext(bool) as commit:
            result = _run(job, running, report, commit)
        _finish(job, result, running, report)


def resume(
    run: Path, *, n_steps: int | None = None, report: Report = True, write: Write = WRITE
) -> None:
    """Continue an interrupted flow with identical results, or add more steps.

    Args:
        run: The directory of the run.
        n_steps: Total number of steps. The default is that of the run.

    Example:
        advect resume run --n-steps 200
    """
    with session(write) as running, Hold(run.expanduser()):
        directory = rundir.open_run(run)
        config = rundir.RunConfig.read(directory)
        if n_steps is not None:
            config = replace(config, settings=replace(config.settings, n_steps=n_steps))
        _continue(prepare(config, directory, running), running, report)


@dataclass(frozen=True, eq=False)
class Inputs:
    """The datasets of a flow in their common space, and what identifies them."""

    source: ad.LabeledDataset
    targets: dict[str, ad.LabeledDataset]  # by reference; that of the flow is ""
    space: ad.FeatureSpace | None
    digests: dict[str, str]


@dataclass(frozen=True, eq=False)
class Job:
    """A flow that is ready to run: datasets read, objects built, nothing written."""

    config: rundir.RunConfig  # with all defaults resolved
    directory: Path
    inputs: Inputs
    objects: dict[str, Any]  # arguments of ad.flow
    choices: dict[str, str]  # options that were chosen from the data, with their reasons


def prepare(config: rundir.RunConfig, directory: Path, running: Session, draw: bool = False) -> Job:
    """Read the datasets and build the objects of a run; errors in the input are raised here. With ``draw``
    they are drawn where the flow would take longer than a minute.
    """
    inputs = read_inputs(config, running)
    if draw and config.target is not None and (most := _most(config, inputs, running)):
        config = replace(config, settings=replace(config.settings, max_samples=most))
        inputs = read_inputs(config, running)
    settings, choices = config.settings, {}
    if settings.functional is None:
        most = max(len(inputs.source), len(inputs.targets[""]))
        settings, chosen = choose(settings, inputs.source, inputs.targets[""], most)
        choices = chosen._summary()
    n_steps = defaults.LOOK.n_steps if settings.n_steps is None else settings.n_steps
    every = settings.record_every or max(1, n_steps // 20)
    settings = replace(settings, n_steps=n_steps, record_every=every)
    if settings.equal_mass:
        targets = {name: data.balanced() for name, data in inputs.targets.items()}
        inputs = replace(inputs, source=inputs.source.balanced(), targets=targets)
    objects, resolved = build_objects(settings, inputs, running)
    settings = replace(settings, **resolved)
    return Job(replace(config, settings=settings), directory, inputs, objects, choices)


def _most(config: rundir.RunConfig, inputs: Inputs, running: Session) -> int | None:
    """The number of samples with which a flow to datasets takes a minute; None if they are fewer or an
    option sets it. Samples are read again with it, so that a resumed run has the same ones.
    """
    sets = [inputs.source, *inputs.targets.values()]
    references = filter(None, (config.source, config.target, *inputs.targets))
    solver = registry.make("solver", config.settings.solver or {})
    few = running.sampled(sets, "flow", *references, solver=solver)
    return None if few == sets else max(map(len, few))


def choose(
    settings: FlowSettings,
    source: ad.LabeledDataset,
    target: ad.LabeledDataset,
    max_samples: int | None,
) -> tuple[FlowSettings, Any]:
    """The settings with everything that is not given chosen from the data, and the choices."""
    kinds = ("cost", "solver", "dynamics", "integrator")
    tables = {kind: getattr(settings, kind) or {} for kind in kinds}
    given = {kind: registry.make(kind, table) for kind, table in tables.items() if table}
    cost, texts = given.pop("cost", None), {key.replace("-", "_") for key in tables["cost"]}
    given |= {name: getattr(cost, name) for name in texts & {"label", "label_weight"}}
    given |= {k: getattr(settings, k) for k in ("n_steps", "equal_mass", "memory_limit")}
    chosen = ad.suggest(source, target, max_samples=max_samples, **given)
    tables = {k: rundir.as_table(k, getattr(chosen, k)) | table for k, table in tables.items()}
    tables |= {"n_steps": chosen.n_steps, "equal_mass": chosen.equal_mass}
    return replace(settings, functional=("otdd",), **tables), chosen


def read_inputs(config: rundir.RunConfig, running: Session) -> Inputs:
    """The source, the target and those of single terms, in the space of source and first target."""
    from advect.data.digest import digest

    settings = config.settings
    running.read = replace(settings, equal_mass=False)  # after the space, in ``prepare``
    terms = [Term.parse(text) for text in settings.functional or ("otdd",)]
    references = {"": config.target} if config.target else {}
    references |= {term.target: term.target for term in terms if term.target}
    refuse_if(
        config.target is None and any(term.target == "" for term in terms),
        "the objective needs a target",
        "no second dataset",
        "Add one, or use -f norm.",
    )
    refuse_if(
        not references and settings.space,
        "a feature space needs two datasets",
        "one",
        "Add a target, or leave the space out.",
    )
    source = running.load(config.source)
    targets = {key: running.load(reference) for key, reference in references.items()}
    digests = {"source": digest(source)}
    digests |= {f"target {key}".strip(): digest(data) for key, data in targets.items()}
    if not targets:
        return Inputs(source, targets, None, digests)
    space = running.space(source, next(iter(targets.values())))
    targets = {key: space.apply(data, side="target") for key, data in targets.items()}
    return Inputs(space.apply(source), targets, space, digests)


def build_objects(
    settings: FlowSettings, inputs: Inputs, running: Session
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments of ``ad.flow``, and the settings with which the same objects are built again."""
    from advect.flows.choices import image_range
    from advect.flows.steps import default_control

    sets = (inputs.source, *inputs.targets.values())
    cost = running.cost(settings.cost, *sets)
    solver = registry.make("solver", settings.solver or {}, tol=defaults.LOOK.tol)
    shared = {"cost": cost, "solver": solver, "memory_limit": settings.memory_limit}
    energy = functional(settings.functional or (), inputs.source, inputs.targets, shared)
    dynamics = registry.make("dynamics", settings.dynamics or {}, bounds=image_range(*sets))
    if "laws" in registry.parameters(type(dynamics)):
        dynamics = replace(dynamics, laws=dynamics.law_form(inputs.source.dim))
    integrator = registry.make("integrator", settings.integrator or {})
    control = registry.make("control", settings.control) if settings.control else None
    control = control or default_control(energy, dynamics, integrator)
    objects = {"dynamics": dynamics, "integrator": integrator, "control": control}
    named = {**objects, "solver": solver, "cost": cost}
    if settings.stop:
        named["stop"] = registry.make("stop", settings.stop)
    resolved = {kind: rundir.as_table(kind, made) for kind, made in named.items()}
    return {"functional": energy, "n_steps": settings.n_steps, **objects}, resolved


def _run(
    job: Job, running: Session, report: bool, commit: Callable[[], object] | None = None
) -> FlowResult:
    """Run the flow and call ``commit`` when it has a checkpoint; without it, continue a flow."""
    import torch

    settings, directory = job.config.settings, job.directory
    callbacks: list[Any] = [
        _Describe(job, running.note),
        ad.Recorder(settings.record_every or 1, directory),
        ad.Checkpoint(directory, settings.checkpoint_every),
        *([] if commit is None else [lambda _: commit()]),
        rundir.Curves(directory),
        *([_LivePage(job, running.note)] if report else []),
        *([registry.make("stop", settings.stop)] if settings.stop else []),
    ]
    if not running.output.quiet:
        callbacks.append(ad.Progress(job.objects["n_steps"], "flow"))
    return ad.flow(
        job.inputs.source,
        **job.objects,
        callbacks=callbacks,
        generator=torch.Generator().manual_seed(settings.seed),
        resume=directory if commit is None else None,
    )


class _Describe:
    """A callback: write the files that describe a run once the objective has a first value."""

    def __init__(self, job: Job, note: Callable[[str], None]) -> None:
        self.job, self.note, self.done = job, note, False

    def __call__(self, step: Any) -> None:
        if self.done:
            return
        config, inputs, directory = self.job.config, self.job.inputs, self.job.directory
        for option, text in self.job.choices.items():
            self.note(f"{option}: {text}")
        (directory / "result.json").unlink(missing_ok=True)
        environment = rundir.environment(config.settings, inputs.digests)
        write_json(directory / "env.json", environment | {"choices": self.job.choices})
        write_atomically(directory / "config.toml", config.to_toml().encode())
        if inputs.space is not None:
            write_json(directory / "space.json", inputs.space.to_dict())
        self.done = True


class _LivePage:
    """A callback: rewrite the page of a run at its checkpoints, in at most a tenth of the time. The page
    loads itself again until the run has ended."""

    def __init__(self, job: Job, note: Callable[[str], None]) -> None:
        self.job, self.note, self._next = job, note, time.monotonic() + _FIRST_PAGE

    def __call__(self, step: Any) -> None:
        from advect.cli.look import write_page
        from advect.report import Story

        begin, job, settings = time.monotonic(), self.job, self.job.config.settings
        if step.index % settings.checkpoint_every or begin < self._next:
            return
        with suppress(Exception):  # a page does not end a flow; the last page reports an error
            story = replace(
                Story.of_run(job.directory),
                status="running",
                refresh=_REFRESH,
                target=job.inputs.targets.get(""),
                cost=registry.make("cost", settings.cost or {}),
            )
            self.note(f"page of the run: {write_page(story, job.config, job.directory)}")
            self.note = bool  # once
        self._next = time.monotonic() + (time.monotonic() - begin) / _SHARE


def _continue(job: Job, running: Session, report: bool) -> None:
    """Continue a run if its data has not changed since it began."""
    path = job.directory / "env.json"
    env = rundir.read_json(path)
    digests = rundir.entry(env, "digests", dict) if "digests" in env else {}
    if digests is None:
        raise InputError("env.json has no table of digests", path, "Restore it from a copy.")
    for name, value in digests.items():
        refuse_if(
            job.inputs.digests.get(name) != value,
            f"the {name} has changed since the run began",
            job.config.source if name == "source" else job.config.target,
            "Restore it, or start a new run.",
        )
    job = replace(job, choices=rundir.entry(env, "choices", dict) or {})
    _finish(job, _run(job, running, report), running, report)


def _finish(job: Job, result: FlowResult, running: Session, report: bool) -> None:
    """Write result.json and the page, and print the result."""
    directory, page = job.directory, None
    facts: dict[str, Any] = {
        "run": directory,
        "status": result.status,
        "message": result.message,
        "n_steps": result.n_steps,
        "first_value": result.values[0],
        "value": result.values[-1],
        "terms": {name: values[-1] for name, values in result.terms.items()},
        "seconds": round(result.seconds[-1], 3),
        "frames": len(result.trajectory),
        "best": result.best and {"step": result.best.index, "value": result.best.value},
        "notes": [str(note) for note in result.notes],
    }
    write_json(directory / "result.json", facts)
    failed = result.status in ("interrupted", "diverged")
    if report and (not failed or (directory / "report.html").exists()):
        from advect.cli.look import write_page
        from advect.report import Story

        story = replace(Story.of_result(result), target=job.inputs.targets.get(""))
        page = write_page(story, job.config, directory)
    if result.status == "rose":
        running.unconverged.append(result.message)
    running.finish(Facts(facts, facts.pop("notes")), report=page)
    if result.status == "interrupted":
        say(f"continue with: advect resume {directory}")
        raise Exit(INTERRUPTED)
    if result.status == "diverged":
        say(f"error: {result.message}")
        raise Exit(FAILED)


def _absolute(source: str, target: str | None, settings: FlowSettings) -> rundir.RunConfig:
    """A configuration that does not depend on the current directory."""
    settings = replace(settings, space=settings.space or None)
    target = None if target is None else absolute_reference(target)
    return rundir.RunConfig(absolute_reference(source), target, settings)
