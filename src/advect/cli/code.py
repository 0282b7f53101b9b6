"""Python files that the user names, as in ``mine.py:StayNear``, and terms of the objective as text: a weight,
a name and options, as in ``0.5*ball?centre=0,5&radius=2``.

A file runs if its name was typed. A name that a configuration file or a run directory holds is refused
unless ``--run-code`` was typed: ``note_code`` collects the names of a configuration file, and
``check_permitted`` refuses them. ``load_object`` is the only place where such a file is run."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from cyclopts import App, ArgumentCollection

import advect as ad
import advect.registry as registry
from advect._util import query
from advect._util.checks import check_known, refuse_if
from advect.errors import InputError

CODE_IN_CONFIG: ContextVar[tuple[str, ...]] = ContextVar("CODE_IN_CONFIG", default=())
_KINDS = ("functional", "potential", "interaction")
_DISTANCES = ("otdd", "sliced", "class-mmd")
_WEIGHT = re.compile(
    r"\s*(?P<weight>[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)\s*\*\s*(?P<rest>.*)", re.DOTALL
)


def note_code(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Remember which Python files the configuration file names; it cannot set ``--run-code``.

    cyclopts calls this after all sources of values."""
    names = []
    for argument in arguments:
        for token in argument.tokens:
            if token.source == "cli":
                continue
            refuse_if(
                "--run-code" in argument.names,
                "a configuration file cannot permit code to run",
                token.source,
                "Pass --run-code yourself.",
            )
            names += [token.value] if is_code(unquote(token.value)) else []
    CODE_IN_CONFIG.set(tuple(names))


def check_permitted(names: Iterable[str], run_code: bool) -> None:
    """Raise an error if there is code that the user did not type, unless ``--run-code`` was typed.

    Example:
        >>> check_permitted(["/else/mine.py:StayNear"], run_code=False)
        Traceback (most recent call last):
        advect.errors.InputError: Python code runs only if you name it yourself; got ...
    """
    for name in names:
        what, remedy = (
            "Python code runs only if you name it yourself",
            "Read it, then pass --run-code.",
        )
        refuse_if(not run_code, what, f"{name} from a file", remedy)


def is_code(text: str) -> bool:
    """Whether a text names an object in a Python file.

    Example:
        >>> is_code("mine.py:StayNear"), is_code("ball?radius=2")
        (True, False)
    """
    return ".py:" in text


def absolute(text: str) -> str:
    """The same object by the absolute path of its file.

    Example:
        >>> absolute("mine.py:StayNear") == f"{Path('mine.py').absolute()}:StayNear"
        True
    """
    path, name = _split(text)
    return f"{path}:{name}"


def _split(text: str) -> tuple[Path, str]:
    path, _, name = text.rpartition(".py:")
    return Path(f"{path}.py").expanduser().absolute(), name


def load_object(text: str, what: str) -> Any:
    """Run a Python file and return an object that it defines."""
    path, name = _split(text)
    if not name.isidentifier():
        raise InputError(f"{what} must be path.py:name", repr(text), "Name one object of the file.")
    refuse_if(not path.is_file(), f"no such file for {what}", path, "Check the path.")
    spec = importlib.util.spec_from_file_location(f"advect_user_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.append(str(path.parent))  # the file may import its neighbours
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        why = f"{path} ({type(error).__name__}: {error})"
        raise InputError(f"{what} cannot be loaded", why, "Correct the file.") from error
    names = ", ".join(public for public in vars(module) if not public.startswith("_")) or "no names"
    refuse_if(name not in vars(module), f"no {name!r} in {path}", names, "Name one of these.")
    return vars(module)[name]


def load_network(text: str, what: str) -> Any:
    """A model, encoder or decoder: an object in a Python file (a torch module, its class, a function or
    an estimator), or the path of an ONNX file. Nothing is unpickled.
    """
    if is_code(text):
        import torch

        network = load_object(text, what)
        is_class = inspect.isclass(network) and issubclass(network, torch.nn.Module)
        return network() if is_class else network
    path = Path(text).expanduser()
    if path.suffix.lower() == ".onnx":
        return path
    remedy = "See --help."
    if path.suffix.lower() in (".pt", ".pth", ".pt2", ".pkl", ".pickle", ".joblib"):
        remedy = "Pickled models are not opened, because that can run any code: load it in a Python file."
    raise InputError(f"{what} must be path.py:name or path.onnx", repr(text), remedy)


@dataclass(frozen=True)
class Term:
    """One term: a weight, a short name or ``path.py:name``, and options as text.

    Example:
        >>> Term.parse("0.5*ball?centre=0,5&radius=2")
        Term(name='ball', weight=0.5, options={'centre': '0,5', 'radius': '2'})
    """

    name: str
    weight: float = 1.0
    options: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Term:
        """Read a term. Special characters in the path of a file are percent-encoded."""
        match = _WEIGHT.fullmatch(text)
        weight, rest = (float(match["weight"]), match["rest"]) if match else (1.0, text.strip())
        name, _, options = rest.partition("?")
        term = cls(unquote(name), weight, query.split(options, text))
        if not is_code(term.name):
            names = [name for kind in _KINDS for name in registry.known(kind)]
            check_known("functional", term.name, names)
        return term

    @property
    def target(self) -> str | None:
        """The reference of the dataset that a distance goes to; empty for the main target."""
        return self.options.get("target", "") if self.name in _DISTANCES else None

    @property
    def kind(self) -> str:
        """The kind in the registry, or ``code``."""
        return next((kind for kind in _KINDS if self.name in registry.known(kind)), "code")


def absolute_term(text: str) -> str:
    """The term with the absolute path of its Python file.

    Example:
        >>> absolute_term("0.1*norm")
        '0.1*norm'
    """
    term = Term.parse(text)
    if not is_code(term.name):
        return text
    weight = "" if term.weight == 1 else f"{term.weight!r}*"
    _, mark, options = text.partition("?")
    return f"{weight}{quote(absolute(term.name), safe='/:')}{mark}{options}"


def functional(
    terms: Iterable[str],
    source: ad.LabeledDataset,
    targets: Mapping[str, ad.LabeledDataset],
    shared: Mapping[str, Any],
) -> ad.Functional:
    """The sum of all terms; ``shared`` are the arguments of every OTDD."""
    first, *others = (_build(Term.parse(text), source, targets, shared) for text in terms)
    return sum(others, start=first)


def _build(
    term: Term,
    source: ad.LabeledDataset,
    targets: Mapping[str, ad.LabeledDataset],
    shared: Mapping[str, Any],
) -> ad.Functional:
    options = {name: text for name, text in term.options.items() if name != "target"}
    target = {} if term.target is None else {"target": targets[term.target]}
    if term.kind == "code":
        energy = _user_functional(term, source, targets.get(""))
    elif term.name == "otdd":
        for option in options:
            check_known("option of otdd", option, ["target"], "; use --cost and --solver")
        energy = ad.OTDD(**target, **shared)
    elif term.kind == "functional":
        energy = registry.make("functional", {"name": term.name, **options}, **target)
    else:
        wrap = ad.Potential if term.kind == "potential" else ad.Interaction
        energy = wrap(registry.make(term.kind, {"name": term.name, **term.options}))
        _check_dimension(energy, term.name, source)
    return energy if term.weight == 1 else term.weight * energy


def _check_dimension(energy: ad.Functional, name: str, source: ad.LabeledDataset) -> None:
    """Evaluate once, so that options of another dimension are found before anything is written."""
    try:
        energy(source.subset(range(min(2, len(source)))))
    except (RuntimeError, IndexError) as error:
        what = f"{name} does not fit samples of {source.dim} features"
        raise InputError(what, str(error).splitlines()[0], "Check its options.") from None


def _user_functional(
    term: Term, source: ad.LabeledDataset, target: ad.LabeledDataset | None
) -> ad.Functional:
    """A functional in a Python file, or a class or function that makes one; it gets ``source`` and
    ``target`` if it takes them.
    """
    energy = load_object(term.name, "a functional")
    if isinstance(energy, ad.Functional):
        options = ", ".join(term.options)
        refuse_if(options, f"{term.name} is an object, not a class", options, "Name its class.")
        return energy
    try:
        parameters = registry.parameters(energy)
        datasets = {"source": source, "target": target}
        datasets = {name: data for name, data in datasets.items() if name in parameters}
        energy = registry.call(term.name, energy, term.options, datasets)
    except (TypeError, ValueError) as error:
        raise InputError(f"{term.name} cannot be made", error, "Check its options.") from error
    what, remedy = f"{term.name} must be a Functional", "Subclass ad.Functional."
    refuse_if(not isinstance(energy, ad.Functional), what, type(energy).__name__, remedy)
    return energy
