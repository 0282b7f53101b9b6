"""Terms of a sum of functionals as text: ``otdd``, ``8*ball?centre=0,5&radius=2``,
``0.1*mine.py:StayNear?strength=3``: a weight, then a name with options as everywhere else.

In a TOML file a term may also be a table: ``{name = "ball", weight = 8, centre = [0, 5], radius =
2}``."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from advect._util import query, registry
from advect._util.checks import check_known, check_number
from advect._util.signatures import Option
from advect.cli.code import is_code, settled_code
from advect.errors import InputError

TERMS = ("functional", "potential", "interaction")  # the kinds that a sum is made of
_DISTANCES = ("otdd", "sliced", "class-mmd")
_WEIGHT = re.compile(
    r"\s*(?P<weight>[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)\s*\*\s*(?P<rest>.*)", re.DOTALL
)


@dataclass(frozen=True)
class Term:
    """One term: a weight, a name of the registry or an object in a Python file, and its options.

    Attributes:
        written: its options as text, for an object whose signature is not known before it is
            loaded; ``options`` then are guesses.

    Example:
        >>> Term.parse("8*ball?centre=0,5&radius=2")
        Term(name='ball', weight=8.0, options={'centre': [0, 5], 'radius': 2.0})
    """

    name: str
    weight: float = 1.0
    options: dict[str, Any] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def parse(cls, text: str) -> Term:
        """Read a term; a table of a TOML file comes as JSON."""
        if text.lstrip().startswith("{"):
            return cls._from_table(text)
        match = _WEIGHT.fullmatch(text)
        weight, rest = (float(match["weight"]), match["rest"]) if match else (1.0, text.strip())
        name, _, said = rest.partition("?")
        written = query.split(said, text)
        kind = cls(name)._checked().kind
        if kind == "code":
            return cls(name, weight, {key: query.guess(written[key]) for key in written}, written)
        own = (
            {} if name == "otdd" else registry.options(kind, name)
        )  # cost and solver: of the command
        if name in _DISTANCES:
            own = own | {"target": Option("target", "str")}
        return cls(name, weight, query.values(written, own, name))

    @classmethod
    def _from_table(cls, text: str) -> Term:
        try:
            table = json.loads(text)
            name = table.pop("name")
        except (ValueError, KeyError, AttributeError, RecursionError):
            raise InputError(
                "a term must be text, or a table with a name",
                text,
                'As in {name = "norm", weight = 0.1}.',
            ) from None
        weight = check_number("the weight of a term", table.pop("weight", 1.0))
        return cls(str(name), weight, table)._checked()

    def _checked(self) -> Term:
        if not is_code(self.name):
            check_known(
                "functional", self.name, [n for kind in TERMS for n in registry.known(kind)]
            )
        return self

    @property
    def to_target(self) -> bool:
        """Whether it is a distance to a dataset: that of its option ``target``, or the main one."""
        return self.name in _DISTANCES

    @property
    def kind(self) -> str:
        """The kind under which the registry has its name, or ``code``."""
        return next((kind for kind in TERMS if self.name in registry.known(kind)), "code")


def settled(text: str) -> str:
    """The term with the whole path of its Python file, so that it can be read from anywhere.

    Example:
        >>> settled("0.1*norm")
        '0.1*norm'
    """
    term = Term.parse(text)
    if not is_code(term.name):
        return text
    name = settled_code(term.name)
    if text.lstrip().startswith("{") or "?" in name:  # where text would be read in another way
        return json.dumps({"name": name, "weight": term.weight, **term.options})
    return text.replace(term.name, name, 1)
