"""Class means of which few samples are known, calibrated by how the classes of another dataset lie.
Beyond the paper.

    m_y  ~  N(c, t (B + a W)) ,        x̄_y | m_y  ~  N(m_y, t W / k_y)

    m̂_y  =  c + (B + a W) (B + a W + W / k_y)⁻¹ (x̄_y − c)

B is the covariance of the source's class means, W that of its samples within classes, k_y how many
samples a class has, c the middle of the few. Of a few samples' mean, what lies where classes differ is
kept, and what lies where samples of one class differ is mostly chance. How much more than in the source
the means may differ (a), and at which scale (t), are the numbers that make the means of the few
likeliest. Where a is a half or more, the few differ in other ways than the source's classes do, which
then say nothing about them, and the means stay.

In coordinates where W is the identity, B + a W is diagonal with the eigenvectors of B, so that a
Cholesky factor and as many solves as there are source classes are all it takes."""

from __future__ import annotations

import torch
from torch import Tensor

from advect.data.dataset import LabeledDataset
from advect.data.laws import group_shares

_FLOOR = 0.1  # of the mean variance, added to all of W: directions never seen to vary may
_ALIKE = 0.5  # the a from which classes do not lie as the source's do
_MORE = 10.0 ** torch.linspace(-3, 2, 41, dtype=torch.float64)  # of a


def class_means(data: LabeledDataset) -> Tensor:
    """Means of the labeled samples of each class by weight, (k, d), float64; 0 without samples."""
    shares = group_shares(data.y, data.weights, len(data.classes))
    means = shares.new_zeros(len(data.classes), data.dim)
    return means.index_add_(0, data.y, shares[:, None] * data.x.double())


def calibrated_means(source: LabeledDataset, few: LabeledDataset) -> Tensor:
    """The likeliest means of the classes of ``few``, (k, d) in float64, given its samples and how the
    classes of ``source`` lie. All samples are labeled.

    Classes without samples are at 0. With fewer than two classes on a side, no variation within the
    source's, or classes that lie otherwise, means are what they are.

    Example:
        Classes differ in the first direction, their samples in the second, which one sample does not
        know, so that most of it goes:

        >>> import torch, advect as ad
        >>> generator = torch.Generator().manual_seed(0)
        >>> y = torch.arange(600) % 6
        >>> noise = torch.randn(600, 2, generator=generator) * torch.tensor([0.1, 3.0])
        >>> source = ad.LabeledDataset(noise + torch.stack([10.0 * y, 0 * y], 1), y)
        >>> few = ad.LabeledDataset([[4.0, 5.0], [26.0, -4.0], [47.0, 0.5]], ["u", "v", "w"])
        >>> calibrated_means(source, few).round().abs().tolist()
        [[4.0, 2.0], [26.0, 1.0], [47.0, 0.0]]
    """
    means, counts = class_means(few), effective_counts(few)
    there = counts > 0
    own, lent = means[there], class_means(source)
    lent = lent[effective_counts(source) > 0].to(own.device)
    if len(own) < 2 or len(lent) < 2:
        return means
    residuals = source.x.double() - class_means(source)[source.y]
    shares = source.weights.double() / source.weights.sum()
    within = (residuals.mT * shares @ residuals).to(own.device)
    unit = within.diagonal().mean()
    if float(unit) <= 0:
        return means
    within.diagonal().add_(_FLOOR * unit)
    factor = torch.linalg.cholesky(within)

    def whitened(rows: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(factor, rows.mT, upper=False).mT

    centre = own.mean(dim=0)
    apart = whitened(own - centre)  # (k, d)
    between = whitened(lent - lent.mean(dim=0)) / (len(lent) - 1) ** 0.5
    _, singular, axes = torch.linalg.svd(between, full_matrices=False)
    along = apart @ axes.mT  # (k, r), in the directions in which the source's classes differ
    rest = (apart.square().sum(dim=1) - along.square().sum(dim=1)).clamp_min(0)
    chance = 1 / counts[there].to(own)
    more = _likeliest(along, rest, own.shape[1], singular.square(), chance)
    if float(more) >= _ALIKE:
        return means
    kept = (more / (more + chance))[:, None]  # of what lies elsewhere
    prior = singular.square() + more
    gains = prior / (prior + chance[:, None])
    calibrated = kept * apart + ((gains - kept) * along) @ axes
    means[there] = centre + calibrated @ factor.mT
    return means


def effective_counts(data: LabeledDataset) -> Tensor:
    """How many samples of equal weight a class has as much of, (Σw)² / Σw², (k,)."""
    weights, zeros = data.weights.double(), data.weights.new_zeros(len(data.classes)).double()
    total, squares = (zeros.index_add(0, data.y, part) for part in (weights, weights.square()))
    tiny = torch.finfo(torch.float64).tiny
    return torch.where(total > 0, total.square() / squares.clamp_min(tiny), total)


def _likeliest(along: Tensor, rest: Tensor, dim: int, variances: Tensor, chance: Tensor) -> Tensor:
    """The a of the greatest likelihood, on a grid, with the best t for each.

    The middle is estimated from the same means, which takes one degree of freedom of k.
    """
    more = _MORE.to(along)
    elsewhere = more[:, None] + chance  # (a, k): variances where the source's classes do not differ
    inside = elsewhere[:, :, None] + variances  # (a, k, r): and where they do
    scatter = (along.square() / inside).sum(dim=(1, 2)) + (rest / elsewhere).sum(dim=1)
    free = dim - along.shape[1]
    volume = inside.log().sum(dim=(1, 2)) + free * elsewhere.log().sum(dim=1)
    tiny = torch.finfo(scatter.dtype).tiny
    cost = volume / len(along) + dim * scatter.clamp_min(tiny).log()
    return more[int(cost.argmin())]
