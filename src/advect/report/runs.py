"""Runs side by side: what differs in their settings and inputs, how each ended, values on common
axes, and their players with one time.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from advect._util.checks import check_kind
from advect.data.digest import digest
from advect.errors import InputError
from advect.flows.loop import FlowResult
from advect.report.page import page_place, played, story_of, write_page
from advect.report.scene import Scene, gather_beside, script_data
from advect.report.story import Curve, Story
from advect.report.summary import chart, duration

MOST_RUNS = 6
_DIGITS = 12  # of a digest that are shown
_OBJECTIVE = ("functional", "solver", "ground cost", "cost", "target")  # what a value depends on
_UNSET = "–"
_FIRST = 1  # of the colours of runs: the ones before look like the amber of a rise

Run = FlowResult | Story | str | Path


def write_runs_report(
    runs: Mapping[str, Run] | Sequence[Run], path: str | Path, *, title: str | None = None
) -> Path:
    """Write a page about two or more flows, side by side, as one HTML file that needs no network.

    It has the options that differ, the digests of the inputs, how each flow ended, their values on
    common axes, their classes, and their players in step with one slider. Use it to see what a
    setting changes; for one flow, see ``write_report``.

    Args:
        runs: what ``ad.flow`` returned, with frames of a ``Recorder``, run directories or stories: by
            name, or in order (then directories have their own names, and others numbers).
        path: the file to write, ``….html``; folders on the way are made.
        title: of the page; by default made of the names.

    Returns:
        The path of the file.

    Raises:
        InputError: fewer than two runs or more than six, no recorded frames, a path that is no place
            for an HTML file.

    Example:
        >>> import tempfile, torch, advect as ad
        >>> from advect.report import write_runs_report
        >>> source = ad.datasets.gaussians(30, generator=torch.Generator().manual_seed(0))
        >>> target = ad.OTDD(source.replace(x=source.x + 8))
        >>> euler, adam = (ad.flow(source, target, integrator=made, n_steps=3) for made in (ad.Euler(), ad.Adam()))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = write_runs_report({"Euler": euler, "Adam": adam}, f"{folder}/both.html")
        ...     print("Euler beside Adam" in path.read_text(encoding="utf-8"))
        True
    """
    return write_page(page_place(path), runs_page(runs, title))


def runs_page(runs: Mapping[str, Run] | Sequence[Run], title: str | None = None) -> str:
    """The text of that page."""
    stories = _named(runs)
    scenes = gather_beside(list(stories.values()))
    data = script_data(scenes, _charts(stories, scenes))
    colours = zip(data["palette"]["light"][_FIRST:], data["palette"]["dark"][_FIRST:], strict=True)
    return played(
        "runs.html.jinja",
        data,
        title=title or " beside ".join(stories),
        notes=_notes(stories),
        shown=_told({k: scene.page["notes"] for k, scene in zip(stories, scenes, strict=True)}),
        differing=[*differing({name: settings_of(story) for name, story in stories.items()})],
        inputs=[*_inputs(stories)],
        outcomes=_outcomes(stories, scenes),
        runs=[
            {
                "run": name,
                "prefix": scene.player["prefix"],
                "light": light,
                "dark": dark,
                **scene.page,
            }
            for name, scene, (light, dark) in zip(stories, scenes, colours, strict=False)
        ],
        last=len(data["steps"]) - 1,
    )


def _named(runs: Any) -> dict[str, Story]:
    remedy = "Pass [one, other]."
    check_kind("runs are a list, or a mapping from names", runs, (Mapping, list, tuple), remedy)
    named = runs if isinstance(runs, Mapping) else dict(_names(list(runs)))
    given = {str(name): run for name, run in named.items()}
    if len(given) < len(named):
        raise InputError("runs need different names", repr([*named]), "Rename one of them.")
    if not 2 <= len(given) <= MOST_RUNS:
        raise InputError(
            f"two to {MOST_RUNS} runs are set side by side",
            len(given),
            "Report one alone, or choose some of them.",
        )
    return {name: story_of(run) for name, run in given.items()}


def _names(runs: Sequence[Run]) -> Iterator[tuple[str, Run]]:
    """Directories by their names, others by number."""
    places = [Path(run) for run in runs if isinstance(run, str | Path)]
    names = iter(different_names(places))
    for number, run in enumerate(runs, start=1):
        yield (next(names) if isinstance(run, str | Path) else f"run {number}"), run


def different_names(places: Sequence[Path]) -> list[str]:
    """Directories by as much of the end of their paths as tells them apart; the same one twice is
    numbered.

    Example:
        >>> different_names([Path("/runs/a/run"), Path("/runs/b/run"), Path("/other")])
        ['a/run', 'b/run', 'other']
    """
    whole = [place.expanduser().resolve().parts for place in places]
    found: list[str] = []
    for parts in whole:
        others = [other for other in whole if other != parts]
        length = 1
        while any(other[-length:] == parts[-length:] for other in others) and length < len(parts):
            length += 1
        name = "/".join(parts[-length:])
        numbered = (f"{name} ({k})" for k in range(2, len(whole) + 2))
        found.append(next(free for free in (name, *numbered) if free not in found))
    return found


def settings_of(story: Story) -> dict[str, str]:
    """The options of a run by their dotted names, or what a flow in memory says of itself.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[4.0], [8.0]], ["a", "b"])
        >>> story = Story.of_result(ad.flow(data, ad.Potential(ad.norm()), n_steps=1))
        >>> settings_of(story)["integrator"]
        'Euler(step_size=0.1)'
    """
    if story.config is not None:
        try:
            return dict(_flat(tomllib.loads(story.config)))
        except tomllib.TOMLDecodeError:  # a configuration of the user's own
            return {"configuration": story.config, **story.setup}
    return dict(story.setup)


def _flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value if isinstance(value, str) else repr(value)


def differing(settings: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, list[str]]]:
    """Options that are not the same in all runs, each with its value in every one.

    Example:
        >>> list(differing({"a": {"steps": "5", "seed": "0"}, "b": {"steps": "9", "seed": "0"}}))
        [('steps', ['5', '9'])]
    """
    for name in dict.fromkeys(name for each in settings.values() for name in each):
        values = [each.get(name, _UNSET) for each in settings.values()]
        if len(set(values)) > 1:
            yield name, values


def _digests(story: Story) -> dict[str, str]:
    if story.digests:
        return dict(story.digests)
    held = {"source": story.source, "target": story.target}
    return {name: digest(data) for name, data in held.items() if data is not None}


def _inputs(stories: Mapping[str, Story]) -> Iterator[dict[str, Any]]:
    known = [_digests(story) for story in stories.values()]
    for name in dict.fromkeys(name for each in known for name in each):
        values = [each.get(name, _UNSET)[:_DIGITS] for each in known]
        yield {"name": name, "values": values, "same": len(set(values)) == 1}


def _notes(stories: Mapping[str, Story]) -> list[str]:
    notes = []
    changed = [name for name, _ in differing({k: settings_of(s) for k, s in stories.items()})]
    parts = [name for name in changed if name.partition(".")[0] in _OBJECTIVE]
    parts += [
        row["name"] for row in _inputs(stories) if not row["same"] and row["name"] != "source"
    ]
    if parts:
        listed = ", ".join(dict.fromkeys(parts))
        notes.append(
            f"The runs do not minimise the same thing ({listed} differ): compare what else was "
            "measured, or distances by one solver, rather than their values."
        )
    return notes + _told({name: story.diagnosis for name, story in stories.items()})


def _told(sentences: Mapping[str, Sequence[str]]) -> list[str]:
    """Sentences with the names of the runs that they are true of."""
    every = dict.fromkeys(text for some in sentences.values() for text in some)
    whose = {text: [name for name, some in sentences.items() if text in some] for text in every}
    everyone = len(sentences)
    return [
        f"{'All runs' if len(names) == everyone else ', '.join(names)}: {text}"
        for text, names in whose.items()
    ]


def _outcomes(stories: Mapping[str, Story], scenes: Sequence[Scene]) -> list[tuple[str, list[str]]]:
    """How each run ended: rows of facts, a column for each run."""
    curves = [_objective(scene) for scene in scenes]
    known = [[(s, v) for s, v in curve if v is not None] for curve in curves]
    lowest = [min(curve, key=lambda knot: knot[1], default=(0, math.nan)) for curve in known]
    level = max((curve[-1][1] for curve in known if curve), default=math.nan)
    steps = [scene.page["n_steps"] for scene in scenes]
    rows: list[tuple[str, list[str]]] = [
        ("value at first", [f"{curve[0][1]:.4g}" if curve else _UNSET for curve in known]),
        ("value at last", [f"{curve[-1][1]:.4g}" if curve else _UNSET for curve in known]),
        ("lowest value", [f"{value:.4g} at step {step}" for step, value in lowest]),
        (f"steps until {level:.4g}", [_reached(curve, level) for curve in known]),
        ("steps", [f"{count:,}" for count in steps]),
        ("steps that rose", [f"{len(scene.charts[0]['rose'])}" for scene in scenes]),
    ]
    every = list(stories.values())
    if any(story.seconds is not None for story in every):
        rows.append(("time", [_UNSET if s.seconds is None else duration(s.seconds) for s in every]))
        pairs = zip(every, steps, strict=True)
        each = [_UNSET if s.seconds is None or not n else duration(s.seconds / n) for s, n in pairs]
        rows.append(("time of a step", each))
    if any(story.evaluations is not None for story in every):
        counts = [_UNSET if s.evaluations is None else f"{s.evaluations:,}" for s in every]
        rows.append(("evaluations", counts))
    for name in dict.fromkeys(name for story in every for name in story.metrics):
        found = [story.metrics.get(name, ()) for story in every]
        rows.append((f"{name} at last", [f"{c[-1][1]:.4g}" if len(c) else _UNSET for c in found]))
    return rows


def _objective(scene: Scene) -> list[tuple[int, float | None]]:
    line = scene.charts[0]["series"][0]
    return list(zip(line["x"], line["y"], strict=True))


def _reached(curve: Sequence[tuple[int, float]], level: float) -> str:
    """The first step at or below what all runs came to."""
    return next((f"{step:,}" for step, value in curve if value <= level), _UNSET)


def _charts(stories: Mapping[str, Story], scenes: Sequence[Scene]) -> list[dict[str, Any]]:
    """The objective, and each metric, of all runs on common axes."""
    whole: dict[str, Curve] = {}
    for name, scene in zip(stories, scenes, strict=True):
        whole[name] = [(s, math.nan if v is None else v) for s, v in _objective(scene)]
    found = [chart("Objective", whole, runs=True)]
    for metric in dict.fromkeys(name for story in stories.values() for name in story.metrics):
        curves = {name: story.metrics.get(metric, ()) for name, story in stories.items()}
        found.append(chart(metric, {k: c for k, c in curves.items() if len(c)}, runs=True))
    for line in (line for drawn in found for line in drawn["series"]):
        line["colour"] = _FIRST + list(stories).index(line["name"])
    return found
