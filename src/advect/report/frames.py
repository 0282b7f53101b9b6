"""The frames and samples of a flow that a page shows, thinned if there are too many."""

from __future__ import annotations

import base64
import warnings
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from advect.data.dataset import LabeledDataset
from advect.errors import DamageWarning, InputError
from advect.io.trajectory import Frame
from advect.report.story import Story
from advect.viz.states import names_of, some_rows, spread
from advect.viz.theme import class_marks, style

_MAX_FRAMES, _MAX_SAMPLES = 60, 2000
_NO_CLASS = 65535  # missing labels, and classes that the flow does not have


def pack_integers(values: np.ndarray, kind: str) -> str:
    """Integers of a kind such as ``"<i2"`` as base64, in little-endian order.

    Example:
        >>> pack_integers(np.array([1, -1]), "<i2")
        'AQD//w=='
    """
    return base64.b64encode(np.ascontiguousarray(values, dtype=np.dtype(kind)).tobytes()).decode()


@dataclass(frozen=True)
class Sample:
    """Some samples of a dataset and their positions in it."""

    data: LabeledDataset
    rows: Tensor


def thinned(data: LabeledDataset, what: str, notes: list[str]) -> Sample:
    """At most as many samples as a page shows; a note says so if that is not all."""
    rows = torch.tensor(some_rows(len(data), _MAX_SAMPLES))
    if len(data) > _MAX_SAMPLES:
        notes.append(
            f"Of {what}, a random sample of {len(rows):,} of {len(data):,} is shown; couplings and "
            "class distances are those of the sample."
        )
    return Sample(_take(data, rows), rows)


class Frames:
    """The shown frames of a story, read one at a time.

    Attributes:
        rows, n_all: the samples that are shown, and how many there are.
        before, after: the shown samples before the flow and at its last frame.
        steps, values, names: of the frames that ``read`` has passed: step numbers, objectives, and
            names of classes in order of appearance.
    """

    def __init__(self, story: Story, notes: list[str]) -> None:
        total = len(story.trajectory)
        self._all, self._notes = story.trajectory, notes
        self._chosen = spread(total, _MAX_FRAMES)
        if len(self._chosen) < total:
            notes.append(f"{len(self._chosen)} of {total:,} recorded frames are shown.")
        first = self._first_sound(range(total)).dataset.to("cpu")
        sample = thinned(first, "the flow", notes)
        self.rows, self.n_all = sample.rows, len(first)
        source = story.source
        self.before = sample.data
        if source is not None and len(source) == len(first):
            self.before = _take(source.to("cpu"), self.rows)
        self.after = self._shown(self._first_sound(reversed(range(total))))
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

    def _first_sound(self, positions: Iterable[int]) -> Frame:
        """The first of some frames that is not damaged."""
        for position in positions:
            if (frame := self._read(position)) is not None:
                return frame
        got = f"{len(self._all)} frames"
        raise InputError("all frames are damaged", got, "Restore the run from a copy.")

    def _read(self, position: int) -> Frame | None:
        """A frame; None and a note if it is damaged."""
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
            got = f"{self.n_all} and then {len(data)}"
            raise InputError("frames must have the same samples", got, "Take them from one flow.")
        return _take(data, self.rows)

    @property
    def moving(self) -> bool:
        """Whether labels change along the flow."""
        return any(labels != self._labels[0] for labels in self._labels)

    @property
    def codes(self) -> np.ndarray:
        """The class of each sample (frames, n); a single row if labels never change."""
        rows = self._labels if self.moving else self._labels[:1]
        return np.stack([codes_of(labels, self.names) for labels in rows])

    def counts(self) -> dict[str, list[tuple[int, float]]]:
        """Samples of each class at each shown frame."""
        codes = self.codes
        return {
            str(name): list(zip(self.steps, (codes == code).sum(axis=1).tolist(), strict=True))
            for code, name in enumerate(self.names)
        }

    def packed(self) -> dict[str, object]:
        """Classes, their marks and the positions of the samples, for the player."""
        with style(dark=True):
            dark = [mark.colour for mark in class_marks(self.names).values()]
        with style():
            light = list(class_marks(self.names).values())
        shapes = [mark.marker for mark in light]
        return {
            "codes": pack_integers(self.codes, "<u2"),
            "moving": self.moving,
            "origin": pack_integers(self.rows.numpy(), "<u4"),
            "classes": [str(name) for name in self.names],
            "marks": {"light": [mark.colour for mark in light], "dark": dark, "shapes": shapes},
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
