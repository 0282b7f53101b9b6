"""Datasets for commands: by reference, on the device and in the dtype that were asked for, in one
feature space.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advect.cli.code import Permission
from advect.cli.config import DataOptions, SpaceOptions
from advect.cli.output import Talk
from advect.errors import InputError

if TYPE_CHECKING:
    import advect as ad


def load(ref: str, options: DataOptions, talk: Talk) -> ad.LabeledDataset:
    """The dataset of a reference; what the reference says itself goes before the options."""
    import torch

    import advect as ad
    from advect.datasets.reference import Reference

    names = [row.name for row in ad.datasets.names()]
    own = Reference.parse(ref, names=names).options
    wanted: dict[str, Any] = {"seed": options.seed, "max_samples": options.max_samples}
    if options.balanced:
        wanted["balanced"] = True
    if "n" in own:
        wanted.pop("max_samples")
    given = {name: value for name, value in wanted.items() if value is not None and name not in own}
    data = ad.datasets.load(ref, progress=talk.progress, **given)
    data = data.to(
        device(options.device), None if options.dtype is None else getattr(torch, options.dtype)
    )
    talk.detail(f"{ref}: {data}")
    return _equal(data, ref) if options.equal_mass else data


def _equal(data: ad.LabeledDataset, ref: str) -> ad.LabeledDataset:
    """The same with classes of one mass."""
    if not (data.complete and data.has_classes):
        raise InputError(
            "classes of the same mass need a label for every sample",
            f"{ref} has none, or not all",
            "Leave --equal-mass out, or name the labels in the reference (?label=…).",
        )
    return data.balanced()


def settled(ref: str) -> str:
    """The reference with a whole path, so that it means the same from anywhere.

    Example:
        >>> settled("digits?n=5"), settled("csv:pets.csv?label=kind") == f"csv:{Path('pets.csv').absolute()}?label=kind"
        ('digits?n=5', True)
    """
    import advect as ad
    from advect.datasets.reference import Reference

    parsed = Reference.parse(ref, names=[row.name for row in ad.datasets.names()])
    if not (parsed.is_file or parsed.kind == "run"):
        return ref
    scheme = "" if parsed.kind == "path" else f"{parsed.kind}:"
    return f"{scheme}{Path(parsed.path).expanduser().absolute()}{ref.removeprefix(scheme)[len(parsed.path) :]}"


def device(name: str) -> Any:
    """A device that is there."""
    import torch

    try:
        place = torch.device(name)
        torch.zeros(1, device=place)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        why = str(error).splitlines()[0]
        raise InputError(
            "no such device here", f"{name} ({why})", "Use cpu; advect doctor lists what there is."
        ) from None
    return place


def together(
    refs: Sequence[str], options: DataOptions, space: SpaceOptions, talk: Talk, code: Permission
) -> tuple[ad.LabeledDataset, ad.LabeledDataset, ad.FeatureSpace]:
    """Two datasets in one feature space, and the space."""
    from advect.cli import build

    coders = build.coders(space, code, talk.progress)
    source, target = (load(ref, options, talk) for ref in refs)
    common = build.space(source, target, space, coders)
    talk.detail(common.describe())
    return common.apply(source), common.apply(target, side="target"), common


def facts(data: ad.LabeledDataset) -> dict[str, Any]:
    """What is worth saying about a dataset."""
    weights = data.weights
    even = bool((weights - 1 / len(data)).abs().max() < 1e-12)
    targets = [f"{name}: {text}" for name, text in data.target_facts().items()]
    return {
        "n": len(data),
        "sample_shape": list(data.sample_shape),
        "dtype": str(data.x.dtype).removeprefix("torch."),
        "classes": len(data.classes) if data.has_classes else 0,
        "counts": data.counts if data.has_classes else {},
        **({} if data.targets is None else {"targets": targets}),
        "unlabeled": int((~data.labeled).sum()),
        **({"confidence": float(data.confidence.mean())} if data.has_doubt else {}),
        "columns": None if data.columns is None else list(data.columns),
        "range": [float(data.x.min()), float(data.x.max())],
        "weights": "even" if even else "uneven",
    }


def short_names(refs: Sequence[str]) -> list[str]:
    """A name for each reference, good for a table and for a file; those that are the same are
    numbered.

    Example:
        >>> short_names(["usps?n=5", "csv:data/my pets.csv?label=kind", "usps"])
        ['usps', 'my-pets', 'usps-2']
    """
    found: list[str] = []
    for ref in refs:
        path = re.sub(r"^[a-z]+:(?=.)", "", ref.partition("?")[0])
        stem = Path(path.rstrip("/")).name.partition(".")[0] or "data"
        name = re.sub(r"[^\w@=-]+", "-", stem).strip("-") or "data"
        numbered = (f"{name}-{k}" for k in range(2, len(refs) + 2))
        found.append(next(free for free in (name, *numbered) if free not in found))
    return found
