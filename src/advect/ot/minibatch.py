"""Transport between random parts of two samples, averaged (Fatras et al. 2020): linear in n.

    S_MB(a, b) = Σ_k a(I_k) S(a|I_k, b|J_k) / Σ_k a(I_k) ,     |I_k|, |J_k| ≤ size

I_1, I_2, … split a random order of the samples into parts of nearly one size, so that each sample is
used before any is used twice; likewise J. The plan is the same average of the plans of the parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor

from advect._util import check_count, refuse_if
from advect.ot.cost import Cost
from advect.ot.plan import ScatteredPlan
from advect.ot.sinkhorn import Sinkhorn
from advect.ot.solver import (
    SIDES,
    AnyCost,
    Divergence,
    Keep,
    Mass,
    Solution,
    Solver,
    Start,
    check_problem,
    check_solver,
)


@dataclass(frozen=True, eq=False)
class BatchDivergence(Divergence):
    """A divergence that is a mean over batches. ``error`` is that of the solves, not of the draws.

    Attributes:
        values: the divergence of each batch.  masses: the mass of each, its weight in the mean.
        shares: how much each point adds to the mean.
    """

    values: tuple[float, ...] = ()
    masses: tuple[float, ...] = ()
    shares: tuple[Tensor, Tensor] | None = None

    @cached_property
    def contributions(self) -> tuple[Tensor, Tensor]:
        assert self.shares is not None
        return self.shares

    @property
    def standard_error(self) -> float:
        """Standard error over batches, without the bias of small ones; NaN for a single batch."""
        if not self.sampled:
            return 0.0
        if len(self.values) < 2:
            return math.nan
        values, masses = (
            torch.tensor(part, dtype=torch.float64) for part in (self.values, self.masses)
        )
        shares = masses / masses.sum()
        gaps = shares * (values - shares @ values)
        return float(gaps.square().sum().sqrt() * math.sqrt(len(values) / (len(values) - 1)))


@dataclass(frozen=True)
class MiniBatch(Solver):
    """The mean divergence between random batches of ``size`` samples, by another solver.

    Use it for many samples: time and memory are linear in n. The value is biased upward, less so for
    a larger ``size``; between a dataset and itself it does not vanish. More ``batches`` reduce the
    noise (``distance.divergence.standard_error``) but not the bias. Label laws are those of the whole
    datasets. In a flow, batches are drawn again at every step, and samples that are not drawn stay.

    Args:
        solver: for each batch; a relative epsilon refers to the whole problem.
        size: samples of either side in a batch, at most.
        batches: how many; by default enough to use every sample of the larger side once.
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

    stochastic = True
    solver: Solver = field(default_factory=Sinkhorn)
    size: int = 1000
    batches: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "solver", check_solver(self.solver))
        refuse_if(
            self.solver.stochastic,
            "the solver of batches must use whole matrices",
            repr(self.solver),
            "Pass Sinkhorn or ExactOT.",
        )
        check_count("size", self.size)
        check_count("seed", self.seed, least=0)
        if self.batches is not None:
            check_count("batches", self.batches)

    @property
    def dtype(self) -> torch.dtype | None:
        return self.solver.dtype

    @property
    def epsilon(self) -> Any:
        return self.solver.epsilon

    @property
    def reach(self) -> float | None:
        return self.solver.reach

    def continued(self, epsilon: float | None, tol: float | None, step: int) -> Self:
        solver = self.solver.continued(epsilon, tol, step)
        return replace(self, solver=solver, seed=self.seed + 7919 * step)

    def prepare(self, cost: AnyCost, a: Tensor, b: Tensor) -> Self:
        return replace(self, solver=self.solver.prepare(cost, a, b))

    def solve(self, cost: AnyCost, a: Mass = None, b: Mass = None, init: Start = None) -> Solution:
        """The mean over batches; ``init`` is ignored."""
        cost, a, b = check_problem(cost, a, b)
        solver, parts = self.solver.prepare(cost, a, b), []
        for rows, columns in self._draws(a, b):
            solved = solver.solve(cost.select(rows, columns), a[rows], b[columns])
            parts.append((float(a[rows].sum()), rows, columns, solved.released()))
        return _averaged(a, b, parts)

    def solve_self(self, cost: AnyCost, a: Mass = None, init: Tensor | None = None) -> Solution:
        """Batches with themselves, as in the divergence."""
        cost, a, _ = check_problem(cost, a, None)
        solver, parts = self.solver.prepare(cost, a, a), []
        for rows, _ in self._draws(a, a):
            solved = solver.solve_self(cost.select(rows, rows), a[rows])
            parts.append((float(a[rows].sum()), rows, rows, solved.released()))
        return _averaged(a, a, parts)

    def divergence(
        self,
        make: Callable[[str], Cost],
        a: Tensor,
        b: Tensor,
        *,
        warm: dict[str, Tensor] | None = None,
        target: Solution | None = None,
        keep: Keep | None = None,
    ) -> BatchDivergence:
        """The mean of the divergences of batches, each with its own self-problems, from a cold start."""
        costs = {side: make(side) for side in SIDES}
        solved: dict[str, list[_Part]] = {side: [] for side in SIDES}
        values, masses, shares = [], [], (torch.zeros_like(a), torch.zeros_like(b))
        for rows, columns in self._draws(a, b):
            places = ((rows, columns), (rows, rows), (columns, columns))
            parts = {s: costs[s].select(*at) for s, at in zip(SIDES, places, strict=True)}
            own = (a[rows] / a[rows].sum(), b[columns] / b[columns].sum())
            found = self.solver.divergence(parts.__getitem__, *own)
            masses.append(float(a[rows].sum()))
            for side, part, at in zip(SIDES, found.solutions, places, strict=True):
                solved[side].append((masses[-1], *at, part))
            for share, part, at in zip(shares, found.contributions, (rows, columns), strict=True):
                share.index_add_(0, at, part, alpha=masses[-1])
            values.append(found.signed)
        for cost in costs.values():
            cost.release()
        keep = keep or (lambda side, solution: solution.released())
        weights = {"cross": (a, b), "source": (a, a), "target": (b, b)}
        return BatchDivergence(
            *(keep(side, _averaged(*weights[side], solved[side])) for side in SIDES),
            weights=(a, b),
            values=tuple(values),
            masses=tuple(masses),
            drawn=min(1.0, math.fsum(masses)),
            shares=(shares[0] / math.fsum(masses), shares[1] / math.fsum(masses)),
            sampled=any(int((weights > 0).sum()) > self.size for weights in (a, b)),
        )

    def _draws(self, a: Tensor, b: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Positions of each batch among the samples that have mass."""
        generator = torch.Generator().manual_seed(self.seed)
        sides = [(weights > 0).nonzero()[:, 0] for weights in (a, b)]
        count = self.batches or max(-(-len(side) // self.size) for side in sides)
        yield from zip(*(_parts(side, self.size, count, generator) for side in sides), strict=True)


def _parts(positions: Tensor, size: int, count: int, generator: torch.Generator) -> list[Tensor]:
    parts: list[Tensor] = []
    while len(parts) < count:
        order = torch.randperm(len(positions), generator=generator).to(positions.device)
        # sizes that differ by at most one
        parts.extend(positions[order].tensor_split(-(-len(positions) // size)))
    return parts[:count]


_Part = tuple[float, Tensor, Tensor, Solution]  # mass, rows and columns of a batch


def _averaged(a: Tensor, b: Tensor, parts: list[_Part]) -> Solution:
    """Solutions of batches as one: value, plan and marginals are means weighted by mass."""
    # A plan of the whole problem: the mean of the batches' plans, weighted by the mass they drew.
    total = math.fsum(mass for mass, *_ in parts)
    parts = [(mass / total, rows, columns, part) for mass, rows, columns, part in parts]
    f, row_mass = _spread(a, [(share, at, part.potentials[0]) for share, at, _, part in parts])
    g, column_mass = _spread(b, [(share, at, part.potentials[1]) for share, _, at, part in parts])
    off = float((row_mass - a).abs().sum() + (column_mass - b).abs().sum())
    plans = [(share, rows, columns, part.coupling) for share, rows, columns, part in parts]
    return Solution(
        value=math.fsum(share * part.value for share, *_, part in parts),
        potentials=(f, g),  # ⟨a, f⟩ + ⟨b, g⟩ is the value
        epsilon=parts[0][3].epsilon,
        converged=all(part.converged for *_, part in parts),
        n_iter=sum(part.n_iter for *_, part in parts),
        marginal_error=off + max(part.marginal_error for *_, part in parts),
        coupling=ScatteredPlan(plans, (len(a), len(b))),
        value_error=math.fsum(share * part.value_error for share, *_, part in parts),
        reach=parts[0][3].reach,
        mass=math.fsum(share * part.mass for share, *_, part in parts),
    )


def _spread(weights: Tensor, parts: list[tuple[float, Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Potentials of batches for all points, and the mass that the batches drew of each point."""
    potential, mass = torch.zeros_like(weights), torch.zeros_like(weights)
    for share, at, own in parts:
        drawn = weights[at] / weights[at].sum() * share
        potential.index_add_(0, at, drawn * own)
        mass.index_add_(0, at, drawn)
    return torch.where(weights > 0, potential / weights.clamp_min(1e-300), 0.0), mass
