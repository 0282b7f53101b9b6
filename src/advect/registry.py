"""The table of short names of classes, such as "adam", for the command line, TOML files and
``DatasetTransport``.

A kind has the name of the parameter that takes its objects, so a signature shows where a name can be used.
Classes are imported only when they are needed. An installed package adds names with entry points: the group
``advect.solver`` has solvers, and so on for every kind. Names of advect and of ``register`` take precedence."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache, reduce
from typing import Any
from urllib.parse import quote, unquote

from advect._util import check_known, refuse_if
from advect._util.query import split, typed
from advect.errors import InputError

# "Adam" is advect.Adam, "maps.NearestMap" is advect.maps.NearestMap
_LABELS = {"bures": "Bures", "exact": "ExactLabelOT", "means": "MeansOnly", "none": "NoLabels"}
_NAMES: dict[str, dict[str, Any]] = {
    "dynamics": {"fd": "FeatureDriven", "jd-fl": "JointFixedLabels"}
    | {"jd-vl": "JointVariableLabels", "jd-y": "JointTargets"},
    "integrator": {name: name.capitalize() for name in ("euler", "heun", "momentum", "adam")}
    | {"euler-maruyama": "EulerMaruyama"},
    "step_size": {"decay": "Decay"},
    "control": {"backtracking": "Backtracking", "fixed": "FixedSteps"},
    "solver": {"sinkhorn": "Sinkhorn", "exact": "ExactOT", "mini-batch": "MiniBatch"},
    "epsilon": {"relative": "Relative"},
    "penalty": {"relative": "Relative"},
    "feature": {"euclidean": "SquaredEuclidean", "embedding": "Embedding"},
    "cost": {"ground": "GroundCost"},
    "label": _LABELS | {"names": "ByName", "values": "TargetValues"},
    "plus": _LABELS,
    "map": {
        "entropic": "maps.EntropicMap",
        "nearest": "maps.NearestMap",
        "neural": "maps.NeuralMap",
        "flow-matching": "maps.FlowMatchingMap",
    },
    "stop": {"when": "StopWhen"},
    "functional": {"otdd": "OTDD", "sliced": "SlicedOTDD", "internal": "Internal"},
    "potential": {name: name for name in ("norm", "affine_norm", "ball", "hinge", "collapse")},
    "interaction": {name: name for name in ("attraction", "repulsion", "spreading")},
}


def kinds() -> tuple[str, ...]:
    """The kinds of objects that have short names."""
    return tuple(_NAMES)


def names(kind: str) -> tuple[str, ...]:
    """The names of a kind; the first is the default.

    Example:
        >>> names("control")
        ('backtracking', 'fixed')
    """
    return tuple(dict.fromkeys((*_NAMES[kind], *plugins(kind))))


@cache
def plugins(kind: str) -> dict[str, Any]:
    """The entry points of installed packages in the group ``advect.KIND``, by name; nothing is imported."""
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=f"advect.{kind}")}


def load_plugin(kind: str, name: str) -> Any:
    """What an installed package registered under this name."""
    point = plugins(kind)[name]
    try:
        inspect.signature(target := point.load())  # what is not callable is found here
    except Exception as error:
        package, got = point.dist and point.dist.name, f"{type(error).__name__}: {error}"
        what = f"the {kind} {name!r} of the package {package} cannot be used"
        raise InputError(what, got, f"Repair or uninstall {package}.") from error
    return target


def register(kind: str, name: str, target: Any) -> None:
    """Give a class or function a short name for the command line, TOML files and ``DatasetTransport``.

    Args:
        kind: the kind of object, such as ``"integrator"`` or ``"map"``.
        name: the new name.
        target: a class or function; it is called with the options as keyword arguments.

    Raises:
        InputError: unknown kind, or a name that stands for something else.

    Example:
        >>> import advect as ad
        >>> class SlowEuler(ad.Euler): pass
        >>> ad.register("integrator", "slow", SlowEuler)
        >>> make("integrator", "slow?step_size=0.5")
        SlowEuler(step_size=0.5)
        >>> _ = _NAMES["integrator"].pop("slow")
    """
    check_known("kind", kind, _NAMES)
    is_taken = _NAMES[kind].get(name, target) is not target
    refuse_if(is_taken, f"the {kind} name is taken", repr(name), "Choose another name.")
    _NAMES[kind][name] = target


def lookup(kind: str, name: str) -> Any:
    """The class or function with this name."""
    target = _NAMES[kind].get(name)
    if target is None:
        check_known(kind.replace("_", " "), name, names(kind))
        return load_plugin(kind, name)
    if type(target) is not str:
        return target
    import advect

    return reduce(getattr, target.split("."), advect)


def targets(kind: str) -> Iterator[tuple[str, Any]]:
    """Names with their classes or functions; a package that cannot be imported is left out."""
    for name in names(kind):
        with suppress(InputError):
            yield name, lookup(kind, name)


def parameters(target: Any) -> dict[str, inspect.Parameter]:
    """The keyword parameters of a class or function."""
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {
        name: parameter
        for name, parameter in inspect.signature(target).parameters.items()
        if parameter.kind not in free and not name.startswith("_")
    }


def make(kind: str, spec: str | Mapping[str, Any], **shared: Any) -> Any:
    """The object of a kind from ``name?key=value&…``, or from a table with the same keys.

    ``shared`` are arguments that the object gets if it takes them and the text does not set them.

    Example:
        >>> make("integrator", "adam?step_size=0.05").step_size
        0.05
        >>> make("solver", {"name": "sinkhorn", "epsilon": "5%"}).epsilon
        Relative(share=0.05)
        >>> make("integrator", "euler?beta1=0.5")
        Traceback (most recent call last):
        advect.errors.InputError: unknown option of euler; got 'beta1'. Known: step_size; beta1 belongs to adam.
    """
    options = {"name": spec} if isinstance(spec, str) else spec
    texts = {option.replace("-", "_"): value for option, value in options.items()}
    line = str(texts.pop("name", next(iter(_NAMES[kind]))))
    name, _, query = line.partition("?")
    texts = {**split(query, line), **texts}
    target = lookup(kind, name)
    accepted = parameters(target)
    for option in texts:
        if option not in accepted:
            others = [other for other, made in targets(kind) if option in parameters(made)]
            belongs = f"; {option} belongs to {' and '.join(others)}" if others else ""
            check_known(f"option of {name}", option, accepted, belongs)
    shared = {option: value for option, value in shared.items() if option in accepted}
    return call(name, target, texts, shared)


def call(name: str, target: Any, texts: Mapping[str, Any], shared: Mapping[str, Any]) -> Any:
    """``target(**shared, **texts)``, with texts converted to the types of its signature."""
    arguments = {**shared, **convert(name, target, texts)}
    missing = [
        option
        for option, parameter in parameters(target).items()
        if parameter.default is parameter.empty and option not in arguments
    ]
    refuse_if(
        missing,
        f"{name} needs more options",
        ", ".join(arguments) or "none",
        f"Also give {', '.join(missing)}.",
    )
    return target(**arguments)


def convert(name: str, target: Any, texts: Mapping[str, Any]) -> dict[str, Any]:
    """Texts as values of the types in the signature of ``target``; unknown names are an error."""
    accepted = parameters(target)
    for option in texts:
        check_known(f"option of {name}", option, accepted)
    return {
        option: _convert_value(f"{option} of {name}", option, text, accepted[option])
        for option, text in texts.items()
    }


def _convert_value(what: str, option: str, value: Any, parameter: inspect.Parameter) -> Any:
    text = as_text(value)
    declared = parameter.annotation
    name = str(getattr(declared, "__name__", declared))  # an annotation is a text or a type
    annotation = "" if declared is parameter.empty else name
    inner = unquote(text)
    if option in _NAMES and inner.partition("?")[0] in names(option):
        return make(option, inner)
    try:
        if "Relative" in annotation and text.endswith("%"):
            return lookup("epsilon", "relative")(float(text[:-1]) / 100)
        return typed(text, annotation)
    except ValueError:
        raise InputError(
            f"{what} must be {annotation or 'valid'}", repr(text), f"Write {option}=…."
        ) from None


def describe(kind: str, value: Any) -> dict[str, Any]:
    """The name of an object and its options as plain values, from which ``make`` makes it again; empty
    if its class has no name.

    Example:
        >>> import advect as ad
        >>> describe("integrator", ad.Euler(ad.Decay(0.4, 2, 0.1)))
        {'name': 'euler', 'step_size': 'decay?first=0.4&half_life=2&last=0.1'}
    """
    name = next((name for name, made in targets(kind) if made is type(value)), None)
    if name is None:
        return {}
    table: dict[str, Any] = {"name": name}
    for option in parameters(type(value)):
        argument: Any = getattr(value, option, None)
        if option in _NAMES and (inner := describe(option, argument)):
            table[option] = _line(inner)
        elif _is_plain(argument):
            table[option] = list(argument) if type(argument) is tuple else argument
    return table


def _is_plain(value: Any) -> bool:
    if type(value) in (tuple, list):
        return all(map(_is_plain, value))
    return type(value) in (bool, int, float, str)


def _line(table: Mapping[str, Any]) -> str:
    options = [f"{key}={quote(as_text(table[key]), safe=',')}" for key in table if key != "name"]
    return table["name"] + ("?" + "&".join(options) if options else "")


def as_text(value: Any) -> str:
    """A value of a TOML file as it would be typed."""
    if type(value) in (list, tuple):
        rows = any(type(part) in (list, tuple) for part in value)
        parts = (quote(part) if type(part) is str else as_text(part) for part in value)
        return (";" if rows else ",").join(parts)
    return str(value).lower() if value in (None, True, False) else str(value)
