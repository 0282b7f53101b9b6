"""Frames of a run directory written by all ranks: each its own rows, in a file of its own; rank 0
commits them.

The log ``frames.jsonl`` gets its line when the file of every rank is on the disk, and the line says
how many there are. A frame without a line is none: a rank that dies while writing leaves files that
nobody reads, and that the next run writes over."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from advect.data.dataset import LabeledDataset
from advect.flows.callbacks import Recorder
from advect.flows.loop import Step
from advect.flows.snapshots import Snapshot
from advect.io.trajectory import Frame, Trajectory
from advect.ot.ranks import Group


class SharedFrames:
    """A ``Recorder`` with a directory, on all ranks."""

    def __init__(self, recorder: Recorder, group: Group) -> None:
        self.recorder, self.group = recorder, group

    def begin(self, source: LabeledDataset, start: Snapshot | None) -> None:
        self.group.first(lambda: self.recorder.begin(source, start))

    def __call__(self, step: Step) -> None:
        if step.index % self.recorder.every == 0:
            self._add(step)

    def end(self, step: Step, status: str) -> None:
        if status not in ("interrupted", "diverged"):
            self.group.first(lambda: self.recorder.trajectory.forget_after(step.index))
            self._add(step)

    def _add(self, step: Step) -> None:
        trajectory = self.recorder.trajectory  # of rank 0: the others do not know what is there
        if self.group.first(lambda: trajectory.wants(step.index, step.value)):
            directory, rows = (
                cast(Path, self.recorder.directory),
                self.group.rows(len(step.dataset)),
            )
            frame = Frame(step.index, step.value, step.dataset)
            Trajectory.write_rows(directory, frame, rows, self.group.rank, self.group.size)
            self.group.wait()
            self.group.first(lambda: trajectory.commit(step.index, step.value, self.group.size))

    @property
    def trajectory(self) -> Trajectory:
        return Trajectory(self.recorder.directory)
