"""The commands by name: each is imported when it is used, so that ``--help`` answers before torch
could be loaded.

Values come from options, then from variables ``ADVECT_…``, then from the TOML file of ``--config``.
Every way a command can end is turned into an exit code here."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cyclopts import (
    App,
    ArgumentCollection,
    CycloptsError,
    Group,
    MissingArgumentError,
    UnusedCliTokensError,
)
from cyclopts.argument import update_argument_collection
from cyclopts.config import Env
from pydantic import ValidationError

from advect.cli.code import Permission, is_code, load_object, settled_code
from advect.cli.commands import COMMANDS, GROUPS
from advect.cli.interrupt import NotedInterrupt
from advect.cli.loading import load_for
from advect.cli.options import overridden
from advect.cli.output import BAD_INPUT, DONE, FAILED, INTERRUPTED, Exit, say
from advect.cli.spelling import spelled
from advect.cli.typed import TYPED, check_typed, note_typed
from advect.errors import AdvectError, InputError

_TAKES = re.compile(
    r"""Command "[^"]*" parameter (\S+) requires (\d+) positional arguments\. Only got (\d+)\."""
)
_SHORT = {
    f"--{name}": f"--{name}.name" for name in ("dynamics", "integrator", "control", "solver", "map")
} | {"--cost": "--cost.label"}


def _version() -> str:
    import advect

    return advect.__version__


def _from_file(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Values from the TOML file that ``--config`` names, for what is not given yet."""
    chosen = next((argument for argument in arguments if "--config" in argument.names), None)
    if chosen is None or not chosen.tokens:
        return
    path = Path(chosen.tokens[-1].value).expanduser()
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            "cannot read the configuration", f"{path} ({error.strerror})", "Check the path."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            "the configuration must be a TOML file", f"{path} ({error})", "Mend that line."
        ) from None
    values.pop("config", None)
    for word, option in _SHORT.items():  # integrator = "adam", as on the command line
        name, _, field = option.removeprefix("--").partition(".")
        if isinstance(values.get(word.removeprefix("--")), str):
            values[name] = {field: values[name]}
    typed = {
        name[2:]: one.tokens[-1].value for one in arguments if one.tokens for name in one.names
    }
    values = overridden(values, typed)
    update_argument_collection(
        values, str(path), arguments, (app,), root_keys=(), allow_unknown=False
    )


def build_app() -> App:
    """The whole command line, with nothing behind it imported yet.

    Example:
        >>> "flow" in build_app()
        True
    """
    app = App(
        name="advect",
        help="Move labeled datasets along gradient flows in probability space.\n\n"
        "Datasets are references: a name (digits, mnist), a file (data.npz, "
        "csv:pets.csv?label=kind), toy:gaussians?n=500, "
        "or a frame of a run (run:directory@-1). Options may also come from -c file.toml and from "
        "variables ADVECT_….",
        help_format="plaintext",
        help_epilogue="Example:\n  advect flow digits mnist --max-samples 300 -o run && advect show run",
        version=_version,
        config=(note_typed, Env("ADVECT_", command=False, show=False), _from_file, check_typed),
        suppress_keyboard_interrupt=False,
        result_action="return_value",
    )
    groups = {name: Group(name, sort_key=place) for place, name in enumerate(GROUPS)}
    for place, command in enumerate(COMMANDS):
        more: dict[str, Any] = {}
        if not command.where.endswith(":app"):  # an app of further commands says these itself
            more = {
                "help_epilogue": command.epilogue,
                "usage": f"Usage: advect {command.name} {command.usage}",
            }
        app.command(
            command.where,
            name=command.name,
            group=groups[command.group],
            help=command.line,
            sort_key=place,
            **more,
        )
    for flag in ("--help", "--version"):
        app[flag].group = (groups["More"],)
    app.register_install_completion_command(
        group=groups["More"], help="Install completion for the shell in use."
    )
    return app


@contextmanager
def _reading_no_sources() -> Iterator[None]:
    """Options carry their own help: looking for more in the source of every class makes ``--help``
    three times as slow.
    """
    parser: Any = importlib.import_module("docstring_parser.parser")
    before = parser.add_attribute_docstrings
    parser.add_attribute_docstrings = lambda *_: None
    try:
        yield
    finally:
        parser.add_attribute_docstrings = before


def spelled_out(tokens: Sequence[str]) -> list[str]:
    """``--integrator adam`` is short for ``--integrator.name adam``.

    Example:
        >>> spelled_out(["--integrator", "adam", "--cost=means", "--", "--integrator"])
        ['--integrator.name', 'adam', '--cost.label=means', '--', '--integrator']
    """
    end = tokens.index("--") if "--" in tokens else len(tokens)
    parts = [(*token.partition("="),) for token in tokens[:end]]
    return [f"{_SHORT.get(word, word)}{rest}{value}" for word, rest, value in parts] + list(
        tokens[end:]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and give its exit code.

    Example:
        >>> main(["data", "info", "toy:gaussians?n=30", "--json"])
        {"reference": "toy:gaussians?n=30", "n": 30, ...}
        0
    """
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    TYPED.set(())
    with NotedInterrupt() as noted:
        code = _run(spelled_out(tokens))
        if noted.came and code in (
            FAILED,
            BAD_INPUT,
        ):  # what a library that was being loaded made of Ctrl-C
            say("interrupted")
            code = INTERRUPTED
        return code


def _run(tokens: list[str]) -> int:
    """Run a command; every way it can end is a code."""
    try:
        with _reading_no_sources():
            app = build_app()
            if tokens and is_code(tokens[0]):  # a command of the user's own, named by the user
                named = Permission(frozenset({settled_code(tokens[0])}))
                command = load_object(tokens[0], "a command", named)
                app.command(command, name=tokens[0], help_epilogue="")
            command, bound, _ = app.parse_args(tokens, exit_on_error=False, print_error=False)
            load_for(command)
            code = command(*bound.args, **bound.kwargs)
        return code if type(code) is int else DONE
    except Exit as ended:
        return ended.code
    except SystemExit as ended:
        return ended.code if type(ended.code) is int else FAILED
    except CycloptsError as error:
        command = " ".join(("advect", *(error.command_chain or ())))
        say(f"error: {_message(error)}\nSee: {command} --help")
        return BAD_INPUT
    except InputError as error:
        say(f"error: {spelled(error, tokens)}")
        return BAD_INPUT
    except AdvectError as error:
        say(f"error: {error}")
        return FAILED
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has left
        sys.stdout = None
        return FAILED
    except OSError as error:
        say(
            f"failed: {error.strerror or error}: {error.filename or 'on the way'}. Check the place "
            "and the room on it."
        )
        return FAILED
    except Exception as error:
        return _unexpected(error, tokens)


def _message(error: CycloptsError) -> str:
    """One sentence about what cannot be used, whichever layer found it."""
    if isinstance(error.__cause__, ValidationError):
        first = error.__cause__.errors()[0]
        option = ".".join(str(part).replace("_", "-") for part in first["loc"])
        return f"--{option} {_plainly(first['msg'])}; got {first['input']!r}."
    if isinstance(error, UnusedCliTokensError):
        return f"too many arguments: {' '.join(error.unused_tokens or ())}."
    if (
        type(error) is MissingArgumentError
        and error.argument is not None
        and not error.argument.tokens
    ):
        names = [name for name in error.argument.names if name.startswith("-")]
        if error.argument.index is not None:  # typed without its name
            word = names[0].removeprefix("--").upper() if names else "an argument"
            return f"{word} is missing{_usage(error.command_chain or ())}."
        if not set(names) & set(error.root_input_tokens or ()):
            return f"{' or '.join(names)} is missing: {(error.argument.parameter.help or 'it is required').rstrip('.')}."
    error.verbose = False
    return _TAKES.sub(r"\1 takes \2 values, one after the other; got \3.", str(error).strip())


def _plainly(said: str) -> str:
    """What pydantic says of a value, shorter.

    Example:
        >>> _plainly("Input should be a valid integer, unable to parse string as an integer")
        'must be a whole number'
        >>> _plainly("Input should be greater than or equal to 0")
        'must be greater than or equal to 0'
    """
    said = said.partition(", unable to parse")[0].replace("a valid integer", "a whole number")
    return said.replace("Input should", "must").replace("a valid number", "a number")


def _usage(chain: Sequence[str]) -> str:
    """How a command is typed, where its line says it."""
    known = {command.name: command.usage for command in COMMANDS if "|" not in command.usage}
    return f": advect {chain[0]} {known[chain[0]]}" if chain and chain[0] in known else ""


def _unexpected(error: Exception, tokens: Sequence[str]) -> int:
    """Something nobody thought of, or a disk, or memory: a line, and the traceback for those who
    ask.
    """
    if {"-v", "--verbose"} & set(tokens):
        import traceback

        say(traceback.format_exc().rstrip())
    say(f"failed: {type(error).__name__}: {error}. Run it again with -v to see where.")
    return FAILED
