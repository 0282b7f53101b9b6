"""A torch module as a file for use without advect: a program of torch.export, or ONNX."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

from torch import Tensor, nn

from advect._util.atomic import write_atomically
from advect._util.checks import check_known
from advect.errors import InputError


def check_format(path: Path) -> None:
    """A suffix that stands for a format."""
    check_known("format", path.suffix.lower(), (".onnx", ".pt2"))


def write_program(path: Path, module: nn.Module, inputs: dict[str, Tensor]) -> Path:
    """Write a module whose inputs and output have any number n of rows.

    Args:
        path: ``….pt2`` for torch.export, ``….onnx`` for ONNX.
        module: on the CPU.
        inputs: examples, by the names of the module's arguments; the output is called ``y``, or
            ``moved`` where an input has that name.

    Raises:
        InputError: another suffix, or ``.onnx`` without the packages of ``pip install
            'advect[onnx]'``.

    Example:
        >>> import tempfile, torch
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = write_program(Path(folder) / "one.pt2", nn.Flatten(), {"input": torch.zeros(2, 3, 1)})
        ...     torch.export.load(path).module()(torch.ones(1, 3, 1)).tolist()
        [[1.0, 1.0, 1.0]]
    """
    import torch.export

    check_format(path)
    n = torch.export.Dim("n")
    sizes = {name: {0: n} for name in inputs}
    examples = tuple(inputs.values())
    if path.suffix.lower() == ".pt2":
        content = io.BytesIO()
        torch.export.save(torch.export.export(module, examples, dynamic_shapes=sizes), content)
        write_atomically(path, content.getvalue())
        return path
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise InputError(
            "ONNX needs onnx and onnxscript",
            str(error),
            "Install them: pip install 'advect[onnx]'.",
        ) from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, about itself
        program = torch.onnx.export(
            module,
            examples,
            input_names=list(inputs),
            output_names=["moved" if "y" in inputs else "y"],
            dynamic_shapes=sizes,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    write_atomically(path, program.model_proto.SerializeToString())
    return path
