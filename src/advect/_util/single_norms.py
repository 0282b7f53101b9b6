"""Nuclear norms ‖A_i B_jᵀ‖_* by products in float32, as far as a bound allows.

Two things are cheaper than singular values of products in float64:

- products in float32. With K = A Bᵀ + E the norms differ by ⟨U Vᵀ, E⟩, to first order: by ‖E‖_F/√r
  where E is rounding without a pattern, and by at most √p ‖E‖_F where its pattern has rank p. Twice
  ‖E‖_F is what is counted on: patterns of rank 4 that lie along U Vᵀ. Random vectors v tell ‖E‖_F,
  since ‖K v − A (Bᵀ v)‖² is ‖E‖_F² in the mean, for the price of thin products in float64. Where
  the rows of A and B are samples about the means of their classes, products of the samples that are
  there already will do;
- singular values as roots of the eigenvalues of K Kᵀ, in half the time. With eigenvalues off by at
  most δ, the norm is off by at most Σ min(δ / s_i, √δ).

All pairs of one i are made together, and those of small blocks are decomposed in one batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from advect._util.polar import lengths, polar, rounding
from advect._util.threads import side_by_side

Pair = tuple[int, int]

_PROBES = 4
_PATTERN = 2.0  # of ‖E‖_F: what a norm may be off by
_BATCHED = 96  # rows and columns up to which blocks are decomposed in one batch


@dataclass(frozen=True)
class Request:
    """What ``nuclear_norms`` was asked for, beside the factors."""

    a_sizes: tuple[int, ...]
    b_sizes: tuple[int, ...]
    symmetric: bool
    wanted: list[list[bool]]
    near: Tensor | None
    rtol: float
    pulled: list[list[bool]]

    @property
    def single(self) -> bool:
        """Whether products may be in float32 where that is certain to be enough."""
        return self.near is not None and self.rtol > 0

    def columns(self, i: int) -> list[int]:
        """The j whose pairs with i are to be decomposed."""
        first = i + 1 if self.symmetric else 0
        return [
            j
            for j in range(first, len(self.b_sizes))
            if self.wanted[i][j] and self.a_sizes[i] and self.b_sizes[j]
        ]

    @property
    def pairs(self) -> list[Pair]:
        return [(i, j) for i in range(len(self.a_sizes)) for j in self.columns(i)]


@dataclass(frozen=True, eq=False)
class SampleRows:
    """How the rows of factors come from samples: row r is ``scale[r] (x[order[r]] − μ)`` with the
    mean μ = Σ share x of the samples of its block.
    """

    order: Tensor
    share: Tensor
    scale: Tensor


@dataclass(frozen=True, eq=False)
class SampleProducts:
    """x yᵀ of the samples (about any point) that the rows of two stacks of factors are made of."""

    products: Tensor
    left: SampleRows
    right: SampleRows

    def factors(self, rows: slice, columns: slice, sizes: Sequence[int]) -> Tensor:
        """A_i [B_j …]ᵀ from one block of rows and consecutive blocks of columns of these sizes:

        scale (I − 1 shareᵀ) x yᵀ (I − share 1ᵀ) scale
        """
        dtype = self.products.dtype
        share, scale = (part[columns].to(dtype) for part in (self.right.share, self.right.scale))
        found = self.products[self.left.order[rows]].index_select(1, self.right.order[columns])
        found -= self.left.share[rows].to(dtype) @ found
        for part, weight in zip(found.split(sizes, 1), share.split(sizes), strict=True):
            part -= (part @ weight)[:, None]
        return found.mul_(scale).mul_(self.left.scale[rows].to(dtype)[:, None])


class SingleNorms:
    """Norms of all pairs that were asked for and for which float32 is enough; of those that are
    likely to be pulled from the decompositions of their polar factors, which are kept in float32.

    Args:
        a, b: stacked factors, float64.
        request: what is asked for, with a tolerance.
        samples: products of the samples that the rows come from, where they are known.
        kept: where polar factors go; None where no gradient can be asked for.
    """

    def __init__(
        self,
        a: Tensor,
        b: Tensor,
        request: Request,
        samples: SampleProducts | None,
        kept: dict[Pair, Tensor] | None,
    ) -> None:
        assert request.near is not None
        self.request, self.samples, self.kept = request, samples, kept
        self.allowed = request.rtol, request.near
        self.a, self.b = a.split(request.a_sizes), b.split(request.b_sizes)
        if kept is not None:
            self.least = rounding(lengths(self.a), lengths(self.b))
        if samples is None:
            self.narrow = a.float().split(request.a_sizes), b.float().split(request.b_sizes)
        self.starts = [[0], [0]]
        for starts, sizes in zip(self.starts, (request.a_sizes, request.b_sizes), strict=True):
            for size in sizes:
                starts.append(starts[-1] + size)
        generator = torch.Generator().manual_seed(0)
        vectors = torch.randn(len(b), _PROBES, generator=generator, dtype=b.dtype)
        self.vectors = vectors.to(b.device).split(request.b_sizes)
        images = [block.mT @ part for block, part in zip(self.b, self.vectors, strict=True)]
        # A Bᵀ v in float64, (n, k' probes)
        self.images = (a @ torch.cat(images, dim=1)).split(request.a_sizes)

    def norms(self) -> dict[Pair, Tensor]:
        """Those that are right enough."""
        rows = [i for i in range(len(self.a)) if self.request.columns(i)]
        found = side_by_side(self._row, rows, rows=self.starts[1][-1])
        return {pair: norm for part in found for pair, norm in part.items()}

    def _row(self, i: int) -> dict[Pair, Tensor]:
        """Those of the pairs (i, j)."""
        columns = self.request.columns(i)
        blocks = self._products(i, columns)
        pulled = self.kept is not None
        heavy = [j for j in columns if pulled and self.request.pulled[i][j]]
        light = [j for j in columns if not (pulled and self.request.pulled[i][j])]
        found = {(i, j): self._with_factor(i, j, blocks[j]) for j in heavy}
        sizes = [len(self.a[i]), *(len(self.b[j]) for j in light)]
        if len(light) > 1 and max(sizes) <= _BATCHED:
            found |= self._batch(i, light, [blocks[j] for j in light])
        else:
            found |= {(i, j): self._alone(i, j, blocks[j]) for j in light}
        return {pair: norm for pair, norm in found.items() if norm is not None}

    def _products(self, i: int, columns: list[int]) -> dict[int, Tensor]:
        """A_i B_jᵀ from float32, as float64."""
        if self.samples is None:
            others = torch.cat([self.narrow[1][j] for j in columns])
            made, sizes = self.narrow[0][i] @ others.mT, [len(self.b[j]) for j in columns]
            return dict(zip(columns, made.double().split(sizes, 1), strict=True))
        every = list(range(columns[0], columns[-1] + 1))
        rows = slice(self.starts[0][i], self.starts[0][i + 1])
        part = slice(self.starts[1][every[0]], self.starts[1][every[-1] + 1])
        sizes = [len(self.b[j]) for j in every]
        made = self.samples.factors(rows, part, sizes).double().split(sizes, 1)
        return {j: made[j - columns[0]] for j in columns}

    def _off(self, i: int, j: int, product: Tensor) -> Tensor:
        """How far the norm of a product in float32 may be off."""
        image = self.images[i][:, _PROBES * j : _PROBES * (j + 1)]
        error = torch.linalg.matrix_norm(product @ self.vectors[j] - image)
        return error * (_PATTERN / _PROBES**0.5)

    def _enough(self, i: int, j: int, norm: Tensor, error: Tensor) -> bool:
        rtol, near = self.allowed
        return bool(2 * error <= rtol * (near[i, j] - 2 * norm))

    def _alone(self, i: int, j: int, product: Tensor) -> Tensor | None:
        error, (norm, rough) = self._off(i, j, product), by_squares(product)
        if not self._enough(i, j, norm, error):
            product, error = self.a[i] @ self.b[j].mT, torch.zeros_like(error)
            norm, rough = by_squares(product)
        return norm if self._enough(i, j, norm, error + rough) else None

    def _with_factor(self, i: int, j: int, product: Tensor) -> Tensor | None:
        assert self.kept is not None
        least, error = float(self.least[i, j]), self._off(i, j, product)
        factor, singular = polar(product, least)
        if not self._enough(i, j, singular.sum(), error):
            product, error = self.a[i] @ self.b[j].mT, torch.zeros_like(error)
            factor, singular = polar(product, least)
        self.kept[i, j], norm = factor.float(), singular.sum()
        error = error + squares_errors(singular, sum(product.shape)).sum()
        return norm if self._enough(i, j, norm, error) else None

    def _batch(self, i: int, columns: list[int], blocks: list[Tensor]) -> dict[Pair, Tensor | None]:
        """Those of small blocks, padded to one size; where one is not right enough, it is tried
        alone.
        """
        widths = [block.shape[1] for block in blocks]
        together = blocks[0].new_zeros(len(blocks), len(self.a[i]), max(widths))
        for part, block, width in zip(together, blocks, widths, strict=True):
            part[:, :width] = block
        vectors = together.new_zeros(len(blocks), max(widths), _PROBES)
        for part, j, width in zip(vectors, columns, widths, strict=True):
            part[:width] = self.vectors[j]
        at = (torch.tensor(columns)[:, None] * _PROBES + torch.arange(_PROBES)).flatten()
        images = self.images[i][:, at.to(together.device)].reshape(len(self.a[i]), -1, _PROBES)
        ranks = together.new_tensor([min(len(self.a[i]), width) for width in widths])
        errors = torch.linalg.matrix_norm(together @ vectors - images.movedim(1, 0))
        norms, rough = by_squares(together, ranks)
        errors = errors * (_PATTERN / _PROBES**0.5) + rough
        rtol, near = self.allowed
        enough = (2 * errors <= rtol * (near[i, columns] - 2 * norms)).tolist()
        return {
            (i, j): norms[at] if enough[at] else self._alone(i, j, blocks[at])
            for at, j in enumerate(columns)
        }


def by_squares(matrix: Tensor, ranks: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """‖K‖_* from the eigenvalues of the smaller Gram matrix, and how far it may be off; of one
    matrix, or of many whose ranks are known not to be larger than these.
    """
    wide = matrix if matrix.shape[-2] <= matrix.shape[-1] else matrix.mT
    singular = torch.linalg.eigvalsh(wide @ wide.mT).clamp_min(0).sqrt()
    counts = torch.ones_like(singular, dtype=torch.bool)
    if ranks is not None:  # the others are zero, being padded
        counts = torch.arange(singular.shape[-1], 0, -1, device=ranks.device) <= ranks[:, None]
    errors = squares_errors(singular * counts, sum(wide.shape[-2:]))
    return (singular * counts).sum(dim=-1), (errors * counts).sum(dim=-1)


def squares_errors(singular: Tensor, sizes: int) -> Tensor:
    """How far singular values may be off that come from eigenvalues of a Gram matrix:
    rounding of products and eigenvalues is within so many units of the trace as there are rows and
    columns.
    """
    kind = torch.finfo(singular.dtype)
    off = sizes * kind.eps * singular.square().sum(dim=-1, keepdim=True)
    return torch.minimum(off / singular.clamp_min(kind.tiny), off.sqrt())
