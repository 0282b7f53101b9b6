"""Input of figures: states of a dataset in order, from a result, a trajectory or a list, and their
projection to the plane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from advect._util import check_count, check_kind, check_known, refuse_if
from advect.data.conversions import target_names
from advect.data.dataset import LabeledDataset, has_classes
from advect.data.labels import require_targets
from advect.flows.loop import FlowResult
from advect.io.trajectory import Frame, Trajectory
from advect.transport.transport import check_dataset

if TYPE_CHECKING:
    from sklearn.decomposition import PCA

Frames = Sequence[LabeledDataset | Frame] | Trajectory | FlowResult
Curve = Sequence[tuple[int, float]]

View = Callable[[LabeledDataset], np.ndarray]

_MAX_PCA_ROWS, _MAX_PCA_NUMBERS = 20_000, 30_000_000


@dataclass(frozen=True, eq=False)
class State:
    """A dataset with the step at which it was recorded, if it is a frame of a flow."""

    dataset: LabeledDataset
    step: int | None = None

    @property
    def caption(self) -> str:
        return "" if self.step is None else f"step {self.step}"


def states_of(
    frames: Frames, columns: int | None = None, *, of_flow: int | None = None
) -> list[State]:
    """At most ``columns`` states: the first, the last and some evenly between them.

    By default all states of a list, and ``of_flow`` states of a flow."""
    frames = frames.trajectory if isinstance(frames, FlowResult) else frames
    check_kind(
        "frames must be a list, a trajectory or the result of a flow",
        frames,
        (list, tuple, Trajectory),
        "Put a single dataset in a list.",
    )
    if columns is None and not isinstance(frames, list | tuple):
        columns = of_flow
    refuse_if(
        not len(frames),
        "there must be a frame to draw",
        "none",
        "Record frames with ad.flow(…, callbacks=[ad.Recorder()]).",
    )
    chosen = [frames[position] for position in spread(len(frames), columns)]
    return [
        State(each.dataset, each.index)
        if isinstance(each, Frame)
        else State(check_dataset("a frame", each))
        for each in chosen
    ]


def spread(n: int, columns: int | None) -> list[int]:
    """At most ``columns`` of n positions, evenly spaced, with the first and the last."""
    if columns is None or check_count("columns", columns) >= n:
        return list(range(n))
    return [n - 1] if columns == 1 else [round(i * (n - 1) / (columns - 1)) for i in range(columns)]


def others(target: LabeledDataset | None) -> list[LabeledDataset]:
    """The target as a list of one dataset or none."""
    return [] if target is None else [check_dataset("target", target)]


def curves_of(flow: FlowResult | Trajectory) -> tuple[Curve, dict[str, Curve], dict[str, Curve]]:
    """The objective of a flow, its terms if there are several, and its metrics.

    A trajectory has the objective at its frames only."""
    if not isinstance(flow, FlowResult):
        check_kind(
            "curves are drawn of a FlowResult or a Trajectory",
            flow,
            Trajectory,
            "Pass what ad.flow returned.",
        )
        return [(frame.index, frame.value) for frame in flow], {}, {}
    first = flow.n_steps + 1 - len(flow.values)
    terms = flow.terms if len(flow.terms) > 1 else {}
    return (
        list(enumerate(flow.values, start=first)),
        {name: list(enumerate(part, start=first)) for name, part in terms.items()},
        {name: points for name, points in flow.metrics.items() if points},
    )


def names_of(datasets: Iterable[LabeledDataset]) -> list:
    """The classes that have samples in any of the datasets, in order of appearance."""
    counts = (item for data in datasets for item in data.counts.items())
    return list(dict.fromkeys(name for name, count in counts if count))


def check_titles(titles: Sequence[str] | None, n: int) -> None:
    count = n if titles is None else len(titles)
    refuse_if(count != n, f"there must be {n} titles", count, "Pass one for each frame.")


def as_array(values: Tensor) -> np.ndarray:
    return values.detach().cpu().double().numpy()


def some_rows(n: int, size: int) -> list[int]:
    """``size`` of n positions without replacement, in order; all positions if n is smaller."""
    return sorted(torch.randperm(n, generator=torch.Generator().manual_seed(0))[:size].tolist())


def project(
    datasets: Sequence[LabeledDataset], feature: str | None = None
) -> tuple[list[LabeledDataset], tuple[str, str] | None]:
    """Datasets in the plane, all by one projection, and the names of the axes if they were projected."""
    view, names = plane_view(datasets, feature)
    if names is None:
        return list(datasets), None
    fields = {"sample_shape": (2,), "law": None, "law_index": None, "columns": None}
    return [data.replace(x=torch.from_numpy(view(data)), **fields) for data in datasets], names


def plane_view(
    datasets: Sequence[LabeledDataset], feature: str | None = None
) -> tuple[View, tuple[str, str] | None]:
    """A function from datasets to points (n, 2), and the names of the axes unless samples have two features.

    Samples of one feature are spread on the vertical axis. Data without classes show their continuous
    target above a feature or the first principal component, other data two principal components."""
    dims = {data.dim for data in datasets}
    refuse_if(
        len(dims) != 1,
        "all frames and the target need one dimension",
        sorted(dims),
        "Bring the datasets to one feature space with ad.harmonize.",
    )
    if feature is not None or not all(map(has_classes, datasets)):
        across, name = _first_coordinate(datasets, feature)
        up = lambda data: as_array(require_targets(data, "this figure")[:, :1])
        return (lambda data: np.hstack([across(data), up(data)])), (
            name,
            target_names(datasets[0])[0],
        )
    if dims == {2}:
        return (lambda data: as_array(data.x)), None
    if dims == {1}:
        # heights from −½ to ½, evenly spread: multiples of the golden ratio modulo 1
        heights = lambda n: np.modf(np.arange(n)[:, None] * 0.6180339887)[0] - 0.5
        return (lambda data: np.hstack([as_array(data.x), heights(len(data))])), ("feature", "")
    model, names = _principal_components(datasets, 2)
    return (lambda data: model.transform(as_array(data.x))), (names[0], names[1])


def _first_coordinate(datasets: Sequence[LabeledDataset], feature: str | None) -> tuple[View, str]:
    """A named feature, the only feature, or the first principal component."""
    columns = next((data.columns for data in datasets if data.columns), ())
    if feature is None and datasets[0].dim > 1:
        model, names = _principal_components(datasets, 1)
        return (lambda data: model.transform(as_array(data.x))), names[0]
    if feature is not None:
        check_known("feature", feature, columns)
    position = 0 if feature is None else columns.index(feature)
    name = str(columns[position]) if columns else "feature"
    return (lambda data: as_array(data.x)[:, position : position + 1]), name


def _principal_components(datasets: Sequence[LabeledDataset], dim: int) -> tuple[PCA, list[str]]:
    """The first principal components of all datasets together, and their names."""
    from sklearn.decomposition import PCA

    n = sum(map(len, datasets))
    stride = max(1, n // min(_MAX_PCA_ROWS, max(100, _MAX_PCA_NUMBERS // datasets[0].dim)))
    rows = np.concatenate([as_array(data.x[::stride]) for data in datasets])
    if len(rows) < dim:
        rows = np.repeat(rows, dim, axis=0)
    model = PCA(dim, random_state=0).fit(rows)
    shares = np.nan_to_num(model.explained_variance_ratio_).tolist()
    names = [f"PC {k}, {100 * share:.0f} % of the variance" for k, share in enumerate(shares, 1)]
    return model, names
