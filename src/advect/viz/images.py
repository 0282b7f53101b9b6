"""Samples that are images, over time (paper, appendix E), and flows as films."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from advect._util import check_count, check_positive, refuse_if, write_atomically
from advect.data.dataset import LabeledDataset, has_classes
from advect.spaces.images import Pixels, layout
from advect.viz.points import Panel
from advect.viz.states import (
    Frames,
    State,
    as_array,
    check_titles,
    names_of,
    others,
    project,
    states_of,
)
from advect.viz.theme import add_legend, class_marks, dress, new_figure, short, text_width

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

_FILM_DPI = 100


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
    data = _image_datasets(states)
    check_titles(titles, len(states))
    rows = min(check_count("rows", rows), len(data[0]))
    if len(data) == 1:
        lines = _class_rows(data[0], columns or 10)[:rows]
        pictures = _padded([_pixels(data[0], line) for line in lines])
        captions, heading = [""] * pictures.shape[1], "" if titles is None else titles[0]
    else:
        lines = [[i] for i in in_turn(data[0], rows)]
        pictures = np.stack([_pixels(each, [i for (i,) in lines]) for each in data], axis=1)
        steps = [str(k if state.step is None else state.step) for k, state in enumerate(states)]
        captions = steps if titles is None else [short(title, 24) for title in titles]
        heading = "" if titles is not None else "frame" if states[0].step is None else "step"
    return _grid_figure(_scaled(pictures), data[0], lines, captions, heading)


def _image_datasets(states: Sequence[State]) -> list[LabeledDataset]:
    """The datasets of the states, which must be images of the same samples."""
    data = [state.dataset for state in states]
    shape = data[0].sample_shape
    refuse_if(
        not layout(shape),
        "images have shape (H, W), (H, W, 3) or (3, H, W)",
        f"sample shape {shape}",
        "Draw points with viz.particles.",
    )
    sizes = sorted({(len(each), each.sample_shape) for each in data})
    refuse_if(
        len(sizes) != 1, "frames must have the same samples", sizes, "Take them from one flow."
    )
    return data


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


def in_turn(data: LabeledDataset, n: int) -> list[int]:
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


def animation(
    trajectory: Frames, path: str | Path, *, target: LabeledDataset | None = None, fps: float = 12
) -> Path:
    """Write a film of a flow with a picture for each recorded frame.

    Images are drawn as a grid with ten samples of each class. Other samples are drawn as particles
    in the plane, as by ``particles``.

    Args:
        trajectory: the result of a flow, a trajectory, or a list of datasets or recorded frames.
        path: ends in ``.gif``, or in ``.webp``, which has more colours and smaller files.
        target: the dataset that the flow moves to, drawn behind particles.
        fps: pictures per second, at most 50.

    Example:
        >>> import tempfile, torch, advect as ad
        >>> from advect import viz
        >>> source = ad.datasets.gaussians(30, generator=torch.Generator().manual_seed(0))
        >>> result = ad.flow(source, ad.Potential(ad.norm()), n_steps=3, callbacks=[ad.Recorder()])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     viz.animation(result, f"{folder}/flow.gif", fps=5).name
        'flow.gif'
    """
    path, fps = Path(path), check_positive("fps", fps)
    kind = path.suffix.removeprefix(".").lower()
    refuse_if(
        kind not in ("gif", "webp"),
        "an animation is a .gif or .webp file",
        repr(path.name),
        "Change the suffix.",
    )
    states = states_of(trajectory)
    are_images = layout(states[0].dataset.sample_shape) is not None
    figures = _image_frames(states) if are_images else _particle_frames(states, target)
    first, *rest = [_picture(figure) for figure in figures]
    content = io.BytesIO()
    timing = {"duration": round(1000 / fps), "loop": 0}
    first.save(content, format=kind, save_all=True, append_images=rest, **timing)
    write_atomically(path, content.getvalue())
    return path


def _image_frames(states: Sequence[State]) -> Iterator[Figure]:
    """A figure for each state: ten images of each class of the first state, on one scale."""
    data = _image_datasets(states)
    lines = _class_rows(data[0], 10)
    frames = _scaled(np.stack([_padded([_pixels(each, line) for line in lines]) for each in data]))
    for state, pictures in zip(states, frames, strict=True):
        yield _grid_figure(pictures, data[0], lines, [""] * pictures.shape[1], state.caption)


def _particle_frames(states: Sequence[State], target: LabeledDataset | None) -> Iterator[Figure]:
    """A figure for each state, all with the same limits and colours."""
    datasets, axis_names = project([*(state.dataset for state in states), *others(target)])
    goal = None if target is None else datasets.pop()
    marks = class_marks(names_of(datasets))
    panel = Panel.around(datasets, goal, marks, ellipses=True, axis_names=axis_names)
    for state, data in zip(states, datasets, strict=True):
        figure = new_figure(4.8, 4.8 * panel.ratio + 0.3)
        panel.draw(figure.add_subplot(), data, title=state.caption)
        add_legend(figure, panel.handles(datasets))
        yield figure


def _picture(figure: Figure) -> Image:
    from PIL import Image

    figure.draw_without_rendering()  # the layout of the first pass is only nearly right
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=_FILM_DPI)
    return Image.open(content).convert("RGB")
