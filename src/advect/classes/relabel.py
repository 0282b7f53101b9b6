"""Discrete labels from label laws that move one by one (paper, section 5.1 and appendix C)."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advect.classes.clustering import clusters
from advect.data.laws import Gaussians


def law_points(laws: Gaussians) -> np.ndarray:
    """Laws as points whose distances resemble W₂: the mean, then the deviations or S^½."""
    covariance = laws.covariance
    spread = (
        covariance.scales()
        if covariance.is_diagonal
        else covariance.compressed.rows.reshape(len(laws), -1)
    )
    return torch.cat([laws.means.double(), spread.double()], dim=1).detach().cpu().numpy()


def relabel(laws: Gaussians, previous: Tensor, clustering: Any) -> Tensor:
    """The class position of each sample: clusters of the laws, named after the previous classes.

    A cluster gets the class that most of its samples had. Noise joins the nearest cluster. A cluster
    that no previous class claims gets the next free position, so classes can appear and vanish."""
    if not all(bool(torch.isfinite(part).all()) for part in laws.tensors().values()):
        return previous  # the flow has diverged, which its next value shows
    points, before = law_points(laws), previous.cpu().numpy()
    found = clusters(clustering, points, before)
    codes = np.unique(found[found >= 0])
    if len(codes) == 0:
        return previous
    centres = np.stack([points[found == code].mean(axis=0) for code in codes])
    noise = np.flatnonzero(found < 0)
    if len(noise):
        distances = ((points[noise, None, :] - centres) ** 2).sum(axis=2)
        found[noise] = codes[distances.argmin(axis=1)]
    names = _inherited_names(found, codes, before)
    return torch.as_tensor(names, device=previous.device)


def _inherited_names(found: np.ndarray, codes: np.ndarray, before: np.ndarray) -> np.ndarray:
    overlaps = [
        (int(((found == code) & (before == old)).sum()), int(code), int(old))
        for code in codes
        for old in np.unique(before)
    ]
    names: dict[int, int] = {}
    for count, code, old in sorted(overlaps, reverse=True):
        if count and code not in names and old not in names.values():
            names[code] = old
    taken = set(before.tolist())
    free = (position for position in itertools.count() if position not in taken)
    for code in codes.tolist():
        if code not in names:
            names[code] = next(free)
    return np.array([names[code] for code in found.tolist()], dtype=np.int64)
