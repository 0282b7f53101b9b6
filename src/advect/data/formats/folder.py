"""Folders of images: one directory for each class, or all in one without labels.

Names of classes are percent-encoded where a file system would not have them, and decoded on the way
back; whole numbers are written as digits, other kinds of names as JSON after ``%=``."""

from __future__ import annotations

import os
import re
import struct
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

from advect._util.atomic import atomic_directory
from advect._util.checks import check_known, check_sides
from advect.data.formats.content import Advance, Content, Source, check_rows, quiet
from advect.data.formats.guard import check_regular, empty, reading
from advect.data.formats.names import dump_name, load_name
from advect.data.formats.table import text_labels
from advect.errors import InputError

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")  # others may start programs
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
_MOST_PIXELS = 1 << 26
_SHOWN = 3  # names of files in a sentence
_KIND = "a folder of images"
_IMAGE = "an image"
_GRAY, _COLOUR = ("1", "L"), ("RGB", "P", "CMYK", "YCbCr", "LAB", "HSV")
_ALPHA = ("RGBA", "LA", "PA", "RGBa", "La", "RGBX")
# Pillow's decoders raise many kinds of errors on bad bytes
_BAD_IMAGE = (
    *(SyntaxError, ValueError, TypeError, LookupError, OverflowError, AttributeError),
    *(struct.error, zlib.error),
)


class FolderSource(Source):
    """Images sorted by class and file name, with values from 0 to 1: gray ones (H, W), colour ones
    (H, W, 3).

    Args:
        path: the folder; hidden files are not looked at.
        labels: False for a folder without classes, or to leave them out.
        size: side or (height, width) to resize to, smoothly; by default all must be as large as the
            first.
        channels: ``"gray"`` or ``"rgb"`` to convert to; transparent parts become white. By default
            as the first one.
        raw: keep values from 0 to 255.

    Raises:
        InputError: a folder that cannot be used; the message names the file.

    Example:
        >>> import tempfile
        >>> from advect.data.formats import Content, write
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write(Path(folder, "shapes"), Content(np.ones((3, 4, 4)), ["dot", "bar", "dot"]))
        ...     source = FolderSource(Path(folder, "shapes"), size=2)
        ...     print(source.labels, source.read().shape)
        ['bar', 'dot', 'dot'] (3, 2, 2)
    """

    def __init__(
        self,
        path: Path,
        *,
        labels: bool = True,
        size: int | Sequence[int] | None = None,
        channels: str | None = None,
        raw: bool = False,
    ) -> None:
        if channels is not None:
            check_known("channels", channels, ("gray", "rgb"))
        self._size = () if size is None else check_sides(size)
        self._channels, self._raw = channels, raw
        self._files, self.labels, self.classes = _find(path, labels)
        self._shape = self._decode(self._files[0]).shape

    def __len__(self) -> int:
        return len(self._files)

    def read(self, rows: np.ndarray | None = None, advance: Advance = quiet) -> np.ndarray:
        rows = check_rows(rows, len(self._files))
        out = empty(self._files[0].parent, _KIND, (len(rows), *self._shape), np.dtype(np.float32))
        for at, row in enumerate(rows.tolist()):
            image = self._decode(self._files[row])
            if image.shape != self._shape:
                self._mixed(self._files[row], image.shape)
            out[at] = image
            advance(1)
        if not self._raw:
            out /= 255
        return out

    def _mixed(self, path: Path, shape: tuple[int, ...]) -> None:
        one, other = (
            f"{s[0]} × {s[1]} {'gray' if len(s) == 2 else 'colour'}" for s in (shape, self._shape)
        )
        sizes = shape[:2] != self._shape[:2]
        raise InputError(
            f"all images must have one {'size' if sizes else 'kind of colour'}",
            f"{one} in {path} where {self._files[0]} is {other}",
            "Pass size= (one side, or height and width) to resize them."
            if sizes
            else "Pass channels='gray' or channels='rgb' to convert them.",
        )

    def _decode(self, path: Path) -> np.ndarray:
        from PIL import Image

        with reading(path, _IMAGE, *_BAD_IMAGE), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                with Image.open(path, formats=FORMATS) as image:
                    _check_pixels(path, image.size)
                    image.load()
                    image = convert(image, self._channels, path)
            except Image.DecompressionBombError as error:
                raise InputError(
                    "an image is too large to be safe", f"{path} ({error})", "Shrink it first."
                ) from None
            if self._size:
                # which is smooth when it shrinks
                image = image.resize(self._size[::-1], Image.Resampling.BILINEAR)
            return np.asarray(image)


def _check_pixels(path: Path, size: tuple[int, int]) -> None:
    if size[0] * size[1] > _MOST_PIXELS:
        raise InputError(
            "an image is too large to be safe",
            f"{path} ({size[1]} × {size[0]} pixels)",
            "Shrink it first.",
        )


def convert(image: Any, channels: str | None, where: object) -> Any:
    """A picture of Pillow as gray or RGB of 8 bits, put on white where channels are given."""
    from PIL import Image

    wanted = {"gray": "L", "rgb": "RGB", None: None}[channels]
    if image.mode in _ALPHA or "transparency" in image.info:
        image = image.convert("RGBA" if image.mode not in ("LA", "La") else "LA")
        opaque = image.getchannel("A").getextrema()[0] == 255
        if not opaque and wanted is None:
            raise InputError(
                "an image has transparent parts",
                where,
                "Pass channels='rgb' or channels='gray' to put it on white.",
            )
        gray = image.mode == "LA"
        whole = Image.new("RGBA", image.size, "white")
        whole.alpha_composite(image.convert("RGBA"))
        return whole.convert(wanted or ("L" if gray else "RGB"))
    if image.mode not in _GRAY + _COLOUR:
        raise InputError(
            "images must have 8 bits for each channel",
            f"mode {image.mode} in {where}",
            "Convert it first.",
        )
    return image.convert(wanted or ("L" if image.mode in _GRAY else "RGB"))


def write_folder(path: Path, content: Content, overwrite: bool) -> None:
    """A PNG of 8 bits for each sample, in a directory for its class; weights are not kept."""
    from PIL import Image

    x, labels = content.x, content.labels
    if x.ndim not in (3, 4) or (x.ndim == 4 and x.shape[3] not in (1, 3)):
        raise InputError(
            "images must have shape (H, W) or (H, W, 1 or 3)",
            x.shape[1:],
            "Save as .npz, which keeps any shape.",
        )
    if labels is None or any(label is None for label in labels):
        raise InputError(
            "a folder has a directory for each class",
            "samples without labels",
            "Label them, or save as .npz.",
        )
    x = _clipped(x)
    weights = np.ones(1) if content.weights is None else content.weights
    if np.ptp(weights) > 1e-12 * np.max(np.abs(weights)):
        raise InputError(
            "a folder keeps no weights", "weights that differ", "Save as .npz, or drop them."
        )
    if content.probabilities is not None:
        raise InputError(
            "a folder keeps no probabilities", "labels with doubt", "Save as .npz, or data.hard()."
        )
    if overwrite and path.is_dir() and any(path.iterdir()):
        _check_ours(path)
    names = content.classes or ()
    whole = all(type(name) is int for name in names)
    places = {name: encode(name, whole) for name in names}
    digits = len(str(len(x)))
    with atomic_directory(path, overwrite=overwrite) as beside:
        for row, label in enumerate(labels):
            place = beside / places[label]
            place.mkdir(exist_ok=True)
            pixels = np.round(x[row] * 255).astype(np.uint8)
            Image.fromarray(pixels[..., 0] if pixels.shape[2:] == (1,) else pixels).save(
                place / f"{row:0{digits}}.png"
            )


def _clipped(x: np.ndarray) -> np.ndarray:
    """Brightness clipped to 0 … 1, with a warning where flows or resizing have passed it."""
    low, high = float(x.min()), float(x.max())
    if not (low >= -1 and high <= 2):
        raise InputError(
            "images must have values from 0 to 1",
            f"{low:g} to {high:g}",
            "Rescale them, or save as .npz.",
        )
    if low < 0 or high > 1:
        share = float(((x < 0) | (x > 1)).mean())
        warnings.warn(
            f"{share:.2%} of the pixels lie outside 0 … 1 ({low:g} to {high:g}) and are clipped",
            stacklevel=6,
        )
    return x.clip(0, 1)


def encode(name: Any, whole: bool) -> str:
    """A class name as the name of a directory; ``whole`` if all names are ints."""
    if type(name) is not str:
        return str(name) if whole else "%=" + _escape(dump_name(name))
    return _escape(name) or "%"


def decode(names: Sequence[str]) -> list[Any]:
    """The class names of directories."""
    if names and text_labels(names) is not str and not any(name.endswith(".0") for name in names):
        return [int(name) for name in names]
    return [_decode_one(name) for name in names]


def _escape(name: str) -> str:
    def hexed(text: str) -> str:
        return "".join(f"%{byte:02X}" for byte in text.encode("utf-8", "surrogatepass"))

    name = "".join(
        hexed(char) if char in '%/\\:*?"<>|' or not char.isprintable() else char for char in name
    )
    hidden, number = name.startswith((".", " ")), re.fullmatch(r"-?\d+", name)
    if hidden or number:
        name = hexed(name[0]) + name[1:]
    return name[:-1] + hexed(name[-1]) if name.endswith((".", " ")) else name


def _decode_one(name: str) -> Any:
    if name == "%":
        return ""
    text = name.removeprefix("%=")
    try:
        text = unquote(text, errors="surrogatepass")
        return load_name(text) if name.startswith("%=") else text
    except (ValueError, RecursionError):  # not ours: a name is a name
        return name


def _check_ours(path: Path) -> None:
    """Only what looks like a folder of images may be written over."""
    for entry in path.iterdir():
        if entry.name.startswith(".") and entry.is_file():
            continue
        unknown = [entry]
        if entry.is_dir() and not entry.name.startswith("."):
            unknown = [file for file in _visible(entry) if file.suffix.lower() not in SUFFIXES]
        if unknown:
            raise InputError(
                "only a folder of images can be written over",
                f"{unknown[0]} is none",
                "Choose another place.",
            )


def _visible(path: Path) -> list[Path]:
    with reading(path, _KIND), os.scandir(path) as entries:
        return sorted(Path(entry.path) for entry in entries if not entry.name.startswith("."))


def _find(path: Path, labels: bool) -> tuple[list[Path], list[Any] | None, tuple[Any, ...] | None]:
    """Files in order, their labels, and the classes."""
    entries = _visible(path)
    directories = [entry for entry in entries if entry.is_dir()]
    loose = [entry for entry in entries if entry.suffix.lower() in SUFFIXES and not entry.is_dir()]
    if not directories:
        if loose and not labels:
            return _images(path), None, None
        raise InputError(
            "a folder of images needs a directory for each class",
            f"{len(loose)} images and no directories in {path}",
            "Sort them into directories, or pass labels=False to read them without labels."
            if loose
            else "Put images in it.",
        )
    if loose:
        raise InputError(
            "images must lie in the directories of their classes",
            f"{loose[0]} beside them",
            "Move it, or remove it.",
        )
    names = decode([directory.name for directory in directories])
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(
            "two directories stand for one class", f"{twice!r} in {path}", "Rename one of them."
        )
    try:
        order = sorted(range(len(names)), key=names.__getitem__)
    except TypeError:  # kinds that do not compare: in order of their directories
        order = list(range(len(names)))
    files, found = [], []
    for at in order:
        inside = _images(directories[at])
        files += inside
        found += [names[at]] * len(inside)
    return (files, found, tuple(names[at] for at in order)) if labels else (files, None, None)


def _images(directory: Path) -> list[Path]:
    """The images of a class; what file managers and people leave beside them is passed over, with a
    word.
    """
    files, strays = [], []
    for file in _visible(directory):
        if file.is_dir():
            raise InputError(
                "classes must not have directories in them", file, "Move its images up."
            )
        if file.suffix.lower() in SUFFIXES:
            check_regular(file)
            files.append(file)
        else:
            strays.append(file.name)
    if not files:
        raise InputError(
            "a class needs at least one image",
            f"{'no image' if strays else 'nothing'} in {directory}",
            f"Add images (they end in {', '.join(SUFFIXES)}), or remove the directory.",
        )
    if strays:
        shown = ", ".join(strays[:_SHOWN]) + (", …" if len(strays) > _SHOWN else "")
        warnings.warn(
            f"{len(strays)} file{'s' * (len(strays) > 1)} in {directory} left out, no image by "
            f"{'their names' if len(strays) > 1 else 'its name'}: {shown}",
            stacklevel=7,
        )
    return files
