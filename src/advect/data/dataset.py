"""A labeled dataset as a weighted sample of a joint law ρ(x, y) (paper, section 2.1)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from advect._util.checks import (
    check_finite,
    check_known,
    check_weights,
    missing_labels,
    one_or_more,
)
from advect._util.result import Table as FactTable
from advect.data.coerce import (
    ALL,
    as_class_weights,
    as_codes,
    as_columns,
    as_features,
    as_law,
    as_soft_labels,
    as_target_columns,
    as_targets,
    as_weights,
    balanced_soft_weights,
    balanced_weights,
    check_soft_laws,
    checked_changes,
)
from advect.data.conversions import Conversions, has_classes, target_names
from advect.data.laws import Gaussians, estimate_gaussians, group_shares
from advect.data.laws.gaussians import estimate_soft
from advect.data.sampling import chosen_rows, draw_rows, rows_at, split_rows
from advect.errors import InputError
from advect.io.formats import Table


class LabeledDataset(Conversions):
    """Samples with labels and weights: an empirical measure Σ w_i δ_(x_i, y_i).

    A dataset is frozen. Every method returns a new object that shares what did not change.

    Args:
        x: features (n, …) as a numpy array, torch tensor or nested list. They are flattened to
            (n, d); ``sample_shape`` keeps the shape of one sample. Floating dtypes stay (half
            precision becomes float32). Integers become float32, or float64 from 2²⁴ on.
        y: n labels of any hashable kind, or a tensor or array of whole numbers. None, NaN and
            pandas' NA are missing labels; ``y=None`` is a dataset without labels.
        weights: None for uniform, ``"balanced"`` for the same mass in each class, or n
            non-negative numbers. They are scaled to sum to one.
        classes: class names in order; by default the distinct labels, sorted if possible. Whole
            numbers in y that are not names are positions in ``classes``.
        law: Gaussian label laws to use instead of those estimated from (x, y).
        law_index: the row of ``law`` for each sample; by default its class.
        columns: names of the features of tabular samples, all different.
        table: the original kinds of the columns. Readers of files and data frames set it, and
            writers use it to restore categories and whole numbers.
        probabilities: soft labels, (n, k), with rows that sum to one. ``y`` is then the most
            probable class by default. None for hard labels.
        targets: continuous targets, n numbers or (n, q), stored in float64. Without y there is
            one class, ``"all"``.
        target_columns: names of the targets.

    Attributes:
        x: features (n, d).  y: class positions (n,), int64, −1 for a missing label.
        weights: (n,), float64, summing to one.  classes: tuple of names.
        sample_shape: shape of one sample.  probabilities: (n, k) in float64, or None.
        targets: (n, q), or None.  target_unit: (q,), scale of the targets in a flow
            (``JointTargets``).  fixed_laws: whether gradients stop at the estimated label laws
            (set by the dynamics).

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], ["cat", "dog", "cat"])
        >>> data.classes, data.y.tolist(), data.counts
        (('cat', 'dog'), [0, 1, 0], {'cat': 2, 'dog': 1})
        >>> data
        LabeledDataset(n=3, sample_shape=(2,), classes=2, dtype=float32)
        >>> ad.LabeledDataset([[0.0], [1.0]], ["cat", None]).labeled.tolist()
        [True, False]
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
    ) -> None:
        features = as_features(x)
        n, device, shape = len(features), features.device, tuple(features.shape[1:])
        if probabilities is not None:
            probabilities, y, classes = as_soft_labels(probabilities, y, classes, features)
            check_soft_laws(law_index)
        if targets is not None and y is None and classes is None:
            y, classes = [ALL] * n, (ALL,)
        codes, names = as_codes(y, classes, n)
        codes = codes.to(device)
        values = as_targets(targets, n, device)
        if probabilities is not None and isinstance(weights, str) and weights == "balanced":
            weights = balanced_soft_weights(probabilities)
        self._set(
            {
                "x": features.reshape(n, -1),
                "y": codes,
                "weights": as_weights(weights, codes, len(names), features),
                "classes": names,
                "sample_shape": shape,
                "fixed_laws": False,
                "columns": as_columns(columns, shape[0] if len(shape) == 1 else 0),
                "table": table,
                "probabilities": probabilities,
                "targets": values,
                "target_columns": as_target_columns(target_columns, values),
                "target_unit": None,
                **as_law(law, law_index, codes, len(names), math.prod(shape)),
            }
        )

    def _set(self, fields: Mapping[str, Any]) -> None:
        for name in _FIELDS:
            object.__setattr__(self, name, fields[name])

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"LabeledDataset is frozen: make a new one with .replace({name}=…)")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("LabeledDataset is frozen: its fields cannot be deleted")

    def __repr__(self) -> str:
        dtype = str(self.x.dtype).removeprefix("torch.")
        what = f"classes={len(self.classes)}"
        if self.targets is not None:
            what = f"{f'{what}, ' if has_classes(self) else ''}targets={self.targets.shape[1]}"
        return f"LabeledDataset(n={len(self)}, sample_shape={self.sample_shape}, {what}, dtype={dtype})"

    def _repr_html_(self) -> str:
        counts = [f"{name}: {count}" for name, count in self.counts.items()]
        more = f" and {len(counts) - 20} more" if len(counts) > 20 else ""
        unlabeled = int((~self.labeled).sum())
        facts = {
            "samples": f"{len(self):,}",
            "sample shape": " × ".join(map(str, self.sample_shape)) or "a number",
            "dtype": str(self.x.dtype).removeprefix("torch."),
            f"{len(counts)} classes": ", ".join(counts[:20]) + more,
            **({"without a label": f"{unlabeled:,}"} if unlabeled else {}),
            **({"labels": "soft"} if self.has_soft_labels else {}),
            **target_facts(self),
        }
        return FactTable("LabeledDataset", ("", ""), list(facts.items())).to_html()

    @property
    def dim(self) -> int:
        """d, the number of features of a flattened sample."""
        return self.x.shape[1]

    @property
    def labeled(self) -> Tensor:
        """Which samples have a label, (n,) bool."""
        return self.y >= 0

    @property
    def has_soft_labels(self) -> bool:
        """Whether labels are probabilities of classes."""
        return self.probabilities is not None

    @property
    def counts(self) -> dict[Hashable, int]:
        """The number of samples of each class, by ``y``. Missing labels are not counted."""
        counts = torch.bincount(self.y[self.labeled], minlength=len(self.classes)).tolist()
        return dict(zip(self.classes, counts, strict=True))

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
            >>> ad.LabeledDataset([[0.0], [2.0], [7.0]], ["a", "a", "b"]).laws().covariances().flatten().tolist()
            [2.0, 0.0]
        """
        if self.law is not None:
            return self.law
        # a graph serves one backward pass: such estimates are not cached
        return self._estimate() if self._law_features.requires_grad else self._estimated

    def class_laws(self) -> Gaussians:
        """One law for each class. Laws of single samples (``law_index``) are joined by mass.

        Example:
            >>> import torch, advect as ad
            >>> from advect.data.laws import Full
            >>> law = ad.Gaussians(torch.tensor([[0.0], [2.0], [7.0]]), Full(torch.ones(3, 1, 1)))
            >>> data = ad.LabeledDataset([[0.0], [2.0], [7.0]], ["a", "a", "b"], law=law, law_index=[0, 1, 2])
            >>> data.class_laws().means.tolist(), data.class_laws().covariances().flatten().tolist()
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

    @property
    def _law_features(self) -> Tensor:
        """The features that label laws are estimated from: detached if laws are fixed."""
        return self.x.detach() if self.fixed_laws else self.x

    @cached_property
    def _estimated(self) -> Gaussians:
        return self._estimate()

    @cached_property
    def _estimated_diagonal(self) -> Gaussians:
        return self._estimate().diagonal()

    def _estimate(self) -> Gaussians:
        if self.probabilities is not None:
            return estimate_soft(self._law_features, self.probabilities, self.weights)
        require_labels(self, "the estimate of label laws")
        return estimate_gaussians(self._law_features, self.y, self.weights, len(self.classes))

    def replace(self, **changes: Any) -> LabeledDataset:
        """A copy with some fields changed, checked as in the constructor.

        Tensors are used without a copy, and a tensor ``y`` holds class positions. A new ``y``
        makes labels hard; new ``probabilities`` set ``y`` to the most probable class.

        Example:
            >>> import advect as ad
            >>> data = ad.LabeledDataset([[0.0], [1.0]], ["a", "b"])
            >>> data.replace(x=data.x + 1).x.tolist()
            [[1.0], [2.0]]
            >>> data.replace(probabilities=[[0.9, 0.1], [0.8, 0.2]]).labels
            ['a', 'a']
        """
        if unknown := set(changes) - set(_FIELDS):
            raise InputError(
                "replace takes fields of a dataset",
                ", ".join(sorted(unknown)),
                f"Fields: {', '.join(_FIELDS)}.",
            )
        return self._replace(**checked_changes(self, changes))

    def _replace(self, **changes: Any) -> LabeledDataset:
        """``replace`` without checks, for values that are known to be valid."""
        width = changes.get("x", self.x).shape[1]
        if "columns" not in changes and width != self.dim:
            changes["columns"] = None
        if "y" in changes:
            changes.setdefault("probabilities", None)
        copy = object.__new__(LabeledDataset)
        copy._set({name: changes.get(name, getattr(self, name)) for name in _FIELDS})
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

    def with_targets(self, columns: str | Sequence[str]) -> LabeledDataset:
        """The same samples with some columns of the features as continuous targets.

        Args:
            columns: one or more names in ``data.columns``.

        Example:
            >>> import advect as ad
            >>> table = ad.LabeledDataset([[1.0, 2.0, 30.0]], columns=["rooms", "floor", "price"])
            >>> data = table.with_targets("price")
            >>> data.columns, data.targets.tolist(), data.target_columns
            (('rooms', 'floor'), [[30.0]], ('price',))
        """
        from advect.io.formats.table import grid_shape

        names = self.columns or ()
        wanted = list(dict.fromkeys(map(str, one_or_more(columns))))
        if not names:
            raise InputError(
                "targets are taken from columns by name",
                f"{self.dim} features without names",
                "Pass ad.LabeledDataset(x, targets=y).",
            )
        for name in wanted:
            check_known("target column", name, names)
        at = [names.index(name) for name in wanted]
        rest = [k for k in range(len(names)) if k not in at]
        if not rest:
            raise InputError(
                "a dataset needs a feature besides its targets",
                ", ".join(names),
                "Name fewer targets.",
            )
        features = tuple(names[k] for k in rest)
        shape = grid_shape(features)
        labels = {} if self.classes else {"y": torch.zeros_like(self.y), "classes": (ALL,)}
        return self._replace(
            x=self.x[:, rest],
            sample_shape=shape or (len(rest),),
            columns=None if shape else features,
            targets=self.x[:, at].double(),
            target_columns=tuple(wanted),
            **labels,
        )

    def balanced(self) -> LabeledDataset:
        """The same samples, weighted so that every class that has samples has the same mass.

        With soft labels the masses are as close to equal as the probabilities allow.

        Example:
            >>> import advect as ad
            >>> ad.LabeledDataset([[0.0], [2.0], [7.0]], ["a", "a", "b"]).balanced().weights.tolist()
            [0.25, 0.25, 0.5]
        """
        if self.probabilities is not None:
            return self._replace(weights=balanced_soft_weights(self.probabilities))
        require_labels(self, "balanced")
        return self._replace(weights=balanced_weights(self.y, len(self.classes)))

    def reweighted(self, proportions: Any) -> LabeledDataset:
        """The same samples with other class proportions. Relative weights within a class stay.

        Args:
            proportions: a number for each class, by name or in the order of ``classes``; scaled to
                sum to one. Classes that are not named get 0.

        Example:
            >>> import advect as ad
            >>> data = ad.LabeledDataset([[0.0], [2.0], [7.0]], ["a", "a", "b"])
            >>> data.reweighted({"a": 0.2, "b": 0.8}).weights.tolist()
            [0.1, 0.1, 0.8]
        """
        require_labels(self, "reweighted")
        wanted = as_class_weights(proportions, self.classes, self.weights)
        mass = self.weights.new_zeros(len(self.classes)).index_add_(0, self.y, self.weights)
        empty = [self.classes[k] for k in ((wanted > 0) & (mass <= 0)).nonzero()[:, 0].tolist()]
        if empty:
            raise InputError(
                "a class without samples must have proportion 0",
                ", ".join(map(str, empty[:5])),
                "Set it to 0, or add samples.",
            )
        factor = torch.where(mass > 0, wanted / mass.clamp_min(1e-300), 0.0)
        weights = self.weights * factor[self.y]
        return self._replace(weights=check_weights("the weights", weights, len(weights)))

    def subset(self, index: Any) -> LabeledDataset:
        """The samples at ``index`` (positions, slice or boolean mask); weights are rescaled.

        Example:
            >>> import advect as ad
            >>> ad.LabeledDataset([[0.0], [2.0], [7.0]], ["a", "a", "b"]).subset([0, 2]).labels
            ['a', 'b']
        """
        index = chosen_rows(index, len(self), self.x.device)
        rows = {name: _at(getattr(self, name), index) for name in _BY_ROW}
        return self._replace(
            **rows | {"weights": check_weights("the weights", rows["weights"], len(rows["x"]))}
        )

    def without(self, index: Any) -> LabeledDataset:
        """The samples that are not at ``index`` (positions, slice or boolean mask).

        Example:
            >>> import advect as ad
            >>> ad.LabeledDataset([[0.0], [2.0], [7.0]], ["a", "a", "b"]).without([1]).labels
            ['a', 'b']
        """
        keep = torch.ones(len(self), dtype=torch.bool, device=self.x.device)
        keep[rows_at(index, len(self), self.x.device)] = False
        return self.subset(keep)

    def sample(
        self, n: int, *, balanced: bool = False, generator: torch.Generator | None = None
    ) -> LabeledDataset:
        """``n`` different samples drawn uniformly; relative weights stay.

        Args:
            n: number of samples.
            balanced: draw equally many of each class that has samples (one more of the first
                classes if n does not divide).
            generator: source of randomness, for repeatable draws.

        Example:
            >>> import torch, advect as ad
            >>> digits = ad.datasets.load("digits")
            >>> draw = digits.sample(50, balanced=True, generator=torch.Generator().manual_seed(0))
            >>> set(draw.counts.values())
            {5}
        """
        return self.subset(draw_rows(self.y, self.classes, n, balanced, generator))

    def split(
        self, fraction: float, *, generator: torch.Generator | None = None
    ) -> tuple[LabeledDataset, LabeledDataset]:
        """Two disjoint parts, stratified by class; the first has ``fraction`` of the samples.

        Example:
            >>> import torch, advect as ad
            >>> train, test = ad.datasets.load("digits").split(0.8, generator=torch.Generator().manual_seed(0))
            >>> len(train) + len(test)
            1797
        """
        first = split_rows(self.y, fraction, generator)
        return self.subset(first), self.subset(~first)

    def of_class(self, name: Hashable) -> LabeledDataset:
        """The samples of one class; ``classes`` stays.

        Example:
            >>> import advect as ad
            >>> ad.LabeledDataset([[0.0], [2.0], [7.0]], ["a", "a", "b"]).of_class("a").x.tolist()
            [[0.0], [2.0]]
        """
        if name not in self.classes:
            raise InputError(
                "no such class", repr(name), f"Classes: {', '.join(map(str, self.classes))}."
            )
        return self.subset(self.y == self.classes.index(name))

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
            check_finite("features", x, "They do not fit float32: keep float64, or rescale them.")
        others = {name: getattr(self, name) for name in (*_BY_ROW[1:], "target_unit")}
        others = {n: None if v is None else v.to(device=device) for n, v in others.items()}
        law = None if self.law is None else self.law.to(device, dtype)
        return self._replace(x=x, law=law, **others)


_BY_ROW = ("x", "y", "weights", "law_index", "probabilities", "targets")
_FIELDS = (
    *("x", "y", "weights", "classes", "sample_shape"),
    *("law", "law_index", "fixed_laws", "columns", "table", "probabilities"),
    *("targets", "target_columns", "target_unit"),
)


def _at(values: Tensor | None, rows: Tensor) -> Any:
    return None if values is None else values[rows]


def require_labels(data: LabeledDataset, who: str) -> None:
    """Raise an error that names ``who`` unless every sample has a label."""
    if not bool(data.labeled.all()):
        raise missing_labels(who, int((~data.labeled).sum()), len(data))


def target_facts(data: LabeledDataset) -> dict[str, str]:
    """Range and median of each target, as text."""
    facts = {}
    columns = () if data.targets is None else data.targets.detach().T
    for name, values in zip(target_names(data), columns, strict=True):
        low, median, high = (float(v) for v in (values.min(), values.median(), values.max()))
        facts[f"target {name}"] = f"{low:.4g} to {high:.4g}, median {median:.4g}"
    return facts
