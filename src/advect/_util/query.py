"""``name?key=value&key=value``: datasets, terms of a functional and other objects as one line of text.

A value has the type of its annotation where that is known. Otherwise it is a number, true or false,
values separated by commas, rows separated by semicolons, or text.
Special characters are percent-encoded, as in ``%26`` for &."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

from advect._util.checks import refuse_if

_WHOLE = re.compile(r"0|-?[1-9]\d*", re.ASCII)  # 007 is the name of a column
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_WORDS = {"true": True, "false": False, "null": None}


def split(query: str, whole: str) -> dict[str, str]:
    """The options of a query as text; ``whole`` is the line that errors quote.

    Example:
        >>> split("label=kind&n=200", "pets.csv?label=kind&n=200")
        {'label': 'kind', 'n': '200'}
    """
    options: dict[str, str] = {}
    for part in query.split("&") if query else ():
        name, equals, text = part.partition("=")
        refuse_if(
            not equals or not name or not text,
            "options must be key=value, separated by &",
            f"{part!r} in {whole!r}",
            "Write ?key=value&….",
        )
        refuse_if(
            name in options,
            "an option must be given once",
            f"{name!r} twice in {whole!r}",
            "Leave one of them out.",
        )
        options[name] = text
    return options


def guess(text: str) -> Any:
    """A value of unknown type.

    Example:
        >>> guess("2"), guess("0,5.5"), guess("1,0;0,2"), guess("true"), guess("a%26b")
        (2, [0, 5.5], [[1, 0], [0, 2]], True, 'a&b')
    """
    if ";" in text:
        return [[_atom(part) for part in row.split(",")] for row in text.split(";")]
    parts = [_atom(part) for part in text.split(",")]
    return parts if len(parts) > 1 else parts[0]


def typed(text: str, annotation: str) -> Any:
    """A value of the annotated type; ``ValueError`` if the text is not one.

    Example:
        >>> typed("3", "str"), typed("3", "str | int"), typed("3", "list[str | int]"), typed("3", "float | None")
        ('3', 3, [3], 3.0)
        >>> typed("-inf,1", "tuple[float, float]"), typed("0,0;1,5", "Bounds")
        ((-inf, 1.0), ([0.0, 0.0], [1.0, 5.0]))
    """
    if annotation.startswith(("list[", "Sequence[")):
        inner = annotation.partition("[")[2].partition("]")[0]
        return [typed(part, inner) for part in text.split(",")]
    kinds, word = [part.strip() for part in annotation.split("|")], text.lower()
    if "None" in kinds and word in ("none", "null"):
        return None
    if "tuple[float, float]" in kinds or "Bounds" in kinds:
        rows = text.strip("[]()").split(";" if ";" in text else ",")  # 0,0;1,5: by column
        low, high = ([float(end) for end in row.split(",")] for row in rows)
        return tuple(end if len(end) > 1 else end[0] for end in (low, high))
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
        raise ValueError(text)
    return guess(text)


def _atom(text: str) -> Any:
    whole = unquote(text)
    if whole.lower() in _WORDS:
        return _WORDS[whole.lower()]
    if _WHOLE.fullmatch(whole):
        return int(whole)
    return float(whole) if _NUMBER.fullmatch(whole) else whole
