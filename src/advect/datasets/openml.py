"""Datasets of openml.org, fetched by scikit-learn: any table by its number, and some sets of
images.

Images are brought to one form, uint8 in splits; where they are kept is for ``named``.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from advect.errors import InputError

if TYPE_CHECKING:
    from advect.data.dataset import LabeledDataset


@dataclass(frozen=True)
class Images:
    """A set of images: number, shape of one, sizes of its two splits, names of classes."""

    number: int
    shape: tuple[int, ...]
    train: int
    test: int
    classes: tuple[str, ...]


def fetch_images(name: str, images: Images, remedy: str) -> dict[str, np.ndarray]:
    """Arrays x_train, y_train, x_test, y_test and classes."""
    bunch = _fetch(images.number, remedy, as_frame=False, cache=False)
    pixels, labels = np.asarray(bunch.data), np.asarray(bunch.target)
    n = images.train + images.test
    if pixels.shape != (n, math.prod(images.shape)) or labels.shape != (n,):
        raise _other(name, images, f"shapes {pixels.shape} and {labels.shape}", remedy)
    try:
        codes = labels.astype(np.float64).astype(np.int64)
        levels = _levels(pixels.astype(np.float32))
    except (ValueError, TypeError) as error:
        raise _other(name, images, str(error), remedy) from None
    codes = codes - codes.min()  # some count from 1
    if levels is None or codes.max() != len(images.classes) - 1:
        got = f"values {pixels.min()} to {pixels.max()}, {codes.max() + 1} classes"
        raise _other(name, images, got, remedy)
    x = levels.reshape(n, *images.shape)
    if len(images.shape) == 3:  # stored with the channels first
        x = levels.reshape(n, images.shape[2], *images.shape[:2]).transpose(0, 2, 3, 1)
    y = codes.astype(np.uint8)
    train, test = slice(images.train), slice(images.train, None)
    parts = {"x_train": x[train], "y_train": y[train], "x_test": x[test], "y_test": y[test]}
    return {**parts, "classes": np.array(images.classes)}


def fetch_table(
    number: str, home: Path | None, label: object = None, categorical: str | None = None
) -> LabeledDataset:
    """The table with this number; labels are its target, or the column called ``label``."""
    if not number.isascii() or not number.isdigit():
        raise InputError(
            "openml: takes the number of a dataset",
            repr(number),
            "Write openml:61, say; see openml.org.",
        )
    target = {} if label is None or label is False else {"target_column": str(label)}
    where = None if home is None else str(home / "openml")
    remedy = "Check the number and the network, or read a file of your own."
    bunch = _fetch(int(number), remedy, as_frame=True, data_home=where, **target)
    names = [] if label is False else bunch.target_names
    if len(names) > 1:
        raise InputError(
            "a dataset must have one column of labels", ", ".join(names), "Name one with label=…."
        )
    from advect.data.adapters import frame_fields
    from advect.data.dataset import LabeledDataset

    return LabeledDataset(
        **frame_fields(bunch.frame, names[0] if names else None, None, categorical)
    )


def _fetch(number: int, remedy: str, **options: Any) -> Any:
    try:
        from sklearn.datasets import fetch_openml

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of versions and retries
            return fetch_openml(data_id=number, parser="auto", n_retries=1, **options)
    except ImportError as error:
        raise InputError(
            "openml.org is read by scikit-learn with pandas",
            str(error),
            "Install them: pip install 'advect[tables]'.",
        ) from None
    except (OSError, ValueError, KeyError) as error:  # those of the network are OSErrors
        raise InputError(
            f"dataset {number} of openml.org could not be read",
            f"{type(error).__name__}: {error}",
            remedy,
        ) from None


def _levels(pixels: np.ndarray) -> np.ndarray | None:
    """Brightness as bytes, from values 0 … 255, 0 … 1 or −1 … 1; None for others."""
    low, high = float(pixels.min()), float(pixels.max())
    if low >= -1 and high <= 1:
        return np.round(255 * (pixels + 1) / 2 if low < 0 else 255 * pixels).astype(np.uint8)
    return np.round(pixels).astype(np.uint8) if low >= 0 and high <= 255 else None


def _other(name: str, images: Images, got: str, remedy: str) -> InputError:
    return InputError(
        f"dataset {images.number} of openml.org is not the {name} that it was", got, remedy
    )
