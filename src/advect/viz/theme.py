"""The look of figures (colours, markers and text sizes), and figures as files."""

from __future__ import annotations

import io
import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from advect._util import write_atomically

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
HEAT = ("#F4F8FC", "#C6DBEF", "#6BAED6", "#2171B5", "#08306B")
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


# figures are light; pages replace the colours where the reader prefers dark ones
LIGHT = Look("#FFFFFF", "#262626", "#B8B8B8", "#E6E6E6", "#8A8A8A", PALETTE)
DARK = Look("#14171C", "#E4E6EA", "#5A616C", "#2B3038", "#8E959F", _DARK_PALETTE)


class Mark(NamedTuple):
    """Colour and marker of a class."""

    colour: str
    marker: str


def class_marks(names: Iterable[Hashable], look: Look = LIGHT) -> dict[Hashable, Mark]:
    """A mark for each name: ten colours, then the same colours with another marker, and so on."""
    marks = {}
    for position, name in enumerate(dict.fromkeys(names)):
        turn, place = divmod(position, len(look.palette))
        marks[name] = Mark(look.palette[place], MARKERS[turn % len(MARKERS)])
    return marks


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches, on the ground of the look."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained", facecolor=LIGHT.ground)


def dress(axes: Any, *, grid: bool = False, bare: bool = False) -> None:
    """Set the colours and sizes of axes; ``grid`` adds grid lines, ``bare`` omits ticks and spines."""
    axes.set_facecolor(LIGHT.ground)
    ticks = {"color": LIGHT.line, "labelcolor": LIGHT.ink, "labelsize": SMALL}
    axes.tick_params(which="both", width=0.7, length=2.5, **ticks)
    axes.spines[:].set(color=LIGHT.line, linewidth=0.7)
    for text in (axes.title, axes.xaxis.label, axes.yaxis.label):
        text.set(fontsize=TEXT, color=LIGHT.ink)
    if grid:
        axes.set_axisbelow(True)
        axes.grid(color=LIGHT.grid, linewidth=0.6)
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
    text = {"fontsize": SMALL, "labelcolor": LIGHT.ink, "frameon": False, "ncols": columns}
    spaces = {"handletextpad": 0.5, "columnspacing": 1.0, "borderpad": 0.2}
    figure.legend(handles=handles, loc="outside lower center", **text, **spaces)


def save(figure: Figure, path: str | Path, *, dpi: float = 150) -> Path:
    """Write a figure atomically in the format of the suffix; missing folders are created.

    Example:
        >>> import tempfile, pathlib, numpy as np, advect as ad
        >>> from advect.data.class_table import ClassTable
        >>> from advect import viz
        >>> figure = viz.class_table(ClassTable(np.eye(2), ("a", "b"), ("a", "b")))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     viz.save(figure, pathlib.Path(folder) / "new" / "table.png").name
        'table.png'
    """
    path, content = Path(path), io.BytesIO()
    figure.draw_without_rendering()  # the layout of the first pass is only nearly right
    figure.savefig(content, format=path.suffix.removeprefix(".").lower(), dpi=dpi)
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
