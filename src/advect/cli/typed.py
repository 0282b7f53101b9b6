"""What the user has typed for options that take code, and which Python files that permits to run.

Other words count for nothing, whatever they look like: a run directory may be called ``mine.py:f``.
    What is typed is read in
the same way as the option that it becomes: what is compared is the object that would be loaded.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar

from cyclopts import App, ArgumentCollection

from advect.cli.code import Permission, is_code, settled_code
from advect.errors import InputError

TYPED: ContextVar[tuple[tuple[str, str], ...]] = ContextVar(
    "TYPED", default=()
)  # options that take code, with values
_TAKE_CODE = (
    "--functional",
    "--metric",
    "--cost.embedding",
    "--embedding",
    "--model",
    "--space.encoder",
    "--space.decoder",
    "--features",
    "--head",
)


def note_typed(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Keep what was typed for options that take code; called before values come from anywhere
    else.
    """
    found: list[tuple[str, str]] = []
    for argument in arguments:
        values = [token.value for token in argument.tokens if token.source == "cli"]
        if values:  # only then: cyclopts puts the names of an argument together anew each time
            names = argument.names
            found += [(name, value) for name in _TAKE_CODE if name in names for value in values]
    TYPED.set(tuple(found))


def check_typed(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """An error for a ``--run-code`` that was not typed; called when all values are there."""
    for argument in arguments:
        for token in argument.tokens:
            if "--run-code" not in argument.names:
                continue
            if token.source == "env":
                raise InputError(
                    "a variable cannot permit code to run",
                    token.keyword,
                    "Unset it, and pass --run-code yourself.",
                )
            if token.source != "cli":
                where = f"run_code in {token.source}"
                raise InputError(
                    "a file cannot permit itself to run code", where, "Pass --run-code yourself."
                )


def permission(run_code: bool, needed: Iterable[str | None] = ()) -> Permission:
    """What may be run: the objects that are named on the command line; with ``run_code`` those of
    settings too.

    Args:
        run_code: whether ``--run-code`` was given.
        needed: objects that the command will load, to be refused before anything else is done.
    """
    names = {named_code(option, value) for option, value in TYPED.get()}
    given = Permission(
        frozenset(settled_code(name) for name in names if name is not None), run_code
    )
    for name in needed:
        if name is not None:
            given.check(name)
    return given


def named_code(option: str, value: str) -> str | None:
    """The object of a Python file that the value of an option names, if it does.

    Example:
        >>> named_code("--functional", "0.1*mine.py:StayNear?strength=3"), named_code("--functional", "otdd")
        ('mine.py:StayNear', None)
        >>> named_code("--metric", "0.1*mine.py:f")
        '0.1*mine.py:f'
    """
    from advect.cli.terms import Term  # for which torch is loaded

    try:
        name = Term.parse(value).name if option == "--functional" else value
    except InputError:  # whoever makes the term says so
        return None
    return name if is_code(name) else None
