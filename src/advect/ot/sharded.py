"""A cost and its kernel with the rows on several ranks.

Every rank has all vectors and its own rows: K v is gathered (n numbers), Kᵀ u is summed over ranks (m
numbers). The iterations run on every rank with the same vectors and take the same decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from advect._util import InputError, refuse_if
from advect.ot.cost import Cost
from advect.ot.kernel import Kernel, check_extremes
from advect.ot.plan import Index, Maybe, Plan
from advect.ot.ranks import Group


class ShardedCost(Cost):
    """This rank's rows of a cost (n, m). Every rank calls the solver with its rows and all weights.

    Args:
        own: the cost between this rank's rows, ``group.rows(n)``, and all columns.
        n: rows of the whole.
        group: the ranks.
    """

    def __init__(self, own: Cost, n: int, group: Group) -> None:
        super().__init__((n, own.shape[1]), own.dtype, own.device, own.room)
        self.own, self.group, self.reports = own, group, group.rank == 0

    def rows(self, index: Index, columns: Maybe = None, out: Maybe = None) -> Tensor:
        """The rows at ``index`` among those of this rank."""
        return self.own.rows(index, columns, out)

    def select(self, rows: Tensor, columns: Tensor) -> Cost:
        return self._alone("parts of a cost, and weights of zero,").select(rows, columns)

    def dense(self) -> Tensor:
        return self._alone("a solver that looks at the whole matrix").dense()

    def _alone(self, what: str) -> Cost:
        refuse_if(
            self.group.size > 1,
            f"{what} need all rows on one rank",
            f"rows on {self.group.size} ranks",
            "Use ad.Sinkhorn() on samples that have weight, or one process.",
        )
        return self.own

    def mean(self, a: Tensor, b: Tensor) -> float:
        part = self.own.mean(a[self.group.rows(len(a))], b)
        return float(self.group.sum(torch.tensor([part], dtype=torch.float64, device=a.device)))

    def extremes(self) -> tuple[float, float]:
        """Extremes of the whole; an error on every rank if one rank's cost is not finite."""
        if self._extremes is None:
            try:
                least, most = self.own.extremes()
            except InputError:
                least, most = -torch.inf, torch.inf
            most, least = self.group.largest(most), -self.group.largest(-least)
            self._extremes = check_extremes(torch.tensor([[least, most]], dtype=torch.float64))
        return self._extremes

    def kernel(self, dtype: torch.dtype | None = None, room: int | None = None) -> ShardedKernel:
        extremes = self.extremes()  # first, so that an error on one rank is raised on all ranks
        return ShardedKernel(self.own.kernel(dtype, room), self, extremes)

    def release(self) -> None:
        self.own.release()


class ShardedKernel(Kernel):
    """The kernel of a problem from the ranks' kernels of their rows; vectors are whole everywhere."""

    def __init__(self, own: Kernel, cost: ShardedCost, extremes: tuple[float, float]) -> None:
        self.own, self.group, self.extremes = own, cost.group, extremes
        self.shape, self.dtype, self.cost_dtype = cost.shape, own.dtype, own.cost_dtype
        self.n, self.costly, self.recomputes = cost.shape[0], own.costly, own.recomputes
        self.mine = cost.group.rows(self.n)

    def fill(self, f: Tensor, g: Tensor, epsilon: float, *, last: bool = True) -> None:
        self.own.fill(f[self.mine], g, epsilon, last=last)
        # ranks with one more row may lack memory
        self.costly = self.group.largest(float(self.own.costly)) > 0

    def times(self, v: Tensor) -> Tensor:
        return self.group.gather(self.own.times(v), self.n)

    def transposed(self, u: Tensor) -> Tensor:
        return self.group.sum(self.own.transposed(u[self.mine]))

    def sweep(self, v: Tensor, between: Callable[[Tensor, slice], Tensor]) -> tuple[Tensor, Tensor]:
        first, count = self.mine.start, self.mine.stop - self.mine.start

        def shifted(product: Tensor, block: slice) -> Tensor:
            start, stop, _ = block.indices(count)
            return between(product, slice(first + start, first + stop))

        product, total = self.own.sweep(v, shifted)
        whole = product.new_zeros(self.n)
        whole[self.mine] = product
        # one message instead of two
        product, total = self.group.sum(torch.cat([whole, total])).split(self.shape)
        return product, total

    def pieces(self) -> Iterator[tuple[slice, Tensor]]:
        """All rows on every rank; used rarely, when there are few columns."""
        mine = torch.cat([part.clone() for _, part in self.own.pieces()])
        yield slice(None), self.group.gather(mine, self.n)

    def softmins(
        self, g: Tensor, a: Tensor, b: Tensor, epsilon: float, damping: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        f, part = self.own.softmins(g, a[self.mine], b, epsilon, damping)
        # log Σ over ranks of exp(logs): the largest exponent first, so that nothing overflows
        logs = -part / (damping * epsilon)  # of this rank's share of the column sums
        top = self.group.max(logs)
        sums = self.group.sum(torch.exp(logs - top))
        return self.group.gather(f, self.n), -damping * epsilon * (top + sums.log())

    def plan(self, left: Tensor, right: Tensor) -> Plan:
        """The plan at this rank's rows."""
        return self.own.plan(left[self.mine], right)

    def release(self) -> None:
        self.own.release()
