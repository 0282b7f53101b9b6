"""``name?key=value&key=value``: how a dataset, a term of a functional or any other thing with
options is written in one line of text.

A value is typed by the signature of what is named where that says its type; otherwise it is a
number, true or false, values with commas between them, rows of values with semicolons, JSON in
brackets or quotes, or text. Special characters are written by their codes, as in ``%26`` for &."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from advect._util import registry
from advect._util.registry import check_name
from advect._util.signatures import Option
from advect.errors import InputError

_WHOLE = re.compile(r"0|-?[1-9]\d*", re.ASCII)  # 007 is the name of a column
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_WORDS = {"true": True, "false": False, "null": None}


def split(query: str, whole: str) -> dict[str, str]:
    """The options of a query as they are written; ``whole`` is the line it stands in.

    Example:
        >>> split("label=kind&n=200", "pets.csv?label=kind&n=200")
        {'label': 'kind', 'n': '200'}
    """
    found: dict[str, str] = {}
    for part in query.split("&") if query else ():
        name, equals, text = part.partition("=")
        if not equals or not name or not text:
            raise InputError(
                "options must be key=value, with & between them",
                f"{part!r} in {whole!r}",
                "Write ?key=value&….",
            )
        if name in found:
            raise InputError(
                "an option must be given once",
                f"{name!r} twice in {whole!r}",
                "Leave one of them out.",
            )
        found[name] = text
    return found


def guess(text: str) -> Any:
    """A value of no known type.

    Example:
        >>> guess("2"), guess("0,5.5"), guess("1,0;0,2"), guess("true"), guess("a%26b")
        (2, [0, 5.5], [[1, 0], [0, 2]], True, 'a&b')
    """
    whole = unquote(text)
    if whole[:1] in ("[", "{", '"'):
        try:
            return json.loads(whole)
        except (ValueError, RecursionError):
            pass
    if ";" in text:
        return [[_atom(part) for part in row.split(",")] for row in text.split(";")]
    parts = [_atom(part) for part in text.split(",")]
    return parts if len(parts) > 1 else parts[0]


def typed(text: str, annotation: str) -> Any:
    """A value of the type that a signature states; a ``ValueError`` for what is none.

    Example:
        >>> typed("3", "str"), typed("3", "str | int"), typed("3", "list[str | int]"), typed("3", "float | None")
        ('3', 3, [3], 3.0)
    """
    if annotation.startswith("list["):
        return [typed(part, annotation[5:-1]) for part in text.split(",")]
    kinds, word = [part.strip() for part in annotation.split("|")], text.lower()
    if "None" in kinds and word in ("none", "null"):
        return None
    if word in _WORDS and ("bool" in kinds or word.capitalize() in kinds):  # "str | False"
        return _WORDS[word]
    whole = unquote(text)
    if "int" in kinds and _WHOLE.fullmatch(whole):
        return int(whole)
    if "float" in kinds:
        return float(whole)
    if "str" in kinds:
        return whole
    if {"int", "bool"} & {*kinds}:
        raise ValueError
    return guess(text)


def values(given: Mapping[str, str], known: Mapping[str, Option], whose: str) -> dict[str, Any]:
    """Options as values, each of a known name and of the type that its signature states.

    Example:
        >>> values({"length": "2"}, {"length": Option("length", "float")}, "repulsion")
        {'length': 2.0}
        >>> values({"length": "long"}, {"length": Option("length", "float")}, "repulsion")
        Traceback (most recent call last):
        advect.errors.InputError: length of repulsion must be of type float; got 'long'. Write length=….
    """
    found: dict[str, Any] = {}
    for name, text in given.items():
        check_name(f"option of {whose}", name, known)
        try:
            found[name] = typed(text, known[name].annotation)
        except ValueError:
            raise InputError(
                f"{name} of {whose} must be of type {known[name].annotation}",
                repr(unquote(text)),
                f"Write {name}=….",
            ) from None
    return found


def made(kind: str, text: str, **shared: Any) -> Any:
    """The object that a line names, such as ``ward?n_clusters=5``; it gets those of the ``shared``
    options that it takes and the line leaves open.

    Example:
        >>> made("map", "nearest?k=3", seed=1).k
        3
    """
    name, _, said = text.partition("?")
    own = registry.options(kind, name)
    usual = {option: shared[option] for option in shared if option in own}
    return registry.make(kind, name, usual | values(split(said, text), own, name))


def _atom(text: str) -> Any:
    whole = unquote(text)
    if whole.lower() in _WORDS:
        return _WORDS[whole.lower()]
    if _WHOLE.fullmatch(whole):
        return int(whole)
    return float(whole) if _NUMBER.fullmatch(whole) else whole
