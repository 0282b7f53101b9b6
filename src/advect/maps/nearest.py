"""The simplest map: a new sample moves as the nearest particles did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from advect._util.checks import check_positive
from advect.data.dataset import LabeledDataset
from advect.maps.base import Map, pack_pairs, unpack_pairs

_BLOCK = 4_000_000  # entries of a block of distances


@dataclass(eq=False)
class NearestMap(Map, kind="nearest"):
    """x ↦ x + (x_T,i − x_0,i), the displacement of the particle i that started nearest.

    A sample with a label uses particles of its class. Use it as the baseline of other maps, or where
    the flow moved neighbours alike.

    Example:
        >>> import advect as ad
        >>> nearest = ad.maps.NearestMap().fit([[0.0], [10.0]], [[1.0], [15.0]])
        >>> nearest.transform([[0.5], [9.0]]).tolist()
        [[1.5], [14.0]]
    """

    def learn(self, start: LabeledDataset, end: LabeledDataset) -> None:
        self._start, self._end, self.classes_ = start, end, start.classes
        self._centre = start.x.double().mean(dim=0)
        # distances of any scale can be squared
        self._scale = float((start.x - self._centre).abs().max()) or 1.0

    def move(self, x: Tensor, codes: Tensor) -> Tensor:
        x, codes = x.to(self._start.x.device), codes.to(self._start.x.device)
        moved = x.to(torch.promote_types(x.dtype, self._start.x.dtype), copy=True)
        for code in codes.unique().tolist():
            among = ((self._start.y == code) | (code < 0)).nonzero()[:, 0]
            for rows in (codes == code).nonzero()[:, 0].split(max(1, _BLOCK // len(among))):
                moved[rows] = self._carry(moved[rows], among)
        return moved

    def _carry(self, x: Tensor, among: Tensor) -> Tensor:
        """Carry rows with the nearest of some particles."""
        points, start = (
            (part.double() - self._centre) / self._scale for part in (x, self._start.x[among])
        )
        # ½‖x − x_0‖² − ½‖x‖²
        distances = torch.addmm(start.square().sum(dim=1) / 2, points, start.T, beta=1, alpha=-1)
        near = among[distances.argmin(dim=1)]
        # x − start vanishes at a particle itself, where the end is exact
        return self._end.x[near].to(x) + (x - self._start.x[near])

    def pack(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, facts = pack_pairs(self._start, self._end)
        return tensors | {"centre": self._centre}, facts | {"scale": self._scale}

    def unpack(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        if facts.get("bandwidth") is not None or facts.get("k", 1) != 1:  # options of advect 0.2
            raise ValueError("a mean of several particles, which needs advect 0.2")
        self._start, self._end = unpack_pairs(tensors, facts, self.sample_shape_)
        self.classes_ = self._start.classes
        self._centre, self._scale = tensors["centre"], check_positive("scale", facts["scale"])
