"""``advect flow`` and ``advect resume``: make the directory of a run, or continue it bit for bit."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from advect._util import defaults, registry
from advect.cli import rundir
from advect.cli.code import absolute, is_code, load_object
from advect.cli.options import OUTPUT, WRITE, Flag, FlowSettings, Out, Write
from advect.cli.session import (
    FAILED,
    INTERRUPTED,
    Exit,
    Facts,
    Session,
    absolute_reference,
    say,
    session,
)
from advect.cli.terms import Term, absolute_term, functional
from advect.errors import InputError

if TYPE_CHECKING:
    import advect as ad
    from advect.flows.result import FlowResult

Report = Annotated[bool, Parameter(group=OUTPUT, help="Write report.html at the end.")]
_SETTINGS = FlowSettings()
_MAY_CHANGE = ("n_steps", "record_every", "checkpoint_every")


def flow(
    source: str,
    target: str | None = None,
    *,
    out: Out,
    settings: Annotated[FlowSettings, Parameter(name="*")] = _SETTINGS,
    resume: Annotated[
        Flag, Parameter(group=OUTPUT, help="Continue the run if there is one.")
    ] = False,
    report: Report = True,
    write: Write = WRITE,
) -> None:
    """Move a dataset toward another one, or along the gradient flow of any sum of functionals.

    Args:
        source: The dataset that moves.
        target: The dataset to move toward.

    Example:
        advect flow digits mnist --max-samples 500 --n-steps 25 -o run
    """
    directory = out.expanduser()
    with session(write, settings.cost, settings.space, code=_code(settings)) as running:
        config = _absolute(source, target, settings)
        with rundir.writing(directory):
            if resume and rundir.has_checkpoint(directory):
                rundir.check_plain_files(directory)
                job = prepare(config, directory, running)
                _check_unchanged(job, running)
                _check_same_data(job, running)
                return _finish(job, _run(job, running, True), running, report)
            # a run that was killed before its first checkpoint starts again
            started = resume and (directory / "config.toml").exists()
            remedy = f"Continue the run: advect resume {directory}. "
            rundir.check_free(directory, write.overwrite or started, remedy=remedy)
            job = prepare(config, directory, running)
            with rundir.replacing(directory) as place:
                result = _run(replace(job, directory=place), running, False)
            from advect.io.trajectory import Trajectory

            result = dataclasses.replace(result, trajectory=Trajectory.open(directory))
            return _finish(job, result, running, report)


def resume(
    run: Path, *, n_steps: int | None = None, report: Report = True, write: Write = WRITE
) -> None:
    """Continue a flow, bit for bit as if it had not been interrupted, or with more steps.

    Args:
        run: The directory of the run.
        n_steps: Total number of steps. The default is that of the run.

    Example:
        advect resume run --n-steps 200
    """
    with session(write) as running, rundir.writing(run.expanduser()):
        directory = rundir.open_run(run)
        config = rundir.RunConfig.read(directory)
        for name in _code(config.settings) + list((config.settings.space or {}).values()):
            if is_code(name):
                running.code.check(name)
        if n_steps is not None:
            config = replace(config, settings=replace(config.settings, n_steps=n_steps))
        job = prepare(config, directory, running)
        _check_same_data(job, running)
        _finish(job, _run(job, running, True), running, report)


@dataclass(frozen=True, eq=False)
class Job:
    """A flow that is ready to run: datasets read, objects built, nothing written."""

    config: rundir.RunConfig
    directory: Path
    source: ad.LabeledDataset
    targets: dict[str, ad.LabeledDataset]
    space: ad.FeatureSpace | None
    arguments: dict[str, Any]  # of ad.flow
    digests: dict[str, str]


def prepare(config: rundir.RunConfig, directory: Path, running: Session) -> Job:
    """Read the datasets and build the objects of a run; errors in the input are raised here."""
    from advect.flows.control import default_control
    from advect.flows.field import Field

    settings = config.settings
    if config.old:
        remedy = "Run the flow again, or resume it with advect 0.2."
        raise InputError("the run was written by advect 0.2", directory, remedy)
    terms = [Term.parse(text) for text in settings.functional]
    if config.target is None and any(term.target == "" for term in terms):
        raise InputError(
            "the objective needs a target", "no second dataset", "Add one, or use -f norm."
        )
    source, targets, space, digests, dtype = _datasets(config, terms, settings, running)
    cost = running.cost(settings.cost, source, *targets.values())
    solver = registry.make("solver", settings.solver or {}, tol=defaults.LOOK.tol)
    shared = {"cost": cost, "solver": solver, "memory_limit": settings.memory_limit}
    energy = functional(settings.functional, source, targets, running.code, shared)
    dynamics = _dynamics(settings, source, *targets.values())
    integrator = registry.make("integrator", settings.integrator or {})
    control = registry.make("control", settings.control) if settings.control else None
    control = control or default_control(Field(energy, dynamics), integrator)
    parts = {"dynamics": dynamics, "integrator": integrator, "control": control}
    resolved = {name: _texts(name, part) for name, part in {**parts, "solver": solver}.items()}
    resolved["cost"] = _texts("cost", cost)
    if settings.cost and "embedding" in settings.cost:
        resolved["cost"]["embedding"] = settings.cost["embedding"]
        resolved["cost"].pop("feature", None)
    if settings.stop:
        resolved["stop"] = _texts("stop", registry.make("stop", settings.stop))
    settings = replace(settings, **resolved, dtype=settings.dtype or dtype)
    config = replace(config, settings=settings)
    arguments = {"functional": energy, **parts}
    return Job(config, directory, source, targets, space, arguments, digests)


def _texts(kind: str, made: Any) -> dict[str, str]:
    table = registry.describe(kind, made)
    return {key: registry.as_text(value) for key, value in table.items() if value is not None}


def _dynamics(settings: FlowSettings, *sets: ad.LabeledDataset) -> Any:
    """The dynamics; images stay in the range of images, and the motion of laws is resolved."""
    bounds = image_bounds(*sets)
    made = registry.make("dynamics", settings.dynamics or {}, bounds=bounds)
    if "laws" in registry.parameters(type(made)):
        return dataclasses.replace(made, laws=made.law_form(sets[0].dim))
    return made


def image_bounds(*sets: ad.LabeledDataset) -> tuple[float, float] | None:
    """The range of the pixels if all datasets are images."""
    from advect.spaces.images import brightness_range

    return brightness_range(*((data.sample_shape, data.x) for data in sets))


def _datasets(
    config: rundir.RunConfig, terms: list[Term], settings: FlowSettings, running: Session
) -> tuple[
    ad.LabeledDataset,
    dict[str, ad.LabeledDataset],
    ad.FeatureSpace | None,
    dict[str, str],
    str | None,
]:
    """Source, targets by reference (the main one as ""), space, digests, and the common dtype."""
    from advect.data.digest import digest

    others = [term.target for term in terms if term.target]
    references = [config.target, *others] if config.target else others
    running.read = settings
    source = running.load(config.source)
    if not references and settings.space:
        remedy = "Add a target, or leave the space out."
        raise InputError("a feature space needs two datasets", "one", remedy)
    sets = {reference: running.load(reference) for reference in references}
    dtypes = {str(data.x.dtype).removeprefix("torch.") for data in (source, *sets.values())}
    dtype = dtypes.pop() if len(dtypes) == 1 else None
    if not sets:
        return source, {}, None, {"source": digest(source)}, dtype
    space = running.space(source, sets[references[0]], settings.space)
    raw = {"source": source} | {f"target {name}": sets[name] for name in others}
    moved = {name: space.apply(data, side="target") for name, data in sets.items()}
    targets = {name: moved[name] for name in others}
    if config.target:
        targets[""], raw["target"] = moved[config.target], sets[config.target]
    source = space.apply(source)
    coders = space.digests()
    # features of an encoder may differ in the last bits between machines, so its inputs count
    seen = (
        raw
        if coders
        else {"source": source} | {f"target {k}".strip(): v for k, v in targets.items()}
    )
    return source, targets, space, {name: digest(v) for name, v in seen.items()} | coders, dtype


def _run(job: Job, running: Session, resume: bool) -> FlowResult:
    import torch

    import advect as ad
    from advect.cli.interrupt import Interruptible

    settings = job.config.settings
    progress = None if running.output.quiet else ad.Progress(settings.n_steps, "flow")
    callbacks = [*_callbacks(job, running), *([progress] if progress else [])]
    with Interruptible() as interruptible:
        try:
            return ad.flow(
                job.source,
                **job.arguments,
                n_steps=settings.n_steps,
                callbacks=[*callbacks, interruptible],
                generator=torch.Generator().manual_seed(settings.seed),
                resume=job.directory if resume else None,
            )
        finally:
            if progress is not None:
                progress.close()


def _callbacks(job: Job, running: Session) -> list[Any]:
    import advect as ad

    settings, directory = job.config.settings, job.directory
    every = settings.record_every or max(1, settings.n_steps // 20)
    watch: list[Any] = [
        _Describe(job),
        ad.Recorder(every, directory),
        ad.Checkpoint(directory, settings.checkpoint_every),
        rundir.Curves(directory),
    ]
    for text in settings.metric:
        measure = load_object(text, "a metric", running.code)
        if not callable(measure):
            got = type(measure).__name__
            raise InputError("a metric must be a function of a dataset", got, "Name a function.")
        name = text.rpartition(":")[2]
        watch.append(ad.Metric(name, measure, settings.metric_every, directory=directory))
    if settings.stop:
        watch.append(registry.make("stop", settings.stop))
    return watch


class _Describe:
    """A callback: once the objective has a first value, write the files that describe the run."""

    def __init__(self, job: Job) -> None:
        self.job, self.done = job, False

    def __call__(self, step: Any) -> None:
        if self.done:
            return
        job, directory = self.job, self.job.directory
        (directory / "result.json").unlink(missing_ok=True)
        job.config.write(directory)
        environment = rundir.environment(job.config.settings, job.digests)
        rundir.write_json(directory / "env.json", environment)
        if job.space is not None:
            rundir.write_json(directory / "space.json", job.space.to_dict())
        self.done = True


def _finish(job: Job, result: FlowResult, running: Session, report: bool) -> None:
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
    rundir.write_json(directory / "result.json", facts)
    if report and result.status not in ("interrupted", "diverged"):
        from advect.cli.look import write_page

        try:
            page = write_page(result, job.config, directory, job.targets.get(""))
        except Exception as error:  # the run itself is complete
            why = f"{type(error).__name__}: {error}"
            running.note(f"warning: no report was written ({why}); try advect report {directory}")
    files = {"report": page}
    failed = result.status in ("interrupted", "diverged")
    converged = result.status != "rose"
    if result.status == "rose":
        running.unconverged.append(result.message)
    shown = Facts(facts, facts.pop("notes"))
    running.finish(shown, None, files, converged=failed or converged)
    if result.status == "interrupted":
        say(f"continue with: advect resume {directory}")
        raise Exit(INTERRUPTED)
    if result.status == "diverged":
        say(f"error: {result.message}")
        raise Exit(FAILED)


def _absolute(source: str, target: str | None, settings: FlowSettings) -> rundir.RunConfig:
    """A configuration that does not depend on the current directory."""
    tables: dict[str, Any] = {}
    for name, keys in (("cost", ("embedding",)), ("space", ("encoder", "decoder"))):
        table = dict(getattr(settings, name) or {})
        for key in keys:
            if (text := table.get(key)) is not None:
                path = str(Path(text).expanduser().absolute())
                table[key] = absolute(text) if is_code(text) else path
        tables[name] = table or None
    settings = replace(
        settings,
        **tables,
        functional=tuple(absolute_term(text) for text in settings.functional),
        metric=tuple(absolute(text) for text in settings.metric),
        record_every=settings.record_every or max(1, settings.n_steps // 20),
    )
    target = None if target is None else absolute_reference(target)
    return rundir.RunConfig(absolute_reference(source), target, settings)


def _code(settings: FlowSettings) -> list[str]:
    """The objects in Python files that the settings name."""
    tables = {**(settings.cost or {}), **(settings.space or {})}
    names = [Term.parse(text).name for text in settings.functional]
    texts = [*names, *settings.metric, *tables.values()]
    return [text for text in texts if is_code(text)]


def _check_unchanged(job: Job, running: Session) -> None:
    """``--resume`` continues the same run: only the number of steps may differ."""
    before = rundir.RunConfig.read(job.directory)
    if before.settings.functional == job.config.settings.functional:
        before = prepare(before, job.directory, running).config  # with all defaults resolved
    pairs = [(_flat(one)) for one in (before, job.config)]
    for name in {**pairs[0], **pairs[1]}:
        was, is_now = (pair.get(name) for pair in pairs)
        if name not in _MAY_CHANGE and was != is_now:
            raise InputError(
                f"the run in {job.directory} has another {name}",
                f"{is_now} instead of {was}",
                "Choose another directory, or pass --overwrite instead of --resume.",
            )


def _flat(config: rundir.RunConfig) -> dict[str, Any]:
    flat: dict[str, Any] = {"source": config.source, "target": config.target}
    for name, value in dataclasses.asdict(config.settings).items():
        inner = value if isinstance(value, dict) else {}
        flat |= {f"{name}.{key}": text for key, text in inner.items()}
        if name not in rundir.OBJECTS:
            flat[name] = value
    return flat


def _check_same_data(job: Job, running: Session) -> None:
    """Raise an error if the data has changed since the run began."""
    import torch

    path = job.directory / "env.json"
    env = rundir.read_json(path)
    digests = rundir.entry(env, "digests", dict) if "digests" in env else {}
    if digests is None:
        raise InputError("env.json has no table of digests", path, "Restore it from a copy.")
    for name, value in digests.items():
        if job.digests.get(name) != value:
            raise InputError(
                f"the {name} has changed since the run began",
                job.config.source if name == "source" else job.config.target,
                "Restore it, or start a new run.",
            )
    if env.get("torch") not in (None, str(torch.__version__)):
        versions = f"torch {env['torch']}; with {torch.__version__}"
        running.note(f"note: the run began with {versions} it may differ in the last bits")
