"""A recorded frame of a flow as a dataset, in the units that the user knows.

A flow runs in the feature space common to source and target. The run that the command line makes
has that space beside its frames (``space.json``): by it frames go back to the units, size and
columns of the source, or of the target."""

from __future__ import annotations

import json
import os
import re
import tomllib
import warnings
from pathlib import Path
from typing import Any

from advect._util.checks import check_known
from advect.data import formats as files
from advect.data.dataset import LabeledDataset
from advect.data.formats.guard import damaged, read_text, reading
from advect.data.spaces import FeatureSpace
from advect.data.spaces.columns import listed
from advect.datasets.trajectory import Trajectory
from advect.errors import InputError

UNITS = ("source", "target", "common")
_FRAME = re.compile(r"(?P<directory>.*)@(?P<by>step=)?(?P<number>-?\d+)", re.DOTALL | re.ASCII)


def open_frame(path: str, units: str | None) -> LabeledDataset:
    """A frame of a run by position, from the end if negative, or by step; else the last."""
    if units is not None:
        check_known("units", units, UNITS)
    match = None if os.path.exists(os.path.expanduser(path)) else _FRAME.fullmatch(path)
    directory, number = (path, -1) if match is None else (match["directory"], int(match["number"]))
    directory = os.path.expanduser(directory)
    with reading(files.as_path(directory), "a run", ValueError, KeyError, TypeError):
        trajectory = Trajectory.open(directory)
        steps = trajectory.indices
        if not steps:
            raise damaged(files.as_path(directory), "a run", "no whole frame is left")
        if match is not None and match["by"]:
            if number not in steps:
                raise InputError(
                    f"no frame of step {number} in {directory}",
                    _listed(steps),
                    "Ask for one of these.",
                )
            frame = trajectory[steps.index(number)].dataset
        elif -len(steps) <= number < len(steps):
            frame = trajectory[number].dataset
        else:
            raise InputError(
                f"frames of {directory} have positions from {-len(steps)} to {len(steps) - 1}",
                number,
                "Ask for one of these.",
            )
    space = _space(Path(directory))
    if units != "common":
        check_space(Path(directory), "Or ask for the numbers of the flow: ?units=common.")
    return in_units(frame, space, units or "source", directory)


def in_units(
    frame: LabeledDataset, space: FeatureSpace | None, units: str, where: object
) -> LabeledDataset:
    """A dataset in the units of one side; no pixel of an image leaves the frame's range."""
    if units == "common" or (space is None and units == "source"):
        scaled = units == "common" and (space is None or space.changes("source"))
        return frame.replace(table=frame.table.without_kinds) if scaled and frame.table else frame
    if space is None:
        raise InputError(
            "there is no feature space to go back by",
            f"units={units} of {where}",
            "Leave units out.",
        )
    if not space.invertible(units):
        warnings.warn(
            f"{where} is in the features of an encoder, from which there is no way back without a "
            f"decoder: {len(frame)} samples are given as {frame.dim} features, not in the units of "
            f"the {units}",
            stacklevel=3,
        )
        return frame.replace(table=None)
    back = space.invert(frame.replace(law=None, law_index=None), side=units)
    if frame.law is not None and not space.changes(units):
        back = back.replace(law=frame.to(dtype=back.x.dtype).law, law_index=frame.law_index)
    elif frame.law is not None:
        warnings.warn(
            f"the label laws of {where} belong to the space of the flow and are left out: "
            "units=common keeps them",
            stacklevel=3,
        )
    if space.only_resizes(units):
        low, high = frame.x.aminmax()
        back = back.replace(x=back.x.clamp(low.to(back.x.dtype), high.to(back.x.dtype)))
    return _without_inventions(back, space, units, where)


def _without_inventions(
    back: LabeledDataset, space: FeatureSpace, units: str, where: object
) -> LabeledDataset:
    """Leave out columns that the flow never saw, and say where the rest is not the whole."""
    if dropped := set(space.dropped(units)):
        kept = [at for at, name in enumerate(back.columns or ()) if name not in dropped]
        names = [(back.columns or ())[at] for at in kept]
        back = back.replace(x=back.x[:, kept], sample_shape=(len(kept),), columns=names)
        warnings.warn(
            f"columns that only the {units} has were not in the flow and are left out: "
            f"{listed(space.dropped(units))}",
            stacklevel=4,
        )
    if loss := space.loses(units):
        warnings.warn(
            f"{where} has {loss}: what comes back in the units of the {units} is made from "
            "these, and not the samples",
            stacklevel=4,
        )
    return back


def check_space(directory: Path, remedy: str) -> None:
    """An error for a run whose feature space is gone: the units of its frames are unknown."""
    if not (directory / "space.json").exists() and _had_space(directory):
        raise InputError(
            "the units of the frames cannot be given back: the run had a feature space, and its "
            "space.json is missing",
            directory,
            f"Take it from a copy. {remedy}",
        )


def _had_space(directory: Path) -> bool:
    """Whether the run had a target; damaged files say that there was more than frames."""
    try:
        env, config = directory / "env.json", directory / "config.toml"
        digests = json.loads(read_text(env))["digests"] if env.exists() else {}
        options = tomllib.loads(read_text(config)) if config.exists() else {}
        terms = any("target=" in str(term) for term in options.get("functional", ()))
        return (
            "target" in options or terms or any(str(name).startswith("target") for name in digests)
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return True


def _space(directory: Path) -> FeatureSpace | None:
    path = directory / "space.json"
    if not os.path.exists(path):
        return None
    with reading(path, "a saved feature space", ValueError):
        facts = json.loads(read_text(path))
    return space_from(facts, path)


def space_from(facts: object, path: Path, **coders: Any) -> FeatureSpace:
    """The feature space that a file holds, with an encoder and a decoder where it needs them, and
    how their progress is shown; an error names the file.
    """
    try:
        return FeatureSpace.from_dict(facts, folder=path.parent, **coders)
    except InputError as error:
        raise InputError(f"{path}: {error.what}", error.got, error.remedy) from None


def _listed(steps: list[int]) -> str:
    text = ", ".join(map(str, steps))
    return (
        f"steps {text if len(steps) <= 20 else f'{steps[0]} to {steps[-1]}, {len(steps)} of them'}"
    )
