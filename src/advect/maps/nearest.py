"""The simplest map: a new sample moves as the nearest particles did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from advect._util import check_count, check_positive, refuse_if
from advect.data.dataset import LabeledDataset
from advect.maps.base import Map, pack_pairs, unpack_pairs

_BLOCK = 4_000_000  # entries of a block of distances


@dataclass(eq=False)
class NearestMap(Map, kind="nearest"):
    """x ↦ x + Σ w_i (x_T,i − x_0,i), the mean displacement of the k particles that started nearest.

    A sample with a label uses particles of its class. Particles count by their weights. Use it as the
    baseline of other maps, or if the flow moves neighbours in the same way.

    Args:
        k: number of neighbours; all of a class that has fewer.

    Example:
        >>> import advect as ad
        >>> nearest = ad.maps.NearestMap().fit([[0.0], [10.0]], [[1.0], [15.0]])
        >>> nearest.transform([[0.5], [9.0]]).tolist()
        [[1.5], [14.0]]
    """

    k: int = 1

    def __post_init__(self) -> None:
        self.k = check_count("k", self.k)

    def learn(self, start: LabeledDataset, end: LabeledDataset) -> None:
        refuse_if(
            self.k > len(start),
            f"k must be at most the number of particles, {len(start)}",
            self.k,
            "Pass a smaller k.",
        )
        self._start, self._end, self.classes_ = start, end, start.classes
        self._centre = start.x.double().mean(dim=0)
        # distances of any scale can be squared
        self._scale = float((start.x - self._centre).abs().max()) or 1.0

    def move(self, x: Tensor, codes: Tensor) -> Tensor:
        x, codes = x.to(self._start.x.device), codes.to(self._start.x.device)
        moved = x.to(torch.promote_types(x.dtype, self._start.x.dtype), copy=True)
        for code in codes.unique().tolist():
            among = torch.arange(len(self._start), device=x.device)
            if code >= 0:
                among = (self._start.y == code).nonzero()[:, 0]
            for rows in (codes == code).nonzero()[:, 0].split(max(1, _BLOCK // len(among))):
                moved[rows] = self._carry(moved[rows], among)
        return moved

    def _carry(self, x: Tensor, among: Tensor) -> Tensor:
        """Map rows by their neighbours among some particles."""
        points, start = (
            (part.double() - self._centre) / self._scale for part in (x, self._start.x[among])
        )
        # ½‖x − x_0‖² − ½‖x‖²
        distances = torch.addmm(start.square().sum(dim=1) / 2, points, start.T, beta=1, alpha=-1)
        near = distances.topk(min(self.k, len(among)), dim=1, largest=False).indices
        weights = self._start.weights[among][near].log().softmax(dim=1).to(x)  # (rows, k)
        # x − Σ w start vanishes at a particle itself, where the end is exact
        moved, start = torch.zeros_like(x), torch.zeros_like(x)
        for weight, index in zip(weights.T, among[near].T, strict=True):
            moved += weight[:, None] * self._end.x[index]
            start += weight[:, None] * self._start.x[index]
        return moved + (x - start)

    def pack(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, facts = pack_pairs(self._start, self._end)
        return tensors | {"centre": self._centre}, facts | {"k": self.k, "scale": self._scale}

    def unpack(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        if facts.get("bandwidth") is not None:  # an option of advect 0.2
            raise ValueError("a bandwidth, which needs advect 0.2")
        self.k = check_count("k", facts["k"])
        self._start, self._end = unpack_pairs(tensors, facts, self.sample_shape_)
        self.classes_ = self._start.classes
        self._centre, self._scale = tensors["centre"], check_positive("scale", facts["scale"])
