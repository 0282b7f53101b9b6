"""Many dimensions in two or three: one projection for all frames and the target, so that their
pictures can be compared.

What comes out are frames again, for ``particles``, ``paths``, ``coupling`` and ``animation``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from advect._util.checks import check_count, check_positive
from advect.data.dataset import LabeledDataset
from advect.data.spaces.projection import Projection
from advect.datasets.trajectory import Frame
from advect.errors import InputError
from advect.viz.states import Frames, State, as_array, others, some_rows, states_of

_ROWS = 20_000  # more rows change principal components little and take long


@dataclass(frozen=True, eq=False)
class View:
    """Frames and their target in two or three dimensions.

    Attributes:
        frames: the frames, with their steps and labels.  target: the target, if there was one.
        axes: what each coordinate is.

    Example:
        >>> import advect as ad
        >>> from advect import viz
        >>> digits = ad.datasets.load("digits", n=50)
        >>> view = viz.pca([digits])
        >>> view.frames[0].sample_shape, view.target is None
        ((2,), True)
    """

    frames: list[LabeledDataset | Frame]
    target: LabeledDataset | None
    axes: tuple[str, ...]


def pca(
    frames: Frames,
    target: LabeledDataset | None = None,
    *,
    dim: int = 2,
    columns: int | None = None,
) -> View:
    """The first principal components of all frames and the target together.

    Args:
        frames: datasets or recorded frames, a trajectory or the result of a flow, of one dimension.
        target: where they are going.
        dim: 2 or 3.
        columns: how many frames at most, evenly spread over time; all by default.

    Raises:
        InputError: samples of different or too few dimensions.

    Example:
        >>> import advect as ad
        >>> from advect import viz
        >>> digits = ad.datasets.load("digits", n=100)
        >>> view = viz.pca([digits, digits.replace(x=digits.x / 2)], digits)
        >>> len(viz.particles(view.frames, view.target).axes), view.axes[0]
        (2, 'PC 1, ... % of the variance')
    """
    states, dim = _check(frames, target, dim, columns)
    parts = [data.x.detach() for data in (*(state.dataset for state in states), *others(target))]
    stride = max(1, sum(map(len, parts)) // _ROWS)
    rows = torch.cat([part[::stride].cpu().double() for part in parts])
    fitted, shares = principal_view(rows, dim)
    names = tuple(
        f"PC {position}, {share:.0%} of the variance".replace("%", " %")
        for position, share in enumerate(shares, 1)
    )
    return _view(states, target, [fitted.apply(part) for part in parts], names)


def principal_view(rows: Tensor, dim: int) -> tuple[Projection, list[float]]:
    """The projection of rows (n, d) on their first principal components, and the share of the
    variance that each holds.
    """
    fitted = Projection.fit(rows, dim, "both")
    total = float((rows - rows.mean(dim=0)).square().sum())
    kept = fitted.apply(rows).square().sum(dim=0).tolist()
    return fitted, [part / total if total > 0 else 0.0 for part in kept]


def tsne(
    frames: Frames,
    target: LabeledDataset | None = None,
    *,
    dim: int = 2,
    columns: int | None = 4,
    samples: int = 300,
    perplexity: float | None = None,
    seed: int = 0,
) -> View:
    """t-SNE of all frames and the target together: near samples stay near, distances and sizes of
    clusters mean little.

    Args:
        frames, target, dim: as for ``pca``.
        columns: how many frames at most, evenly spread over time; the time it takes grows with
            them.
        samples: how many samples to keep at most, the same ones in each frame, and of the target.
        perplexity: about how many neighbours count; 30, or fewer for few samples.
        seed: of the choice of samples, and of t-SNE.

    Raises:
        InputError: samples of different or too few dimensions, a perplexity that is not below the
            number of points.

    Example:
        >>> import advect as ad
        >>> from advect import viz
        >>> digits = ad.datasets.load("digits", n=60)
        >>> view = viz.tsne([digits], samples=40)
        >>> len(view.frames[0]), view.frames[0].dim
        (40, 2)
    """
    from sklearn.manifold import TSNE

    states, dim = _check(frames, target, dim, columns)
    states = [state.with_dataset(_some(state.dataset, samples, seed)) for state in states]
    target = None if target is None else _some(target, samples, seed)
    parts = [as_array(data.x) for data in (*(s.dataset for s in states), *others(target))]
    points = np.concatenate(parts)
    if perplexity is None:
        perplexity = min(30.0, max(1.0, (len(points) - 1) / 3))
    if check_positive("perplexity", perplexity) >= len(points):
        raise InputError(
            f"perplexity must be below the {len(points)} points",
            perplexity,
            "Lower it, or add samples.",
        )
    # the usual first step: it takes out noise and saves time
    if points.shape[1] > 50 < len(points):
        rows = torch.from_numpy(points)
        points = Projection.fit(rows, 50, "both").apply(rows).numpy()
    distinct = len(np.unique(points, axis=0)) > dim
    model = TSNE(
        dim, perplexity=float(perplexity), random_state=seed, init="pca" if distinct else "random"
    )
    embedded = torch.from_numpy(np.asarray(model.fit_transform(points), dtype=np.float64))
    names = tuple(f"t-SNE {position}" for position in range(1, dim + 1))
    return _view(states, target, list(embedded.split([len(part) for part in parts])), names)


def _check(
    frames: Frames, target: LabeledDataset | None, dim: int, columns: int | None
) -> tuple[list[State], int]:
    if check_count("dim", dim) not in (2, 3):
        raise InputError("a view has 2 or 3 dimensions", dim, "Pass dim=2 or dim=3.")
    states = states_of(frames, columns)
    dims = {data.dim for data in (*(state.dataset for state in states), *others(target))}
    if len(dims) != 1 or min(dims) < dim:
        raise InputError(
            f"a view in {dim} dimensions needs samples of one dimension, at least {dim}",
            f"dimensions {sorted(dims)}",
            "Bring datasets to one feature space with ad.harmonize.",
        )
    return states, dim


def _some(data: LabeledDataset, samples: int, seed: int) -> LabeledDataset:
    return data if len(data) <= samples else data.subset(some_rows(len(data), samples, seed))


def _view(
    states: Sequence[State],
    target: LabeledDataset | None,
    points: Sequence[Tensor],
    names: tuple[str, ...],
) -> View:
    def seen(data: LabeledDataset, x: Tensor) -> LabeledDataset:
        return data.replace(
            x=x.to(torch.float64),
            sample_shape=(x.shape[1],),
            law=None,
            law_index=None,
            columns=None,
        )

    frames = [
        state.with_dataset(seen(state.dataset, x)).as_given()
        for state, x in zip(states, points, strict=False)
    ]
    return View(frames, None if target is None else seen(target, points[-1]), names)
