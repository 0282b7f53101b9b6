"""``advect suggest``: how to flow one dataset to another, as a configuration file that says why."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from advect.cli.config import DataOptions, FlowOptions, Overwrite, RunCode, SpaceOptions
from advect.cli.options import described
from advect.cli.output import TALK, TalkOptions, note_lines, noted
from advect.cli.places import check_free_file
from advect.cli.sections import SECTIONS
from advect.errors import InputError

if TYPE_CHECKING:
    import advect as ad

_PARTS = ("cost", "solver", "dynamics", "integrator")


class SuggestOptions(DataOptions):
    """What a suggestion looks at."""

    memory_limit: str | None = None
    space: Annotated[SpaceOptions, Parameter(group=SECTIONS["Feature space"])] = (
        SpaceOptions.model_construct()
    )


def suggest(
    source: str,
    target: str,
    *,
    out: Annotated[
        Path | None,
        Parameter(
            alias="-o",
            help="Write the configuration here instead of printing it.",
            metavar="FILE.toml",
        ),
    ] = None,
    options: Annotated[SuggestOptions, Parameter(name="*")] = SuggestOptions.model_construct(),  # noqa: B008 (frozen)
    overwrite: Overwrite = False,
    run_code: RunCode = False,
    talk: TalkOptions = TALK,
) -> None:
    """Choose epsilon, label weight, label cost, solver, steps and the mass of classes from the data; prints
    a configuration for advect flow -c, with a reason beside each value.

    Args:
        source: The dataset that would move.
        target: The dataset it would move toward.
    """
    import advect as ad
    from advect._util.atomic import write_atomically
    from advect.cli import inputs
    from advect.cli.typed import permission

    place = None if out is None else out.expanduser()
    if place is not None:
        if place.suffix.lower() != ".toml":
            raise InputError("--out is a file that ends in .toml", place, "Rename it.")
        check_free_file(place, overwrite)
    code = permission(run_code, options.space.code)
    with talk.listening():
        a, b, _ = inputs.together((source, target), options, options.space, talk, code)
        found = ad.suggest(a, b, memory_limit=options.memory_limit)
    ends = [source, target] if place is None else [inputs.settled(ref) for ref in (source, target)]
    if place is not None:  # it may be read from another folder
        options = options.model_copy(update={"space": options.space.settled})
    asked = options.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    text = _configuration(found, ends, asked)
    facts: dict[str, Any] = {
        "source": source,
        "target": target,
        "advice": [vars(one) for one in found.advice],
        "hints": noted(found.hints),
        "config": text,
        "out": place,
    }
    if place is None:
        talk.result(facts, text.rstrip("\n"))
        return
    check_free_file(place, overwrite)
    write_atomically(place, text.encode())
    rows = [f"{one.option}  {one.value}  ({one.reason})" for one in found.advice]
    runs = " --run-code" if options.space.code else ""
    next_ = f"written to {place}; now: advect flow -c {shlex.quote(str(place))} -o run{runs}"
    talk.result(facts, "\n".join([*rows, *note_lines(facts["hints"]), next_]))


def _configuration(found: ad.Suggestion, ends: list[str], asked: dict[str, Any]) -> str:
    """TOML that ``advect flow -c`` takes, each value with its reason."""
    import tomlkit

    reasons = {one.option: one.reason for one in found.advice}
    top: dict[str, Any] = {"source": ends[0], "target": ends[1]}
    top |= {name: value for name, value in asked.items() if name != "space"}
    top |= {
        "steps": found.n_steps,
        "equal_mass": found.equal_mass or asked.get("equal_mass", False),
    }
    reasons |= {
        "steps": reasons["n_steps"],
        "solver.relative_epsilon": reasons["solver.epsilon"],
    }
    if asked.get("equal_mass"):
        reasons["equal_mass"] = "as it was asked for"
    tables = {part: described(part, getattr(found, part)) for part in _PARTS}
    if "space" in asked:
        tables["space"] = asked["space"]
    text = tomlkit.document()
    for note in found.hints:
        text.add(tomlkit.comment(f"hint: {note.for_command_line}"))
    _add(text, top, reasons)
    plain = FlowOptions.model_construct()
    for part, values in tables.items():
        known = type(getattr(plain, part)).model_fields
        kept = {k: list(v) if type(v) is tuple else v for k, v in values.items() if k in known}
        table = tomlkit.table()
        named = {
            key.partition(".")[2]: why for key, why in reasons.items() if key.startswith(f"{part}.")
        }
        _add(
            table,
            {k: v for k, v in kept.items() if v is not None},
            named | {"name": reasons.get(part, "")},
        )
        text.add(part, table)
    return tomlkit.dumps(text)


def _add(place: Any, values: dict[str, Any], reasons: dict[str, str]) -> None:
    import tomlkit

    for name, value in values.items():
        item = tomlkit.item(value)
        if why := reasons.get(name):
            item.comment(why)
        place.add(name, item)
