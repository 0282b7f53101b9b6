"""Python files that the user names, as in ``mine.py:StayNear``: run because they were given, and
for no other reason.

What a configuration file or a run directory names is not given by the user: it needs
``--run-code``. ``load_object`` is the only place where such a file is run, and it asks for a
``Permission``."""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advect.errors import InputError


@dataclass(frozen=True)
class Permission:
    """Which objects of Python files may be loaded: those that the user named, or any.

    Example:
        >>> Permission(named=frozenset({settled_code("mine.py:StayNear")})).check("./mine.py:StayNear")
        >>> Permission().check("/else/mine.py:StayNear")
        Traceback (most recent call last):
        advect.errors.InputError: Python code is run only if you name it yourself; got /else/mine.py:StayNear from settings. ...
    """

    named: frozenset[str] = frozenset()
    everything: bool = False

    def check(self, text: str) -> None:
        """An error for an object that may not be loaded; ``text`` is what ``load_object`` would be
        given.
        """
        whole = settled_code(text)
        if not self.everything and whole not in self.named:
            raise InputError(
                "Python code is run only if you name it yourself",
                f"{whole} from settings",
                "Look at it, then pass --run-code.",
            )


def is_code(text: str) -> bool:
    """Whether a text names an object in a Python file.

    Example:
        >>> is_code("mine.py:StayNear"), is_code("ball?radius=2")
        (True, False)
    """
    return ".py:" in text


def split_code(text: str) -> tuple[Path, str]:
    """The file, absolute, and the name of the object in it."""
    path, _, name = text.rpartition(".py:")
    return Path(f"{path}.py").expanduser().absolute(), name


def settled_code(text: str) -> str:
    """The same object by the whole path of its file.

    Example:
        >>> settled_code("mine.py:StayNear") == f"{Path('mine.py').absolute()}:StayNear"
        True
    """
    path, name = split_code(text)
    return f"{path}:{name}"


def load_object(text: str, what: str, permission: Permission) -> Any:
    """Run a Python file and take an object out of it.

    Raises:
        InputError: not permitted, no such file, an error in it, or no such name.
    """
    permission.check(text)
    path, name = split_code(text)
    if not name.isidentifier():
        raise InputError(f"{what} must be path.py:name", repr(text), "Name one object of the file.")
    if not path.is_file():
        raise InputError(f"no such file for {what}", path, "Check the path.")
    spec = importlib.util.spec_from_file_location(f"advect_user_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))  # it may import its neighbours
    silent, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # nothing appears beside it
    here = Path.cwd()
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a script that ends is no reason to end in silence
        raise InputError(
            f"{what} cannot be loaded",
            f"{path} ({type(error).__name__}: {error})",
            "Mend the file.",
        ) from error
    finally:
        os.chdir(here)  # what else the user has named is meant from here
        if str(path.parent) in sys.path:  # the file may have changed it
            sys.path.remove(str(path.parent))
        sys.dont_write_bytecode = silent
    if not hasattr(module, name):
        names = [known for known in vars(module) if not known.startswith("_")]
        raise InputError(
            f"no {name!r} in {path}", f"{', '.join(names) or 'no names'}", "Name one of these."
        )
    return getattr(module, name)
