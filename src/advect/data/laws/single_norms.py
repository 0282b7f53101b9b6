"""Nuclear norms ‖A_i B_jᵀ‖_* from products in float32, where an error bound allows it.

For K = A Bᵀ + E the norms differ by ⟨U Vᵀ, E⟩ to first order; 2 ‖E‖_F is counted on, and √z z/r ‖E‖_F
where z of r singular values vanish. ‖E‖_F is estimated with random vectors v, as ‖K v − A (Bᵀ v)‖² is
‖E‖_F² in the mean. Singular values are roots of the eigenvalues of K Kᵀ: with eigenvalues off by δ the
norm is off by at most Σ min(δ / s_i, √δ).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from advect._util.threads import side_by_side
from advect.data.laws.linalg import lengths, polar, rounding

Pair = tuple[int, int]

_PROBES = 4
_TRUSTED = 200.0  # times what products are off by: singular values whose directions are believed
_NONE = 1e-4  # of the length of a factor: directions that it has not
_NOISE = 4.0  # times a singular value's share of ‖E‖_F: what may be rounding alone
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

    def is_pulled(self, pair: Pair) -> bool:
        return self.pulled[pair[0]][pair[1]]

    @property
    def pairs(self) -> list[Pair]:
        return [(i, j) for i in range(len(self.a_sizes)) for j in self.columns(i)]


@dataclass(frozen=True, eq=False)
class SampleRows:
    """How rows of factors come from samples: row r is ``scale[r] (x[order[r]] − μ)`` with μ = Σ share x."""

    order: Tensor
    share: Tensor
    scale: Tensor


@dataclass(frozen=True, eq=False)
class SampleProducts:
    """x yᵀ of the samples (about any point) that the rows of two stacks of factors are made of."""

    products: Tensor
    left: SampleRows
    right: SampleRows

    def factors(
        self,
        rows: slice,
        columns: slice,
        row_sizes: Sequence[int],
        column_sizes: Sequence[int],
    ) -> Tensor:
        """[A_i …] [B_j …]ᵀ = scale (I − 1 shareᵀ) x yᵀ (I − share 1ᵀ) scale, for consecutive blocks."""
        left, right = ((side.share, side.scale) for side in (self.left, self.right))
        (share, scale), dtype = (part[rows] for part in left), self.products.dtype
        (other, onto) = (part[columns].to(dtype) for part in right)
        found = self.products[self.left.order[rows]].index_select(1, self.right.order[columns])
        for part, weight in zip(
            found.split(row_sizes), share.to(dtype).split(row_sizes), strict=True
        ):
            part -= weight @ part
        for part, weight in zip(
            found.split(column_sizes, 1), other.split(column_sizes), strict=True
        ):
            part -= (part @ weight)[:, None]
        return found.mul_(onto).mul_(scale.to(dtype)[:, None])


class SingleNorms:
    """Norms of the requested pairs for which float32 is enough.

    Polar factors of pairs that are expected to be pulled go to ``kept``, in float32; None without gradients.
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
            self.narrow = a.float(), b.float()
        self.starts = [[0], [0]]
        for starts, sizes in zip(self.starts, (request.a_sizes, request.b_sizes), strict=True):
            for size in sizes:
                starts.append(starts[-1] + size)
        generator = torch.Generator().manual_seed(0)
        vectors = torch.randn(len(b), _PROBES, generator=generator, dtype=b.dtype)
        self.vectors = vectors.to(b.device).split(request.b_sizes)
        images = [block.mT @ part for block, part in zip(self.b, self.vectors, strict=True)]
        # A Bᵀ v in float64, (n, k' probes)
        self.images = a @ torch.cat(images, dim=1)

    def norms(self) -> dict[Pair, Tensor]:
        """Those that are right enough."""
        sizes = self.request.a_sizes, self.request.b_sizes
        rows = [i for i in range(len(self.a)) if self.request.columns(i)]
        small = max(max(part, default=0) for part in sizes) <= _BATCHED
        parts = min(len(rows), torch.get_num_threads()) if small else len(rows)
        groups = [part.tolist() for part in torch.tensor(rows).tensor_split(parts)] if rows else []
        found = side_by_side(self._group, groups, rows=sum(sizes[1]))
        return {pair: norm for part in found for pair, norm in part.items()}

    def _group(self, rows: list[int]) -> dict[Pair, Tensor]:
        """Those of the pairs (i, j) of some i."""
        blocks, rounded = self._products(rows)
        heavy = {pair for pair in blocks if self.kept is not None and self.request.is_pulled(pair)}
        found = {pair: self._with_factor(*pair, blocks[pair], rounded[pair]) for pair in heavy}
        light = [pair for pair in blocks if pair not in heavy]
        found |= self._light({pair: blocks[pair] for pair in light}, [rounded[p] for p in light])
        return {pair: norm for pair, norm in found.items() if norm is not None}

    def _products(self, rows: list[int]) -> tuple[dict[Pair, Tensor], dict[Pair, Tensor]]:
        """A_i B_jᵀ from float32, as float64, and ‖E‖_F of each."""
        columns = sorted({j for i in rows for j in self.request.columns(i)})
        first, every = rows[0], list(range(columns[0], columns[-1] + 1))
        sizes = (
            [len(self.a[i]) for i in range(first, rows[-1] + 1)],
            [len(self.b[j]) for j in every],
        )
        (top, bottom), (start, end) = (
            (self.starts[side][ends[0]], self.starts[side][ends[-1] + 1])
            for side, ends in enumerate((rows, every))
        )
        if self.samples is None:
            made = self.narrow[0][top:bottom] @ self.narrow[1][start:end].mT
        else:
            made = self.samples.factors(slice(top, bottom), slice(start, end), *sizes)
        made = made.double()
        parts = [row.split(sizes[1], 1) for row in made.split(sizes[0])]
        rounded = self._rounding(made, slice(top, bottom), sizes, every)
        pairs = [(i, j) for i in rows for j in self.request.columns(i)]
        places = {(i, j): (i - first, j - every[0]) for i, j in pairs}
        return (
            {pair: parts[i][j] for pair, (i, j) in places.items()},
            {pair: rounded[place] for pair, place in places.items()},
        )

    def _rounding(
        self, made: Tensor, rows: slice, sizes: tuple[list[int], list[int]], every: list[int]
    ) -> Tensor:
        """‖E‖_F of the blocks of a product in float32."""
        images, squares = self.images[rows], []
        for j, part in zip(every, made.split(sizes[1], 1), strict=True):
            image = images[:, _PROBES * j : _PROBES * (j + 1)]
            off = torch.addmm(image, part, self.vectors[j], beta=-1)
            squares.append(off.square().sum(dim=1))
        each = torch.stack(squares, dim=1).split(sizes[0])
        return (torch.stack([part.sum(dim=0) for part in each]) / _PROBES).sqrt()

    def _enough(self, i: int, j: int, norm: Tensor, error: Tensor) -> bool:
        rtol, near = self.allowed
        return bool(2 * error <= rtol * (near[i, j] - 2 * norm))

    def _light(
        self, blocks: dict[Pair, Tensor], rounded: list[Tensor]
    ) -> dict[Pair, Tensor | None]:
        """Norms without polar factors; where float32 is not enough, float64 is tried."""
        if not blocks:
            return {}
        squares = [eigenvalues_of_squares(block) for block in blocks.values()]
        singular, counts = roots(squares)
        norms = singular.sum(dim=1)
        sizes = singular.new_tensor([sum(block.shape) for block in blocks.values()])
        rough = (squares_errors(singular, sizes[:, None]) * counts).sum(dim=1)
        off = norm_errors(singular, counts, torch.stack(rounded))
        rtol, near = self.allowed
        allowed = rtol * (near[tuple(zip(*blocks, strict=True))] - 2 * norms)
        enough, right = (2 * (off + rough) <= allowed).tolist(), (2 * off <= allowed).tolist()
        return {
            pair: norm if enough[at] else self._once_more(pair, blocks[pair] if right[at] else None)
            for at, (pair, norm) in enumerate(zip(blocks, norms, strict=True))
        }

    def _once_more(self, pair: Pair, product: Tensor | None) -> Tensor | None:
        """By singular values, where only squares are in the way; else in float64."""
        if product is not None:
            return torch.linalg.svdvals(product).sum()
        return self._in_double(*pair)

    def _in_double(self, i: int, j: int) -> Tensor | None:
        norm, rough = by_squares(self.a[i] @ self.b[j].mT)
        return norm if self._enough(i, j, norm, rough) else None

    def _with_factor(self, i: int, j: int, product: Tensor, rounded: Tensor) -> Tensor | None:
        assert self.kept is not None
        least = float(self.least[i, j])
        # directions of singular values hardly above what products are off by are not to be believed
        rough = _TRUSTED * float(rounded) / min(product.shape) ** 0.5
        factor, singular = polar(product, max(least, rough))
        error = norm_errors(singular, torch.ones_like(singular), rounded)
        lost = int((singular <= rough).sum())
        if lost == 1:  # samples about their mean have one without any length
            lost = not _missing(factor, self.a[i], self.b[j])
        if lost or not self._enough(i, j, singular.sum(), error):
            product, error = self.a[i] @ self.b[j].mT, torch.zeros_like(error)
            factor, singular = polar(product, least)
        self.kept[i, j], norm = factor.float(), singular.sum()
        error = error + squares_errors(singular, sum(product.shape)).sum()
        return norm if self._enough(i, j, norm, error) else None


def norm_errors(singular: Tensor, counts: Tensor, rounding: Tensor) -> Tensor:
    """Error bound of sums of singular values whose matrices are off by ``rounding`` in ‖·‖_F."""
    size = counts.sum(dim=-1).clamp_min(1)
    noise = _NOISE * rounding / size.sqrt()
    vanish = ((singular <= noise[..., None]) * counts).sum(dim=-1)
    return rounding * (vanish**1.5 / size).clamp_min(_PATTERN)


def _missing(factor: Tensor, a: Tensor, b: Tensor) -> bool:
    """Whether the one direction that a polar factor of A Bᵀ leaves out is missing in A (or B) too."""
    wide, own = (factor, a) if factor.shape[0] <= factor.shape[1] else (factor.mT, b)
    row = int(wide.square().sum(dim=1).argmin())
    direction = -(wide @ wide[row])
    direction[row] += 1
    length = torch.linalg.vector_norm(direction @ own) / torch.linalg.vector_norm(direction)
    return bool(length <= _NONE * torch.linalg.vector_norm(own))


def by_squares(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """‖K‖_* from the eigenvalues of the smaller Gram matrix, and how far it may be off."""
    singular = eigenvalues_of_squares(matrix).clamp_min(0).sqrt()
    return singular.sum(), squares_errors(singular, sum(matrix.shape)).sum()


def eigenvalues_of_squares(matrix: Tensor) -> Tensor:
    """Those of the smaller Gram matrix."""
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.mT
    return torch.linalg.eigvalsh(wide @ wide.mT)


def roots(squares: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Singular values of several matrices from their squares, one row each, and 1 where an entry counts."""
    counts = pad_sequence([torch.ones_like(part) for part in squares], batch_first=True)
    return pad_sequence(squares, batch_first=True).clamp_min(0).sqrt(), counts


def squares_errors(singular: Tensor, sizes: Tensor | int) -> Tensor:
    """Error bound of singular values from eigenvalues of a Gram matrix: 4 √size units of the trace."""
    kind = torch.finfo(singular.dtype)
    off = 4 * sizes**0.5 * kind.eps * singular.square().sum(dim=-1, keepdim=True)
    return torch.minimum(off / singular.clamp_min(kind.tiny), off.sqrt())
