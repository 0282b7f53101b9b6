"""References to datasets in one line of text, such as ``csv:pets.csv?label=kind&n=2000``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from advect._util.checks import check_known, refuse_if
from advect._util.query import split as query_options, typed
from advect.io.formats import formats
from advect.io.formats.registry import OTHER_KINDS

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
    """The parts of a reference. The kind is a format of files, ``"openml"``, ``"toy"`` or ``"run"``;
    ``"name"`` for a named dataset, ``"path"`` for a file whose suffix says the format."""

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
        refuse_if(
            not isinstance(ref, str) or not ref,
            "a dataset must be a name, a path or a reference",
            repr(ref),
            "Pass text such as 'mnist' or 'csv:pets.csv'.",
        )
        names, kinds = list(names), (*formats(), *OTHER_KINDS)
        path, _, query = ref.partition("?")
        options = {
            name: typed(text, _TYPES.get(name, ""))
            for name, text in query_options(query, ref).items()
        }
        if path in names:
            return cls("name", path, options)
        scheme = _SCHEME.fullmatch(path)
        if scheme is not None and scheme[1] in kinds:
            refuse_if(
                not scheme[2],
                f"{scheme[1]}: must be followed by what to read",
                repr(ref),
                f"Write {scheme[1]}:….",
            )
            if scheme[1] == "name":
                check_known("dataset", scheme[2], names)
            return cls(scheme[1], scheme[2], options)
        if not os.path.exists(os.path.expanduser(path)):
            if scheme is not None:
                check_known("kind of reference", scheme[1], kinds)
            if not re.search(r"[/\\.~]", path):
                check_known("dataset", path, names)
        return cls("path", path, options)

    def merged(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Its options and ``arguments``; an option in both must be the same."""
        for name in self.options.keys() & arguments.keys():
            pair = (self.options[name], arguments[name])
            first, second = (tuple(value) if type(value) is list else value for value in pair)
            got = f"{first!r} in the reference and {second!r} as an argument"
            refuse_if(first != second, f"{name} is given twice", got, "Leave one of them out.")
        return {**self.options, **arguments}
