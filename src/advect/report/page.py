"""The page itself: a template filled with a scene, written whole or not at all.

Everything is in the one file, and its content policy forbids the browser to fetch anything or to
run a script other than the player, whatever names the classes of a dataset have."""

from __future__ import annotations

import base64
import hashlib
import platform
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from advect._util.atomic import write_atomically
from advect._util.html import fill
from advect.data.dataset import LabeledDataset
from advect.data.spaces.pictures import Pictures
from advect.datasets.trajectory import Trajectory
from advect.errors import InputError
from advect.flows.loop import FlowResult
from advect.report.scene import Scene, gather, script_data
from advect.report.story import Curve, Story


def write_report(
    result: FlowResult | Story | Trajectory | str | Path,
    path: str | Path,
    *,
    target: LabeledDataset | None = None,
    source: LabeledDataset | None = None,
    title: str | None = None,
    names: tuple[str, str] | None = None,
    config: str | None = None,
    command: str | None = None,
    metrics: Mapping[str, Curve] | None = None,
    pictures: Pictures | None = None,
) -> Path:
    """Write the report of a flow as one HTML file that needs no network.

    The page plays the recorded frames: particles in the plane or in space (more dimensions are
    projected on two), images of the same samples where samples are images, the objective, its terms
    and metrics; and tells for each sample where it came from and which samples of the target it
    went to. Class distances before and after, and the matching of classes, are tables. Long and
    large runs are thinned, and the page says so.

    Args:
        result: what ``ad.flow`` returned, with frames of a ``Recorder``; a run directory; or a
            ``Story``.
        path: the file to write, ``….html``; folders on the way are made.
        target: where the flow was going; by default the functional's ``target``.
        source: the dataset before the flow; by default the flow's.
        title: of the page.  names: of source and target, such as ``("digits", "MNIST")``.
        config: text of the configuration, to be shown.  command: the line that repeats the run.
        metrics: curves ``{name: [(step, value), …]}`` to show instead of those of the result.
        pictures: how samples look, for flows in features of something else:
            ``space.pictures(source, target)`` of a ``FeatureSpace``.

    Returns:
        The path of the file.

    Raises:
        InputError: no recorded frames, frames of different flows, a path that is no place for an
            HTML file.

    Example:
        >>> import tempfile, torch, advect as ad
        >>> from advect.report import write_report
        >>> source = ad.datasets.gaussians(30, generator=torch.Generator().manual_seed(0))
        >>> target = source.replace(x=source.x + 8)
        >>> result = ad.flow(source, ad.OTDD(target), n_steps=4, callbacks=[ad.Recorder()])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = write_report(result, f"{folder}/flow.html", title="Three Gaussians")
        ...     print(path.name, "Three Gaussians" in path.read_text(encoding="utf-8"))
        flow.html True
    """
    given = {
        "target": target,
        "source": source,
        "title": title,
        "names": names,
        "config": config,
        "command": command,
        "metrics": metrics,
        "pictures": pictures,
    }
    return write_page(page_place(path), render(gather(told(result, **given))))


def told(result: FlowResult | Story | Trajectory | str | Path, **given: Any) -> Story:
    """What is to be shown of a flow, with what the caller knows better."""
    known = {name: value for name, value in given.items() if value is not None}
    return replace(story_of(result), **known)


def write_page(place: Path, text: str) -> Path:
    """Write a page, whole or not at all."""
    try:
        # names of files from elsewhere may hold what is no text
        write_atomically(place, text.encode(errors="replace"))
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(
            "a folder on the way to the report is a file", error.filename, "Choose another path."
        ) from None
    return place


_SCRIPTS = ("tools.js", "chart.js", "drawing.js", "scene.js", "player.js")


def render(scene: Scene) -> str:
    """The text of the page of a scene."""
    return played("template.html.jinja", script_data([scene], scene.charts), **scene.page)


def played(template: str, data: dict[str, Any], **values: Any) -> str:
    """The text of a page with the player; a browser runs that script and no other."""
    from markupsafe import Markup

    script = '"use strict";\n(() => {\n' + "".join(map(part, _SCRIPTS)) + "})();\n"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return filled(
        template,
        player=data,
        style=Markup(part("style.css") + part("player.css")),  # ours, and not to be escaped
        script=Markup(script),
        policy=f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'",
        **values,
        **made_with(),
    )


def plain_page(template: str, *styles: str, **values: Any) -> str:
    """The text of a page without scripts, in the style of all and its own."""
    from markupsafe import Markup

    style = "".join(map(part, ("style.css", "labels.css", *styles)))
    return filled(template, style=Markup(style), **values)  # ours, and not to be escaped


def made_with() -> dict[str, str]:
    """What a page was made with, and when."""
    return {
        "versions": versions(),
        "written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def filled(template: str, **values: Any) -> str:
    """A template of this room with values, every text escaped."""
    return fill(part(template), part, **values)


@cache
def part(name: str) -> str:
    """The text of a file of this room."""
    return resources.files("advect.report").joinpath(name).read_text(encoding="utf-8")


def versions() -> str:
    """What a page was made with."""
    known = []
    for name in ("advect", "torch", "numpy"):
        try:
            known.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:  # run from its sources
            continue
    return ", ".join([*known, f"Python {platform.python_version()}"])


def story_of(result: Any) -> Story:
    """What a report says of a result, a trajectory or a run directory."""
    match result:
        case Story():
            return result
        case FlowResult():
            return Story.of_result(result)
        case Trajectory():
            return Story(result)
        case str() | Path():
            return Story.of_run(result)
    raise InputError(
        "a report is made of a FlowResult, a run directory or a Story",
        type(result).__name__,
        "Pass what ad.flow returned.",
    )


def page_place(path: str | Path) -> Path:
    """Where a page may be written."""
    place = Path(path).expanduser()
    if place.is_dir():
        raise InputError(
            "a report is a file",
            f"the directory {place}",
            f"Write to {place / 'report.html'}, for instance.",
        )
    if place.suffix.lower() not in (".html", ".htm"):
        raise InputError("a report is an HTML file", repr(place.name), "Let its name end in .html.")
    return place
