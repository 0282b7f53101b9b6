"""Which steps bring two datasets to one feature space; the numbers in them are fitted by the steps'
own files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from advect._util.checks import check_count, check_known, check_sides
from advect._util.progress import Progress
from advect.data.dataset import LabeledDataset
from advect.data.formats.kinds import onehot_names
from advect.data.spaces.chain import Chain, through
from advect.data.spaces.coders import Coder, as_coder, fitted
from advect.data.spaces.columns import align
from advect.data.spaces.encoding import Encoding
from advect.data.spaces.images import Pixels, laid_out, layout
from advect.data.spaces.projection import Projection
from advect.data.spaces.scaling import SCALES, fit_scales
from advect.data.spaces.step import Step
from advect.errors import InputError


@dataclass(frozen=True)
class Options:
    """What the user asked for, checked before any data is looked at."""

    size: tuple[int, int] | None
    channels: str | None
    columns: str | None
    scale: str | None
    project: int | None
    encoder: Coder | None = None
    decoder: Coder | None = None
    progress: Progress = None

    @classmethod
    def read(
        cls,
        size: object,
        channels: str | None,
        columns: str | None,
        scale: str | None,
        project: object,
        encoder: object = None,
        decoder: object = None,
        progress: Progress = None,
    ) -> Options:
        if channels is not None:
            check_known("channels", channels, ("gray", "rgb"))
        if columns is not None:
            check_known("columns", columns, ("common", "union"))
        if scale is not None:
            check_known("scale", scale, SCALES)
        sides = None if size is None else check_sides(size)
        components = None if project is None else check_count("project", project)
        if encoder is None and decoder is not None:
            raise InputError(
                "a decoder is the way back of an encoder",
                "a decoder without an encoder",
                "Pass both, or neither.",
            )
        coders = (
            None if given is None else as_coder(given, what)
            for given, what in ((encoder, "encoder"), (decoder, "decoder"))
        )
        return cls(sides, channels, columns, scale, components, *coders, progress=progress)


@dataclass
class _Meeting:
    """Where two datasets meet, by which steps; ``shared``: are features the same on both."""

    steps: tuple[list[Step], list[Step]]
    shape: tuple[int, ...]
    columns: tuple[str, ...] | None = None
    shared: bool = True


def fit_chains(
    given: LabeledDataset, goal: LabeledDataset, options: Options, dtype: torch.dtype
) -> tuple[Chain, Chain, tuple[int, ...], tuple[str, ...] | None]:
    """The chains of both sides, and the sample shape and columns they lead to."""
    source, target = given.to(dtype=dtype), goal.to(dtype=dtype)
    features = [data.x.detach() for data in (source, target)]
    if options.encoder is None:
        meeting = _meet(source, target, options)
        _scale_and_project(meeting, features, options)
    else:
        # scale and project are of what the encoder gives
        meeting = _meet(source, target, replace(options, scale=None, project=None))
        _scale_and_project(meeting, features, replace(options, scale=None, project=None))
        laid = [through(way, x) for way, x in zip(meeting.steps, features, strict=True)]
        step = _encoding(laid, meeting.shape, options)
        beyond = _Meeting(([], []), (step.dim,))
        if options.scale is not None or options.project is not None:
            encoded = [step.apply(x) for x in laid]
            _scale_and_project(beyond, encoded, replace(options, columns=None))
        for way, more in zip(meeting.steps, beyond.steps, strict=True):
            way.extend([step, *more])
        meeting.shape, meeting.columns = beyond.shape, None
    first, second = (
        Chain(data.sample_shape, data.columns, tuple(way), data.x.dtype, data.table)
        for data, way in zip((given, goal), meeting.steps, strict=True)
    )
    return first, second, meeting.shape, meeting.columns


def _encoding(laid: Sequence[Tensor], shape: tuple[int, ...], options: Options) -> Encoding:
    """The step of the encoder; a transformer that is not fitted is fitted on what ``scale`` is."""
    assert options.encoder is not None
    theirs = laid[1:] if options.scale == "standardize-target" else laid
    encoder = fitted(options.encoder, lambda: torch.cat([*theirs]))
    return Encoding.fit(laid[0], shape, encoder, options.decoder, options.progress)


def _scale_and_project(meeting: _Meeting, features: Sequence[Tensor], options: Options) -> None:
    """Add the steps that come last."""
    if options.scale is not None or options.columns == "union":
        _scale(meeting, features, options.scale)
    if options.project is None:
        return
    ready = [through(way, x) for way, x in zip(meeting.steps, features, strict=True)]
    if meeting.shared:
        first = second = Projection.fit(torch.cat(ready), options.project, "both")
    else:
        first = Projection.fit(ready[0], options.project, "source")
        second = Projection.fit(ready[1], options.project, "target")
    meeting.steps[0].append(first)
    meeting.steps[1].append(second)
    meeting.shape, meeting.columns = (options.project,), None


def _meet(source: LabeledDataset, target: LabeledDataset, options: Options) -> _Meeting:
    first, second = layout(source.sample_shape), layout(target.sample_shape)
    shapes = f"sample shapes {source.sample_shape} and {target.sample_shape}"
    names = (
        None
        if source.columns is None or target.columns is None
        else (source.columns, target.columns)
    )
    if options.columns is not None and names is None:
        raise InputError(
            "the option columns needs names of columns on both sides",
            f"columns={options.columns!r} with {shapes}, not both named",
            "Name them with LabeledDataset(…, columns=…), or leave the option out to go by "
            "position.",
        )
    if first is not None and second is not None:
        return _meet_as_images(source, target, first, second, options)
    if names is not None and (
        options.columns or options.project is None or set(names[0]) == set(names[1])
    ):
        meeting = _meet_by_name(source, target, *names, options.columns)
    elif names is None and first is None and second is None and source.dim == target.dim:
        known = target.columns or source.columns
        meeting = _Meeting(([], []), target.sample_shape if known is None else (len(known),), known)
    elif options.project is not None:
        meeting = _Meeting(([], []), (options.project,), shared=False)
    else:
        raise InputError(
            "datasets must share a feature space: both images, or vectors of one dimension",
            shapes,
            "Give flattened images their shape back with .replace(sample_shape=(H, W)) and "
            "harmonize resizes them; "
            "or have them aligned by classes of the same name or by their geometry, "
            "ad.align(source, target); or project both to a common dimension with PCA (project=k); "
            "or use an embedding in the cost.",
        )
    if options.size is not None or options.channels is not None:
        raise InputError("size and channels are for images", shapes, "Leave them out for vectors.")
    if not meeting.shared and options.scale == "standardize-target":
        raise InputError(
            "the target's means and deviations are for a source with the same features",
            shapes,
            'Pass scale="standardize": each side by its own before it is projected.',
        )
    return meeting


def _meet_by_name(
    source: LabeledDataset,
    target: LabeledDataset,
    given: tuple[str, ...],
    other: tuple[str, ...],
    how: str | None,
) -> _Meeting:
    categories = onehot_names(source.table) | onehot_names(target.table)
    first, second, names = align(
        (source.x.detach(), target.x.detach()), given, other, how, categories
    )
    return _Meeting(
        ([] if given == names else [first], [] if other == names else [second]),
        (len(names),),
        names,
    )


def _meet_as_images(
    source: LabeledDataset,
    target: LabeledDataset,
    first: tuple[int, int, int],
    second: tuple[int, int, int],
    options: Options,
) -> _Meeting:
    sides = options.size or (max(first[1], second[1]), max(first[2], second[2]))
    gray = options.channels == "gray" or (options.channels is None and first[0] == second[0] == 1)
    out = laid_out(target.sample_shape, 1 if gray else 3, sides)
    steps: tuple[list[Step], list[Step]] = ([], [])
    for data, way in zip((source, target), steps, strict=True):
        if data.sample_shape != out:
            way.append(Pixels.fit(data.x.detach(), data.sample_shape, out))
    return _Meeting(steps, out)


def _scale(meeting: _Meeting, features: Sequence[Tensor], scale: str | None) -> None:
    """Add the scaling; then fill columns that a side lacks with the other side's mean."""
    laid = [through(way, x) for way, x in zip(meeting.steps, features, strict=True)]
    scales = None if scale is None else fit_scales(scale, laid[0], laid[1], meeting.shared)
    for side, way in enumerate(meeting.steps):
        if way and way[0].lacking:
            mean = laid[1 - side].double().nanmean(dim=0)
            if scales is not None:
                mean = scales[side].invert(scales[1 - side].apply(mean))
            way[0] = way[0].filled_with(mean)
        if scales is not None:
            way.append(scales[side])
