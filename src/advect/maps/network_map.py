"""Maps that are networks: moving samples in blocks, export, and files."""

from __future__ import annotations

import copy
import io
from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from advect._util.atomic import write_atomically
from advect._util.checks import check_known
from advect.maps.base import Map
from advect.maps.networks import STATISTICS, Standardized

_BLOCK = 512  # rows that are moved at once


class NetworkMap(Map, kind=""):
    """A map whose fitted ``_module`` moves samples in their shape, with labels if it has classes."""

    options: ClassVar[tuple[str, ...]]  # fields that are saved
    _module: Any  # a ``Standardized`` network

    @abstractmethod
    def __post_init__(self) -> None:
        """Check the options."""

    @abstractmethod
    def build(self, shape: tuple[int, ...], statistics: list[Tensor], facts: Any) -> Standardized:
        """The module without its weights, from the facts of a file."""

    def freeze(self, module: Standardized) -> None:
        self._module = module.eval().requires_grad_(False)

    def move(self, x: Tensor, codes: Tensor) -> Tensor:
        centre = self._module.centre
        samples = x.reshape(len(x), *centre.shape).to(centre.device)
        parts = zip(samples.split(_BLOCK), codes.to(centre.device).split(_BLOCK), strict=True)
        return torch.cat([self._module(*part) for part in parts]).reshape(x.shape)

    def export(self, path: str | Path) -> Path:
        """Write the network for use without advect: ``.pt2``, a file of torch.export.

        Inputs are samples, any number of them, in the dtype of the data of the fit; and after a fit
        with labels positions in ``classes_``, −1 for unknown.
        """
        import torch.export

        path, shape = Path(path), self._fitted()
        check_known("format", path.suffix.lower(), (".pt2",))
        module, content = copy.deepcopy(self._module).cpu(), io.BytesIO()
        inputs = [torch.zeros(2, *shape, dtype=module.centre.dtype)]
        if self.classes_:
            inputs.append(torch.zeros(2, dtype=torch.int64))
        n = torch.export.Dim("n")
        rows = tuple({0: n} for _ in inputs)
        torch.export.save(torch.export.export(module, tuple(inputs), dynamic_shapes=rows), content)
        write_atomically(path, content.getvalue())
        return path

    def pack(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return self._module.state_dict(), {name: getattr(self, name) for name in self.options}

    def unpack(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        for name in self.options:
            setattr(self, name, facts[name])
        self.__post_init__()
        shape, statistics = self._fitted(), [tensors[name] for name in STATISTICS]
        if any(value.shape != shape for value in statistics):
            raise ValueError(f"statistics are not of shape {shape}")
        with torch.device("meta"):  # no memory until the weights are known to fit
            module = self.build(shape, statistics, facts)
        module.load_state_dict(tensors, assign=True)
        self.freeze(module)
