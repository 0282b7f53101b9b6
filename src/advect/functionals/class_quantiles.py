"""Classes as quantile vectors, in which the sliced Wasserstein distance is Euclidean.

Along a direction θ a class is a law on a line, whose quantile function is kept as its means over L
equal parts of (0, 1). With P directions, and q the part of these numbers that is around the mean,

    SW₂²(α, β) = d E_θ W₂²(θ·α, θ·β) ≈ ‖mean(α) − mean(β)‖² + d / (P L) ‖q(α) − q(β)‖² .

The factor d undoes what a projection takes away on average: SW₂ is in the units of the features, and
between a law and the same moved by v it is ‖v‖. What means differ by is d E_θ (θ·(m − m'))² and
needs no directions: only shapes are noisy. Means over parts, not values at levels: all of a sample's mass
is in them, and they are a projection, so that levels make distances smaller, never larger. Where
the samples of a class weigh the same and their number divides L, nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from advect._util.checks import check_count
from advect._util.linalg import mass_centre, squared_gaps
from advect.data.dataset import LabeledDataset
from advect.errors import InputError

_ENTRIES = 2_000_000  # numbers in an array of a group of directions
_Squares = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Groups:
    """The classes of a dataset that have mass.

    Attributes:
        codes: which they are.  shares: their masses, (k,), summing to one.
        rows: the samples of each.  masses: what each of them has of the mass of its class.
    """

    codes: list[int]
    shares: Tensor
    rows: list[Tensor]
    masses: list[Tensor]

    @classmethod
    def of(cls, data: LabeledDataset, who: str) -> Groups:
        """Those of a dataset whose samples all have a label."""
        data.require_classes(who)
        data.require_labels(who)
        data.require_hard(who)
        order = data.y.argsort(stable=True)
        order = order[data.weights[order] > 0]  # what has no mass may be anywhere
        counts = torch.bincount(data.y[order], minlength=len(data.classes)).tolist()
        rows = [part for part in order.split(counts) if len(part)]
        masses = [data.weights[part] for part in rows]
        shares = torch.stack([part.sum() for part in masses])
        return cls(
            [code for code, count in enumerate(counts) if count],
            shares / shares.sum(),
            rows,
            [part / part.sum() for part in masses],
        )

    def quantiles(self, features: Tensor, n_levels: int) -> Tensor:
        """The shapes of the classes, (k, p · L) float64, from features along directions (p, n)."""
        vectors = []
        for rows, masses in zip(self.rows, self.masses, strict=True):
            found = quantile_means(features[:, rows], masses, n_levels)
            vectors.append((found - found.mean(dim=1, keepdim=True)).flatten())
        return torch.stack(vectors)

    def means(self, points: Tensor) -> Tensor:
        """The means of the classes, (k, d)."""
        rows, masses = torch.cat(self.rows), torch.cat(self.masses)
        each = torch.cat([part.new_full((len(part),), k) for k, part in enumerate(self.rows)])
        weighted = masses.to(points)[:, None] * points[rows]
        return points.new_zeros(len(self.rows), points.shape[1]).index_add(0, each, weighted)


def drawn_directions(
    dim: int,
    n: int,
    generator: torch.Generator | None,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """Directions of length 1, (d, n), uniformly distributed, and orthogonal to one another as far as
    there is room: means over them have less noise.

    The same numbers are drawn for all dtypes, of which the directions are.

    Example:
        >>> import torch
        >>> theta = drawn_directions(5, 3, torch.Generator().manual_seed(0))
        >>> torch.allclose(theta.T @ theta, torch.eye(3, dtype=torch.float64))
        True
    """
    bases = -(-check_count("n_projections", n) // dim)
    drawn = torch.randn(bases, dim, min(dim, n), generator=generator).to(dtype)
    basis, triangle = torch.linalg.qr(drawn)
    basis = basis * triangle.diagonal(dim1=1, dim2=2).sign()[:, None]
    return basis.mT.flatten(0, 1)[:n].T.contiguous()


def class_squares(
    a: LabeledDataset, b: LabeledDataset, groups: tuple[Groups, Groups], theta: Tensor, levels: int
) -> _Squares:
    """SW₂² along these directions between the classes of a and of a, of a and b, of b and b;
    float64, differentiable in the features.

    A group of directions at a time; if there are several, they are computed again when differentiated.
    """
    if a.dim != b.dim:
        raise InputError(
            "both datasets must live in one feature space",
            f"dimensions {a.dim} and {b.dim}",
            "Use ad.harmonize first.",
        )
    # In the wider dtype of the two, as all that follows.
    centre = (mass_centre(a.x, a.weights) + mass_centre(b.x, b.weights)) / 2
    points = (a.x - centre, b.x - centre)

    def squares(start: int) -> _Squares:
        along = theta[:, start : start + size].to(centre)
        first, second = (
            own.quantiles((part @ along).T, levels)
            for own, part in zip(groups, points, strict=True)
        )
        return _gaps(first, second)

    numbers = max(len(a) + len(b), levels * sum(len(own.codes) for own in groups))
    size = max(1, _ENTRIES // numbers)
    starts = range(0, theta.shape[1], size)
    again = len(starts) > 1 and torch.is_grad_enabled() and (a.x.requires_grad or b.x.requires_grad)
    found = [_later(squares, start) if again else squares(start) for start in starts]
    scale = a.dim / (theta.shape[1] * levels)
    between_means = _gaps(*(own.means(part) for own, part in zip(groups, points, strict=True)))
    aa, ab, bb = (
        apart + scale * torch.stack(parts).sum(dim=0)
        for apart, parts in zip(between_means, zip(*found, strict=True), strict=True)
    )
    return aa, ab, bb


def _gaps(a: Tensor, b: Tensor) -> _Squares:
    """Squared distances of rows, in three calls: where a and b are equal, all three are the same to
    the last bit.
    """
    return squared_gaps(a, a), squared_gaps(a, b), squared_gaps(b, b)


def _later(function: Callable[[int], _Squares], start: int) -> _Squares:
    """The function now, its insides again when a gradient is asked for."""
    found = checkpoint(function, start, use_reentrant=False, preserve_rng_state=False)
    return cast(_Squares, found)


def quantile_means(values: Tensor, masses: Tensor, n_levels: int) -> Tensor:
    """Means of quantile functions over ``n_levels`` equal parts of (0, 1); differentiable in the
    values.

    Args:
        values: (p, n), each row a law on a line.
        masses: (n,) positive, summing to one.
        n_levels: how many parts.

    Returns:
        (p, n_levels) float64.

    Example:
        >>> import torch
        >>> values = torch.tensor([[3.0, 0.0, 1.0, 2.0]], requires_grad=True)
        >>> found = quantile_means(values, torch.full((4,), 0.25, dtype=torch.float64), 2)
        >>> found.tolist(), torch.autograd.grad(found.sum(), values)[0].tolist()
        ([[0.5, 2.5]], [[0.5, 0.5, 0.5, 0.5]])
    """
    n = values.shape[1]
    values, order = values.sort(dim=1)
    even = bool((masses - 1 / n).abs().max() < 1e-12 / n)
    if even and n % n_levels == 0:
        return values.double().unflatten(1, (n_levels, n // n_levels)).mean(dim=2)
    if even and n_levels % n == 0:
        return values.double().repeat_interleave(n_levels // n, dim=1)
    levels = torch.arange(1, n_levels, dtype=torch.float64, device=values.device) / n_levels
    sorted_masses = (masses if even else masses[order]).expand(len(values), n)
    below = sorted_masses.cumsum(dim=1)  # mass up to each point
    at = torch.searchsorted(below.contiguous(), levels.expand(len(values), -1).contiguous())
    at = at.clamp_max(n - 1)
    values = values.double()
    centre = (sorted_masses * values).sum(dim=1, keepdim=True)
    values = values - centre  # sums of what is far away lose digits
    sums = (sorted_masses * values).cumsum(dim=1)  # ∫ of the quantile function up to each point
    inside = sums.gather(1, at) - (below.gather(1, at) - levels) * values.gather(1, at)
    edges = torch.cat([torch.zeros_like(centre), inside, sums[:, -1:]], dim=1)
    return n_levels * edges.diff(dim=1) + centre
