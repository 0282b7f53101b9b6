"""What figures are made of: states of a dataset in order, from a result, a recorded trajectory or a
plain list.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from advect._util.checks import check_count
from advect.data.dataset import LabeledDataset
from advect.datasets.trajectory import Frame, Trajectory
from advect.errors import InputError
from advect.flows.loop import FlowResult

State = LabeledDataset | Frame
Frames = Sequence[State] | Trajectory | FlowResult


def states_of(frames: Frames, columns: int | None = None) -> list[State]:
    """The states, at most ``columns`` of them: the first, the last and some evenly between; only
    these are read.
    """
    if isinstance(frames, FlowResult):
        frames = frames.trajectory
    if not isinstance(frames, (Sequence, Trajectory)) or isinstance(frames, (str, bytes)):
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
    states = [frames[position] for position in spread(len(frames), columns)]
    for state in states:
        dataset_of(state)
    return states


def panel_states(frames: Frames, columns: int | None = None, default: int = 6) -> list[State]:
    """States for the panels of a figure: ``columns`` of them, or all of a list and ``default`` of
    what a flow recorded.
    """
    recorded = isinstance(frames, (FlowResult, Trajectory))
    return states_of(frames, default if recorded and columns is None else columns)


def spread(n: int, columns: int | None) -> list[int]:
    """At most ``columns`` of n positions, the first and the last among them; the last if it is one;
    all if it is None.
    """
    if columns is None or check_count("columns", columns) >= n:
        return list(range(n))
    return [n - 1] if columns == 1 else [round(i * (n - 1) / (columns - 1)) for i in range(columns)]


def dataset_of(state: object) -> LabeledDataset:
    data = state.dataset if isinstance(state, Frame) else state
    if not isinstance(data, LabeledDataset):
        raise InputError(
            "a frame must be a LabeledDataset or a recorded Frame",
            type(data).__name__,
            "Pass result.trajectory, for instance.",
        )
    return data


def check_target(target: object) -> None:
    if target is not None and not isinstance(target, LabeledDataset):
        raise InputError(
            "target must be a LabeledDataset",
            type(target).__name__,
            "Wrap arrays as ad.LabeledDataset(x, y).",
        )


def with_dataset(state: State, dataset: LabeledDataset) -> State:
    """The same state, if recorded with its step and value, of another dataset."""
    return Frame(state.index, state.value, dataset) if isinstance(state, Frame) else dataset


def caption(state: State, otherwise: str = "") -> str:
    return f"step {state.index}" if isinstance(state, Frame) else otherwise


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
