"""The report of a flow: one HTML file that opens anywhere and needs no network. ``from
advect.report import write_report``.

``story`` says what was run, from a result or a run directory; ``scene`` chooses what is shown of
it (``shown_frames``, ``class_tables``, ``pictures``, ``summary``), ``encoding`` turns numbers and
images into text, ``page`` writes the file. The page's own player is ``player.js``, drawn by
``scene.js`` and ``chart.js``; ``runs`` sets several flows side by side. ``labels`` is the page of a
pool that ``ad.apps.label`` labeled, ``matching`` that of a map by flow matching; ``audit``,
``compare``, ``drift`` and ``index`` are those of the questions of these names, ``between`` those of
paths and barycenters, ``transfer``, ``repurpose``, ``pairwise`` and ``sweep`` those of the
applications."""

from advect.report.audit import write_audit_report
from advect.report.between import (
    write_barycenter_report,
    write_path_report,
    write_triangle_report,
)
from advect.report.compare import write_compare_report
from advect.report.drift import write_drift_report
from advect.report.index import write_index_report
from advect.report.inline import InlineReport, inline_report, inline_runs
from advect.report.labels import write_label_report
from advect.report.matching import write_matching_report
from advect.report.page import write_report
from advect.report.pairwise import write_pairwise_report
from advect.report.repurpose import write_repurpose_report
from advect.report.runs import write_runs_report
from advect.report.story import Story
from advect.report.sweep import write_sweep_report
from advect.report.transfer import write_scores_report, write_transfer_report

__all__ = [
    "InlineReport",
    "Story",
    "inline_report",
    "inline_runs",
    "write_audit_report",
    "write_barycenter_report",
    "write_compare_report",
    "write_drift_report",
    "write_index_report",
    "write_label_report",
    "write_matching_report",
    "write_pairwise_report",
    "write_path_report",
    "write_report",
    "write_repurpose_report",
    "write_runs_report",
    "write_scores_report",
    "write_sweep_report",
    "write_transfer_report",
    "write_triangle_report",
]
