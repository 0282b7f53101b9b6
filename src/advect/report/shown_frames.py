"""Which frames and samples of a flow are shown: all, or as many as fit, evenly spaced in time and
drawn at random.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from advect.data.dataset import LabeledDataset
from advect.datasets.trajectory import Frame
from advect.errors import DamageWarning, InputError
from advect.report.encoding import pack_integers
from advect.report.story import Story
from advect.viz.states import names_of, some_rows, spread
from advect.viz.theme import class_marks, style

MOST_FRAMES, MOST_SAMPLES = 60, 2000
NO_CLASS = 65535  # where a label is missing, or is not one of the flow's


@dataclass(frozen=True)
class Part:
    """Some samples of a dataset and their positions in it."""

    data: LabeledDataset
    rows: Tensor


def thinned(data: LabeledDataset, what: str, notes: list[str]) -> Part:
    """A dataset with as many samples as a page shows; a note says so where that is not all."""
    rows = torch.tensor(some_rows(len(data), MOST_SAMPLES, seed=0))
    if len(data) > MOST_SAMPLES:
        notes.append(
            f"Of {what}, {len(rows):,} of {len(data):,} samples were drawn at random to be shown; "
            "couplings and class "
            "distances are those of the drawn samples."
        )
    return Part(_take(data, rows), rows)


class Frames:
    """The shown frames of a story, read one at a time.

    Attributes:
        rows: which samples are shown.  n_all: of how many.
        before, after: the shown samples before the flow and at its last frame.
        steps, values, names, codes: of the frames that ``read`` has passed: step numbers,
            objectives, names of classes in order of appearance, and the class of each sample
            (frames, n), a single row where labels never change.
    """

    def __init__(self, story: Story, notes: list[str]) -> None:
        total = len(story.trajectory)
        self._all = story.trajectory
        self._chosen = spread(total, MOST_FRAMES)
        if len(self._chosen) < total:
            notes.append(
                f"Of {total:,} recorded frames, {len(self._chosen)} are shown, evenly spaced."
            )
        self._notes = notes
        first = self._sound(range(total)).dataset.to("cpu")
        part = thinned(first, "the flow", notes)
        self.rows, self.n_all = part.rows, len(first)
        known = story.source
        self.before = (
            part.data
            if known is None or len(known) != len(first)
            else _take(known.to("cpu"), self.rows)
        )
        self.after = self._shown(self._sound(reversed(range(total))))
        self.steps: list[int] = []
        self.values: list[float] = []
        self.names: list[Hashable] = []
        self._labels: list[list[Hashable]] = []

    def read(self) -> Iterator[LabeledDataset]:
        """The dataset of each shown frame."""
        known: dict[Hashable, None] = {}
        for position in self._chosen:
            frame = self._read(position)
            if frame is None:
                continue
            data = self._shown(frame)
            self.steps.append(frame.index)
            self.values.append(frame.value)
            known |= dict.fromkeys(names_of([data]))
            self._labels.append(data.labels)
            yield data
        self.names = list(known)

    def _sound(self, positions: Iterable[int]) -> Frame:
        """The first of some frames that is not damaged."""
        for position in positions:
            if (frame := self._read(position)) is not None:
                return frame
        raise InputError(
            "all frames are damaged", f"{len(self._all)} of them", "Take the run from a copy."
        )

    def _read(self, position: int) -> Frame | None:
        """A frame; None for one that is damaged, which is said once."""
        try:
            return self._all[position]
        except InputError as error:
            if (note := f"A frame is left out: {error}") not in self._notes:
                self._notes.append(note)
                warnings.warn(note, DamageWarning, stacklevel=2)
            return None

    def _shown(self, frame: Frame) -> LabeledDataset:
        data = frame.dataset.to("cpu")
        if len(data) != self.n_all:
            raise InputError(
                "frames must hold the same samples",
                f"{self.n_all} and then {len(data)}",
                "Report the frames of one flow.",
            )
        return _take(data, self.rows)

    @property
    def moving(self) -> bool:
        """Whether labels change along the flow."""
        return any(labels != self._labels[0] for labels in self._labels)

    @property
    def codes(self) -> np.ndarray:
        kept = self._labels if self.moving else self._labels[:1]
        return np.stack([codes_of(labels, self.names) for labels in kept])

    def counts(self) -> list[list[int]]:
        """Samples of each class at each shown frame, (classes, frames)."""
        codes = self.codes
        return [(codes == code).sum(axis=1).tolist() for code in range(len(self.names))]

    def packed(self) -> dict[str, object]:
        """Classes and origins of the samples, for the player."""
        return {
            "codes": pack_integers(self.codes, "<u2"),
            "moving": self.moving,
            "origin": pack_integers(self.rows.numpy(), "<u4"),
            "classes": [str(name) for name in self.names],
            "marks": self._marks(),
        }

    def _marks(self) -> dict[str, list[str]]:
        """Colours of the classes on a light and on a dark page, and their markers, as in the
        figures of ``viz``.
        """
        with style(dark=True):
            dark = class_marks(self.names).values()
        with style():
            light = class_marks(self.names).values()
        return {
            "light": [mark.colour for mark in light],
            "dark": [mark.colour for mark in dark],
            "shapes": [mark.marker for mark in light],
        }


def codes_of(labels: list[Hashable], names: list[Hashable]) -> np.ndarray:
    """The position of each label among names; ``NO_CLASS`` for those that are not there.

    Example:
        >>> codes_of(["b", None], ["a", "b"]).tolist()
        [1, 65535]
    """
    order = {name: position for position, name in enumerate(names)}
    return np.array([order.get(name, NO_CLASS) for name in labels])


def _take(data: LabeledDataset, rows: Tensor) -> LabeledDataset:
    return data if len(rows) == len(data) else data.subset(rows)
