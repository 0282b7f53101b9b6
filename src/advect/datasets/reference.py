"""References to datasets in one line of text, such as ``parquet:big.parquet?label=kind&n=2000``.

Only reading the line is done here; what the parts mean is for the others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from advect._util.checks import check_known
from advect.errors import InputError

FILES = ("npz", "npy", "csv", "parquet", "folder", "idx")
KINDS = (*FILES, "name", "openml", "toy", "run")
SAMPLING = ("n", "balanced", "seed", "max_samples")
_TEXT = (
    "delimiter",
    "encoding",
    "x_key",
    "y_key",
    "split",
    "dtype",
    "categorical",
    "channels",
    "units",
)
_COLUMN = ("label", "weights")
_WHOLE = re.compile(r"0|-?[1-9]\d*", re.ASCII)  # 007 is a name
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_SCHEME = re.compile(r"([A-Za-z][\w+-]+):(.*)", re.DOTALL)


@dataclass(frozen=True)
class Reference:
    """A dataset as it is asked for: what kind of place it is in, where there, and with which
    options.

    Args:
        kind: ``"npz"``, ``"npy"``, ``"csv"``, ``"parquet"``, ``"folder"``, ``"idx"``, ``"openml"``,
            ``"toy"`` or ``"run"``; ``"name"`` for a dataset that has one, ``"path"`` for a file
            whose suffix tells the rest.
        path: the file, directory, number or name.
        options: what came after ``?``.

    Example:
        >>> Reference.parse("csv:pets.csv?label=kind&columns=kilos,age&n=200", names=())
        Reference(kind='csv', path='pets.csv', options={'label': 'kind', 'columns': ['kilos', 'age'], 'n': 200})
        >>> Reference.parse("mnist?split=test", names=["mnist"])
        Reference(kind='name', path='mnist', options={'split': 'test'})
    """

    kind: str
    path: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, ref: str | os.PathLike[str], names: Iterable[str]) -> Reference:
        """The parts of a reference, given the names that datasets have; an ``InputError`` for what
        is none.

        Names go before files; a file or directory called like one is ``./mnist`` or
        ``folder:mnist``, and ``name:mnist`` can only be the name."""
        if isinstance(ref, os.PathLike):
            return cls("path", os.fspath(ref))
        if not isinstance(ref, str) or not ref:
            raise InputError(
                "a dataset must be a name, a path or a reference",
                repr(ref),
                "Pass a string such as 'mnist' or 'csv:pets.csv'.",
            )
        names, (word, _, query) = list(names), ref.partition("?")
        if word in names:
            return cls("name", word, _options(ref, query))
        scheme = _SCHEME.fullmatch(ref)
        if scheme is not None and scheme[1] in KINDS:
            path, query = _split(scheme[2])
            if not path:
                raise InputError(
                    f"{scheme[1]}: must be followed by what to read",
                    repr(ref),
                    f"Write {scheme[1]}:….",
                )
            if scheme[1] == "name":
                path, _, query = scheme[2].partition("?")
                check_known("dataset", path, names)
            return cls(scheme[1], path, _options(ref, query))
        path, query = _split(ref)
        if not os.path.exists(os.path.expanduser(path)):
            if scheme is not None:
                check_known("kind of reference", scheme[1], KINDS)
            if not re.search(r"[/\\.~]", path):
                check_known("dataset", path, names)
        return cls("path", path, _options(ref, query))

    def merged(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Its options and those ``given``; an option in both must be the same."""
        for name in self.options.keys() & given.keys():
            here, there = self.options[name], given[name]
            if (tuple(here) if isinstance(here, list) else here) != (
                tuple(there) if isinstance(there, list) else there
            ):
                raise InputError(
                    f"{name} is given twice",
                    f"{here!r} in the reference and {there!r} beside it",
                    "Leave one of them out.",
                )
        return {**self.options, **given}


def _split(text: str) -> tuple[str, str]:
    """Path and options: a file that exists may have ? in its name."""
    marks = [len(text), *(at for at in reversed(range(len(text))) if text[at] == "?")]
    for at in marks:
        if os.path.exists(os.path.expanduser(text[:at])):
            return text[:at], text[at + 1 :]
    path, _, query = text.partition("?")
    return path, query


def _options(ref: str, query: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for part in query.split("&") if query else ():
        name, equals, text = part.partition("=")
        if not equals or not name or not text:
            raise InputError(
                "options must be key=value, with & between them",
                f"{part!r} in {ref!r}",
                "Write ?key=value&….",
            )
        if name in options:
            raise InputError(
                "an option must be given once",
                f"{name!r} twice in {ref!r}",
                "Leave one of them out.",
            )
        options[name] = _value(name, text)
    return options


def _value(name: str, text: str) -> Any:
    if name in _TEXT:
        return unquote(text)
    if name in _COLUMN:
        return False if text.lower() == "false" else _key(unquote(text))
    if name == "columns":
        return [_key(unquote(part)) for part in text.split(",")]
    parts = [_converted(unquote(part)) for part in text.split(",")]
    return parts if len(parts) > 1 else parts[0]


def _key(text: str) -> str | int:
    """The name of a column, or its position."""
    return int(text) if _WHOLE.fullmatch(text) else text


def _converted(text: str) -> Any:
    """Truth values and numbers as such, anything else as text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return float(text) if _NUMBER.fullmatch(text) and not _WHOLE.fullmatch(text) else _key(text)
