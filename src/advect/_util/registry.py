"""The one table of names: which class a word stands for on the command line, in a TOML file and in
``DatasetTransport``.

Names exist only at these edges; everything behind them takes objects. A kind is called like the
parameter that takes its objects (``ad.JointFixedLabels(laws=…)``), so that a signature says by
itself where a name will do. Nothing is imported before it is used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

from advect._util.signatures import REQUIRED, Option, of_object, of_source
from advect.errors import InputError

# A text is where an object is found: "Adam" is advect.Adam, "maps.NearestMap" advect.maps.NearestMap.
_NAMES: dict[str, dict[str, Any]] = {
    "dynamics": {
        "fd": "FeatureDriven",
        "jd-fl": "JointFixedLabels",
        "jd-vl": "JointVariableLabels",
        "jd-y": "JointTargets",
    },
    "laws": {
        "euclidean": "EuclideanMotion",
        "bures": "BuresMotion",
        "factored": "FactoredMotion",
        "diagonal": "DiagonalMotion",
    },
    "clustering": {
        "kmeans": "KMeans",
        "dbscan": "DBSCAN",
        "ward": "Ward",
        "mixture": "GaussianMixture",
        "spectral": "Spectral",
        "hdbscan": "HDBSCAN",
    },
    "integrator": {
        "euler": "Euler",
        "heun": "Heun",
        "proximal": "Proximal",
        "momentum": "Momentum",
        "adam": "Adam",
        "adagrad": "Adagrad",
        "euler-maruyama": "EulerMaruyama",
    },
    "control": {"backtracking": "Backtracking", "fixed": "FixedSteps"},
    "solver": {
        "sinkhorn": "Sinkhorn",
        "exact": "ExactOT",
        "mini-batch": "MiniBatch",
        "nystrom": "NystromSinkhorn",
    },
    "feature": {"euclidean": "SquaredEuclidean", "embedding": "Embedding", "sketch": "Sketch"},
    "cost": {"ground": "GroundCost"},
    "label": {
        "bures": "Bures",
        "exact": "ExactLabelOT",
        "means": "MeansOnly",
        "names": "ByName",
        "none": "NoLabels",
        "values": "TargetValues",
        "laws": "TargetLaws",
    },
    "plus": {"bures": "Bures", "exact": "ExactLabelOT", "means": "MeansOnly", "none": "NoLabels"},
    "map": {
        "entropic": "maps.EntropicMap",
        "nearest": "maps.NearestMap",
        "gaussian": "maps.GaussianMap",
        "neural": "maps.NeuralMap",
        "flow-matching": "maps.FlowMatchingMap",
    },
    "stop": {"when": "StopWhen"},
    "functional": {
        "otdd": "OTDD",
        "sliced": "SlicedOTDD",
        "class-mmd": "ClassMMD",
        "internal": "Internal",
    },
    "potential": {name: name for name in ("norm", "affine_norm", "ball", "hinge", "collapse")},
    "interaction": {name: name for name in ("attraction", "repulsion", "spreading")},
}

_CALLED = {  # where errors use another word than the parameter
    "clustering": "clusterer",
    "feature": "feature cost",
    "label": "label cost",
    "plus": "label cost",
    "laws": "motion of laws",
}


def kinds() -> tuple[str, ...]:
    """The kinds of things that have names."""
    return tuple(_NAMES)


def known(kind: str) -> tuple[str, ...]:
    """The names of a kind, in order.

    Example:
        >>> known("solver")
        ('sinkhorn', 'exact', 'mini-batch', 'nystrom')
    """
    return tuple(_NAMES[kind])


def register(kind: str, name: str, target: Any) -> None:
    """Give a class or function of one's own a name: from then on it is known wherever names of its
    kind are, with the options of its own signature.

    Args:
        kind: one of ``kinds()``, such as ``"integrator"`` or ``"map"``.
        name: a new one.
        target: what makes the object, called with the options by name.

    Raises:
        InputError: no such kind, or a name that stands for something else.

    Example:
        >>> import advect as ad
        >>> class Still(ad.Euler): pass
        >>> ad.register("integrator", "still", Still)
        >>> make("integrator", "still", {"step_size": 0.5})
        Still(step_size=0.5)
        >>> _ = _NAMES["integrator"].pop("still")
    """
    check_name("kind of name", kind, _NAMES)
    if _NAMES[kind].get(name, target) is not target:
        raise InputError(f"there is a {kind} of that name", repr(name), "Choose another name.")
    _NAMES[kind][name] = target


def found(kind: str, name: str) -> Any:
    """What a name stands for.

    Example:
        >>> found("solver", "exact").__name__
        'ExactOT'
    """
    check_name(_CALLED.get(kind, kind), name, _NAMES[kind])
    target = _NAMES[kind][name]
    if type(target) is not str:
        return target
    import advect

    return reduce(getattr, target.split("."), advect)


def where(kind: str, name: str) -> str:
    """The public name behind a name: "DBSCAN" is ``ad.DBSCAN``; that of its class, if it was added.

    Example:
        >>> where("clustering", "dbscan")
        'DBSCAN'
    """
    target = _NAMES[kind][name]
    return target if type(target) is str else target.__name__


def options(kind: str, name: str) -> dict[str, Option]:
    """The options of what a name stands for, from its own signature and docstring.

    Example:
        >>> {name: option.default for name, option in options("integrator", "momentum").items()}
        {'step_size': 0.1, 'momentum': 0.9, 'nesterov': False}
    """
    check_name(_CALLED.get(kind, kind), name, _NAMES[kind])
    target = _NAMES[kind][name]
    return of_source(target) if type(target) is str else of_object(target)


def make(kind: str, name: str, given: Mapping[str, Any]) -> Any:
    """The object of a name with its options; those of another object are an error that says whose
    they are.

    Example:
        >>> make("integrator", "adam", {"step_size": 0.05}).step_size
        0.05
        >>> make("integrator", "euler", {"beta1": 0.5})
        Traceback (most recent call last):
        advect.errors.InputError: unknown option of euler; got 'beta1'. Known: step_size; beta1 belongs to adam.
    """
    own = options(kind, name)
    for option in given:
        if option not in own:
            others = [other for other in known(kind) if option in options(kind, other)]
            belongs = f"; {option} belongs to {' and '.join(others)}" if others else ""
            check_name(f"option of {name}", option, own, belongs)
    return call(name, found(kind, name), own, given)


def call(name: str, target: Any, own: Mapping[str, Option], given: Mapping[str, Any]) -> Any:
    """``target(**given)``, with an error that says which options it needs."""
    missing = [one for one in own if own[one].default is REQUIRED and one not in given]
    if missing:
        raise InputError(
            f"{name} needs more options", _listed(given), f"Give {_listed(missing)} as well."
        )
    return target(**given)


def describe(kind: str, made: Any) -> dict[str, Any]:
    """The name of an object and its options as they are: what ``make`` takes to make it again. An
    object of no registered class has none.

    Example:
        >>> import advect as ad
        >>> describe("integrator", ad.Momentum(0.2))
        {'name': 'momentum', 'step_size': 0.2, 'momentum': 0.9, 'nesterov': False}
    """
    for name in known(kind):
        if found(kind, name) is type(made):
            values = vars(made)
            return {"name": name} | {one: values.get(one) for one in options(kind, name)}
    return {}


def check_name(what: str, name: str, names: Iterable[str], more: str = "") -> None:
    """One of these names; otherwise an error that suggests the nearest."""
    if name not in names:
        from advect._util.checks import check_known  # for which torch is loaded

        try:
            check_known(what, name, names)
        except InputError as error:
            remedy = f"{error.remedy.rstrip('.')}{more}."
            raise InputError(error.what, error.got, remedy) from None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
