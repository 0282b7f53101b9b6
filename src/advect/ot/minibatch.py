"""Transport between random parts of two samples, averaged (Fatras et al. 2020): time and memory
linear in n.

    S_MB(a, b) = Σ_k a(I_k) S(a|I_k, b|J_k) / Σ_k a(I_k) ,     |I_k|, |J_k| ≤ size

where I_1, I_2, … cut a random order of the samples into parts of nearly one size, so that each
sample is used before any is used twice; likewise J. The plan is the same average of the plans of
parts: with the mass of a part as its weight, a sample moves by T(x) − x of its own part, however
the mass is spread."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from advect._util.checks import check_count
from advect._util.memory import check_room
from advect.errors import InputError
from advect.ot.blocks import BlockedCost
from advect.ot.divergence import Divergence, solve_divergence
from advect.ot.sinkhorn import Relative, Sinkhorn
from advect.ot.solution import (
    Cost,
    Factor,
    Potentials,
    Solution,
    Solver,
    check_problem,
    check_solver,
)


@dataclass(frozen=True, eq=False)
class BatchDivergence(Divergence):
    """A divergence that is a mean over batches.

    Attributes:
        values: the divergence of each batch.  masses: what each drew of the source's mass, its
            weight in the mean.
        shares: how much each point adds to the mean.
        whole: whether each batch is all samples of both sides.

    ``error`` is that of the solves: how far the mean is from that of these batches. See
    ``standard_error`` for the draws."""

    values: tuple[float, ...] = ()
    masses: tuple[float, ...] = ()
    shares: tuple[Tensor, Tensor] | None = None
    whole: bool = False

    @cached_property
    def contributions(self) -> tuple[Tensor, Tensor]:
        assert self.shares is not None
        return self.shares

    @property
    def sampled(self) -> bool:
        return not self.whole

    @property
    def standard_error(self) -> float:
        """Of the mean over batches: what more batches would lessen. The bias of small batches is
        not in it.

        NaN where there is one batch to tell by, and 0 where that is all there is.
        """
        if self.whole:
            return 0.0
        if len(self.values) < 2:
            return math.nan
        values, masses = (
            torch.tensor(part, dtype=torch.float64) for part in (self.values, self.masses)
        )
        shares = masses / masses.sum()
        gaps = shares * (values - shares @ values)
        return float(gaps.square().sum().sqrt() * math.sqrt(len(values) / (len(values) - 1)))

    @property
    def drawn(self) -> float:
        """The share of the source's mass that the batches drew, 1 where they drew all or more."""
        return min(1.0, math.fsum(self.masses))


@dataclass(frozen=True)
class MiniBatch:
    """The mean divergence between random parts of ``size`` samples, by another solver.

    It is not the distance of the whole samples. The bias is upward (fewer samples are further
    apart, on average) and shrinks as ``size`` grows; between a dataset and itself it does not
    vanish. ``distance.divergence.standard_error`` tells the noise, which more ``batches`` reduce,
    and not the bias, which they do not: compare two sizes to see it. Label laws are those of the
    whole datasets.

    In a flow, samples are drawn anew at every step; those that are not drawn (fewer ``batches``
    than use every sample) stay for that step, so the flow takes as many more steps.

    Args:
        solver: for each part; a relative epsilon refers to the whole problem.
        size: samples in a part of either side, at most.
        batches: how many; by default as many as use every sample of the larger side once.
        seed: of the draws.

    Example:
        >>> import torch, advect as ad
        >>> generator = torch.Generator().manual_seed(0)
        >>> source = ad.datasets.gaussians(400, generator=generator)
        >>> target = ad.datasets.gaussians(400, shift=(9.0, 0.0), generator=generator)
        >>> whole, parts = (ad.otdd(source, target, solver=s).value for s in (ad.Sinkhorn(), ad.MiniBatch(size=100)))
        >>> abs(parts / whole - 1) < 0.05
        True
    """

    solver: Solver = field(default_factory=Sinkhorn)
    size: int = 1000
    batches: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_solver(self.solver)
        if getattr(self.solver, "in_blocks", False):
            raise InputError(
                "the solver of parts must look at whole matrices",
                repr(self.solver),
                "Pass Sinkhorn or ExactOT.",
            )
        check_count("size", self.size)
        check_count("seed", self.seed, least=0)
        if self.batches is not None:
            check_count("batches", self.batches)

    @property
    def in_blocks(self) -> bool:
        """Costs are wanted in blocks: only parts of them are looked at."""
        return True

    @property
    def dtype(self) -> torch.dtype | None:
        return self.solver.dtype

    @property
    def epsilon(self) -> float | Relative:
        """That of the solver; 0 for exact transport."""
        return getattr(self.solver, "epsilon", 0.0)

    def with_epsilon(self, epsilon: float) -> MiniBatch:
        """The same with another regularisation of its solver."""
        return (
            replace(self, solver=self.solver.with_epsilon(epsilon))
            if isinstance(self.solver, Sinkhorn)
            else self
        )

    def at(self, step: int) -> MiniBatch:
        """The same with the draws of another step of a flow."""
        return replace(self, seed=self.seed + 7919 * step)

    def prepare(self, cost: Cost, a: Tensor, b: Tensor) -> MiniBatch:
        """With a relative epsilon of the solver made a number for the whole problem."""
        return replace(self, solver=self.solver.prepare(cost, a, b))

    def precise(self, shape: tuple[int, int], largest: float, dtype: torch.dtype) -> bool:
        """Whether costs up to ``largest`` in this dtype have digits enough for the solver of
        parts.
        """
        precise = getattr(self.solver, "precise", None)
        return precise is None or precise(
            (min(self.size, shape[0]), min(self.size, shape[1])), largest, dtype
        )

    def certify(
        self, cost: Cost, a: Tensor, b: Tensor, potentials: Potentials, slack: float = 0.0
    ) -> Solution | None:
        """Parts do not have the potentials of the whole: always None."""
        return None

    def solve(
        self,
        cost: Cost,
        a: Tensor | None = None,
        b: Tensor | None = None,
        init: Potentials | None = None,
    ) -> Solution:
        """The mean over parts; ``init`` is accepted for uniformity."""
        cost, a, b = check_problem(cost, a, b)
        prepared = self.prepare(cost, a, b)
        parts = _Average(a, b)
        for rows, columns in self._draws(a, b):
            solved = prepared.solver.solve(_part(cost, rows, columns), a[rows], b[columns])
            solved.release()
            parts.add(solved, rows, columns, float(a[rows].sum()))
        return parts.solution()

    def solve_self(
        self, cost: Cost, a: Tensor | None = None, init: Tensor | None = None
    ) -> Solution:
        """Parts with themselves, as in the divergence."""
        cost, a, _ = check_problem(cost, a, None)
        prepared = self.prepare(cost, a, a)
        parts = _Average(a, a)
        for rows, _ in self._draws(a, a):
            solved = prepared.solver.solve_self(_part(cost, rows, rows), a[rows])
            solved.release()
            parts.add(solved, rows, rows, float(a[rows].sum()))
        return parts.solution()

    def divergence(
        self, cross: Cost, source: Cost, target: Cost, a: Tensor, b: Tensor
    ) -> BatchDivergence:
        """The mean of the divergences of parts, each with its own self-problems."""
        totals = _Average(a, b), _Average(a, a), _Average(b, b)
        values, masses, shares = [], [], (torch.zeros_like(a), torch.zeros_like(b))
        for rows, columns in self._draws(a, b):
            solved = solve_divergence(
                (
                    _part(cross, rows, columns),
                    _part(source, rows, rows),
                    _part(target, columns, columns),
                ),
                a[rows] / a[rows].sum(),
                b[columns] / b[columns].sum(),
                solver=self.solver,
            )
            masses.append(float(a[rows].sum()))
            solutions = (solved.cross, solved.source, solved.target)
            for total, part, sides in zip(
                totals, solutions, ((rows, columns), (rows, rows), (columns, columns)), strict=True
            ):
                total.add(part, *sides, masses[-1])
            for share, part, side in zip(
                shares, solved.contributions, (rows, columns), strict=True
            ):
                share.index_add_(0, side, part, alpha=masses[-1])
            values.append(solved.signed)
        for cost in (cross, source, target):
            if isinstance(cost, BlockedCost):
                cost.release()
        mean = (shares[0] / math.fsum(masses), shares[1] / math.fsum(masses))
        whole, within_source, within_target = (total.solution() for total in totals)
        return BatchDivergence(
            whole,
            within_source,
            within_target,
            (a, b),
            values=tuple(values),
            masses=tuple(masses),
            shares=mean,
            whole=all(int((weights > 0).sum()) <= self.size for weights in (a, b)),
        )

    def _draws(self, a: Tensor, b: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Positions of each part among the samples that have mass."""
        generator = torch.Generator().manual_seed(self.seed)
        sides = [(weights > 0).nonzero()[:, 0] for weights in (a, b)]
        count = self.batches or max(-(-len(side) // self.size) for side in sides)
        yield from zip(*(_parts(side, self.size, count, generator) for side in sides), strict=True)


def _parts(positions: Tensor, size: int, count: int, generator: torch.Generator) -> list[Tensor]:
    parts: list[Tensor] = []
    while len(parts) < count:
        order = torch.randperm(len(positions), generator=generator).to(positions.device)
        parts.extend(
            positions[order].tensor_split(-(-len(positions) // size))
        )  # sizes that differ by one at the most
    return parts[:count]


def _part(cost: Cost, rows: Tensor, columns: Tensor) -> Cost:
    return cost.select(rows, columns) if isinstance(cost, BlockedCost) else cost[rows][:, columns]


class _Average:
    """Solutions of parts gathered into one of the whole: value, plan and marginals are means over
    parts by their mass.
    """

    def __init__(self, a: Tensor, b: Tensor) -> None:
        self.a, self.b = a, b
        self.parts: list[tuple[Tensor, Tensor, Solution]] = []
        self.masses: list[float] = []

    def add(self, solution: Solution, rows: Tensor, columns: Tensor, mass: float) -> None:
        self.parts.append((rows, columns, solution))
        self.masses.append(mass)

    def solution(self) -> Solution:
        shares = [mass / math.fsum(self.masses) for mass in self.masses]
        sides: list[tuple[Tensor, Tensor]] = []
        for weights, side in ((self.a, 0), (self.b, 1)):
            potential, mass = torch.zeros_like(weights), torch.zeros_like(weights)
            for (rows, columns, solved), share in zip(self.parts, shares, strict=True):
                index = columns if side else rows
                own = weights[index] / weights[index].sum() * share
                potential.index_add_(0, index, own * solved.potentials[side])
                mass.index_add_(0, index, own)
            sides.append(
                (torch.where(weights > 0, potential / weights.clamp_min(1e-300), 0.0), mass)
            )
        (f, row_mass), (g, column_mass) = sides
        plan = ScatteredPlan(self.parts, shares, (len(self.a), len(self.b)))
        return Solution(
            value=math.fsum(
                share * part.value for share, (*_, part) in zip(shares, self.parts, strict=True)
            ),
            potentials=(f, g),  # ⟨a, f⟩ + ⟨b, g⟩ is the value
            epsilon=self.parts[0][2].epsilon,
            converged=all(part.converged for *_, part in self.parts),
            n_iter=sum(part.n_iter for *_, part in self.parts),
            marginal_error=float(
                (row_mass - self.a).abs().sum() + (column_mass - self.b).abs().sum()
            )
            + max(part.marginal_error for *_, part in self.parts),
            make_plan=plan.dense,
            operator=plan,
            value_error=math.fsum(
                share * part.value_error
                for share, (*_, part) in zip(shares, self.parts, strict=True)
            ),
        )


class ScatteredPlan:
    """The mean of plans between parts, each with its share, as products."""

    def __init__(
        self,
        parts: list[tuple[Tensor, Tensor, Solution]],
        shares: list[float],
        shape: tuple[int, int],
        transposed: bool = False,
    ) -> None:
        self.parts, self.shares, self.shape, self.transposed = parts, shares, shape, transposed

    def __matmul__(self, v: Tensor) -> Tensor:
        out = v.new_zeros(self.shape[0], *v.shape[1:])
        for (rows, columns, solution), share in zip(self.parts, self.shares, strict=True):
            plan = solution.make_plan(None) if solution.operator is None else solution.operator
            rows, columns, factor = (
                (columns, rows, plan.T) if self.transposed else (rows, columns, plan)
            )
            out.index_add_(0, rows, _times(factor, v[columns]).to(v.dtype), alpha=share)
        return out

    @property
    def T(self) -> ScatteredPlan:  # as tensors have it
        return ScatteredPlan(
            self.parts, self.shares, (self.shape[1], self.shape[0]), not self.transposed
        )

    def pieces(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """(rows, columns, their share of the plan) for each part."""
        for (rows, columns, solution), share in zip(self.parts, self.shares, strict=True):
            plan = share * solution.make_plan(None)
            yield (columns, rows, plan.T) if self.transposed else (rows, columns, plan)

    def dense(self, out: Tensor | None = None) -> Tensor:
        """The plan as a matrix."""
        size = 4 * self.shape[0] * self.shape[1]
        check_room(
            "the plan", size, "Use products with it (solution.coupling @ v), or class_coupling."
        )
        for rows, columns, part in self.pieces():
            out = part.new_zeros(self.shape) if out is None else out
            out.index_put_((rows[:, None], columns[None, :]), part.to(out.dtype), accumulate=True)
        assert out is not None
        return out

    def release(self) -> None:
        """Nothing is kept but potentials."""


def _times(factor: Tensor | Factor, v: Tensor) -> Tensor:
    return factor.to(v.dtype) @ v if isinstance(factor, Tensor) else factor @ v
