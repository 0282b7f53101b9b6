"""Discrete labels from label laws that move one by one: the clusters of a flow with variable labels
(paper, section 5.1 and appendix C).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from advect._util.facts import waits_are_free, with_fact
from advect.classes.clusterers import as_clusterer
from advect.data.laws import Gaussians


def law_points(laws: Gaussians, *beside: Tensor) -> np.ndarray:
    """Laws as points: the mean, then the deviations or the entries of S^½, so that distances
    resemble W₂; and columns that are to come along in the one transfer.
    """
    covariance = laws.covariance
    spread = (
        covariance.scales()
        if covariance.is_diagonal
        else covariance.compressed.rows.reshape(len(laws), -1)
    )
    columns = [laws.means.double(), spread.double(), *(part.double()[:, None] for part in beside)]
    return torch.cat(columns, dim=1).detach().cpu().numpy()


def relabel(laws: Gaussians, previous: Tensor, clustering: Any) -> Tensor:
    """New class positions for each sample: clusters of its laws, each named after the class most of
    it had before.

    Samples outside every cluster join the nearest one (or stay as they are if there is none). A
    cluster that no old class claims gets the next free position, so classes are born and die while
    survivors keep their places."""
    if waits_are_free(previous.device) and not all(
        bool(torch.isfinite(part).all()) for part in laws.tensors().values()
    ):
        return previous  # the flow has diverged, and says so at its next value
    found = law_points(laws, previous)
    points, before = found[:, :-1], found[:, -1].astype(np.int64)
    if not np.isfinite(points).all():
        return previous
    found = as_clusterer(clustering)(points, before)
    codes = np.unique(found[found >= 0])
    if len(codes) == 0:
        return previous
    centres = np.stack([points[found == code].mean(axis=0) for code in codes])
    lost = np.flatnonzero(found < 0)
    if len(lost):
        distances = ((points[lost, None, :] - centres) ** 2).sum(axis=2)
        found = found.copy()
        found[lost] = codes[distances.argmin(axis=1)]
    names = _inherit_names(found, codes, before)
    made = torch.as_tensor(names, device=previous.device)
    return with_fact(with_fact(made, "largest", int(names.max())), "complete", names.min() >= 0)


def _inherit_names(found: np.ndarray, codes: np.ndarray, before: np.ndarray) -> np.ndarray:
    overlaps = sorted(
        (
            (int(((found == code) & (before == old)).sum()), int(code), int(old))
            for code in codes
            for old in np.unique(before)
        ),
        reverse=True,
    )
    names: dict[int, int] = {}
    for count, code, old in overlaps:
        if count and code not in names and old not in names.values():
            names[code] = old
    fresh = (
        position
        for position in range(int(before.max()) + len(codes) + 1)
        if position not in names.values()
    )
    taken = set(before.tolist())
    for code in codes.tolist():
        if code not in names:
            names[code] = next(position for position in fresh if position not in taken)
    return np.array([names[code] for code in found.tolist()], dtype=np.int64)
