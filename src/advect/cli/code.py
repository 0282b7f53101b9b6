"""Python files that the user names, as in ``mine.py:StayNear``: run because they were given, and for no other reason.

What a configuration file or a run directory names is not given by the user: it needs ``--run-code``.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from advect.errors import InputError

TYPED: ContextVar[tuple[str, ...]] = ContextVar("TYPED", default=())  # the command line as it was typed
_CODE = re.compile(r"(?:^|[=*\"])([^=*?\"]*\.py:\w+)")


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


def load_object(text: str, what: str) -> Any:
    """Run a Python file and take an object out of it.

    Raises:
        InputError: no such file, an error in it, or no such name.
    """
    path, name = split_code(text)
    if not name.isidentifier():
        raise InputError(f"{what} must be path.py:name", repr(text), "Name one object of the file.")
    if not path.is_file():
        raise InputError(f"no such file for {what}", path, "Check the path.")
    spec = importlib.util.spec_from_file_location(f"advect_user_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))  # it may import its neighbours
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"{what} cannot be loaded", f"{path} ({type(error).__name__}: {error})", "Mend the file.") from error
    finally:
        sys.path.remove(str(path.parent))
    if not hasattr(module, name):
        names = [known for known in vars(module) if not known.startswith("_")]
        raise InputError(f"no {name!r} in {path}", f"{', '.join(names) or 'no names'}", "Name one of these.")
    return getattr(module, name)


def named_code(text: str) -> str | None:
    """The ``path.py:name`` in an option or a term.

    Example:
        >>> named_code("--functional=0.1*mine.py:StayNear?strength=3"), named_code("otdd")
        ('mine.py:StayNear', None)
    """
    match = _CODE.search(text)
    return match[1] if match else None


def require_given(texts: Iterable[str], allowed: bool) -> None:
    """An error for code among ``texts`` that is not on the command line itself, unless it is allowed."""
    given = {named_code(token) for token in TYPED.get()}
    for text in texts:
        name = named_code(text)
        if name is not None and name not in given and not allowed:
            raise InputError(
                "Python code is run only if you name it yourself", f"{name} from settings", "Look at it, then pass --run-code."
            )
