"""Label laws and samples for classes of few samples (beyond the paper).

How far to shrink a covariance is estimated from its samples (Ledoit and Wolf 2004):

    λ = min(1, b² / ‖S − T‖²) ,        b² ≈ E‖S − Σ‖²

b is the error that S has for being estimated from few samples. With T = (tr S/d) I the share is that
of Ledoit and Wolf; for any T that does not depend on the samples it minimises E‖(1 − λ) S + λ T − Σ‖²
as well, which a pooled T does nearly. Norms come from products of samples where those are fewer than
dimensions."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from advect._util.checks import check_count, check_kind, check_known
from advect.data.dataset import LabeledDataset, require_labels
from advect.data.labels import estimated_laws, label_samples, require_hard
from advect.data.laws import Covariance, Gaussians
from advect.data.laws.gaussians import CentredClasses, centred_classes
from advect.data.laws.shrinkage import aim
from advect.data.sampling import by_turns
from advect.errors import InputError

_FEWEST = 3  # samples that tell how far their covariance may be off: two are alike but for a sign


def shrunk_laws(
    data: LabeledDataset,
    toward: Gaussians | Literal["pooled", "spherical"] = "pooled",
    share: float | Tensor | Literal["ledoit-wolf"] = "ledoit-wolf",
    *,
    rescale: bool = False,
) -> Gaussians:
    """Class laws with covariances shrunk toward others: (1 − λ) S_y + λ T_y around the class means.

    Use it for classes of few samples, whose covariances are too narrow. ``share=1.0`` toward
    ``"pooled"`` is the model of linear discriminant analysis.

    Args:
        data: a labeled dataset.
        toward: ``"pooled"``, the covariance within classes; ``"spherical"``, the ball of the same
            trace; or laws, one for each class or one for all, such as
            ``ad.classes.borrowed_laws(source, few)``.
        share: λ, a number or one for each class. ``"ledoit-wolf"`` estimates it for each class
            (Ledoit and Wolf 2004), with 1 for classes of one or two samples.
        rescale: give T_y the trace of S_y.

    Returns:
        Laws in float64, factored if T is.

    Example:
        >>> import torch, advect as ad
        >>> x = torch.randn(12, 30, generator=torch.Generator().manual_seed(0))
        >>> few = ad.LabeledDataset(x, ["a", "b", "c"] * 4)
        >>> [torch.linalg.matrix_rank(S).item() for S in ad.classes.shrunk_laws(few).covariances()]
        [9, 9, 9]
    """
    laws, k = estimated_laws(data), len(data.classes)
    found = centred_classes(*label_samples(data), k)
    # n − 1 for n equal weights
    mass = found.freedom / (1 - found.freedom).clamp_min(torch.finfo(torch.float64).eps)
    target = aim(laws.covariance, toward, rescale=rescale, mass=mass.clamp_min(0))
    if isinstance(share, str):
        check_known("share", share, ("ledoit-wolf",))
        share = ledoit_wolf_shares(found, laws.covariance, target)
    return laws.shrunk(Gaussians(laws.means, target), share)


def smoothed(
    data: LabeledDataset,
    laws: Gaussians,
    n: int | None = None,
    *,
    generator: torch.Generator | None = None,
) -> LabeledDataset:
    """Samples plus noise of their class's law: draws of the density Σ w_i N(x_i, S_(y_i)).

    A flow to a few samples ends on them; a flow to these ends around them.

    Args:
        data: a dataset with hard labels.
        laws: one for each class, in their order; only the covariances are used.
        n: number of draws, each sample in proportion to its weight. By default each sample once,
            with its weight.
        generator: source of randomness, for repeatable draws.

    Example:
        >>> import torch, advect as ad
        >>> from advect.data.laws import Diagonal
        >>> few = ad.LabeledDataset([[0.0, 0.0], [9.0, 0.0]], ["a", "b"])
        >>> laws = ad.Gaussians(torch.zeros(2, 2), Diagonal(torch.tensor([[0.0, 1.0], [0.0, 0.0]])))
        >>> many = ad.classes.smoothed(few, laws, 400, generator=torch.Generator().manual_seed(0))
        >>> many.counts, round(many.of_class("a").x[:, 1].std().item())
        ({'a': 200, 'b': 200}, 1)
    """
    require_hard(data, "smoothed")
    require_labels(data, "smoothed")
    check_kind("smoothed needs class laws", laws, Gaussians, "Pass ad.classes.shrunk_laws(data).")
    if len(laws) != len(data.classes) or laws.dim != data.dim:
        raise InputError(
            f"laws must be one for each of {len(data.classes)} classes, of dimension {data.dim}",
            f"{len(laws)} of dimension {laws.dim}",
            "Pass ad.classes.shrunk_laws(data) or ad.classes.borrowed_laws(source, data).",
        )
    weights, x, y = data.weights, data.x, data.y
    if n is not None:
        rows = by_turns(weights, check_count("n", n), generator).sort().values
        weights, x, y = weights.new_full((n,), 1 / n), x[rows], y[rows]
    noise = laws.to(x.device).sample(y, centred=True, generator=generator)
    x = (x.double() + noise).to(x)
    return data.replace(x=x, y=y, weights=weights, law=None, law_index=None)


def inner_products(a: Covariance, b: Covariance) -> Tensor:
    """⟨S_i, T_i⟩ = tr S_i T_i of each pair, (k,), float64: ‖A Bᵀ‖² of factors."""
    if a.is_diagonal and b.is_diagonal:
        return (a.scales().double() * b.scales().double()).square().sum(dim=1)
    if not (a.has_factors and b.has_factors):
        return (a.dense().double() * b.dense()).sum(dim=(1, 2))
    blocks = zip(a.compressed.parts(), b.compressed.parts(), strict=True)
    return torch.stack([(one @ two.mT).square().sum() for one, two in blocks])


def ledoit_wolf_shares(found: CentredClasses, own: Covariance, target: Covariance) -> Tensor:
    """λ (k,) of classes with samples ``found``, covariances ``own`` and targets; 1 for classes of
    fewer than three samples.
    """
    blocks = zip(found.points.split(found.counts), found.share.split(found.counts), strict=True)
    errors = torch.stack([_squared_error(points, share) for points, share in blocks])
    scale = torch.where(found.freedom > 0, found.freedom, 1).square()
    apart = inner_products(own, own) + inner_products(target, target)
    apart = apart - 2 * inner_products(own, target)
    shares = errors / scale / apart.clamp_min(torch.finfo(torch.float64).tiny)
    several = found.share.new_zeros(len(own)).index_add_(0, found.y, (found.share > 0).double())
    return torch.where(several < _FEWEST, 1.0, shares.clamp(0, 1))


def _squared_error(points: Tensor, share: Tensor) -> Tensor:
    """b² of one class, by products of its samples or by its matrix, whichever is smaller."""
    if len(points) <= points.shape[1]:
        products = (points @ points.mT).square() @ share  # xᵀSx
    else:
        products = ((points @ (points.mT @ (points * share[:, None]))) * points).sum(dim=1)
    lengths = points.square().sum(dim=1).square()
    return (share.square() * (lengths - 2 * products + share @ products)).sum()
