"""A flow on all ranks of a group: ``advect.flow`` with callbacks on rank 0.

Every rank computes the same states. Callbacks run on rank 0, and their return values are sent to all ranks.
A flow therefore stops on all ranks at the same step, even if a callback depends on the time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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
from advect.io.trajectory import Trajectory
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
        callbacks: run on rank 0. A directory of frames is one that all ranks can read.
        control: the step control. Values are the same on every rank, so all ranks decide alike.
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
        callbacks=[_SharedCallbacks(callbacks, group)],
        generator=generator,
        resume=resume,
    )


class _SharedCallbacks:
    """All callbacks of a flow as one; they run on rank 0."""

    def __init__(self, callbacks: Sequence[Callback], group: Group) -> None:
        self.group, self._reason = group, ""
        self.on_first = CallbackList(callbacks)
        recorders = [one for one in callbacks if isinstance(one, Recorder)]
        self.directories = [one.directory for one in recorders if one.directory is not None]

    def begin(self, source: LabeledDataset, start: Snapshot | None) -> None:
        self.group.first(lambda: self.on_first.begin(source, start))

    def __call__(self, step: Step) -> bool:
        self._reason = self.group.first(lambda: self.on_first(step))
        return bool(self._reason)

    def end(self, step: Step, status: str) -> None:
        if status == "interrupted":
            # Ranks may stop at different steps, so none may wait for another.
            self.group.parted = self.group.size > 1
            if self.group.rank == 0:
                self.on_first.end(step, status)
            return
        self.group.first(lambda: self.on_first.end(step, status))

    def reason(self) -> str:
        return self._reason

    def close(self) -> None:
        self.on_first.close()

    @property
    def trajectory(self) -> Trajectory:
        """The recorded frames; frames in memory are on rank 0 alone."""
        return Trajectory(self.directories[0]) if self.directories else self.on_first.trajectory

    @property
    def metrics(self) -> dict[str, list[tuple[int, float]]]:
        return self.on_first.metrics
