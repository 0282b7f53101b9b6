"""Datasets in one feature space, for use without the way back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from advect._util.progress import Progress
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.spaces.feature_space import FeatureSpace


def harmonize(
    source: LabeledDataset,
    target: LabeledDataset,
    *more: LabeledDataset,
    size: int | tuple[int, int] | None = None,
    channels: str | None = None,
    columns: str | None = None,
    scale: str | None = None,
    project: int | None = None,
    encoder: Any = None,
    progress: Progress = None,
) -> tuple[LabeledDataset, ...]:
    """Bring two or more datasets into one feature space and one dtype.

    Images are samples of shape (H, W), (H, W, C) with C = 1, 3 or 4, or (C, H, W) with C = 1 or 3
    and H, W > 4. They get the channel axis of the target where it has as many channels, otherwise
    the shape (H, W) or (H, W, 3). Alpha channels are dropped. Other samples are vectors, matched by
    column names if both sides have them (in the order of the target), otherwise by position.
    ``FeatureSpace.fit`` takes the same options and also maps new samples, and samples back.

    Args:
        source: a dataset of images or vectors.
        target: another one, on the same device.
        *more: further ones. Images get the size and channels of the largest. Options that are
            estimated from two datasets (columns, project, scale except "unit") are not available.
        size: side or (height, width) of images; by default the larger height and width. Resizing
            is bilinear and antialiased.
        channels: ``"gray"`` (0.299 R + 0.587 G + 0.114 B), ``"rgb"``, or None: rgb if either is.
        columns: None for an error if the columns differ; ``"common"`` to keep the shared ones;
            ``"union"`` to keep all. A missing column gets the mean of the other side after scaling,
            a missing category (``coat=long``) gets 0.
        scale: ``"unit"`` maps each dataset to [0, 1] by its own range; ``"standardize"`` subtracts
            the mean of each feature over both datasets and divides by its standard deviation;
            ``"standardize-target"`` uses the statistics of the target. Weights are ignored, and
            constant features are only centred.
        project: number of principal components to keep, of both datasets together. If the features
            differ (other dimensions, images with vectors, other columns), each side is projected to
            its own components; then only the geometry within each dataset is meaningful.
        encoder: features to use instead of the samples, once these have one size, channels and
            columns: a torch module, a function of a batch or the path of an ONNX file. Images come
            as (n, H, W) or (n, H, W, 3), others as (n, d). ``scale`` and ``project`` apply to its
            output. Of a fitted scikit-learn transformer, pass the method ``transform``.
            ``FeatureSpace.fit`` also takes its inverse as ``decoder``.
        progress: None shows the progress of a slow encoder, False is silent, or a function of
            (done, total).

    Raises:
        InputError: vectors of different dimension or columns, images with vectors, different
            devices, or a dataset with label laws.

    Example:
        >>> import advect as ad
        >>> small, large = ad.datasets.load("digits", n=50), ad.datasets.load("mnist", n=60)
        >>> ad.harmonize(small, large)[0]
        LabeledDataset(n=50, sample_shape=(28, 28), classes=10, dtype=float32)
        >>> first = ad.LabeledDataset([[180.0, 80.0], [160.0, 60.0]], columns=["height", "weight"])
        >>> second = ad.LabeledDataset([[70.0, 170.0], [50.0, 150.0]], columns=["weight", "height"])
        >>> ad.harmonize(first, second)[0].x.tolist()
        [[80.0, 180.0], [60.0, 160.0]]
    """
    options = {"size": size, "channels": channels, "scale": scale, "encoder": encoder}
    if not more:
        only_two = {"columns": columns, "project": project}
        space = FeatureSpace.fit(source, target, **options, **only_two, progress=progress)
        return space.apply(source), space.apply(target, side="target")
    if scale not in (None, "unit") or project is not None or columns is not None:
        raise InputError(
            "more than two datasets can only be resized, encoded or scaled to [0, 1]",
            "scale, project or columns",
            'Use size, channels, encoder or scale="unit", or harmonize pairs.',
        )
    sets = [source, target, *more]
    if len({data.sample_shape for data in sets}) == 1 and not any(options.values()):
        return (*sets,)
    fit = partial(FeatureSpace.fit, **options, progress=progress)
    return (*in_space_of_largest(sets, fit),)


def in_space_of_largest(
    sets: Sequence[LabeledDataset], fit: Callable[[LabeledDataset, LabeledDataset], FeatureSpace]
) -> list[LabeledDataset]:
    """Several datasets in the feature space of the largest; ``fit`` makes that of one and it."""
    largest = max(sets, key=lambda data: (len(data.sample_shape), data.dim))
    spaces = [fit(data, largest) for data in sets]
    moved = [space.apply(data) for space, data in zip(spaces, sets, strict=True)]
    shapes = {data.sample_shape for data in moved}
    if len(shapes) > 1:
        got, remedy = ", ".join(map(str, shapes)), "Give images a size and channels."
        raise InputError("the datasets do not fit one feature space", got, remedy)
    return moved
