"""Results and flows as HTML pages: one file each, which opens anywhere and needs no network.

``write_page`` writes the page of any result (``result.report(path)`` calls it). ``write_report``
writes the player of a flow, from a result, a run directory or a trajectory.
"""

from advect.report.frames import Story as Story
from advect.report.page import write_page as write_page, write_report as write_report

__all__: list[str] = []  # results have ``report(path)``
