"""A callback that logs a flow to an experiment tracker; no tracker is imported."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from advect._util import Shown, check_count, check_kind, check_methods
from advect.flows.callbacks import Metric
from advect.flows.steps import Step


class Log(Shown):
    """Logs value, speed, terms and time of a flow to an experiment tracker.

    Args:
        writer: a ``SummaryWriter`` of TensorBoard, the module ``mlflow`` with an active run, the run that
            ``wandb.init`` returned, or any object with ``add_scalar(name, value, step)``,
            ``log_metrics(values, step=)`` or ``log(values, step=)``. It is not closed.
        every: log states whose index is a multiple of this.
        metrics: ``Metric`` callbacks whose values are logged too. List them before this callback.

    Example:
        >>> import advect as ad
        >>> class Printer:
        ...     def log_metrics(self, values, step):
        ...         print(step, values["value"], values["spread"])
        >>> data = ad.LabeledDataset([[4.0], [8.0]], ["a", "b"])
        >>> spread = ad.Metric("spread", lambda rho: rho.x.max() - rho.x.min())
        >>> callbacks = [spread, ad.Log(Printer(), metrics=[spread])]
        >>> _ = ad.flow(data, ad.Potential(ad.norm()), integrator=ad.Euler(1.0), n_steps=1, callbacks=callbacks)
        0 6.0 4.0
        1 5.0 4.0
    """

    def __init__(self, writer: Any, every: int = 1, *, metrics: Sequence[Metric] = ()) -> None:
        what, remedy = "writer must be that of a tracker", "Pass SummaryWriter(), mlflow or a run."
        method = next((name for name in _TRACKERS if name in dir(writer)), "log")
        check_methods(what, writer, (method,), remedy)
        for metric in metrics:
            check_kind(
                "metrics must be Metric callbacks", metric, Metric, "Pass those in callbacks=."
            )
        self.writer, self.every = writer, check_count("every", every)
        self._measured, self._log = tuple(metrics), _TRACKERS[method]

    def __call__(self, step: Step) -> None:
        if step.index % self.every:
            return
        values = {"value": step.value, "speed": step.speed, "seconds": step.seconds}
        values |= {f"terms/{name}": value for name, value in step.terms.items()}
        # A metric has an ``every`` of its own: its last value may be of an earlier state.
        curves = {metric.name: metric.metrics[metric.name][-1:] for metric in self._measured}
        values |= {name: v for name, curve in curves.items() for i, v in curve if i == step.index}
        values = {_FOREIGN.sub("", name): value for name, value in values.items()}
        self._log(self.writer, values, step.index)


_FOREIGN = re.compile(r"[^\w./ :-]")  # characters that MLflow does not accept in names


_TRACKERS: dict[str, Callable[[Any, dict[str, float], int], object]] = {
    "add_scalar": lambda writer, values, step: [  # TensorBoard
        writer.add_scalar(name, value, step) for name, value in values.items()
    ],
    "log_metrics": lambda writer, values, step: writer.log_metrics(values, step=step),  # MLflow
    "log": lambda writer, values, step: writer.log(values, step=step),  # Weights & Biases
}
