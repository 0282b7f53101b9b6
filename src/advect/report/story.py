"""What a report knows about a flow, from its result or from its run directory."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

from advect.cost import GroundCost
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.flows.loop import FlowResult
from advect.io.formats.guard import read_text
from advect.io.logs import is_metric, read_lines
from advect.io.trajectory import Frame, Trajectory
from advect.ot.sinkhorn import Sinkhorn
from advect.ot.solver import Solver
from advect.viz.states import Curve, curves_of, others


@dataclass(frozen=True, eq=False)
class Story:
    """The content of a report. Only the frames are required.

    Attributes:
        trajectory: the recorded frames, in order.
        target, source: the datasets; by default no target, and the first frame as source.
        objective: (step, value) pairs; by default the values of the frames.
        terms, metrics: named curves of such pairs.
        status, message, diagnosis: how the flow ended, and its notes.
        n_steps, seconds: by default the step of the last frame, and unknown.
        setup: what was run, by name.
        cost, solver: how samples and classes are compared on the page.
        names: of source and target.
        title, config, command: texts of the page.
        pictures: how samples look that are features of images.
        digests: of the inputs, by name.
    """

    trajectory: Trajectory | Sequence[Frame]
    target: LabeledDataset | None = None
    source: LabeledDataset | None = None
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
    solver: Solver = field(default_factory=Sinkhorn)
    names: tuple[str, str] = ("source", "target")
    title: str | None = None
    config: str | None = None
    command: str | None = None
    pictures: Callable[[LabeledDataset], LabeledDataset] | None = None
    digests: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        others(self.target)
        if self.pictures is not None and not callable(self.pictures):
            remedy = "Pass for example space.invert."
            raise InputError("pictures must be a function of a dataset", "another object", remedy)
        if len(self.trajectory) == 0:
            remedy = "Run the flow with callbacks=[ad.Recorder(every=…)], then report it."
            raise InputError("a report needs recorded frames", "none", remedy)

    @classmethod
    def of_result(cls, result: FlowResult) -> Story:
        """The story of a flow in memory."""
        objective, terms, metrics = curves_of(result)
        compare = {k: v for k, v in result.options.items() if k in ("cost", "solver")}
        return cls(
            result.trajectory,
            target=result.target,
            source=result.source,
            objective=objective,
            terms=terms,
            metrics=metrics,
            status=result.status,
            message=result.message,
            diagnosis=[str(note) for note in result.notes],
            n_steps=result.n_steps,
            seconds=result.seconds[-1],
            setup=_setup(result),
            **compare,
        )

    @classmethod
    def of_run(cls, directory: str | Path) -> Story:
        """The story of a run directory: its frames, ``metrics.jsonl`` and ``config.toml``.

        The objective and its terms come from the lines called "flow" in ``metrics.jsonl``, which the
        command line writes; the objective is otherwise that of the frames."""
        directory = Path(directory)
        trajectory = Trajectory.open(directory)
        metrics: dict[str, list[tuple[int, float]]] = {}
        lines = read_lines(directory / "metrics.jsonl", is_metric)
        steps = [line for line in lines if line["name"] == "flow"]
        for line in lines:
            if line["name"] != "flow":
                metrics.setdefault(line["name"], []).append((line["index"], line["value"]))
        path = directory / "config.toml"
        config = read_text(path) if path.exists() else None
        return cls(trajectory, metrics=metrics, config=config, **_logged(steps))


def _logged(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Curves from records with a step, a value, and optionally terms and seconds."""
    if not records:
        return {}
    terms: dict[str, list[tuple[int, float]]] = {}
    for record in records:
        for name, value in record.get("terms", {}).items():
            terms.setdefault(name, []).append((record["index"], value))
    return {
        "objective": [(record["index"], record["value"]) for record in records],
        "terms": terms if len(terms) > 1 else {},
        "seconds": records[-1].get("seconds"),
        "n_steps": records[-1]["index"],
    }


def _setup(result: FlowResult) -> dict[str, str]:
    """The settings of a flow as text."""
    if result.functional is None:
        return {}
    names = {"cost": "ground cost"}
    options = {names.get(key, key): value for key, value in result.options.items()}
    parts = {key: getattr(result, key) for key in ("dynamics", "integrator", "control")}
    texts = {key: option_text(value) for key, value in (options | parts).items()}
    shown = {key: text for key, text in texts.items() if text != "None"}
    return {"functional": result.functional.name, **shown}


def option_text(value: Any) -> str:
    """An options object as code, without unset options and addresses of functions."""
    if is_dataclass(type(value)):
        options = {f.name: getattr(value, f.name) for f in fields(value) if f.repr}
        chosen = {k: v for k, v in options.items() if v is not None and v is not False}
        texts = (f"{name}={option_text(option)}" for name, option in chosen.items())
        return f"{type(value).__name__}({', '.join(texts)})"
    address = r"<(?:function|bound method) (\S+?)(?: of .*)?(?: at 0x[0-9a-f]+)?>"
    return re.sub(address, r"\1", repr(value), flags=re.DOTALL)


def duration(seconds: float) -> str:
    """Seconds as text.

    Example:
        >>> duration(0.21), duration(75), duration(7300)
        ('0.21 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.3g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
