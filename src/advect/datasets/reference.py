"""References to datasets in one line of text, such as ``parquet:big.parquet?label=kind&n=2000``.

Only reading the line is done here; what the parts mean is for the others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from advect._util.checks import check_known
from advect._util.query import split as query_options, typed
from advect.data.formats import formats
from advect.errors import InputError

OTHERS = ("name", "openml", "toy", "run")  # kinds of references besides the formats of files
SAMPLING = ("n", "balanced", "seed", "max_samples")
# Types of options that a guess would get wrong: a column may be called 7, a delimiter may be a comma.
_TEXTS = "delimiter encoding x_key y_key split dtype categorical channels units"
_TYPES = dict.fromkeys(_TEXTS.split(), "str") | {
    "label": "str | int | False",
    "weights": "str | int | False",
    "columns": "list[str | int]",
    "probabilities": "list[str | int | False]",
    "target": "list[str]",
}
_SCHEME = re.compile(r"([A-Za-z][\w+-]+):(.*)", re.DOTALL)


@dataclass(frozen=True)
class Reference:
    """A dataset as it is asked for: what kind of place it is in, where there, and with which
    options.

    Args:
        kind: ``"npz"``, ``"npy"``, ``"csv"``, ``"parquet"``, ``"folder"``, ``"idx"``, ``"openml"``,
            ``"toy"`` or ``"run"``; ``"name"`` for a dataset that has one, ``"path"`` for a file
            whose suffix says the rest.
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

    @property
    def is_file(self) -> bool:
        """Whether it stands for a file or folder of samples."""
        return self.kind == "path" or self.kind in formats()

    @classmethod
    def parse(cls, ref: str | os.PathLike[str], names: Iterable[str]) -> Reference:
        """The parts of a reference, given the names that datasets have; an ``InputError`` for what
        is none.

        Names take precedence over files; a file or directory called like one is ``./mnist`` or
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
        if scheme is not None and scheme[1] in (*formats(), *OTHERS):
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
                check_known("kind of reference", scheme[1], (*formats(), *OTHERS))
            if not re.search(r"[/\\.~]", path):
                check_known("dataset", path, names)
        return cls("path", path, _options(ref, query))

    def merged(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Its options and those ``given``; an option in both must be the same."""
        for name in self.options.keys() & given.keys():
            here, there = self.options[name], given[name]
            if _comparable(here) != _comparable(there):
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
    given = query_options(query, ref)
    return {name: typed(text, _TYPES.get(name, "")) for name, text in given.items()}


def _comparable(value: Any) -> Any:
    return tuple(value) if type(value) is list else value
