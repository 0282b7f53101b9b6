"""``advect show``, ``advect report`` and ``advect animate``: what became of a run."""

from __future__ import annotations

import dataclasses
import shlex
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from advect.cli.code import Permission
from advect.cli.config import Out, Overwrite, RunCode
from advect.cli.output import TALK, Talk, TalkOptions, note_lines, noted
from advect.cli.places import check_free_file, require_run
from advect.cli.run_facts import checkpoint_steps
from advect.cli.rundir import entry, read_config, read_json
from advect.cli.typed import permission
from advect.errors import DamageWarning, InputError

if TYPE_CHECKING:
    import advect as ad
    from advect.cli.job import Job, Ready
    from advect.data.spaces.pictures import Pictures
    from advect.report import Story


def show(run: Path, *, talk: TalkOptions = TALK) -> None:
    """What became of a run.

    Args:
        run: Its directory.
    """
    from advect.datasets.logs import is_metric, read_lines
    from advect.datasets.recovery import frame_records

    with talk.listening():
        directory = require_run(run.expanduser())
        source, target, options = read_config(directory)
        ended = _ended(directory)
        frames = sorted({record["index"] for record in frame_records(directory)[0]})
        log = read_lines(directory / "metrics.jsonl", is_metric)
    curve = [record for record in log if record["name"] == "flow"]
    others = sorted({record["name"] for record in log} - {"flow"})
    done = curve[-1]["index"] if curve else frames[-1]
    checkpoints = checkpoint_steps(directory)
    facts: dict[str, Any] = {
        "run": directory,
        "status": ended.get("status", "running or killed"),
        "message": ended.get("message"),
        "source": source,
        "target": target,
        "functional": list(options.functional),
        "steps": done,
        "wanted_steps": options.steps,
        "first_value": curve[0]["value"] if curve else None,
        "value": curve[-1]["value"] if curve else None,
        "terms": curve[-1]["terms"] if curve else {},
        "seconds": curve[-1]["seconds"] if curve else None,
        "frames": frames,
        "checkpoints": checkpoints,
        "metrics": others,
        "best": ended.get("best"),
        "diagnosis": ended.get("diagnosis", []),
        "report": directory / "report.html" if (directory / "report.html").exists() else None,
    }
    lines = [
        f"{directory}: {facts['status']}, step {done} of {options.steps}",
        f"  {source} → {target or 'no target'}",
    ]
    if curve:
        lines.append(
            f"  value {curve[0]['value']:.6g} → {curve[-1]['value']:.6g} in "
            f"{curve[-1]['seconds']:.1f} s"
        )
        lines += (
            [f"    {name}: {value:.6g}" for name, value in facts["terms"].items()]
            if len(facts["terms"]) > 1
            else []
        )
    lines.append(
        f"  {len(frames)} frames, steps {_listed(frames)}; checkpoints at {_listed(checkpoints)}"
    )
    if done < options.steps and facts["status"] not in ("stopped", "diverged", "stalled"):
        lines.append(f"  go on with: advect resume {shlex.quote(str(directory))}")
    lines += [f"  {line}" for line in note_lines(facts["diagnosis"])]
    talk.result(facts, "\n".join(lines))


def _ended(directory: Path) -> dict[str, Any]:
    """How a run ended, as far as that can be read; the run is whole without it."""
    try:
        facts = read_json(directory / "result.json")
    except InputError as error:
        warnings.warn(str(error), DamageWarning, stacklevel=2)
        return {}
    texts = {name: value for name in facts if (value := entry(facts, name, str)) is not None}
    notes = [note for note in entry(facts, "diagnosis", list) or () if type(note) is dict]
    said = [{part: str(note.get(part, "")) for part in ("what", "remedy")} for note in notes]
    return {**texts, "best": entry(facts, "best", dict), "diagnosis": said}


def _listed(steps: list[int]) -> str:
    return (
        ", ".join(map(str, steps)) if len(steps) <= 6 else f"{steps[0]}, {steps[1]}, … {steps[-1]}"
    )


def report(
    *runs: Path,
    out: Annotated[
        Path | None,
        Parameter(
            alias="-o",
            help="Where to write; by default report.html in the run, and runs.html here for several.",
        ),
    ] = None,
    overwrite: Overwrite = False,
    run_code: RunCode = False,
    talk: TalkOptions = TALK,
) -> None:
    """A page about a run; about several, side by side, with what differs between them.

    Args:
        runs: Its directory, or those of two to six.
    """
    from advect.report import write_report, write_runs_report
    from advect.report.runs import different_names

    if not runs:
        raise InputError(
            "a report is about a run", "none", "Pass the directory that advect flow -o … wrote."
        )
    with talk.listening():
        places = [require_run(run.expanduser()) for run in runs]
        alone = len(places) == 1
        path = places[0] / "report.html" if alone else Path("runs.html")
        path = path if out is None else out.expanduser()
        check_free_file(path, overwrite or (alone and out is None))
        names = different_names(places)
        stories = {
            name: _whole_story(place, permission(run_code), talk)
            for name, place in zip(names, places, strict=True)
        }
        (first, *others) = stories.values()
        path = write_runs_report(stories, path) if others else write_report(first, path)
    about = {"run": places[0]} if alone else {"runs": places}
    talk.result({**about, "report": path, "bytes": path.stat().st_size}, f"{path}")


def _whole_story(directory: Path, code: Permission, talk: Talk) -> Story:
    """What a run directory, the data that it names, and how it ended say."""
    from advect.cli.job import target_of
    from advect.report import Story

    job = _job(directory, code)
    ended = _ended(directory)
    known = {name: ended[name] for name in ("status", "message") if name in ended}
    known["diagnosis"] = [*map(_sentence, ended.get("diagnosis", []))]
    digests = entry(read_json(directory / "env.json"), "digests", dict) or {}
    known["digests"] = {str(name): str(value) for name, value in digests.items()}
    story = dataclasses.replace(Story.of_run(directory), **known, **_compared(job))
    return _told(story, job, *target_of(job, talk))


def _compared(job: Job) -> dict[str, Any]:
    """The cost and the solver of the run, where no code of others is needed to make them."""
    from advect.cli import build

    if job.options.cost.embedding is not None:
        return {}
    cost = build.cost(job.options.cost, job.code)
    return {"cost": cost, "solver": job.options.solver.built()}


def write_page(ready: Ready, result: ad.FlowResult, path: Path) -> Path:
    """The page about a run that has just ended."""
    from advect.report import Story, write_report

    story = dataclasses.replace(
        Story.of_result(result), diagnosis=[*map(_sentence, noted(result.diagnosis))]
    )
    return write_report(_told(story, ready.job, ready.target, ready.pictures), path)


def _sentence(note: Mapping[str, str]) -> str:
    return f"{note['what']} {note['remedy']}"


def _told(
    story: Story, job: Job, target: ad.LabeledDataset | None, pictures: Pictures | None
) -> Story:
    """A story with what the run directory knows."""
    from advect.cli.inputs import short_names
    from advect.data.formats.guard import read_text

    names = (
        short_names([job.source, job.target])
        if job.target
        else [*short_names([job.source]), "target"]
    )
    command = f"advect flow -c {shlex.quote(str(job.directory / 'config.toml'))} -o again"
    return dataclasses.replace(
        story,
        target=target,
        pictures=pictures,
        names=(names[0], names[1]),
        config=read_text(job.directory / "config.toml"),
        command=command,
        metrics={name: curve for name, curve in story.metrics.items() if name != "flow"},
    )


def animate(
    run: Path,
    *,
    out: Out,
    fps: Annotated[int, Parameter(help="Frames in a second.")] = 12,
    overwrite: Overwrite = False,
    run_code: RunCode = False,
    talk: TalkOptions = TALK,
) -> None:
    """A run as a moving picture, .gif or .mp4.

    Args:
        run: Its directory.
    """
    from advect import viz
    from advect._util.checks import check_known
    from advect.cli.job import target_of
    from advect.datasets.trajectory import Trajectory

    directory, path = require_run(run.expanduser()), out.expanduser()
    check_known("format of an animation", path.suffix.lower(), (".gif", ".mp4"))
    check_free_file(path, overwrite)
    with talk.listening():
        trajectory = Trajectory.open(directory)
        target, _ = target_of(_job(directory, permission(run_code)), talk)
        viz.animation(trajectory, path, target=target, fps=fps)
    facts = {"run": directory, "out": path, "frames": len(trajectory), "bytes": path.stat().st_size}
    talk.result(facts, f"{path}: {len(trajectory)} frames")


def _job(directory: Path, code: Permission) -> Job:
    from advect.cli.job import Job

    source, target, options = read_config(directory)
    return Job(source, target, options, directory, code)
