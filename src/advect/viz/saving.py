"""Figures as files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from advect._util.atomic import write_atomically
from advect._util.checks import check_positive
from advect.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save(figure: Figure, path: str | Path, *, dpi: float = 150) -> Path:
    """Write a figure, whole or not at all, in the format that the suffix names; folders on the way
    are made.

    The ground is that of the look the figure was drawn in, never transparent.

    Raises:
        InputError: not a figure, or a suffix that is not of a format.

    Example:
        >>> import tempfile, pathlib, numpy as np, advect as ad
        >>> from advect import viz
        >>> figure = viz.class_table(ad.ClassTable(np.eye(2), ("a", "b"), ("a", "b")))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     viz.save(figure, pathlib.Path(folder) / "new" / "table.png").name
        'table.png'
    """
    if not hasattr(figure, "savefig"):
        raise InputError(
            "only figures can be saved",
            type(figure).__name__,
            "Pass what viz.particles returned, for instance.",
        )
    path, dpi = Path(path), check_positive("dpi", dpi)
    known = figure.canvas.get_supported_filetypes()
    kind = path.suffix.removeprefix(".").lower()
    if kind not in known:
        raise InputError(
            "a figure needs the suffix of a format",
            repr(path.name),
            f"Known: {', '.join(sorted(known))}.",
        )
    figure.draw_without_rendering()  # the layout of the first pass is only nearly right
    content = io.BytesIO()
    figure.savefig(
        content, format=kind, dpi=dpi, facecolor=figure.get_facecolor(), transparent=False
    )
    write_atomically(path, content.getvalue())
    return path
