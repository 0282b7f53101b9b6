"""The sections of ``--help``, in the order in which they are of use: what is compared, how, what moves,
how far, and how a command speaks."""

from __future__ import annotations

from cyclopts import Group

_ORDER = (
    "Feature space",
    "Ground cost",
    "Solver",
    "Dynamics",
    "Integrator",
    "Step control",
    "Stop early",
    "Velocity",
    "Map",
    "Output and settings",
)
SECTIONS = {name: Group(name, sort_key=place) for place, name in enumerate(_ORDER, start=1)}
