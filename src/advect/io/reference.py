"""References to datasets in one line of text, such as ``csv:pets.csv?label=kind&n=2000``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from advect._util.checks import check_known
from advect._util.query import split as query_options, typed
from advect.errors import InputError
from advect.io.formats import formats

OTHERS = ("name", "openml", "toy", "run")  # kinds of references besides the formats of files
SAMPLING = ("n", "balanced", "seed", "max_samples")
# Types that a guess would get wrong: a column may be called 7, a delimiter may be a comma.
_TEXTS = "delimiter encoding split dtype categorical channels units"
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
    """The parts of a reference.

    Args:
        kind: a format of files, ``"openml"``, ``"toy"`` or ``"run"``; ``"name"`` for a named
            dataset, ``"path"`` for a file whose suffix says the format.
        path: the file, directory, number or name.
        options: what follows ``?``.

    Example:
        >>> Reference.parse("csv:pets.csv?label=kind&columns=kilos,age&n=200", names=())
        Reference(kind='csv', path='pets.csv', options={'label': 'kind', 'columns': ['kilos', 'age'], 'n': 200})
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
        """Parse a reference, given the names of datasets, which take precedence over files."""
        if isinstance(ref, os.PathLike):
            return cls("path", os.fspath(ref))
        if not isinstance(ref, str) or not ref:
            what = "a dataset must be a name, a path or a reference"
            raise InputError(what, repr(ref), "Pass text such as 'mnist' or 'csv:pets.csv'.")
        names, (word, _, query) = list(names), ref.partition("?")
        if word in names:
            return cls("name", word, _options(ref, query))
        scheme, kinds = _SCHEME.fullmatch(ref), (*formats(), *OTHERS)
        if scheme is not None and scheme[1] in kinds:
            path, _, query = scheme[2].partition("?")
            if not path:
                what = f"{scheme[1]}: must be followed by what to read"
                raise InputError(what, repr(ref), f"Write {scheme[1]}:….")
            if scheme[1] == "name":
                check_known("dataset", path, names)
            return cls(scheme[1], path, _options(ref, query))
        path = word
        if not os.path.exists(os.path.expanduser(path)):
            if scheme is not None:
                check_known("kind of reference", scheme[1], kinds)
            if not re.search(r"[/\\.~]", path):
                check_known("dataset", path, names)
        return cls("path", path, _options(ref, query))

    def merged(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Its options and those ``given``; an option in both must be the same."""
        for name in self.options.keys() & given.keys():
            one, other = self.options[name], given[name]
            pair = (tuple(value) if type(value) is list else value for value in (one, other))
            if len(set(pair)) > 1:
                got = f"{one!r} in the reference and {other!r} as an argument"
                raise InputError(f"{name} is given twice", got, "Leave one of them out.")
        return {**self.options, **given}


def _options(ref: str, query: str) -> dict[str, Any]:
    given = query_options(query, ref)
    return {name: typed(text, _TYPES.get(name, "")) for name, text in given.items()}
