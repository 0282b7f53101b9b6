"""The points in which samples are clustered and compared: features or an embedding of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from advect._util import (
    InputError,
    check_count,
    check_finite,
    check_known,
    check_methods,
    refuse_if,
)
from advect._util.networks import evaluate
from advect.classes.clustering import seeded
from advect.data.dataset import LabeledDataset
from advect.spaces.images import layout
from advect.spaces.steps import Scale
from advect.transport.transport import check_dataset

_COMPONENTS = 50  # principal components for "auto": more true classes of images than all pixels
_EDGES = 60  # principal components of oriented gradients
_BLOCK = 512  # images at a time
Embedded = int | float | Callable[[Tensor], Any] | Any | None


def points_of(data: LabeledDataset, embedding: Embedded, seed: int) -> np.ndarray:
    """(n, p) points in float64; ``pseudo_labels`` describes ``embedding``."""
    x = as_points(check_dataset("data", data).x)
    match embedding:
        case None:
            return x
        case "auto":
            return _principal(x, _COMPONENTS) if min(x.shape) > _COMPONENTS else x
        case "gradients":
            rows = as_points(oriented_gradients(data.samples.detach()))
            return _principal(rows, min(_EDGES, *rows.shape))
        case "standardized":
            return Scale.fit(torch.from_numpy(x)).apply(torch.from_numpy(x)).numpy()
    if isinstance(embedding, (int, float, np.number)):
        return _principal(x, embedding)
    if isinstance(embedding, str):
        check_known("embedding", embedding, ("auto", "gradients", "standardized"))
    samples = data.samples.detach()
    if hasattr(embedding, "fit_transform"):
        samples, embedding = torch.from_numpy(x), seeded(embedding, seed).fit_transform
    return as_points(called(embedding, samples))


def called(function: Any, samples: Tensor, name: str = "embedding") -> Tensor:
    """Checked rows (n, p) of a torch module, or of a function that is called on all samples at once."""
    if isinstance(function, torch.nn.Module):
        function = partial(evaluate, function)
    check_methods(
        f"the {name} must be callable",
        function,
        ("__call__",),
        "Pass a function of samples, a torch module or an object with fit_transform.",
    )
    n, shape = len(samples), tuple(samples.shape[1:])
    try:
        with torch.no_grad():
            rows = torch.as_tensor(function(samples.detach()))
    except InputError:
        raise
    except Exception as error:  # user code may raise anything
        what, got = f"the {name} must take samples of shape {shape}", type(error).__name__
        raise InputError(
            what, f"{got}: {error}", "Wrap it in a function that reshapes the samples."
        ) from error
    refuse_if(
        rows.ndim == 0 or len(rows) != n or rows.numel() == 0 or rows.is_complex(),
        f"the {name} must return real numbers for each of the {n} samples",
        f"shape {tuple(rows.shape)}, {rows.dtype}",
        "Keep the first axis, which counts the samples.",
    )
    rows = rows.reshape(n, -1).to(samples)
    check_finite(f"the {name}", rows, "Check the range of the samples.")
    return rows


def as_points(rows: Tensor) -> np.ndarray:
    """A tensor as an array in float64."""
    return rows.detach().cpu().double().numpy()


def _principal(points: np.ndarray, wanted: Any) -> np.ndarray:
    """Principal components: a number of them, or as many as hold a share of the variance."""
    from sklearn.decomposition import PCA

    n, d = points.shape
    if not 0 < wanted < 1:
        wanted = check_count("embedding (components, or a share of variance below 1)", wanted)
    refuse_if(
        wanted > min(n, d),
        f"{n} samples of dimension {d} have at most {min(n, d)} principal components",
        f"embedding={wanted}",
        "Lower it, or pass a share of variance such as embedding=0.9.",
    )
    top = np.abs(points).max() or 1.0  # squares neither overflow nor vanish
    with np.errstate(invalid="ignore"):  # shares of a variance of 0
        return PCA(wanted, svd_solver="full").fit_transform(points / top) * top


def oriented_gradients(samples: Tensor, bins: int = 12, cells: int = 9) -> Tensor:
    """Histograms of oriented gradients of images (n, …), (n, bins · cells²) rows of norm 1.

    As in Dalal and Triggs (2005), with overlapping Gaussian windows as cells and roots of the counts
    (Hellinger distance). Shifts by a pixel, thickness and contrast change an image little here and
    much in pixels. ``cells`` is at most half the pixels of a side."""
    shape = tuple(samples.shape[1:])
    refuse_if(
        not layout(shape),
        "oriented gradients are for images",
        f"samples of shape {shape}",
        "Pass samples of shape (height, width), with or without channels.",
    )
    return torch.cat([_histograms(part, bins, cells) for part in samples.split(_BLOCK)])


def _histograms(samples: Tensor, bins: int, cells: int) -> Tensor:
    images = samples if samples.is_floating_point() else samples.float()
    tiny = torch.finfo(images.dtype).tiny
    if images.ndim == 4:
        _, *sides = layout(tuple(samples.shape[1:])) or (0, 0, 0)
        images = images.mean(dim=3 if list(images.shape[1:3]) == sides else 1)
    low, high = images.flatten(1).aminmax(dim=1)
    images = (images - low[:, None, None]) / (high - low).clamp(min=tiny)[:, None, None]
    wide = pad(images[:, None], (1, 1, 1, 1), mode="replicate")[:, 0]
    down = wide[:, 2:, 1:-1] - wide[:, :-2, 1:-1]  # central differences
    across = wide[:, 1:-1, 2:] - wide[:, 1:-1, :-2]
    strength = torch.hypot(down, across)
    turn = torch.atan2(down, across) / (2 * math.pi) % 1 * bins  # in [0, bins]
    below, share = turn.floor(), turn - turn.floor()
    rows, columns = (_windows(side, cells, images) for side in images.shape[1:])
    parts = []
    for direction in range(bins):  # an edge counts for the two nearest directions
        here = (below % bins == direction) * (1 - share)
        here = here + ((below + 1) % bins == direction) * share
        parts.append(rows @ (here * strength) @ columns.T)  # (m, cells, cells)
    counts = torch.stack(parts, dim=1).flatten(1)
    return (counts / counts.sum(dim=1, keepdim=True).clamp(min=tiny)).sqrt()


def _windows(side: int, cells: int, like: Tensor) -> Tensor:
    """Weights (cells, side) of evenly spaced Gaussian windows."""
    cells = max(1, min(cells, side // 2))
    places = torch.arange(max(side, cells), device=like.device, dtype=like.dtype)
    centres = (places[:cells] + 0.5) * side / cells - 0.5
    weights = torch.exp(-((places[:side] - centres[:, None]) * 1.5 * cells / side).square() / 2)
    return weights / weights.sum(dim=1, keepdim=True)
