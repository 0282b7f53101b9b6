"""The inner minimisation of an implicit step: the place that a step of its own velocity leads to.

    P = τ v(z + P)     where the gradient of  F(z + P) + Σ mass ‖P‖² / 2τ  is zero (JKO, on particles)

Where features have bounds, τ v is cut to what stays inside.

``Inner`` asks the field for places after displacements P, all from the state of the functional where
the step starts: whatever it draws at random is drawn once for them all. It goes along quasi-Newton
directions (L-BFGS) in the metric of the masses, in which the residual P − τ v(z + P) is the gradient
of that sum times τ, until the residual is small."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from advect.flows.dynamics import Dynamics
from advect.flows.field import Field, Here, NonFiniteError
from advect.flows.law_motion import Tensors

_PAIRS = 8  # of displacements and changes of the residual that a direction is made of
_ENOUGH, _HALF = 1e-4, 0.5  # of the promised fall; of the residual
_GROW = 4  # times the step before
_PATIENCE = 6  # steps in turn that do not go down, each half of the one before: noise, or a kink


class Tried(NamedTuple):
    """A displacement that was tried, as one vector, with what the field says after it.

    Attributes:
        move: P.  residual: P − τ v(z + P), that of the cut one.  value: τ F(z + P) + Σ mass ‖P‖² / 2.  there: the place.
        said: warnings of its evaluation.
    """

    move: Tensor
    residual: Tensor
    value: float
    there: Here
    said: tuple[warnings.WarningMessage, ...] = ()


Pair = tuple[Tensor, Tensor]  # a change of P, and that of the residual


@dataclass(frozen=True, eq=False)
class Inner:
    """The problem of one implicit step of size ``tau`` from ``here``."""

    field: Field
    here: Here
    tau: float
    masses: Tensor
    moving: Tensors

    @staticmethod
    def of(field: Field, here: Here, step_size: float) -> Inner:
        """A step of this size; a step control that asks for a share of it gets that of the size."""
        rho = here.dataset
        moving = field.dynamics.parameters(rho)
        # a dynamics that is no subclass may not have them
        mass = getattr(field.dynamics, "mass", partial(Dynamics.mass, field.dynamics))(rho)
        each = [
            mass[name].to(v.dtype).reshape(-1, *[1] * (v.ndim - 1)).expand_as(v).reshape(-1)
            for name, v in moving.items()
        ]
        plain = replace(field, scale=1.0)
        return Inner(plain, here, field.scale * step_size, torch.cat(each), moving)

    def dot(self, a: Tensor, b: Tensor) -> float:
        """Σ mass ⟨a, b⟩."""
        return float((self.masses * a * b).sum(dtype=torch.float64))

    def norm(self, a: Tensor) -> float:
        """√(Σ mass ‖a‖²)."""
        return self.dot(a, a) ** 0.5

    def split(self, vector: Tensor) -> Tensors:
        """A vector as displacements by name."""
        parts = vector.split([value.numel() for value in self.moving.values()])
        return {
            name: part.reshape(value.shape).to(value.dtype)
            for (name, value), part in zip(self.moving.items(), parts, strict=True)
        }

    def join(self, tensors: Tensors) -> Tensor:
        """Displacements by name as one vector."""
        return torch.cat([tensors[name].reshape(-1) for name in self.moving])

    def stay(self) -> Tried:
        """P = 0, which is known: the value and velocity where the step starts."""
        explicit = self._inside(self.tau * self.join(self.here.velocity))
        return Tried(torch.zeros_like(explicit), -explicit, self.tau * self.here.value, self.here)

    def at(self, move: Tensor) -> Tried | None:
        """What the field says after a displacement; None where it is not finite there."""
        move = self._inside(move)
        parts = self.split(move)
        try:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter(
                    "always"
                )  # whether they are shown is decided if it is gone to
                there = self.field.move(self.here, parts)
                value, velocity = there.value, there.velocity
        except NonFiniteError:
            return None
        if pulled := getattr(self.field.dynamics, "pulled", None):
            velocity = pulled(self.here.dataset, parts, velocity)
        residual = move - self._inside(self.tau * self.join(velocity))
        value = self.tau * value + self.dot(move, move) / 2
        return Tried(move, residual, value, there, tuple(said))

    def _inside(self, move: Tensor) -> Tensor:
        """The displacement that bounds of the features leave."""
        bounds, x = getattr(self.field.dynamics, "bounds", None), self.here.dataset.x
        if bounds is None:
            return move
        parts = self.split(move)
        return self.join({**parts, "x": torch.clamp(parts["x"], bounds[0] - x, bounds[1] - x)})

    def direction(self, residual: Tensor, pairs: list[Pair]) -> Tensor:
        """−B r for the inverse B of the curvature that pairs know of (two loops of L-BFGS)."""
        found, shares = -residual, []
        for change, turn in reversed(pairs):
            share = self.dot(change, found) / self.dot(change, turn)
            found = found - share * turn
            shares.append(share)
        if pairs:
            change, turn = pairs[-1]
            found = found * (self.dot(change, turn) / self.dot(turn, turn))
        for (change, turn), share in zip(pairs, reversed(shares), strict=True):
            again = self.dot(turn, found) / self.dot(change, turn)
            found = found + (share - again) * change
        return found

    def known(self, pairs: list[Pair], change: Tensor, turn: Tensor) -> list[Pair]:
        """The pairs with one more, if it shows a curvature that goes up."""
        along = self.dot(change, turn)
        if not along > 1e-10 * self.norm(change) * self.norm(turn):
            return pairs
        return [*pairs, (change, turn)][-_PAIRS:]

    def solve(
        self, pairs: list[Pair], tol: float, order: int, most: int
    ) -> tuple[Tried, list[Pair], int, float]:
        """The displacement that was found, what is known of the curvature, how many evaluations it
        took, and the residual as a share of the one that was asked for (at most 1: it was met). It ends
        where no digits are left, or nothing falls any further, too.

        Asked for is ``tol`` · θ^order of the length of P, where θ, at most 1, is how far P is from the
        explicit step, as a share of P: it goes to 0 with τ, and with it the error that a step may
        leave."""
        first = self.stay()
        # What was drawn at random is another draw after the move: the start is then not known.
        now = None if self.field.functional.stochastic else first
        euler, spent, radius = -first.residual, 0, float("inf")
        if self.norm(euler) == 0 and now is not None:
            return now, pairs, 0, 0.0
        move, refused = self.direction(first.residual, pairs), 0
        while True:
            there = self.at(move)
            spent += 1
            if now is None:
                if there is None:
                    move = move / 4
                else:
                    now = there
            else:
                step = move - now.move if there is None else there.move - now.move
                if there is not None:
                    pairs = self.known(pairs, step, there.residual - now.residual)
                if there is not None and self._better(now, there, step):
                    # where one was too long before, the next ones grow again by and by
                    now, refused = there, 0
                    radius = _GROW * self.norm(step) if radius < float("inf") else radius
                else:
                    refused += there is not None
                    radius = self.norm(step) / (2 if there is not None else 8)
            if now is not None:
                left = self._left(now, euler, tol, order)
                idle = (refused >= _PATIENCE and now is not first) or self._rounded(now, pairs)
                if left <= 1 or spent >= most or idle:
                    return now, pairs, spent, left
                step = self.direction(now.residual, pairs)
                length = self.norm(step)
                move = now.move + step * min(1.0, radius / length if length else 1.0)
            elif spent >= most:
                return first, pairs, spent, float("inf")

    def _better(self, now: Tried, there: Tried, step: Tensor) -> bool:
        fall = _ENOUGH * self.dot(now.residual, step)  # below 0
        if there.value <= now.value + min(0.0, fall):
            return True
        share = self.norm(there.residual) / self.norm(now.residual)
        alike = 8 * torch.finfo(now.move.dtype).eps * abs(now.value)  # up to rounding
        return share <= _HALF or (share < 1 and there.value <= now.value + alike)

    def _rounded(self, now: Tried, pairs: list[Pair]) -> bool:
        """Whether the residual is what rounding of the place makes of it."""
        steep = max((self.norm(turn) / self.norm(change) for change, turn in pairs), default=1.0)
        place = self.norm(self.join(self.field.dynamics.parameters(self.here.dataset)))
        eps = torch.finfo(now.move.dtype).eps
        return self.norm(now.residual) <= eps * max(1.0, steep) * (place + self.norm(now.move))

    def _left(self, now: Tried, euler: Tensor, tol: float, order: int) -> float:
        length, residual = self.norm(now.move), self.norm(now.residual)
        if residual == 0:
            return 0.0
        theta = min(1.0, self.norm(now.move - euler) / length) if length else 0.0
        least = 8 * torch.finfo(now.move.dtype).eps * length  # rounding
        asked = max(tol * theta**order * length, least)
        return residual / asked if asked else float("inf")
