"""Libraries take a second or more to load: a terminal is told so at once, and the line goes away."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_LIGHT = ("advect.cli.look:show", "advect.cli.data:list_names", "advect.cli.serve:serve")


@contextmanager
def saying(text: str) -> Iterator[None]:
    """A line on a terminal while something takes its time; nothing where nobody looks."""
    told = sys.stderr is not None and sys.stderr.isatty()
    if told:
        print(text, end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if told:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def load_for(command: Callable[..., Any]) -> None:
    """Load what a command needs before it begins, with a word on a terminal; nothing for commands
    that only look at files, or that are not ours.
    """
    where = f"{command.__module__}:{getattr(command, '__name__', '')}"
    if not where.startswith("advect.cli.") or where in _LIGHT or "torch" in sys.modules:
        return
    with saying("loading torch …"):
        import torch as _torch  # noqa: F401
