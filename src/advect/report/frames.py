"""The data of a flow that a page shows, from its result or its run directory: frames and samples, thinned
if there are too many.
"""

from __future__ import annotations

import base64
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from advect._util import DamageWarning, InputError, refuse_if
from advect.cost import GroundCost
from advect.data.dataset import LabeledDataset
from advect.flows.loop import FlowResult
from advect.io.formats.guard import read_text
from advect.io.logs import is_metric, read_lines
from advect.io.trajectory import Frame, Trajectory
from advect.viz.states import Curve, curves_of, names_of, others, some_rows, spread
from advect.viz.theme import DARK, LIGHT, class_marks

_MAX_FRAMES, _MAX_SAMPLES = 60, 2000
_NO_CLASS = 65535  # missing labels, and classes that the flow does not have


def pack_integers(values: np.ndarray, kind: str) -> str:
    """Integers of a kind such as ``"<i2"`` as base64, in little-endian order.

    Example:
        >>> pack_integers(np.array([1, -1]), "<i2")
        'AQD//w=='
    """
    return base64.b64encode(np.ascontiguousarray(values, dtype=np.dtype(kind)).tobytes()).decode()


def thinned(data: LabeledDataset, what: str, notes: list[str]) -> tuple[LabeledDataset, Tensor]:
    """At most as many samples as a page shows, with their positions; a note says if it is a part."""
    rows = torch.tensor(some_rows(len(data), _MAX_SAMPLES))
    if len(data) > _MAX_SAMPLES:
        notes.append(
            f"Of {what}, a random sample of {len(rows):,} of {len(data):,} is shown; class distances "
            "are those of the sample."
        )
    return _take(data, rows), rows


class Frames:
    """The shown frames of a story, read one at a time; damaged frames are left out with a note.

    Attributes:
        rows, n_all: the samples that are shown, and how many there are.
        before, after: the shown samples at the first and the last frame.
        steps, values, names: of the frames that ``read`` has passed: step numbers, objectives, and
            names of classes in order of appearance.
    """

    def __init__(self, story: Story, notes: list[str]) -> None:
        total = len(story.trajectory)
        self._trajectory, self._notes = story.trajectory, notes
        self._chosen = spread(total, _MAX_FRAMES)
        if len(self._chosen) < total:
            notes.append(f"{len(self._chosen)} of {total:,} recorded frames are shown.")
        first = next(self._sound(range(total)), None)
        last = next(self._sound(reversed(range(total))), first)
        if first is None or last is None:
            raise InputError("all frames are damaged", total, "Restore the run from a copy.")
        data = first.dataset.to("cpu")
        (self.before, self.rows), self.n_all = thinned(data, "the flow", notes), len(data)
        self.after = self._shown(last)
        self.steps, self.values, self.names, self._labels = [], [], [], []

    def read(self) -> Iterator[LabeledDataset]:
        """The dataset of each shown frame."""
        for frame in self._sound(self._chosen):
            data = self._shown(frame)
            self.steps.append(frame.index)
            self.values.append(frame.value)
            self.names = list(dict.fromkeys([*self.names, *names_of([data])]))
            self._labels.append(data.labels)
            yield data

    def _sound(self, positions: Iterable[int]) -> Iterator[Frame]:
        """The frames that are not damaged."""
        for position in positions:
            try:
                yield self._trajectory[position]
            except InputError as error:
                note = f"A frame is left out: {error}"
                if note not in self._notes:
                    self._notes.append(note)
                    warnings.warn(note, DamageWarning, stacklevel=2)

    def _shown(self, frame: Frame) -> LabeledDataset:
        data = frame.dataset.to("cpu")
        same, got = len(data) == self.n_all, f"{self.n_all} and then {len(data)}"
        refuse_if(not same, "frames must have the same samples", got, "Take them from one flow.")
        return _take(data, self.rows)

    def packed(self) -> dict[str, object]:
        """Classes, their marks and the positions of the samples, for the player."""
        codes = np.stack([codes_of(labels, self.names) for labels in self._labels])
        moving = bool((codes != codes[0]).any())  # otherwise one row is enough
        light, dark = (list(class_marks(self.names, look).values()) for look in (LIGHT, DARK))
        return {
            "codes": pack_integers(codes if moving else codes[:1], "<u2"),
            "moving": moving,
            "origin": pack_integers(self.rows.numpy(), "<u4"),
            "classes": [str(name) for name in self.names],
            "marks": {
                "light": [mark.colour for mark in light],
                "dark": [mark.colour for mark in dark],
                "shapes": [mark.marker for mark in light],
            },
        }


def codes_of(labels: list[Hashable], names: list[Hashable]) -> np.ndarray:
    """The position of each label among names; 65535 for other labels.

    Example:
        >>> codes_of(["b", None], ["a", "b"]).tolist()
        [1, 65535]
    """
    order = {name: position for position, name in enumerate(names)}
    return np.array([order.get(name, _NO_CLASS) for name in labels])


def _take(data: LabeledDataset, rows: Tensor) -> LabeledDataset:
    return data if len(rows) == len(data) else data.subset(rows)


@dataclass(frozen=True, eq=False)
class Story:
    """The content of a report. Only the frames are required.

    Attributes:
        trajectory: the recorded frames, in order.
        target: the dataset that the flow moves to.
        objective: (step, value) pairs; by default the values of the frames.
        terms, metrics: named curves of such pairs.
        status, message, diagnosis: how the flow ended, and its notes.
        n_steps, seconds: by default the step of the last frame, and unknown.
        setup: what was run, by name.
        cost: how classes are compared on the page.
        names: of source and target.
        title, config, command: texts of the page.
        pictures: maps features of images to images.
        refresh: seconds after which the page loads itself again; None for a page that is complete.
    """

    trajectory: Trajectory | Sequence[Frame]
    target: LabeledDataset | None = None
    objective: Curve = ()
    terms: Mapping[str, Curve] = field(default_factory=dict)
    metrics: Mapping[str, Curve] = field(default_factory=dict)
    status: str = "recorded"
    message: str = ""
    diagnosis: Sequence[str] = ()
    n_steps: int | None = None
    seconds: float | None = None
    setup: Mapping[str, str] = field(default_factory=dict)
    cost: GroundCost = field(default_factory=GroundCost)
    names: tuple[str, str] = ("source", "target")
    title: str | None = None
    config: str | None = None
    command: str | None = None
    pictures: Callable[[LabeledDataset], LabeledDataset] | None = None
    refresh: int | None = None

    def __post_init__(self) -> None:
        others(self.target)
        refuse_if(
            not len(self.trajectory),
            "a report needs recorded frames",
            "none",
            "Run the flow with callbacks=[ad.Recorder(every=…)], then report it.",
        )

    @classmethod
    def of_result(cls, result: FlowResult) -> Story:
        """The story of a flow in memory."""
        objective, terms, metrics = curves_of(result)
        return cls(
            result.trajectory,
            target=result.target,
            objective=objective,
            terms=terms,
            metrics=metrics,
            status=result.status,
            message=result.message,
            diagnosis=[str(note) for note in result.notes],
            n_steps=result.n_steps,
            seconds=result.seconds[-1],
            setup=_setup(result),
            cost=result.options.get("cost", GroundCost()),
        )

    @classmethod
    def of_run(cls, directory: str | Path) -> Story:
        """The story of a run directory: its frames, ``metrics.jsonl`` and ``config.toml``.

        The objective and its terms come from the lines called "flow" in ``metrics.jsonl``, which the
        command line writes; the objective is otherwise that of the frames."""
        directory = Path(directory)
        trajectory, path = Trajectory.open(directory), directory / "config.toml"
        lines, curves = read_lines(directory / "metrics.jsonl", is_metric), {}
        terms: dict[str, list[tuple[int, float]]] = {}
        for line in lines:
            curves.setdefault(line["name"], []).append((line["index"], line["value"]))
            for name, value in line.get("terms", {}).items() if line["name"] == "flow" else ():
                terms.setdefault(name, []).append((line["index"], value))
        objective = curves.pop("flow", ())
        last = next((line for line in reversed(lines) if line["name"] == "flow"), {})
        return cls(
            trajectory,
            objective=objective,
            terms=terms if len(terms) > 1 else {},
            metrics=curves,
            n_steps=last.get("index"),
            seconds=last.get("seconds"),
            config=read_text(path) if path.exists() else None,
        )


def _setup(result: FlowResult) -> dict[str, str]:
    """The settings of a flow as text; the target of the functional is on the page itself."""
    if result.functional is None:
        return {}
    options = {name: repr(value) for name, value in result.options.items() if value is not None}
    return options | result.settings | {"functional": result.functional.name}
