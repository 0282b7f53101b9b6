"""Lines that the data choose: the principal axes of two datasets together, and random ones for the rest.

For any orthonormal directions u_i of the features, and ψ_ij of the points along each of them,

    Σ_ij W₂²(ψ_ij·p(·; u_i) # A, ψ_ij·p(·; u_i) # B)  ≤  OTDD²(A, B),

because squared distances are sums over orthonormal directions, of label laws at least so. Uniform
directions give the mean of the left side over all bases. In many dimensions their projections are all alike; along
the principal axes they are as different as they get, so that the sum is larger, and it is no random one."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from advect._util.linalg import mass_centre, principal_axes
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.functionals.projections import Lines, uniform_lines
from advect.functionals.slicing import Pair, controlled

ROWS = 4096  # of each dataset, of which axes are found
FEW, MORE, TIMES = 4, 8, 6  # where few axes of many are wanted: so many more, so often iterated
LEAST = 2  # bases ψ at each axis, which say how much they matter; more where more is at stake


def principal_energy(
    pair: Pair, n: int, generator: torch.Generator | None
) -> tuple[float, float, int]:
    """½ Σ W₂² along the first axes, plus that along random directions orthogonal to them in units
    of all of these: with the standard error, and how many lines it took (at most n).
    """
    parts = 1 if pair.labels is None else 1 + pair.labels.parts
    least = 1 if parts == 1 else LEAST  # of one number nothing can be turned
    room = 1 if parts == 1 else 2 * parts * LEAST  # lines for an axis, on average
    dim = pair.a.dim
    if n < 2 * room:
        raise InputError(
            f"n_projections must be at least {2 * room} for principal directions",
            n,
            "Raise it, or use directions='uniform'.",
        )
    whole = room * dim <= n
    count = dim if whole else n // 2 // room
    bases = count if parts == 1 else (n if whole else n // 2) // parts
    axes, spread = leading_axes((pair.a, pair.b), count)
    turns = _shared(bases, least, spread)
    psi = _turned(bases, parts, generator)
    theta = axes.repeat_interleave(turns * parts, dim=1)
    squares = pair.squares(Lines(theta, psi)) / 2
    sums = squares.reshape(bases, parts).sum(dim=1)  # of each basis
    axis = torch.arange(count).repeat_interleave(turns).to(sums.device)
    mean, variances = _by_axis(sums, axis, count)
    energy, variance = float(mean.sum()), float(variances.sum())
    used = len(squares)
    if not whole:
        lines = uniform_lines(dim, n - used, pair.labels, generator)
        rest = lines.theta - axes @ (axes.T @ lines.theta)
        lines = Lines(rest / torch.linalg.vector_norm(rest, dim=0), lines.psi)
        scale = parts * (dim - count) / 2
        control, expected = pair.of_means(lines, without=axes)
        values = controlled(scale * pair.squares(lines), scale * control, scale * expected)
        energy, used = energy + float(values.mean()), n
        variance += float(values.var()) / len(values)
    return energy, math.sqrt(variance), used


def leading_axes(datasets: tuple[LabeledDataset, ...], count: int) -> tuple[Tensor, Tensor]:
    """The first principal axes of all datasets together, (d, count) float64 and orthonormal, and
    how much they vary along them, (count,).

    Example:
        >>> import advect as ad
        >>> flat = ad.LabeledDataset([[0.0, 0.0, 0.0], [0.0, 4.0, 0.0], [1.0, 0.0, 0.0]], ["a"] * 3)
        >>> leading_axes((flat,), 3)[0].abs().argmax(dim=0).tolist()
        [1, 0, 2]
    """
    centre = torch.stack([mass_centre(data.x, data.weights) for data in datasets]).mean(dim=0)
    found = []
    for data in datasets:
        step = -(-len(data) // ROWS)
        x, mass = data.x.detach()[::step], data.weights[::step]
        found.append(mass.sqrt()[:, None] * (x - centre).double())
    rows = torch.cat(found)
    if FEW * (count + MORE) > min(rows.shape):
        fill = rows.new_zeros(count, rows.shape[1])  # so many axes, also of fewer samples
        singular, axes = principal_axes([torch.cat([rows, fill])])
        return axes[:count].T.cpu(), singular[:count].cpu()
    generator = torch.Generator().manual_seed(0)
    basis = torch.randn(rows.shape[1], count + MORE, generator=generator, dtype=torch.float64)
    basis = basis.to(rows)
    for _ in range(TIMES):
        basis = torch.linalg.qr(rows.T @ (rows @ torch.linalg.qr(basis)[0]))[0]
    singular, inside = principal_axes([rows @ basis])
    return (basis @ inside[:count].T).cpu(), singular[:count].cpu()


def _shared(n: int, least: int, spread: Tensor) -> Tensor:
    """n as a sum of whole numbers for axes, at least ``least`` each, more with the square of the
    spread.

    >>> _shared(20, 2, torch.tensor([2.0, 1.0, 0.0])).tolist()
    [13, 5, 2]
    """
    share = spread.square()
    share = share / share.sum() if float(share.sum()) > 0 else torch.ones_like(share) / len(share)
    free = n - least * len(share)
    below = (free * share.cumsum(dim=0)).round().long()
    below[-1] = free
    return least + below.diff(prepend=below.new_zeros(1))


def _by_axis(sums: Tensor, axis: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The means over bases of each axis, and the squared standard errors of these; 0 where one
    basis is all there are.
    """
    zeros = sums.new_zeros(count)
    turns = zeros.index_add(0, axis, torch.ones_like(sums))
    mean = zeros.index_add(0, axis, sums) / turns
    squares = zeros.index_add(0, axis, (sums - mean[axis]).square())
    return mean, squares / (turns - 1).clamp_min(1) / turns


def _turned(n: int, parts: int, generator: torch.Generator | None) -> Tensor:
    """n uniform orthonormal bases as columns, (parts, n · parts)."""
    drawn = torch.randn(n, parts, parts, generator=generator, dtype=torch.float64)
    basis, triangle = torch.linalg.qr(drawn)
    basis = basis * triangle.diagonal(dim1=1, dim2=2).sign()[:, None, :]
    return basis.permute(1, 0, 2).reshape(parts, -1)
