"""The options of a class or function as its own signature and docstring state them.

``of_source`` reads them from the source text, so that ``advect flow --help`` can show every option
and default before torch is loaded; ``of_object`` reads them from an object that is there already,
such as a class of the user's. Both give the same ``Option`` rows."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from advect._util import defaults

_ROOT = Path(__file__).parents[1]
REQUIRED = inspect.Parameter.empty  # the default of an option that has none
_literal = ast.literal_eval  # plain values only: nothing is run
_Definition = ast.ClassDef | ast.FunctionDef


@dataclass(frozen=True)
class Option:
    """One option: its name, its annotation as it is written, its default, what it means.

    Attributes:
        default: the value where it is plain (a number, text, True, False, None); otherwise the text
            of the expression; ``REQUIRED`` where there is none.
    """

    name: str
    annotation: str = ""
    default: Any = REQUIRED
    help: str = ""


def of_object(target: Any) -> dict[str, Option]:
    """The options of a class or function that is at hand.

    Example:
        >>> def repel(length: float = 1.0): ...
        >>> of_object(repel)
        {'length': Option(name='length', annotation='float', default=1.0, help='')}
    """
    told = documented(inspect.getdoc(target) or "")
    return {
        name: Option(name, _written(one.annotation), _plain(one.default), told.get(name, ""))
        for name, one in inspect.signature(target).parameters.items()
        if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    }


@lru_cache
def of_source(path: str) -> dict[str, Option]:
    """The options of a public name of advect, from its source; nothing is imported.

    Example:
        >>> [option.default for option in of_source("Momentum").values()]
        [0.1, 0.9, False]
    """
    room, _, name = path.rpartition(".")
    module, node = _definition(room, name)
    told = documented(ast.get_docstring(node) or "")
    return {
        name: Option(name, written, default, told.get(name, ""))
        for name, written, default in _parameters(module, node)
    }


def documented(text: str) -> dict[str, str]:
    """What the ``Args:`` part of a docstring says about each name.

    Example:
        >>> documented("Sum.\\n\\nArgs:\\n    a, b: numbers,\\n        small ones.\\n    c: another.")
        {'a': 'numbers, small ones.', 'b': 'numbers, small ones.', 'c': 'another.'}
    """
    part = re.search(r"^Args:\n((?:[ ]{4}.*\n?|\n)*)", text, re.MULTILINE)
    found: dict[str, str] = {}
    for entry in re.split(r"^[ ]{4}(?=\S)", part[1] if part else "", flags=re.MULTILINE):
        names, colon, said = entry.partition(":")
        if colon:
            found |= dict.fromkeys(re.split(r",\s*", names.strip()), " ".join(said.split()))
    return found


def _plain(value: Any) -> Any:
    """A default that text can stand for as it is, anything else as Python writes it."""
    return value if value is REQUIRED or type(value) in _PLAIN else repr(value)


def _written(annotation: Any) -> str:
    if annotation is REQUIRED:
        return ""
    return annotation.__name__ if inspect.isclass(annotation) else str(annotation)


_PLAIN = (bool, int, float, str, tuple, list, type(None))


@lru_cache
def _texts(module: str) -> dict[str, str]:
    """What a module of advect defines or imports, by name, as text: to parse it all is slow."""
    place = _ROOT.joinpath(*module.split(".")) if module else _ROOT
    stub, package = place / "__init__.pyi", place / "__init__.py"
    file = next((file for file in (stub, package) if file.is_file()), place.with_suffix(".py"))
    text, found = file.read_text(encoding="utf-8"), {}
    for part in re.finditer(r"^from [.]?(\S+) import (\([^)]*\)|.*)", text, re.MULTILINE):
        names = re.findall(r"(\w+)(?:,|\)|$|\n)", part[2])
        found |= dict.fromkeys(names, f"from {part[1]}")
    for part in re.finditer(
        r"^(?:@.*\n)*(?:class|def) (\w+)(?:.*\n)(?:(?:[ )].*)?\n)*", text, re.M
    ):
        found[part[1]] = part[0]
    return found


@lru_cache
def _definition(module: str, name: str) -> tuple[str, _Definition]:
    """The module and the definition that a name stands for, through imports."""
    text = _texts(module)[name]
    while text.startswith("from "):
        module = text.removeprefix("from ").removeprefix("advect.")
        text = _texts(module)[name]
    node = ast.parse(_without_bodies(text)).body[0]
    assert isinstance(node, _Definition)
    return module, node


def _without_bodies(text: str) -> str:
    """A class without its methods but for the signature of ``__init__``: parsing takes time."""
    begins = re.search(r"\n    (?:@|def )", text) if not text.startswith("def ") else None
    made = re.search(r"\n    def __init__\((?:.|\n)*?\)(?: -> None)?:\n", text)
    return text[: begins.start() if begins else None] + (f"{made[0]}        ..." if made else "")


def _parameters(module: str, node: _Definition) -> Iterator[tuple[str, str, Any]]:
    if isinstance(node, ast.FunctionDef):
        yield from _arguments(node.args)
        return
    inside = {part.name: part for part in node.body if isinstance(part, ast.FunctionDef)}
    if "__init__" in inside:
        yield from list(_arguments(inside["__init__"].args))[1:]
        return
    for base in node.bases:
        text = _texts(module).get(ast.unparse(base), "from elsewhere")
        if not text.startswith("from ") or text.startswith("from advect."):
            yield from _parameters(*_definition(module, ast.unparse(base)))
    if any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
        yield from _fields(node)


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, str, Any]]:
    for part in node.body:
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            written = ast.unparse(part.annotation)
            value = part.value
            made = re.match(r"field\(", ast.unparse(value)) if value is not None else None
            if made and isinstance(value, ast.Call):
                given = {word.arg: word.value for word in value.keywords}
                if "init" in given:
                    continue
                value = given.get("default") or ast.Call(given["default_factory"], [], [])
            if not written.startswith("ClassVar"):
                yield part.target.id, written, _value(value)


def _arguments(args: ast.arguments) -> Iterator[tuple[str, str, Any]]:
    plain = [*args.posonlyargs, *args.args]
    missing = [None] * (len(plain) - len(args.defaults))
    pairs = [*zip(plain, [*missing, *args.defaults], strict=True)]
    for one, value in [*pairs, *zip(args.kwonlyargs, args.kw_defaults, strict=True)]:
        yield one.arg, "" if one.annotation is None else ast.unparse(one.annotation), _value(value)


def _value(node: ast.expr | None) -> Any:
    if node is None:
        return REQUIRED
    text = re.sub(r"\bdefaults\.(\w+)\.(\w+)", _shared, ast.unparse(node))
    try:
        return _literal(text)
    except (ValueError, TypeError):
        return text


def _shared(found: re.Match[str]) -> str:
    """A number of ``_util/defaults.py``, as it would be written."""
    return repr(getattr(getattr(defaults, found[1]), found[2]))
