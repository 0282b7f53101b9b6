"""What every kernel promises: products and sums that agree with the matrix exp((f ⊕ g − C)/ε)."""

from __future__ import annotations

from collections.abc import Callable

import torch

from advect.ot.blocks import BlockedCost, DenseCost
from advect.ot.cost import Cost
from advect.ot.kernel import Kernel
from advect.ot.log_sums import ColumnSums, softmin
from advect.testing.problems import require, small_pair


def check_kernel(make: Callable[[Cost], Kernel], *, rtol: float = 1e-9) -> None:
    """Try a kernel of one's own, or a ``Stream`` by ``lambda cost: ad.ot.StreamedKernel(cost, yours)``.

    Args:
        make: the kernel of a cost, which has ``points`` and labels.
        rtol: how far products may be from those of the matrix, in float64.

    Raises:
        AssertionError: says which promise is broken.

    Example:
        >>> import advect as ad
        >>> ad.testing.check_kernel(lambda cost: cost.kernel())
        >>> ad.testing.check_kernel(lambda cost: ad.ot.StreamedKernel(cost, ad.ot.TorchStream(rows=5)))
    """
    from advect.cost.ground import GroundCost
    from advect.cost.labels import MeansOnly, NoLabels

    source, target = small_pair()
    for label in (NoLabels(), MeansOnly()):
        pair = GroundCost(label=label).between(source, target)
        _check(make, pair.blocked(limit=2**20), pair.matrix(), source.weights, target.weights, rtol)


def _check(
    make: Callable[[Cost], Kernel],
    cost: BlockedCost,
    matrix: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    rtol: float,
) -> None:
    generator, epsilon = torch.Generator().manual_seed(2), 0.7
    f, g, v, u = (
        torch.randn(size, generator=generator, dtype=torch.float64)
        for size in (len(a), len(b), len(b), len(a))
    )
    kernel = make(cost)
    require(tuple(kernel.shape) == tuple(matrix.shape), "a kernel has the shape of the cost")
    largest = DenseCost(matrix).extremes()[1]
    require(abs(kernel.most() - largest) <= rtol * largest, "most() must be the largest cost")
    kernel.fill(f, g, epsilon)
    whole = torch.exp((f[:, None] + g - matrix) / epsilon)
    size = float((whole @ v.abs()).max() + (whole.T @ u.abs()).max())

    def agree(found: torch.Tensor, wanted: torch.Tensor, promise: str) -> None:
        off = float((found.double() - wanted).abs().max())
        require(off <= rtol * size, promise, f"off by {off:.1e} of {size:.1e}")

    agree(kernel.times(v.to(kernel.dtype)), whole @ v, "times must be K v, signs and all")
    agree(kernel.transposed(u.to(kernel.dtype)), whole.T @ u, "transposed must be Kᵀ u")
    product, total = kernel.sweep(v.to(kernel.dtype), lambda part, rows: part * u[rows].to(part))
    agree(product, whole @ v, "sweep must return K v")
    wanted = whole.T @ (u * (whole @ v))
    off = float((total.double() - wanted).abs().max()) / float(wanted.abs().max())
    require(off <= rtol, "sweep must return Kᵀ of what is made of K v", off)
    for rows, part in kernel.pieces():
        agree(part @ v.to(part), whole[rows] @ v, "pieces must be rows of K")
    out = torch.empty_like(matrix)
    wanted_f = softmin(matrix, g, b, epsilon, out)
    sums = ColumnSums(len(b), matrix.device)
    sums.add(matrix, wanted_f, a, epsilon, out)
    found = make(cost).softmins(g, a, b, epsilon)
    for name, got, right in zip("fg", found, (wanted_f, sums.softmin(epsilon)), strict=True):
        off = float((got - right).abs().max())
        require(off <= rtol * largest, f"softmins must return {name} = T(·)", off)
    kernel.release()
    agree(kernel.times(v.to(kernel.dtype)), whole @ v, "products must work after release()")
