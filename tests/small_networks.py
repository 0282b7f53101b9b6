"""A network that is written to ONNX files without an exporter, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch


class Layer:
    """tanh(flat samples · W): in an ONNX file, and here."""

    def __init__(self, seed: int = 0, inputs: int = 36, out: int = 4) -> None:
        draws = torch.Generator().manual_seed(seed)
        self.weights = torch.randn(inputs, out, generator=draws) / 6

    def __call__(self, samples: torch.Tensor) -> torch.Tensor:
        return (samples.flatten(1) @ self.weights).tanh()

    def export(
        self, path: Path, shape: tuple[int, ...] = (6, 6), batch: int | str = "n", **options: Any
    ) -> Path:
        onnx = pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")
        from onnx import TensorProto, helper, numpy_helper

        nodes = [
            helper.make_node("Flatten", ["x"], ["flat"]),
            helper.make_node("MatMul", ["flat", "w"], ["p"]),
            helper.make_node("Tanh", ["p"], ["y"]),
        ]
        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, *sides])
            for name, sides in (("x", shape), ("y", self.weights.shape[1:]))
        ]
        weights = [numpy_helper.from_array(self.weights.numpy(), "w")]
        graph = helper.make_graph(nodes, "layer", [ends[0]], [ends[1]], weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(model, path, **options)
        return path
