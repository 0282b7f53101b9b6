"""Python files that the user names, as in ``mine.py:StayNear``, and the permission to run them.

A file runs only if the user typed it for an option that takes code, or passed ``--run-code``. A name that
comes from a configuration file, an environment variable or a run directory is not enough.
``load_object`` is the only place where such a file is run."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cyclopts import App, ArgumentCollection

from advect._util.checks import refuse_if
from advect.errors import InputError

TYPED: ContextVar[tuple[str, ...]] = ContextVar("TYPED", default=())  # code the user typed


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
