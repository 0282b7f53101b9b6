"""What a report says of a flow, whether it has just ended or is read back from its run
directory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

from advect._util.checks import check_kind
from advect.cost import GroundCost
from advect.data.dataset import LabeledDataset
from advect.data.formats.guard import read_text
from advect.data.spaces.pictures import Pictures
from advect.datasets.logs import is_metric, read_lines
from advect.datasets.trajectory import Frame, Trajectory
from advect.errors import InputError
from advect.flows.loop import FlowResult
from advect.flows.snapshots import load_snapshot
from advect.ot import Sinkhorn, Solver
from advect.viz.states import Curve, curves_of


@dataclass(frozen=True, eq=False)
class Story:
    """All that a report is made of. Only the frames must be there; what is not known is left out of
    the page.

    Args:
        trajectory: the recorded frames, in order.
        target: where the flow was going; needed for couplings and class distances.
        source: the dataset before the flow; by default the first frame.
        objective: (step, value) of what was decreased; by default the values of the frames.
        terms: its named parts, as curves.  metrics: what else was measured, as curves.
        status: as in ``FlowResult``.  message: the same in a sentence.
        diagnosis: sentences on what a careful user would want to know.
        n_steps: moves made; by default the step of the last frame.  seconds: how long they took.
        evaluations: of the functional, where the integrator counts them.
        setup: what was run, by name: ``{"functional": "OTDD", "integrator":
            "Euler(step_size=0.1)"}``.
        cost, solver: with which samples and classes are compared on the page.
        names: of source and target.
        title: of the page; by default made of the names.
        config: text of the configuration that was run.  command: the line that ran it.  code:
            Python that does.
        pictures: how samples look that are features of something else, as ``FeatureSpace.pictures``
            makes it.
        digests: what the inputs are known by, where that is written somewhere.

    Example:
        >>> import advect as ad
        >>> from advect.report import Story
        >>> data = ad.LabeledDataset([[4.0], [8.0]], ["a", "b"])
        >>> result = ad.flow(data, ad.Potential(ad.norm()), n_steps=2, callbacks=[ad.Recorder()])
        >>> story = Story.of_result(result)
        >>> story.n_steps, story.setup["integrator"]
        (2, 'Euler(step_size=0.1)')
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
    evaluations: int | None = None
    setup: Mapping[str, str] = field(default_factory=dict)
    cost: GroundCost = field(default_factory=GroundCost)
    solver: Solver = field(default_factory=Sinkhorn)
    names: tuple[str, str] = ("source", "target")
    title: str | None = None
    config: str | None = None
    command: str | None = None
    code: str | None = None
    pictures: Pictures | None = None
    digests: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("target", "source"):
            what, remedy = (
                f"{name} must be a LabeledDataset",
                "Wrap arrays as ad.LabeledDataset(x, y).",
            )
            check_kind(what, getattr(self, name), (LabeledDataset, type(None)), remedy)
        remedy = "Pass space.pictures(source, target)."
        what = "pictures must be those of a feature space"
        check_kind(what, self.pictures, (Pictures, type(None)), remedy)
        if len(self.trajectory) == 0:
            raise InputError(
                "a report needs recorded frames",
                "none",
                "Run the flow with callbacks=[ad.Recorder(every=…)], then report it.",
            )

    @classmethod
    def of_result(cls, result: FlowResult) -> Story:
        """What a flow in memory says of itself."""
        objective, terms, metrics = curves_of(result)
        setup, code = _setup(result)
        compare = {k: v for k, v in result.options.items() if k in ("cost", "solver")}
        counted = result.integrator_state.get("evaluations")
        return cls(
            result.trajectory,
            target=result.target,
            source=result.source,
            objective=objective,
            terms=terms,
            metrics=metrics,
            status=result.status,
            message=result.message,
            diagnosis=[str(note) for note in result.diagnosis],
            n_steps=result.n_steps,
            seconds=result.seconds[-1],
            evaluations=None if counted is None else int(counted),
            setup=setup,
            code=code,
            **compare,
        )

    @classmethod
    def of_run(cls, directory: str | Path) -> Story:
        """What a run directory holds: its frames, ``metrics.jsonl``, ``config.toml``.

        The objective and its terms come from the lines called "flow" in ``metrics.jsonl``, else
        from the newest checkpoint, else from the frames.

        Example:
            >>> import tempfile, advect as ad
            >>> from advect.report import Story
            >>> data = ad.LabeledDataset([[4.0], [8.0]], ["a", "b"])
            >>> with tempfile.TemporaryDirectory() as run:
            ...     watch = [ad.Recorder(every=2, directory=run), ad.Checkpoint(run)]
            ...     _ = ad.flow(data, ad.Potential(ad.norm()), n_steps=4, callbacks=watch)
            ...     story = Story.of_run(run)
            >>> len(story.trajectory), len(story.objective)
            (3, 4)
        """
        directory = Path(directory)
        trajectory = Trajectory.open(directory)
        metrics: dict[str, list[tuple[int, float]]] = {}
        lines = read_lines(directory / "metrics.jsonl", is_metric)
        steps = [line for line in lines if line["name"] == "flow"]
        for line in lines:
            if line["name"] != "flow":
                metrics.setdefault(line["name"], []).append((line["index"], line["value"]))
        history = _logged(steps) if steps else _checkpointed(directory)
        config = directory / "config.toml"
        return cls(
            trajectory,
            metrics=metrics,
            config=read_text(config) if config.exists() else None,
            **history,
        )


def _logged(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Curves from lines with a step, a value and maybe terms and seconds."""
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


def _checkpointed(directory: Path) -> dict[str, Any]:
    """Curves that the newest checkpoint keeps: of the steps before its own."""
    try:
        snapshot = load_snapshot(directory)
    except InputError:  # none: the values of the frames will do
        return {}
    history = snapshot.history
    names = list(history.get("terms", {}))
    columns = zip(*(history["terms"][name] for name in names), strict=True)
    rows = zip(history.get("values", []), history.get("seconds", []), columns, strict=True)
    first = snapshot.index - len(history.get("values", []))
    records = [
        {
            "index": index,
            "value": value,
            "seconds": seconds,
            "terms": dict(zip(names, terms, strict=True)),
        }
        for index, (value, seconds, terms) in enumerate(rows, start=first)
    ]
    return _logged(records) | {"n_steps": snapshot.index} if records else {}


def _setup(result: FlowResult) -> tuple[dict[str, str], str | None]:
    """What was run, in words, and as Python in outline."""
    if result.functional is None:
        return {}, None
    setup, chosen = {"functional": result.functional.name}, result.options
    setup |= {
        "ground cost" if name == "cost" else name: shown(value) for name, value in chosen.items()
    }
    parts = {
        "dynamics": shown(result.dynamics),
        "integrator": shown(result.integrator),
        "control": shown(result.control),
    }
    setup |= {name: text for name, text in parts.items() if text != "None"}
    options = "".join(
        f"    {name}={_qualified(text)},\n" for name, text in parts.items() if text != "None"
    )
    objective = f"functional,  # {result.functional.name}"
    if chosen and result.functional.name.isidentifier():  # one term, and no factor
        texts = {name: _qualified(shown(value)) for name, value in chosen.items()}
        lines = "".join(f"        {name}={text},\n" for name, text in texts.items())
        objective = f"ad.{result.functional.name}(\n        target,\n{lines}    ),"
    code = (
        f"import advect as ad\n\nresult = ad.flow(\n    source,\n    {objective}\n{options}"
        f"    n_steps={result.n_steps},\n)\n"
    )
    return setup, code


def shown(thing: Any) -> str:
    """An options object with what was chosen, defaults of no interest left out; addresses of
    functions say nothing.
    """
    if is_dataclass(type(thing)):
        parts = {f.name: getattr(thing, f.name) for f in fields(thing) if f.repr}
        parts = {
            name: value for name, value in parts.items() if value is not None and value is not False
        }
        return f"{type(thing).__name__}({', '.join(f'{name}={shown(value)}' for name, value in parts.items())})"
    return re.sub(
        r"<(?:function|bound method) (\S+?)(?: of .*)?(?: at 0x[0-9a-f]+)?>",
        r"\1",
        repr(thing),
        flags=re.DOTALL,
    )


def chosen(options: Any, names: Sequence[str]) -> dict[str, str]:
    """Some of the options, those that are left open not.

    Example:
        >>> import advect as ad
        >>> chosen(ad.apps.TransferOptions(), ["label_weight", "n"])
        {'label_weight': '50.0'}
    """
    known = {name: getattr(options, name) for name in names}
    return {name: shown(value) for name, value in known.items() if value is not None}


def _qualified(text: str) -> str:
    """Names of classes as ``ad.Name``."""
    return re.sub(r"(?<![\w.])([A-Z]\w*)(?=\()", r"ad.\1", text)
