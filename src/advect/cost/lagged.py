"""Label distances along a flow without decomposing every pair of classes at every step.

With class factors A_i, B_j and the polar factor Q of an earlier A_i B_jᵀ, ⟨Q, A_i B_jᵀ⟩ is a lower bound of the nuclear norm
in W₂² = ‖μ − μ'‖² + tr S + tr S' − 2 ‖A_i B_jᵀ‖_*, exact up to second order in what has moved since. The entries of
A_i B_jᵀ are those of the product x yᵀ that the cost needs anyway, scaled by the weights, and Q ignores the class means:
the bound costs a pass over that product, and its gradient in x is Q joined to the transport plan. Each pair of classes has
its own time of refresh: the error is measured there, where the exact norm is known, and says how far the classes may move
until the next, so that it stays within a tolerance. A few close pairs need most of the work; distant ones hardly any.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from advect._threads import side_by_side
from advect.data import LabeledDataset
from advect.gaussians import class_moments, class_shares
from advect.linalg import polar_factor, squared_distances

_GROWTH = 4.0  # of the way between two refreshes, at the most
_CLOSE = 0.1  # of the distance without the norm: below, what is left of it is rounded too coarsely in float32
_CLOCK = ("features", "labels", "weights", "moved", "limit", "curvature", "close")


_Factors = dict[tuple[int, int], Tensor]


@dataclass(frozen=True)
class PolarFactors:
    """The polar factors of pairs of classes, of i < j only when symmetric: the gradient of their nuclear norms."""

    of_pairs: _Factors
    symmetric: bool

    def joined(self, plan: Tensor, class_plan: Tensor, source: LabeledDataset, target: LabeledDataset, weight: float) -> Tensor:
        """The plan with the pull of the nuclear norms added: P + weight · class_plan[y_i, y_j] Q_ij, in place."""
        rows_of, columns_of = _members(source), _members(target)
        scale = (weight * class_plan).tolist()
        for i, rows in enumerate(rows_of):
            strip = plan[rows]
            for j, columns in enumerate(columns_of):
                if (factor := self._factor(i, j)) is not None:
                    strip.index_add_(1, columns, factor.to(plan.dtype), alpha=scale[i][j])
            plan[rows] = strip
        return plan

    def _factor(self, i: int, j: int) -> Tensor | None:
        mirrored = self.symmetric and j < i and (j, i) in self.of_pairs
        return self.of_pairs[j, i].T if mirrored else self.of_pairs.get((i, j))


class LaggedBures:
    """Full Gaussian label distances between a moving dataset and another (or itself), refreshed when needed.

    Args:
        tolerance: relative error allowed in a label distance W₂².
        symmetric: whether the second dataset is the first.

    Attributes:
        factors: the polar factors of pairs of classes (n_i, m_j), scaled by the weights; of i < j only when symmetric. A pair
            that moves too fast for its factor to be of use has none.
        features, labels, weights: those of the last call; with other labels or weights it starts anew.
        moved: (k, k') how far each pair has moved since its refresh (root mean square, along its path).
        limit: how far it may go before the next, whatever else; 0 until its error has been measured.
        curvature: what the error of its norm was at the last refresh, over the square of the way.
        close: whether it was found to be close at the last refresh.
        refreshed: how many pairs were decomposed in the last call.
    """

    def __init__(self, tolerance: float, *, symmetric: bool) -> None:
        self.tolerance, self.symmetric = tolerance, symmetric
        self.factors: _Factors = {}  # replaced, never changed: snapshots keep the old ones
        self._latest: _Factors = {}  # of the last call, where a gradient may ask for them, until they are taken
        self.features = self.labels = self.weights = self.moved = self.limit = self.curvature = self.close = torch.empty(0)
        self.refreshed = 0

    def state(self) -> dict[str, Tensor]:
        if not self.features.numel():
            return {}
        factors = {f"factor.{i}.{j}": factor for (i, j), factor in self.factors.items()}
        return {**factors, **{name: getattr(self, name) for name in _CLOCK}}

    def load_state(self, state: dict[str, Tensor]) -> None:
        for name, value in state.items():
            if name in _CLOCK:
                setattr(self, name, value)
            else:
                i, j = name.split(".")[1:]
                self.factors[int(i), int(j)] = value

    def distances(self, source: LabeledDataset, target: LabeledDataset, product: Tensor) -> Tensor:
        """W₂² between classes, (k, k'), from the centred product x yᵀ (n, m); differentiable but for the nuclear norms."""
        means, traces = self._moments(source)
        other_means, other_traces = (means, traces) if self.symmetric else self._moments(target)
        smooth = squared_distances(means, other_means) + traces[:, None] + other_traces
        norms = self._norms(source, target, product, smooth.detach())
        distances = smooth - 2 * norms
        distances = distances - distances.detach().clamp_max(
            0
        )  # the gradient stays: ``PolarFactors`` add its other half anyway
        if self.symmetric:
            distances = distances * (1 - torch.eye(len(means), dtype=distances.dtype, device=distances.device))
        return distances.to(source.x.dtype)

    @staticmethod
    def _moments(data: LabeledDataset) -> tuple[Tensor, Tensor]:
        data.require_labels("the estimate of label laws")
        return class_moments(data.law_features, data.y, data.weights, len(data.classes))

    def take_factors(self) -> PolarFactors:
        """The polar factors of all pairs of classes at the last call, for its gradient; not kept here any longer."""
        latest, self._latest = self._latest, {}
        return PolarFactors(latest, self.symmetric)

    def _norms(self, source: LabeledDataset, target: LabeledDataset, product: Tensor, smooth: Tensor) -> Tensor:
        x, way, bound = source.x.detach(), None, torch.zeros_like(smooth)
        self._latest = {}
        same = torch.equal(self.labels, source.y) and torch.equal(self.weights, source.weights)
        if same and self.features.shape == x.shape and self.moved.shape == smooth.shape:
            way = self._way(x, source)
            self.moved, bound = self.moved + way, self._bound(source, target, product)
        else:  # another dataset starts anew
            self.factors = {}
            self.moved, self.limit, self.curvature = (torch.zeros_like(smooth) for _ in range(3))
            self.close = torch.zeros_like(smooth, dtype=torch.bool)
        self.features, self.labels, self.weights = x, source.y, source.weights
        held = torch.zeros_like(smooth, dtype=torch.bool)
        for i, j in self.factors:
            held[i, j] = True
        held = held | held.T if self.symmetric else held
        # The largest curvature for all: a pair whose classes start to turn is seen in time by what others have met.
        gap = self.curvature.max() * self.moved.square()
        due = ~held | (self.moved > self.limit) | (gap > self._allowed(smooth - 2 * bound, smooth))
        norms, factors = self._decompose(source, target, product, due, smooth)
        exact = torch.where(due, norms, bound)
        self.close = torch.where(due, smooth - 2 * exact < _CLOSE * smooth, self.close)
        if source.law_features.requires_grad:
            self._latest = self.factors | factors
        self._schedule(due, held, exact - bound, self._allowed(smooth - 2 * exact, smooth), way, factors)
        self.refreshed = len(factors)
        return exact

    def _allowed(self, distances: Tensor, smooth: Tensor) -> Tensor:
        """Error of a norm that is a quarter of the tolerance in the distance, which has it twice."""
        return self.tolerance / 8 * distances.clamp_min(1e-6 * smooth)

    def _way(self, x: Tensor, source: LabeledDataset) -> Tensor:
        """How far each pair of classes has moved since the last call, root mean square."""
        squares = (x - self.features).square().sum(dim=1).double()
        counts = torch.bincount(source.y, minlength=len(source.classes)).clamp_min(1)
        ways = (squares.new_zeros(len(source.classes)).index_add_(0, source.y, squares) / counts).sqrt()
        return ways[:, None] + (ways if self.symmetric else torch.zeros_like(self.moved[:1]))

    def _schedule(
        self, due: Tensor, held: Tensor, errors: Tensor, allowed: Tensor, way: Tensor | None, factors: _Factors
    ) -> None:
        """Second order: errors grow with the square of the way. Keeps the factors that will be of use."""
        known = due & held & (self.moved > 0)
        self.curvature = torch.where(known, errors.clamp_min(0) / self.moved.square(), self.curvature)
        stale = due & (~held | (errors > allowed / 16))  # the factor of the others is good for longer
        if way is None:  # nothing is known yet: measure at the nearest class of each
            nearest = allowed.fill_diagonal_(math.inf).argmin(dim=1) if self.symmetric else allowed.argmin(dim=1)
            useful = torch.zeros_like(due).scatter_(1, nearest[:, None], True)
            useful = useful | useful.T if self.symmetric else useful
        else:
            useful = self.curvature.max() * way.square() <= allowed
        self.limit = torch.where(known, _GROWTH * self.moved, torch.where(due, 0.0, self.limit))
        self.moved = torch.where(stale, 0.0, self.moved)
        kept = {pair: factor for pair, factor in self.factors.items() if not bool(stale[pair])}
        self.factors = kept | {pair: factor for pair, factor in factors.items() if bool((stale & useful)[pair])}

    def _bound(self, source: LabeledDataset, target: LabeledDataset, product: Tensor) -> Tensor:
        """⟨Q, A_i B_jᵀ⟩ for all pairs of classes."""
        bound = torch.zeros(self.moved.shape, dtype=torch.float64, device=product.device)
        columns_of = _members(target)
        for i, rows in enumerate(_members(source)):
            strip = product[rows]
            for j, columns in enumerate(columns_of):
                if (i, j) in self.factors:
                    bound[i, j] = torch.linalg.vecdot(self.factors[i, j], strip[:, columns]).double().sum()
        return bound + bound.T if self.symmetric else bound

    def _decompose(
        self, source: LabeledDataset, target: LabeledDataset, product: Tensor, due: Tensor, smooth: Tensor
    ) -> tuple[Tensor, _Factors]:
        """Nuclear norms of the pairs of classes that are due, and their polar factors.

        Where classes are close, W₂² is a small difference of large numbers, and the rounding of the product shows: those are
        multiplied again in float64, at once where they were close at their last refresh.
        """
        shares_a, scales_a = _shares(source)
        shares_b, scales_b = (shares_a, scales_a) if self.symmetric else _shares(target)
        norms = torch.zeros(due.shape, dtype=torch.float64, device=product.device)
        factors: _Factors = {}
        rows_of, columns_of = _members(source), _members(target)
        due = due.triu(diagonal=1) if self.symmetric else due
        pairs = [(i, j) for i, j in due.nonzero().tolist() if len(rows_of[i]) and len(columns_of[j])]
        close = self.close.tolist()
        for i, j in pairs:  # made here: memory that a thread of its own takes is not given back to the others
            factors[i, j] = product.new_empty(len(rows_of[i]), len(columns_of[j]))

        def decomposed(pair: tuple[int, int]) -> Tensor:
            rows, columns = rows_of[pair[0]], columns_of[pair[1]]
            found = None
            if not close[pair[0]][pair[1]]:
                found = polarised(product[rows][:, columns].double(), rows, columns, 4 * torch.finfo(product.dtype).eps)
            if found is None or smooth[pair] - 2 * found[1] < _CLOSE * smooth[pair]:
                block = source.x.detach()[rows].double() @ target.x.detach()[columns].double().T
                found = polarised(block, rows, columns, 0.0)
            polar, norm = found
            factors[pair].copy_(scales_a[rows][:, None] * polar * scales_b[columns])
            return norm

        def polarised(block: Tensor, rows: Tensor, columns: Tensor, rounding: float) -> tuple[Tensor, Tensor]:
            # what is below the rounding of the product is no direction to carry over
            noise = torch.linalg.matrix_norm(block * scales_a[rows][:, None] * scales_b[columns]) * rounding
            block = block - shares_a[rows] @ block
            block = (block - (block @ shares_b[columns])[:, None]) * scales_a[rows][:, None] * scales_b[columns]
            polar = polar_factor(block, float(noise))
            return polar, (polar * block).sum()

        for pair, norm in zip(pairs, side_by_side(decomposed, pairs, rows=len(source) // len(rows_of)), strict=True):
            norms[pair] = norm
        return norms + norms.T if self.symmetric else norms, factors


def _members(data: LabeledDataset) -> list[Tensor]:
    return [(data.y == code).nonzero()[:, 0] for code in range(len(data.classes))]


def _shares(data: LabeledDataset) -> tuple[Tensor, Tensor]:
    return class_shares(data.x, data.y, data.weights, len(data.classes))
