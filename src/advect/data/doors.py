"""The ways in and out of a dataset: what other libraries hold, folders and files, arrays.

Each says here what it takes and keeps; the reading and writing itself is in ``adapters`` and
``formats``."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

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
from advect.data.formats import Content, Table, open_source, write
from advect.data.sampling import Draw
from advect.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame


class Doors:
    """What ``LabeledDataset`` reads and writes; it has the fields."""

    x: Tensor
    y: Tensor
    weights: Tensor
    classes: tuple[Hashable, ...]
    sample_shape: tuple[int, ...]
    columns: tuple[str, ...] | None
    table: Table | None
    probabilities: Tensor | None
    targets: Tensor | None
    target_columns: tuple[str, ...] | None
    if TYPE_CHECKING:

        @property
        def has_classes(self) -> bool: ...
        @property
        def target_names(self) -> tuple[str, ...]: ...
        def with_targets(self, columns: str | Sequence[str]) -> Self: ...

    @property
    def samples(self) -> Tensor:
        """The features in their sample shape, (n, …)."""
        return self.x.reshape(len(self.x), *self.sample_shape)

    @property
    def labels(self) -> list[Hashable]:
        """The name of each sample's class; None where the label is missing."""
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
            dataset: gives (x, y), or x alone for samples without labels; x a tensor, array or
                Pillow image (whose values become 0 … 1; those of tensors and arrays stay).
            max_samples: how many at most, drawn uniformly: by position where there are positions,
                else in one pass that keeps no more than these.
            classes: the names that whole numbers in y count, −1 for a missing label; by default
                ``dataset.classes``. Without either, labels are names.
            targets: y is a number, or a vector of a ``TensorDataset``, for a regression, and no label.
            generator: source of randomness of the draw.
            progress: None shows it on stderr when it takes long, False is silent, a function is
                called with (done, total).
            probabilities: whether y are rows of probabilities, a number for each class; those that
                ``to_torch`` wrote are known.

        Example:
            >>> import torch, advect as ad
            >>> pairs = [(torch.zeros(3), 1), (torch.ones(3), 0)]
            >>> ad.LabeledDataset.from_torch(pairs, classes=["cat", "dog"]).labels
            ['dog', 'cat']
        """
        options = {"probabilities": probabilities, "targets": targets}
        return cls(**torch_fields(dataset, max_samples, classes, generator, progress, **options))

    @classmethod
    def from_pandas(
        cls,
        df: DataFrame,
        label: Hashable | None = None,
        *,
        weights: Any = None,
        categorical: str | None = None,
        probabilities: Any = None,
        target: str | Sequence[str] | None = None,
    ) -> Self:
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
            probabilities: for labels with doubt, the columns with the probabilities of the classes,
                which are then the classes' names; or what their names begin with, and classes are
                called by the rest. None takes columns ``probability[…]``, False none.
            target: the column or columns of continuous targets.

        Example:
            >>> import pandas as pd, advect as ad
            >>> pets = pd.DataFrame({"kilos": [4.5, 20.0], "indoors": [True, False], "kind": ["cat", "dog"]})
            >>> data = ad.LabeledDataset.from_pandas(pets, label="kind")
            >>> data.columns, data.x.tolist()
            (('kilos', 'indoors'), [[4.5, 1.0], [20.0, 0.0]])
        """
        data = cls(**frame_fields(df, label, weights, categorical, probabilities))
        return data if target is None else data.with_targets(target)

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
    ) -> Self:
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
    ) -> Self:
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

        Of data that have continuous targets and no labels, these are given in place of labels.
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
        x = self.samples.detach().cpu().numpy().copy()
        if self.targets is None or self.has_classes:
            return x, label_array(self.labels)
        y = self.targets.detach().cpu().numpy().copy()
        return x, y[:, 0] if y.shape[1] == 1 else y

    def to_torch(self) -> TensorDataset:
        """A ``TensorDataset`` of samples in their shape and class positions, −1 where the label is
        missing.

        Of data that have continuous targets and no labels, these are given, in the dtype of the
        samples. The class names are its ``classes``, where ``from_torch`` finds them. Weights and names of
        columns are not kept. Labels with doubt are rows of probabilities in place of positions, as
        ``torch.nn.CrossEntropyLoss`` takes them.

        Example:
            >>> import advect as ad
            >>> pairs = ad.LabeledDataset([[0.0, 1.0], [2.0, 3.0]], ["cat", "dog"]).to_torch()
            >>> pairs[1]
            (tensor([2., 3.]), tensor(1))
        """
        if self.targets is not None and not self.has_classes:
            return TensorDataset(self.samples.detach().clone(), self.targets.detach().to(self.x))
        shares = self.probabilities
        labels = self.y if shares is None else shares.to(self.x.dtype)
        return to_tensors(self.samples, labels, self.classes)

    def to_pandas(self, label: str | bool | None = True, weights: str | None = None) -> DataFrame:
        """A data frame with a column for each feature, and labels as categories.

        Columns that were truth values, whole numbers, categories or text are so again: the nearest
        one, or the category with the largest share. ``data.replace(table=None).to_pandas()`` has
        the numbers.

        Columns without names are called x0, x1, …, which they are then called on the way back too;
        those of samples with several axes x[0][0], x[0][1], …, from which ``from_pandas`` tells the
        shape. Probabilities of labels with doubt are columns ``probability[…]``.

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
        if label is True and not self.has_classes:
            label = None
        frame = to_frame(
            self.x,
            self.y,
            self.weights,
            self.classes,
            self.columns,
            self.sample_shape,
            was,
            label,
            weights,
            self.probabilities,
        )
        for name, values in zip(
            self.target_names, () if self.targets is None else self.targets.T, strict=True
        ):
            if name in frame.columns:
                raise InputError(
                    "targets must have columns of their own", repr(name), "Rename target_columns."
                )
            frame[name] = values.detach().cpu().numpy().copy()
        return frame

    def save(self, path: str | PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the dataset to a file, whole or not at all; ``ad.datasets.load(path)`` reads it.

        Args:
            path: its suffix says the format: ``.npz`` and ``.parquet`` keep features, labels,
                classes, columns and weights; ``.csv`` and ``.tsv`` (also with ``.gz``) all but
                classes without samples, and read as float32 unless asked for ``dtype="float64"``.
                Tables have the columns that the data came with: categories as text, truth values,
                whole numbers, the name of the label column; a table of text needs the same options
                to be read again, ``target=`` among them, the others say themselves what they hold. Without a suffix it is a
                folder of PNG images, sorted by class, of 8 bits. Weights are written as they are
                held, with a sum of one. Probabilities of classes are kept too, in tables as
                columns ``probability[…]``; a folder of images has no place for them. Label laws are
                not kept: they are estimated again.
            overwrite: an existing file or folder of images is an error, unless this is set.

        Example:
            >>> import tempfile, advect as ad
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = ad.LabeledDataset([[0.0, 1.0], [2.0, 3.0]], ["cat", "dog"]).save(f"{folder}/pets.npz")
            ...     print(ad.datasets.load(path).labels)
            ['cat', 'dog']
        """
        named = bool(self.classes) and self.has_classes
        x, labels = self.samples.detach().cpu().numpy(), self.labels if named else None
        even = bool((self.weights - 1 / len(self.x)).abs().max() < 1e-12 / len(self.x))
        weights = None if even else self.weights.cpu().numpy()
        probabilities = None if self.probabilities is None else self.probabilities.cpu().numpy()
        classes = self.classes if named else None
        content = Content(x, labels, classes, self.columns, weights, self.table, probabilities)
        if self.targets is not None:
            content.targets = self.targets.detach().cpu().numpy()
            content.target_columns = self.target_columns
        write(path, content, overwrite=overwrite)
        return Path(path).expanduser()
