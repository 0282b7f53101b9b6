"""Flows as films."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from advect._util.atomic import write_atomically
from advect._util.checks import check_positive
from advect.data.dataset import LabeledDataset
from advect.spaces.images import layout
from advect.spaces.inputs import require
from advect.viz.images import image_frames
from advect.viz.points import Panel
from advect.viz.states import Frames, State, names_of, others, project, states_of
from advect.viz.theme import add_legend, class_marks, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

_DPI = 100


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
    what = "an animation is a .gif or .webp file"
    require(kind in ("gif", "webp"), what, repr(path.name), "Change the suffix.")
    states = states_of(trajectory)
    are_images = layout(states[0].dataset.sample_shape) is not None
    figures = image_frames(states) if are_images else _particle_frames(states, target)
    first, *rest = [_picture(figure) for figure in figures]
    content = io.BytesIO()
    timing = {"duration": round(1000 / fps), "loop": 0}
    first.save(content, format=kind, save_all=True, append_images=rest, **timing)
    write_atomically(path, content.getvalue())
    return path


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
    figure.savefig(content, format="png", dpi=_DPI)
    return Image.open(content).convert("RGB")
