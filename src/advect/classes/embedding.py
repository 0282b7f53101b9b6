"""The points that are clustered: the features of a dataset, or an embedding of them, as float64
rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advect._util.checks import check_count, check_kind, check_known
from advect._util.linalg import principal_axes
from advect.classes.gradients import OrientedGradients
from advect.cost import Embedding
from advect.data.dataset import LabeledDataset
from advect.data.spaces.coders import as_coder
from advect.data.spaces.encoding import Encoding, asked
from advect.errors import InputError

# more of the true classes of four sets of images are found there than in all pixels
_COMPONENTS = 50
_EDGES = 60  # components of oriented gradients
Embedded = int | float | Callable[[Tensor], Any] | Any | None


def points_of(data: LabeledDataset, embedding: Embedded, seed: int) -> np.ndarray:
    """(n, p) points; what ``embedding`` may be is said at ``pseudo_labels``."""
    remedy = "Wrap features as ad.LabeledDataset(x)."
    check_kind("data must be a LabeledDataset", data, LabeledDataset, remedy)
    match embedding:
        case "auto":
            count = _COMPONENTS if min(data.x.shape) > _COMPONENTS else None
            return points_of(data, count, seed)
        case None:
            return _features(data)
        case "gradients":
            rows = _embedded(data, Embedding(OrientedGradients()))
            return _principal(rows, min(_EDGES, *rows.shape))
        case "standardized":
            return _standardized(_features(data))
        case int() | float() | np.number():
            return _principal(_features(data), embedding)
        case Embedding():
            return _embedded(data, embedding)
        case str() if not embedding.lower().endswith(".onnx"):
            check_known("embedding", embedding, ("auto", "gradients", "standardized"))
        case torch.nn.Module() | str() | Path():
            encoder = as_coder(embedding, "embedding")
            rows = Encoding.fit(data.x, data.sample_shape, encoder, None).apply(data.x.detach())
            return rows.detach().cpu().double().numpy()
    if hasattr(embedding, "fit_transform"):
        return _transformed(_features(data), embedding, seed)
    if not callable(embedding):
        raise InputError(
            "an embedding must be a number of components, a share of variance, a transformer or a "
            "function",
            repr(embedding),
            "Pass for instance embedding=50, embedding=0.9 or the body of a network.",
        )
    with torch.no_grad():  # all at once: it may look at other samples too
        rows = asked(as_coder(embedding, "embedding"), data.samples.detach(), "embedding", None)
    return rows.detach().cpu().double().numpy()


def _embedded(data: LabeledDataset, embedding: Embedding) -> np.ndarray:
    with torch.no_grad():
        return embedding.embed(data).detach().cpu().double().numpy()


def _features(data: LabeledDataset) -> np.ndarray:
    return data.x.detach().cpu().double().numpy()


def _standardized(points: np.ndarray) -> np.ndarray:
    """Each column with mean 0 and deviation 1; one that does not vary becomes 0."""
    points = points / (np.abs(points).max() or 1.0)
    points = points - points.mean(axis=0)
    spread = points.std(axis=0)
    least = np.finfo(np.float64).eps * len(points) ** 0.5 * np.abs(points).max(initial=0)
    return points / np.where(spread > least, spread, np.inf)


def _principal(points: np.ndarray, wanted: Any) -> np.ndarray:
    """Coordinates along principal components, in units of the features: so many, or as many as a
    share of variance needs.
    """
    n, d = points.shape
    top = np.abs(points).max() or 1.0
    points = points / top
    points = points - points.mean(axis=0)
    singular, axes = (part.numpy() for part in principal_axes([torch.from_numpy(points)]))
    variances = singular**2
    if isinstance(wanted, (float, np.floating)) and 0 < wanted < 1:
        count = int(np.searchsorted(np.cumsum(variances), wanted * variances.sum())) + 1
    else:
        count = check_count(
            "an embedding by principal components, if not a share of variance between 0 and 1,",
            wanted,
        )
    if count > min(n, d):
        raise InputError(
            f"{n} samples of dimension {d} have at most {min(n, d)} principal components",
            f"embedding={wanted}",
            "Ask for fewer, or for a share of variance such as embedding=0.9.",
        )
    return points @ axes[:count].T * top


def _transformed(points: np.ndarray, transformer: Any, seed: int) -> np.ndarray:
    """Rows of a transformer such as scikit-learn's, which is cloned if it can be, and seeded if it
    asks for it.
    """
    from sklearn.base import clone

    transformer = clone(transformer, safe=False)
    if (
        hasattr(transformer, "get_params")
        and transformer.get_params().get("random_state", 0) is None
    ):
        transformer.set_params(random_state=seed % 2**32)
    rows = np.asarray(transformer.fit_transform(points), dtype=np.float64)
    if rows.ndim < 2 or len(rows) != len(points):
        raise InputError(
            f"an embedding must return a row for each of the {len(points)} samples",
            f"shape {rows.shape}",
            "Check it.",
        )
    if not np.isfinite(rows).all():
        raise InputError(
            "the embedded features must be finite",
            "NaN or infinite values",
            "Check it on these samples.",
        )
    return rows.reshape(len(rows), math.prod(rows.shape[1:]))
