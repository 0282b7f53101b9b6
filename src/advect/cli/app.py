"""The command line: assembles the commands, reads values from options and then from the TOML file of
``--config``, and converts results and errors to exit codes.
"""

from __future__ import annotations

import errno
import inspect
import json
import os
import re
import signal
import sys
import threading
import tomllib
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cyclopts import App, Argument, ArgumentCollection, CycloptsError, Group, Token
from cyclopts.argument import update_argument_collection

import advect
import advect.registry as registry
from advect._util import AdvectError, InputError, refuse_if, visible
from advect.cli import ask, flow, look, measure, use
from advect.cli.options import TABLES
from advect.cli.session import BAD_INPUT, DONE, FAILED, INPUTS, INTERRUPTED, Exit, say
from advect.registry import as_text

_OF_INPUT = (errno.ENAMETOOLONG, errno.EEXIST, errno.ENOTDIR)  # errors of paths
_WIDTH = re.compile("[2-9][0-9]|[1-9][0-9]{2}")  # columns in which help can be laid out


@dataclass(frozen=True)
class Command:
    """A command: the group that lists it, and its function or those of its subcommands by name."""

    name: str
    group: str
    line: str
    functions: dict[str, Callable[..., Any]]

    @property
    def has_subcommands(self) -> bool:
        return self.name not in self.functions

    @property
    def example(self) -> str:
        """The example in the docstring of the first function."""
        return _parts(next(iter(self.functions.values())))["example"]


def _parts(run: Callable[..., Any]) -> dict[str, str]:
    """The summary, the text before the arguments, and the example of a docstring."""
    text, _, example = (inspect.getdoc(run) or "").partition("\n\nExample:\n")
    paragraphs = [part.replace("\n", " ") for part in text.partition("\n\nArgs:")[0].split("\n\n")]
    return {"line": paragraphs[0], "text": "\n\n".join(paragraphs), "example": example.strip()}


def _command(group: str, run: Callable[..., Any]) -> Command:
    return Command(run.__name__, group, _parts(run)["line"], {run.__name__: run})


_DATA = {"info": measure.info, "list": measure.list_names, "convert": measure.convert}
GROUPS = ("Data and distances", "Data quality", "Flows", "Applications", "Runs", "More")
COMMANDS = (
    Command("data", "Data and distances", "Describe, list and convert datasets.", _DATA),
    *(_command("Data and distances", run) for run in (measure.distance, measure.matrix)),
    *(_command("Data quality", run) for run in (ask.drift, ask.compare, ask.audit)),
    *(_command("Flows", run) for run in (ask.suggest, flow.flow, flow.resume)),
    *(_command("Applications", run) for run in (use.transfer, use.label, ask.adapt)),
    *(_command("Runs", run) for run in (look.show, look.report)),
)


def build_app(typed: str = "") -> App:
    """The whole command line. Commands of other packages (entry points of the group advect.command) are
    left out if a command of advect was typed.

    Example:
        >>> "flow" in build_app()
        True
    """
    app = App(
        name="advect",
        help="Measure how far apart labeled datasets are, and move them along gradient flows.\n\n"
        "Datasets are references: a name (digits, mnist), a file (data.npz, "
        "csv:pets.csv?label=kind), toy:gaussians?n=500, or a frame of a run (run:directory@-1).",
        help_format="plaintext",
        help_epilogue="advect COMMAND --help lists the options of a command; --help-all adds the rarely used ones.",
        version=advect.__version__,
        config=_from_file,
        suppress_keyboard_interrupt=False,
        result_action="return_value",
    )
    groups = {name: Group(name, sort_key=place) for place, name in enumerate(GROUPS)}
    for place, command in enumerate(COMMANDS):
        listed: dict[str, Any] = {"group": groups[command.group], "sort_key": place}
        parent = app
        if command.has_subcommands:
            parent = App(name=command.name, help=command.line, **listed)
            app.command(parent)
            listed = {}
        for name, run in command.functions.items():
            parts = _parts(run)
            texts = {
                "help": parts["text"],
                "help_epilogue": f"Example:\n  {parts['example']}\n\n--help-all adds rarely used "
                "options and the parameters of methods.",
            }
            parent.command(run, name=name, **texts, **listed)
    own = {command.name for command in COMMANDS}
    for name in () if typed in own else sorted(registry.plugins("command").keys() - own):
        with suppress(*([] if name == typed else [InputError])):  # one that is broken is not listed
            app.command(registry.load_plugin("command", name), name=name, group=groups["More"])
    for flag in ("--help", "--version"):
        app[flag].group = (groups["More"],)
    app.register_install_completion_command(
        group=groups["More"], help="Install completion for the current shell."
    )
    return app


def _from_file(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Add the values of the TOML file of ``--config`` to those that were typed."""
    objects = {option: one for one in arguments if (option := _object_option(one)) is not None}
    for argument in objects.values():
        argument.tokens[:] = [  # --solver.max-iter sets the parameter max_iter
            token.evolve(keys=tuple(key.replace("-", "_") for key in token.keys))
            for token in argument.tokens
        ]
    paths = [one.tokens[-1].value for one in arguments if "--config" in one.names and one.tokens]
    if not paths:
        return
    from advect.io.formats.guard import check_regular, read_bytes, reading

    path = Path(paths[0]).expanduser()
    check_regular(path)
    with reading(path, "a TOML file", ValueError):
        values = tomllib.loads(read_bytes(path, packed=False).decode())
    _check_text(json.dumps(values, default=str))
    values.pop("config", None)
    for option, argument in objects.items():
        value = values.pop(option.removeprefix("--"), None)
        if value is not None:
            _merge(argument, option, value, str(path))
    update_argument_collection(
        values, str(path), arguments, (app,), root_keys=(), allow_unknown=False
    )


def _object_option(argument: Argument) -> str | None:
    """The option of an argument that is an object, such as ``--solver``."""
    return next((name for name in argument.names if name in TABLES), None)


def _main_key(option: str, value: object) -> str:
    """The key that ``--option VALUE`` sets."""
    refuse_if(not TABLES[option], f"{option} needs a key", value, f"Write {option}.KEY VALUE.")
    return TABLES[option]


def _merge(argument: Argument, option: str, value: Any, path: str) -> None:
    """Add the keys of a table in the file that were not typed, unless another object was typed."""
    table = value if isinstance(value, dict) else {_main_key(option, value): value}
    texts = {key.replace("-", "_"): as_text(part) for key, part in table.items()}
    typed = {token.keys[-1]: token.value for token in argument.tokens}
    names = {keys["name"].partition("?")[0] for keys in (typed, texts) if "name" in keys}
    if len(names) > 1:
        return
    for key, text in texts.items():
        if key not in typed:
            argument.append(Token(keyword=option, keys=(key,), value=text, source=path))


def expanded(tokens: Sequence[str]) -> list[str]:
    """``--integrator adam`` as ``--integrator.name adam``.

    Example:
        >>> expanded(["--integrator", "adam?step_size=1", "--cost=means"])
        ['--integrator.name', 'adam?step_size=1', '--cost.label=means']
    """
    words = []
    for word in tokens:
        option, equals, value = word.partition("=")
        key = f".{_main_key(option, value)}" if option in TABLES else ""
        words.append(f"{option}{key}{equals}{value}")
    return words


def _check_text(values: str) -> None:
    """Refuse NUL characters, which no path has, in JSON."""
    refuse_if("\\u0000" in values, "no option has NUL characters", "one", "Remove it.")


@contextmanager
def _signals_as_interrupts() -> Iterator[None]:
    """Convert termination signals to ``KeyboardInterrupt``, except those that the process ignores."""
    is_main = threading.current_thread() is threading.main_thread()  # others cannot set handlers
    before = {
        number: signal.signal(number, signal.default_int_handler)
        for number in signal.Signals
        if number.name in ("SIGTERM", "SIGHUP")
        and is_main
        and signal.getsignal(number) not in (signal.SIG_IGN, None)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@_signals_as_interrupts()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code.

    Example:
        >>> main(["data", "info", "toy:gaussians?n=30", "--json"])
        {"reference": "toy:gaussians?n=30", "n": 30, ...}
        0
    """
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    if not _WIDTH.fullmatch(os.environ.get("COLUMNS", "")):
        os.environ.pop("COLUMNS", None)
    try:
        _check_text(json.dumps(tokens))
        app = build_app(*tokens[:1])
        if "--help-all" in tokens:
            return _help_all(app, tokens[: tokens.index("--help-all")])
        command, bound, _ = app.parse_args(expanded(tokens), exit_on_error=False, print_error=False)
        INPUTS.set({name: text for name, text in bound.arguments.items() if type(text) is str})
        command(*bound.args, **bound.kwargs)
        return DONE
    except Exit as ended:
        return ended.code
    except SystemExit as ended:
        return ended.code if type(ended.code) is int else FAILED
    except CycloptsError as error:
        error.verbose = False
        command = " ".join(("advect", *(error.command_chain or ())))
        say(f"error: {visible(str(error).strip())}\nSee: {command} --help")
        return BAD_INPUT
    except AdvectError as error:
        say(f"error: {visible(str(error))}")
        return BAD_INPUT if isinstance(error, InputError) else FAILED
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        sys.stdout = None
    except OSError as error:
        kind = "error" if error.errno in _OF_INPUT else "failed"
        say(visible(f"{kind}: {error.strerror or error}: {error.filename or 'writing'}."))
        return BAD_INPUT if error.errno in _OF_INPUT else FAILED
    except Exception as error:
        say(traceback.format_exc().rstrip())
        say(f"failed: {type(error).__name__}: {error}")
    return FAILED


def _help_all(app: App, tokens: list[str]) -> int:
    """The help of a command, its rarely used options, and the parameters of its objects."""
    app.help_print(tokens)
    _, chain, _ = app.parse_commands(tokens)
    arguments = [
        argument
        for argument in chain[-1].assemble_argument_collection(parse_docstring=True)
        if argument.names and argument.names != ("*",)
    ]
    print("Rarely used options")
    for argument in arguments:
        if not argument.show:
            print(f"  {argument.names[0]}  {argument.parameter.help or ''}")
    kinds = [name.removeprefix("--") for name in filter(None, map(_object_option, arguments))]
    for kind in (kind for kind in kinds if kind in registry.kinds()):
        for name, target in registry.targets(kind):
            print(f"\n--{kind} {name}")
            for key, parameter in registry.parameters(target).items():
                default = (
                    ""
                    if parameter.default is parameter.empty
                    else f"  [default: {parameter.default}]"
                )
                print(f"  --{kind}.{key.replace('_', '-')}{default}")
    return DONE
