"""The iterations of ``advect.ot.iteration`` for devices that the program should not wait for.

The same steps in the same order, but what comes next (another direction of conjugate gradients, a
Newton step, half of one, nothing any more) is chosen on the device, by flags and not by branches.
Every tick is one ``sweep`` over the kernel, whichever it is: the program hands over as many as the
solve before has needed, and looks once. Ticks after the end change nothing. What is rare (a kernel
that has underflowed, scalings out of range, Sinkhorn's steps far from the solution, a system that
conjugate gradients do not solve) stops the ticks, and the iteration that looks at each step goes on
from there. On a processor looking is free, and the watched iterations spare the flags."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from advect._util.facts import fetched
from advect.ot.iteration import (
    CG_ITERATIONS,
    DIRECT_SIZE,
    HALVINGS,
    LOG_RANGE,
    NEAR,
    Iteration,
    Symmetric,
)

_FIRST, _MORE = 16, 16  # ticks before the first look where nothing is known, and before the next
_SPARE = 0.25  # share of what a solve is expected to take that is handed over beyond that


@dataclass(frozen=True)
class _Tick:
    """What is chosen between: vectors (m,) and (n,), and single numbers, all on the device.

    Attributes:
        v, u, column: scalings whose rows match, and Kᵀ(a u).  residual, diagonal, squared: of the
            Newton system there.  error: the marginal error.  previous: the one before.
        solution, rest, search, product: of conjugate gradients.  goal: the residual to reach.
        trial, step, slope, before: a step that is tried, its length, slope and the dual before.
        solving: whether the tick is one of conjugate gradients.  done, stuck: whether it is over.
        hard: whether that is since conjugate gradients do not solve the system.
        inner, halved: how many of a kind.  count: iterations, as a solve counts them.
    """

    v: Tensor
    u: Tensor
    column: Tensor
    residual: Tensor
    diagonal: Tensor
    squared: Tensor
    error: Tensor
    previous: Tensor
    solution: Tensor
    rest: Tensor
    search: Tensor
    product: Tensor
    goal: Tensor
    trial: Tensor
    step: Tensor
    slope: Tensor
    before: Tensor
    solving: Tensor
    done: Tensor
    stuck: Tensor
    hard: Tensor
    inner: Tensor
    halved: Tensor
    count: Tensor

    def where(self, flag: Tensor, other: _Tick) -> _Tick:
        """This one where the flag is set, else the other."""
        mine, others = ([getattr(one, f.name) for f in fields(self)] for one in (self, other))
        chosen = (
            a if a is b else torch.where(flag, a, b) for a, b in zip(mine, others, strict=True)
        )
        return _Tick(*chosen)


class Unwatched(Iteration):
    """A two-sided solve; ``expected`` says how many ticks it is likely to take."""

    def __init__(self, *problem, expected: int = 0) -> None:
        super().__init__(*problem)
        self.expected = expected

    def solve(self, start, tol: float, max_iter: int) -> bool:
        """As the watched one does from the start that it is given, where ticks do not get there."""
        if start is None:
            return super().solve(start, tol, max_iter)
        self.start(*start)
        if self._ticks(tol, max_iter):
            return True
        return super().solve(self.potentials() if self._finite else start, tol, max_iter)

    def _ticks(self, tol: float, max_iter: int) -> bool:
        """Hand over ticks and look, until it is done or stuck."""
        now, handed, directly = self._first(), 0, False
        ahead = _ahead(self.expected)
        while True:
            for _ in range(ahead):
                now = self._tick(self._directly(now) if directly else now, tol)
            handed += ahead
            self.u, self.v, self.column = now.u, now.v, now.column
            f, g = self.potentials()
            numbers = [now.done, now.stuck, now.hard, now.error, now.count, *self._ending(f, g)]
            done, stuck, hard, self.error, count, *ending = fetched(*numbers)
            if hard and not directly and len(self.b) <= DIRECT_SIZE:
                directly, ahead = True, _MORE
                now = replace(now, stuck=now.stuck & ~now.hard)
                continue
            if done or stuck or handed + _MORE > max_iter:
                break
            ahead = _MORE
        self.n_iter, self._finite = int(count), math.isfinite(self.error + sum(ending))
        self.ending = ending if done else None
        return bool(done)

    def _first(self) -> _Tick:
        zero, ones = torch.zeros_like(self.b), torch.ones_like(self.a)
        wide = torch.zeros((), dtype=torch.float64, device=zero.device)
        none, no, count = wide.to(zero.dtype), wide > 0, wide.long()
        return _Tick(
            v=self.v,
            u=ones,
            column=zero,
            residual=zero,
            diagonal=zero,
            squared=torch.zeros_like(ones),
            error=wide + math.inf,
            previous=wide + math.inf,
            solution=zero,
            rest=zero,
            search=zero,
            product=none,
            goal=none,
            trial=self.v,
            step=none,
            slope=none,
            before=wide - math.inf,  # whatever the first match of rows gives is better
            solving=no,
            done=no,
            stuck=no,
            hard=no,
            inner=count,
            halved=count,
            count=count,
        )

    def _tick(self, now: _Tick, tol: float) -> _Tick:
        """One pass over the kernel, and what follows from it."""
        weight = self.b * torch.where(now.solving, now.v * now.search, now.trial)

        def between(part: Tensor, rows: slice) -> Tensor:
            return torch.where(now.solving, now.squared[rows] * part, self.a[rows] / part)

        product, image = self.kernel.sweep(weight, between)
        after = self._directed(now, image).where(now.solving, self._tried(now, product, image, tol))
        return now.where(now.done | now.stuck, after)

    def _directed(self, now: _Tick, image: Tensor) -> _Tick:
        """A step of conjugate gradients; where the system is solved well enough, a Newton step is
        tried next.
        """
        image = now.diagonal * now.search - self.b * now.v * image
        curvature = now.search @ image
        step = now.product / curvature
        rest, solution = now.rest - step * image, now.solution + step * now.search
        flat = ~(1e-14 * (now.search @ (now.diagonal * now.search)) - curvature < 0)
        solved = rest.abs().sum() <= now.goal
        scaled = rest / now.diagonal
        product = rest @ scaled
        search = scaled + (product / now.product) * now.search
        slope, longest = now.residual @ solution, solution.abs().max()
        length = (LOG_RANGE[now.v.dtype] / 2 / longest).clamp_max(1.0)
        hard = flat | (~solved & (now.inner + 1 >= CG_ITERATIONS))
        lost = solved & ~(slope.isfinite() & (slope > 0))
        return replace(
            now,
            solution=solution,
            rest=rest,
            search=search,
            product=product,
            trial=now.v * torch.exp(length * solution),
            step=length,
            slope=slope,
            before=self._dual_of(now.u, now.v),
            solving=~solved,
            stuck=hard | lost,
            hard=hard,
            inner=now.inner + 1,
            halved=torch.zeros_like(now.halved),
            count=now.count + 1,
        )

    def _directly(self, now: _Tick) -> _Tick:
        """A Newton step by a factorisation in place of conjugate gradients, where one is due."""
        self.u, self.v = now.u, now.v
        matrix = self._newton_matrix(root := now.diagonal.double().sqrt())
        factor, failed = torch.linalg.cholesky_ex(matrix)
        scaled = (now.residual.double() / root)[:, None]
        found = (torch.cholesky_solve(scaled, factor)[:, 0] / root).to(now.v.dtype)
        slope, longest = now.residual @ found, found.abs().max()
        length = (LOG_RANGE[now.v.dtype] / 2 / longest).clamp_max(1.0)
        made = replace(
            now,
            solution=found,
            trial=now.v * torch.exp(length * found),
            step=length,
            slope=slope,
            before=self._dual_of(now.u, now.v),
            solving=torch.zeros_like(now.solving),
            stuck=now.stuck | (failed > 0) | ~(slope.isfinite() & (slope > 0)),
            halved=torch.zeros_like(now.halved),
        )
        return made.where(now.solving & ~now.done & ~now.stuck, now)

    def _tried(self, now: _Tick, product: Tensor, column: Tensor, tol: float) -> _Tick:
        """A step whose rows have been matched: taken if the dual rises, else halved."""
        v, u = now.trial, 1 / product
        rounding = 8 * torch.finfo(v.dtype).eps * (1 + now.before.abs())
        wanted = now.before + 1e-4 * (now.step * now.slope).double() - rounding
        first = now.count == 0
        rises = (now.before == -math.inf) | (self._dual_of(u, v) >= wanted)
        residual = self.b - self.b * v * column
        error = residual.abs().sum().double()
        sizes = torch.stack([u.max(), v.max(), 1 / u.min(), 1 / v.min()]).max()
        done = error <= tol
        far = (error > NEAR) & (error < 0.8 * torch.where(first, math.inf, now.error))
        outside = ~(error.isfinite() & (sizes <= self.limit))
        diagonal = self.b - residual
        goal = torch.maximum(error.sqrt().clamp_max(0.1) * error, torch.full_like(error, tol / 3))
        scaled = residual / diagonal
        taken = replace(
            now,
            v=v,
            u=u,
            column=column,
            residual=residual,
            diagonal=diagonal,
            squared=self.a * u.square(),
            error=error,
            previous=now.error,
            solution=torch.zeros_like(residual),
            rest=residual,
            search=scaled,
            product=residual @ scaled,
            goal=(self.mass * goal).to(residual.dtype),
            trial=1 / column,  # Sinkhorn's step, where it still goes fast: it is always taken
            step=torch.zeros_like(now.step),
            before=torch.full_like(now.before, -math.inf),
            solving=~far,
            done=done,
            stuck=outside & ~done,
            inner=torch.zeros_like(now.inner),
            count=now.count + 1,
        )
        shorter = replace(
            now,
            trial=now.v * torch.exp(now.step / 2 * now.solution),
            step=now.step / 2,
            stuck=now.halved + 1 >= HALVINGS,
            halved=now.halved + 1,
        )
        return taken.where(rises, shorter)


def _ahead(expected: int) -> int:
    """Ticks to hand over before the first look."""
    return _FIRST if not expected else expected + max(2, int(_SPARE * expected))


class UnwatchedSelf(Symmetric):
    """A self-problem; ``expected`` says how many iterations it is likely to take."""

    def __init__(self, *problem, expected: int = 0) -> None:
        super().__init__(*problem)
        self.expected = expected

    def run(self, tol: float, max_iter: int) -> tuple[Tensor, int, float]:
        now = torch.zeros((), dtype=torch.float64, device=self.a.device)
        best, error, stalled, count = now + math.inf, now + math.inf, now, now
        done, handed = now > 0, 0
        start, ahead = self.f, _ahead(self.expected)
        while True:
            ahead = min(ahead, max_iter - handed)
            for _ in range(ahead):
                product = self.kernel.times(self.a * self.u)
                found = (self.a * (self.u * product - 1).abs()).sum().double()
                ended = done
                error = torch.where(ended, error, found)
                count = torch.where(ended, count, count + 1)
                stalled = torch.where(found < 0.9 * best, 0.0, stalled + 1)
                best = torch.minimum(best, found)
                done = ended | (found <= tol) | (stalled >= 4) | ~found.isfinite()
                self.u = torch.where(done, self.u, (self.u / product).sqrt())
            handed += ahead
            f = self.f + self.epsilon * self.u.double().log()
            over, left, n_iter, *ending = fetched(done, error, count, *self._ending(f))
            if over or handed >= max_iter:
                break
            ahead = _MORE // 2
        if not math.isfinite(left):  # a start far from the solution
            self._start(start)
            return super().run(tol, max_iter)
        self.ending = ending
        return f, int(n_iter), left
