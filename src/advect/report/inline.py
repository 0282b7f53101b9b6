"""A page inside a notebook: in a frame of its own, which may run its player and nothing else."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from typing import Any

from advect.report.page import render, told
from advect.report.runs import runs_page
from advect.report.scene import gather


@dataclass(frozen=True)
class InlineReport:
    """The page of a flow, which a notebook shows.

    Args:
        text: the page.
        height: of the frame, in pixels.

    Example:
        >>> InlineReport("<p>a page</p>")._repr_html_()[:20]
        '<iframe sandbox="all'
    """

    text: str = field(repr=False)
    height: int = 900

    def _repr_html_(self) -> str:
        style = f"width: 100%; height: {self.height}px; border: 0"
        page = html.escape(self.text, quote=True)
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{page}"></iframe>'


def inline_report(result: Any, **options: Any) -> InlineReport:
    """The report of a flow for a notebook; options are those of ``write_report``.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[4.0], [8.0]], ["a", "b"])
        >>> inline_report(ad.flow(data, ad.Potential(ad.norm()), n_steps=3))
        InlineReport(height=900)
    """
    return InlineReport(render(gather(told(result, **options))))


def inline_runs(runs: Any, **options: Any) -> InlineReport:
    """Several flows side by side for a notebook; options are those of ``write_runs_report``.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[4.0], [8.0]], ["a", "b"])
        >>> short, long = (ad.flow(data, ad.Potential(ad.norm()), n_steps=n) for n in (2, 4))
        >>> inline_runs([short, long])
        InlineReport(height=900)
    """
    return InlineReport(runs_page(runs, **options))
