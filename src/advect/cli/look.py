"""``advect show``, ``advect report`` and ``advect animate``: look at a run."""

from __future__ import annotations

import dataclasses
import shlex
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from advect.cli.options import OUTPUT, TALK, WRITE, Out, Talk, Write
from advect.cli.rundir import RunConfig, checkpoint_step, entry, open_run, read_json
from advect.cli.session import Facts, Session, session, short_names
from advect.errors import DamageWarning, InputError

if TYPE_CHECKING:
    import advect as ad
    from advect.flows.result import FlowResult
    from advect.report import Story


def show(run: Path, *, talk: Talk = TALK) -> None:
    """Show the status and results of a run.

    Args:
        run: The directory of the run.

    Example:
        advect show run
    """
    from advect.io.logs import is_frame, is_metric, read_lines

    with session(talk, light=True) as running:
        directory = open_run(run)
        config, ended = RunConfig.read(directory), _ended(directory)
        recorded = read_lines(directory / "frames.jsonl", is_frame)
        frames = sorted({record["index"] for record in recorded})
        log = read_lines(directory / "metrics.jsonl", is_metric)
        curve = [record for record in log if record["name"] == "flow"]
        last = curve[-1] if curve else {}
        steps = [checkpoint_step(directory / f"checkpoint-{one}.safetensors") for one in "ab"]
        done = last.get("index", max(frames, default=0))
        status = ended.get("status", "running or killed")
        facts: dict[str, Any] = {
            "run": directory,
            "status": status,
            "message": ended.get("message"),
            "source": config.source,
            "target": config.target,
            "functional": list(config.settings.functional),
            "step": done,
            "n_steps": config.settings.n_steps,
            "first_value": curve[0]["value"] if curve else None,
            "value": last.get("value"),
            "terms": last.get("terms", {}),
            "seconds": last.get("seconds"),
            "frames": frames,
            "checkpoints": sorted(step for step in steps if step is not None),
            "metrics": sorted({record["name"] for record in log} - {"flow"}),
        }
        if (directory / "report.html").is_file():
            facts["report"] = directory / "report.html"
        if done < config.settings.n_steps and status not in ("stopped", "diverged", "stalled"):
            facts["continue"] = f"advect resume {shlex.quote(str(directory))}"
        running.finish(Facts(facts, ended["notes"]))


def _ended(directory: Path) -> dict[str, Any]:
    """How a run ended, as far as result.json can be read."""
    try:
        facts = read_json(directory / "result.json")
    except InputError as error:
        warnings.warn(str(error), DamageWarning, stacklevel=2)
        facts = {}
    texts = {name: value for name in facts if (value := entry(facts, name, str)) is not None}
    return {**texts, "notes": [str(note) for note in entry(facts, "notes", list) or ()]}


def report(
    run: Path,
    *,
    out: Annotated[
        Path | None,
        Parameter(
            alias="-o",
            group=OUTPUT,
            help="The file to write. The default is report.html in the run.",
        ),
    ] = None,
    write: Write = WRITE,
) -> None:
    """Write the HTML page of a run.

    Args:
        run: The directory of the run.

    Example:
        advect report run
    """
    from advect.report import write_report

    with session(write) as running:
        directory = open_run(run)
        path = directory / "report.html" if out is None else running.place(out)
        assert path is not None
        story = _story(directory, running)
        running.recheck()
        write_report(story, path)
        facts = {"run": directory, "bytes": path.stat().st_size}
        running.finish(Facts(facts), None, {"report": path})


def _story(directory: Path, running: Session) -> Story:
    """What a run directory and the data that it names tell."""
    from advect.report import Story

    config, ended = RunConfig.read(directory), _ended(directory)
    known: dict[str, Any] = {name: ended[name] for name in ("status", "message") if name in ended}
    digests = entry(read_json(directory / "env.json"), "digests", dict) or {}
    known["digests"] = {str(name): str(value) for name, value in digests.items()}
    if not (config.settings.cost or {}).get("embedding") and not config.old:
        from advect._util import registry

        known["cost"] = running.cost(config.settings.cost)
        known["solver"] = registry.make("solver", config.settings.solver or {})
    story = dataclasses.replace(Story.of_run(directory), diagnosis=ended["notes"], **known)
    return _described(story, config, directory, _target(config, directory, running))


def _target(config: RunConfig, directory: Path, running: Session) -> ad.LabeledDataset | None:
    """The target of a run in the space of the flow; None, with a note, if it cannot be read."""
    from advect.io.run_frames import space_from

    path = directory / "space.json"
    try:
        facts = read_json(path)
        if config.target is None or not facts:
            return None
        coders = {
            name: text for name, text in (config.settings.space or {}).items() if ".py:" in text
        }
        running.read = config.settings
        space = space_from(facts, path, **running.coders(coders), progress=running.progress)
        return space.apply(running.load(config.target), side="target")
    except InputError as error:
        running.note(f"note: without the target {config.target}: {error}")
        return None


def _described(
    story: Story, config: RunConfig, directory: Path, target: ad.LabeledDataset | None
) -> Story:
    from advect.io.formats.guard import read_text

    references = [config.source, *([config.target] if config.target else [])]
    names = [*short_names(references), "target"]
    return dataclasses.replace(
        story,
        target=target,
        names=(names[0], names[1]),
        config=read_text(directory / "config.toml"),
        command=f"advect flow -c {shlex.quote(str(directory / 'config.toml'))} -o again",
        metrics={name: curve for name, curve in story.metrics.items() if name != "flow"},
    )


def write_page(
    result: FlowResult, config: RunConfig, directory: Path, target: ad.LabeledDataset | None
) -> Path:
    """The page of a run that has just ended."""
    from advect.report import Story, write_report

    story = Story.of_result(result)
    return write_report(_described(story, config, directory, target), directory / "report.html")


def animate(run: Path, *, out: Out, fps: int = 12, write: Write = WRITE) -> None:
    """Write a run as an animation, .gif or .webp.

    Args:
        run: The directory of the run.
        fps: Frames per second.

    Example:
        advect animate run -o run.gif
    """
    with session(write) as running:
        from advect import viz
        from advect.io.trajectory import Trajectory

        directory = open_run(run)
        path = running.place(out, (".gif", ".webp"))
        assert path is not None
        trajectory = Trajectory.open(directory)
        target = _target(RunConfig.read(directory), directory, running)
        running.recheck()
        viz.animation(trajectory, path, target=target, fps=fps)
        facts = {"run": directory, "frames": len(trajectory), "bytes": path.stat().st_size}
        running.finish(Facts(facts), None, {"out": path})
