"""The reference, from what is there: pages for themes of public names, and one for each command.

A name is on the page of the room that defines it; a new public name finds its page by itself. One
that two rooms list is described once, under its shorter name, and the other leads there."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import advect

ROOMS = ("apps", "datasets", "distributed", "errors", "maps", "ot", "report", "testing", "viz")


@dataclass
class Theme:
    """A page: names that the modules beginning with ``modules`` define."""

    slug: str
    title: str
    words: str
    modules: tuple[str, ...]
    names: list[str] = field(default_factory=list)


# A name goes to the theme with the longest beginning of its module's name.
THEMES = (
    Theme("datasets", "Datasets", "A labeled dataset, and its classes.", ("advect.data",)),
    Theme(
        "laws",
        "Label laws",
        "The distribution of the samples of a class. The page [background](../background.md#label-laws) explains.",
        ("advect.data.laws", "advect.io.statistics"),
    ),
    Theme(
        "spaces",
        "Feature spaces",
        "Bring two datasets into one feature space, and convert results back.",
        ("advect.spaces",),
    ),
    Theme(
        "loading",
        "Loading datasets",
        "References, named sets, synthetic sets, formats of your own, frames of a flow.",
        ("advect.datasets", "advect.io"),
    ),
    Theme("costs", "Ground costs", "The cost of moving a labeled sample.", ("advect.cost",)),
    Theme("solvers", "Solvers", "Optimal transport between weighted points.", ("advect.ot",)),
    Theme("distance", "Distances", "Distances between labeled datasets.", ("advect.transport",)),
    Theme(
        "functionals",
        "Functionals",
        "Numbers that a flow decreases.",
        ("advect.functionals",),
    ),
    Theme("flows", "Flows", "The loop, its steps and its result.", ("advect.flows",)),
    Theme(
        "dynamics",
        "Dynamics",
        "What moves: features, laws of classes, laws of samples. The page "
        "[background](../background.md#dynamics-what-moves) explains.",
        ("advect.flows.dynamics",),
    ),
    Theme(
        "integrators",
        "Integrators and step control",
        "Step sizes and acceptance of steps.",
        ("advect.flows.integrators", "advect.flows.steps"),
    ),
    Theme(
        "callbacks",
        "Callbacks",
        "Functions that are called during a flow.",
        ("advect.flows.callbacks",),
    ),
    Theme(
        "classes",
        "Classes and labels",
        "Pseudo-labels, label spreading, class matching and class proportions.",
        ("advect.classes",),
    ),
    Theme("maps", "Maps", "Maps that move new samples.", ("advect.maps",)),
    Theme("apps", "Applications", "Complete tasks, and many datasets at once.", ("advect.apps",)),
    Theme(
        "questions",
        "Questions",
        "Label errors, synthetic data, drift, the nearest dataset.",
        ("advect.questions",),
    ),
    Theme("viz", "Figures", "Plots and films.", ("advect.viz",)),
    Theme("report", "Report pages", "Pages that open in any browser.", ("advect.report",)),
    Theme(
        "distributed",
        "Many processes",
        "One flow on several ranks.",
        ("advect.distributed",),
    ),
    Theme(
        "testing",
        "Checks and registration",
        "For your own classes.",
        ("advect.testing", "advect.registry"),
    ),
    Theme(
        "errors",
        "Errors and warnings",
        "Exceptions and warnings.",
        ("advect.errors", "advect._util"),
    ),
)


def public_names() -> Iterator[tuple[str, object]]:
    """Every public name with what it is, the package's own first."""
    for name in advect.__all__:
        yield f"advect.{name}", getattr(advect, name)
    for room in ROOMS:
        module = importlib.import_module(f"advect.{room}")
        for name in getattr(module, "__all__", ()):
            yield f"advect.{room}.{name}", getattr(module, name)


def sorted_names() -> tuple[tuple[Theme, ...], dict[str, str]]:
    """The themes with their names, and further names of objects that have one."""
    seen: dict[int, str] = {}
    also: dict[str, str] = {}
    for theme in THEMES:
        theme.names.clear()
    for name, found in public_names():
        if inspect.ismodule(found):
            continue
        if id(found) in seen:
            also[name] = seen[id(found)]
            continue
        seen[id(found)] = name
        _theme(name, found).names.append(name)
    return THEMES, also


def _theme(name: str, found: object) -> Theme:
    module = getattr(found, "__module__", "")
    if not module.startswith("advect"):
        module = name.rpartition(".")[0]  # a constant
    fitting = [
        (len(start), theme)
        for theme in THEMES
        for start in theme.modules
        if f"{module}.".startswith((f"{start}.", f"{start}_"))
    ]
    if not fitting:
        raise LookupError(f"no theme of docs/_site/reference.py has the module of {name}: {module}")
    return max(fitting, key=lambda pair: pair[0])[1]


def directive(name: str) -> str:
    """What describes a name: its docstring, and that of its members."""
    parent, _, last = name.rpartition(".")
    found = getattr(importlib.import_module(parent), last)
    if inspect.isclass(found):
        kind = "autoexception" if issubclass(found, BaseException) else "autoclass"
        # the setters of metadata routing are documented by scikit-learn
        routing = ", ".join(
            part for part in vars(found) if part.startswith("set_") and part.endswith("_request")
        )
        members = f"   :members:\n   :exclude-members: {routing}\n"
        members = "" if kind == "autoexception" else members
        return f".. {kind}:: {name}\n{members}   :show-inheritance:\n"
    return f".. {'autofunction' if callable(found) else 'autodata'}:: {name}\n"


def summary(name: str) -> str:
    """The first sentence of its docstring."""
    parent, _, last = name.rpartition(".")
    text = inspect.getdoc(getattr(importlib.import_module(parent), last)) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


def anchored(name: str, roots: set[str]) -> str:
    """A place for links from the page of the source. They go by one prefix for each file: that of the
    package where it defines a name of the package too."""
    parent, _, last = name.rpartition(".")
    module = getattr(getattr(importlib.import_module(parent), last), "__module__", "")
    return f'<div id="advect.{last}"></div>\n' if parent != "advect" and module in roots else ""


def fenced(text: str) -> str:
    return f"```{{eval-rst}}\n{text.rstrip()}\n```\n"


def page(theme: Theme, also: dict[str, str]) -> str:
    """The page of a theme in Markdown: a table of its names, then each."""
    short = [name.replace("advect.", "ad.", 1) for name in theme.names]
    rows = [
        f"| [`{alias}`](#{name}) | {summary(name)} |"
        for name, alias in zip(theme.names, short, strict=True)
    ]
    parts = [f"# {theme.title}", "", theme.words, "", "| name | what it is |", "| --- | --- |"]
    parts += [*rows, ""]
    others = {other: name for other, name in also.items() if name in theme.names}
    if others:
        parts += ["The same under another name:", ""]
        for other, name in others.items():
            shown, there = (one.replace("advect.", "ad.", 1) for one in (other, name))
            parts += [f'- <span id="{other}"></span>`{shown}` is [`{there}`](#{name})']
        parts += [""]
    roots = {getattr(getattr(advect, name), "__module__", "") for name in advect.__all__}
    parts += [f"{anchored(name, roots)}\n{fenced(directive(name))}" for name in theme.names]
    return "\n".join(parts)


def index(themes: tuple[Theme, ...], rooms: dict[str, str]) -> str:
    """The first page of the reference."""
    parts = [
        "# Reference",
        "",
        "Every public name, with what it takes and an example that is run in the tests. `ad` is `advect`, as in",
        "`import advect as ad`; names of submodules are written with the submodule, as `ad.maps.EntropicMap`.",
        "The source is linked beside each name.",
        "",
        "| page | names |",
        "| --- | --- |",
    ]
    for theme in themes:
        names = ", ".join(f"[`{name.removeprefix('advect.')}`](#{name})" for name in theme.names)
        parts.append(f"| [{theme.title}]({theme.slug}.md) | {names} |")
    parts += ["", "## Submodules", "", "| module | what is in it |", "| --- | --- |"]
    for room, words in rooms.items():
        parts.append(f'| <span id="advect.{room}"></span>`ad.{room}` | {words} |')
    listed = [theme.slug for theme in themes]
    parts += ["", "```{toctree}", ":hidden:", "", *listed, "commands", "```", ""]
    return "\n".join(parts)


def pages() -> dict[str, str]:
    """All pages about Python, by their name in the folder of the reference."""
    themes, also = sorted_names()
    made = {f"{theme.slug}.md": page(theme, also) for theme in themes if theme.names}
    rooms = {room: summary(f"advect.{room}") for room in ROOMS}
    return {"index.md": index(tuple(t for t in themes if t.names), rooms)} | made


def write(folder: Path, texts: dict[str, str]) -> None:
    """These pages and no others; one that is the same is left alone, so that Sphinx need not read it."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.rglob("*.md"):
        if old.relative_to(folder).as_posix() not in texts:
            old.unlink()
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
