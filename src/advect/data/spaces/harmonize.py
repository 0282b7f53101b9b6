"""Datasets in one feature space, without the space itself: for those who need no way back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from advect._util.progress import Progress
from advect.data.dataset import LabeledDataset
from advect.data.spaces.feature_space import FeatureSpace
from advect.errors import InputError


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
    decoder: Any = None,
    progress: Progress = None,
) -> tuple[LabeledDataset, ...]:
    """Two datasets, or several, in one feature space and one dtype; labels, weights and classes stay.

    Images are samples of shape (H, W), (H, W, C) with C = 1, 3 or 4, or (C, H, W) with C = 1 or 3
    and H, W > 4; they come out with the channel axis that the target has, where it has as many
    channels, else as (H, W) when gray and (H, W, 3) otherwise. An alpha channel is dropped.
    Everything else is a vector. Vectors that have names of columns on both sides are aligned by
    name, in the target's order; others by position. ``FeatureSpace.fit`` takes the same options and
    remembers what was done, for new samples and for the way back.

    Args:
        source: a dataset of images or vectors.
        target: another one of the same kind, on the same device.
        *more: further ones. Several are taken as they are where they fit, and images to the size and
            colours of the largest; what is estimated from two datasets (columns, project, other
            scales than "unit", a transformer that is not fitted) is not for several.
        size: side or (height, width) of the images; by default the larger height and the larger
            width of the two. Resizing is bilinear and antialiased; images that have the size
            already are not touched.
        channels: ``"gray"`` (0.299 R + 0.587 G + 0.114 B), ``"rgb"`` (gray repeated), or None: rgb
            if either is.
        columns: what to do when named columns are not the same: None for an error; ``"common"`` to
            keep the shared ones; ``"union"`` to keep all, the source's own ones last. A column that
            a side lacks is constant there, at the mean that the other side has once scaled: in a
            squared cost of features that adds the same to every plan and, where weights are
            uniform, less than any other constant. A value of a category (``coat=long``) that none
            of a side's samples has, where it has other values of that category, is 0 there.
        scale: None to leave values alone; ``"unit"`` to map each dataset to [0, 1] by its own
            smallest and largest value (constant data to 0); ``"standardize"`` to subtract from each
            feature its mean over the samples of both datasets and divide by its standard deviation
            there; ``"standardize-target"`` to take both from the target alone. Samples count
            equally whatever their weights, and only those that have the feature (for one that the
            target lacks, the source's). Features whose deviation is 0 are only centred.
        project: number of principal components to keep, after everything above. Features that are
            the same on both sides are projected on the components of both datasets together.
            Otherwise (vectors of different dimension, images with vectors, other columns) each side
            is projected on its own components, after ``scale="standardize"`` by its own statistics.
            Use that with care: coordinate j of one side has then nothing to do with coordinate j of
            the other beyond its rank, and only the geometry within each dataset is kept. Of the two
            signs of a component, its largest loading is positive.
        encoder: features to flow in, of samples that are of one size, channels and columns: a torch
            module, a function of a batch of samples, a scikit-learn transformer or the path of an
            ONNX file. Images come to it as (n, H, W) or (n, H, W, 3), others as (n, d); to an ONNX
            file in the shape that it declares, to a transformer flat. It is asked in batches, a
            module in evaluation mode, and gives a row for each sample; ``scale`` and ``project``
            are of these rows. A transformer that is not fitted is copied and fitted on both
            datasets (on the target with ``scale="standardize-target"``).
        decoder: the way back from these rows to such samples, of the same kinds; by default the
            ``inverse_transform`` of a transformer that has one. Without one there is no way back,
            and ``FeatureSpace.pictures`` shows the nearest real samples.
        progress: None to show how far an encoder is when it takes long, False to be silent, or a
            function of (done, total).

    Raises:
        InputError: vectors of different dimension or columns, images against vectors, different
            devices, a dataset that carries label laws, options for images given with vectors.

    Example:
        >>> import advect as ad
        >>> small, large = ad.datasets.load("digits", n=50), ad.datasets.load("mnist", n=60)
        >>> ad.harmonize(small, large)[0]
        LabeledDataset(n=50, sample_shape=(28, 28), classes=10, dtype=float32)
        >>> ad.harmonize(small, large, size=16, channels="rgb")[1].sample_shape
        (16, 16, 3)
        >>> small, large, larger = ad.harmonize(small, large, ad.datasets.load("mnist", n=9))
        >>> first = ad.LabeledDataset([[180.0, 80.0], [160.0, 60.0]], columns=["height", "weight"])
        >>> second = ad.LabeledDataset([[70.0, 170.0], [50.0, 150.0]], columns=["weight", "height"])
        >>> ad.harmonize(first, second)[0].x.tolist()
        [[80.0, 180.0], [60.0, 160.0]]
    """
    options = {"size": size, "channels": channels, "scale": scale, "encoder": encoder}
    options |= {"decoder": decoder, "progress": progress}
    if more:
        if scale not in (None, "unit") or project is not None or columns is not None:
            raise InputError(
                "several datasets are not brought together two by two",
                "scale, project or columns",
                'Use size, channels, an encoder or scale="unit", or bring two together at a time.',
            )
        sets = [source, target, *more]
        alike = len({data.sample_shape for data in sets}) == 1
        if alike and not any(v is not None for k, v in options.items() if k != "progress"):
            return (*sets,)
        return (*in_space_of_largest(sets, lambda a, b: FeatureSpace.fit(a, b, **options)),)
    space = FeatureSpace.fit(source, target, columns=columns, project=project, **options)
    return space.apply(source), space.apply(target, side="target")


def in_space_of_largest(
    sets: Sequence[LabeledDataset], fit: Callable[[LabeledDataset, LabeledDataset], FeatureSpace]
) -> list[LabeledDataset]:
    """Several datasets in the feature space of the largest: ``fit`` makes that of one and it."""
    largest = max(sets, key=lambda data: (len(data.sample_shape), data.dim))
    spaces = [fit(data, largest) for data in sets]
    if len({space.digests().get("encoder") for space in spaces}) > 1:
        raise InputError(
            "a transformer that is fitted on two datasets is another one for each pair",
            "a transformer that is not fitted",
            "Fit it first.",
        )
    found = [space.apply(data) for space, data in zip(spaces, sets, strict=True)]
    if len({data.sample_shape for data in found}) > 1:
        raise InputError(
            "the datasets do not fit one feature space",
            ", ".join(str(data.sample_shape) for data in found),
            "Images need a size and channels.",
        )
    return found
