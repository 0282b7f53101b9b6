"""The three transport problems of a distance: their costs within a memory limit, in the dtype that
the answer needs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from advect._util.memory import MemoryLimit, as_bytes
from advect.cost import GroundCost, PairCost
from advect.cost.rounding import cost_rounding, largest_cost, widened
from advect.data.dataset import LabeledDataset
from advect.ot import BlockedCost, Divergence, ExactOT, Solver
from advect.ot.certificate import Scale
from advect.ot.divergence import solve_divergence

_LARGE = 2**26  # bytes below which memory is not asked about
_WIDE = torch.float64
_APART = 1e-3  # of the largest feature: more than rounding of a mean in any dtype
_LOOSE = 0.1  # share of a value that a tolerance may leave open, as far as that is bounded

Costs = tuple[Tensor | BlockedCost, Tensor | BlockedCost, Tensor | BlockedCost]
Pairs = tuple[PairCost, PairCost, PairCost]


@dataclass(frozen=True, eq=False)
class Problem:
    """Costs between source and target, within the source, within the target: as matrices where they
    fit, else in blocks.
    """

    cost: GroundCost
    source: LabeledDataset
    target: LabeledDataset
    dtype: torch.dtype
    memory_limit: MemoryLimit
    pairs: Pairs
    costs: Costs

    @classmethod
    def of(
        cls,
        cost: GroundCost,
        source: LabeledDataset,
        target: LabeledDataset,
        solver: Solver,
        dtype: torch.dtype,
        memory_limit: MemoryLimit,
    ) -> Problem:
        in_blocks = getattr(
            solver, "in_blocks", False
        )  # near-linear solvers never look at whole matrices
        needed = _matrices(len(source), len(target), solver) * dtype.itemsize
        small = memory_limit is None and needed < _LARGE
        limit = as_bytes(memory_limit, source.x.device) if in_blocks or not small else needed
        if not in_blocks and needed <= limit:
            pairs = (
                cost.between(source, target),
                cost.between(source, source),
                cost.between(target, target),
            )
            cross, within_source, within_target = (pair.matrix(dtype) for pair in pairs)
        else:
            pairs = cost.between_all(source, target, limit)
            cross, within_source, within_target = (pair.blocked(dtype, limit) for pair in pairs)
        return cls(
            cost, source, target, dtype, memory_limit, pairs, (cross, within_source, within_target)
        )

    def solve(self, solver: Solver) -> Divergence:
        """The divergence; with costs in float64 at once where those at hand have not digits enough
        for a plan.
        """
        prepared = solver.prepare(self.costs[0], self.source.weights, self.target.weights)
        if self.dtype != _WIDE and not is_precise(prepared, self.pairs[0], self.costs[0]):
            return self._widened(solver).solve(solver)
        solved = solve_divergence(
            self.costs, self.source.weights, self.target.weights, solver=prepared
        )
        cross, source, target = (cost_rounding(pair, self.dtype) for pair in self.pairs)
        return replace(solved, cost_error=cross + (source + target) / 2)

    def refined(self, solver: Solver) -> Divergence:
        """The divergence to the last digits of float64, costs included, as far as the solver
        goes.
        """
        wide, refine = self._widened(solver), getattr(solver, "refined", None)
        return wide.solve(
            solver
            if refine is None
            else refine(wide.costs[0], self.source.weights, self.target.weights)
        )

    def _widened(self, solver: Solver) -> Problem:
        cost, source, target = widened(self.cost, self.source, self.target)
        return Problem.of(cost, source, target, solver, _WIDE, self.memory_limit)


def is_precise(solver: Solver, pair: PairCost, cost: Tensor | BlockedCost) -> bool:
    """Whether costs of this dtype have digits enough for what the solver, prepared for them, makes
    of them.
    """
    precise = getattr(solver, "precise", None)
    return precise is None or precise(
        (cost.shape[0], cost.shape[1]), largest_of(pair, cost), cost.dtype
    )


def rounding_error(solver: Solver, pair: PairCost, cost: Tensor | BlockedCost) -> float:
    """How far rounding alone can take the value of a problem from the truth, whatever the tolerance
    of the solver is.
    """
    epsilon = float(getattr(solver, "epsilon", 0.0))
    scale = Scale((cost.shape[0], cost.shape[1]), 0.0, largest_of(pair, cost), epsilon)
    return scale.value_rounding(cost.dtype) + cost_rounding(pair, cost.dtype)


def sharper(solver: Solver | None, left: float, value: float, largest: float) -> Solver | None:
    """The solver with a smaller tolerance where what its own leaves open could be a tenth of the
    value; None where it need not, or cannot, be sharper. The bound is from far above: what is
    really left open is a small part of it.
    """
    sharpened = getattr(solver, "sharpened", None)
    if sharpened is None or left <= _LOOSE * abs(value):
        return None
    return sharpened(min(0.1, _LOOSE / 4 * abs(value) / left), largest)


def largest_of(pair: PairCost, cost: Tensor | BlockedCost) -> float:
    """The largest cost, or a bound of it where looking would take a pass over blocks."""
    bound = largest_cost(pair) if isinstance(cost, BlockedCost) else None
    if bound is not None:
        return bound
    return max(
        map(
            abs,
            cost.extremes()
            if isinstance(cost, BlockedCost)
            else torch.stack(torch.aminmax(cost)).tolist(),
        )
    )


def _matrices(n: int, m: int, solver: Solver) -> int:
    """Entries of the matrices that a distance needs when all are formed: three costs, and what
    solves the largest.

    That is a kernel, and another one of twice the size if it has to go on in float64.
    """
    return n * m + n * n + m * m + 3 * (n * m if isinstance(solver, ExactOT) else max(n, m) ** 2)


def same_measure(a: LabeledDataset, b: LabeledDataset, *, labels: bool = True) -> bool:
    """Whether two datasets have the same samples with the same mass in the same classes, whatever
    their order and names.

    Without ``labels``, classes do not count.
    """
    if not labels:
        a, b = (
            data.replace(y=torch.zeros_like(data.y), law=None, law_index=None) for data in (a, b)
        )
    if a.dim != b.dim or a.law is not None or b.law is not None:
        return a is b
    (mean, size), (other, width) = (_middle(data) for data in (a, b))
    if bool(((mean - other).abs() > _APART * max(size, width)).any()):  # seen without sorting
        return False
    rows = (
        np.concatenate([data.x.detach().double().cpu().numpy() for data in (a, b)]) + 0.0
    )  # -0.0 is 0.0
    places = np.unique(
        np.ascontiguousarray(rows).view(f"V{rows.itemsize * rows.shape[1]}")[:, 0],
        return_inverse=True,
    )[1]
    sides = [_classes(data, part) for data, part in ((a, places[: len(a)]), (b, places[len(a) :]))]
    if len(sides[0]) != len(sides[1]):
        return False
    pairs = zip(*sides, strict=True)
    return all(
        np.array_equal(i, j) and np.allclose(p, q, rtol=1e-12, atol=0) for (i, p), (j, q) in pairs
    )


def _middle(data: LabeledDataset) -> tuple[Tensor, float]:
    """The mean of the features, in their dtype, and how large they are."""
    x = data.x.detach()
    return (data.weights.to(x) @ x).double().cpu(), float(x.abs().max())


def _classes(data: LabeledDataset, places: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each class that has samples, where they are and with how much mass, in an order that
    names do not change.
    """
    parts, weights = [], data.weights.double().cpu().numpy()
    for code in data.y.unique().tolist():
        own = (data.y == code).cpu().numpy() & (weights > 0)
        at, inverse = np.unique(places[own], return_inverse=True)
        parts.append((at, np.bincount(inverse, weights[own], minlength=len(at))))
    return sorted(
        (part for part in parts if len(part[0])),
        key=lambda part: (part[0].tolist(), part[1].tolist()),
    )
