"""More samples for classes of which there are few: how samples differ within a class is borrowed from
the classes of another dataset. Beyond the paper.

    x_new = s_i + c (x_j − μ_j) ,     j drawn from the classes of the source by P(source class | class of s_i)

A flow ends on the few samples s_i and nowhere else, while what a learner lacks is how a class varies:
strokes get bolder, slant, open and close in digits as in letters. Means are the target's, residuals
the source's, and no transport between samples is needed."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from advect._util.checks import check_count, check_kind, check_known, check_non_negative
from advect.classes.class_means import calibrated_means, class_means
from advect.classes.matching import ClassMatching
from advect.cost import GroundCost, MeansOnly
from advect.cost.ground import check_features
from advect.data.class_table import ClassTable
from advect.data.dataset import LabeledDataset
from advect.data.laws import Factored, Gaussians
from advect.data.laws.shrinkage import pooled
from advect.data.sampling import by_turns
from advect.errors import InputError

_MEANS = GroundCost(label=MeansOnly())


def borrow(
    source: LabeledDataset,
    few: LabeledDataset,
    matching: ClassMatching | ClassTable | None = None,
    *,
    n: int | None = None,
    centre: Literal["shots", "mean", "calibrated"] = "shots",
    proportional: bool = False,
    scale: float | Literal["shots"] = 1.0,
    generator: torch.Generator | None = None,
) -> LabeledDataset:
    """New samples of the classes of ``few``, which vary as the classes of ``source`` do.

    To train on beside the few samples, above all in features of a network, where classes differ
    within themselves in much the same directions. In pixels the sum of an image and a residual is no
    image of the class when the shapes are unlike: there ``ad.maps.GaussianMap`` or plain augmentation
    may do better. The two label sets may be any, of any sizes.

    Args:
        source: plenty of labeled samples of other classes, in the same feature space (see
            ``ad.harmonize``).
        few: the target samples.
        matching: from the classes of ``few`` to those of ``source``, which says whose residuals a
            class takes: ``ClassMatching.between(few, source)``, its ``sharpened()`` for one class
            each, ``ClassMatching.nearest(few, source, m)``, or any table of P(source class | class).
            By default that of equal masses under distances of class means. A class that it gives
            nothing takes residuals of all.
        n: how many; by default as many as the source has. Classes come in proportion to their mass
            in ``few`` (``few.balanced()`` for equal ones), samples by their weights.
        centre: ``"shots"`` puts residuals around single samples, ``"mean"`` around the mean of their
            class, so that the matched source classes are translated to where the class is;
            ``"calibrated"`` around the samples of a class, moved together so that their mean is the
            one that they and the way the source's classes lie make likeliest: of one sample, what is
            chance is left out (``advect.classes.class_means``).
        proportional: what a source sample has more or less of its class mean multiplies the few
            sample, and only the rest is added: x_new = ρ s_i + c (x_j − ρ μ_j) with
            ρ = ⟨x_j, μ_j⟩ / ‖μ_j‖². For features whose zero means that nothing is there: counts,
            outputs of a ReLU, ink.
        scale: what residuals are multiplied with; ``"shots"`` for the number that gives them the
            mean squared length that the few samples have around their class means, with n − 1 (1
            where no class has two samples).
        generator: source of randomness, for repeatable draws.

    Returns:
        n samples in the order of their classes, all of the same weight, with the classes, sample
        shape and dtype of ``few``. Samples without a label are left out on both sides.

    Raises:
        InputError: another feature space, no labels, or a matching of other classes.

    Example:
        >>> import torch, advect as ad
        >>> generator = torch.Generator().manual_seed(0)
        >>> many = ad.LabeledDataset(torch.randn(300, 2, generator=generator), ["a", "b", "c"] * 100)
        >>> few = ad.LabeledDataset([[50.0, 0.0], [90.0, 0.0]], ["u", "v"])
        >>> more = ad.classes.borrow(many, few, n=200, generator=generator)
        >>> more.counts, round(more.of_class("v").x[:, 0].mean().item())
        ({'u': 100, 'v': 100}, 90)
    """
    check_known("centre", centre, ("shots", "mean", "calibrated"))
    source, few = _together(source, few)
    n = len(source) if n is None else check_count("n", n)
    shares = _shares(source, few, matching)
    y = by_turns(few.class_mass, n, generator).sort().values
    shots, kin = torch.empty_like(y), torch.empty(n, dtype=torch.long, device=source.x.device)
    for code in y.unique().tolist():
        rows = y == code
        size = int(rows.sum())
        shots[rows] = _drawn(few, y[rows], generator)
        donors = by_turns(shares[code], size, generator).to(source.y)
        kin[rows.to(kin.device)] = _drawn(source, donors, generator)
    middles = class_means(source)[source.y[kin]]
    taken, ratio = source.x[kin].double(), torch.ones(n, 1, dtype=torch.float64)
    if proportional:
        ratio = _ratio(taken, middles)
    residuals = (taken - ratio.to(taken) * middles).to(few.x.device)
    around = few.x[shots].double()
    if centre == "mean":
        around = class_means(few)[y]
    elif centre == "calibrated":
        around = around + (calibrated_means(source, few) - class_means(few))[y]
    x = ratio.to(around) * around + _factor(scale, source, few, shares) * residuals
    weights = few.weights.new_full((n,), 1 / n)
    return few.replace(x=x.to(few.x), y=y, weights=weights, law=None, law_index=None)


def borrowed_laws(
    source: LabeledDataset,
    few: LabeledDataset,
    matching: ClassMatching | ClassTable | None = None,
) -> Gaussians:
    """Laws of the classes of ``few`` with their own means, and covariances of the source classes that
    they are matched with: S_y = Σ_c P(c | y) S_c.

    To smooth few samples with (``few.smoothed(laws)``), to shrink their laws toward
    (``few.shrunk_laws(laws)``), or as the end of an ``ad.maps.GaussianMap``. Source classes count by
    what varies within them; that their means differ adds nothing.

    Args:
        source, few, matching: as in ``borrow``.

    Returns:
        One law for each of ``few.classes``, factored, in float64. A class of ``few`` without samples
        is at the origin.

    Example:
        >>> import torch, advect as ad
        >>> generator = torch.Generator().manual_seed(0)
        >>> spread = torch.randn(400, 2, generator=generator) * torch.tensor([1.0, 3.0])
        >>> many = ad.LabeledDataset(spread, ["a", "b"] * 200)
        >>> few = ad.LabeledDataset([[50.0, 0.0], [52.0, 0.0], [90.0, 0.0]], ["u", "u", "v"])
        >>> laws = ad.classes.borrowed_laws(many, few)
        >>> laws.means.tolist(), laws.covariance.scales().round().tolist()
        ([[51.0, 0.0], [90.0, 0.0]], [[1.0, 3.0], [1.0, 3.0]])

        The mean of these, at the scale of the few, and of the covariance within all of the few:

        >>> half = few.shrunk_laws("pooled", 1.0).shrunk(laws, 0.5, rescale=True)
        >>> half.covariance.traces().tolist()          # that of the shots of u, which tell of v too
        [2.0, 2.0]
    """
    source, few = _together(source, few)
    lent, means = source.moments().covariance, class_means(few)
    rows = [pooled(lent, share.to(source.x.device)) for share in _shares(source, few, matching)]
    factors = [each.compressed.rows for each in rows]
    return Gaussians(means, Factored(torch.cat(factors).to(means), tuple(map(len, factors))))


def _together(source: LabeledDataset, few: LabeledDataset) -> tuple[LabeledDataset, LabeledDataset]:
    """Their labeled samples, which are in one feature space."""
    source, few = _labeled("source", source), _labeled("few", few)
    check_one_space("source", source, few)
    return source, few


def check_one_space(name: str, data: LabeledDataset, few: LabeledDataset) -> None:
    """Data of a name has samples and columns like the few."""
    if data.sample_shape != few.sample_shape:
        raise InputError(
            f"{name} and few must be in one feature space",
            f"samples of shape {data.sample_shape} and {few.sample_shape}",
            "Bring both to one with ad.harmonize.",
        )
    check_features(data, few)


def _labeled(name: str, data: LabeledDataset) -> LabeledDataset:
    """The samples that have a label and a weight."""
    remedy = "Wrap arrays as ad.LabeledDataset(x, y)."
    check_kind(f"{name} must be a LabeledDataset", data, LabeledDataset, remedy)
    known = data.labeled & (data.weights > 0)
    if not bool(known.any()):
        raise InputError(
            f"{name} must have labeled samples",
            f"{len(data)} without a label",
            "Label some; ad.pseudo_labels gives clusters as labels.",
        )
    data = data.replace(x=data.x.detach(), law=None, law_index=None)
    return data if bool(known.all()) else data.subset(known)


def _shares(
    source: LabeledDataset, few: LabeledDataset, matching: ClassMatching | ClassTable | None
) -> Tensor:
    """P(source class | class of the few), (k, k'), rows summing to one, nothing for source classes
    without samples.
    """
    if matching is None:
        matching = ClassMatching.between(few, source, cost=_MEANS)
    elif not isinstance(matching, ClassMatching):
        remedy = "Pass for instance ad.ClassMatching.nearest(few, source)."
        check_kind("matching must be a ClassMatching", matching, ClassTable, remedy)
        matching = ClassMatching(matching)
    present = [name for name, count in few.counts.items() if count]
    strange = set(present) - set(matching.data_classes) or set(matching.reference_classes) - set(
        source.classes
    )
    if strange:
        raise InputError(
            "a matching must lead from the classes of few to those of source",
            f"{min(map(repr, strange))} on the wrong side or unknown",
            "Build it with ad.ClassMatching.between(few, source), or turn it with .reversed().",
        )
    filled = torch.tensor([float(count) for count in source.counts.values()]).clamp_max(1).double()
    table = torch.zeros(len(few.classes), len(source.classes), dtype=torch.float64)
    rows = [few.classes.index(name) for name in present]
    taken = [matching.data_classes.index(name) for name in present]
    columns = [source.classes.index(name) for name in matching.reference_classes]
    soft = torch.as_tensor(matching.soft.values[taken], dtype=torch.float64)
    table[torch.tensor(rows)[:, None], torch.tensor(columns)] = soft
    table = table * filled
    table = torch.where(table.sum(dim=1, keepdim=True) > 0, table, filled)
    return table / table.sum(dim=1, keepdim=True)


def _drawn(data: LabeledDataset, codes: Tensor, generator: torch.Generator | None) -> Tensor:
    """A row of the class of each code, by weight and by turns."""
    rows = torch.empty_like(codes)
    for code in codes.unique().tolist():
        members, places = ((part == code).nonzero()[:, 0] for part in (data.y, codes))
        rows[places] = members[by_turns(data.weights[members], len(places), generator)]
    return rows


def _ratio(rows: Tensor, middles: Tensor) -> Tensor:
    """How much of its class mean each row has, (n, 1); 1 where that is 0."""
    squares = middles.square().sum(dim=1, keepdim=True)
    tiny = torch.finfo(squares.dtype).tiny
    found = (rows * middles).sum(dim=1, keepdim=True) / squares.clamp_min(tiny)
    return torch.where(squares > 0, found, 1.0)


def _factor(
    scale: float | str, source: LabeledDataset, few: LabeledDataset, shares: Tensor
) -> float:
    if not isinstance(scale, str):
        return check_non_negative("scale", scale)
    check_known("scale", scale, ("shots",))
    counts = torch.tensor(list(few.counts.values()), dtype=torch.float64)
    several = counts > 1
    if not bool(several.any()):
        return 1.0
    # class by class with n − 1, and classes by the samples that tell: pooled
    own = few.moments().covariance.traces().cpu()
    pool = torch.where(several, counts - 1, 0)
    lent = shares @ source.moments().covariance.traces().cpu()
    wanted, got = (pool * own).sum() / pool.sum(), (pool * lent).sum() / pool.sum()
    return float((wanted / got).sqrt()) if got > 0 else 1.0
