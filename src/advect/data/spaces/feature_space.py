"""The public face of a common feature space: fitted once, applied to samples of either side,
inverted, saved.

Which steps each side takes is ``fitting``'s choice; labels, weights and classes are never touched.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from advect._util.checks import check_finite, check_kind, check_known
from advect.data.coerce import as_features
from advect.data.dataset import LabeledDataset
from advect.data.formats import Table
from advect.data.spaces.chain import Chain
from advect.data.spaces.columns import listed, pick
from advect.data.spaces.fitting import Options, fit_chains
from advect.data.spaces.saved import columns_in, damaged, dtype_in, field, shape_in, word_in
from advect.errors import InputError

_NAME, _VERSION = "advect.FeatureSpace", 1
Samples = TypeVar("Samples", LabeledDataset, Tensor, np.ndarray)


def harmonize(
    source: LabeledDataset,
    target: LabeledDataset,
    *,
    size: int | tuple[int, int] | None = None,
    channels: str | None = None,
    columns: str | None = None,
    scale: str | None = None,
    project: int | None = None,
) -> tuple[LabeledDataset, LabeledDataset]:
    """Both datasets in one feature space and one dtype; labels, weights and classes stay.

    Images are samples of shape (H, W), (H, W, C) with C = 1, 3 or 4, or (C, H, W) with C = 1 or 3
    and H, W > 4; they come out as (H, W) when gray and (H, W, 3) otherwise. An alpha channel is
    dropped. Everything else is a vector. Vectors that have names of columns on both sides are
    aligned by name, in the target's order; others by position. ``FeatureSpace.fit`` takes the same
    options and remembers what was done, for new samples and for the way back.

    Args:
        source: a dataset of images or vectors.
        target: another one of the same kind, on the same device.
        size: side or (height, width) of the images; by default the larger height and the larger
            width of the two. Resizing is bilinear and antialiased; images that have the size
            already are not touched.
        channels: ``"gray"`` (0.299 R + 0.587 G + 0.114 B), ``"rgb"`` (gray repeated), or None: rgb
            if either is.
        columns: what to do when named columns are not the same: None for an error; ``"common"`` to
            keep the shared ones; ``"union"`` to keep all, the source's own ones last. A column that
            a side lacks is constant there, at the mean that the other side has once scaled: in a
            squared cost of features that adds the same to every plan and, where weights are
            uniform, less than any other constant. A value of a category (``coat=long``) that none
            of a side's samples has, where it has other values of that category, is 0 there.
        scale: None to leave values alone; ``"unit"`` to map each dataset to [0, 1] by its own
            smallest and largest value (constant data to 0); ``"standardize"`` to subtract from each
            feature its mean over the samples of both datasets and divide by its standard deviation
            there; ``"standardize-target"`` to take both from the target alone. Samples count
            equally whatever their weights, and only those that have the feature (for one that the
            target lacks, the source's). Features whose deviation is 0 are only centred.
        project: number of principal components to keep, after everything above. Features that are
            the same on both sides are projected on the components of both datasets together.
            Otherwise (vectors of different dimension, images with vectors, other columns) each side
            is projected on its own components, after ``scale="standardize"`` by its own statistics.
            Use that with care: coordinate j of one side has then nothing to do with coordinate j of
            the other beyond its rank, and only the geometry within each dataset is kept. Of the two
            signs of a component, its largest loading is positive.

    Raises:
        InputError: vectors of different dimension or columns, images against vectors, different
            devices, a dataset that carries label laws, options for images given with vectors.

    Example:
        >>> import advect as ad
        >>> small, large = ad.datasets.load("digits", n=50), ad.datasets.load("mnist", n=60)
        >>> ad.harmonize(small, large)[0]
        LabeledDataset(n=50, sample_shape=(28, 28), classes=10, dtype=float32)
        >>> ad.harmonize(small, large, size=16, channels="rgb")[1].sample_shape
        (16, 16, 3)
        >>> first = ad.LabeledDataset([[180.0, 80.0], [160.0, 60.0]], columns=["height", "weight"])
        >>> second = ad.LabeledDataset([[70.0, 170.0], [50.0, 150.0]], columns=["weight", "height"])
        >>> ad.harmonize(first, second)[0].x.tolist()
        [[80.0, 180.0], [60.0, 160.0]]
    """
    space = FeatureSpace.fit(
        source, target, size=size, channels=channels, columns=columns, scale=scale, project=project
    )
    return space.apply(source), space.apply(target, side="target")


@dataclass(frozen=True, eq=False, repr=False)
class FeatureSpace:
    """A feature space common to two datasets, and the way of each side there and back; made by
    ``FeatureSpace.fit``.

    Attributes:
        sample_shape: shape of one sample in the space.
        columns: names of its features, or None.
        dtype: of the features in the space, the wider one of the two datasets.

    Example:
        >>> import advect as ad
        >>> from advect.data.spaces import FeatureSpace
        >>> digits, mnist = ad.datasets.load("digits"), ad.datasets.load("mnist", n=60)
        >>> space = FeatureSpace.fit(digits.subset(range(50)), mnist)
        >>> space.apply(digits)
        LabeledDataset(n=1797, sample_shape=(28, 28), classes=10, dtype=float32)
        >>> back = space.invert(space.apply(digits))
        >>> back.sample_shape, bool((back.x - digits.x).abs().max() < 1e-5)
        ((8, 8), True)
        >>> print(space.describe())
        source (8, 8): resized from 8 × 8 to 28 × 28
        target (28, 28): as it is
        common (28, 28), float32
    """

    sample_shape: tuple[int, ...]
    columns: tuple[str, ...] | None
    dtype: torch.dtype
    _source: Chain
    _target: Chain

    @classmethod
    def fit(
        cls,
        source: LabeledDataset,
        target: LabeledDataset,
        *,
        size: int | tuple[int, int] | None = None,
        channels: str | None = None,
        columns: str | None = None,
        scale: str | None = None,
        project: int | None = None,
    ) -> FeatureSpace:
        """The space in which ``harmonize`` with these options, described there, puts the two
        datasets.

        Example:
            >>> import advect as ad
            >>> from advect.data.spaces import FeatureSpace
            >>> source, target = ad.LabeledDataset([[0.0], [2.0]]), ad.LabeledDataset([[4.0], [8.0]])
            >>> space = FeatureSpace.fit(source, target, scale="standardize-target")
            >>> space.apply([[6.0], [10.0]]).tolist()
            [[0.0], [2.0]]
        """
        options = Options.read(size, channels, columns, scale, project)
        remedy = "Wrap arrays in LabeledDataset(x, y)."
        for data in (source, target):
            check_kind("harmonize takes two datasets", data, LabeledDataset, remedy)
            _refuse_laws(data)
        if source.x.device != target.x.device:
            raise InputError(
                "datasets must be on one device",
                f"{source.x.device} and {target.x.device}",
                "Move one with .to(device).",
            )
        dtype = torch.promote_types(source.x.dtype, target.x.dtype)
        first, second, shape, names = fit_chains(source, target, options, dtype)
        return cls(shape, names, dtype, first, second)

    def apply(self, data: Samples, side: str = "source") -> Samples:
        """Samples of one side, old or new, in the common space, by the statistics of the fit.

        Args:
            data: a dataset, or an array (n, …) in the side's sample shape or flattened. Names of
                columns, where both ``data`` (a dataset or a data frame) and the side have them, go
                before positions.
            side: whose samples these are, ``"source"`` or ``"target"``.

        Returns:
            A dataset for a dataset, a tensor for a tensor, otherwise a numpy array; in the dtype of
            the space, on the device of ``data``. Gradients pass through the features; the
            statistics are constants.

        Example:
            >>> import advect as ad
            >>> from advect.data.spaces import FeatureSpace
            >>> source, target = ad.LabeledDataset([[0.0], [2.0]]), ad.LabeledDataset([[4.0], [8.0]])
            >>> FeatureSpace.fit(source, target, scale="unit").apply([[3.0]], side="target").tolist()
            [[-0.25]]
        """
        chain = self._chain(side)
        other = "target" if side == "source" else "source"
        hint = (
            f"apply takes these as of the {side}: pass side={other!r} for samples of the {other}."
        )
        x = _read(data, chain.shape, chain.columns, f"samples of the {side}", hint)
        if x.dtype != self.dtype:
            x = x.to(self.dtype)
            check_finite(
                "features",
                x,
                "They do not fit float32: fit the space on float64, or rescale them first.",
            )
        return _give(data, chain.apply(x), self.sample_shape, self.columns, chain.table_after)

    def invert(self, data: Samples, side: str = "source") -> Samples:
        """Samples of the common space in the units, size, channels and columns of one side.

        A dataset comes back in the side's dtype, and tables written from it have the side's kinds
        of columns: categories, truth values, whole numbers.

        What ``apply`` kept comes back, up to rounding: scaled values, constant features, reordered
        columns, moved axes, gray images repeated as rgb, enlarged images, and all of a sample when
        ``project`` keeps as many components as there are dimensions. What it lost is filled in:

        - shrunk images: along each axis, the bilinear enlargement with the least change that makes it shrink to what
          is given;
        - colour made gray: the gray value in all three channels;
        - an alpha channel, and columns dropped by ``columns="common"``: their mean in the fit;
        - components dropped by ``project``: their mean, that is the least-squares reconstruction.

        Samples that changed in the common space, in a flow for instance, may hold what the side
        cannot: an enlarged image comes back as the image whose enlargement is nearest in least
        squares, rgb for a gray side as the mean of the channels, and columns that
        ``columns="union"`` added are left out. Both ways of resizing can pass the
        range of the pixels a little at edges: clip where that matters.

        Args:
            data: a dataset, or an array (n, …) in the sample shape of the space or flattened.
            side: whose units to go to, ``"source"`` or ``"target"``.

        Returns:
            A dataset for a dataset, in the dtype of the side; a tensor for a tensor, otherwise a
            numpy array, in the dtype of ``data``.

        Example:
            >>> import advect as ad
            >>> from advect.data.spaces import FeatureSpace
            >>> source, target = ad.LabeledDataset([[0.0], [2.0]]), ad.LabeledDataset([[4.0], [8.0]])
            >>> FeatureSpace.fit(source, target, scale="unit").invert([[0.5]], side="target").tolist()
            [[6.0]]
        """
        chain = self._chain(side)
        hint = "invert takes samples of the common space: apply brings them there."
        x = _read(data, self.sample_shape, self.columns, "samples of the common space", hint)
        back = chain.invert(x)
        return _give(data, back, chain.shape, chain.columns, lambda _: chain.table, chain.dtype)

    def changes(self, side: str) -> bool:
        """Whether samples of one side differ from those of the common space in more than their
        dtype.

        Example:
            >>> import advect as ad
            >>> space = ad.FeatureSpace.fit(ad.datasets.load("digits", n=20), ad.datasets.load("mnist", n=20))
            >>> space.changes("source"), space.changes("target")
            (True, False)
        """
        return len(self._chain(side).steps) > 0

    def only_resizes(self, side: str) -> bool:
        """Whether images of one side come to another size or other channels and nothing else, so
        that brightness stays.

        Example:
            >>> import advect as ad
            >>> space = ad.FeatureSpace.fit(ad.datasets.load("digits", n=20), ad.datasets.load("mnist", n=20))
            >>> space.only_resizes("source")
            True
        """
        return self._chain(side).only_resizes

    def dropped(self, side: str) -> tuple[str, ...]:
        """Columns of one side that the space has not, because of ``columns="common"``: ``invert``
        gives their mean.

        Example:
            >>> import advect as ad
            >>> source = ad.LabeledDataset([[0.0, 1.0], [2.0, 3.0]], columns=["a", "b"])
            >>> space = ad.FeatureSpace.fit(source, ad.LabeledDataset([[1.0], [2.0]], columns=["b"]), columns="common")
            >>> space.dropped("source"), space.dropped("target")
            (('a',), ())
        """
        return self._chain(side).dropped

    def loses(self, side: str) -> str:
        """What principal components leave out of the samples of one side, in words; empty if
        nothing.

        Example:
            >>> import advect as ad
            >>> first, second = ad.datasets.load("digits", n=20), ad.datasets.load("digits", n=30, seed=1)
            >>> ad.FeatureSpace.fit(first, second, project=5).loses("source")
            'only 5 principal components of 64 dimensions'
        """
        return self._chain(side).loses()

    def describe(self) -> str:
        """What each side goes through, in a few lines.

        Example:
            >>> import advect as ad
            >>> from advect.data.spaces import FeatureSpace
            >>> source, target = ad.LabeledDataset([[0.0, 1.0], [2.0, 3.0]]), ad.LabeledDataset([[4.0, 0.0], [8.0, 1.0]])
            >>> print(FeatureSpace.fit(source, target, scale="unit").describe())
            source (2,): all features less 0, divided by 3 (range of the source)
            target (2,): all features less 0, divided by 8 (range of the target)
            common (2,), float32
        """
        lines = [
            f"{side} {self._chain(side).shape}: {self._chain(side).describe()}"
            for side in ("source", "target")
        ]
        names = f", columns {listed(self.columns)}" if self.columns else ""
        return "\n".join([*lines, f"common {self.sample_shape}{names}, {_dtype_name(self.dtype)}"])

    def __repr__(self) -> str:
        return f"FeatureSpace(sample_shape={self.sample_shape}, source={self._source.shape}, target={self._target.shape})"

    def to_dict(self) -> dict[str, Any]:
        """Everything, in lists, dictionaries, strings and numbers that JSON keeps exactly.

        Example:
            >>> import json, advect as ad
            >>> from advect.data.spaces import FeatureSpace
            >>> source, target = ad.LabeledDataset([[0.0], [2.0]]), ad.LabeledDataset([[4.0], [8.0]])
            >>> text = json.dumps(FeatureSpace.fit(source, target, scale="unit").to_dict())
            >>> FeatureSpace.from_dict(json.loads(text)).apply([[1.0]]).tolist()
            [[0.5]]
        """
        return {
            "kind": _NAME,
            "version": _VERSION,
            "dtype": _dtype_name(self.dtype),
            "sample_shape": list(self.sample_shape),
            "columns": None if self.columns is None else list(self.columns),
            "source": self._source.to_dict(),
            "target": self._target.to_dict(),
        }

    @classmethod
    def from_dict(cls, facts: Any) -> FeatureSpace:
        """The space that ``to_dict`` wrote, with the same results to the last bit; anything else is
        an ``InputError``.

        Example:
            >>> from advect.data.spaces import FeatureSpace
            >>> try:
            ...     FeatureSpace.from_dict({"kind": "something else"})
            ... except ValueError as error:
            ...     print(error)
            not a saved feature space, or damaged: kind must be one of advect.FeatureSpace; got 'something else'. Pass ...
        """
        word_in(facts, "kind", (_NAME,))
        if type(field(facts, "version")) is not int or facts["version"] != _VERSION:
            raise InputError(
                f"a saved feature space must be of version {_VERSION}",
                repr(facts["version"]),
                "Read it with the advect that wrote it, or fit the space again.",
            )
        dtype, shape = dtype_in(facts, "dtype"), shape_in(facts, "sample_shape")
        names = columns_in(facts, shape)
        chains = [Chain.from_dict(field(facts, side)) for side in ("source", "target")]
        for chain in chains:
            if chain.dim_out != math.prod(shape):
                raise damaged(
                    f"both sides must lead to samples of shape {shape}", f"{chain.dim_out} features"
                )
            if chain.columns_out not in (None, names):
                raise damaged(
                    f"both sides must lead to the columns {listed(names or ())}",
                    listed(chain.columns_out or ()),
                )
        return cls(shape, names, dtype, chains[0], chains[1])

    def _chain(self, side: str) -> Chain:
        check_known("side", side, ("source", "target"))
        return self._source if side == "source" else self._target


def _read(
    data: Any, shape: tuple[int, ...], columns: tuple[str, ...] | None, what: str, hint: str
) -> Tensor:
    """The features of a dataset or an array, (n, d), with columns in the order asked for."""
    if isinstance(data, LabeledDataset):
        _refuse_laws(data)
        x, given = data.x, data.sample_shape
    else:
        values = as_features(data)
        x, given = values.reshape(len(values), -1), tuple(values.shape[1:])
    names = getattr(data, "columns", None)
    if names is not None and columns is not None:
        names = tuple(map(str, names))
        if sorted(names) != sorted(columns):
            raise InputError(
                f"{what} must have the columns {listed(columns)}",
                listed(names),
                f"Rename or drop some; {hint}",
            )
        return x if names == columns else pick(x, names, columns, {})
    if given not in (shape, (math.prod(shape),)):
        raise InputError(f"{what} must have shape {shape}, one sample to a row", given, hint)
    return x


def _give(
    data: Any,
    x: Tensor,
    shape: tuple[int, ...],
    columns: tuple[str, ...] | None,
    table: Callable[[Table | None], Table | None],
    dtype: torch.dtype | None = None,
) -> Any:
    """Features in the form in which they came; a dataset also says what its columns are now."""
    if isinstance(data, LabeledDataset):
        kinds = table(data.table)
        same = x is data.x and (shape, columns) == (data.sample_shape, data.columns)
        if same and kinds is data.table and dtype is None:
            return data
        moved = data.replace(x=x, sample_shape=shape, columns=columns, table=kinds)
        return moved if dtype is None else moved.to(dtype=dtype)
    samples = x.reshape(len(x), *shape)
    return samples if isinstance(data, Tensor) else samples.numpy()


def _refuse_laws(data: LabeledDataset) -> None:
    if data.law is not None:
        raise InputError(
            "label laws live in the space they were made in and cannot be harmonized",
            f"a dataset with {len(data.law)} laws",
            "Harmonize before laws are attached, or drop them with .replace(law=None, "
            "law_index=None).",
        )


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
