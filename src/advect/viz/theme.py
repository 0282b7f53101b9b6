"""The look of figures (colours, markers and text sizes, light and dark), and figures as files."""

from __future__ import annotations

import io
import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from advect._util.atomic import write_atomically
from advect._util.checks import check_positive, refuse_if

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMALL, TEXT = 7.5, 9.0  # points: ticks, legends and cells; titles and labels of axes
_CHARACTER = 0.6  # width of an average character, in units of its size
_MAX_LEGEND = 40  # entries of a legend

# Six colours of Okabe and Ito and four more. Readers with any kind of colour blindness can tell all
# ten apart (distance at least 16 in CIELAB; 11 for the dark ones), and each contrasts with its ground.
# fmt: off
PALETTE = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00",
           "#56B4E9", "#1A1A1A", "#BBC169", "#4A2F73", "#68400C")
_DARK_PALETTE = ("#F0682C", "#3A8EE0", "#1CC68E", "#E57FB3", "#FFB000",
                 "#74C7F7", "#F6F6F6", "#EDF08A", "#8450E8", "#96604A")
# fmt: on
_HEAT = ("#F4F8FC", "#C6DBEF", "#6BAED6", "#2171B5", "#08306B")
_DARK_HEAT = ("#1C242E", "#1F4468", "#2F78B7", "#6DB4EA", "#CBE6FC")
MARKERS = ("o", "^", "s", "D", "v", "P", "X", "*")


@dataclass(frozen=True)
class Look:
    """The colours of one ground: ``ink`` for text, ``line`` for axes, ``grey`` for no class."""

    ground: str
    ink: str
    line: str
    grid: str
    grey: str
    palette: tuple[str, ...]
    heat: tuple[str, ...]


LIGHT = Look("#FFFFFF", "#262626", "#B8B8B8", "#E6E6E6", "#8A8A8A", PALETTE, _HEAT)
DARK = Look("#14171C", "#E4E6EA", "#5A616C", "#2B3038", "#8E959F", _DARK_PALETTE, _DARK_HEAT)

_look: ContextVar[Look] = ContextVar("look", default=LIGHT)


@contextmanager
def style(*, dark: bool = False) -> Iterator[None]:
    """Set the colours of the figures drawn inside the block.

    Args:
        dark: colours for dark pages; by default for light pages and print.

    Example:
        >>> import advect as ad
        >>> from advect import viz
        >>> with viz.style(dark=True):
        ...     figure = viz.particles([ad.datasets.moons(20)])
        >>> sum(figure.get_facecolor()[:3]) < 0.5
        True
    """
    token = _look.set(DARK if dark else LIGHT)
    try:
        yield
    finally:
        _look.reset(token)


def look() -> Look:
    """The look in force."""
    return _look.get()


class Mark(NamedTuple):
    """Colour and marker of a class."""

    colour: str
    marker: str


def class_marks(names: Iterable[Hashable]) -> dict[Hashable, Mark]:
    """A mark for each name: ten colours, then the same colours nearer to the ink with another
    marker, and so on.
    """
    palette, marks = look().palette, {}
    for position, name in enumerate(dict.fromkeys(names)):
        turn, place = divmod(position, len(palette))
        colour = _mixed(palette[place], look().ink, (0.0, 0.35)[turn % 2])
        marks[name] = Mark(colour, MARKERS[turn % len(MARKERS)])
    return marks


def _mixed(colour: str, other: str, share: float) -> str:
    pairs = ((int(colour[i : i + 2], 16), int(other[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round((1 - share) * a + share * b):02X}" for a, b in pairs)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches, on the ground of the look."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained", facecolor=look().ground)


def dress(axes: Any, *, grid: bool = False, bare: bool = False) -> None:
    """Set the colours and sizes of axes; ``grid`` adds grid lines, ``bare`` omits ticks and spines."""
    now = look()
    axes.set_facecolor(now.ground)
    axes.tick_params(color=now.line, labelcolor=now.ink, labelsize=SMALL, width=0.7, length=2.5)
    axes.tick_params(which="minor", color=now.line, width=0.5, length=1.5)
    axes.spines[:].set(color=now.line, linewidth=0.7)
    for text in (axes.title, axes.xaxis.label, axes.yaxis.label):
        text.set(fontsize=TEXT, color=now.ink)
    if grid:
        axes.set_axisbelow(True)
        axes.grid(color=now.grid, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    if bare:
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)


def short(name: object, length: int = 18) -> str:
    """A name of at most ``length`` characters, shortened in its middle; never read as a formula.

    Example:
        >>> short("fashion-mnist, first half", 15), short(7), short("$x$")
        ('fashion-m… half', '7', '\\\\$x\\\\$')
    """
    text = " ".join(str(name).split()) or repr(name)
    if len(text) > length:
        tail = length // 3
        text = f"{text[: length - 1 - tail]}…{text[len(text) - tail :]}"
    return text.replace("$", r"\$")


def class_label(name: Hashable) -> str:
    """The name of a class in a legend: a word stands for itself, 3 becomes "class 3"."""
    word = isinstance(name, str) and not name.strip().isdigit()
    return short(name if word else f"class {name}")


def text_width(texts: Iterable[str], size: float = SMALL) -> float:
    """The approximate width of the widest text, in inches."""
    return max((len(text) for text in texts), default=0) * _CHARACTER * size / 72


def add_legend(figure: Any, handles: Sequence[Any]) -> None:
    """A legend below the panels, for which the figure grows."""
    from matplotlib.lines import Line2D

    if not handles:
        return
    if (more := len(handles) - _MAX_LEGEND) > 0:
        handles = [*handles[:_MAX_LEGEND], Line2D([], [], linestyle="none", label=f"… {more} more")]
    width, height = figure.get_size_inches()
    entry = text_width([handle.get_label() for handle in handles]) + 0.35
    lines = math.ceil(len(handles) / max(1, int((width - 0.2) / entry)))
    columns = math.ceil(len(handles) / lines)
    figure.set_size_inches(max(width, entry + 0.2), height + 0.19 * lines)
    text = {"fontsize": SMALL, "labelcolor": look().ink, "frameon": False, "ncols": columns}
    spaces = {"handletextpad": 0.5, "columnspacing": 1.0, "borderpad": 0.2}
    figure.legend(handles=handles, loc="outside lower center", **text, **spaces)


def save(figure: Figure, path: str | Path, *, dpi: float = 150) -> Path:
    """Write a figure atomically in the format of the suffix; missing folders are created.

    The background is never transparent.

    Example:
        >>> import tempfile, pathlib, numpy as np, advect as ad
        >>> from advect.data.class_table import ClassTable
        >>> from advect import viz
        >>> figure = viz.class_table(ClassTable(np.eye(2), ("a", "b"), ("a", "b")))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     viz.save(figure, pathlib.Path(folder) / "new" / "table.png").name
        'table.png'
    """
    path, dpi = Path(path), check_positive("dpi", dpi)
    known = figure.canvas.get_supported_filetypes()
    kind, remedy = path.suffix.removeprefix(".").lower(), f"Use {', '.join(sorted(known))}."
    refuse_if(kind not in known, "a figure needs the suffix of a format", repr(path.name), remedy)
    figure.draw_without_rendering()  # the layout of the first pass is only nearly right
    content = io.BytesIO()
    ground = figure.get_facecolor()
    figure.savefig(content, format=kind, dpi=dpi, facecolor=ground, transparent=False)
    write_atomically(path, content.getvalue())
    return path


_rc_lock = Lock()


def to_svg(figure: Figure) -> str:
    """A figure as inline SVG with text as text; matplotlib escapes every name."""
    import matplotlib

    content = io.BytesIO()
    with _rc_lock, matplotlib.rc_context({"svg.fonttype": "none"}):
        figure.savefig(content, format="svg", bbox_inches="tight", metadata={"Date": None})
    text = content.getvalue().decode()
    return text[text.index("<svg") :]
