"""Samples that are images, over time: one row for each sample, one column for each frame (paper,
appendix E).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from advect._util.checks import check_count
from advect.data.dataset import LabeledDataset
from advect.data.spaces.images import Pixels, layout
from advect.errors import InputError
from advect.viz.states import Frames, State, as_array, same_samples, states_of
from advect.viz.theme import dress, look, new_figure, short, text_width

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def image_grid(
    frames: Frames,
    *,
    rows: int = 10,
    columns: int | None = None,
    titles: Sequence[str] | None = None,
    seed: int = 0,
) -> Figure:
    """The same samples over time as images: one row for each sample, one column for each frame.

    Args:
        frames: datasets or recorded frames, a trajectory or the result of a flow, with samples of
            shape (H, W) or (H, W, 1), drawn in grey, or (H, W, 3) or (3, H, W), drawn in colour.
        rows: how many samples, taken in turn from each class of the first frame.
        columns: how many frames at most, evenly spread over time; by default all of a list, and
            twelve of a trajectory or a result.
        titles: captions of the columns; by default the step numbers.
        seed: of the choice of samples.

    Raises:
        InputError: samples that are not images, frames that do not hold the same samples, a wrong
            number of captions.

    Example:
        >>> import advect as ad
        >>> from advect import viz
        >>> digits = ad.datasets.load("digits", n=20)
        >>> figure = viz.image_grid([digits, digits.replace(x=1 - digits.x)], rows=5, titles=["ink", "paper"])
        >>> [len(axes.get_yticklabels()) for axes in figure.axes]
        [5]
    """
    states = states_of(frames, columns, of_flow=12)
    data = check_images(states)
    if titles is not None and len(titles) != len(states):
        raise InputError(
            f"there must be a caption for each of the {len(states)} columns",
            len(titles),
            "Give one each.",
        )
    chosen = in_turn(data[0], min(check_count("rows", rows), len(data[0])), seed)
    pictures = np.stack([pixels(each, chosen) for each in data], axis=1)  # (rows, frames, H, W, …)
    height, width = pictures.shape[2:4]
    steps = [f"{place if s.step is None else s.step}" for place, s in enumerate(states)]
    captions = steps if titles is None else [short(title, 24) for title in titles]
    wide = text_width(captions) + 0.08
    cell = min(wide if 0.62 < wide < 1.1 else 0.62, 6.5 / len(data))
    upright = wide <= cell + 0.08
    names = [short(data[0].labels[i]) for i in chosen]
    extra = 0 if upright else wide
    figure = new_figure(
        cell * len(data) + 0.5 + text_width(names),
        cell * height / width * len(chosen) + 0.45 + extra,
    )
    axes = figure.add_subplot()
    show_mosaic(axes, mosaic(scaled(pictures)))
    axes.set_xticks(
        [c * (width + 1) + width / 2 - 0.5 for c in range(len(data))],
        captions,
        rotation=0 if upright else 90,
    )
    axes.set_yticks([r * (height + 1) + height / 2 - 0.5 for r in range(len(chosen))], names)
    axes.tick_params(top=False, bottom=False, labeltop=True, labelbottom=False)
    axes.set(
        title="" if titles is not None else "frame" if states[0].step is None else "step",
        ylabel="class",
    )
    bare(axes)
    return figure


def check_images(states: Sequence[State]) -> list[LabeledDataset]:
    """The datasets of the states: the same samples in each, and images."""
    data = [state.dataset for state in states]
    if layout(data[0].sample_shape) is None:
        raise InputError(
            "images have shape (H, W), (H, W, 3) or (3, H, W)",
            f"sample shape {data[0].sample_shape}",
            "Draw points with viz.particles.",
        )
    if not same_samples(data):
        raise InputError(
            "frames must hold the same samples",
            f"{[(len(d), d.sample_shape) for d in data]}",
            "Take them from one flow.",
        )
    return data


def pixels(data: LabeledDataset, rows: list[int]) -> np.ndarray:
    """Some samples as (n, H, W) or (n, H, W, 3), whatever the order of their channels."""
    picture = layout(data.sample_shape)
    assert picture is not None
    channels, *sides = picture
    shape = tuple(sides) if channels == 1 else (*sides, 3)
    x = data.x.detach()[rows]
    return as_array(Pixels.fit(x, data.sample_shape, shape).apply(x)).reshape(len(rows), *shape)


def scaled(pictures: np.ndarray) -> np.ndarray:
    """Values from 0 to 1: as they are if they lie there, otherwise over their common range."""
    low, high = min(0.0, float(pictures.min())), max(1.0, float(pictures.max()))
    return (pictures - low) / (high - low)


def mosaic(pictures: np.ndarray) -> np.ndarray:
    """(rows, columns, H, W, …) pictures in one, a pixel of ground between them."""
    rows, columns, height, width, *channels = pictures.shape
    tiles = np.full((rows, columns, height + 1, width + 1, *channels), np.nan)
    tiles[:, :, :height, :width] = pictures
    whole = tiles.swapaxes(1, 2).reshape(rows * (height + 1), columns * (width + 1), *channels)[
        :-1, :-1
    ]
    if channels:
        ground = [int(look().ground[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        whole = np.where(np.isnan(whole), ground, whole)
    return whole


def show_mosaic(axes: Any, whole: np.ndarray) -> Any:
    """Pixels as they are, in grey or colour; gaps in the colour of the ground."""
    from matplotlib import colormaps

    grey = colormaps["gray"].with_extremes(bad=look().ground)
    return axes.imshow(whole, cmap=grey, vmin=0, vmax=1, interpolation="nearest")


def bare(axes: Any) -> None:
    """The look without ticks and frame."""
    dress(axes)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def in_turn(data: LabeledDataset, n: int, seed: int) -> list[int]:
    """n positions, taken in turn from each class in a random order, sorted by class."""
    order = torch.randperm(
        len(data), generator=torch.Generator().manual_seed(check_count("seed", seed, least=0))
    ).tolist()
    codes = data.y.tolist()
    by_class = [[i for i in order if codes[i] == code] for code in range(-1, len(data.classes))]
    turns = (i for turn in itertools.zip_longest(*by_class) for i in turn if i is not None)
    return sorted(itertools.islice(turns, n), key=codes.__getitem__)
