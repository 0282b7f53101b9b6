"""Terms of a sum of functionals as text: ``otdd``, ``8*ball?centre=0,5&radius=2``,
``0.1*mine.py:StayNear?strength=3``.

    [weight*]name[?option=value&…]

A value is a number, true or false, numbers with commas between them, rows of numbers with
semicolons, JSON, or text. In a TOML file a term may also be a table: ``{name = "ball", weight = 8,
centre = [0, 5], radius = 2}``."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from advect._util.checks import check_known, check_number
from advect.cli.code import is_code, settled_code
from advect.cli.names import REGISTRY, TERMS
from advect.errors import InputError

_WEIGHT = re.compile(
    r"\s*(?P<weight>[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)\s*\*\s*(?P<rest>.*)", re.DOTALL
)


@dataclass(frozen=True)
class Term:
    """One term: a weight, a name of the registry or an object in a Python file, and its options.

    Example:
        >>> Term.parse("8*ball?centre=0,5&radius=2")
        Term(name='ball', weight=8.0, options={'centre': [0, 5], 'radius': 2})
    """

    name: str
    weight: float = 1.0
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Term:
        """Read a term; a table of a TOML file comes as JSON."""
        if text.lstrip().startswith("{"):
            return cls._from_table(text)
        match = _WEIGHT.fullmatch(text)
        weight, rest = (float(match["weight"]), match["rest"]) if match else (1.0, text.strip())
        name, _, query = rest.partition("?")
        options: dict[str, Any] = {}
        for part in query.split("&") if query else ():
            key, equals, value = part.partition("=")
            if not equals or not key:
                raise InputError(
                    "options of a term must be key=value, with & between them",
                    repr(part),
                    "As in radius=2.",
                )
            options[key] = _value(unquote(value))
        return cls(name, weight, options)._checked()

    @classmethod
    def _from_table(cls, text: str) -> Term:
        try:
            table = json.loads(text)
            name = table.pop("name")
        except (ValueError, KeyError, RecursionError):
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
                "functional", self.name, [name for kind in TERMS for name in REGISTRY[kind]]
            )
        return self

    @property
    def to_target(self) -> bool:
        """Whether it is a distance to a dataset: that of its option ``target``, or the main one."""
        return self.name in ("otdd", "sliced")

    @property
    def kind(self) -> str:
        """The kind under which the registry has its name, or ``code``."""
        return next((kind for kind in TERMS if self.name in REGISTRY[kind]), "code")


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


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    if ";" in text:
        return [_listed(row) for row in text.split(";")]
    return _listed(text) if "," in text else {"true": True, "false": False}.get(text.lower(), text)


def _listed(text: str) -> list[Any]:
    return [_value(part) for part in text.split(",")]
