"""What the user has typed, and which Python files that permits to run.

Words are read in the same way as the options that they become: what is compared is the object that would be loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextvars import ContextVar

from advect.cli.code import Permission, is_code, settled_code
from advect.errors import InputError

TYPED: ContextVar[tuple[str, ...]] = ContextVar("TYPED", default=())  # the command line
_OPTION = re.compile(r"--?[\w.-]+=")


def permission(run_code: bool, needed: Iterable[str | None] = ()) -> Permission:
    """What may be run: the objects that are named on the command line; with ``run_code`` those of settings too.

    Args:
        run_code: whether ``--run-code`` was given.
        needed: objects that the command will load, to be refused before anything else is done.
    """
    given = Permission(frozenset(settled_code(name) for word in TYPED.get() for name in named_code(word)), run_code)
    for name in needed:
        if name is not None:
            given.check(name)
    return given


def named_code(word: str) -> set[str]:
    """The objects of Python files that a word of the command line may stand for.

    Example:
        >>> named_code("--functional=0.1*mine.py:StayNear?strength=3"), named_code("otdd")
        ({'mine.py:StayNear'}, set())
    """
    from advect.cli.terms import Term  # for which torch is loaded

    option = _OPTION.match(word)
    value = word[option.end() :] if option else word
    try:
        names = {value, Term.parse(value).name}
    except InputError:
        names = {value}
    return {name for name in names if is_code(name) and name.rpartition(".py:")[2].isidentifier()}
