"""Continuous targets: what a regression predicts, beside the features of each sample.

A dataset with targets and no labels has one class, ``"all"``, so that whatever goes by classes sees
one; what needs classes that mean something asks ``require_classes``."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from advect._util.checks import check_finite, check_known, one_or_more
from advect.data.coerce import as_tensor
from advect.data.formats.table import grid_shape
from advect.data.laws.conditional import target_ranks
from advect.errors import InputError

ALL = "all"  # the class of samples that have targets and no labels


def as_targets(targets: Any, n: int, device: torch.device) -> Tensor | None:
    """Targets (n, q) in float64; a copy, unless gradients are to pass."""
    if targets is None:
        return None
    remedy = "Pass a number or a vector for each sample; labels that are names go to y."
    try:
        values = as_tensor(targets)
        values = values.clone() if values is targets and not values.requires_grad else values
        if values.is_complex() or values.dtype == torch.bool:
            raise TypeError
        values = values.to(device=device, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        kind = getattr(targets, "dtype", type(targets).__name__)
        raise InputError("targets must be real numbers", kind, remedy) from None
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or len(values) != n or values.shape[1] == 0:
        raise InputError(
            f"targets must be one number or vector for each of the {n} samples",
            f"shape {tuple(values.shape)}",
            remedy,
        )
    check_finite("targets", values, "Leave out samples whose target is missing.")
    return values


def as_target_columns(
    names: Sequence[str] | None, targets: Tensor | None
) -> tuple[str, ...] | None:
    """Different names, one for each target; None for none."""
    if names is None:
        return None
    found, q = tuple(one_or_more(names)), 0 if targets is None else targets.shape[1]
    texts = all(type(name) is str for name in found)
    if len(found) != q or len(set(found)) != q or not texts:
        raise InputError(
            f"target_columns must be different names, one for each of {q} targets",
            ", ".join(map(str, found)),
            "Pass one string for each column of targets, or None.",
        )
    return found


class Continuous:
    """What ``LabeledDataset`` has for continuous targets; it has the fields."""

    x: Tensor
    targets: Tensor | None
    target_columns: tuple[str, ...] | None
    columns: tuple[str, ...] | None
    classes: tuple[Hashable, ...]
    y: Tensor
    weights: Tensor
    if TYPE_CHECKING:

        def __len__(self) -> int: ...
        def replace(self, **changes: Any) -> Any: ...

    @property
    def has_classes(self) -> bool:
        """Whether classes mean something: False for data that have targets and no labels.

        Example:
            >>> import advect as ad
            >>> ad.LabeledDataset([[0.0], [1.0]], targets=[3.5, 4.0]).has_classes
            False
        """
        return self.targets is None or self.classes != (ALL,)

    def require_classes(self, who: str) -> None:
        """An error that says who needs classes, for data that have targets and no labels."""
        if not self.has_classes:
            raise InputError(
                f"{who} needs classes",
                f"{len(self)} samples with continuous targets and no labels",
                "Pass labels too, for example the targets in bins: "
                "ad.LabeledDataset(x, bins, targets=y). Distances and flows take targets as they "
                "are (docs/regression.md).",
            )

    def require_targets(self, who: str) -> Tensor:
        """The targets, (n, q); an error that says who needs them, if there are none."""
        if self.targets is None:
            raise InputError(
                f"{who} needs continuous targets",
                f"{len(self)} samples without",
                "Pass ad.LabeledDataset(x, targets=y), or ?target=column for a file; "
                "ad.GroundCost(label=ad.NoLabels()) compares features alone.",
            )
        return self.targets

    def with_targets(self, columns: str | Sequence[str]) -> Self:
        """The same samples with some columns taken out of the features, as targets.

        For tables that were read without saying what is to be predicted.

        Args:
            columns: name or names among ``data.columns``.

        Example:
            >>> import advect as ad
            >>> table = ad.LabeledDataset([[1.0, 2.0, 30.0]], columns=["rooms", "floor", "price"])
            >>> data = table.with_targets("price")
            >>> data.columns, data.targets.tolist(), data.target_columns
            (('rooms', 'floor'), [[30.0]], ('price',))
        """
        names = self.columns or ()
        wanted = list(dict.fromkeys(one_or_more(columns)))
        if not names:
            raise InputError(
                "targets are taken from columns by name",
                f"{self.x.shape[1]} features without names",
                "Pass ad.LabeledDataset(x, targets=y).",
            )
        for name in wanted:
            check_known("target column", str(name), names)
        at = [names.index(str(name)) for name in wanted]
        rest = [k for k in range(len(names)) if k not in at]
        if not rest:
            raise InputError(
                "a table needs a column of features beside its targets",
                ", ".join(names),
                "Name fewer targets.",
            )
        kept = tuple(names[k] for k in rest)
        shape = grid_shape(kept)
        labels = {} if self.classes else {"y": torch.zeros_like(self.y), "classes": (ALL,)}
        return self.replace(
            x=self.x[:, rest],
            sample_shape=shape or (len(rest),),
            columns=None if shape else kept,
            targets=self.x[:, at].double(),
            target_columns=tuple(names[k] for k in at),
            **labels,
        )

    def with_targets_like(self, other: Continuous) -> Self:
        """The same samples with targets in the units of another dataset: each at the same rank
        there, column by column; between two of them in proportion.

        For what a flow under ``TargetLaws`` leaves, which knows the order of targets alone: the
        increasing map that carries one law of targets onto the other.

        Args:
            other: a dataset with as many targets, that mean the same in the same direction.

        Example:
            >>> import advect as ad
            >>> euros = ad.LabeledDataset([[0.0]] * 3, targets=[1.0, 2.0, 3.0])
            >>> cents = ad.LabeledDataset([[0.0]] * 3, targets=[300.0, 100.0, 200.0])
            >>> euros.with_targets_like(cents).targets.flatten().tolist()
            [100.0, 200.0, 300.0]
        """
        own, theirs = self.require_targets("this"), other.require_targets("the other dataset")
        if own.shape[1] != theirs.shape[1]:
            raise InputError(
                "both datasets must have the same targets",
                f"{own.shape[1]} and {theirs.shape[1]} for each sample",
                "Take those that both have.",
            )
        here, there = (
            target_ranks(data.targets, data.weights).cpu().numpy()
            for data in (self, other)
            if data.targets is not None
        )
        made = np.empty_like(here)
        for k, values in enumerate(theirs.detach().cpu().numpy().T):
            order = np.argsort(values)
            made[:, k] = np.interp(here[:, k], there[order, k], values[order])
        return self.replace(targets=torch.from_numpy(made).to(own.device))

    @property
    def target_names(self) -> tuple[str, ...]:
        """A name for each target: its column's, else target, target1, …

        Example:
            >>> import advect as ad
            >>> ad.LabeledDataset([[0.0]], targets=[[3.5, 4.0]]).target_names
            ('target', 'target1')
        """
        q = 0 if self.targets is None else self.targets.shape[1]
        return self.target_columns or ("target", *(f"target{k}" for k in range(1, q)))[:q]

    def target_facts(self) -> dict[str, str]:
        """The ends and the middle of each target, in words."""
        facts = {}
        columns = () if self.targets is None else self.targets.detach().T
        for name, values in zip(self.target_names, columns, strict=True):
            low, middle, high = (
                float(part) for part in (values.min(), values.median(), values.max())
            )
            facts[f"target {name}"] = f"{low:.4g} to {high:.4g}, median {middle:.4g}"
        return facts
