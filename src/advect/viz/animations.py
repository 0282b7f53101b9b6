"""A flow as a film: particles or images, one picture for each frame, as GIF or MP4.

The layout is that of the first picture throughout, so that nothing jumps but what moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from advect._util.atomic import atomic_file
from advect._util.checks import check_count, check_known, check_non_negative, check_positive
from advect._util.progress import Progress, track
from advect.data.dataset import LabeledDataset
from advect.data.spaces.images import layout
from advect.errors import InputError
from advect.viz.images import bare, check_images, in_turn, mosaic, pixels, scaled, show_mosaic
from advect.viz.panels import check_points, draw_paths, limits_of, paths_of
from advect.viz.particle_figures import draw_state, draw_target, single_panel
from advect.viz.projections import pca
from advect.viz.states import Frames, State, names_of, others, same_samples, states_of
from advect.viz.theme import TEXT, class_marks, look, new_figure

if TYPE_CHECKING:
    from PIL.Image import Image

# a figure, and what draws a state on it and gives what to remove again
Scene = tuple[Any, Callable[[int], list[Any]]]
_QUICKEST = 50.0  # frames a second: players slow down GIFs that are quicker


def animation(
    frames: Frames,
    path: str | Path,
    *,
    target: LabeledDataset | None = None,
    fps: float = 12,
    kind: Literal["particles", "images"] | None = None,
    ellipses: bool = True,
    trails: int = 60,
    rows: int = 48,
    hold: float = 1.0,
    dpi: float = 110,
    seed: int = 0,
    progress: Progress = None,
) -> Path:
    """Write a film of a flow, whole or not at all: one picture for each frame, in the format that
    the suffix names.

    Args:
        frames: the result of a flow, a trajectory, or a list of datasets or recorded frames. Points
            of more than three dimensions are seen along their first two principal components; pass
            the frames of a ``tsne`` view for others.
        path: ends in ``.gif``, or in ``.mp4``, for which the extra ``advect[video]`` is needed.
        target: where they are going; behind particles, and not drawn with images.
        fps: pictures a second; at most 50 for GIF.
        kind: ``"particles"`` or ``"images"``; by default images if the samples are.
        ellipses: whether to draw those of classes, for particles in the plane.
        trails: how many particles to draw the paths of.
        rows: how many samples to show, for images.
        hold: seconds that the last picture stays in addition.
        dpi: pixels per inch; the size of the film is about 5 inches.
        seed: of the choice of samples.
        progress: None shows it on stderr when it takes long, False is silent, a function is called
            with (done, total).

    Raises:
        InputError: no frames, an unknown suffix, frames that do not hold the same samples, or the
            extra is missing.

    Example:
        >>> import tempfile, torch, advect as ad
        >>> from advect import viz
        >>> source = ad.datasets.gaussians(30, generator=torch.Generator().manual_seed(0))
        >>> result = ad.flow(source, ad.Potential(ad.norm()), n_steps=3, callbacks=[ad.Recorder()])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     viz.animation(result, f"{folder}/flow.gif", fps=5).name
        'flow.gif'
    """
    path, fps, hold = Path(path), check_positive("fps", fps), check_non_negative("hold", hold)
    write = _writer(path, fps)
    dpi, trails = check_positive("dpi", dpi), check_count("trails", trails, least=0)
    others(target)
    states = states_of(frames)
    if kind is None:
        kind = "images" if layout(states[0].dataset.sample_shape) else "particles"
    check_known("kind of animation", kind, ("particles", "images"))
    figure, show = (
        _images(states, rows, seed)
        if kind == "images"
        else _particles(states, target, ellipses, trails, seed)
    )
    figure.set_dpi(dpi)
    with track(len(states), f"drawing {path.name}", progress) as advance:
        write(path, _Pictures(figure, show, len(states), advance), fps, hold)
    return path


def _particles(
    states: Sequence[State], target: LabeledDataset | None, ellipses: bool, trails: int, seed: int
) -> Scene:
    if max(state.dataset.dim for state in states) > 3:
        view = pca([state.as_given() for state in states], target)
        states, target = states_of(view.frames), view.target
    datasets = [state.dataset for state in states]
    together = [*datasets, *others(target)]
    dim, marks = check_points(together), class_marks(names_of(datasets))
    outlines = ellipses and dim == 2
    limits = limits_of(together, outlines)
    complete = all(data.complete for data in datasets)
    figure, axes = single_panel(limits, marks, target=target is not None, unlabeled=not complete)
    draw_target(axes, target, marks, outlines)
    followed = trails > 0 and same_samples(datasets)
    walked = paths_of(states, trails, seed)[0] if followed else np.zeros((0, len(states), dim))

    def show(position: int) -> list[Any]:
        state = states[position]
        axes.title.set_text(state.caption(f"frame {position}"))
        lines = draw_paths(axes, walked[:, : position + 1]) if len(walked) else []
        return lines + draw_state(axes, state, marks, outlines)

    return figure, show


def _images(states: Sequence[State], rows: int, seed: int) -> Scene:
    data = check_images(states)
    chosen = in_turn(data[0], min(check_count("rows", rows), len(data[0])), seed)
    pictures = scaled(np.stack([pixels(each, chosen) for each in data]))  # (frames, n, H, W, …)
    height, width = pictures.shape[2:4]
    across = max(1, round((len(chosen) * 1.5 * height / width) ** 0.5))
    down = -(-len(chosen) // across)
    blank = np.full((len(data), across * down - len(chosen), *pictures.shape[2:]), np.nan)
    pictures = np.concatenate([pictures, blank], axis=1).reshape(
        len(data), down, across, *pictures.shape[2:]
    )
    figure = new_figure(4.8, 4.8 * (down * height) / (across * width) + 0.3)
    axes = figure.add_subplot()
    bare(axes)
    axes.set(xticks=[], yticks=[])
    image = show_mosaic(axes, mosaic(pictures[0]))

    def show(position: int) -> list[Any]:
        image.set_data(mosaic(pictures[position]))
        axes.set_title(
            states[position].caption(f"frame {position}"), fontsize=TEXT, color=look().ink
        )
        return []

    return figure, show


class _Pictures:
    """The pictures of a scene, drawn as they are asked for."""

    def __init__(
        self, figure: Any, show: Callable[[int], list[Any]], n: int, advance: Callable[[int], None]
    ) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        self._canvas, self._show, self._advance = FigureCanvasAgg(figure), show, advance
        self.n = n
        for _ in range(2):  # the layout of the first pass is only nearly right
            self.draw(0)
        figure.set_layout_engine("none")  # all that follow keep the places of the first

    def draw(self, position: int) -> Image:
        from PIL import Image

        artists = self._show(position)
        self._canvas.draw()
        pixels = np.asarray(self._canvas.buffer_rgba())[..., :3]
        height, width = (side - side % 2 for side in pixels.shape[:2])  # videos need even sides
        for artist in artists:
            artist.remove()
        return Image.fromarray(np.ascontiguousarray(pixels[:height, :width]))

    def __iter__(self) -> Iterator[Image]:
        for position in range(self.n):
            yield self.draw(position)
            self._advance(1)


def _writer(path: Path, fps: float) -> Callable[[Path, _Pictures, float, float], None]:
    kind = path.suffix.lower()
    if kind == ".gif":
        if fps > _QUICKEST:
            raise InputError(
                f"a GIF has at most {_QUICKEST:g} pictures a second",
                fps,
                "Lower fps, or write an .mp4.",
            )
        return _write_gif
    if kind == ".mp4":
        try:
            import imageio_ffmpeg  # noqa: F401
        except ImportError:
            raise InputError(
                "writing .mp4 needs ffmpeg",
                "no imageio-ffmpeg",
                "pip install 'advect[video]', or write a .gif.",
            ) from None
        return _write_mp4
    raise InputError(
        "an animation is a .gif or an .mp4", repr(path.name), "Give the path one of these suffixes."
    )


def _write_gif(path: Path, pictures: _Pictures, fps: float, hold: float) -> None:
    from PIL import Image

    some = [pictures.draw(position) for position in sorted({0, pictures.n // 2, pictures.n - 1})]
    strip = Image.new("RGB", (some[0].width, some[0].height * len(some)))
    for position, picture in enumerate(some):
        strip.paste(picture, (0, position * picture.height))
    # the same for all, so that nothing flickers
    colours = strip.quantize(256, dither=Image.Dither.NONE)
    drawn = [_in_colours(picture, colours) for picture in pictures]
    # GIFs count hundredths of a second
    ends = [round(100 * (position + 1) / fps) for position in range(len(drawn))]
    lengths = [10 * (end - begin) for begin, end in zip([0, *ends], ends, strict=False)]
    lengths[-1] += round(1000 * hold)
    with atomic_file(path) as beside:
        first, *rest = drawn
        first.save(
            beside, format="GIF", save_all=True, append_images=rest, duration=lengths, loop=0
        )


def _in_colours(picture: Image, colours: Image) -> Image:
    """A picture in the palette of another one; its ground, which a palette of averages changes a
    little, stays as it is.
    """
    from PIL import Image

    pixels = np.asarray(picture)
    codes = np.array(picture.quantize(palette=colours, dither=Image.Dither.NONE))
    palette = np.array(colours.getpalette()).reshape(-1, 3)
    place = np.abs(palette - pixels[0, 0]).sum(axis=1).argmin()
    palette[place] = pixels[0, 0]
    codes[(pixels == pixels[0, 0]).all(axis=2)] = place
    coded = Image.fromarray(codes)
    coded.putpalette(palette.astype(np.uint8).tobytes())
    return coded


def _write_mp4(path: Path, pictures: _Pictures, fps: float, hold: float) -> None:
    import imageio_ffmpeg

    rate: Any = fps  # a fraction is fine, whatever the annotation says
    # the file has another name while it is written
    options = ["-f", "mp4", "-movflags", "+faststart"]
    with atomic_file(path) as beside:
        size = pictures.draw(0).size
        writer = imageio_ffmpeg.write_frames(
            str(beside), size, fps=rate, macro_block_size=2, output_params=options
        )
        with closing(writer) as film:
            film.send(None)
            content = b""
            for picture in pictures:
                content = picture.tobytes()
                film.send(content)
            for _ in range(round(hold * fps)):
                film.send(content)
