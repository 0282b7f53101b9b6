"""How figures look: grounds, class colours and markers, sizes of text; all of it, for light and for
dark pages.

A look holds for the figures that are drawn inside ``with style(...)``; no matplotlib setting is
read or changed."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from advect.errors import AdvectError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMALL, TEXT = 7.5, 9.0  # points: ticks, legends and cells; titles and labels of axes
_CHARACTER = 0.6  # width of an average character, in units of its size

# Six of Okabe and Ito's colours and four more, chosen so that readers with any kind of colour
# blindness tell all ten apart (at least 16 in CIELAB; 11 for those on dark) and that each shows on
# its ground.
PALETTE = (
    "#D55E00",
    "#0072B2",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#1A1A1A",
    "#BBC169",
    "#4A2F73",
    "#68400C",
)
_ON_DARK = (
    "#F0682C",
    "#3A8EE0",
    "#1CC68E",
    "#E57FB3",
    "#FFB000",
    "#74C7F7",
    "#F6F6F6",
    "#EDF08A",
    "#8450E8",
    "#96604A",
)
_HEAT = (
    "#F4F8FC",
    "#C6DBEF",
    "#6BAED6",
    "#2171B5",
    "#08306B",
)  # from the ground to what stands out from it
_HEAT_ON_DARK = ("#1C242E", "#1F4468", "#2F78B7", "#6DB4EA", "#CBE6FC")
MARKERS = ("o", "^", "s", "D", "v", "P", "X", "*")
_HATCHES = ("", "////", "\\\\\\\\", "xxxx", "....", "++++", "----", "oooo")


@dataclass(frozen=True)
class Look:
    """The colours of one ground: ``ink`` for text, ``line`` for axes, ``grey`` for what has no
    class of its own.
    """

    ground: str
    ink: str
    line: str
    grid: str
    grey: str
    pane: str
    palette: tuple[str, ...]
    heat: tuple[str, ...]


LIGHT = Look("#FFFFFF", "#262626", "#B8B8B8", "#E6E6E6", "#8A8A8A", "#F7F7F7", PALETTE, _HEAT)
DARK = Look(
    "#14171C", "#E4E6EA", "#5A616C", "#2B3038", "#8E959F", "#1B1F26", _ON_DARK, _HEAT_ON_DARK
)

_look: ContextVar[Look] = ContextVar("look", default=LIGHT)


@contextmanager
def style(*, dark: bool = False) -> Iterator[None]:
    """The look of figures drawn inside: for dark pages, or for light ones and print, which is the
    default.

    Example:
        >>> import advect as ad
        >>> from advect import viz
        >>> with viz.style(dark=True):
        ...     figure = viz.particles([ad.datasets.moons(20)])
        >>> sum(figure.get_facecolor()[:3]) < 0.5, sum(viz.particles([ad.datasets.moons(20)]).get_facecolor()[:3])
        (True, 3.0)
    """
    token = _look.set(DARK if dark else LIGHT)
    try:
        yield
    finally:
        _look.reset(token)


def look() -> Look:
    """The look in force."""
    return _look.get()


@dataclass(frozen=True)
class Mark:
    """How a class is drawn: as points by colour and marker, as an area by colour and hatch."""

    colour: str
    marker: str
    hatch: str


def class_marks(names: Iterable[Hashable]) -> dict[Hashable, Mark]:
    """A mark for each name in order: ten colours, then the same ones nearer to the ink with another
    marker, and so on.
    """
    palette, marks = look().palette, {}
    for position, name in enumerate(dict.fromkeys(names)):
        turn, place = divmod(position, len(palette))
        kind = turn % len(MARKERS)
        marks[name] = Mark(
            _mixed(palette[place], look().ink, (0.0, 0.35)[turn % 2]), MARKERS[kind], _HATCHES[kind]
        )
    return marks


def _mixed(colour: str, other: str, share: float) -> str:
    pairs = ((int(colour[i : i + 2], 16), int(other[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round((1 - share) * a + share * b):02X}" for a, b in pairs)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of its own, in inches, on the ground of the look."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise AdvectError(
            "drawing needs matplotlib; install it with pip install matplotlib"
        ) from None
    return Figure(figsize=(width, height), layout="constrained", facecolor=look().ground)


def dress(axes: Any) -> None:
    """Axes, ticks and texts in the colours and sizes of the look."""
    now = look()
    axes.set_facecolor(now.ground)
    axes.tick_params(color=now.line, labelcolor=now.ink, labelsize=SMALL, width=0.7, length=2.5)
    axes.tick_params(which="minor", color=now.line, width=0.5, length=1.5)
    axes.spines[:].set(color=now.line, linewidth=0.7)
    for text in (axes.title, axes.xaxis.label, axes.yaxis.label):
        text.set(fontsize=TEXT, color=now.ink)


def heat_colours() -> Any:
    """The colour map of heat maps."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("heat", look().heat)


def short(name: object, most: int = 18) -> str:
    """A name as text of at most so many characters, its middle left out if it is longer; never read
    as a formula.

    Example:
        >>> short("fashion-mnist, first half", 15), short(7), short("$x$")
        ('fashion-m… half', '7', '\\\\$x\\\\$')
    """
    text = " ".join(str(name).split()) or repr(name)
    if len(text) > most:
        tail = most // 3
        text = f"{text[: most - 1 - tail]}…{text[len(text) - tail :]}"
    return text.replace("$", r"\$")


def text_width(texts: Iterable[str], size: float = SMALL) -> float:
    """About how wide the widest of some texts is, in inches."""
    return max((len(text) for text in texts), default=0) * _CHARACTER * size / 72


def add_legend(figure: Any, handles: Sequence[Any]) -> None:
    """A legend outside the axes, for which the figure grows: below them if short, in columns to
    their right if long.
    """
    if not handles:
        return
    most = 60
    if len(handles) > most:
        from matplotlib.lines import Line2D

        handles = [
            *handles[: most - 1],
            Line2D([], [], linestyle="none", label=f"… {len(handles) - most + 1} more"),
        ]
    width, height = figure.get_size_inches()
    entry = text_width([handle.get_label() for handle in handles]) + 0.35
    if len(handles) <= 12:
        fit = max(1, min(len(handles), int((width - 0.2) / entry)))
        columns = math.ceil(len(handles) / math.ceil(len(handles) / fit))
        place, width, height = (
            "outside lower center",
            max(width, entry + 0.2),
            height + 0.19 * math.ceil(len(handles) / columns),
        )
    else:
        columns = math.ceil(len(handles) / max(1, int((height - 0.3) / 0.17)))
        place, width = "outside right upper", width + entry * columns + 0.1
    figure.set_size_inches(width, height)
    options = {
        "loc": place,
        "ncols": columns,
        "frameon": False,
        "fontsize": SMALL,
        "labelcolor": look().ink,
    }
    figure.legend(handles=handles, handletextpad=0.5, columnspacing=1.0, borderpad=0.2, **options)
