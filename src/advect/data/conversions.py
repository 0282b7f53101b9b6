"""Conversions of a dataset from and to other libraries, folders and files."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from advect._util import Progress, Table as Facts, check_known, one_or_more, refuse_if
from advect.data.coerce import ALL
from advect.data.sampling import Subsets
from advect.io import exchange
from advect.io.adapters import (
    NamedTensors,
    frame_fields,
    label_array,
    to_frame,
    torch_fields,
)
from advect.io.formats import Content, write
from advect.io.formats.table import grid_shape

if TYPE_CHECKING:
    from pandas import DataFrame


class Conversions(Subsets):
    """How a ``LabeledDataset`` is read, written and shown."""

    @property
    def samples(self) -> Tensor:
        """The features in their sample shape, (n, …)."""
        return self.x.reshape(len(self.x), *self.sample_shape)

    @property
    def labels(self) -> list[Hashable]:
        """The class name of each sample; None where the label is missing."""
        return [None if code < 0 else self.classes[code] for code in self.y.tolist()]

    @classmethod
    def from_torch(
        cls,
        dataset: Any,
        *,
        max_samples: int | None = None,
        classes: Sequence[Hashable] | None = None,
        targets: bool = False,
        generator: torch.Generator | None = None,
        progress: Progress = None,
        probabilities: bool = False,
    ) -> Self:
        """The samples of a torch dataset or ``DataLoader``, such as those of torchvision.

        Args:
            dataset: yields (x, y), or x alone for samples without labels; x is a tensor, array or
                Pillow image (scaled to 0 … 1; tensors and arrays are not).
            max_samples: draw at most this many samples, uniformly.
            classes: class names that whole numbers in y refer to, −1 for a missing label; by
                default ``dataset.classes``. Without either, labels are names.
            targets: whether y is a continuous target instead of a label.
            generator: source of randomness of the draw.
            progress: None shows progress on stderr if it takes long, False is silent, a function
                is called with (done, total).
            probabilities: whether y is a row of class probabilities. Datasets written by
                ``to_torch`` are recognized.

        Example:
            >>> import torch, advect as ad
            >>> pairs = [(torch.zeros(3), 1), (torch.ones(3), 0)]
            >>> ad.LabeledDataset.from_torch(pairs, classes=["cat", "dog"]).labels
            ['dog', 'cat']
        """
        return cls(
            **torch_fields(
                dataset,
                max_samples,
                classes,
                generator,
                progress,
                probabilities=probabilities,
                targets=targets,
            )
        )

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        label: Hashable | None = None,
        *,
        weights: Any = None,
        categorical: str | None = None,
        probabilities: Any = None,
        target: str | Sequence[str] | None = None,
        missing: str | None = None,
    ) -> Self:
        """The rows of a data frame of pandas, polars or Arrow, of a Hugging Face dataset, or of an
        ``AnnData`` object.

        Column names and the index of pandas are kept. Of ``AnnData``, features are ``X``, which may be
        sparse, and label, weights and targets are columns of ``obs``.

        Args:
            frame: numbers and booleans in all columns except labels and weights. Features are
                float64 if a column has 64-bit floats or whole numbers from 2²⁴ on, else float32.
            label: the column of labels, or None. Categories give the classes in their order.
            weights: a column, or what ``LabeledDataset`` accepts.
            categorical: ``"onehot"`` encodes other columns as one column ``name=value`` per value.
            probabilities: soft labels: the columns of class probabilities (their names are the
                classes), or a common prefix of their names. None looks for ``probability[…]``,
                False uses none.
            target: the column or columns of continuous targets.
            missing: what to do with missing features, which are an error by default: ``"median"``
                fills them with the medians of their columns, ``"indicator"`` also adds for each
                column one that is 1 where it was missing, ``"drop"`` leaves out the rows. A
                warning says how many cells there were.

        Example:
            >>> import pandas as pd, advect as ad
            >>> pets = pd.DataFrame({"kilos": [4.5, 20.0], "indoors": [True, False], "kind": ["cat", "dog"]})
            >>> data = ad.LabeledDataset.from_frame(pets, label="kind")
            >>> data.columns, data.x.tolist()
            (('kilos', 'indoors'), [[4.5, 1.0], [20.0, 0.0]])
        """
        return cls(
            **frame_fields(frame, label, weights, categorical, probabilities, target, missing)
        )

    def numpy(self) -> tuple[np.ndarray, np.ndarray]:
        """Copies of the features in their sample shape and of the labels by name.

        Data with continuous targets and no labels gives the targets instead. Labels have a plain
        dtype if all are present and of one kind, else they are objects, None where missing.

        Example:
            >>> import advect as ad
            >>> x, labels = ad.LabeledDataset([[0.0, 1.0], [2.0, 3.0]], ["cat", "dog"]).numpy()
            >>> x.shape, labels.tolist()
            ((2, 2), ['cat', 'dog'])
        """
        x = self.samples.detach().cpu().numpy().copy()
        if self.targets is None or self.has_classes:
            return x, label_array(self.labels)
        y = self.targets.detach().cpu().numpy().copy()
        return x, y[:, 0] if y.shape[1] == 1 else y

    def to_torch(self) -> TensorDataset:
        """A ``TensorDataset`` of samples and class positions, −1 where the label is missing.

        Soft labels are rows of probabilities, as ``torch.nn.CrossEntropyLoss`` takes them. Data
        with continuous targets and no labels gives the targets. The class names are its
        ``classes``, where ``from_torch`` finds them. Weights and column names are not kept.

        Example:
            >>> import advect as ad
            >>> pairs = ad.LabeledDataset([[0.0, 1.0], [2.0, 3.0]], ["cat", "dog"]).to_torch()
            >>> pairs[1]
            (tensor([2., 3.]), tensor(1))
        """
        if self.targets is not None and not self.has_classes:
            return TensorDataset(self.samples.detach().clone(), self.targets.detach().to(self.x))
        soft = self.probabilities
        labels = self.y if soft is None else soft.to(self.x.dtype)
        return NamedTensors(self.samples.detach().clone(), labels.clone(), list(self.classes))

    def to_pandas(self, label: str | bool | None = True, weights: str | None = None) -> DataFrame:
        """A data frame with a column for each feature, and labels as categories.

        Columns that were booleans, whole numbers, categories or text are restored to the nearest
        value; ``data.replace(table=None).to_pandas()`` keeps the numbers. Columns without names
        are called x0, x1, …, or x[0][0], … for samples with several axes. Soft labels are columns
        ``probability[…]``.

        Args:
            label: name of the label column; True for its original name, else ``label``; None to
                leave labels out.
            weights: name of a column for the weights, or None.

        Example:
            >>> import advect as ad
            >>> frame = ad.LabeledDataset([[0.0, 1.0], [2.0, 3.0]], ["cat", "dog"]).to_pandas()
            >>> list(frame.columns), frame.label.tolist()
            (['x0', 'x1', 'label'], ['cat', 'dog'])
        """
        label = None if label is True and not self.has_classes else label
        frame = to_frame(self._content(weights is not None), label, weights)
        return frame if self.index is None else frame.set_axis(self.index, axis=0)

    def to_arrow(self, label: str | bool | None = True, weights: str | None = None) -> Any:
        """A ``pyarrow.Table`` with the columns of ``to_pandas``; the index is a column, as pandas writes it.

        Example:
            >>> import advect as ad
            >>> ad.LabeledDataset([[0.0, 1.0], [2.0, 3.0]], ["cat", "dog"]).to_arrow().column_names
            ['x0', 'x1', 'label']
        """
        return exchange.arrow_table(self.to_pandas(label, weights))

    def to_polars(self, label: str | bool | None = True, weights: str | None = None) -> Any:
        """A polars frame with the columns of ``to_arrow``; categories are of the type ``polars.Enum``."""
        return exchange.polars_frame(self.to_arrow(label, weights))

    def to_huggingface(self, label: str | bool | None = True, weights: str | None = None) -> Any:
        """A ``datasets.Dataset`` with the columns of ``to_arrow``; categories are ``ClassLabel``."""
        return exchange.huggingface_dataset(self.to_arrow(label, weights))

    def to_anndata(self, label: str | bool | None = True, weights: str | None = None) -> Any:
        """An ``AnnData`` object: features are ``X``, labels, weights and targets are columns of ``obs``."""
        numbers = self._replace(table=self.table and self.table.without_kinds)
        return exchange.anndata_object(numbers.to_pandas(label, weights), self.dim)

    def save(self, path: str | PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the dataset to a file atomically; ``ad.datasets.load(path)`` reads it.

        Label laws are not written: they are estimated again.

        Args:
            path: its suffix gives the format. ``.npz`` keeps everything else; the tables
                ``.parquet``, ``.csv`` and ``.tsv`` (the last two also with ``.gz``) need the same
                options to be read again, and lose classes without samples.
            overwrite: whether to replace an existing file.

        Example:
            >>> import tempfile, advect as ad
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = ad.LabeledDataset([[0.0, 1.0], [2.0, 3.0]], ["cat", "dog"]).save(f"{folder}/pets.npz")
            ...     print(ad.datasets.load(path).labels)
            ['cat', 'dog']
        """
        uniform = bool((self.weights - 1 / len(self.y)).abs().max() < 1e-12 / len(self.y))
        write(path, self._content(not uniform), overwrite=overwrite)
        return Path(path).expanduser()

    def _content(self, weights: bool) -> Content:
        """The dataset as arrays to write."""
        named = bool(self.classes) and self.has_classes
        tensors = (self.weights if weights else None, self.probabilities, self.targets)
        mass, soft, aims = (None if t is None else t.detach().cpu().numpy() for t in tensors)
        return Content(
            self.samples.detach().cpu().numpy(),
            self.labels if named else None,
            self.classes if named else None,
            columns=self.columns,
            weights=mass,
            table=self.table,
            probabilities=soft,
            targets=aims,
            target_columns=None if aims is None else target_names(self),
        )

    def with_targets(self, columns: str | Sequence[str]) -> Self:
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
        names = self.columns or ()
        wanted = list(dict.fromkeys(map(str, one_or_more(columns))))
        refuse_if(
            not names,
            "targets are taken from columns by name",
            f"{self.dim} features without names",
            "Pass ad.LabeledDataset(x, targets=y).",
        )
        for name in wanted:
            check_known("target column", name, names)
        at = [names.index(name) for name in wanted]
        rest = [k for k in range(len(names)) if k not in at]
        refuse_if(
            not rest,
            "a dataset needs a feature in addition to its targets",
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

    def _repr_html_(self) -> str:
        counts = [f"{name}: {count}" for name, count in self.counts.items()]
        more = f" and {len(counts) - 20} more" if len(counts) > 20 else ""
        unlabeled = int((~self.labeled).sum())
        facts = {
            "samples": f"{len(self.y):,}",
            "sample shape": " × ".join(map(str, self.sample_shape)) or "a number",
            "dtype": str(self.x.dtype).removeprefix("torch."),
            f"{len(counts)} classes": ", ".join(counts[:20]) + more,
            **({"without a label": f"{unlabeled:,}"} if unlabeled else {}),
            **({"labels": "soft"} if self.has_soft_labels else {}),
            **target_facts(self),
        }
        return Facts("LabeledDataset", ("", ""), list(facts.items())).to_html()


def target_names(data: Subsets) -> tuple[str, ...]:
    """A name for each target: its column's, else target, target1, …"""
    q = 0 if data.targets is None else data.targets.shape[1]
    return data.target_columns or ("target", *(f"target{k}" for k in range(1, q)))[:q]


def target_facts(data: Subsets) -> dict[str, str]:
    """Range and median of each target, as text."""
    facts = {}
    columns = () if data.targets is None else data.targets.detach().T
    for name, values in zip(target_names(data), columns, strict=True):
        low, median, high = (float(v) for v in (values.min(), values.median(), values.max()))
        facts[f"target {name}"] = f"{low:.4g} to {high:.4g}, median {median:.4g}"
    return facts
