"""Datasets by reference: by name, from files, from openml.org, synthetic, or a frame of a recorded
flow.

``reference`` reads the line, ``named`` finds what has a name; the rows of a draw are chosen first,
then read."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable
from typing import Any

import torch

from advect._util.checks import check_known, one_or_more
from advect._util.progress import Progress
from advect.data import formats as files
from advect.data.adapters import source_fields
from advect.data.dataset import LabeledDataset
from advect.data.formats import (
    Content as Content,
    Source as Source,
    register_format as register_format,
)
from advect.data.formats.kinds import EXACT
from advect.data.sampling import Draw
from advect.data.spaces.harmonize import harmonize
from advect.datasets.named import NAMES, cache_directory, open_named
from advect.datasets.openml import fetch_table
from advect.datasets.reference import SAMPLING, Reference
from advect.datasets.run_frames import open_frame
from advect.datasets.synthetic import gaussians, moons, rings, swiss_roll

_TABLES = ("csv", "parquet", "openml")  # whose columns may be targets
_ARRAYS = ("name", "npz", "npy", "idx")  # that may be images, and are of one size
_TOYS: dict[str, Callable[..., LabeledDataset]] = {
    "gaussians": gaussians,
    "moons": moons,
    "rings": rings,
    "swiss_roll": swiss_roll,
}


def load(
    ref: str | os.PathLike[str],
    *,
    n: int | None = None,
    balanced: bool | None = None,
    seed: int | None = None,
    max_samples: int | None = None,
    split: str | None = None,
    progress: Progress = None,
    **options: Any,
) -> LabeledDataset:
    """The dataset that a reference stands for.

    Args:
        ref: a name (see ``names()``); a path, whose suffix or content says the format; or one of
            ``npz:path``, ``npy:path``, ``csv:path``, ``parquet:path``, ``folder:directory``,
            ``idx:directory``, ``openml:number``, ``name:digits``, ``toy:gaussians``,
            ``run:directory@-1`` (a frame by position) and ``run:directory@step=12``. All of the
            other arguments but ``progress`` may follow in it, as in
            ``csv:pets.csv?label=kind&n=200``, with % before codes of special characters. A name
            stands for the dataset, also where a file or folder here is called the same, which is
            said; ``./digits`` is the folder, ``name:digits`` the dataset without a word.
        n: how many samples to draw, exactly; None for all, and for the default number of a
            synthetic dataset.
        balanced: draw equally many of each class; False by default. Synthetic datasets always do.
        seed: of the draw; 0 by default.
        max_samples: how many to draw at most.
        split: ``"train"`` (the default), ``"test"`` or ``"all"`` of a dataset that has splits.
        progress: None shows it on stderr when it takes long, False is silent, a function is called
            with (done, total).
        **options: those of the format, as in ``label="kind"`` for tables, ``target="price"`` for
            columns that are continuous targets (``target="y"`` of an .npz), ``size=28`` and
            ``channels="gray"`` for images (one side, or height and width), and those of synthetic
            datasets. For a frame of a run with a ``space.json``: ``units``, which are those of the
            ``"source"`` by default, else those of the ``"target"`` or the ``"common"`` ones of the
            flow.

    Returns:
        What ``load(ref).sample(n, balanced=balanced,
        generator=torch.Generator().manual_seed(seed))`` gives, without reading the rest.

    Raises:
        InputError: a reference, file or option that cannot be used, or more samples than there are.

    Example:
        >>> import advect as ad
        >>> ad.datasets.load("mnist", n=100, balanced=True).counts[7]
        10
        >>> ad.datasets.load("toy:gaussians?n=20&classes=4&seed=1")
        LabeledDataset(n=20, sample_shape=(2,), classes=4, dtype=float32)
    """
    reference = Reference.parse(ref, names=(*NAMES, *_TOYS))
    given = {"n": n, "balanced": balanced, "seed": seed, "max_samples": max_samples}
    given |= {"split": split, **options}
    merged = reference.merged({name: value for name, value in given.items() if value is not None})
    resized = _resized(reference, merged)
    data = _loaded(ref, reference, merged, progress)
    return harmonize(data, data, **resized)[0] if resized else data


def _resized(reference: Reference, options: dict[str, Any]) -> dict[str, Any]:
    """What an image set is brought to, taken out of the options of formats that know no size."""
    if reference.kind == "toy" or reference.path in _TOYS or _kind(reference) not in _ARRAYS:
        return {}
    found = {name: options.pop(name) for name in ("size", "channels") if name in options}
    size = found.get("size")
    return found | {"size": tuple(size)} if isinstance(size, list) else found


def _loaded(
    ref: str | os.PathLike[str], reference: Reference, merged: dict[str, Any], progress: Progress
) -> LabeledDataset:
    _say_which(ref, reference)
    if reference.kind == "toy" or (reference.kind == "name" and reference.path in _TOYS):
        return _draw_toy(reference.path, merged)
    _check_options(reference, merged)
    draw = Draw(**{name: merged.pop(name) for name in SAMPLING if name in merged})
    target, narrow = _aimed(_kind(reference), merged)
    found = _open(reference, merged)
    if not isinstance(found, LabeledDataset):
        data = LabeledDataset(**source_fields(found, draw, progress))
        known = getattr(found, "target_columns", None) if data.targets is None else None
        return _with_targets(data, target or known, narrow)
    found = _with_targets(found, target, "")
    rows = draw.rows(found.y, found.classes)
    return found if rows is None else found.subset(rows)


def _say_which(ref: str | os.PathLike[str], reference: Reference) -> None:
    """A name takes precedence over a file here that is called like it, with a warning."""
    name = reference.path
    if reference.kind != "name" or str(ref).startswith("name:"):
        return
    entries = (name, *(f"{name}{suffix}" for suffix in files.suffixes_known()))
    if here := next(filter(os.path.exists, entries), None):
        warnings.warn(
            f"{name!r} is the dataset of that name, not {here!r} in this directory: write "
            f"'./{here}' for that, "
            f"'name:{name}' for the dataset",
            stacklevel=3,
        )


def _check_options(reference: Reference, options: dict[str, Any]) -> None:
    """Each option is one of the draw, or of the format: known before anything is read."""
    kind = _kind(reference)
    own = {"name": ["split"], "run": ["units"], "openml": ["label", "categorical"]}
    known = own[kind] if kind in own else files.reader_options(kind)
    known = [*known, "target"] if kind in _TABLES else known
    what = {
        "name": f"the dataset {reference.path}",
        "run": "a frame",
        "openml": "a table of openml.org",
    }
    for option in options:
        check_known(f"option of {what.get(kind, f'{kind} files')}", option, {*known, *SAMPLING})


def _kind(reference: Reference) -> str:
    """The kind of a reference, of a path that of its file."""
    return files.kind_of(reference.path) if reference.kind == "path" else reference.kind


def _aimed(kind: str, options: dict[str, Any]) -> tuple[Any, str]:
    """Which columns of a table are targets, taken out of the options, and the kind of the table if
    features need not stay in the float64 that targets are read in.
    """
    target = options.pop("target", None) if kind in _TABLES else None
    narrow = kind if "dtype" not in options else ""
    if target is None:
        return None, narrow
    target = one_or_more(target)
    if kind == "csv":
        options.setdefault("dtype", "float64")
    if kind == "openml" or "label" in target:
        options.setdefault("label", False)  # no label then, though it is called so
    return target, narrow


def _with_targets(data: LabeledDataset, target: Any, narrow: str) -> LabeledDataset:
    if target is None:
        return data
    data = data.with_targets(target)
    exact = narrow == "parquet" and torch.equal(data.x.float().double(), data.x.double())
    if exact or (narrow == "csv" and float(data.x.abs().max()) < EXACT["float32"]):
        return data.to(dtype=torch.float32)
    return data


def _open(reference: Reference, options: dict[str, Any]) -> files.Source | LabeledDataset:
    kind, path = reference.kind, reference.path
    if kind == "name":
        return open_named(path, options.get("split"))
    if kind == "run":
        return open_frame(path, options.get("units"))
    if kind == "openml":
        return fetch_table(path, cache_directory(), **options)
    return files.open_source(path, None if kind == "path" else kind, **options)


def _draw_toy(name: str, options: dict[str, Any]) -> LabeledDataset:
    check_known("synthetic dataset", name, _TOYS)
    parameters = inspect.signature(_TOYS[name]).parameters
    for option in options:
        check_known(f"option of {name}", option, {*parameters, *SAMPLING} - {"generator"})
    options.pop("balanced", None)
    most = options.pop("max_samples", None)
    draw = Draw(n=options.get("n"), max_samples=most, seed=options.pop("seed", 0))
    if most is not None:
        options["n"] = min(most, parameters["n"].default)
    return _TOYS[name](**options, generator=torch.Generator().manual_seed(draw.seed))
