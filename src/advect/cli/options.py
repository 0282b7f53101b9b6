"""Options of the command line out of the signatures and docstrings of the classes they are for.

A group of options, ``--solver.…`` say, is a frozen model with all options of all members of a kind;
None is "not given". ``built`` makes the object, ``described`` says it again as options with every
value resolved. Two things are spelled in another way than in Python, since text has no objects: a
share of the mean cost (``ad.Relative``) is ``relative_epsilon``, a step size that is halved
(``ad.Decay``) is ``half_life`` and ``last_step_size``; and what an object is made of
(``ad.JointVariableLabels(ad.DBSCAN(3))``) stands beside its own options (``clustering = "dbscan"``,
``radius = 3``)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Self, TypeVar

from cyclopts import Parameter
from pydantic import BaseModel, ConfigDict, Field, create_model

from advect._util import registry
from advect._util.signatures import Option
from advect.errors import InputError

Flag = Parameter(negative=())  # a switch without a --no-… beside it
_INSIDE = ("laws", "clustering", "label", "plus")  # kinds whose members are parts of others
_TYPES: dict[str, Any] = {
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "StepSize": float,
    "Posterior": str,
    "float | Relative": float,
    "Bounds": tuple[float, float],
    "tuple[float, float]": tuple[float, float],
}
_SHARES = {"epsilon": "the mean cost", "penalty": "the mean squared distance between samples"}
_SCHEDULE = {
    "half_life": "Halve the step size every so many steps.",
    "last_step_size": "Not below this when it is halved.",
}


def switch(help: str) -> Parameter:
    """A switch without a --no-… beside it, and what it does."""
    return Parameter(negative=(), help=help)


class Options(BaseModel):
    """A group of options: frozen, and unknown names are an error.

    Example:
        >>> class Pace(Options):
        ...     speed: float | None = None
        >>> Pace(speed=2.0).given, Pace().given
        ({'speed': 2.0}, {})
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @property
    def given(self) -> dict[str, Any]:
        """The options that have a value, without the name of the object they are for."""
        return {name: value for name, value in self if value is not None and name != "name"}


class Chosen(Options):
    """The options of one object of a kind.

    Attributes:
        kind: of the registry.
        usual: its name where none is given.
        own: defaults of the command where it has others than a signature, as in ``{"sinkhorn":
            {"tol": 1e-3}}``.
    """

    kind: ClassVar[str] = ""
    usual: ClassVar[str] = ""
    own: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def built(self, **more: Any) -> Any:
        """The object that is asked for; ``more`` are options that no text stands for."""
        name = dict(self).get("name") or self.usual
        own = dict(self.own.get(name, {}))
        if "epsilon" in self.given:
            own.pop("relative_epsilon", None)
        return built(self.kind, name, {**own, **self.given, **more})

    def resolved(self, made: Any) -> Self:
        """The options that made this object, with a value for each that it has."""
        flat = described(self.kind, made)
        return self.model_copy(
            update={name: flat[name] for name in flat if name in type(self).model_fields}
        )


Base = TypeVar("Base", bound=Chosen)


def group(
    kind: str,
    usual: str,
    help: str = "",
    own: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    chosen: bool = True,
    base: type[Base] = Chosen,
) -> type[Base]:
    """The model of a kind: its ``name``, and the options of all its members.

    Args:
        kind: of the registry.
        usual: the name where none is given.
        help: what ``name`` says.
        own: defaults of the command where it has others than a signature.
        chosen: whether ``usual`` is the default that is shown; else that depends on other things.
        base: with options that are the command's alone.

    Example:
        >>> pace = group("integrator", "euler", "The scheme.")
        >>> pace(name="adam", beta1=0.5).built()
        Adam(step_size=0.1, beta1=0.5, beta2=0.999, floor=1e-08)
        >>> pace().resolved(pace().built()).given
        {'step_size': 0.1}
    """
    names = registry.known(kind)
    parts = [(name, option) for name in names for option in registry.options(kind, name).values()]
    fields: dict[str, Any] = {}
    if len(names) > 1:
        word = Parameter(choices=names, show_default=usual if chosen else False)
        fields["name"] = (Annotated[str | None, word], Field(default=None, description=help))
    fields |= _fields(names, parts, own or {})
    for inside in {option.name: option for _, option in parts if option.name in _INSIDE}:
        members = registry.known(inside)
        theirs = [(m, one) for m in members for one in registry.options(inside, m).values()]
        fields |= {n: one for n, one in _fields(members, theirs, {}).items() if n not in fields}
    made: Any = create_model(f"{kind.title()}Options", __base__=base, **fields)
    made.kind, made.usual, made.own = kind, usual, own or {}
    return made


def member(kind: str, name: str, *, without: tuple[str, ...] = ()) -> type[Chosen]:
    """The model of one member of a kind: its options, but for some that the command has itself.

    Example:
        >>> member("integrator", "momentum", without=("nesterov",))(momentum=0.5).built()
        Momentum(step_size=0.1, momentum=0.5, nesterov=False)
    """
    own = registry.options(kind, name).values()
    parts = [(name, option) for option in own if option.name not in without]
    made: Any = create_model(
        f"{name.title()}Options", __base__=Chosen, **_fields((name,), parts, {})
    )
    made.kind, made.usual, made.own = kind, name, {}
    return made


def _fields(
    names: tuple[str, ...],
    parts: Iterable[tuple[str, Option]],
    own: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Fields for the options that text can stand for; members may share one."""
    shared: dict[str, dict[str, Option]] = {}
    for name, option in parts:
        shared.setdefault(option.name, {})[name] = option
    fields: dict[str, Any] = {}
    for name, options in shared.items():
        first = next(iter(options.values()))
        plain = re.sub(r"\s*\|\s*None$", "", first.annotation)
        defaults = {
            member: own.get(member, {}).get(name, option.default)
            for member, option in options.items()
        }
        short = {one: _short(options[one].help, defaults[one]) for one in options}
        help = _joined(names, short)
        if name in _INSIDE:
            usual = _part(first)
            choices = Parameter(choices=registry.known(name), show_default=usual or False)
            fields[name] = _field(Annotated[str | None, choices], help)
        elif plain == "float | Relative":
            shares = {
                member: own.get(member, {}).get(f"relative_{name}", _share(option.default))
                for member, option in options.items()
            }
            fields[name] = _field(_shown(float, names, {}), help)
            fields[f"relative_{name}"] = _field(
                _shown(float, names, shares), f"The same as a share of {_SHARES[name]}."
            )
        elif plain in _TYPES:
            fields[name] = _field(_shown(_TYPES[plain], names, defaults), help)
        if plain == "StepSize":
            fields |= {one: _field(float | None, said) for one, said in _SCHEDULE.items()}
    return fields


def _field(annotation: Any, help: str) -> tuple[Any, Any]:
    return annotation, Field(default=None, description=help)


def _shown(kind: Any, names: tuple[str, ...], defaults: Mapping[str, Any]) -> Any:
    """The type of an option, with its default as help shows it."""
    texts = {name: str(value) for name, value in defaults.items() if value is not None}
    one = set(texts.values())  # as it is typed: no word of a sentence
    text = one.pop() if len(one) == 1 else _joined(names, texts, " ", ", ")
    parameter = Parameter(show_default=text or False)
    if kind is bool and True not in defaults.values():
        parameter = Parameter(show_default=text or False, negative=())
    return Annotated[kind | None, parameter]


def _joined(
    names: tuple[str, ...], texts: Mapping[str, str], is_: str = ": ", then: str = " "
) -> str:
    """What is said of each member: once if it is the same for all."""
    alike: dict[str, list[str]] = {}
    for name, text in texts.items():
        alike.setdefault(text, []).append(name)
    if len(alike) == 1 and len(texts) == len(names):
        text = next(iter(alike))
        return text[:1].upper() + text[1:]
    return then.join(f"{', '.join(some)}{is_}{text}" for text, some in alike.items() if text)


def _short(text: str, default: Any = None) -> str:
    """The first sentence of a description, and what it says of the default where the signature has
    none; Python objects are left out.

    Example:
        >>> _short("how they move; smoothly: ``Bures()``, ``None``. It is slow. By default quickly.")
        'how they move; smoothly. By default quickly.'
    """
    plain = []
    for k, said in enumerate(re.split(r"(?<=\.)\s+(?=[A-Z])", text)):
        if k == 0 or (default is None and "default" in said.lower()):
            clauses = re.split(r"[;:,]\s+(?=``|or ``)|[;:]\s+", said.rstrip("."))
            python = (k for k, clause in enumerate(clauses) if re.search(r"``[\w.]+\(", clause))
            plain.append("; ".join(clauses[: next(python, None)]))
    return " ".join(f"{said}." for said in plain if said).replace("``", "")


def _share(default: Any) -> float | None:
    """The number in ``Relative(0.01)``."""
    found = re.fullmatch(r"Relative\((?:share=)?([\d.e-]+)\)", str(default))
    return float(found[1]) if found else None


def _part(option: Option) -> str | None:
    """The name of the member that a signature has as its default, ``field(default_factory=KMeans)``
    say.
    """
    wanted = str(option.default).removesuffix("()")
    names = registry.known(option.name)
    return next((name for name in names if registry.where(option.name, name) == wanted), None)


def _spelled(kind: str) -> set[str]:
    """The options of all members of a kind, as text has them."""
    own = {one for m in registry.known(kind) for one in registry.options(kind, m)}
    return own | {f"relative_{one}" for one in own if one in _SHARES}


def built(kind: str, name: str, flat: Mapping[str, Any]) -> Any:
    """An object from flat options.

    Example:
        >>> built("solver", "sinkhorn", {"relative_epsilon": 0.1}).epsilon
        Relative(share=0.1)
        >>> built("dynamics", "jd-vl", {"clustering": "dbscan", "radius": 3.0}).clustering.radius
        3.0
    """
    import advect as ad

    given, takes = dict(flat), registry.options(kind, name)
    for inside in (option for option in takes if option in _INSIDE):
        parts = {one: given.pop(one) for one in _spelled(inside) - takes.keys() if one in given}
        if inside in given or parts:
            usual = given.get(inside) or _part(takes[inside]) or registry.known(inside)[0]
            given[inside] = built(inside, usual, parts)
    for option in [one for one in given if one.removeprefix("relative_") in takes.keys() - {one}]:
        if option.removeprefix("relative_") in given:
            raise InputError(
                f"{option.removeprefix('relative_')} is given twice",
                f"{option.removeprefix('relative_')} and {option}",
                "Leave one of them out.",
            )
        given[option.removeprefix("relative_")] = ad.Relative(given.pop(option))
    half_life, last = given.pop("half_life", None), given.pop("last_step_size", None)
    if half_life is not None:
        first = given.get("step_size", takes["step_size"].default)
        given["step_size"] = ad.Decay(first, half_life, last or 0.0)
    elif last is not None:
        raise InputError(
            "last_step_size is where a step size that is halved ends", last, "Give half_life too."
        )
    return registry.make(kind, name, given)


def described(kind: str, made: Any) -> dict[str, Any]:
    """An object as flat options: what ``built`` takes to make it again.

    Example:
        >>> import advect as ad
        >>> described("integrator", ad.Euler(ad.Decay(0.4, 2, 0.1)))
        {'name': 'euler', 'step_size': 0.4, 'half_life': 2, 'last_step_size': 0.1}
    """
    import advect as ad

    flat: dict[str, Any] = {}
    for option, value in registry.describe(kind, made).items():
        if option in _INSIDE and value is not None:
            part = described(option, value)
            flat |= {option: part.pop("name", None)} | part
        elif type(value) is ad.Relative:
            flat[f"relative_{option}"] = value.share
        elif type(value) is ad.Decay:
            flat |= {option: value.first, "half_life": value.half_life}
            flat["last_step_size"] = value.last
        else:
            flat[option] = value
    return flat


def overridden(values: Mapping[str, Any], typed: Mapping[str, str]) -> dict[str, Any]:
    """The tables of a file without what the command line replaces: the options of an object, where
    another one is asked for, and an epsilon, where one is given in another way.

    Example:
        >>> overridden({"solver": {"name": "sinkhorn", "tol": 0.1}, "steps": 3}, {"solver.name": "exact"})
        {'solver': {}, 'steps': 3}
    """
    left = dict(values)
    for group, table in values.items():
        if not isinstance(table, dict):
            continue
        other = [
            word
            for word in ("name", *_INSIDE)
            if typed.get(f"{group}.{word}", table.get(word)) != table.get(word)
        ]
        parts = {one for word in other if word in _INSIDE for one in _spelled(word)}
        for share in _SHARES:
            for one in (share, f"relative_{share}"):
                if f"{group}.{one.replace('_', '-')}" in typed:
                    parts |= {share, f"relative_{share}"} - {one}
        kept = {} if "name" in other else table
        left[group] = {name: kept[name] for name in kept if name.replace("-", "_") not in parts}
    if any(left.get(one) == {} for one in ("integrator", "dynamics")):
        left.pop("control", None)  # which one is the default depends on these
    return left
