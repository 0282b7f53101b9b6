"""The public face of a common feature space: fitted once, applied to samples of either side,
inverted, saved.

Which steps each side takes is ``fitting``'s choice; labels, weights and classes are never touched.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from advect._util.checks import check_finite, check_kind, check_known
from advect._util.progress import Progress
from advect.data.dataset import LabeledDataset
from advect.data.spaces.chain import Chain
from advect.data.spaces.columns import listed
from advect.data.spaces.encoding import Given
from advect.data.spaces.fitting import Options, fit_chains
from advect.data.spaces.pictures import Pictures, laid_out
from advect.data.spaces.samples import Samples, give, read, refuse_laws
from advect.data.spaces.saved import columns_in, damaged, dtype_in, field, shape_in, word_in
from advect.errors import InputError

_NAME, _VERSION = "advect.FeatureSpace", 1


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
        encoder: Any = None,
        decoder: Any = None,
        progress: Progress = None,
    ) -> FeatureSpace:
        """The space in which ``harmonize`` with these options, described there, puts the two
        datasets; it shows the progress of its encoder as it was asked to here.

        Example:
            >>> import advect as ad
            >>> from advect.data.spaces import FeatureSpace
            >>> source, target = ad.LabeledDataset([[0.0], [2.0]]), ad.LabeledDataset([[4.0], [8.0]])
            >>> space = FeatureSpace.fit(source, target, scale="standardize-target")
            >>> space.apply([[6.0], [10.0]]).tolist()
            [[0.0], [2.0]]
        """
        options = Options.read(size, channels, columns, scale, project, encoder, decoder, progress)
        remedy = "Wrap arrays in LabeledDataset(x, y)."
        for data in (source, target):
            check_kind("harmonize takes two datasets", data, LabeledDataset, remedy)
            refuse_laws(data)
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
        x = chain.apply(self._features(data, side))
        return give(data, x, self.sample_shape, self.columns, chain.table_after)

    def _features(self, data: Any, side: str) -> Tensor:
        """Samples of one side as flat features, in the dtype of the space."""
        chain = self._chain(side)
        other = "target" if side == "source" else "source"
        hint = (
            f"apply takes these as of the {side}: pass side={other!r} for samples of the {other}."
        )
        x = read(data, chain.shape, chain.columns, f"samples of the {side}", hint)
        if x.dtype != self.dtype:
            x = x.to(self.dtype)
            check_finite(
                "features",
                x,
                "They do not fit float32: fit the space on float64, or rescale them first.",
            )
        return x

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
        x = read(data, self.sample_shape, self.columns, "samples of the common space", hint)
        back = chain.invert(x)
        return give(data, back, chain.shape, chain.columns, lambda _: chain.table, chain.dtype)

    def shape_of(self, side: str) -> tuple[int, ...]:
        """Shape of one sample of a side, before it comes into the space.

        Example:
            >>> import advect as ad
            >>> space = ad.FeatureSpace.fit(ad.datasets.load("digits", n=20), ad.datasets.load("mnist", n=20))
            >>> space.shape_of("source"), space.shape_of("target"), space.sample_shape
            ((8, 8), (28, 28), (28, 28))
        """
        return self._chain(side).shape

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

    @property
    def encoder(self) -> Any:
        """The encoder as it was given, a transformer fitted; None where there is none, or where a
        loaded space was not given it again.

        Example:
            >>> import advect as ad
            >>> from sklearn.decomposition import PCA
            >>> first, second = ad.datasets.load("digits", n=20), ad.datasets.load("digits", n=30, seed=1)
            >>> ad.FeatureSpace.fit(first, second, encoder=PCA(5)).encoder.n_components_
            5
        """
        step = self._source.encoding
        return None if step is None else step.encoder.given

    def digests(self) -> dict[str, str]:
        """What an encoder and a decoder are known by, under these names; empty where there are
        none.

        Example:
            >>> import torch, advect as ad
            >>> data = ad.LabeledDataset([[0.0, 3.0], [2.0, 4.0]])
            >>> ad.FeatureSpace.fit(data, data, encoder=torch.nn.Identity()).digests().keys()
            dict_keys(['encoder'])
        """
        step = self._source.encoding
        if step is None:
            return {}
        coders = {"encoder": step.encoder, "decoder": step.decoder}
        return {
            what: coder.digest or coder.name for what, coder in coders.items() if coder is not None
        }

    def invertible(self, side: str) -> bool:
        """Whether samples of the common space have a way back to one side: all but those of an
        encoder without a decoder have.

        Example:
            >>> import advect as ad
            >>> data = ad.LabeledDataset([[0.0, 3.0], [2.0, 4.0]])
            >>> ad.FeatureSpace.fit(data, data, encoder=lambda x: x**2).invertible("source")
            False
        """
        return self._chain(side).invertible

    def pictures(self, source: LabeledDataset, target: LabeledDataset | None = None) -> Pictures:
        """How to look at samples of the common space: as images, or rows, before they were scaled,
        projected or encoded.

        Through the way back where there is one; in the features of an encoder without a decoder,
        each as the nearest sample there, out of ``source`` and ``target`` as they were given to
        ``apply``.

        Example:
            >>> import advect as ad
            >>> a, b = ad.datasets.load("digits", n=20), ad.datasets.load("digits", n=30, seed=1)
            >>> space = ad.FeatureSpace.fit(a, b, encoder=lambda images: images.flatten(1)[:, ::2])
            >>> pictures = space.pictures(a, b)
            >>> shown = pictures(space.apply(a))
            >>> shown.sample_shape, bool((shown.x == a.x).all())
            ((8, 8), True)
            >>> pictures.how
            'the nearest of 50 real samples'
        """
        sides = {"source": source} if target is None else {"source": source, "target": target}
        return Pictures.of(
            [(self._chain(side), self._features(data, side)) for side, data in sides.items()]
        )

    @property
    def picture_shape(self) -> tuple[int, ...]:
        """Shape of what ``pictures`` shows: of samples of one size, channels and columns.

        Example:
            >>> import advect as ad
            >>> first, second = ad.datasets.load("digits", n=20), ad.datasets.load("mnist", n=30)
            >>> space = ad.FeatureSpace.fit(first, second, project=5)
            >>> space.sample_shape, space.picture_shape
            ((5,), (28, 28))
        """
        return self._source.shape_after(laid_out(self._source))

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

    def to_dict(self, folder: str | Path | None = None) -> dict[str, Any]:
        """Everything, in lists, dictionaries, strings and numbers that JSON keeps exactly; of an
        encoder and a decoder only what they are known by: a digest of the content of an ONNX file,
        of the parameters of a module or a transformer, the name of a function.

        Args:
            folder: where the space will be kept: an ONNX file is then also found from there.

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
            "source": self._source.to_dict(None if folder is None else Path(folder)),
            "target": self._target.to_dict(None if folder is None else Path(folder)),
        }

    @classmethod
    def from_dict(
        cls,
        facts: Any,
        *,
        encoder: Any = None,
        decoder: Any = None,
        folder: str | Path | None = None,
        progress: Progress = None,
    ) -> FeatureSpace:
        """The space that ``to_dict`` wrote, with the same results to the last bit; anything else is
        an ``InputError``.

        Args:
            facts: what ``to_dict`` returned.
            encoder, decoder: those of the fit again: others are refused, by their digests. ONNX
                files are opened again by themselves. A space that lacks one says so when it needs
                it.
            folder: where the space was kept; an ONNX file is first looked for from there.
            progress: None to show how far an encoder is when it takes long, False to be silent, or
                a function of (done, total).

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
        given = Given(encoder, decoder, None if folder is None else Path(folder), progress)
        chains = [Chain.from_dict(field(facts, side), given) for side in ("source", "target")]
        given.check_used(chains[0].encoding)
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


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
