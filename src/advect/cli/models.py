"""Models that a command may ask: an object in a Python file that the user names, or an ONNX file.
Nothing is unpickled.
"""

from __future__ import annotations

import importlib
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
    if is_code(text):
        import torch

        found = load_object(text, "a model", code)
        made = inspect.isclass(found) and issubclass(found, torch.nn.Module)
        return found() if made else found
    path = Path(text).expanduser()
    if path.suffix.lower() == ".onnx":
        return _onnx(path)
    if path.suffix.lower() in (".pt", ".pth", ".pt2", ".pkl", ".pickle", ".joblib"):
        raise InputError(
            "opening such a file can run any code in it",
            path,
            "Load it in a Python file of yours and pass that, path.py:name; or export the model to "
            "ONNX.",
        )
    raise InputError(
        "a model must be path.py:name or path.onnx", repr(text), "See advect repurpose --help."
    )


def _onnx(path: Path) -> Any:
    if not path.is_file():
        raise InputError("no such model", path, "Check the path.")
    try:
        runtime: Any = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise InputError(
            "ONNX models need onnxruntime", str(error), "Install it: pip install onnxruntime."
        ) from None
    try:
        session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as error:  # of many kinds of its own
        raise InputError(
            "not an ONNX model, or damaged", f"{path} ({error})", "Export it again."
        ) from None
    inputs = session.get_inputs()
    if len(inputs) != 1:
        raise InputError(
            "a model must have one input",
            f"{len(inputs)} in {path}",
            "Export a model of samples alone.",
        )
    name, shape, kind = inputs[0].name, inputs[0].shape, inputs[0].type

    def ask(samples: Any) -> Any:
        array = samples.detach().cpu().numpy().astype("float64" if "double" in kind else "float32")
        sides = shape[1:]
        if all(type(side) is int for side in sides):  # (n, 28, 28) for a model of (n, 1, 28, 28)
            array = array.reshape(len(array), *sides)
        return session.run(None, {name: array})[0]

    return ask
