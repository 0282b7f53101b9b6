"""Datasets by reference: by name, from files, from openml.org, synthetic, or a recorded frame."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from advect._util.checks import check_known
from advect._util.progress import Progress
from advect.data.dataset import LabeledDataset
from advect.data.sampling import Draw
from advect.io import formats as files
from advect.io.adapters import source_fields
from advect.io.formats import Source, register_format as register_format
from advect.io.named import NAMES, fetch_table, open_named
from advect.io.reference import SAMPLING, Reference
from advect.io.run_frames import open_frame
from advect.io.synthetic import gaussians, moons, rings, swiss_roll
from advect.spaces.harmonize import harmonize

_ARRAYS = ("name", "npz", "npy", "idx")  # formats of images that do not resize themselves
_TOYS: dict[str, Callable[..., LabeledDataset]] = {
    "gaussians": gaussians,
    "moons": moons,
    "rings": rings,
    "swiss_roll": swiss_roll,
}
_OPTIONS = {"name": ["split"], "run": ["units"], "openml": ["label", "categorical", "target"]}


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
    """Load a dataset by name, path or reference.

    The rows of a draw are chosen first, and only these are read. The result is that of
    ``load(ref).sample(n, balanced=balanced, generator=torch.Generator().manual_seed(seed))``.

    Args:
        ref: a name (see ``names()``), a path, or one of ``npz:path``, ``npy:path``, ``csv:path``,
            ``parquet:path``, ``folder:directory``, ``idx:directory``, ``openml:number``,
            ``name:digits``, ``toy:gaussians``, ``run:directory@-1`` (a frame by position) and
            ``run:directory@step=12``. The other arguments may follow it, as in
            ``csv:pets.csv?label=kind&n=200``; special characters are percent-encoded. A name takes
            precedence over a file of that name; ``./digits`` is the file.
        n: number of samples to draw; None for all, or the default of a synthetic dataset.
        balanced: draw equally many samples of each class.
        seed: seed of the draw; 0 by default.
        max_samples: draw at most this many samples.
        split: ``"train"`` (the default), ``"test"`` or ``"all"`` of a dataset with splits.
        progress: None shows progress on stderr if reading takes long, False is silent, a function
            is called with (done, total).
        **options: options of the format, such as ``label="kind"`` and ``target="price"`` (continuous
            targets) for tables, ``size=28`` and ``channels="gray"`` for images; parameters of
            synthetic datasets; ``units`` (``"source"``, ``"target"`` or ``"common"``) for frames.

    Raises:
        InputError: a reference, file or option that cannot be used, or too few samples.

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
    if reference.kind == "toy" or (reference.kind == "name" and reference.path in _TOYS):
        return _draw_toy(reference.path, merged)
    kind = files.kind_of(reference.path) if reference.kind == "path" else reference.kind
    resized = {}
    if kind in _ARRAYS:
        resized = {name: merged.pop(name) for name in ("size", "channels") if name in merged}
        if isinstance(resized.get("size"), list):
            resized["size"] = tuple(resized["size"])
    own = {"name": f"the dataset {reference.path}", "run": "a frame", "openml": "an OpenML table"}
    known = _OPTIONS[kind] if kind in _OPTIONS else files.reader_options(kind)
    for option in merged:
        check_known(f"option of {own.get(kind, f'{kind} files')}", option, {*known, *SAMPLING})
    draw = Draw(**{name: merged.pop(name) for name in SAMPLING if name in merged})
    readers = {"name": open_named, "run": open_frame, "openml": fetch_table}
    read = readers.get(kind) or partial(files.open_source, kind=kind)
    data = read(reference.path, **merged)
    if isinstance(data, Source):
        source, data = data, LabeledDataset(**source_fields(data, draw, progress))
        if data.targets is None and source.target_columns is not None:
            data = data.with_targets(source.target_columns)
    elif (rows := draw.rows(data.y, data.classes)) is not None:
        data = data.subset(rows)
    return harmonize(data, data, **resized)[0] if resized else data


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
