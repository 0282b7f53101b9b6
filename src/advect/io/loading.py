"""Datasets by reference, one line of text such as ``csv:pets.csv?label=kind&n=2000``: by name, from files,
synthetic, or a recorded frame."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from advect._util import Progress, check_known, refuse_if
from advect._util.query import split as query_options, typed
from advect.data.dataset import LabeledDataset
from advect.data.sampling import Draw
from advect.io import formats as files
from advect.io.adapters import source_fields
from advect.io.formats import Content
from advect.io.named import NAMES, open_named
from advect.io.run_frames import open_frame
from advect.io.synthetic import gaussians, moons, rings, swiss_roll
from advect.registry import load_plugin, plugins

_TOYS: dict[str, Callable[..., LabeledDataset]] = {
    "gaussians": gaussians,
    "moons": moons,
    "rings": rings,
    "swiss_roll": swiss_roll,
}
_SAMPLING = ("n", "balanced", "seed", "max_samples")
# name, reader and options
_READERS: dict[str, tuple[str, Callable[..., Content | LabeledDataset], tuple[str, ...]]] = {
    "name": ("the dataset {}", open_named, ("split",)),
    "run": ("a frame", open_frame, ("units",)),
}
# Types that cannot be guessed: a column may have the name 7, a delimiter may be a comma.
_TEXTS = "delimiter encoding split dtype categorical channels units"
_TYPES = dict.fromkeys(_TEXTS.split(), "str") | {
    "label": "str | int | False",
    "weights": "str | int | False",
    "columns": "list[str | int]",
    "probabilities": "list[str | int | False]",
    "target": "list[str]",
}
_SCHEME = re.compile(r"([A-Za-z][\w+-]+):(.*)", re.DOTALL)


@dataclass(frozen=True)
class Reference:
    """The parts of a reference. The kind is a format of files, ``"toy"`` or ``"run"``;
    ``"name"`` for a named dataset, ``"path"`` for a file whose suffix says the format."""

    kind: str
    path: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_file(self) -> bool:
        """Whether it stands for a file or folder of samples."""
        return self.kind == "path" or self.kind in files.formats()

    @classmethod
    def parse(cls, ref: str | os.PathLike[str], names: Iterable[str]) -> Reference:
        """Parse a reference, given the names of datasets, which take precedence over files."""
        if isinstance(ref, os.PathLike):
            return cls("path", os.fspath(ref))
        refuse_if(
            not isinstance(ref, str) or not ref,
            "a dataset must be a name, a path or a reference",
            repr(ref),
            "Pass text such as 'mnist' or 'csv:pets.csv'.",
        )
        names, kinds = list(names), dict.fromkeys((*files.formats(), *_READERS, "toy"))
        path, _, query = ref.partition("?")
        options = {
            name: typed(text, _TYPES.get(name, ""))
            for name, text in query_options(query, ref).items()
        }
        if path in names:
            return cls("name", path, options)
        scheme = _SCHEME.fullmatch(path)
        if scheme is not None and scheme[1] not in kinds:
            kinds |= plugins("format")
        if scheme is not None and scheme[1] in kinds:
            refuse_if(
                not scheme[2],
                f"{scheme[1]}: must be followed by what to read",
                repr(ref),
                f"Write {scheme[1]}:….",
            )
            if scheme[1] == "name":
                check_known("dataset", scheme[2], names)
            return cls(scheme[1], scheme[2], options)
        if not os.path.exists(os.path.expanduser(path)):
            if scheme is not None:
                check_known("kind of reference", scheme[1], kinds)
            if not re.search(r"[/\\.~]", path):
                check_known("dataset", path, names)
        return cls("path", path, options)


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

    The rows of a draw are chosen first, from the labels. The result is that of
    ``load(ref).sample(n, balanced=balanced, generator=torch.Generator().manual_seed(seed))``.

    Args:
        ref: a name (see ``names()``), a path, or one of ``npz:path``, ``npy:path``, ``csv:path``,
            ``parquet:path``, ``folder:directory``, ``name:digits``, ``toy:gaussians``,
            ``run:directory@-1`` (a frame by position). The other arguments may follow it, and are preferred if
            passed, as in
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
            targets) for tables, ``missing="median"`` (or "drop", "indicator") for missing features,
            ``size=28``, ``channels="gray"``, ``fit="crop"`` and ``on_error="skip"`` for folders of images;
            parameters of synthetic datasets; ``units`` (``"source"``, ``"target"`` or ``"common"``)
            for frames.

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
    arguments = {"n": n, "balanced": balanced, "seed": seed, "max_samples": max_samples}
    arguments |= {"split": split, **options}
    arguments = {name: value for name, value in arguments.items() if value is not None}
    options = {**reference.options, **arguments}
    kind, path = reference.kind, reference.path
    if kind == "toy" or (kind == "name" and path in _TOYS):
        return _draw_toy(path, options)
    kind = files.kind_of(path) if kind == "path" else kind
    sampling = {name: options.pop(name) for name in _SAMPLING if name in options}
    if kind not in (*_READERS, *files.formats()):
        register_format(kind, load_plugin("format", kind))
    if kind in _READERS:
        what, read, known = _READERS[kind]
        _check_options(what.format(path), options, [*known, *_SAMPLING])
        data = read(path, **options)
    else:
        data = files.open_source(path, kind, **options)
    draw = Draw(**sampling)
    if isinstance(data, Content):
        source, data = data, LabeledDataset(**source_fields(data, draw, progress))
        if data.targets is None and source.target_columns is not None:
            data = data.with_targets(source.target_columns)
    elif (rows := draw.rows(data.y, data.classes)) is not None:
        data = data.subset(rows)
    return data


def register_format(name: str, read: Callable[..., LabeledDataset]) -> None:
    """Register a kind of reference for ``load`` and the command line, in this process.

    Args:
        name: the name in references: ``name:path?option=value``.
        read: called with the path and the options. Returns a dataset.

    Example:
        >>> import json, tempfile, pathlib, advect as ad
        >>> def read_points(path, *, scale=1.0):
        ...     points = json.loads(pathlib.Path(path).read_text())
        ...     return ad.LabeledDataset([[scale * x] for x in points["x"]], points["y"])
        >>> ad.datasets.register_format("points", read_points)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "two.json")
        ...     _ = path.write_text('{"x": [1, 2], "y": ["a", "b"]}')
        ...     print(ad.datasets.load(f"points:{path}?scale=2").x.flatten().tolist())
        [2.0, 4.0]
    """
    taken = (*files.formats(), "toy", "path", "name", "run")
    refuse_if(
        name in taken or not _SCHEME.fullmatch(f"{name}:"),
        "a format needs a free name of letters, digits, +, - and _",
        repr(name),
        "Choose another.",
    )
    _READERS[name] = (f"{name} references", read, tuple(inspect.signature(read).parameters)[1:])


def _draw_toy(name: str, options: dict[str, Any]) -> LabeledDataset:
    check_known("synthetic dataset", name, _TOYS)
    parameters = inspect.signature(_TOYS[name]).parameters
    _check_options(name, options, {*parameters, *_SAMPLING} - {"generator"})
    options.pop("balanced", None)
    max_samples = options.pop("max_samples", None)
    draw = Draw(n=options.get("n"), max_samples=max_samples, seed=options.pop("seed", 0))
    if max_samples is not None:
        options["n"] = min(max_samples, parameters["n"].default)
    return _TOYS[name](**options, generator=torch.Generator().manual_seed(draw.seed))


def _check_options(what: str, options: Iterable[str], known: Iterable[str]) -> None:
    for option in options:
        check_known(f"option of {what}", option, known)
