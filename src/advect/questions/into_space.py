"""Any dataset in a feature space that was fitted on others: as a sample of one of its sides, or an
image that is brought to the size and channels of one first.
"""

from __future__ import annotations

import torch

from advect.data.dataset import LabeledDataset
from advect.data.spaces import FeatureSpace
from advect.data.spaces.images import layout
from advect.errors import InputError


def in_space(space: FeatureSpace, data: LabeledDataset) -> LabeledDataset:
    """A dataset in the common space.

    Its samples are taken for those of the source or the target of the space, whichever has their
    shape. Images of another size or other channels are resized to those of the source.

    Raises:
        InputError: it has the samples of neither side, and is no image where these are images.

    Example:
        >>> import advect as ad
        >>> mnist, digits = ad.datasets.load("mnist", n=20), ad.datasets.load("digits", n=20)
        >>> space = ad.FeatureSpace.fit(mnist, mnist, size=14)
        >>> in_space(space, digits).sample_shape
        (14, 14)
    """
    shapes = {side: space.shape_of(side) for side in ("source", "target")}
    side = next((side for side, shape in shapes.items() if shape == data.sample_shape), None)
    if side is not None:
        return space.apply(data, side=side)
    wanted, given = layout(shapes["source"]), layout(data.sample_shape)
    if wanted is None or given is None:
        kinds = " or ".join(sorted({str(shape) for shape in shapes.values()}))
        raise InputError(
            f"samples must have the shape {kinds} of those that the space was fitted on",
            data.sample_shape,
            "Bring them there first, or make a space for both with ad.FeatureSpace.fit.",
        )
    channels, *sides = wanted
    blank = LabeledDataset(torch.zeros(1, *shapes["source"], dtype=data.x.dtype))
    resize = FeatureSpace.fit(
        data.to("cpu"),
        blank,
        size=(sides[0], sides[1]),
        channels="gray" if channels == 1 else "rgb",
    )
    return space.apply(resize.invert(resize.apply(data), side="target"))
