"""The steps that bring two datasets into one feature space."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch

from advect._util.checks import check_count, check_known, check_sides
from advect._util.progress import Progress
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.spaces.encoding import Encoding, as_coder
from advect.spaces.images import Pixels, image_shape, layout
from advect.spaces.steps import SCALES, Columns, Names, Projection, Scale, Step, difference, listed


@dataclass
class Fit:
    """Steps of the source and the target, fitted one after the other; see ``harmonize``.

    ``x`` are the features after these steps, NaN where a side lacks a column; ``shape`` and
    ``names`` are those of a sample; ``shared`` tells whether both sides have the same features.
    """

    source: LabeledDataset
    target: LabeledDataset
    size: Any
    channels: str | None
    columns: str | None
    scale: str | None
    project: Any
    encoder: Any
    decoder: Any
    progress: Progress
    steps: tuple[list[Step], list[Step]] = field(default_factory=lambda: ([], []))
    shape: tuple[int, ...] = ()
    names: Names = None
    shared: bool = True

    def __post_init__(self) -> None:
        known = {"channels": ("gray", "rgb"), "columns": ("common", "union"), "scale": SCALES}
        for name, values in known.items():
            if getattr(self, name) is not None:
                check_known(name, getattr(self, name), values)
        self.size = None if self.size is None else check_sides(self.size)
        if self.project is not None:
            check_count("project", self.project)
        if self.encoder is None and self.decoder is not None:
            raise InputError(
                "decoder needs an encoder", "a decoder alone", "Pass both, or neither."
            )
        self.x = [self.source.x.detach(), self.target.x.detach()]
        self._meet()
        if self.encoder is not None:
            self._fill(None)
            encoder = as_coder(self.encoder, "encoder")
            decoder = None if self.decoder is None else as_coder(self.decoder, "decoder")
            options = {"decoder": decoder, "progress": self.progress}
            step = Encoding.fit(self.x[0], self.shape, encoder, **options)
            self._add(step, step, compute=self.scale is not None or self.project is not None)
            self.shape, self.names = (step.dim,), None
        scales = self._scales()
        self._fill(scales)
        self._add(*(scales or ()))
        if self.project is not None:
            whole = [torch.cat(self.x)] * 2 if self.shared else self.x
            of = ("both", "both") if self.shared else ("source", "target")
            first = Projection.fit(whole[0], self.project, of[0])
            second = first if self.shared else Projection.fit(whole[1], self.project, of[1])
            self._add(first, second, compute=False)
            self.shape, self.names = (self.project,), None

    def _add(self, *pair: Step | None, compute: bool = True) -> None:
        for side, step in enumerate(pair):
            if step is not None:
                self.steps[side].append(step)
                self.x[side] = step.apply(self.x[side]) if compute else self.x[side]

    def _meet(self) -> None:
        """Images to one size, columns to one order."""
        first, second = self.source.columns, self.target.columns
        images = [layout(data.sample_shape) for data in (self.source, self.target)]
        shapes = f"sample shapes {self.source.sample_shape} and {self.target.sample_shape}"
        named = first is not None and second is not None
        if self.columns is not None and not named:
            remedy = "Name them with LabeledDataset(…, columns=…), or leave the option out."
            raise InputError("columns needs column names on both sides", shapes, remedy)
        if images[0] is not None and images[1] is not None:
            return self._meet_as_images(images[0], images[1])
        free = self.columns or self.project is None
        if first is not None and second is not None and (free or {*first} == {*second}):
            self._meet_by_name(first, second)
        elif not named and images == [None, None] and self.source.dim == self.target.dim:
            self.names = second or first
            self.shape = self.target.sample_shape if self.names is None else (len(self.names),)
        elif self.project is not None:
            self.shape, self.shared = (self.project,), False
        else:
            raise InputError(
                "datasets must share a feature space: both images, or vectors of one dimension",
                shapes,
                "Give flattened images their shape with .replace(sample_shape=(H, W)), project both "
                "to principal components (project=k), or use an embedding in the cost.",
            )
        if self.size is not None or self.channels is not None:
            raise InputError("size and channels are for images", shapes, "Leave them out.")
        if not self.shared and self.scale == "standardize-target":
            what = 'scale="standardize-target" needs the same features on both sides'
            raise InputError(what, shapes, 'Pass scale="standardize".')
        return None

    def _meet_as_images(self, first: tuple[int, int, int], second: tuple[int, int, int]) -> None:
        sides = self.size or (max(first[1], second[1]), max(first[2], second[2]))
        gray = self.channels == "gray" or (self.channels is None and first[0] == second[0] == 1)
        self.shape = image_shape(self.target.sample_shape, 1 if gray else 3, sides)
        pairs = zip((self.source.sample_shape, self.target.sample_shape), self.x, strict=True)
        self._add(*[None if s == self.shape else Pixels.fit(x, s, self.shape) for s, x in pairs])

    def _meet_by_name(self, first: tuple[str, ...], second: tuple[str, ...]) -> None:
        """Columns that a side lacks are NaN until ``_fill``.

        A one-hot column ``name=value`` is 0 where the side has other values of the category."""
        only_first, only_second = difference(first, second), difference(second, first)
        if self.columns is None and (only_first or only_second):
            raise InputError(
                "both datasets must have the same columns",
                f"{listed(only_second)} missing in the source, {listed(only_first)} missing in the "
                "target",
                'Pass columns="common" or columns="union", or rename them with .replace(columns=…).',
            )
        shared = tuple(name for name in second if name in set(first))
        wanted = (*second, *only_first) if self.columns == "union" else shared
        if not wanted:
            remedy = 'Rename them with .replace(columns=…), or pass columns="union" or project=k.'
            raise InputError("the datasets share no column", listed(first), remedy)
        tables = [data.table for data in (self.source, self.target) if data.table is not None]
        kinds = [column for table in tables for column in table.columns if column.values]
        category = {name: column.name for column in kinds for name in column.names}
        steps = []
        for x, given in zip(self.x, (first, second), strict=True):
            means = dict(zip(given, x.double().mean(dim=0).tolist(), strict=True))
            held = {category[name] for name in given if name in category}
            fill = {name: means[name] for name in difference(given, wanted)}
            for name in difference(wanted, given):
                fill[name] = 0.0 if category.get(name) in held else math.nan
            steps.append(None if given == wanted else Columns(given, wanted, fill))
        self._add(*steps)
        self.shape, self.names = (len(wanted),), wanted

    def _fill(self, scales: tuple[Scale, Scale] | None) -> None:
        """Fill columns that a side lacks with the mean of the other after scaling."""
        means = [x.double().nanmean(dim=0) for x in self.x]
        for side, steps in enumerate(self.steps):
            first, mean = steps[0] if steps else None, means[1 - side]
            if isinstance(first, Columns) and any(map(math.isnan, first.fill.values())):
                if scales is not None:
                    mean = scales[side].invert(scales[1 - side].apply(mean))
                steps[0] = first.filled_with(mean)
                self.x[side] = self.x[side].where(~self.x[side].isnan(), mean.to(self.x[side]))

    def _scales(self) -> tuple[Scale, Scale] | None:
        """A scale for each side; one for both if they have the same features."""
        source, target = self.x
        if self.scale is None:
            return None
        if self.scale == "unit" or not self.shared:
            first = Scale.fit(source, self.scale, "source")
            return first, Scale.fit(target, self.scale, "target")
        if self.scale == "standardize":
            both = Scale.fit(torch.cat([source, target]), self.scale, "both")
        else:
            both = Scale.fit(target, self.scale, "target", source)
        return both, both
