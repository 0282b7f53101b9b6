"""What figures are made of: states of a dataset in order, from a result, a recorded trajectory or a
plain list. All of ``viz`` and ``report`` comes in through here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from advect._util.checks import check_count, check_kind
from advect.data.dataset import LabeledDataset
from advect.datasets.trajectory import Frame, Trajectory
from advect.errors import InputError
from advect.flows.loop import FlowResult

Frames = Sequence[LabeledDataset | Frame] | Trajectory | FlowResult
Curve = Sequence[tuple[int, float]]


@dataclass(frozen=True, eq=False)
class State:
    """A dataset to be drawn; ``frame`` is what was recorded of it, if anything was."""

    dataset: LabeledDataset
    frame: Frame | None = None

    @classmethod
    def of(cls, given: LabeledDataset | Frame) -> State:
        if isinstance(given, Frame):
            return cls(given.dataset, given)
        what = "a frame must be a LabeledDataset or a recorded Frame"
        check_kind(what, given, LabeledDataset, "Pass result.trajectory, for instance.")
        return cls(given)

    @property
    def step(self) -> int | None:
        return None if self.frame is None else self.frame.index

    def caption(self, otherwise: str = "") -> str:
        return otherwise if self.step is None else f"step {self.step}"

    def with_dataset(self, dataset: LabeledDataset) -> State:
        """The same step, of another dataset."""
        frame = None if self.frame is None else replace(self.frame, dataset=dataset)
        return State(dataset, frame)

    def as_given(self) -> LabeledDataset | Frame:
        """In the form in which states are passed in."""
        return self.dataset if self.frame is None else self.frame


def states_of(
    frames: Frames, columns: int | None = None, *, of_flow: int | None = None
) -> list[State]:
    """The states, at most ``columns`` of them: the first, the last and some evenly between; only
    these are read. By default all of a list, and ``of_flow`` of what a flow recorded.
    """
    match frames:
        case FlowResult(trajectory=recorded) | (Trajectory() as recorded):
            columns = of_flow if columns is None else columns
            frames = recorded
        case Sequence() if not isinstance(frames, (str, bytes)):
            pass
        case _:
            raise InputError(
                "frames must be a list, a trajectory or the result of a flow",
                type(frames).__name__,
                "Put a single dataset in a list.",
            )
    if len(frames) == 0:
        raise InputError(
            "there must be a frame to draw",
            "none",
            "Record some: ad.flow(…, callbacks=[ad.Recorder()]).",
        )
    return [State.of(frames[position]) for position in spread(len(frames), columns)]


def spread(n: int, columns: int | None) -> list[int]:
    """At most ``columns`` of n positions, the first and the last among them; the last if it is one;
    all if it is None.
    """
    if columns is None or check_count("columns", columns) >= n:
        return list(range(n))
    return [n - 1] if columns == 1 else [round(i * (n - 1) / (columns - 1)) for i in range(columns)]


def others(target: LabeledDataset | None) -> list[LabeledDataset]:
    """The target, if there is one, for what is drawn together with the states."""
    if target is None:
        return []
    remedy = "Wrap arrays as ad.LabeledDataset(x, y)."
    check_kind("target must be a LabeledDataset", target, LabeledDataset, remedy)
    return [target]


def curves_of(flow: FlowResult | Trajectory) -> tuple[Curve, dict[str, Curve], dict[str, Curve]]:
    """The objective of a flow at its steps, its terms where there are several, and its metrics; a
    trajectory has the objective at its frames alone.
    """
    remedy = "Pass what ad.flow returned."
    what = "curves are drawn of a FlowResult or a Trajectory"
    check_kind(what, flow, (FlowResult, Trajectory), remedy)
    if not isinstance(flow, FlowResult):
        frames = (state.frame for state in states_of(flow))
        return [(frame.index, frame.value) for frame in frames if frame is not None], {}, {}
    first = flow.n_steps + 1 - len(flow.values)
    terms = flow.terms if len(flow.terms) > 1 else {}
    return (
        list(enumerate(flow.values, start=first)),
        {name: list(enumerate(part, start=first)) for name, part in terms.items()},
        {name: points for name, points in flow.metrics.items() if points},
    )


def names_of(datasets: Iterable[LabeledDataset]) -> list:
    """The classes that ever have samples, in order of appearance."""
    return list(
        dict.fromkeys(name for data in datasets for name, count in data.counts.items() if count)
    )


def same_samples(datasets: Sequence[LabeledDataset]) -> bool:
    return len({(len(data), data.sample_shape) for data in datasets}) == 1


def as_array(values: torch.Tensor) -> np.ndarray:
    return values.detach().cpu().double().numpy()


def some_rows(n: int, most: int, seed: int) -> list[int]:
    """``most`` of n positions drawn without replacement, in order; all of them if there are no
    more.
    """
    generator = torch.Generator().manual_seed(check_count("seed", seed, least=0))
    return sorted(torch.randperm(n, generator=generator)[: check_count("most", most)].tolist())
