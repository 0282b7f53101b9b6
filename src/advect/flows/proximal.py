"""Implicit steps: minimising movements (Jordan, Kinderlehrer and Otto 1998) on particles.

    ρ' = argmin  F(ρ') + W₂²(ρ', ρ) / 2τ        with each particle coupled to itself:  z' = z + τ v(z')

An explicit step goes along the velocity where it starts, this one along the velocity where it ends: it
is stable whatever τ is. With half of the step and twice the displacement it is the implicit midpoint
rule, of second order (the variational form is of Legendre and Turinici 2017)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch

from advect._util.checks import check_count, check_positive
from advect.errors import ConvergenceWarning, InputError
from advect.flows.field import Field, Here
from advect.flows.inner import Inner, Pair, Tried
from advect.flows.integrators import Integrator, StepSize, check_step_size, step_size_at
from advect.flows.law_motion import Tensors
from advect.transport.notes import Note


@dataclass(frozen=True)
class Proximal(Integrator):
    """z' = argmin F(z') + Σ mass ‖z' − z‖² / (2 step_size): an implicit step (JKO), found by an inner
    minimisation.

    For steps that are large against the curvature: ``Euler`` and ``Heun`` are unstable beyond
    2 ÷ curvature, this is stable for any ``step_size``, and with step control goes down at each. One
    costs several evaluations, so that it pays where steep and flat directions meet, and a flow has to
    be followed for long; toward a minimum alone, controlled steps of ``Euler`` are often cheaper.

    The inner minimisation starts from the displacement of the step before, and what was seen of the
    curvature along it; it ends when the residual of z' = z + step_size · v(z') is small against the
    error that a step of this size makes anyway. It does not always get there in ``inner`` evaluations:
    a ``ConvergenceWarning`` says so, the flow's ``diagnosis`` in how many steps, and the result's
    ``integrator_state`` has the "evaluations" in all, the steps that are "unconverged", and the last
    "residual" as a share of the displacement. All places of one step are asked for with the same random
    draws (``SlicedOTDD``, ``MiniBatch``), those of the next with others.

    Args:
        step_size: flow time of a step; or a schedule such as ``Decay(0.4, 10)``.
        order: 1, which damps steep directions most; or 2, for when the way matters and not the end
            alone: the implicit midpoint, with one more evaluation.
        tol: of the residual, as a share of the error of a step.
        inner: evaluations that the inner minimisation of one step may take.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[1.0, 1.0]], ["a"])
        >>> steep = ad.Potential(lambda x, y: x[:, 0].square() / 2 + 500 * x[:, 1].square())
        >>> for method in (ad.Euler(0.5), ad.Proximal(0.5)):   # Euler is stable up to 0.002
        ...     values = ad.flow(data, steep, integrator=method, n_steps=6, control=ad.FixedSteps()).values
        ...     print(f"{values[0]:.1f} {values[-1]:.1e}")
        500.5 1.2e+35
        500.5 3.8e-03
    """

    descends = True
    step_size: StepSize = 0.5
    order: int = 1
    tol: float = 0.1
    inner: int = 30

    def __post_init__(self) -> None:
        check_step_size(self.step_size)
        if self.order not in (1, 2):
            raise InputError(
                "order must be 1 or 2", self.order, "2 is the implicit midpoint, more exact."
            )
        check_positive("tol", self.tol)
        check_count("inner", self.inner)

    def init(self, parameters: Tensors) -> Tensors:
        numbers = {
            name: torch.zeros((), dtype=torch.float64)
            for name in ("evaluations", "unconverged", "residual")
        }
        return {
            **{f"move.{name}": torch.zeros_like(value) for name, value in parameters.items()},
            **{f"turn.{name}": torch.zeros_like(value) for name, value in parameters.items()},
            **numbers,
        }

    def step(self, field: Field, here: Here, state: Tensors) -> tuple[Here, Tensors]:
        size = step_size_at(self.step_size, here.index) / self.order
        problem = Inner.of(field, here, size)
        before = _remembered(problem, state)
        found, pairs, spent, left = problem.solve(before, self.tol, self.order, self.inner)
        met, length = left <= 1, problem.norm(found.move) or problem.norm(found.residual)
        residual = problem.norm(found.residual) / length if length else 0.0
        _say(found, met, residual, here.index, spent)
        there = found.there
        if self.order == 2 or there is here:
            there = problem.field.move(here, problem.split(self.order * found.move))
        numbers = {
            "evaluations": float(state["evaluations"]) + spent,
            "unconverged": float(state["unconverged"]) + (not met),
            "residual": residual,
        }
        after = {name: torch.tensor(v, dtype=torch.float64) for name, v in numbers.items()}
        return there, _memory(problem, pairs) | after

    def notes(self, state: Tensors) -> list[Note]:
        """That steps were not solved to their tolerance, where some were not."""
        missed = int(state.get("unconverged", torch.zeros(())))
        if not missed:
            return []
        what = (
            f"The inner minimisation of {missed} implicit steps did not meet its tolerance; the last "
            f"residual is {float(state['residual']):.2g} of the displacement."
        )
        remedy = "Take a smaller step_size, raise inner, or lower tol of the solver."
        command = "Lower --integrator.step-size, raise --integrator.inner, or lower --solver.tol."
        return [Note(what, remedy, command)]


def _remembered(problem: Inner, state: Tensors) -> list[Pair]:
    """The displacement of the step before, with the residual's change along it at this step's size."""
    names = problem.moving
    move, turn = (
        problem.join({name: state[f"{part}.{name}"] for name in names}) for part in ("move", "turn")
    )
    return problem.known([], move, move + problem.tau * turn)


def _memory(problem: Inner, pairs: list[Pair]) -> Tensors:
    """The last pair, with the change of the velocity in place of that of the residual."""
    still = torch.zeros_like(problem.masses)
    move, change = pairs[-1] if pairs else (still, still)
    turn = (change - move) / problem.tau
    parts = {"move": problem.split(move), "turn": problem.split(turn)}
    return {f"{part}.{name}": v for part, split in parts.items() for name, v in split.items()}


def _say(found: Tried, met: bool, residual: float, index: int, spent: int) -> None:
    """Warnings of the place that is gone to, and whether it is the one that was looked for."""
    for word in found.said:
        warnings.warn_explicit(word.message, word.category, word.filename, word.lineno)
    if not met:
        warnings.warn(
            f"step {index}: {spent} evaluations left a residual of {residual:.2g} of the displacement; "
            "take a smaller step_size or a smaller tol of the solver, or raise inner",
            ConvergenceWarning,
            stacklevel=3,
        )
