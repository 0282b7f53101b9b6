"""All callbacks of a flow as one: the only place that asks what a callback can do.

A callback is a function of a ``Step``; a true answer stops the flow. It may also be an object with
``begin(source, start)``, ``end(step, status)``, ``reason()`` and ``close()``, and with what it has
kept, as ``trajectory`` or ``metrics``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from advect._util.checks import check_methods
from advect.data.dataset import LabeledDataset
from advect.datasets.trajectory import Trajectory
from advect.flows.snapshots import Snapshot
from advect.flows.steps import Step

Callback = Callable[[Step], bool | None]


class Watchers:
    """Callbacks that are called one after the other."""

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        self.callbacks = tuple(callbacks)
        what, remedy = (
            "a callback must be a function of a step",
            "Pass ad.Recorder() or a function.",
        )
        for callback in self.callbacks:
            check_methods(what, callback, ("__call__",), remedy)

    def begin(self, source: LabeledDataset, start: Snapshot | None) -> None:
        self._each("begin", source, start)

    def __call__(self, step: Step) -> str:
        """Why to stop; nothing to go on. Each is asked, even after one has said stop."""
        stopped = [callback for callback in self.callbacks if callback(step)]
        if not stopped:
            return ""
        name = getattr(stopped[0], "__name__", type(stopped[0]).__name__)
        return _call(stopped[0], "reason") or f"{name} asked to stop at step {step.index}"

    def end(self, step: Step, status: str) -> None:
        self._each("end", step, status)

    def close(self) -> None:
        self._each("close")

    @property
    def trajectory(self) -> Trajectory:
        """What the first ``Recorder`` has recorded; nothing where there is none."""
        kept = (getattr(callback, "trajectory", None) for callback in self.callbacks)
        return next((trajectory for trajectory in kept if trajectory is not None), Trajectory())

    @property
    def metrics(self) -> dict[str, list[tuple[int, float]]]:
        """What every ``Metric`` has measured."""
        kept = (getattr(callback, "metrics", {}) for callback in self.callbacks)
        return {name: curve for metrics in kept for name, curve in metrics.items()}

    def _each(self, name: str, *arguments: Any) -> None:
        for callback in self.callbacks:
            _call(callback, name, *arguments)


def _call(callback: Callback, name: str, *arguments: Any) -> Any:
    method = getattr(callback, name, None)
    return method(*arguments) if callable(method) else None
