"""Folders of images, read by Pillow: one directory for each class."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from advect._util import InputError, check_known, check_sides, refuse_if
from advect.io.formats.content import Content, class_names
from advect.io.formats.guard import check_regular, reading
from advect.io.formats.table import text_labels

_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")  # others may start programs
_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
_MOST_PIXELS = 1 << 26
_GRAY, _COLOR = ("1", "L"), ("RGB", "P", "CMYK", "YCbCr", "LAB", "HSV")
_ALPHA = ("RGBA", "LA", "PA", "RGBa", "La", "RGBX")


def read_folder(
    path: Path,
    *,
    labels: bool = True,
    size: int | Sequence[int] | None = None,
    channels: str | None = None,
    fit: str = "pad",
    on_error: str = "raise",
) -> Content:
    """Images sorted by class and file name, with values from 0 to 1: (H, W) or (H, W, 3)."""
    if channels is not None:
        check_known("channels", channels, ("gray", "rgb"))
    check_known("fit", fit, ("pad", "crop", "stretch"))
    check_known("on_error", on_error, ("raise", "skip"))
    files, names = _find(path, labels)
    decode = partial(
        _decode, size=() if size is None else check_sides(size), channels=channels, fit=fit
    )
    if on_error == "skip":
        bad = [at for at, file in enumerate(files) if not _is_readable(file, decode)]
        files, names = (
            np.delete(np.array(part, object), bad).tolist() for part in (files, names or files)
        )
        refuse_if(not files, "a folder needs an image that can be read", path, "Check the files.")
        if bad:
            warnings.warn(
                f"{len(bad)} images of {path} could not be read and were skipped", stacklevel=4
            )
    return Content(Images(files, decode), names if labels else None, path=path)


class Images:
    """Images as an array (n, H, W) or (n, H, W, 3) of bytes, decoded on demand."""

    dtype = np.dtype(np.uint8)

    def __init__(self, files: list[Path], decode: Callable[[Path], np.ndarray]) -> None:
        self._files, self._decode = files, decode
        self.shape = (len(files), *decode(files[0]).shape)

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        images = [self._decode(self._files[row]) for row in rows.tolist()]
        for row, image in zip(rows.tolist(), images, strict=True):
            refuse_if(
                image.shape != self.shape[1:],
                "all images must have one shape",
                f"{image.shape} in {self._files[row]}, {self.shape[1:]} in {self._files[0]}",
                "Pass size=… to resize them, channels='gray' or 'rgb' to convert them.",
            )
        return np.stack(images)


def _decode(path: Path, size: tuple[int, ...], channels: str | None, fit: str) -> np.ndarray:
    """An image as bytes (H, W) or (H, W, 3), upright, in this size if there is one."""
    from PIL import Image, ImageOps

    # Pillow's decoders raise many kinds of errors on bad bytes
    with reading(path, "an image", Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Image.open(path, formats=_FORMATS) as file:
                if file.size[0] * file.size[1] > _MOST_PIXELS:
                    raise Image.DecompressionBombError(f"{file.size[0]} × {file.size[1]}")
                image = convert(ImageOps.exif_transpose(file), channels, path)
        except Image.DecompressionBombError as error:
            raise InputError(
                "an image is too large to be safe", f"{path} ({error})", "Shrink it."
            ) from None
        if size:
            resize = {"pad": ImageOps.pad, "crop": ImageOps.fit, "stretch": Image.Image.resize}[fit]
            image = resize(image, size[::-1], Image.Resampling.BILINEAR)
        return np.asarray(image)


def _is_readable(path: Path, decode: Callable[[Path], np.ndarray]) -> bool:
    with suppress(InputError):
        return decode(path) is not None
    return False


def convert(image: Any, channels: str | None, where: object) -> Any:
    """A Pillow image as gray or RGB of 8 bits, on white where it is transparent."""
    from PIL import Image

    mode = {"gray": "L", "rgb": "RGB", None: None}[channels]
    if image.mode in _ALPHA or "transparency" in image.info:
        gray = image.mode in ("LA", "La")
        image = image.convert("RGBA")
        refuse_if(
            mode is None and image.getchannel("A").getextrema()[0] < 255,
            "an image has transparent parts",
            where,
            "Convert it first, or read the folder with channels='rgb' or 'gray'.",
        )
        white = Image.new("RGBA", image.size, "white")
        white.alpha_composite(image)
        return white.convert(mode or ("L" if gray else "RGB"))
    refuse_if(
        image.mode not in _GRAY + _COLOR,
        "images must have 8 bits for each channel",
        f"mode {image.mode} in {where}",
        "Convert it first.",
    )
    return image.convert(mode or ("L" if image.mode in _GRAY else "RGB"))


def _is_image(file: Path) -> bool:
    return file.suffix.lower() in _SUFFIXES


def _visible(path: Path) -> list[Path]:
    with reading(path, "a folder of images"), os.scandir(path) as entries:
        return sorted(Path(entry.path) for entry in entries if not entry.name.startswith("."))


def _find(path: Path, labels: bool) -> tuple[list[Path], list[Any]]:
    """Files in order, and their labels."""
    entries = _visible(path)
    directories = [entry for entry in entries if entry.is_dir()]
    loose = [entry for entry in entries if _is_image(entry) and entry.is_file()]
    if not directories and loose and not labels:
        return _images(path), []
    refuse_if(
        not directories or loose,
        "a folder of images needs a directory for each class",
        f"{len(directories)} directories and {len(loose)} images in {path}",
        "Sort the images into directories, or pass labels=False to read a folder without.",
    )
    texts = [entry.name for entry in directories]
    whole = text_labels(texts) is not str and not any(text.endswith(".0") for text in texts)
    by_name: dict[Any, Path] = dict(
        zip(map(int, texts) if whole else texts, directories, strict=True)
    )
    pairs = [(file, name) for name in class_names(by_name) for file in _images(by_name[name])]
    return [file for file, _ in pairs], [name for _, name in pairs]


def _images(directory: Path) -> list[Path]:
    """The images of a class; other files are left out with a warning."""
    entries = _visible(directory)
    files = [file for file in entries if _is_image(file)]
    others = [file.name for file in entries if not _is_image(file)]
    inner = [file.name for file in entries if file.is_dir()]
    refuse_if(
        inner,
        "the directory of a class must not contain directories",
        f"{inner} in {directory}",
        "Move the images up.",
    )
    for file in files:
        check_regular(file)
    refuse_if(
        not files,
        "a class needs at least one image",
        f"none in {directory}",
        f"Add images ({', '.join(_SUFFIXES)}), or remove the directory.",
    )
    if others:
        text = f"{len(others)} files in {directory} are not images and were skipped: "
        warnings.warn(text + ", ".join(others[:3]), stacklevel=7)
    return files
