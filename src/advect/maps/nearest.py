"""The plainest map: a new sample moves as the particles nearest to it did.

x ↦ x + Σ_i w_i (x_T,i − x_0,i)     over the k particles nearest to x
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from advect._util.checks import check_count, check_positive
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.maps.base import Map
from advect.maps.pairs import pack_pairs, unpack_pairs

_BLOCK = 4_000_000  # entries of a block of distances, 32 MB


@dataclass(eq=False)
class NearestMap(Map, kind="nearest"):
    """x ↦ x + Σ w_i (x_T,i − x_0,i), the mean displacement of the k particles that started nearest
    to x.

    A sample with a label looks at particles of its class only. Particles count by their weight in
    the flow.

    Args:
        k: how many neighbours; all that its class has where those are fewer.
        bandwidth: None counts the k alike; h > 0 weighs them by exp(−‖x − x_0,i‖² / 2h²), in units
            of the features.

    Example:
        >>> import advect as ad
        >>> nearest = ad.maps.NearestMap().fit([[0.0], [10.0]], [[1.0], [15.0]])
        >>> nearest.transform([[0.5], [9.0]]).tolist()
        [[1.5], [14.0]]
    """

    k: int = 1
    bandwidth: float | None = None

    def __post_init__(self) -> None:
        self.k = check_count("k", self.k)
        if self.bandwidth is not None:
            self.bandwidth = check_positive("bandwidth", self.bandwidth)

    def learn(self, start: LabeledDataset, end: LabeledDataset) -> None:
        if self.k > len(start):
            raise InputError(
                f"k must be at most the number of particles, {len(start)}",
                self.k,
                "Ask for fewer neighbours.",
            )
        self._start, self._end, self.classes_ = start, end, start.classes
        centre = start.x.double().mean(dim=0)
        # distances of any scale are safe to square
        self._scale = float((start.x - centre).abs().max()) or 1.0
        self._centre = centre

    def move(self, x: Tensor, codes: Tensor) -> Tensor:
        x, codes = x.to(self._start.x.device), codes.to(self._start.x.device)
        moved = x.to(torch.promote_types(x.dtype, self._start.x.dtype), copy=True)
        for code in codes.unique().tolist():
            among = (
                torch.arange(len(self._start), device=x.device)
                if code < 0
                else (self._start.y == code).nonzero()[:, 0]
            )
            for rows in (codes == code).nonzero()[:, 0].split(max(1, _BLOCK // len(among))):
                moved[rows] = self._carry(moved[rows], among)
        return moved

    def _carry(self, x: Tensor, among: Tensor) -> Tensor:
        """One block of rows by their neighbours among some particles."""
        points, start = (
            (part.double() - self._centre) / self._scale for part in (x, self._start.x[among])
        )
        # ½‖x − x_0‖² − ½‖x‖²
        distances = torch.addmm(start.square().sum(dim=1) / 2, points, start.T, beta=1, alpha=-1)
        near = distances.topk(min(self.k, len(among)), dim=1, largest=False)
        weights = self._start.weights[among][near.indices].log()  # (rows, k)
        if self.bandwidth is not None:
            weights = (
                weights - (near.values - near.values[:, :1]) * (self._scale / self.bandwidth) ** 2
            )
        weights = weights.softmax(dim=1).to(x)
        # Ends, plus what x differs from starts: on a particle itself the difference vanishes and
        # the end is exact.
        moved, start = torch.zeros_like(x), torch.zeros_like(x)
        for weight, index in zip(weights.T, among[near.indices].T, strict=True):
            moved += weight[:, None] * self._end.x[index]
            start += weight[:, None] * self._start.x[index]
        return moved + (x - start)

    def pack(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, facts = pack_pairs(self._start, self._end)
        return tensors | {"centre": self._centre}, facts | {
            "k": self.k,
            "bandwidth": self.bandwidth,
            "scale": self._scale,
        }

    def unpack(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        self.k, self.bandwidth = facts["k"], facts["bandwidth"]
        self.__post_init__()
        self._start, self._end = unpack_pairs(tensors, facts, self.sample_shape_)
        self.classes_ = self._start.classes
        self._centre, self._scale = tensors["centre"], check_positive("scale", facts["scale"])
