"""``advect flow`` and ``advect resume``: a run directory is made, or gone on with, bit for bit."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from advect.cli.config import FlowOptions, Out, Overwrite, RunCode, Strict
from advect.cli.options import switch
from advect.cli.output import (
    FAILED,
    INTERRUPTED,
    TALK,
    Talk,
    TalkOptions,
    leave,
    note_lines,
    noted,
    say,
)
from advect.cli.places import (
    check_files,
    check_free,
    has_checkpoint,
    replacing,
    require_run,
    writing,
)
from advect.cli.rundir import read_config, write_json
from advect.cli.typed import permission

if TYPE_CHECKING:
    import advect as ad
    from advect.cli.job import Ready

Report = Annotated[bool, Parameter(help="Write report.html at the end.")]


def flow(
    source: str,
    target: str | None = None,
    *,
    out: Out,
    options: Annotated[FlowOptions, Parameter(name="*")] = FlowOptions.model_construct(),  # noqa: B008 (frozen)
    overwrite: Overwrite = False,
    resume: Annotated[bool, switch("Go on with the run if there is one already.")] = False,
    report: Report = True,
    strict: Strict = False,
    run_code: RunCode = False,
    talk: TalkOptions = TALK,
) -> None:
    """Move a dataset.

    Args:
        source: The dataset that moves.
        target: The dataset to move toward.
    """
    from advect.cli.job import Job, check_unchanged, prepare
    from advect.datasets.trajectory import Trajectory

    job = Job.settle(source, target, options, out.expanduser(), permission(run_code, options.code))
    with talk.listening() as unconverged, writing(job.directory):
        if resume and has_checkpoint(job.directory):
            check_files(job.directory)
            ready = prepare(job, talk)
            check_unchanged(ready)
            return _go_on(ready, talk, unconverged, report=report, strict=strict)
        begun = (
            resume and (job.directory / "config.toml").exists()
        )  # killed before its first checkpoint: it is begun anew
        check_free(
            job.directory,
            overwrite or begun,
            remedy=f"Go on with them: advect resume {job.directory}. ",
        )
        ready = prepare(job, talk)
        with replacing(job.directory) as place:
            result = _run(ready.at(place), talk, resume=False)
        result = dataclasses.replace(result, trajectory=Trajectory.open(job.directory))
        return _tell(ready, result, talk, unconverged, report=report, strict=strict)


def resume(
    run: Path,
    *,
    steps: Annotated[
        int | None, Parameter(help="How many steps in all; by default as before.")
    ] = None,
    report: Report = True,
    strict: Strict = False,
    run_code: RunCode = False,
    talk: TalkOptions = TALK,
) -> None:
    """Go on with a run.

    Args:
        run: Its directory.
    """
    from advect.cli.job import Job, prepare

    with talk.listening() as unconverged, writing(run.expanduser()):
        directory = require_run(run.expanduser())
        source, target, options = read_config(directory)
        code = permission(run_code, options.code)
        if steps is not None:
            options = options.model_copy(update={"steps": steps})
        ready = prepare(Job(source, target, options, directory, code), talk)
        _go_on(ready, talk, unconverged, report=report, strict=strict)


def _go_on(ready: Ready, talk: Talk, unconverged: list[str], *, report: bool, strict: bool) -> None:
    from advect.cli.job import check_same

    check_same(ready, talk)
    result = _run(ready, talk, resume=True)
    _tell(ready, result, talk, unconverged, report=report, strict=strict)


def _run(ready: Ready, talk: Talk, *, resume: bool) -> ad.FlowResult:
    import torch

    import advect as ad
    from advect.cli.interrupt import Interruptible

    options, objects, callbacks = ready.job.options, ready.objects, ready.callbacks()
    progress = None if talk.quiet else ad.Progress(options.steps, "flow")
    with Interruptible() as interruptible:
        try:
            return ad.flow(
                ready.source,
                objects.functional,
                dynamics=objects.dynamics,
                integrator=objects.integrator,
                control=objects.control,
                n_steps=options.steps,
                callbacks=[*callbacks, *([progress] if progress else []), interruptible],
                generator=torch.Generator().manual_seed(options.seed),
                resume=ready.job.directory if resume else None,
            )
        finally:
            if progress is not None:
                progress.close()


def _tell(
    ready: Ready,
    result: ad.FlowResult,
    talk: Talk,
    unconverged: list[str],
    *,
    report: bool,
    strict: bool,
) -> None:
    directory = ready.job.directory
    facts: dict[str, Any] = {
        "run": directory,
        "status": result.status,
        "message": result.message,
        "steps": result.n_steps,
        "first_value": result.values[0],
        "value": result.values[-1],
        "terms": {name: values[-1] for name, values in result.terms.items()},
        "seconds": round(result.seconds[-1], 3),
        "frames": len(result.trajectory),
        "solver_converged": not unconverged,
        "best": None
        if result.best is None
        else {"step": result.best.index, "value": result.best.value},
        "diagnosis": noted(result.diagnosis),
        "report": None,
    }
    text = f"{result.status} after {result.n_steps} steps: value {facts['first_value']:.6g} → {facts['value']:.6g}"
    lines = [
        f"{text} in {result.seconds[-1]:.1f} s ({result.message})",
        f"{directory}: {len(result.trajectory)} frames",
    ]
    lines += note_lines(facts["diagnosis"])
    write_json(directory / "result.json", facts)
    if report and result.status not in ("interrupted", "diverged"):
        facts["report"] = _page(ready, result, talk)
        lines += [f"open {facts['report']}"] if facts["report"] else []
        write_json(directory / "result.json", facts)
    talk.result(facts, "\n".join(lines))
    if result.status == "interrupted":
        say(f"go on with: advect resume {directory}")
        leave(INTERRUPTED)
    if result.status == "diverged":
        say(f"error: {result.message}")
        leave(FAILED)
    talk.end(unconverged or ([result.message] if result.status == "rose" else []), strict)


def _page(ready: Ready, result: ad.FlowResult, talk: Talk) -> Path | None:
    """The page about a run; a flow that was made is made, whatever becomes of its page."""
    from advect.cli.look import write_page

    directory = ready.job.directory
    write = partial(write_page, ready, result, directory / "report.html")
    return talk.page(write, f"; try advect report {directory}")
