"""Callbacks of a flow: each is called with every ``Step``, and a true answer stops the flow.

A plain function is a callback. An object may also have ``begin(source, start)``, ``end(step, status)``,
``reason()`` and ``close()``, which is always called last. A callback that writes to a directory locks it.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

from advect._util import (
    Bar,
    Shown,
    check_count,
    check_methods,
    check_positive,
    refuse_if,
    time_left,
)
from advect._util.lock import Hold
from advect.data.dataset import LabeledDataset
from advect.flows.snapshots import CHECKPOINTS, Snapshot, load_checkpoints, save_snapshot
from advect.flows.steps import Step
from advect.io.logs import append_line, is_metric, keep_lines, read_lines
from advect.io.trajectory import Trajectory

Callback = Callable[[Step], bool | None]


class _Writer(Shown):
    """A callback that locks the directory it writes to, from the start to the end of the flow."""

    _hold: Hold | None = None

    def _lock(self, directory: Path | None) -> None:
        self.close()
        self._hold = None if directory is None else Hold(directory)

    def close(self) -> None:
        """Release the directory."""
        if self._hold is not None:
            self._hold.release()


class Recorder(_Writer):
    """Records every k-th state, the first and the last, in memory or in a run directory.

    Args:
        every: record states whose index is a multiple of this.
        directory: write the frames there instead of keeping them in memory.
        overwrite: replace frames of another flow in the directory, instead of raising an error.

    Example:
        >>> import tempfile, advect as ad
        >>> data = ad.LabeledDataset([[4.0], [8.0]], ["a", "b"])
        >>> with tempfile.TemporaryDirectory() as run:
        ...     recorder = ad.Recorder(every=2, directory=run)
        ...     result = ad.flow(data, ad.Potential(ad.norm()), integrator=ad.Euler(1.0), n_steps=3, callbacks=[recorder])
        ...     print(ad.Trajectory.open(run).indices)
        [0, 2, 3]
    """

    def __init__(
        self, every: int = 1, directory: str | Path | None = None, *, overwrite: bool = False
    ) -> None:
        self.every = check_count("every", every)
        self.directory = None if directory is None else Path(directory)
        self.overwrite = overwrite
        self.trajectory = Trajectory()
        self._mended = False

    def begin(self, source: LabeledDataset, start: Snapshot | None) -> None:
        self._lock(self.directory)
        self.trajectory = Trajectory(self.directory)
        self._mended = False
        if start is None and len(self.trajectory):
            refuse_if(
                not self.overwrite,
                "the run directory holds frames of another flow",
                self.directory,
                "Resume it, choose another directory, or pass overwrite=True.",
            )
            self.trajectory.forget_after(-1)

    def __call__(self, step: Step) -> None:
        if not self._mended:  # not in begin: the functional may fail at the first state
            self.trajectory.mend()
            self._mended = True
        if step.index % self.every == 0:
            self.trajectory.add(step.index, step.value, step.dataset)

    def end(self, step: Step, status: str) -> None:
        if status not in ("interrupted", "diverged"):
            self.trajectory.forget_after(step.index)  # frames of an earlier run that went further
            self.trajectory.add(step.index, step.value, step.dataset)


class Checkpoint(_Writer):
    """Writes the complete state every k-th step, alternating between two files, and at the end.

    Args:
        directory: where to; pass it to ``flow(resume=…)`` to continue bit for bit.
        every: write states whose index is a multiple of this.

    Example:
        >>> import tempfile, advect as ad
        >>> data = ad.LabeledDataset([[4.0], [8.0]], ["a", "b"])
        >>> with tempfile.TemporaryDirectory() as run:
        ...     options = dict(integrator=ad.Euler(1.0), callbacks=[ad.Checkpoint(run, every=1)])
        ...     _ = ad.flow(data, ad.Potential(ad.norm()), n_steps=1, **options)
        ...     result = ad.flow(data, ad.Potential(ad.norm()), n_steps=3, resume=run, **options)
        >>> result.values
        [6.0, 5.0, 4.0, 3.0]
    """

    def __init__(self, directory: str | Path, every: int = 10) -> None:
        self.directory, self.every = Path(directory), check_count("every", every)
        self._turn, self._saved = 0, -1
        self._outdated: list[str] = []

    def begin(self, source: LabeledDataset, start: Snapshot | None) -> None:
        self._lock(self.directory)
        self._turn, self._saved, self._outdated = 0, -1, [*CHECKPOINTS]
        if start is None:
            return
        snapshots, _ = load_checkpoints(self.directory)
        indices = [snapshots[name].index if name in snapshots else math.inf for name in CHECKPOINTS]
        # The first new checkpoint must not replace the file that the flow resumes from.
        if start.index in indices:
            self._turn, self._saved = 1 - indices.index(start.index), start.index
        # Damaged files and later states belong to another flow.
        named = zip(CHECKPOINTS, indices, strict=True)
        self._outdated = [name for name, index in named if index > start.index]

    def __call__(self, step: Step) -> None:
        if step.index % self.every == 0:
            self._save(step)

    def end(self, step: Step, status: str) -> None:
        self._save(step)

    def _save(self, step: Step) -> None:
        # The two files take turns, so that one is complete while the other one is written.
        if step.index != self._saved:
            for name in self._outdated:
                (self.directory / name).unlink(missing_ok=True)
            self._outdated = []
            save_snapshot(step.snapshot, self.directory / CHECKPOINTS[self._turn])
            self._turn, self._saved = 1 - self._turn, step.index


class StopWhen(Shown):
    """Stops a flow when one of the given conditions holds.

    Args:
        tol: the value changed by less than this share of its total change over ``patience`` steps.
        below: the value is below this.
        seconds: this much time has passed.
        patience: number of steps for ``tol``.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[4.0], [8.0]], ["a", "b"])
        >>> half = ad.Potential(lambda x, y: x.square().sum(1) / 2)
        >>> result = ad.flow(data, half, integrator=ad.Euler(0.5), n_steps=100, callbacks=[ad.StopWhen(below=1.0)])
        >>> result.status, result.message
        ('stopped', 'the value 0.3125 is below 1')
    """

    def __init__(
        self,
        tol: float | None = None,
        *,
        below: float | None = None,
        seconds: float | None = None,
        patience: int = 5,
    ) -> None:
        refuse_if(
            tol is None and below is None and seconds is None,
            "StopWhen needs a condition",
            "none",
            "Pass tol, below or seconds.",
        )
        self.tol = None if tol is None else check_positive("tol", tol)
        self.below = below
        self.seconds = None if seconds is None else check_positive("seconds", seconds)
        self.patience = check_count("patience", patience)
        self._values: list[float] = []
        self._reason = ""

    def begin(self, source: LabeledDataset, start: Snapshot | None) -> None:
        self._values = [] if start is None else list(start.history.get("values", []))

    def __call__(self, step: Step) -> bool:
        self._reason = ""
        self._values.append(step.value)
        values = self._values
        if self.below is not None and step.value < self.below:
            self._reason = f"the value {step.value:.6g} is below {self.below:g}"
        elif self.seconds is not None and step.seconds > self.seconds:
            self._reason = f"{step.seconds:.0f} s have passed"
        elif self.tol is not None and len(values) > self.patience:
            total_change = abs(values[0] - min(values)) or abs(values[0]) or 1.0
            if abs(values[-1] - values[-1 - self.patience]) <= self.tol * total_change:
                self._reason = f"the value has settled at {step.value:.6g}"
        return bool(self._reason)

    def reason(self) -> str:
        return self._reason


class Metric(_Writer):
    """Evaluates a function of the dataset along the flow, such as the accuracy of a fixed model.

    Args:
        name: its key in ``result.metrics``.
        measure: from a dataset to a number.
        every: evaluate at states whose index is a multiple of this.
        directory: also append the values to ``metrics.jsonl`` there.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[4.0], [8.0]], ["a", "b"])
        >>> spread = ad.Metric("spread", lambda rho: rho.x.max() - rho.x.min())
        >>> ad.flow(data, ad.Potential(ad.norm()), integrator=ad.Euler(1.0), n_steps=1, callbacks=[spread]).metrics
        {'spread': [(0, 4.0), (1, 4.0)]}
    """

    def __init__(
        self,
        name: str,
        measure: Callable[[LabeledDataset], Any],
        every: int = 1,
        *,
        directory: str | Path | None = None,
    ) -> None:
        self.name, self.measure, self.every = name, measure, check_count("every", every)
        self.log = None if directory is None else Path(directory) / "metrics.jsonl"
        self.metrics: dict[str, list[tuple[int, float]]] = {name: []}
        self._first: int | None = None

    def begin(self, source: LabeledDataset, start: Snapshot | None) -> None:
        self._lock(None if self.log is None else self.log.parent)
        self._first = 0 if start is None else start.index
        records = [] if self.log is None else read_lines(self.log, is_metric)
        self.metrics[self.name] = [
            (record["index"], record["value"])
            for record in records
            if record["name"] == self.name and record["index"] < self._first
        ]

    def __call__(self, step: Step) -> None:
        if self.log is not None and self._first is not None:
            # Values of this step and of later ones are measured again.
            first, self._first = self._first, None
            keep_lines(self.log, is_metric, lambda r: r["name"] != self.name or r["index"] < first)
        if step.index % self.every == 0:
            value = float(self.measure(step.dataset))
            self.metrics[self.name].append((step.index, value))
            if self.log is not None:
                append_line(self.log, {"name": self.name, "index": step.index, "value": value})


class Progress(Shown):
    """Shows the progress of a flow on stderr: a bar on a terminal, else a line every few seconds.

    Args:
        n_steps: expected number of steps.
        label: name of the work.
        stream: where to write; stderr by default.
        interval: seconds between lines without a terminal.

    Example:
        >>> import io, advect as ad
        >>> data, out = ad.LabeledDataset([[4.0], [8.0]], ["a", "b"]), io.StringIO()
        >>> progress = ad.Progress(2, stream=out, interval=0.0)
        >>> _ = ad.flow(data, ad.Potential(ad.norm()), integrator=ad.Euler(1.0), n_steps=2, callbacks=[progress])
        >>> "2/2" in out.getvalue()
        True
    """

    def __init__(
        self,
        n_steps: int,
        label: str = "flow",
        *,
        stream: IO[str] | None = None,
        interval: float = 5.0,
    ) -> None:
        self.n_steps, self.label = check_count("n_steps", n_steps, least=0), label
        self.stream, self.interval = stream, interval
        self._bar: Bar | None = None
        self._next = 0.0
        self._first = 0

    def begin(self, source: LabeledDataset, start: Snapshot | None) -> None:
        stream = self.stream or sys.stderr
        self._next = time.monotonic() + self.interval
        self._first = 0 if start is None else start.index
        if not stream.isatty():
            return
        more = ("{task.fields[rate]}", "value {task.fields[value]}")
        start_at = {"done": self._first, "rate": "", "value": "…"}
        self._bar = Bar(stream, self.label, self.n_steps, more=more, transient=False, **start_at)

    def __call__(self, step: Step) -> None:
        made = step.index - self._first
        rate = f"{made / step.seconds:.1f} steps/s" if step.seconds > 0 else ""
        if self._bar is not None:
            self._bar.update(step.index, rate=rate, value=f"{step.value:.5g}")
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + self.interval
            left = time_left(self.n_steps - step.index, made / max(step.seconds, 1e-9))
            done = f"{self.label}: {step.index}/{self.n_steps}"
            line = f"{done}, value {step.value:.5g}{left}, {rate}"
            print(line, file=self.stream or sys.stderr, flush=True)

    def close(self) -> None:
        """Remove the bar from the terminal."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class CallbackList:
    """Several callbacks as one. Hooks that a callback does not have are skipped."""

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        self.callbacks = tuple(callbacks)
        what = "a callback must be a function of a step"
        for callback in self.callbacks:
            check_methods(what, callback, ("__call__",), "Pass ad.Recorder() or a function.")

    def begin(self, source: LabeledDataset, start: Snapshot | None) -> None:
        for begin in self._members("begin"):
            begin(source, start)

    def __call__(self, step: Step) -> str:
        """The reason to stop, or "". Every callback is called, even after one has asked to stop."""
        stopping = [callback for callback in self.callbacks if callback(step)]
        if not stopping:
            return ""
        name = getattr(stopping[0], "__name__", type(stopping[0]).__name__)
        reason = getattr(stopping[0], "reason", None)
        return (reason and reason()) or f"{name} asked to stop at step {step.index}"

    def end(self, step: Step, status: str) -> None:
        for end in self._members("end"):
            end(step, status)

    def close(self) -> None:
        for close in self._members("close"):
            close()

    @property
    def trajectory(self) -> Trajectory:
        """The trajectory of the first ``Recorder``; an empty one without it."""
        return next(iter(self._members("trajectory")), Trajectory())

    @property
    def metrics(self) -> dict[str, list[tuple[int, float]]]:
        """The values of every ``Metric``."""
        metrics = self._members("metrics")
        return {name: curve for curves in metrics for name, curve in curves.items()}

    def _members(self, name: str) -> list[Any]:
        """This method or attribute of each callback that has it."""
        members = (getattr(callback, name, None) for callback in self.callbacks)
        return [member for member in members if member is not None]
