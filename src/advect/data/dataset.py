"""A labeled dataset as a weighted sample of a joint law ρ(x, y) (paper, section 2.1).

``LabeledDataset`` is the one state that travels through the library: features, labels, weights and,
when label laws move by themselves, the laws. It is frozen: every method returns a new object that
shares what did not change."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from advect._util.checks import check_finite, check_positive, check_weights, missing_labels
from advect._util.html import facts_table
from advect._util.progress import Progress
from advect.data.adapters import (
    frame_fields,
    hugging_fields,
    label_array,
    source_fields,
    to_frame,
    to_tensors,
    torch_fields,
)
from advect.data.coerce import (
    as_codes,
    as_columns,
    as_features,
    as_law,
    as_weights,
    balanced_weights,
    own_tensor,
)
from advect.data.formats import Content, Table, open_source, write
from advect.data.laws import Gaussians, estimate_gaussians, group_shares
from advect.data.sampling import Draw, draw_rows
from advect.errors import InputError

if TYPE_CHECKING:
    from os import PathLike

    from pandas import DataFrame
    from torch.utils.data import TensorDataset


class LabeledDataset:
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

    Attributes:
        x: features (n, d).  y: class positions (n,), int64, −1 where the label is missing.
        weights: (n,), float64 whatever x is, summing to one.
        classes: tuple of names.  sample_shape: shape of one sample.  law, law_index, columns,
            table: see above.
        fixed_laws: whether gradients stop at the label laws that are estimated from x (set by the
            dynamics).

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

    x: Tensor
    y: Tensor
    weights: Tensor
    classes: tuple[Hashable, ...]
    sample_shape: tuple[int, ...]
    law: Gaussians | None
    law_index: Tensor | None
    fixed_laws: bool
    columns: tuple[str, ...] | None
    table: Table | None
    _moments: Gaussians | None
    _complete: bool | None

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
    ) -> None:
        features = as_features(x)
        codes, names = as_codes(y, classes, len(features))
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
        }
        self._set(**fields, **as_law(law, law_index, codes, len(names), fields["x"].shape[1]))

    def _set(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_moments", None)
        object.__setattr__(self, "_complete", None)

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
        names = (
            "x",
            "y",
            "weights",
            "classes",
            "sample_shape",
            "law",
            "law_index",
            "fixed_laws",
            "columns",
            "table",
        )
        unknown = set(changes) - set(names)
        if unknown:
            raise InputError(
                "replace takes fields of a dataset",
                ", ".join(sorted(unknown)),
                f"Fields: {', '.join(names)}.",
            )
        width, shape = (
            changes.get("x", self.x).shape[1],
            changes.get("sample_shape", self.sample_shape),
        )
        if width != math.prod(shape):
            raise InputError(
                f"sample_shape {shape} needs {math.prod(shape)} features",
                width,
                "Change sample_shape along with x.",
            )
        if "columns" not in changes and (width,) != (self.dim,):
            changes["columns"] = None  # the old names do not fit
        copy = object.__new__(LabeledDataset)
        copy._set(**{name: changes.get(name, getattr(self, name)) for name in names})
        if "y" not in changes:
            object.__setattr__(copy, "_complete", self._complete)
        return copy

    def __len__(self) -> int:
        return len(self.x)

    def __repr__(self) -> str:
        dtype = str(self.x.dtype).removeprefix("torch.")
        return f"LabeledDataset(n={len(self)}, sample_shape={self.sample_shape}, classes={len(self.classes)}, dtype={dtype})"

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
        }
        return facts_table("LabeledDataset", facts)

    @property
    def dim(self) -> int:
        """d, the number of features of a flattened sample."""
        return self.x.shape[1]

    @property
    def samples(self) -> Tensor:
        """The features in their sample shape, (n, …)."""
        return self.x.reshape(len(self), *self.sample_shape)

    @property
    def labels(self) -> list[Hashable]:
        """The name of each sample's class; None where the label is missing."""
        return [None if code < 0 else self.classes[code] for code in self.y.tolist()]

    @property
    def labeled(self) -> Tensor:
        """Which samples have a label, (n,) bool."""
        return self.y >= 0

    @property
    def complete(self) -> bool:
        """Whether every sample has a label."""
        if self._complete is None:
            object.__setattr__(self, "_complete", bool(self.labeled.all()))
        return bool(self._complete)

    def require_labels(self, who: str) -> None:
        """An error that says who needs labels, unless every sample has one."""
        if not self.complete:
            raise missing_labels(who, int((~self.labeled).sum()), len(self))

    @property
    def counts(self) -> dict[Hashable, int]:
        """How many samples each class has; those without a label are not counted."""
        counts = torch.bincount(self.y[self.labeled], minlength=len(self.classes)).tolist()
        return dict(zip(self.classes, counts, strict=True))

    @property
    def class_mass(self) -> Tensor:
        """The mass Σ w_i of each class, (k,)."""
        self.require_labels("the mass of classes")
        return self.weights.new_zeros(len(self.classes)).index_add_(0, self.y, self.weights)

    @property
    def law_rows(self) -> Tensor:
        """For each sample, the row of ``laws()`` that is the law of its label, (n,)."""
        if self.law_index is not None:
            return self.law_index
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
        """The same dataset without laws that no sample has; laws of samples that are equal become
        one, unless they move.
        """
        if self.law is None or self.law_index is None:
            return self
        used, index = self.law_index.unique(return_inverse=True)
        law = self.law if len(used) == len(self.law) else self.law.take(used)
        if not law.requires_grad:  # each law that moves has a gradient of its own
            law, place = law.distinct()
            index = place[index]
        return self if len(law) == len(self.law) else self.replace(law=law, law_index=index)

    @property
    def law_features(self) -> Tensor:
        """The features from which label laws are estimated: x, without its graph when the laws are
        fixed.
        """
        return self.x.detach() if self.fixed_laws else self.x

    def moments(self) -> Gaussians:
        """Mean and covariance (n − 1) of each class, estimated from the samples; differentiable in
        ``x``.

        In float64 whatever ``x`` is, since float32 cannot tell close classes far from the origin
        apart.

        Example:
            >>> import advect as ad
            >>> ad.LabeledDataset([[0.0], [2.0], [7.0]], ["a", "a", "b"]).moments().covariances().flatten().tolist()
            [2.0, 0.0]
        """
        if self._moments is not None:
            return self._moments
        self.require_labels("the estimate of label laws")
        features = self.law_features
        moments = estimate_gaussians(features, self.y, self.weights, len(self.classes))
        if not features.requires_grad:  # a graph is good for one backward pass: do not keep it
            object.__setattr__(self, "_moments", moments)
        return moments

    def of_class(self, name: Hashable) -> LabeledDataset:
        """The samples of one class; the set of classes stays.

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

    def by_class(self) -> Iterator[tuple[Hashable, LabeledDataset]]:
        """(name, samples) for each class that has samples."""
        for name, count in self.counts.items():
            if count:
                yield name, self.of_class(name)

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
        )

    def balanced(self) -> LabeledDataset:
        """The same samples, reweighted so that every class that has samples has the same mass,
        uniform within.

        Example:
            >>> import advect as ad
            >>> ad.LabeledDataset([[0.0], [2.0], [7.0]], ["a", "a", "b"]).balanced().weights.tolist()
            [0.25, 0.25, 0.5]
        """
        self.require_labels("balancing of classes")
        return self.replace(weights=balanced_weights(self.y, len(self.classes)))

    def subset(self, index: Any) -> LabeledDataset:
        """The samples at ``index`` (positions, slice or boolean mask), weights scaled to sum to one
        again.

        Example:
            >>> import advect as ad
            >>> ad.LabeledDataset([[0.0], [2.0], [7.0]], ["a", "a", "b"]).subset([0, 2]).labels
            ['a', 'b']
        """
        if not isinstance(index, Tensor):
            try:
                array = np.asarray(
                    np.arange(len(self))[index] if isinstance(index, slice) else index
                )
                index = own_tensor(array if array.size else array.astype(np.int64))
            except (TypeError, ValueError, RuntimeError):
                raise InputError(
                    "an index must be a vector of positions or a mask",
                    repr(index),
                    "Pass whole numbers.",
                ) from None
        index = index.to(self.x.device)
        if index.ndim != 1 or index.is_floating_point() or index.is_complex():
            raise InputError(
                "an index must be a vector of positions or a mask",
                f"{index.dtype} of shape {tuple(index.shape)}",
                "Pass whole numbers.",
            )
        if index.dtype != torch.bool:
            index = index.long()
            if index.numel() and not (
                -len(self) <= int(index.min()) and int(index.max()) < len(self)
            ):
                raise InputError(
                    f"positions must lie in a dataset of {len(self)} samples",
                    f"{int(index.min())} to {int(index.max())}",
                    "Check the index.",
                )
        elif len(index) != len(self):
            raise InputError(
                f"a mask needs one entry for each of the {len(self)} samples",
                len(index),
                "Build it from this dataset.",
            )
        y = self.y[index]
        if len(y) == 0:
            raise InputError(
                "a subset must keep at least one sample", "0 samples", "Check the index or mask."
            )
        return self.replace(
            x=self.x[index],
            y=y,
            weights=check_weights("the subset's weights", self.weights[index], len(y)),
            law_index=None if self.law_index is None else self.law_index[index],
        )

    def sample(
        self, n: int, *, balanced: bool = False, generator: torch.Generator | None = None
    ) -> LabeledDataset:
        """``n`` different samples drawn uniformly; they keep their relative weights.

        Args:
            n: how many.
            balanced: draw equally many of each class that has samples (one more of the first ones
                when n does not divide).
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
        """Two disjoint parts, the first with ``fraction`` of each class (at least one sample of
        each on both sides if it can).

        Example:
            >>> import torch, advect as ad
            >>> train, test = ad.datasets.load("digits").split(0.8, generator=torch.Generator().manual_seed(0))
            >>> len(train) + len(test)
            1797
        """
        fraction = check_positive("fraction", fraction)
        if fraction >= 1:
            raise InputError(
                "fraction must lie between 0 and 1",
                fraction,
                "0.8 keeps four fifths in the first part.",
            )
        if len(self) < 2:
            raise InputError("a split needs at least two samples", len(self), "Add samples.")
        shuffled = torch.randperm(len(self), generator=generator).to(self.x.device)
        first = torch.zeros(len(self), dtype=torch.bool, device=self.x.device)
        for code in range(
            -1, len(self.classes)
        ):  # samples without a label are split as a class of their own
            rows = shuffled[self.y[shuffled] == code]
            kept = round(fraction * len(rows))
            if len(rows) > 1:
                kept = min(max(kept, 1), len(rows) - 1)
            first[rows[:kept]] = True
        if bool(first.all()) or not bool(
            first.any()
        ):  # only classes of one sample: split them anyhow
            first[shuffled] = torch.arange(len(self), device=self.x.device) < min(
                max(round(fraction * len(self)), 1), len(self) - 1
            )
        return self.subset(first), self.subset(~first)

    @classmethod
    def from_torch(
        cls,
        dataset: Any,
        *,
        max_samples: int | None = None,
        classes: Sequence[Hashable] | None = None,
        generator: torch.Generator | None = None,
        progress: Progress = None,
    ) -> LabeledDataset:
        """The samples of a torch dataset or ``DataLoader``, such as those of torchvision.

        Args:
            dataset: gives (x, y), or x alone for samples without labels; x a tensor, array or
                Pillow image (whose values become 0 … 1; those of tensors and arrays stay).
            max_samples: how many at most, drawn uniformly: by position where there are positions,
                else in one pass that keeps no more than these.
            classes: the names that whole numbers in y count, −1 for a missing label; by default
                ``dataset.classes``. Without either, labels are names.
            generator: source of randomness of the draw.
            progress: None shows it on stderr when it takes long, False is silent, a function is
                called with (done, total).

        Example:
            >>> import torch, advect as ad
            >>> pairs = [(torch.zeros(3), 1), (torch.ones(3), 0)]
            >>> ad.LabeledDataset.from_torch(pairs, classes=["cat", "dog"]).labels
            ['dog', 'cat']
        """
        return cls(**torch_fields(dataset, max_samples, classes, generator, progress))

    @classmethod
    def from_pandas(
        cls,
        df: DataFrame,
        label: Hashable | None,
        *,
        weights: Any = None,
        categorical: str | None = None,
    ) -> LabeledDataset:
        """The rows of a data frame; the names of its columns are kept, its index is not.

        Args:
            df: numbers and truth values in all columns but those of labels and weights. With a
                column of 64-bit floats, or of whole numbers from 2²⁴ on, the features are float64,
                else float32.
            label: the column of labels, None for none. Categories give the classes in their order,
                unused ones too.
            weights: a column, or what ``LabeledDataset`` takes.
            categorical: ``"onehot"`` turns other columns into a column ``name=value`` for each of
                their values.

        Example:
            >>> import pandas as pd, advect as ad
            >>> pets = pd.DataFrame({"kilos": [4.5, 20.0], "indoors": [True, False], "kind": ["cat", "dog"]})
            >>> data = ad.LabeledDataset.from_pandas(pets, label="kind")
            >>> data.columns, data.x.tolist()
            (('kilos', 'indoors'), [[4.5, 1.0], [20.0, 0.0]])
        """
        return cls(**frame_fields(df, label, weights, categorical))

    @classmethod
    def from_huggingface(
        cls,
        ds: Any,
        *,
        image: str | None = None,
        label: str | bool | None = None,
        columns: Sequence[str] | None = None,
        max_samples: int | None = None,
        generator: torch.Generator | None = None,
        progress: Progress = None,
    ) -> LabeledDataset:
        """The rows of one split of a Hugging Face dataset.

        Args:
            ds: a ``datasets.Dataset``, with positions: not a stream.
            image: the column of images, whose values become 0 … 1; by default the one that is
                declared as such.
            label: the column of labels; by default the one that is declared as classes, or is
                called ``label``; False for none. Declared classes keep their names and order.
            columns: columns of numbers instead of an image, or one column of arrays; by default all
                others.
            max_samples: how many at most, drawn uniformly before any is read.
            generator: source of randomness of the draw.
            progress: None shows it on stderr when it takes long, False is silent, a function is
                called with (done, total).

        Example:
            >>> import advect as ad
            >>> class Pets:  # as datasets.Dataset.from_dict({"kilos": [4.5, 20.0], "label": ["cat", "dog"]})
            ...     features = {"kilos": "float", "label": "string"}
            ...     column_names = list(features)
            ...     rows = {"kilos": [4.5, 20.0], "label": ["cat", "dog"]}
            ...     def __len__(self):
            ...         return 2
            ...     def __getitem__(self, some):
            ...         return {name: values[some] for name, values in self.rows.items()}
            >>> ad.LabeledDataset.from_huggingface(Pets()).counts
            {'cat': 1, 'dog': 1}
        """
        return cls(**hugging_fields(ds, image, label, columns, max_samples, generator, progress))

    @classmethod
    def from_folder(
        cls,
        path: str | PathLike[str],
        *,
        labels: bool = True,
        size: int | Sequence[int] | None = None,
        channels: str | None = None,
        max_samples: int | None = None,
        balanced: bool = False,
        seed: int = 0,
        progress: Progress = None,
    ) -> LabeledDataset:
        """Images in a folder with a directory for each class, with values 0 … 1.

        Args:
            path: the folder.
            labels: False for images without classes.
            size: side or (height, width) to resize to; by default all must have one size.
            channels: ``"gray"`` or ``"rgb"`` to convert to; by default all must be of one kind.
            max_samples: how many at most, drawn uniformly before any is read.
            balanced: draw equally many of each class.
            seed: of the draw.
            progress: None shows it on stderr when it takes long, False is silent, a function is
                called with (done, total).

        Example:
            >>> import tempfile, advect as ad
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     _ = ad.datasets.load("digits", n=20).save(f"{folder}/digits")
            ...     print(ad.LabeledDataset.from_folder(f"{folder}/digits", size=16))
            LabeledDataset(n=20, sample_shape=(16, 16), classes=..., dtype=float32)
        """
        draw = Draw(max_samples=max_samples, balanced=balanced, seed=seed)
        source = open_source(path, "folder", labels=labels, size=size, channels=channels)
        return cls(**source_fields(source, draw, progress))

    def numpy(self) -> tuple[np.ndarray, np.ndarray]:
        """Copies of the features in their sample shape and of the labels by name.

        Labels have a plain dtype (bool, int64, float64, text) if all are there and of one such
        kind, else they are objects, None where missing. ``LabeledDataset(*data.numpy(),
        data.weights, data.classes, columns=data.columns)`` is the way back; without these it has
        uniform weights, and as classes the labels that occur, sorted.

        Example:
            >>> import advect as ad
            >>> x, labels = ad.LabeledDataset([[0.0, 1.0], [2.0, 3.0]], ["cat", "dog"]).numpy()
            >>> x.shape, labels.tolist()
            ((2, 2), ['cat', 'dog'])
        """
        return self.samples.detach().cpu().numpy().copy(), label_array(self.labels)

    def to_torch(self) -> TensorDataset:
        """A ``TensorDataset`` of samples in their shape and class positions, −1 where the label is
        missing.

        The class names are its ``classes``, where ``from_torch`` finds them. Weights and names of
        columns are not kept.

        Example:
            >>> import advect as ad
            >>> pairs = ad.LabeledDataset([[0.0, 1.0], [2.0, 3.0]], ["cat", "dog"]).to_torch()
            >>> pairs[1]
            (tensor([2., 3.]), tensor(1))
        """
        return to_tensors(self.samples, self.y, self.classes)

    def to_pandas(self, label: str | bool | None = True, weights: str | None = None) -> DataFrame:
        """A data frame with a column for each feature, and labels as categories.

        Columns that were truth values, whole numbers, categories or text are so again: the nearest
        one, or the category with the largest share. ``data.replace(table=None).to_pandas()`` has
        the numbers.

        Columns without names are called x0, x1, …, which they are then called on the way back too;
        those of samples with several axes x[0][0], x[0][1], …, from which ``from_pandas`` tells the
        shape.

        Args:
            label: name of the column of labels; True for the one that it had, else ``label``; None
                to leave them out.
            weights: name of a column for the weights, None to leave them out.

        Example:
            >>> import advect as ad
            >>> frame = ad.LabeledDataset([[0.0, 1.0], [2.0, 3.0]], ["cat", "dog"]).to_pandas()
            >>> list(frame.columns), frame.label.tolist()
            (['x0', 'x1', 'label'], ['cat', 'dog'])
        """
        was = self.table or Table()
        return to_frame(
            self.x,
            self.y,
            self.weights,
            self.classes,
            self.columns,
            self.sample_shape,
            was,
            label,
            weights,
        )

    def save(self, path: str | PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the dataset to a file, whole or not at all; ``ad.datasets.load(path)`` reads it.

        Args:
            path: its suffix says the format: ``.npz`` and ``.parquet`` keep features, labels,
                classes, columns and weights; ``.csv`` and ``.tsv`` (also with ``.gz``) all but
                classes without samples, and read as float32 unless asked for ``dtype="float64"``.
                Tables have the columns that the data came with: categories as text, truth values,
                whole numbers, the name of the label column; a table of text needs the same options
                to be read again, the others say themselves what they hold. Without a suffix it is a
                folder of PNG images, sorted by class, of 8 bits. Weights are written as they are
                held, with a sum of one. Label laws are not kept: they are estimated again.
            overwrite: an existing file or folder of images is an error, unless this is set.

        Example:
            >>> import tempfile, advect as ad
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = ad.LabeledDataset([[0.0, 1.0], [2.0, 3.0]], ["cat", "dog"]).save(f"{folder}/pets.npz")
            ...     print(ad.datasets.load(path).labels)
            ['cat', 'dog']
        """
        x, labels = self.samples.detach().cpu().numpy(), self.labels if self.classes else None
        even = bool((self.weights - 1 / len(self)).abs().max() < 1e-12 / len(self))
        weights = None if even else self.weights.cpu().numpy()
        content = Content(
            x, labels, self.classes if self.classes else None, self.columns, weights, self.table
        )
        write(path, content, overwrite=overwrite)
        return Path(path).expanduser()
