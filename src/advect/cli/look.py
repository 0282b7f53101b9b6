"""``advect show`` and ``advect report``: inspect a run."""

from __future__ import annotations

import dataclasses
import shlex
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from advect.cli.options import OUTPUT, PRINT, WRITE, Print, Write
from advect.cli.rundir import RunConfig, entry, open_run, read_json
from advect.cli.session import Facts, session, short_names
from advect.errors import DamageWarning, InputError

if TYPE_CHECKING:
    from advect.report import Story


def show(run: Path, *, output: Print = PRINT) -> None:
    """Show the status and results of a run.

    Args:
        run: The directory of the run.

    Example:
        advect show run
    """
    from advect.io.logs import is_frame, is_metric, read_lines

    with session(output) as running:
        directory = open_run(run)
        config, ended = RunConfig.read(directory), _ended(directory)
        recorded = read_lines(directory / "frames.jsonl", is_frame)
        frames = sorted({record["index"] for record in recorded})
        log = read_lines(directory / "metrics.jsonl", is_metric)
        curve = [record for record in log if record["name"] == "flow"]
        last = curve[-1] if curve else {}
        done = last.get("index", max(frames, default=0))
        status = ended.get("status", "running or killed")
        facts: dict[str, Any] = {
            "run": directory,
            "status": status,
            "message": ended.get("message"),
            "source": config.source,
            "target": config.target,
            "functional": list(config.settings.functional or ()),
            "step": done,
            "n_steps": config.settings.n_steps,
            "first_value": curve[0]["value"] if curve else None,
            "value": last.get("value"),
            "terms": last.get("terms", {}),
            "seconds": last.get("seconds"),
            "frames": frames,
            "metrics": sorted({record["name"] for record in log} - {"flow"}),
        }
        if (directory / "report.html").is_file():
            facts["report"] = directory / "report.html"
        if done < (config.settings.n_steps or 0) and status not in (
            "stopped",
            "diverged",
            "stalled",
        ):
            facts["continue"] = f"advect resume {shlex.quote(str(directory))}"
        running.finish(Facts(facts, ended["notes"]))


def _ended(directory: Path) -> dict[str, Any]:
    """The end of a run, as far as result.json can be read."""
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
            help="Path of the page. The default is report.html in the run.",
        ),
    ] = None,
    write: Write = WRITE,
) -> None:
    """Write the HTML page of a run. The datasets are not needed.

    Args:
        run: The directory of the run.

    Example:
        advect report run
    """
    from advect.report import Story

    with session(write) as running:
        directory = open_run(run)
        running.file("report", out)
        config = RunConfig.read(directory)
        ended = _ended(directory)
        fields: dict[str, Any] = {
            name: ended[name] for name in ("status", "message") if name in ended
        }
        fields |= {"diagnosis": ended["notes"], "cost": running.cost(config.settings.cost)}
        story = dataclasses.replace(Story.of_run(directory), **fields)
        path = running.files.setdefault("report", directory / "report.html")
        write_page(story, config, directory, path)
        running.finish(Facts({"run": directory}))


def write_page(
    story: Story,
    config: RunConfig,
    directory: Path,
    path: Path | None = None,
) -> Path:
    """Write the page of a run; by default report.html in its directory."""
    from advect.io.formats.guard import read_text
    from advect.report import write_report

    choices = entry(read_json(directory / "env.json"), "choices", dict) or {}

    names = [*short_names([name for name in (config.source, config.target) if name]), "target"]
    story = dataclasses.replace(
        story,
        names=(names[0], names[1]),
        setup={**story.setup, **choices},
        config=read_text(directory / "config.toml"),
        command=f"advect flow -c {shlex.quote(str(directory / 'config.toml'))} -o again",
    )
    return write_report(story, path or directory / "report.html")
