"""A recorded frame of a flow as a dataset, in the units of the source or the target.

A flow runs in the feature space common to source and target. A run of the command line stores that
space as ``space.json``; it maps frames back to the units, size and columns of either side."""

from __future__ import annotations

import json
import os
import re
import warnings

from advect._util import InputError, check_known, refuse_if
from advect.data.dataset import LabeledDataset
from advect.io import formats as files
from advect.io.formats.guard import damaged, read_text, reading
from advect.io.logs import recover_run
from advect.io.trajectory import Trajectory
from advect.spaces import FeatureSpace

UNITS = ("source", "target", "common")
_FRAME = re.compile(r"(?P<directory>.*)@(?P<number>-?\d+)", re.DOTALL | re.ASCII)


def open_frame(path: str, units: str | None = None) -> LabeledDataset:
    """A frame of a run by position; by default the last."""
    if units is not None:
        check_known("units", units, UNITS)
    match = None if os.path.exists(os.path.expanduser(path)) else _FRAME.fullmatch(path)
    name, number = (path, -1) if match is None else (match["directory"], int(match["number"]))
    directory = files.as_path(name)
    recover_run(directory)
    with reading(directory, "a run", ValueError, KeyError, TypeError):
        trajectory = Trajectory.open(directory)
        steps = trajectory.indices
        if not steps:
            raise damaged(directory, "a run", "it has no complete frame")
        refuse_if(
            not -len(steps) <= number < len(steps),
            f"frames of {directory} have positions from {-len(steps)} to {len(steps) - 1}",
            number,
            "Name one of these.",
        )
        frame = trajectory[number].dataset
    place, space = directory / "space.json", None
    if place.exists():
        with reading(place, "a saved feature space", ValueError):
            facts = json.loads(read_text(place))
        try:
            space = FeatureSpace.from_dict(facts)
        except InputError as error:
            raise InputError(f"{place}: {error.what}", error.got, error.remedy) from None
    elif units != "common":  # without its space, the units of a frame are unknown
        config = directory / "config.toml"
        refuse_if(
            config.is_file() and b"target" in config.read_bytes(),
            "the run had a feature space, and its space.json is missing",
            directory,
            "Restore it from a copy. Or read the features of the flow: ?units=common.",
        )
    return in_units(frame, space, units or "source", directory)


def in_units(
    frame: LabeledDataset, space: FeatureSpace | None, units: str, where: object
) -> LabeledDataset:
    """A dataset in the units of one side; pixels of images stay in the range of the frame."""
    if units == "common" or (space is None and units == "source"):
        scaled = units == "common" and (space is None or space.kinds("source"))
        return frame.replace(table=frame.table.without_kinds) if scaled and frame.table else frame
    if space is None:
        raise InputError(
            "without a feature space there are no units",
            f"units={units} of {where}",
            "Leave units out.",
        )
    back = space.invert(frame.replace(law=None, law_index=None), side=units)
    kinds = space.kinds(units)
    if frame.law is not None and not kinds:
        back = back.replace(law=frame.to(dtype=back.x.dtype).law, law_index=frame.law_index)
    elif frame.law is not None:
        _warn(f"the label laws of {where} are in the space of the flow, so they are not read")
    if kinds == ("pixels",):
        low, high = frame.x.aminmax()
        back = back.replace(x=back.x.clamp(low.to(back.x.dtype), high.to(back.x.dtype)))
    if dropped := set(space.dropped(units)):  # columns that are not part of the flow
        rest = [at for at, name in enumerate(back.columns or ()) if name not in dropped]
        names = [(back.columns or ())[at] for at in rest]
        back = back.replace(x=back.x[:, rest], sample_shape=(len(rest),), columns=names)
        few = ", ".join(sorted(dropped)[:8])
        _warn(
            f"columns that exist only in the {units} were not part of the flow and are dropped: {few}"
        )
    if "project" in kinds:
        _warn(f"samples of {where} in the units of the {units} are approximations")
    return back


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=4)
