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
MOST = 1024  # features, up to which all axes are; beyond, the first ones by iteration
TURNS = 2  # of the basis ψ at each axis: two say how much it matters


def principal_energy(
    pair: Pair, n: int, generator: torch.Generator | None
) -> tuple[float, float, int]:
    """½ Σ W₂² along the first axes, plus that along random directions orthogonal to them in units
    of all of these: with the standard error, and how many lines it took (at most n).
    """
    parts = 1 if pair.labels is None else 1 + pair.labels.parts
    turns = 1 if parts == 1 else TURNS  # of one number nothing can be turned
    dim = pair.a.dim
    if n < 2 * parts * turns:
        raise InputError(
            f"n_projections must be at least {2 * parts * turns} for principal directions",
            n,
            "Raise it, or use directions='uniform'.",
        )
    whole = parts * turns * dim <= n
    count = dim if whole else n // (2 * parts * turns)
    if whole and parts > 1:
        turns = n // (parts * dim)
    axes = leading_axes((pair.a, pair.b), count)
    psi = _turned(count * turns, parts, generator)
    theta = axes.repeat_interleave(turns * parts, dim=1)
    squares = pair.squares(Lines(theta, psi)) / 2
    sums = squares.reshape(count, turns, parts).sum(dim=2)  # of each axis and basis
    energy = float(sums.mean(dim=1).sum())
    variance = float(sums.var(dim=1).sum()) / turns if turns > 1 else 0.0
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


def leading_axes(datasets: tuple[LabeledDataset, ...], count: int) -> Tensor:
    """The first principal axes of all datasets together, (d, count) float64 and orthonormal.

    Example:
        >>> import advect as ad
        >>> flat = ad.LabeledDataset([[0.0, 0.0, 0.0], [0.0, 4.0, 0.0], [1.0, 0.0, 0.0]], ["a"] * 3)
        >>> leading_axes((flat,), 3).abs().argmax(dim=0).tolist()
        [1, 0, 2]
    """
    centre = torch.stack([mass_centre(data.x, data.weights) for data in datasets]).mean(dim=0)
    found = []
    for data in datasets:
        step = -(-len(data) // ROWS)
        x, mass = data.x.detach()[::step], data.weights[::step]
        found.append(mass.sqrt()[:, None] * (x - centre).double())
    rows = torch.cat(found)
    if min(rows.shape) <= MOST:
        fill = rows.new_zeros(count, rows.shape[1])  # so many axes, also of fewer samples
        return principal_axes([torch.cat([rows, fill])])[1][:count].T
    generator = torch.Generator().manual_seed(0)
    basis = torch.randn(rows.shape[1], count + 8, generator=generator, dtype=torch.float64).to(rows)
    for _ in range(6):
        basis = torch.linalg.qr(rows.T @ (rows @ torch.linalg.qr(basis)[0]))[0]
    inside = principal_axes([rows @ basis])[1]
    return basis @ inside[:count].T


def _turned(n: int, parts: int, generator: torch.Generator | None) -> Tensor:
    """n uniform orthonormal bases as columns, (parts, n · parts)."""
    drawn = torch.randn(n, parts, parts, generator=generator, dtype=torch.float64)
    basis, triangle = torch.linalg.qr(drawn)
    basis = basis * triangle.diagonal(dim1=1, dim2=2).sign()[:, None, :]
    return basis.permute(1, 0, 2).reshape(parts, -1)
