"""A labeled dataset as a weighted sample of a joint law ρ(x, y) (paper, section 2.1).

``LabeledDataset`` is the one state that travels through the library: features, labels, weights and,
when label laws move by themselves, the laws. It is frozen: every method returns a new object that
shares what did not change."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from advect._util.checks import check_finite, missing_labels
from advect._util.facts import detached, remembered
from advect._util.html import facts_table
from advect.data.coerce import (
    as_codes,
    as_columns,
    as_features,
    as_law,
    as_weights,
)
from advect.data.continuous import ALL, Continuous, as_target_columns, as_targets
from advect.data.doors import Doors
from advect.data.doubt import Doubt, balanced_doubt, with_labels
from advect.data.few_samples import FewSamples
from advect.data.formats import Table
from advect.data.laws import Gaussians, estimate_gaussians, group_shares
from advect.data.laws.doubtful import estimate_doubtful
from advect.data.parts import Parts
from advect.errors import InputError


class LabeledDataset(Doors, Parts, FewSamples, Doubt, Continuous):
    """Samples with labels and weights: an empirical measure Σ w_i δ_(x_i, y_i).

    Args:
        x: features (n, …) as a numpy array, torch tensor or nested list. The sample shape is
            remembered and the features are flattened to (n, d) for geometry. Floating dtypes are
            kept (half precision becomes float32); integers become float32, or float64 if there are
            some from 2²⁴ on, which float32 would round.
        y: n labels of any hashable kind: strings, integers that need not start at 0, tuples. A
            tensor or array of whole numbers works too. None, NaN or pandas' NA is a missing label;
            ``y=None`` leaves all of them out.
        weights: None for uniform, ``"balanced"`` for the same mass for each class, or n
            non-negative numbers; scaled to sum to one.
        classes: the class names in order; by default the distinct labels, sorted where they can be.
            Labels are looked up among the names; whole numbers that are not names are positions in
            ``classes``.
        law: optional Gaussian label laws that replace those estimated from (x, y).
        law_index: for each sample, which row of ``law`` is its label law; by default its class.
        columns: names of the features of tabular samples, all different.
        table: what the columns were before they became numbers (files and data frames say so
            themselves): tables that are written have them so again. ``.replace(table=None)``
            forgets it, and numbers are written as they are.
        probabilities: for labels with doubt, the probability of each class for each sample, (n, k),
            rows that sum to one; ``y`` is then by default the likeliest class. None for labels that
            are certain. Another ``y`` by ``replace`` makes labels certain again.
        targets: continuous targets of a regression, n numbers or (n, q), held in float64 beside the
            labels. Without y there is one class then, called "all".
        target_columns: names of the targets.

    Attributes:
        x: features (n, d).  y: class positions (n,), int64, −1 where the label is missing.
        weights: (n,), float64 whatever x is, summing to one.
        classes: tuple of names.  sample_shape: shape of one sample.  law, law_index, columns,
            table: see above.  probabilities: None, or (n, k), float64.
        fixed_laws: whether gradients stop at the label laws that are estimated from x (set by the
            dynamics).
        targets: (n, q), or None.  target_unit: (q,), how many units of each target move as one of
            the features (set by ``JointTargets``).

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], ["cat", "dog", "cat"])
        >>> data.classes, data.y.tolist(), data.counts
        (('cat', 'dog'), [0, 1, 0], {'cat': 2, 'dog': 1})
        >>> data
        LabeledDataset(n=3, sample_shape=(2,), classes=2, dtype=float32)
        >>> ad.LabeledDataset([[0.0], [1.0]], ["cat", None]).labeled.tolist()
        [True, False]
        >>> ad.LabeledDataset([[0.0], [1.0]], targets=[3.5, 4.0]).targets.shape
        torch.Size([2, 1])
    """

    law: Gaussians | None
    law_index: Tensor | None
    probabilities: Tensor | None
    fixed_laws: bool
    target_unit: Tensor | None
    _known_complete: bool | None

    def __init__(
        self,
        x: Any,
        y: Any = None,
        weights: Any = None,
        classes: Sequence[Hashable] | None = None,
        *,
        law: Gaussians | None = None,
        law_index: Tensor | None = None,
        columns: Sequence[str] | None = None,
        table: Table | None = None,
        probabilities: Any = None,
        targets: Any = None,
        target_columns: Sequence[str] | None = None,
    ) -> None:
        features = as_features(x)
        if probabilities is not None:
            probabilities, y, classes = with_labels(probabilities, y, classes, features, law_index)
        if targets is not None and y is None and classes is None:
            y, classes = [ALL] * len(features), (ALL,)
        codes, names = as_codes(y, classes, len(features))
        numbers = as_targets(targets, len(features), features.device)
        codes = codes.to(features.device)
        fields = {
            "x": features.reshape(len(features), -1),
            "y": codes,
            "weights": as_weights(weights, codes, len(names), features),
            "classes": names,
            "sample_shape": tuple(features.shape[1:]),
            "fixed_laws": False,
            "columns": as_columns(columns, tuple(features.shape[1:])),
            "table": table,
            "probabilities": probabilities,
            "targets": numbers,
            "target_columns": as_target_columns(target_columns, numbers),
            "target_unit": None,
        }
        if probabilities is not None and type(weights) is str:
            fields["weights"] = balanced_doubt(probabilities)
        fields |= as_law(law, law_index, codes, len(names), fields["x"].shape[1])
        self._set(fields)

    def _set(self, fields: Mapping[str, Any], complete: bool | None = None) -> None:
        for name in _FIELDS:
            object.__setattr__(self, name, fields[name])
        object.__setattr__(self, "_known_complete", complete)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"LabeledDataset is frozen: make a new one with .replace({name}=…)")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("LabeledDataset is frozen: its fields cannot be deleted")

    def replace(self, **changes: Any) -> LabeledDataset:
        """A copy with some fields changed, values taken as they are: (n, d) features, positions,
        summing weights.

        Example:
            >>> import advect as ad
            >>> data = ad.LabeledDataset([[0.0], [1.0]], ["a", "b"])
            >>> data.replace(x=data.x + 1).x.tolist()
            [[1.0], [2.0]]
        """
        if unknown := set(changes) - set(_FIELDS):
            raise InputError(
                "replace takes fields of a dataset",
                ", ".join(sorted(unknown)),
                f"Fields: {', '.join(_FIELDS)}.",
            )
        width = changes.get("x", self.x).shape[1]
        shape = changes.get("sample_shape", self.sample_shape)
        if width != math.prod(shape):
            raise InputError(
                f"sample_shape {shape} needs {math.prod(shape)} features",
                width,
                "Change sample_shape along with x.",
            )
        if "columns" not in changes and (width,) != (self.dim,):
            changes["columns"] = None  # the old names do not fit
        if "y" in changes:
            changes.setdefault("probabilities", None)  # they were those of the labels before
        if "targets" not in changes and len(changes.get("x", self.x)) != len(self):
            changes |= {"targets": None, "target_columns": None}  # of other samples
        copy = object.__new__(LabeledDataset)
        fields = {name: changes.get(name, getattr(self, name)) for name in _FIELDS}
        copy._set(fields, None if "y" in changes else self.complete)
        return copy

    def __len__(self) -> int:
        return len(self.x)

    def __repr__(self) -> str:
        dtype = str(self.x.dtype).removeprefix("torch.")
        what = f"classes={len(self.classes)}"
        if self.targets is not None:
            what = f"{f'{what}, ' if self.has_classes else ''}targets={self.targets.shape[1]}"
        return f"LabeledDataset(n={len(self)}, sample_shape={self.sample_shape}, {what}, dtype={dtype})"

    def _repr_html_(self) -> str:
        counts = [f"{name}: {count}" for name, count in self.counts.items()]
        more = f" and {len(counts) - 20} more" if len(counts) > 20 else ""
        unlabeled = len(self) - int(self.labeled.sum())
        facts = {
            "samples": f"{len(self):,}",
            "sample shape": " × ".join(map(str, self.sample_shape)) or "a number",
            "dtype": str(self.x.dtype).removeprefix("torch."),
            f"{len(counts)} classes": ", ".join(counts[:20]) + more,
            **({"without a label": f"{unlabeled:,}"} if unlabeled else {}),
            **({"mean confidence": f"{self.confidence.mean():.3f}"} if self.has_doubt else {}),
            **self.target_facts(),
        }
        return facts_table("LabeledDataset", facts)

    @property
    def dim(self) -> int:
        """d, the number of features of a flattened sample."""
        return self.x.shape[1]

    @property
    def labeled(self) -> Tensor:
        """Which samples have a label, (n,) bool."""
        return self.y >= 0

    @cached_property
    def complete(self) -> bool:
        """Whether every sample has a label."""
        known = self._known_complete  # by the dataset that this one is a copy of
        if known is not None:
            return known
        return remembered(self.y, "complete", lambda: bool(self.labeled.all()))

    def require_labels(self, who: str) -> None:
        """An error that says who needs labels, unless every sample has one."""
        if not self.complete:
            raise missing_labels(who, int((~self.labeled).sum()), len(self))

    @property
    def counts(self) -> dict[Hashable, int]:
        """How many samples each class has, by ``y``; those without a label are not counted."""
        counts = torch.bincount(self.y[self.labeled], minlength=len(self.classes)).tolist()
        return dict(zip(self.classes, counts, strict=True))

    @property
    def class_mass(self) -> Tensor:
        """The mass Σ w_i of each class, (k,); Σ w_i p_i of labels with doubt."""
        if self.probabilities is not None:
            return self.weights @ self.probabilities
        self.require_labels("the mass of classes")
        return self.weights.new_zeros(len(self.classes)).index_add_(0, self.y, self.weights)

    @property
    def law_rows(self) -> Tensor:
        """For each sample, the row of ``laws()`` that is the law of its label, (n,)."""
        if self.law_index is not None:
            return self.law_index
        self.require_hard("the law of a label")
        self.require_labels("a label cost")
        return self.y

    def laws(self) -> Gaussians:
        """The label laws: those the dataset carries, otherwise those estimated from (x, y)."""
        return self.moments() if self.law is None else self.law

    def class_laws(self) -> Gaussians:
        """One law for each class: laws of single samples (``law_index``) are joined by mass, as
        mixtures; else ``laws()``.

        Example:
            >>> import torch, advect as ad
            >>> law = ad.Gaussians(torch.tensor([[0.0], [2.0], [7.0]]), ad.Full(torch.ones(3, 1, 1)))
            >>> data = ad.LabeledDataset([[0.0], [2.0], [7.0]], ["a", "a", "b"], law=law, law_index=[0, 1, 2])
            >>> data.class_laws().means.tolist(), data.class_laws().covariances().flatten().tolist()
            ([[1.0], [7.0]], [2.0, 1.0])
        """
        if self.law is None or self.law_index is None:
            return self.laws()
        self.require_labels("laws of classes")
        pairs, inverse = torch.unique(
            torch.stack([self.y, self.law_index]), dim=1, return_inverse=True
        )
        shares = group_shares(self.y, self.weights, len(self.classes))
        mass = shares.new_zeros(pairs.shape[1]).index_add_(0, inverse, shares)
        return self.law.take(pairs[1]).joined(pairs[0], mass, len(self.classes))

    def with_class_laws(self) -> LabeledDataset:
        """The same samples with one law for each class in place of one for each sample
        (``law_index``), if that is so.

        For what looks at classes, and for more samples than a table of their laws fits: what a
        jd-vl flow leaves carries as many laws as samples.

        Example:
            >>> import advect as ad
            >>> data = ad.JointVariableLabels().start(ad.LabeledDataset([[0.0], [2.0], [7.0]], ["a", "a", "b"]))
            >>> len(data.law), len(data.with_class_laws().law)
            (3, 2)
        """
        return (
            self if self.law_index is None else self.replace(law=self.class_laws(), law_index=None)
        )

    def with_shared_laws(self) -> LabeledDataset:
        """The same without laws that no sample has; equal laws become one, unless they move."""
        if self.law is None or self.law_index is None:
            return self
        rows = self.law_index
        used, index = remembered(rows, "used", lambda: rows.unique(return_inverse=True))
        law = self.law if len(used) == len(self.law) else self.law.take(used)
        if not law.requires_grad:  # each law that moves has a gradient of its own
            law, place = law.distinct()
            index = place[index]
        return self if len(law) == len(self.law) else self.replace(law=law, law_index=index)

    @property
    def law_features(self) -> Tensor:
        """The features that label laws are estimated from: without a graph if laws are fixed."""
        return detached(self.x) if self.fixed_laws else self.x

    def moments(self) -> Gaussians:
        """Mean and covariance (n − 1) of each class, estimated from the samples; differentiable in
        ``x``.

        In float64 whatever ``x`` is, since float32 cannot separate close classes far from the origin
        apart.

        Example:
            >>> import advect as ad
            >>> ad.LabeledDataset([[0.0], [2.0], [7.0]], ["a", "a", "b"]).moments().covariances().flatten().tolist()
            [2.0, 0.0]
        """
        # a graph is good for one backward pass: estimates with one are not kept
        return self._estimate() if self.law_features.requires_grad else self._estimated

    @cached_property
    def _estimated(self) -> Gaussians:
        return self._estimate()

    def diagonal_laws(self) -> Gaussians:
        """``laws()`` with everything off the diagonal dropped; of estimates nothing else is kept.

        Example:
            >>> import advect as ad
            >>> data = ad.LabeledDataset([[-2.0, -2.0], [0.0, 0.0], [2.0, 2.0]], ["a", "a", "a"])
            >>> data.laws().covariances().round().tolist(), data.diagonal_laws().covariances().round().tolist()
            ([[[4.0, 4.0], [4.0, 4.0]]], [[[4.0, 0.0], [0.0, 4.0]]])
        """
        if self.law is not None or self.law_features.requires_grad:
            return self.laws().diagonal()
        return self._estimated_diagonal

    @cached_property
    def _estimated_diagonal(self) -> Gaussians:
        return self._estimate().diagonal()

    def _estimate(self) -> Gaussians:
        if self.probabilities is not None:
            return estimate_doubtful(self.law_features, self.probabilities, self.weights)
        self.require_labels("the estimate of label laws")
        return estimate_gaussians(self.law_features, self.y, self.weights, len(self.classes))

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> LabeledDataset:
        """The dataset on another device or in another floating dtype.

        Example:
            >>> import torch, advect as ad
            >>> ad.LabeledDataset([[0.0]], [1]).to(dtype=torch.float64).x.dtype
            torch.float64
        """
        if dtype is not None and dtype not in (torch.float32, torch.float64):
            raise InputError(
                "dtype must be torch.float32 or torch.float64",
                dtype,
                "Half precision is too coarse for transport.",
            )
        x = self.x.to(device=device, dtype=dtype)
        if x.dtype != self.x.dtype:
            check_finite(
                "features", x, "They do not fit float32: keep float64, or rescale them first."
            )
        return self.replace(
            x=x,
            y=self.y.to(device=device),
            weights=self.weights.to(device=device),
            law=None if self.law is None else self.law.to(device, dtype),
            law_index=None if self.law_index is None else self.law_index.to(device=device),
            probabilities=(
                None if self.probabilities is None else self.probabilities.to(device=device)
            ),
            targets=None if self.targets is None else self.targets.to(device=device),
            target_unit=None if self.target_unit is None else self.target_unit.to(device=device),
        )


_FIELDS = (
    *("x", "y", "weights", "classes", "sample_shape"),
    *("law", "law_index", "fixed_laws", "columns", "table", "probabilities"),
    *("targets", "target_columns", "target_unit"),
)
