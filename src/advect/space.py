"""Two datasets in one feature space: image sizes, channels and scale, before any cost compares them.

Only changes that need no fitting beyond a mean and a range are made here; learned embeddings are left to the cost,
and projections to the user.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from advect._checks import check_count, check_known
from advect.data import LabeledDataset
from advect.errors import InputError


def harmonize(
    source: LabeledDataset,
    target: LabeledDataset,
    *,
    size: int | tuple[int, int] | None = None,
    channels: str | None = None,
    scale: str | None = None,
) -> tuple[LabeledDataset, LabeledDataset]:
    """Both datasets in one feature space and one dtype; labels, weights and classes stay.

    Images are samples of shape (H, W), (H, W, C) with C = 1, 3 or 4, or (C, H, W) with C = 1 or 3 and H, W > 4; they
    come out as (H, W) when gray and (H, W, 3) otherwise. An alpha channel is dropped. Everything else is a vector.

    Args:
        source: a dataset of images or vectors.
        target: another one of the same kind, on the same device.
        size: side or (height, width) of the images; by default the larger height and the larger width of the two.
            Resizing is bilinear and antialiased; images that have the size already are not touched.
        channels: ``"gray"`` (0.299 R + 0.587 G + 0.114 B), ``"rgb"`` (gray repeated), or None: rgb if either is.
        scale: None to leave values alone; ``"unit"`` to map each dataset to [0, 1] by its own smallest and largest
            value (constant data to 0); ``"standardize"`` to subtract from each feature its mean over the samples of
            both datasets and divide by its standard deviation there (constant features become 0).

    Raises:
        InputError: vectors of different dimension, images against vectors, different devices, a dataset that
            carries label laws, options for images given with vectors.

    Example:
        >>> import advect as ad
        >>> small, large = ad.datasets.load("digits", n=50), ad.datasets.load("mnist", n=60)
        >>> ad.harmonize(small, large)[0]
        LabeledDataset(n=50, sample_shape=(28, 28), classes=10, dtype=float32)
        >>> ad.harmonize(small, large, size=16, channels="rgb")[1].sample_shape
        (16, 16, 3)
    """
    if channels is not None:
        check_known("channels", channels, ("gray", "rgb"))
    if scale is not None:
        check_known("scale", scale, ("standardize", "unit"))
    sides = None if size is None else _check_size(size)
    source, target = _one_dtype(source, target)
    first, second = _as_images(source), _as_images(target)
    if first is not None and second is not None:
        sides = sides or (max(first.shape[2], second.shape[2]), max(first.shape[3], second.shape[3]))
        gray = channels == "gray" or (channels is None and first.shape[1] == second.shape[1] == 1)
        source = _with_pixels(source, _convert(first, sides, gray))
        target = _with_pixels(target, _convert(second, sides, gray))
    elif first is not None or second is not None or source.dim != target.dim:
        raise InputError(
            "datasets must share a feature space: both images, or vectors of one dimension",
            f"sample shapes {source.sample_shape} and {target.sample_shape}",
            "Give flattened images their shape back with .replace(sample_shape=(H, W)) and harmonize resizes them; "
            "or project both to a common dimension, for instance with PCA; or use an embedding in the cost.",
        )
    elif size is not None or channels is not None:
        raise InputError(
            "size and channels are for images", f"sample shape {source.sample_shape}", "Leave them out for vectors."
        )
    if scale == "unit":
        return source.replace(x=_unit(source.x)), target.replace(x=_unit(target.x))
    if scale == "standardize":
        x = _standardized(torch.cat([source.x, target.x]))
        return source.replace(x=x[: len(source)]), target.replace(x=x[len(source) :])
    return source, target


def _check_size(size: object) -> tuple[int, int]:
    sides = tuple(size) if isinstance(size, (tuple, list)) else (size, size)
    if len(sides) != 2:
        raise InputError("size must be one side or (height, width)", size, "Pass for instance size=28 or size=(28, 32).")
    return check_count("size", sides[0]), check_count("size", sides[1])


def _one_dtype(source: LabeledDataset, target: LabeledDataset) -> tuple[LabeledDataset, LabeledDataset]:
    for data in (source, target):
        if not isinstance(data, LabeledDataset):
            raise InputError("harmonize takes two datasets", type(data).__name__, "Wrap arrays in LabeledDataset(x, y).")
        if data.law is not None:
            raise InputError(
                "label laws live in the space they were made in and cannot be harmonized",
                f"a dataset with {len(data.law)} laws",
                "Harmonize before laws are attached, or drop them with .replace(law=None, law_index=None).",
            )
    if source.x.device != target.x.device:
        raise InputError(
            "datasets must be on one device", f"{source.x.device} and {target.x.device}", "Move one with .to(device)."
        )
    dtype = torch.promote_types(source.x.dtype, target.x.dtype)
    source, target = (data if data.x.dtype == dtype else data.to(dtype=dtype) for data in (source, target))
    return source, target


def _as_images(data: LabeledDataset) -> Tensor | None:
    """The samples as (n, C, H, W) with C = 1 or 3, or None when they are no images."""
    shape, samples = data.sample_shape, data.samples
    if len(shape) == 2:
        return samples[:, None]
    if len(shape) == 3 and shape[2] in (1, 3, 4):
        return samples.movedim(3, 1)[:, :3]
    if len(shape) == 3 and shape[0] in (1, 3) and min(shape[1:]) > 4:
        return samples
    return None


def _convert(pixels: Tensor, sides: tuple[int, int], gray: bool) -> Tensor:
    if gray and pixels.shape[1] == 3:
        luma = pixels.new_tensor([0.299, 0.587, 0.114])
        pixels = (pixels * luma[:, None, None]).sum(dim=1, keepdim=True)  # (n, 3, H, W) * (3, 1, 1)
    if pixels.shape[2:] != sides:
        pixels = interpolate(pixels, size=sides, mode="bilinear", antialias=True, align_corners=False)
    return pixels if gray else pixels.expand(-1, 3, -1, -1)


def _with_pixels(data: LabeledDataset, pixels: Tensor) -> LabeledDataset:
    samples = pixels[:, 0] if pixels.shape[1] == 1 else pixels.movedim(1, 3)
    return data.replace(x=samples.reshape(len(data), -1), sample_shape=tuple(samples.shape[1:]))


def _unit(x: Tensor) -> Tensor:
    low, high = x.aminmax()
    return (x - low) / (high - low) if bool(high > low) else torch.zeros_like(x)


def _standardized(x: Tensor) -> Tensor:
    centred = x.double() - x[0].double()  # constant features are exactly 0 from here on, whatever their mean rounds to
    centred = centred - centred.mean(dim=0)
    deviation = centred.square().mean(dim=0).sqrt()
    return (centred / deviation.where(deviation > 0, 1)).to(x.dtype)
