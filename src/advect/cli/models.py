"""Models, encoders and decoders that a command may ask: an object in a Python file that the user
names, or an ONNX file. Nothing is unpickled.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from advect.cli.code import Permission, is_code, load_object
from advect.errors import InputError


def load_model(text: str, code: Permission) -> Any:
    """A model that ``advect.apps.query`` can ask.

    Args:
        text: ``path.py:name``, a torch module, its class if it needs no arguments, an estimator or
            a function of samples; or ``path.onnx``.
        code: which Python files may be run.

    Raises:
        InputError: no such file, another kind of file, or one that would have to be unpickled.
    """
    found = _named(text, "a model", code)
    if found is not None:
        return found
    from advect._util.onnx import OnnxModel

    return OnnxModel(text)


def load_coder(text: str, what: str, code: Permission) -> Any:
    """An encoder or a decoder as ``FeatureSpace.fit`` takes it; the arguments are those of
    ``load_model``, and ``what`` the word for it.
    """
    found = _named(text, f"the {what}", code)
    return Path(text).expanduser() if found is None else found


def _named(text: str, what: str, code: Permission) -> Any:
    """The object that a text names; None for an ONNX file."""
    if is_code(text):
        import torch

        found = load_object(text, what, code)
        made = inspect.isclass(found) and issubclass(found, torch.nn.Module)
        return found() if made else found
    path = Path(text).expanduser()
    if path.suffix.lower() == ".onnx":
        return None
    if path.suffix.lower() in (".pt", ".pth", ".pt2", ".pkl", ".pickle", ".joblib"):
        raise InputError(
            "opening such a file can run any code in it",
            path,
            "Load it in a Python file of yours and pass that, path.py:name; or export the model to "
            "ONNX.",
        )
    raise InputError(
        f"{what} must be path.py:name or path.onnx", repr(text), "See the --help of the command."
    )
