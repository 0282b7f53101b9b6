"""Datasets that no common space unites: of other dimensions, or other columns (paper, section 2:
labels are compared across spaces; here samples are)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from advect._util.checks import check_count, check_kind, check_known
from advect._util.linalg import principal_axes
from advect.classes.rotations import Cloud, Found, by_geometry, within_groups
from advect.cost.names import spelled
from advect.data.dataset import LabeledDataset
from advect.data.spaces import FeatureSpace
from advect.data.spaces.aligned import Aligned
from advect.data.spaces.chain import Chain
from advect.data.spaces.samples import refuse_laws
from advect.errors import InputError

_MOST = 64  # dimensions where none are asked for
_WAYS = ("auto", "names", "geometry")
_ROWS = 4096

Pairs = list[tuple[int, int]]  # classes of the source and of the target that correspond


def align(
    source: LabeledDataset,
    target: LabeledDataset,
    *,
    by: str = "auto",
    classes: Mapping[Hashable, Hashable] | None = None,
    dim: int | None = None,
    scale: bool = True,
    samples: int = 300,
    seed: int = 0,
) -> FeatureSpace:
    """A feature space for two datasets whose dimensions or columns have nothing to do with each
    other, and the way of each side there and back.

    Each side goes to its principal components, and those of the source are turned onto the
    target's: by classes that are known to correspond, their means and then their samples; or by
    distances within each dataset alone (fused Gromov–Wasserstein transport). Where samples have a
    common form (images of two sizes, tables with the same columns in another order), use
    ``harmonize``: it knows more, and need not guess.

    What cannot be known: where the datasets are to each other (each is about its own centre, with
    classes that correspond of equal mass); their units, unless ``scale=False``; and rotations or
    reflections that leave the laws as they are. ``by="geometry"`` has nothing but distances, may
    end in a mirror image or with classes exchanged, and is for some hundred samples.
    ``space.describe()`` tells the misfit: 0 if matched samples coincide, 1 if they have nothing in common.

    Args:
        source, target: any two datasets without label laws, on one device.
        by: ``"names"``: classes of the same name correspond (compared as text, as ``ByName`` does);
            ``"geometry"``: nothing is known; ``"auto"``: names, if two or more are shared.
        classes: which class of the source corresponds to which of the target, instead of names.
        dim: of the space; by default as many as both have, at most 64.
        scale: multiply the source by one number, so that both have the same spread.
        samples: how many of each side are matched with each other, drawn evenly over classes.
        seed: of the draw.

    Returns:
        A ``FeatureSpace`` in the target's units: ``apply(data)`` and ``apply(data, side="target")``
        bring samples there, ``invert`` back, ``to_dict`` saves it.

    Raises:
        InputError: no class in common, a side without spread, more dimensions than there are.

    Example:
        >>> import torch, advect as ad
        >>> low = ad.datasets.load("toy:gaussians?n=90")                      # two dimensions
        >>> turn = torch.linalg.qr(torch.randn(7, 7, generator=torch.Generator().manual_seed(0)))[0]
        >>> high = low.replace(x=low.x @ turn[:2], sample_shape=(7,))         # the same in seven
        >>> space = ad.align(low, high)
        >>> a, b = space.apply(low), space.apply(high, side="target")
        >>> a.dim, bool((a.x - b.x).abs().max() < 1e-4)
        (2, True)
        >>> back = space.invert(a, side="target")                             # to seven dimensions
        >>> bool((back.x - high.x).abs().max() < 1e-4)
        True
    """
    check_known("way to align", by, _WAYS)
    samples = check_count("samples", samples, least=2)
    for data in (source, target):
        remedy = "Wrap arrays in LabeledDataset(x, y)."
        check_kind("align takes two datasets", data, LabeledDataset, remedy)
        refuse_laws(data)
    if source.x.device != target.x.device:
        raise InputError(
            "datasets must be on one device",
            f"{source.x.device} and {target.x.device}",
            "Move one with .to(device).",
        )
    pairs = _pairs(source, target, by, classes)
    sides = [
        _Side.of(name, data, [pair[k] for pair in pairs])
        for k, (name, data) in enumerate((("source", source), ("target", target)))
    ]
    k = _dim(sides, dim)
    factor = sides[1].spread / sides[0].spread if scale else 1.0
    draw = torch.Generator().manual_seed(seed)
    first, second = (side.cloud(k, samples, draw) for side in sides)
    moved = Cloud(factor * first.x, first.mass, first.group)
    found = within_groups(moved, second) if pairs else by_geometry(moved, second)
    how = f"{len(pairs)} classes that correspond" if pairs else "distances within each dataset"
    return _space((source, target), sides, k, factor, found, how)


@dataclass(frozen=True, eq=False)
class _Side:
    """One dataset about its centre, along its principal axes (r, d), which it has spread along."""

    data: LabeledDataset
    codes: list[int]  # of the classes that correspond, in their order; empty for none
    centre: Tensor
    axes: Tensor
    spread: float
    name: str

    @classmethod
    def of(cls, name: str, data: LabeledDataset, codes: list[int]) -> _Side:
        x, weights = data.x.detach(), data.weights.double()
        matched = _matched_mass(data, codes)
        rough = x[int(weights.argmax())].double()  # rounding is then that of differences
        centre, total = torch.zeros_like(rough), 0.0
        for rows, mass in zip(x.split(_ROWS), matched.split(_ROWS), strict=True):
            centre = centre + mass @ (rows.double() - rough)
        centre = rough + centre
        for rows, mass in zip(x.split(_ROWS), matched.split(_ROWS), strict=True):
            total += float(mass @ (rows.double() - centre).square().sum(dim=1))
        parts = zip(x.split(_ROWS), weights.split(_ROWS), strict=True)
        singular, axes = principal_axes(
            mass.sqrt()[:, None] * (rows.double() - centre) for rows, mass in parts
        )
        # what rounding of the features alone would give
        noise = torch.finfo(x.dtype).eps * float(x.abs().max()) + 1e-12 * float(singular[0])
        rank = int((singular > 4 * noise).sum())
        if rank == 0 or not total > 0:
            raise InputError(
                f"the {name} has no spread to align",
                f"{len(data)} samples at one place",
                "Take samples that differ.",
            )
        return cls(data, codes, centre, axes[:rank], total**0.5, name)

    def cloud(self, k: int, samples: int, draw: torch.Generator) -> Cloud:
        """Some samples along the first k axes; groups are pairs of classes, of equal mass, or
        classes.
        """
        data, known = self.data, bool(self.codes)
        y = data.y.cpu()
        place = {code: at for at, code in enumerate(self.codes)}
        has = (data.weights > 0).cpu()
        groups = self.codes if known else sorted(set(y[has].tolist()))
        rows, mass, group = [], [], []
        for code in groups:
            own = (has & (y == code)).nonzero()[:, 0]
            at = place[code] if known else code
            own = own[torch.randperm(len(own), generator=draw)[: -(-samples // len(groups))]]
            weights = data.weights.cpu()[own].double()
            total = 1.0 if known else float(data.weights.cpu()[has & (y == code)].sum())
            rows.append(own)
            mass.append(total * weights / weights.sum())
            group.append(torch.full((len(own),), at))
        order, mass = torch.cat(rows), torch.cat(mass)
        x = (data.x.detach().cpu()[order].double() - self.centre.cpu()) @ self.axes[:k].cpu().mT
        return Cloud(x.numpy(), (mass / mass.sum()).numpy(), torch.cat(group).numpy())


def _matched_mass(data: LabeledDataset, codes: list[int]) -> Tensor:
    """The mass of each sample where classes that correspond count alike; all of it where none do."""
    weights = data.weights.double()
    if not codes:
        return weights
    mass = torch.zeros_like(weights)
    for code in codes:
        rows = data.y == code
        mass[rows] = weights[rows] / weights[rows].sum() / len(codes)
    return mass


def _dim(sides: list[_Side], dim: int | None) -> int:
    most = min(len(side.axes) for side in sides)
    if dim is None:
        return min(most, _MOST)
    if check_count("dim", dim) > most:
        short = min(sides, key=lambda side: len(side.axes))
        raise InputError(
            f"the {short.name} has spread in {most} directions only",
            f"dim={dim}",
            "Ask for fewer, or add samples.",
        )
    return dim


def _pairs(
    source: LabeledDataset,
    target: LabeledDataset,
    by: str,
    classes: Mapping[Hashable, Hashable] | None,
) -> Pairs:
    """Classes with samples that correspond; none where geometry has to tell."""
    mine, yours = (_filled(data) for data in (source, target))
    if classes is not None:
        if by == "geometry":
            raise InputError(
                "classes that correspond leave nothing for geometry to find",
                'classes=… with by="geometry"',
                "Leave one of them out.",
            )
        pairs = [
            (_known(a, mine, "source"), _known(b, yours, "target")) for a, b in classes.items()
        ]
        if not pairs or len({b for _, b in pairs}) < len(pairs):
            raise InputError(
                "classes must correspond one to one, at least one of them",
                classes,
                "Name each class of the target once.",
            )
        return pairs
    shared = [(mine[name], yours[name]) for name in mine if name in yours]
    if by == "names" and not shared:
        raise InputError(
            "no class name of the source is in the target",
            f"{_listed(mine)} and {_listed(yours)}",
            'Say which correspond, classes={…: …}, or leave it to by="geometry".',
        )
    return shared if by == "names" or (by == "auto" and len(shared) > 1) else []


def _filled(data: LabeledDataset) -> dict[str, int]:
    """Classes with mass, by name as it is compared."""
    mass = data.weights.new_zeros(len(data.classes) + 1).index_add_(
        0, torch.where(data.labeled, data.y, len(data.classes)), data.weights
    )
    return {spelled(name): code for code, name in enumerate(data.classes) if float(mass[code]) > 0}


def _known(name: Hashable, there: dict[str, int], side: str) -> int:
    check_known(f"class of the {side}", spelled(name), there)
    return there[spelled(name)]


def _listed(names: dict[str, int]) -> str:
    some = list(names)[:5]
    return (", ".join(some) or "no labels") + (", …" if len(names) > len(some) else "")


def _space(
    datasets: tuple[LabeledDataset, LabeledDataset],
    sides: list[_Side],
    k: int,
    factor: float,
    found: Found,
    how: str,
) -> FeatureSpace:
    dtype = torch.promote_types(datasets[0].x.dtype, datasets[1].x.dtype)
    turn = torch.from_numpy(np.ascontiguousarray(found.rotation.T))
    axes = [turn @ sides[0].axes[:k].cpu(), sides[1].axes[:k].cpu()]
    chains = [
        Chain(
            data.sample_shape,
            data.columns,
            (Aligned(side.centre.cpu(), way, size, how, found.left),),
            data.x.dtype,
            data.table,
        )
        for data, side, way, size in zip(datasets, sides, axes, (factor, 1.0), strict=True)
    ]
    return FeatureSpace((k,), None, dtype, chains[0], chains[1])
