"""Continuous targets against features: where a regression flow begins, goes, and should end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from advect._util.checks import check_known
from advect.data.dataset import LabeledDataset
from advect.data.laws.conditional import target_ranks
from advect.errors import InputError
from advect.viz.projections import principal_view
from advect.viz.states import Frames, as_array, others, states_of
from advect.viz.theme import add_legend, dress, look, new_figure, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARGIN = 0.06


def regression(
    frames: Frames,
    target: LabeledDataset | None = None,
    *,
    feature: str | None = None,
    aim: int = 0,
    ranks: bool = False,
    columns: int | None = None,
    titles: Sequence[str] | None = None,
) -> Figure:
    """A row of panels over time: one feature, from left to right, against a continuous target.

    Filled marks are the samples of the flow, hollow ones those of the target dataset; all panels
    share their axes.

    Args:
        frames: a list of datasets or recorded frames, a trajectory, or the result of a flow; with
            continuous targets.
        target: where they are going.
        feature: the name of a column; by default the first principal component of all that is
            drawn, or the one feature that there is.
        aim: which of several targets.
        ranks: draw the rank of each target in its dataset in place of its value: for datasets whose
            targets are in different units, and ``TargetLaws``.
        columns: how many panels at most; by default one for each frame of a list, and four for a
            trajectory or a result.
        titles: one for each panel; by default the step number of a recorded frame.

    Raises:
        InputError: data without targets, a column or target that is not there.

    Example:
        >>> import torch, advect as ad
        >>> from advect import viz
        >>> x = torch.linspace(0, 1, 30)[:, None]
        >>> source, target = ad.LabeledDataset(x, targets=x), ad.LabeledDataset(x + 2, targets=x.exp())
        >>> result = ad.flow(source, ad.OTDD(target), n_steps=4, dynamics=ad.JointTargets(), callbacks=[ad.Recorder(every=2)])
        >>> [axes.get_title() for axes in viz.regression(result, target).axes]
        ['step 0', 'step 2', 'step 4']
    """
    states = states_of(frames, columns, of_flow=4)
    if titles is not None and len(titles) != len(states):
        raise InputError(
            f"there must be a title for each of the {len(states)} panels",
            len(titles),
            "Give one for each frame.",
        )
    drawn = [*(state.dataset for state in states), *others(target)]
    across, name = _across(drawn, feature)
    heights = [_height(data, aim, ranks) for data in drawn]
    label = drawn[0].target_names[aim] + (", rank" if ranks else "")
    now, n = look(), len(states)
    figure = new_figure(2.5 * n + 0.4, 2.5)
    panels: Any = figure.subplots(1, n, sharex=True, sharey=True, squeeze=False)[0]
    size = 14 * min(1.0, max(0.3, np.sqrt(300 / len(drawn[0]))))
    size_of = {"s": size, "linewidths": 0.25}
    handles: list[Any] = []
    for k, (axes, state) in enumerate(zip(panels, states, strict=True)):
        here = axes.scatter(
            across[k], heights[k], color=now.palette[0], edgecolors=now.ground, zorder=3,
            label="flow", **size_of,
        )  # fmt: skip
        handles = [here]
        if target is not None:
            faint = {"facecolors": "none", "edgecolors": now.grey, "zorder": 1, "label": "target"}
            hollow = size_of | {"linewidths": 0.7}
            handles.append(axes.scatter(across[-1], heights[-1], **faint, **hollow))
        axes.set_title(state.caption() if titles is None else titles[k], pad=4)
        axes.set_xlabel(short(name, 28))
        axes.margins(_MARGIN)
        axes.spines[["top", "right"]].set_visible(False)
        dress(axes)
    panels[0].set_ylabel(short(label, 28))
    add_legend(figure, handles)
    return figure


def _across(drawn: Sequence[LabeledDataset], feature: str | None) -> tuple[list[np.ndarray], str]:
    """The horizontal place of each sample, and what it is."""
    if len({data.dim for data in drawn}) > 1:
        raise InputError(
            "all that is drawn must have the same features",
            sorted({data.dim for data in drawn}),
            "Bring them together with ad.harmonize(source, target).",
        )
    columns = next((data.columns for data in drawn if data.columns), None)
    if feature is not None:
        check_known("feature", feature, columns or ())
    if feature is None and drawn[0].dim > 1:
        rows = torch.cat([data.x.detach().cpu().double() for data in drawn])
        fitted, (share,) = principal_view(rows, 1)
        name = f"PC 1, {share:.0%} of the variance".replace("%", " %")
        return [as_array(fitted.apply(data.x.detach()))[:, 0] for data in drawn], name
    at = 0 if feature is None or columns is None else columns.index(feature)
    name = columns[at] if columns else "feature"
    return [as_array(data.x.detach()[:, at]) for data in drawn], name


def _height(data: LabeledDataset, aim: int, ranks: bool) -> np.ndarray:
    values = data.require_targets("viz.regression").detach()
    if not 0 <= aim < values.shape[1]:
        raise InputError(f"there are {values.shape[1]} targets", aim, "Count from 0.")
    values = target_ranks(values, data.weights) if ranks else values
    return as_array(values[:, aim])
