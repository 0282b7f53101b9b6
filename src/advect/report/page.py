"""Pages as files: templates filled with escaped text, written atomically."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch

from advect import __version__
from advect._util.atomic import write_atomically
from advect.errors import InputError


def write_text(path: Path, text: str) -> Path:
    """Write a page atomically."""
    try:
        write_atomically(path, text.encode(errors="replace"))  # file names may not be valid text
    except (FileExistsError, NotADirectoryError) as error:
        what = "a parent directory of the report is a file"
        raise InputError(what, error.filename, "Choose another path.") from None
    return path


def page_path(path: str | Path) -> Path:
    """The path of a page, which must end in ``.html`` and must not be a directory."""
    place = Path(path).expanduser()
    if place.is_dir():
        remedy = f"Write to {place / 'report.html'}, for instance."
        raise InputError("a report is a file", f"the directory {place}", remedy)
    if place.suffix.lower() not in (".html", ".htm"):
        raise InputError("a report is an HTML file", repr(place.name), "Use the suffix .html.")
    return place


def fill_template(template: str, **values: Any) -> str:
    """A template of this package with values, every text escaped."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(part),
    )
    return environment.get_template(template).render({"policy": POLICY} | values)


POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'"


@cache
def part(name: str) -> str:
    """The text of a file of this package."""
    return resources.files("advect.report").joinpath(name).read_text(encoding="utf-8")


def made_with() -> dict[str, str]:
    """Versions and time, for the configuration of a page."""
    return {
        "versions": f"advect {__version__}, torch {torch.__version__}, numpy {np.__version__}",
        "written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
