"""How a command speaks: its result on stdout, everything else on stderr, one number for the shell.

0  done          1  failure          2  usage or bad input
3  not converged, under --strict     130  interrupted, after a checkpoint where there is one
4  drift was found (advect drift)
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

from cyclopts import Parameter
from pydantic import Field

from advect.cli.interrupt import obey
from advect.cli.options import Flag, Options
from advect.cli.sections import SECTIONS
from advect.cli.spelling import warned
from advect.errors import ConvergenceWarning

DONE, FAILED, BAD_INPUT, NOT_CONVERGED, DRIFTED, INTERRUPTED = 0, 1, 2, 3, 4, 130


class Exit(Exception):
    """Ends a command with a code, after its result has been said."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit {code}")
        self.code = code


class Talk(Options):
    """How a command speaks.

    Example:
        >>> Talk(as_json=True).result({"value": float("nan"), "path": Path("run")}, "unused")
        {"value": null, "path": "run"}
    """

    config: Annotated[
        Path | None,
        Parameter(alias="-c", group=SECTIONS["Output and settings"], metavar="FILE.TOML"),
    ] = Field(
        default=None,
        description="Take options from here; ADVECT_… variables and options override it.",
    )
    as_json: Annotated[
        bool, Flag, Parameter(name="--json", group=SECTIONS["Output and settings"])
    ] = Field(default=False, description="Print the result as one JSON object.")
    verbose: Annotated[bool, Flag, Parameter(alias="-v", group=SECTIONS["Output and settings"])] = (
        Field(default=False, description="Say more on stderr.")
    )
    quiet: Annotated[bool, Flag, Parameter(alias="-q", group=SECTIONS["Output and settings"])] = (
        Field(default=False, description="No progress and no notes on stderr.")
    )

    def result(self, facts: Mapping[str, Any], text: str) -> None:
        """What the command found: the facts as one JSON object, or the text."""
        if self.as_json:
            text = json.dumps(plain(facts), ensure_ascii=False, allow_nan=False)
        try:
            print(text, flush=True)
        except UnicodeEncodeError:  # a terminal or pipe that knows ASCII only
            print(text.encode("ascii", "replace").decode(), flush=True)

    def note(self, message: str) -> None:
        """Something worth knowing, on stderr."""
        if not self.quiet:
            say(message)

    def detail(self, message: str) -> None:
        """Something for those who asked for more, on stderr."""
        if self.verbose:
            say(message)

    def page(self, write: Callable[[], Path], remedy: str = "") -> Path | None:
        """The page about a result, or a note that there is none: what was made is made, whatever
        becomes of its page.
        """
        try:
            return write()
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            self.note(f"warning: no report was written ({why}){remedy}")
            return None

    @property
    def progress(self) -> Any:
        """What functions of the library take as ``progress``: None to show it, False to be
        silent.
        """
        return False if self.quiet else None

    @contextmanager
    def listening(self) -> Iterator[list[str]]:
        """Warnings become notes on stderr, each once; gives the list of those about convergence."""
        obey()
        unconverged: list[str] = []
        seen: set[str] = set()

        def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
            if issubclass(category, ConvergenceWarning):
                unconverged.append(str(message))
            if str(message) not in seen:
                seen.add(str(message))
                self.note(f"warning: {warned(str(message))}")

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = show
            yield unconverged

    def end(self, unconverged: list[str], strict: bool) -> None:
        """Exit 3 if something did not converge and that was to be an error."""
        if strict and unconverged:
            say(f"not converged: {unconverged[0]}")
            raise Exit(NOT_CONVERGED)


TalkOptions = Annotated[Talk, Parameter(name="*")]
TALK = Talk.model_construct()  # without any option


def say(message: str) -> None:
    """A line on stderr; nothing if nobody can hear it."""
    try:
        print(message, file=sys.stderr, flush=True)
    except UnicodeEncodeError:
        print(message.encode("ascii", "replace").decode(), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass


def plain(value: Any) -> Any:
    """Facts as JSON has them: no NaN, names as strings, arrays as lists.

    Example:
        >>> plain({("a", 1): [1.5, float("inf")], 2: None})
        {"('a', 1)": [1.5, None], '2': None}
    """
    match value:
        case Mapping():
            return {str(name): plain(part) for name, part in value.items()}
        case list() | tuple():
            return [plain(part) for part in value]
        case None | str() | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else None
    return plain(value.tolist()) if hasattr(value, "tolist") else str(value)  # numpy and torch


def noted(notes: Iterable[Any]) -> list[dict[str, str]]:
    """Notes of the library for JSON, their remedies in the words of the command line."""
    return [{"what": note.what, "remedy": note.for_command_line.remedy} for note in notes]


def note_lines(notes: Iterable[Mapping[str, str]]) -> list[str]:
    """Notes as lines of the terminal.

    Example:
        >>> note_lines([{"what": "The value rose.", "remedy": "Take smaller steps."}])
        ['note: The value rose. Take smaller steps.']
    """
    return [f"note: {note['what']} {note['remedy']}" for note in notes]


def table(values: Any, rows: Any, columns: Any) -> dict[str, Any]:
    """A table with names on both sides, for JSON."""
    return {"rows": list(rows), "columns": list(columns), "values": values}


def leave(code: int) -> NoReturn:
    """End the command with a code."""
    raise Exit(code)
