"""Samples that are images, over time (paper, appendix E)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from advect._util.checks import check_count, refuse_if
from advect.data.dataset import LabeledDataset, has_classes
from advect.spaces.images import Pixels, layout
from advect.viz.states import Frames, as_array, check_titles, states_of
from advect.viz.theme import dress, new_figure, short, text_width

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def image_grid(
    frames: Frames,
    *,
    rows: int = 10,
    columns: int | None = None,
    titles: Sequence[str] | None = None,
) -> Figure:
    """The same samples over time as images: one row for each sample, one column for each frame.

    Of a single dataset, each row shows several samples of one class.

    Args:
        frames: datasets or recorded frames, a trajectory or the result of a flow, with samples of
            shape (H, W) or (H, W, 1), drawn in grey, or (H, W, 3) or (3, H, W), drawn in colour.
        rows: number of samples, taken in turn from each class of the first frame.
        columns: maximal number of frames, evenly spaced in time. By default all frames of a list,
            twelve of a flow, and ten samples of a class of a single dataset.
        titles: titles of the columns; by default the step numbers.

    Example:
        >>> import advect as ad
        >>> from advect import viz
        >>> digits = ad.datasets.load("digits", n=20)
        >>> figure = viz.image_grid([digits, digits.replace(x=1 - digits.x)], rows=5, titles=["ink", "paper"])
        >>> [len(axes.get_yticklabels()) for axes in figure.axes]
        [5]
    """
    states = states_of(frames, columns, of_flow=12)
    data = [state.dataset for state in states]
    shape = data[0].sample_shape
    what = "images have shape (H, W), (H, W, 3) or (3, H, W)"
    refuse_if(not layout(shape), what, f"sample shape {shape}", "Draw points with viz.particles.")
    sizes = sorted({(len(each), each.sample_shape) for each in data})
    refuse_if(
        len(sizes) != 1, "frames must have the same samples", sizes, "Take them from one flow."
    )
    check_titles(titles, len(states))
    rows = min(check_count("rows", rows), len(data[0]))
    if len(data) == 1:
        lines = _class_rows(data[0], columns or 10)[:rows]
        pictures = _padded([_pixels(data[0], line) for line in lines])
        captions, heading = [""] * pictures.shape[1], "" if titles is None else titles[0]
    else:
        lines = [[i] for i in _in_turn(data[0], rows)]
        pictures = np.stack([_pixels(each, [i for (i,) in lines]) for each in data], axis=1)
        steps = [str(k if state.step is None else state.step) for k, state in enumerate(states)]
        captions = steps if titles is None else [short(title, 24) for title in titles]
        heading = "" if titles is not None else "frame" if states[0].step is None else "step"
    return _grid_figure(_scaled(pictures), data[0], lines, captions, heading)


def _grid_figure(
    pictures: np.ndarray,
    data: LabeledDataset,
    lines: Sequence[list[int]],
    captions: Sequence[str],
    heading: str,
) -> Figure:
    """Rows of pictures with the names of their classes."""
    names = [short(data.labels[line[0]]) for line in lines]
    height, width = pictures[0, 0].shape[:2]
    wide = text_width(captions) + 0.08
    cell = min(wide if 0.62 < wide < 1.1 else 0.62, 6.5 / len(captions))
    upright = wide <= cell + 0.08
    tall = cell * height / width * len(names) + 0.45 + (0 if upright else wide)
    figure = new_figure(cell * len(captions) + 0.5 + text_width(names), tall)
    axes = figure.add_subplot()
    axes.imshow(_mosaic(pictures), interpolation="nearest")
    places = [c * (width + 1) + width / 2 - 0.5 for c in range(len(captions))]
    axes.set_xticks(places, captions, rotation=0 if upright else 90)
    axes.set_yticks([r * (height + 1) + height / 2 - 0.5 for r in range(len(names))], names)
    axes.tick_params(top=False, bottom=False, labeltop=True, labelbottom=False)
    axes.set(title=heading, ylabel="class" if has_classes(data) else "")
    dress(axes, bare=True)
    return figure


def _pixels(data: LabeledDataset, rows: list[int]) -> np.ndarray:
    """Some samples as (n, H, W) or (n, H, W, 3), whatever the order of their channels."""
    channels, *sides = layout(data.sample_shape) or data.sample_shape
    shape = tuple(sides) if channels == 1 else (*sides, 3)
    x = data.x.detach()[rows]
    return as_array(Pixels(data.sample_shape, shape).apply(x)).reshape(len(rows), *shape)


def _scaled(pictures: np.ndarray) -> np.ndarray:
    """Values from 0 to 1: unchanged if they lie there, otherwise scaled over their common range."""
    low, high = min(0.0, float(np.nanmin(pictures))), max(1.0, float(np.nanmax(pictures)))
    return (pictures - low) / (high - low)


def _mosaic(pictures: np.ndarray) -> np.ndarray:
    """(rows, columns, H, W, …) pictures in one RGBA image with transparent gaps of one pixel."""
    rows, columns, height, width, *_ = pictures.shape
    colour = pictures if pictures.ndim == 5 else np.repeat(pictures[..., None], 3, axis=4)
    tiles = np.zeros((rows, columns, height + 1, width + 1, 4))
    tiles[:, :, :height, :width, :3] = np.nan_to_num(colour)
    tiles[:, :, :height, :width, 3] = ~np.isnan(colour).any(axis=4)
    return tiles.swapaxes(1, 2).reshape(rows * (height + 1), columns * (width + 1), 4)[:-1, :-1]


def _padded(lines: Sequence[np.ndarray]) -> np.ndarray:
    """Lines of pictures as one array; missing pictures are NaN."""
    pictures = np.full((len(lines), max(map(len, lines)), *lines[0].shape[1:]), np.nan)
    for row, line in zip(pictures, lines, strict=True):
        row[: len(line)] = line
    return pictures


def _in_turn(data: LabeledDataset, n: int) -> list[int]:
    """n positions, taken in turn from each class in random order, sorted by class."""
    turns = itertools.chain.from_iterable(itertools.zip_longest(*_class_rows(data)))
    some = itertools.islice((i for i in turns if i is not None), n)
    return sorted(some, key=data.y.tolist().__getitem__)


def _class_rows(data: LabeledDataset, most: int | None = None) -> list[list[int]]:
    """At most so many positions of each class that has samples, in a fixed random order."""
    generator = torch.Generator().manual_seed(0)
    order, codes = torch.randperm(len(data), generator=generator).tolist(), data.y.tolist()
    rows = ([i for i in order if codes[i] == code] for code in range(-1, len(data.classes)))
    return [members[:most] for members in rows if members]
