"""A labeled dataset as a weighted sample of a joint law ρ(x, y) (paper, section 2.1)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from advect._util import InputError, check_finite, missing_labels, refuse_if
from advect.data.coerce import (
    ALL,
    as_class_names,
    as_codes,
    as_columns,
    as_features,
    as_law,
    as_probabilities,
    as_soft_codes,
    as_targets,
    as_weights,
    check_soft_laws,
)
from advect.data.conversions import Conversions
from advect.data.laws import Gaussians, estimate_gaussians, estimate_soft, group_shares
from advect.data.sampling import BY_ROW, as_index
from advect.io.formats import Table


class LabeledDataset(Conversions):
    """Samples with labels and weights: an empirical measure Σ w_i δ_(x_i, y_i).

    A dataset is frozen. Every method returns a new object that shares what did not change.

    Args:
        x: features (n, …) as a numpy array, torch tensor, nested list, or an array of another
            library (``__array__`` or ``__dlpack__``). They are flattened to (n, d); ``sample_shape``
            keeps the shape of one sample. Floating dtypes stay, but half precision becomes float32.
            Integers become float32, or float64 from 2²⁴ on.
        y: n labels of any hashable kind, or a tensor or array of whole numbers. None, NaN and
            pandas' NA are missing labels; ``y=None`` is a dataset without labels.
        weights: None for uniform, ``"balanced"`` for the same mass in each class, or n
            non-negative numbers. They are scaled to sum to one.
        classes: class names in order; by default the distinct labels, sorted if possible. Whole
            numbers in y that are not names are positions in ``classes``.
        law: Gaussian label laws to use instead of those estimated from (x, y).
        law_index: the row of ``law`` for each sample; by default its class.
        columns: names of the features of tabular samples, all different.
        table: the original kinds of the columns, set by readers and restored by writers.
        probabilities: soft labels, (n, k), with rows that sum to one. ``y`` is then the most
            probable class by default. None for hard labels.
        targets: continuous targets, n numbers or (n, q), stored in float64. Without y there is
            one class, ``"all"``.
        target_columns: names of the targets.
        index: names of the samples, such as the index of a data frame; files do not keep them.

    Attributes:
        x: features (n, d).  y: class positions (n,), int64, −1 for a missing label.
        weights: (n,), float64, summing to one.  classes: tuple of names.
        sample_shape: shape of one sample.  dim: d, the number of features of a flattened sample.
        labeled: (n,) bool, which samples have a label.  probabilities: (n, k) in float64, or None.
        has_soft_labels: whether labels are probabilities.  has_classes: False for data with
        targets and no labels.  targets: (n, q), or None.  target_unit: (q,), scale of the targets in
            a flow (``JointTargets``).  fixed_laws: whether gradients stop at the estimated laws.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], ["cat", "dog", "cat"])
        >>> data.classes, data.y.tolist(), data.counts
        (('cat', 'dog'), [0, 1, 0], {'cat': 2, 'dog': 1})
        >>> data
        LabeledDataset(n=3, sample_shape=(2,), classes=2, dtype=float32)
    """

    def __init__(
        self,
        x: Any,
        y: Any = None,
        weights: Any = None,
        classes: Sequence[Hashable] | None = None,
        *,
        law: Gaussians | None = None,
        law_index: Any = None,
        columns: Sequence[str] | None = None,
        table: Table | None = None,
        probabilities: Any = None,
        targets: Any = None,
        target_columns: Sequence[str] | None = None,
        index: Any = None,
    ) -> None:
        features = as_features(x)
        n, device, shape = len(features), features.device, tuple(features.shape[1:])
        soft = None
        if probabilities is not None:
            k = None if classes is None else len(classes)
            soft = as_probabilities(probabilities, features, k)
            codes, names = as_soft_codes(soft, y, classes)
            check_soft_laws(law_index)
        elif targets is not None and y is None and classes is None:
            codes, names = torch.zeros(n, dtype=torch.int64), (ALL,)
        else:
            codes, names = as_codes(y, classes, n)
        codes = codes.to(device)
        values = as_targets(targets, n, device)
        n_targets = 0 if values is None else values.shape[1]
        self._set(
            {
                "x": features.reshape(n, -1),
                "y": codes,
                "weights": as_weights(weights, codes, len(names), soft),
                "classes": names,
                "sample_shape": shape,
                "fixed_laws": False,
                "columns": as_columns(columns, shape[0] if len(shape) == 1 else 0),
                "table": table,
                "probabilities": soft,
                "targets": values,
                "target_columns": as_columns(target_columns, n_targets, "target_columns"),
                "target_unit": None,
                "index": as_index(index, n),
                **as_law(law, law_index, codes, len(names), math.prod(shape)),
            }
        )

    def _set(self, fields: Mapping[str, Any]) -> None:
        """Set all fields, and the attributes that follow from them."""
        self.__dict__.update(
            fields,
            dim=fields["x"].shape[1],
            labeled=fields["y"] >= 0,
            has_soft_labels=fields["probabilities"] is not None,
            has_classes=fields["targets"] is None or fields["classes"] != (ALL,),
            _estimate=None,
        )

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"LabeledDataset is frozen: make a new one with .replace({name}=…)")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("LabeledDataset is frozen: its fields cannot be deleted")

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        dtype = str(self.x.dtype).removeprefix("torch.")
        what = f"classes={len(self.classes)}"
        if self.targets is not None:
            what = f"{f'{what}, ' if self.has_classes else ''}targets={self.targets.shape[1]}"
        return f"LabeledDataset(n={len(self)}, sample_shape={self.sample_shape}, {what}, dtype={dtype})"

    @property
    def class_mass(self) -> Tensor:
        """The mass Σ w_i of each class, (k,); Σ w_i p_i for soft labels."""
        if self.probabilities is not None:
            return self.weights @ self.probabilities
        require_labels(self, "class_mass")
        return self.weights.new_zeros(len(self.classes)).index_add_(0, self.y, self.weights)

    def laws(self) -> Gaussians:
        """The label laws: ``law`` if the dataset has it, else mean and covariance of each class.

        Estimates divide by n − 1, are computed in float64 and are differentiable in ``x``.

        Example:
            >>> import advect as ad
            >>> ad.LabeledDataset([[0.0], [2.0], [7.0]], ["a", "a", "b"]).laws().covariances().flatten().round().tolist()
            [2.0, 0.0]
        """
        laws = self._estimate if self.law is None else self.law
        if laws is None:
            x = self.x.detach() if self.fixed_laws else self.x
            if self.probabilities is not None:
                laws = estimate_soft(x, self.probabilities, self.weights)
            else:
                if not bool(self.labeled.all()):
                    require_labels(self, "the estimate of label laws")
                laws = estimate_gaussians(x, self.y, self.weights, len(self.classes))
            if not x.requires_grad:  # a graph serves one backward pass
                object.__setattr__(self, "_estimate", laws)
        return laws

    @cached_property
    def _diagonal_laws(self) -> Gaussians:
        return self._replace().laws().diagonal()  # of a copy: only the diagonals are cached

    def class_laws(self) -> Gaussians:
        """One law for each class. Laws of single samples (``law_index``) are joined by mass.

        Example:
            >>> import torch, advect as ad
            >>> from advect.data.laws import Full
            >>> law = ad.Gaussians(torch.tensor([[0.0], [2.0], [7.0]]), Full(torch.ones(3, 1, 1)))
            >>> data = ad.LabeledDataset([[0.0], [2.0], [7.0]], ["a", "a", "b"], law=law, law_index=[0, 1, 2])
            >>> data.class_laws().means.tolist(), data.class_laws().covariances().flatten().round().tolist()
            ([[1.0], [7.0]], [2.0, 1.0])
        """
        if self.law is None or self.law_index is None:
            return self.laws()
        require_labels(self, "class_laws")
        rows = torch.stack([self.y, self.law_index])
        pairs, inverse = torch.unique(rows, dim=1, return_inverse=True)
        within = group_shares(self.y, self.weights, len(self.classes))
        mass = within.new_zeros(pairs.shape[1]).index_add_(0, inverse, within)
        return self.law.take(pairs[1]).joined(pairs[0], mass, len(self.classes))

    def replace(self, **changes: Any) -> LabeledDataset:
        """A copy with some fields changed, checked as in the constructor.

        Tensors are used without a copy, and a tensor ``y`` holds class positions. A new ``y``
        makes labels hard; new ``probabilities`` set ``y`` to the most probable class. A new ``x`` with
        another number of features sets ``sample_shape``: ``data.replace(x=network(data.samples))``.

        Example:
            >>> import torch, advect as ad
            >>> data = ad.LabeledDataset([[0.0], [1.0]], ["a", "b"])
            >>> data.replace(x=data.x + 1).x.tolist()
            [[1.0], [2.0]]
            >>> data.replace(x=torch.tensor([[0.0, 1.0], [2.0, 3.0]])).sample_shape
            (2,)
            >>> data.replace(probabilities=[[0.9, 0.1], [0.8, 0.2]]).labels
            ['a', 'a']
        """
        unknown = changes.keys() - set(_FIELDS)
        refuse_if(
            unknown,
            "replace takes fields of a dataset",
            ", ".join(sorted(unknown)),
            f"Fields: {', '.join(_FIELDS)}.",
        )
        return self._replace(**_checked_changes(self, changes) if changes else {})

    def _replace(self, **changes: Any) -> LabeledDataset:
        """``replace`` without checks, for values that are known to be valid."""
        values = vars(self)
        fields = {name: values[name] for name in _FIELDS}
        if changes.get("x", self.x).shape[1] != self.dim:
            fields["columns"] = None
        if "y" in changes:
            fields["probabilities"] = None
        copy = object.__new__(LabeledDataset)
        copy._set(fields | changes)
        return copy

    def hard(self) -> LabeledDataset:
        """The same samples with hard labels ``y`` instead of probabilities.

        Example:
            >>> import advect as ad
            >>> data = ad.LabeledDataset([[0.0], [1.0]], probabilities=[[0.9, 0.1], [0.8, 0.2]])
            >>> data.hard().has_soft_labels, data.hard().class_mass.tolist()
            (False, [1.0, 0.0])
        """
        return self if self.probabilities is None else self._replace(probabilities=None)

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> LabeledDataset:
        """The dataset on another device or in another floating dtype.

        Example:
            >>> import torch, advect as ad
            >>> ad.LabeledDataset([[0.0]], [1]).to(dtype=torch.float64).x.dtype
            torch.float64
        """
        refuse_if(
            dtype is not None and dtype not in (torch.float32, torch.float64),
            "dtype must be torch.float32 or torch.float64",
            dtype,
            "Half precision is too coarse for transport.",
        )
        x = self.x.to(device=device, dtype=dtype)
        if x.dtype != self.x.dtype:
            check_finite("features", x, "They do not fit float32: keep float64, or rescale them.")
        others = {name: getattr(self, name) for name in (*BY_ROW[1:], "target_unit")}
        others = {n: None if v is None else v.to(device=device) for n, v in others.items()}
        law = None if self.law is None else self.law.to(device, dtype)
        return self._replace(x=x, law=law, **others)


_FIELDS = (
    *("x", "y", "weights", "classes", "sample_shape"),
    *("law", "law_index", "fixed_laws", "columns", "table", "probabilities"),
    *("targets", "target_columns", "target_unit", "index"),
)


def _checked_changes(data: LabeledDataset, changes: dict[str, Any]) -> dict[str, Any]:
    """The changes of ``replace``, converted and checked against the fields that stay."""
    if "x" in changes:
        x = changes["x"]
        if torch.is_tensor(x) and x.ndim == 2 and x.dtype in (torch.float32, torch.float64):
            check_finite("features", x)
            if x.shape[1] != data.dim:
                changes.setdefault("sample_shape", tuple(x.shape[1:]))
        else:
            x = as_features(x)
            changes.setdefault("sample_shape", tuple(x.shape[1:]))
            x = changes["x"] = x.reshape(len(x), -1)
        if len(x) != len(data):  # the targets and laws of other samples
            changes = dict.fromkeys(("targets", "target_columns", "law_index", "index")) | changes
    x = changes.get("x", data.x)
    n, dim = x.shape
    shape = tuple(changes.get("sample_shape", data.sample_shape))
    size = math.prod(shape)
    refuse_if(size != dim, f"sample_shape {shape} needs {size} features", dim, "Change both.")
    if changes.get("probabilities") is not None:
        names = changes.get("classes", data.classes)
        soft = as_probabilities(changes["probabilities"], x, len(names) or None)
        changes |= {"probabilities": soft, "classes": names or range(soft.shape[1])}
        if "y" not in changes:
            changes["y"] = soft.argmax(dim=1)
            if data.law_index is not None and "law_index" not in changes:
                changes = {"law": data.class_laws(), "law_index": None} | changes
        check_soft_laws(changes.get("law_index", data.law_index))
    if n != len(data) or "y" in changes or "classes" in changes:
        y, classes = changes.get("y", data.y), changes.get("classes", data.classes)
        positions = torch.is_tensor(y) and y.dtype == torch.int64 and y.shape == (n,)
        if positions and int(y.min()) >= -1 and int(y.max()) < len(classes):
            if "classes" in changes:
                changes["classes"] = as_class_names(classes)
        else:
            y, changes["classes"] = as_codes(y, classes, n)
            changes["y"] = y.to(x.device)
            changes.setdefault("probabilities", None)
    y, names = changes.get("y", data.y), changes.get("classes", data.classes)
    soft = changes.get("probabilities", None if "y" in changes else data.probabilities)
    if soft is not None and soft.shape != (n, len(names)):
        raise InputError(
            f"probabilities must have the shape ({n}, {len(names)})",
            f"shape {tuple(soft.shape)}",
            "Change probabilities along with the samples or classes, or take data.hard() first.",
        )
    if n != len(data) or "weights" in changes:
        changes["weights"] = as_weights(changes.get("weights", data.weights), y, len(names), soft)
    if changes.keys() & {"x", "y", "classes", "law", "law_index"}:
        law, law_index = changes.get("law", data.law), changes.get("law_index", data.law_index)
        changes |= as_law(law, law_index, y, len(names), dim)
    if "columns" in changes:
        changes["columns"] = as_columns(changes["columns"], shape[0] if len(shape) == 1 else 0)
    if "index" in changes:
        changes["index"] = as_index(changes["index"], n)
    if "targets" in changes:
        changes["targets"] = as_targets(changes["targets"], n, x.device)
    if "targets" in changes or "target_columns" in changes:
        targets = changes.get("targets", data.targets)
        n_targets = 0 if targets is None else targets.shape[1]
        target_names = changes.get("target_columns", data.target_columns)
        changes["target_columns"] = as_columns(target_names, n_targets, "target_columns")
    return changes


def require_labels(data: LabeledDataset, who: str) -> None:
    """Raise an error that names ``who`` unless every sample has a label."""
    if not bool(data.labeled.all()):
        raise missing_labels(who, int((~data.labeled).sum()), len(data))


def require_hard(data: LabeledDataset, who: str) -> None:
    """Raise an error that names ``who`` for soft labels."""
    refuse_if(
        data.has_soft_labels,
        f"{who} needs one label for each sample",
        "soft labels",
        "Take the most probable class with data.hard().",
    )


def has_classes(data: LabeledDataset) -> bool:
    """Whether classes mean something: False for data with targets and no labels."""
    return data.has_classes


def law_rows(data: LabeledDataset) -> Tensor:
    """For each sample, the row of ``data.laws()`` of its label, (n,)."""
    if data.law_index is not None:
        return data.law_index
    if data.has_soft_labels:
        require_hard(data, "the law of a label")
    if not bool(data.labeled.all()):
        require_labels(data, "a label cost")
    return data.y


def with_shared_laws(data: LabeledDataset) -> LabeledDataset:
    """The same without unused laws; equal laws become one, unless they have gradients."""
    if data.law is None or data.law_index is None:
        return data
    used, index = torch.unique(data.law_index, return_inverse=True)
    law = data.law if len(used) == len(data.law) else data.law.take(used)
    if not law.requires_grad:
        law, place = law.distinct()
        index = place[index]
    return data if len(law) == len(data.law) else data._replace(law=law, law_index=index)
