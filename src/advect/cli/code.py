"""Python files that the user names, as in ``mine.py:StayNear``, the permission to run them, and terms of the
objective as text: a weight, a name and options, as in ``0.5*ball?centre=0,5&radius=2``.

A file runs only if the user typed it for an option that takes code, or passed ``--run-code``. A name that
comes from a configuration file, an environment variable or a run directory is not enough.
``load_object`` is the only place where such a file is run."""

from __future__ import annotations

import importlib.util
import inspect
import os
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

TYPED: ContextVar[tuple[str, ...]] = ContextVar("TYPED", default=())  # code the user typed
# options whose value may be path.py:name; for objects, the keys
_TAKE_CODE = ("--functional", "--metric", "--embedding", "--model")
_CODE_KEYS = {"--cost": ("embedding",), "--space": ("encoder", "decoder")}
_KINDS = ("functional", "potential", "interaction")
_DISTANCES = ("otdd", "sliced")
_WEIGHT = re.compile(
    r"\s*(?P<weight>[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)\s*\*\s*(?P<rest>.*)", re.DOTALL
)


@dataclass(frozen=True)
class Permission:
    """The objects in Python files that may be loaded: those the user typed, or all.

    Example:
        >>> Permission(frozenset({absolute("mine.py:StayNear")})).check("./mine.py:StayNear")
        >>> Permission().check("/else/mine.py:StayNear")
        Traceback (most recent call last):
        advect.errors.InputError: Python code runs only if you name it yourself; got ...
    """

    names: frozenset[str] = frozenset()
    everything: bool = False

    @classmethod
    def given(cls, run_code: bool, needed: Iterable[str | None] = ()) -> Permission:
        """The permission of this command line; an error if an object in ``needed`` may not be loaded."""
        permission = cls(frozenset(map(absolute, TYPED.get())), run_code)
        for name in needed:
            if name is not None and is_code(name):
                permission.check(name)
        return permission

    def check(self, text: str) -> None:
        """Raise an error if the object may not be loaded."""
        if not self.everything and absolute(text) not in self.names:
            what, got = "Python code runs only if you name it yourself", absolute(text)
            remedy = "Read the file, then pass --run-code."
            raise InputError(what, f"{got} from a file or variable", remedy)


def check_run_code(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Raise an error for a ``--run-code`` that was not typed."""
    for argument in arguments:
        for token in argument.tokens:
            refuse_if(
                token.source != "cli" and "--run-code" in argument.names,
                "a file or variable cannot permit code to run",
                token.keyword if token.source == "env" else f"run_code in {token.source}",
                "Pass --run-code yourself.",
            )


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


def load_object(text: str, what: str, permission: Permission) -> Any:
    """Run a Python file and return an object that it defines."""
    permission.check(text)
    path, name = _split(text)
    if not name.isidentifier():
        raise InputError(f"{what} must be path.py:name", repr(text), "Name one object of the file.")
    refuse_if(not path.is_file(), f"no such file for {what}", path, "Check the path.")
    spec = importlib.util.spec_from_file_location(f"advect_user_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    folder, bytecode, here = str(path.parent), sys.dont_write_bytecode, Path.cwd()
    sys.path.insert(0, folder)  # the file may import its neighbours
    sys.dont_write_bytecode = True
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        why = f"{path} ({type(error).__name__}: {error})"
        raise InputError(f"{what} cannot be loaded", why, "Correct the file.") from error
    finally:
        os.chdir(here)
        if folder in sys.path:
            sys.path.remove(folder)
        sys.dont_write_bytecode = bytecode
    got = ", ".join(one for one in vars(module) if not one.startswith("_")) or "no names"
    refuse_if(not hasattr(module, name), f"no {name!r} in {path}", got, "Name one of these.")
    return getattr(module, name)


def load_network(text: str, what: str, permission: Permission) -> Any:
    """A model, encoder or decoder: an object in a Python file (a torch module, its class, a function or
    an estimator), or the path of an ONNX file. Nothing is unpickled.
    """
    if is_code(text):
        import torch

        made = load_object(text, what, permission)
        is_class = inspect.isclass(made) and issubclass(made, torch.nn.Module)
        return made() if is_class else made
    path = Path(text).expanduser()
    if path.suffix.lower() == ".onnx":
        return path
    refuse_if(
        path.suffix.lower() in (".pt", ".pth", ".pt2", ".pkl", ".pickle", ".joblib"),
        "opening such a file can run any code in it",
        path,
        "Load it in a Python file and pass path.py:name, or export the model to ONNX.",
    )
    raise InputError(f"{what} must be path.py:name or path.onnx", repr(text), "See --help.")


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


def note_typed(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Remember the code that was typed; cyclopts calls this before other sources of values."""
    names: list[str] = []
    for argument in arguments:
        tokens = [token for token in argument.tokens if token.source == "cli"]
        if not tokens:
            continue
        option = next((name for name in argument.names if name.startswith("--")), "")
        keys = _CODE_KEYS.get(option, ())
        values = [token.value for token in tokens if token.keys and token.keys[-1] in keys]
        values += [token.value for token in tokens] if option in _TAKE_CODE else []
        names += map(_term_name, values) if option == "--functional" else values
    TYPED.set(tuple(filter(is_code, names)))


def _term_name(text: str) -> str:
    """The name in a term: that of ``0.1*mine.py:f?a=1`` is ``mine.py:f``."""
    try:
        return Term.parse(text).name
    except InputError:  # whoever uses the term raises it again
        return ""


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
    name, (_, mark, options) = quote(absolute(term.name), safe="/:"), text.partition("?")
    return f"{weight}{name}{mark}{options}"


def functional(
    terms: Iterable[str],
    source: ad.LabeledDataset,
    targets: Mapping[str, ad.LabeledDataset],
    code: Permission,
    shared: Mapping[str, Any],
) -> ad.Functional:
    """The sum of all terms; ``shared`` are the arguments of every OTDD."""
    parts = [_build(Term.parse(text), source, targets, code, shared) for text in terms]
    return sum(parts[1:], start=parts[0])


def _build(
    term: Term,
    source: ad.LabeledDataset,
    targets: Mapping[str, ad.LabeledDataset],
    code: Permission,
    shared: Mapping[str, Any],
) -> ad.Functional:
    options = {name: text for name, text in term.options.items() if name != "target"}
    target = {} if term.target is None else {"target": targets[term.target]}
    if term.kind == "code":
        made = _user_functional(term, source, targets.get(""), code)
    elif term.name == "otdd":
        for option in options:
            check_known("option of otdd", option, ["target"], "; use --cost and --solver")
        made = ad.OTDD(**target, **shared)
    elif term.kind == "functional":
        made = registry.make("functional", {"name": term.name, **options}, **target)
    else:
        energy = ad.Potential if term.kind == "potential" else ad.Interaction
        made = energy(registry.make(term.kind, {"name": term.name, **term.options}))
        _check_dimension(made, term.name, source)
    return made if term.weight == 1 else term.weight * made


def _check_dimension(made: ad.Functional, name: str, source: ad.LabeledDataset) -> None:
    """Evaluate once, so that options of another dimension are found before anything is written."""
    try:
        made(source.subset(range(min(2, len(source)))))
    except (RuntimeError, IndexError) as error:
        what = f"{name} does not fit samples of {source.dim} features"
        raise InputError(what, str(error).splitlines()[0], "Check its options.") from None


def _user_functional(
    term: Term, source: ad.LabeledDataset, target: ad.LabeledDataset | None, code: Permission
) -> ad.Functional:
    """A functional in a Python file, or a class or function that makes one; it gets ``source`` and
    ``target`` if it takes them.
    """
    made = load_object(term.name, "a functional", code)
    if callable(made) and not isinstance(made, ad.Functional):
        parameters = registry.parameters(made)
        datasets = {"source": source, "target": target}
        datasets = {name: data for name, data in datasets.items() if name in parameters}
        for name in term.options:
            check_known(f"option of {term.name}", name, parameters.keys() - datasets.keys())
        try:
            made = registry.call(term.name, made, term.options, datasets)
        except (TypeError, ValueError) as error:
            remedy = f"It takes {', '.join(parameters) or 'nothing'}."
            raise InputError(f"{term.name} cannot be made", error, remedy) from error
    elif term.options:
        got = f"options {', '.join(term.options)}"
        raise InputError(f"{term.name} is an object, not a class", got, "Name its class instead.")
    what, remedy = f"{term.name} must be a Functional", "Subclass ad.Functional."
    refuse_if(not isinstance(made, ad.Functional), what, type(made).__name__, remedy)
    return made
