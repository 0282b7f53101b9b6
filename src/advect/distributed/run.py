"""A flow on all ranks of a group: ``advect.flow`` with the callbacks where they belong.

Every rank walks the same states. Callbacks run on rank 0, and what they answer goes to all, so
that a flow stops everywhere at the same step even when the answer depends on the clock. Frames on
disk are the exception: every rank writes its rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import torch

from advect._util import defaults
from advect.data.dataset import LabeledDataset
from advect.flows.callbacks import Callback, CallbackList, Recorder
from advect.flows.dynamics import Dynamics
from advect.flows.integrators import Integrator
from advect.flows.loop import FlowResult, flow as flow_alone
from advect.flows.snapshots import Snapshot
from advect.flows.steps import Step, StepControl
from advect.functionals.base import Functional
from advect.io.trajectory import Frame, Trajectory
from advect.ot.ranks import Group


def flow(
    source: LabeledDataset,
    functional: Functional,
    *,
    group: Group,
    dynamics: Dynamics | None = None,
    integrator: Integrator | None = None,
    control: StepControl | None = None,
    n_steps: int = defaults.LOOK.n_steps,
    callbacks: Sequence[Callback] = (),
    generator: torch.Generator | None = None,
    resume: str | Path | None = None,
) -> FlowResult:
    """``advect.flow`` on all ranks of a group, each of which calls it with the same
    arguments; see there for them.

    Args:
        group: the ranks, from ``advect.distributed.group``.
        functional: an ``OTDD(target, group=group)``, and whatever is added to it; other functionals
            are computed whole by every rank.
        callbacks: run on rank 0, but for a ``Recorder`` with a directory, to which every rank
            writes its rows. The directory is one that all ranks see.
        control: whether a step is made: values are the same on every rank, and so is every
            decision.
        generator: with a stochastic integrator, of the same seed on every rank.

    Returns:
        The same ``FlowResult`` on every rank; what callbacks keep in memory (metrics, frames) is on
        rank 0 alone.

    Example:
        >>> import tempfile, advect as ad
        >>> data = ad.LabeledDataset([[4.0], [8.0]], ["a", "b"])
        >>> with tempfile.TemporaryDirectory() as run, ad.distributed.group() as ranks:
        ...     watch = [ad.Recorder(directory=run), ad.StopWhen(below=4.5)]
        ...     result = ad.distributed.flow(
        ...         data, ad.Potential(ad.norm()), group=ranks, integrator=ad.Euler(1.0), callbacks=watch
        ...     )
        ...     print(result.message, result.trajectory.indices)
        the value 4 is below 4.5 [0, 1, 2]
    """
    return flow_alone(
        source,
        functional,
        dynamics=dynamics,
        integrator=integrator,
        control=control,
        n_steps=n_steps,
        callbacks=[_Together(callbacks, group)],
        generator=generator,
        resume=resume,
    )


class _Together:
    """All callbacks of a flow as one: their answers are those of rank 0."""

    def __init__(self, callbacks: Sequence[Callback], group: Group) -> None:
        self.group, self._reason = group, ""
        shared = [c for c in callbacks if isinstance(c, Recorder) and c.directory is not None]
        self.everywhere = [SharedFrames(recorder, group) for recorder in shared]
        self.on_first = CallbackList(c for c in callbacks if c not in shared)

    def begin(self, source: LabeledDataset, start: Snapshot | None) -> None:
        for frames in self.everywhere:
            frames.begin(source, start)
        self.group.first(lambda: self.on_first.begin(source, start))

    def __call__(self, step: Step) -> bool:
        for frames in self.everywhere:
            frames(step)
        self._reason = self.group.first(lambda: self.on_first(step))
        return bool(self._reason)

    def end(self, step: Step, status: str) -> None:
        if status == "interrupted":
            # Each rank on its own, at its own step: none may wait for another.
            self.group.parted = self.group.size > 1
            if self.group.rank == 0:
                self.on_first.end(step, status)
            return
        for frames in self.everywhere:
            frames.end(step, status)
        self.group.first(lambda: self.on_first.end(step, status))

    def reason(self) -> str:
        return self._reason

    def close(self) -> None:
        for frames in self.everywhere:
            frames.recorder.close()
        self.on_first.close()

    @property
    def trajectory(self) -> Trajectory:
        return next((frames.trajectory for frames in self.everywhere), self.on_first.trajectory)

    @property
    def metrics(self) -> dict[str, list[tuple[int, float]]]:
        return self.on_first.metrics


class SharedFrames:
    """A ``Recorder`` with a directory, on all ranks: each writes its rows to a file of its own.

    Rank 0 logs a frame when the files of all ranks are on the disk. A frame without a line in the log is
    none: files that a dead rank leaves are not read, and the next run writes over them."""

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
