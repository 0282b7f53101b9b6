"""The report of a flow: a page with a player.

The content policy of the page lets the browser run this script and nothing else, whatever the names
of classes are."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.flows.loop import FlowResult
from advect.io.trajectory import Trajectory
from advect.report.answer import table_cells
from advect.report.page import POLICY, fill_template, made_with, page_path, part, write_text
from advect.report.scene import gather
from advect.report.story import Story

_SCRIPTS = ("tools.js", "chart.js", "drawing.js", "scene.js", "player.js")


def write_report(
    result: FlowResult | Trajectory | Story | str | Path,
    path: str | Path,
    *,
    target: LabeledDataset | None = None,
    title: str | None = None,
    names: tuple[str, str] | None = None,
    config: str | None = None,
    command: str | None = None,
    pictures: Callable[[LabeledDataset], LabeledDataset] | None = None,
) -> Path:
    """Write the report of a flow as one HTML file that needs no network.

    The page plays the recorded frames: particles in the plane or in space (samples of more
    dimensions are projected), images of the same samples if they are images, the objective, its
    terms and metrics. For each sample it shows the target samples that it is coupled to. Tables
    show the class distances before and after, and the matching of classes. Long runs and large
    datasets are thinned, and the page says so.

    Args:
        result: what ``ad.flow`` returned, a run directory, or a trajectory.
        path: the file to write, ``….html``; missing folders are created.
        target: the dataset that the flow moves to; by default the functional's ``target``.
        title: the heading.
        names: names of source and target, such as ``("digits", "MNIST")``.
        config: text of a configuration file to show.
        command: the command that repeats the run.
        pictures: for flows of features of images, a function from such a dataset to one of images:
            for example ``space.invert`` of a ``FeatureSpace``.

    Raises:
        InputError: there are no recorded frames, frames are of different flows, or the path does
            not end in ``.html``.

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
    place = page_path(path)
    texts = {"title": title, "names": names, "config": config, "command": command}
    fields = {"target": target, "pictures": pictures, **texts}
    given = {name: value for name, value in fields.items() if value is not None}
    return write_text(place, render(replace(story_of(result), **given)))


def render(story: Story) -> str:
    """The HTML of the page of a flow."""
    from markupsafe import Markup

    values, player, tables = gather(story)
    script = '"use strict";\n(() => {\n' + "".join(map(part, _SCRIPTS)) + "})();\n"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return fill_template(
        "player.html.jinja",
        kind="Report of a dataset flow",
        policy=f"{POLICY}; script-src 'sha256-{digest}'",
        style=Markup(part("style.css") + part("player.css")),
        script=Markup(script),
        player=player,
        tables=[table_cells(table) for table in tables],
        **values | {"settings": values["settings"] | made_with()},
    )


def story_of(result: Any) -> Story:
    """What is known about a result, a trajectory or a run directory."""
    match result:
        case Story():
            return result
        case FlowResult():
            return Story.of_result(result)
        case Trajectory():
            return Story(result)
        case str() | Path():
            return Story.of_run(result)
    what = "a report needs a FlowResult, a run directory or a trajectory"
    raise InputError(what, type(result).__name__, "Pass what ad.flow returned.")
