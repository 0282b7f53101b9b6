"""The command line: it assembles the commands, reads values from options, ``ADVECT_…`` variables and the
TOML file of ``--config``, in this order, and turns every end of a command into an exit code."""

from __future__ import annotations

import inspect
import json
import sys
import tomllib
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cyclopts import App, Argument, ArgumentCollection, CycloptsError, Group, Token
from cyclopts.argument import update_argument_collection
from cyclopts.config import Env

from advect._util import registry
from advect._util.query import split
from advect._util.registry import as_text
from advect.cli import apps, ask, data, doctor, flow, index, look, maps, measure
from advect.cli.code import Permission, absolute, check_run_code, is_code, load_object
from advect.cli.options import TABLES
from advect.cli.session import BAD_INPUT, DONE, FAILED, INTERRUPTED, Exit, say
from advect.cli.terms import note_typed
from advect.errors import AdvectError, InputError


@dataclass(frozen=True)
class Command:
    """A command: its function, or its subcommands by name, and the group that lists it."""

    name: str
    group: str
    line: str
    run: Callable[..., Any] | dict[str, Callable[..., Any]]

    @property
    def example(self) -> str:
        """The example in its docstring."""
        first = next(iter(self.run.values())) if isinstance(self.run, dict) else self.run
        return _example(first)


def _of(group: str, run: Callable[..., Any]) -> Command:
    line = (inspect.getdoc(run) or "").partition("\n\n")[0].replace("\n", " ")
    return Command(run.__name__, group, line, run)


_DATA = {"info": data.info, "list": data.list_names, "convert": data.convert}
_INDEX = {"add": index.add, "near": index.near, "list": index.list_datasets}
_MAP = {"fit": maps.fit, "apply": maps.apply}
GROUPS = ("Measure", "Ask", "Move", "Use", "Look", "More")
COMMANDS = (
    Command("data", "Measure", "Describe, list and convert datasets.", _DATA),
    _of("Measure", measure.distance),
    _of("Measure", measure.matrix),
    _of("Ask", ask.drift),
    _of("Ask", ask.compare),
    _of("Ask", ask.shares),
    Command("index", "Ask", "Find the datasets nearest to another one.", _INDEX),
    _of("Ask", ask.audit),
    _of("Move", ask.suggest),
    _of("Move", flow.flow),
    _of("Move", flow.resume),
    Command("map", "Use", "Fit a map on a flow or two datasets, and apply it.", _MAP),
    _of("Use", apps.transfer),
    _of("Use", apps.label),
    _of("Look", look.show),
    _of("Look", look.report),
    _of("Look", look.animate),
    _of("More", doctor.doctor),
)


def build_app() -> App:
    """The whole command line.

    Example:
        >>> "flow" in build_app()
        True
    """
    app = App(
        name="advect",
        help="Move labeled datasets along gradient flows in probability space.\n\n"
        "Datasets are references: a name (digits, mnist), a file (data.npz, "
        "csv:pets.csv?label=kind), toy:gaussians?n=500, or a frame of a run (run:directory@-1).",
        help_format="plaintext",
        help_epilogue="COMMAND --help shows the options of a command, and COMMAND --help-all all of them.",
        version=_version,
        config=(note_typed, Env("ADVECT_", command=False, show=False), _from_file, check_run_code),
        suppress_keyboard_interrupt=False,
        result_action="return_value",
    )
    groups = {name: Group(name, sort_key=place) for place, name in enumerate(GROUPS)}
    for place, command in enumerate(COMMANDS):
        group: dict[str, Any] = {"group": groups[command.group], "sort_key": place}
        if isinstance(command.run, dict):
            inner = App(name=command.name, help=command.line, **group)
            for name, run in command.run.items():
                inner.command(run, name=name, **_help(run))
            app.command(inner)
        else:
            app.command(command.run, name=command.name, **group, **_help(command.run))
    for flag in ("--help", "--version"):
        app[flag].group = (groups["More"],)
    app.register_install_completion_command(
        group=groups["More"], help="Install completion for the current shell."
    )
    return app


def _version() -> str:
    import advect

    return advect.__version__


def _help(run: Callable[..., Any]) -> dict[str, str]:
    text = (inspect.getdoc(run) or "").partition("\n\nArgs:")[0].partition("\n\nExample:")[0]
    return {"help": text, "help_epilogue": f"Example:\n  {_example(run)}"}


def _example(run: Callable[..., Any]) -> str:
    return (inspect.getdoc(run) or "").partition("\nExample:\n")[2].strip()


def _from_file(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Values from the TOML file of ``--config``, and tables of objects as keys and values."""
    for argument in arguments:
        if (table := _table_of(argument)) is not None:
            argument.tokens[:] = [new for old in argument.tokens for new in _tokens(old, table)]
    chosen = next((argument for argument in arguments if "--config" in argument.names), None)
    if chosen is None or not chosen.tokens:
        return
    path = Path(chosen.tokens[-1].value).expanduser()
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        got = f"{path} ({error.strerror})"
        raise InputError("cannot read the configuration", got, "Check the path.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        got = f"{path} ({error})"
        raise InputError("the configuration must be a TOML file", got, "Correct it.") from None
    values.pop("config", None)
    for argument in arguments:
        option = _table_of(argument)
        name = "" if option is None else option.removeprefix("--")
        if option is not None and name in values:
            _merge(argument, option, values.pop(name), str(path))
    terms = values.get("functional")
    if isinstance(terms, list):
        values["functional"] = [json.dumps(one) if isinstance(one, dict) else one for one in terms]
    update_argument_collection(
        values, str(path), arguments, (app,), root_keys=(), allow_unknown=False
    )


def _table_of(argument: Argument) -> str | None:
    """The option of an argument that is an object, such as ``--solver``."""
    return next((name for name in argument.names if name in TABLES), None)


def _tokens(token: Token, option: str) -> list[Token]:
    """A token of an object by keys, with underscores."""
    if token.keys:
        return [token.evolve(keys=tuple(key.replace("-", "_") for key in token.keys))]
    table = _parsed(option, token.value)
    return [token.evolve(keys=(key,), value=value) for key, value in table.items()]


def _parsed(option: str, value: str) -> dict[str, str]:
    """``--solver exact?max_iter=9`` as a table: the keys ``name`` and ``max_iter``."""
    main, (name, _, query) = TABLES[option], value.partition("?")
    if not main:
        raise InputError(f"{option} needs a key", value, f"Write {option}.KEY VALUE.")
    return {"name": name, **split(query, value)} if main == "name" else {main: value}


def expanded(tokens: Sequence[str]) -> list[str]:
    """``--integrator adam`` as ``--integrator.name adam``.

    Example:
        >>> expanded(["--integrator", "adam?step_size=1", "--cost=means"])
        ['--integrator.name=adam', '--integrator.step_size=1', '--cost.label=means']
    """
    words, left = [], list(tokens)
    while left:
        word = left.pop(0)
        option, equals, value = word.partition("=")
        if option not in TABLES or (not equals and not left):
            words.append(word)
            continue
        table = _parsed(option, value if equals else left.pop(0))
        words += [f"{option}.{key}={text}" for key, text in table.items()]
    return words


def _merge(argument: Argument, option: str, value: Any, path: str) -> None:
    """Add the table of a file; keys that are set already, or that belong to another object, stay out."""
    main = TABLES[option] or "name"
    given = {token.keys[-1]: token.value for token in argument.tokens if token.keys}
    if not isinstance(value, dict):
        value = _parsed(option, as_text(value))
    value = {key.replace("-", "_"): as_text(one) for key, one in value.items()}
    if main in given and main == "name" and given[main] != value.get(main):
        return
    for key, text in value.items():
        if key not in given:
            argument.append(Token(keyword=option, keys=(key,), value=text, source=path))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code.

    Example:
        >>> main(["data", "info", "toy:gaussians?n=30", "--json"])
        {"reference": "toy:gaussians?n=30", "n": 30, ...}
        0
    """
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    try:
        app = build_app()
        if tokens and is_code(tokens[0]):  # a command in a Python file, named by the user
            permission = Permission(frozenset({absolute(tokens[0])}))
            app.command(load_object(tokens[0], "a command", permission), name=tokens[0])
        if "--help-all" in tokens:
            return _help_all(app, tokens[: tokens.index("--help-all")])
        command, bound, _ = app.parse_args(expanded(tokens), exit_on_error=False, print_error=False)
        code = command(*bound.args, **bound.kwargs)
        return code if type(code) is int else DONE
    except Exit as ended:
        return ended.code
    except SystemExit as ended:
        return ended.code if type(ended.code) is int else FAILED
    except CycloptsError as error:
        error.verbose = False
        command = " ".join(("advect", *(error.command_chain or ())))
        say(f"error: {str(error).strip()}\nSee: {command} --help")
        return BAD_INPUT
    except AdvectError as error:
        say(f"error: {error}")
        return BAD_INPUT if isinstance(error, InputError) else FAILED
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        sys.stdout = None
    except OSError as error:
        say(f"failed: {error.strerror or error}: {error.filename or 'writing'}.")
    except Exception as error:
        if {"-v", "--verbose"} & set(tokens):
            say(traceback.format_exc().rstrip())
        say(f"failed: {type(error).__name__}: {error}. Run it again with -v to see the traceback.")
    return FAILED


def _help_all(app: App, tokens: list[str]) -> int:
    """The help of a command, its rarely used options, and the parameters of its objects."""
    app.help_print(tokens)
    _, apps_, _ = app.parse_commands(tokens)
    shown = [one for one in apps_[-1].assemble_argument_collection() if one.names]
    print("All options")
    for argument in shown:
        if not argument.show:
            print(f"  {argument.names[0]}  {argument.parameter.help or ''}")
    for option in [name for one in shown if (name := _table_of(one)) is not None]:
        kind = option.removeprefix("--")
        for name in registry.known(kind) if kind in registry.kinds() else ():
            print(f"\n{option} {name}")
            for key, one in registry.parameters(registry.found(kind, name)).items():
                usual = "" if one.default is one.empty else f"  [default: {one.default}]"
                print(f"  {option}.{key.replace('_', '-')}{usual}")
    return DONE
