"""Training sets from a few samples: a large source dataset flows to a small target one (paper,
section 6.2).

What comes back are labeled datasets, ready for any trainer: where the source ended, the way it
took, extra source samples carried by a map. Which of them help is for ``evaluate_transfer`` to say.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from dataclasses import dataclass

import torch

from advect._util.checks import check_kind
from advect._util.linalg import squared_distances
from advect.apps.carry import CarryOptions, carrier, carry
from advect.classes.matching import ClassMatching
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.flows.callbacks import Recorder
from advect.flows.loop import FlowResult
from advect.maps.base import Map
from advect.ot import Relative, Sinkhorn, Solver

_SOLVER = Sinkhorn(Relative(0.001), tol=1e-3)
_PURE = 0.9  # below, labels are too often wrong to train on


@dataclass(frozen=True)
class TransferOptions(CarryOptions):
    """How a source flows to a few target samples: ``CarryOptions``; every so many states of the way
    are kept, and the last.

    Few samples say little about their class, so labels weigh more than elsewhere, for classes to
    stay apart, and epsilon is smaller in proportion, for samples not to end in averages: one-shot
    USPS reached from MNIST was 92 % pure with the weight and epsilon of ``CarryOptions``, and
    wholly with these (docs/results.md).

    Example:
        >>> import advect as ad
        >>> ad.apps.TransferOptions(n_steps=20, every=5).label_weight
        50.0
    """

    label_weight: float = 50.0
    solver: Solver | None = _SOLVER


@dataclass(frozen=True, eq=False)
class Transferred:
    """Training sets under the target's labels.

    Attributes:
        final: the source where the flow ended.  way: the states kept on the way, one after the
            other, the last included and the first, which is the source, not.
        mapped: the extra samples carried by the map, if there were any.  few: the target samples
            themselves.
        purity: the share of ``final`` that ended nearest to one of the few with its own label; well
            below 1, classes have mixed on the way, and labels are wrong.
        matching: which class of the source became which of the target's.  result: the flow.  map:
            carries more samples.
    """

    final: LabeledDataset
    way: LabeledDataset
    mapped: LabeledDataset | None
    few: LabeledDataset
    purity: float
    matching: ClassMatching
    result: FlowResult
    map: Map

    def relabeled(self, data: LabeledDataset) -> LabeledDataset:
        """Data of the source's classes under the target's names, by the matching."""
        return _relabeled(data, self.matching, self.few)


def transfer(
    source: LabeledDataset,
    few: LabeledDataset,
    *,
    extra: LabeledDataset | None = None,
    options: TransferOptions | None = None,
) -> Transferred:
    """Flow a source dataset to a few labeled target samples and return training sets for the
    target's task.

    Args:
        source: plenty of labeled samples of another task, in the same feature space (see
            ``ad.harmonize``).
        few: the target samples.
        extra: more source samples, which do not take part in the flow and follow by a map.
        options: how; see ``TransferOptions``.

    Example:
        >>> import torch, advect as ad
        >>> generator = torch.Generator().manual_seed(0)
        >>> source = ad.datasets.gaussians(90, generator=generator)
        >>> target = ad.datasets.gaussians(90, shift=(9.0, 0.0), generator=generator).replace(classes=("a", "b", "c"))
        >>> sets = ad.apps.transfer(source, target.sample(6, balanced=True, generator=generator))
        >>> sets.final.classes, len(sets.way), sets.purity
        (('a', 'b', 'c'), 270, 1.0)
    """
    options = options or TransferOptions()
    for name, data in (("source", source), ("few", few)):
        remedy = "Wrap arrays as ad.LabeledDataset(x, y)."
        check_kind(f"{name} must be a LabeledDataset", data, LabeledDataset, remedy)
        data.require_labels(
            f"transfer from {name}" if name == "source" else "transfer to a few samples"
        )
    recorder = Recorder(every=options.every)
    result = carry(source, few, options, [recorder])
    matching = ClassMatching.between(result.dataset, few)
    # z_1 … z_T of the paper
    frames = [frame.dataset for frame in result.trajectory if frame.index > 0]
    if result.trajectory[-1].index != result.n_steps:
        frames.append(result.dataset)
    follow = carrier(options).fit(result)
    mapped = None if extra is None else _relabeled(follow.transform(extra), matching, few)
    final, way = (
        _relabeled(result.dataset, matching, few),
        joined([_relabeled(frame, matching, few) for frame in frames]),
    )
    purity = _purity(final, few)
    if purity < _PURE:
        warnings.warn(
            f"{1 - purity:.0%} of the flowed samples ended nearest to a sample of another class "
            "than the one they are labeled "
            f"with: classes have mixed. Raise label_weight (now {options.label_weight:g}), or give "
            "label its full form, "
            "ad.Bures().",
            stacklevel=2,
        )
    return Transferred(final, way, mapped, few, purity, matching, result, follow)


def _purity(final: LabeledDataset, few: LabeledDataset) -> float:
    nearest = squared_distances(final.x, few.x.to(final.x)).argmin(dim=1)
    return float((few.y[nearest] == final.y).double().mean())


def joined(parts: list[LabeledDataset]) -> LabeledDataset:
    """Datasets with the same classes one after the other, each with the same mass for each of its
    samples as before.

    Example:
        >>> import advect as ad
        >>> a = ad.LabeledDataset([[0.0]], ["u"], classes=["u", "v"])
        >>> b = ad.LabeledDataset([[1.0], [2.0]], ["v", "u"])
        >>> ad.apps.joined([a, b]).labels
        ['u', 'v', 'u']
    """
    first = parts[0]
    for part in parts:
        if part.classes != first.classes or part.sample_shape != first.sample_shape:
            raise InputError(
                "datasets to join must have the same classes and sample shape",
                f"{part.classes} of {part.sample_shape} with {first.classes} of "
                f"{first.sample_shape}",
                "Give them the same class names in the same order, and harmonize them.",
            )
    weights = torch.cat([part.weights * len(part) for part in parts])
    return first.replace(
        x=torch.cat([part.x.to(first.x) for part in parts]),
        y=torch.cat([part.y for part in parts]),
        weights=weights / weights.sum(),
        law=None,
        law_index=None,
    )


def _relabeled(
    data: LabeledDataset, matching: ClassMatching, target: LabeledDataset
) -> LabeledDataset:
    names: dict[Hashable, Hashable] = matching.hard
    codes = [target.classes.index(names[name]) if name in names else -1 for name in data.classes]
    y = torch.tensor([*codes, -1], device=data.y.device)[data.y]  # a missing label, −1, stays one
    return data.replace(y=y, classes=target.classes, law=None, law_index=None)
