"""What every functional promises: a number, the same for the same state, with its gradient."""

from __future__ import annotations

from itertools import islice

import torch
from torch import Tensor

from advect.data.dataset import LabeledDataset
from advect.flows.integrators import Euler
from advect.flows.loop import iterate
from advect.functionals.base import Functional
from advect.testing.problems import close, directions, require, slope, small_pair


def check_functional(
    functional: Functional, rho: LabeledDataset | None = None, *, rtol: float = 1e-4
) -> None:
    """Try a functional of one's own: value, terms, state, gradient, and that looking is free.

    Args:
        functional: what to try.
        rho: a dataset that it takes; by default twelve samples in three dimensions, float64.
        rtol: how far the gradient may be from central differences, and a value from a warm start
            from that of a cold one. Solvers with a tolerance need more than exact formulas.

    Raises:
        AssertionError: says which promise is broken.

    Example:
        >>> import advect as ad
        >>> class StayNear(ad.Functional):
        ...     def __call__(self, rho):
        ...         return (rho.weights * rho.x.square().sum(1)).sum()
        >>> ad.testing.check_functional(StayNear())
    """
    rho = rho or small_pair()[0]
    _check_value(functional, rho)
    _check_state(functional, rho, rtol)
    if not functional.stochastic:
        _check_gradient(functional, rho, rtol)
    _check_looking(functional, rho)


def _check_value(functional: Functional, rho: LabeledDataset) -> None:
    value = functional(rho)
    kind = type(value).__name__
    require(isinstance(value, Tensor), "F(ρ) must be a tensor, for its gradient", kind)
    require(value.ndim == 0, "F(ρ) must be a single number", f"shape {tuple(value.shape)}")
    require(bool(torch.isfinite(value)), "F(ρ) must be finite", float(value))
    terms, _ = functional.terms(rho, functional.begin(rho))
    total = sum(float(term) for term in terms.values())
    require(close(total, float(value), 1e-12), "terms must add up to F(ρ)", (total, float(value)))
    half = float((0.5 * functional)(rho))
    require(close(half, 0.5 * total, 1e-12), "0.5 * F must be half of F", (half, total))


def _check_state(functional: Functional, rho: LabeledDataset, rtol: float) -> None:
    state = functional.begin(rho)
    _check_flat("begin(rho)", state)
    kept = {name: value.clone() for name, value in state.items()}
    first, after = functional.terms(rho, state)
    _check_flat("terms(rho, state)", after)
    same = kept.keys() == state.keys() and all(kept[k].equal(state[k]) for k in kept)
    require(same, "terms(rho, state) must return a new state and leave the one it is given")
    again, _ = functional.terms(rho, state)
    equal = all(torch.equal(first[name].detach(), again[name].detach()) for name in first)
    require(equal, "from one state, terms must be the same at each call, to the last bit")
    if not functional.stochastic:
        warm, _ = functional.terms(rho, after)
        cold, hot = (sum(float(v) for v in terms.values()) for terms in (first, warm))
        require(close(cold, hot, rtol), "a state may change the work, not the value", (cold, hot))


def _check_flat(where: str, state: object) -> None:
    """A flat dictionary of tensors."""
    promise = "a state must be a flat dictionary of tensors, as checkpoints hold them"
    require(isinstance(state, dict), promise, f"{type(state).__name__} of {where}")
    assert isinstance(state, dict)
    other = {name: type(v).__name__ for name, v in state.items() if not isinstance(v, Tensor)}
    require(not other, promise, f"{other} of {where}")


def _check_gradient(functional: Functional, rho: LabeledDataset, rtol: float) -> None:
    start = functional.begin(rho)  # what is fixed by the first dataset of a flow stays fixed

    def value(x: Tensor) -> Tensor:
        return torch.stack(list(functional.terms(rho.replace(x=x), start)[0].values())).sum()

    for direction in directions(rho.x):
        exact, differences = slope(value, rho.x, direction)
        require(
            close(exact, differences, rtol, atol=rtol),
            "the gradient must be that of the value",
            f"{exact:.6g} where central differences give {differences:.6g}",
        )


def _check_looking(functional: Functional, rho: LabeledDataset) -> None:
    """Two walks, one of them looked at between its steps, go the same way."""
    alone = [step.dataset.x for step in islice(iterate(rho, functional, integrator=Euler(0.1)), 3)]
    walk, watched = iterate(rho, functional, integrator=Euler(0.1)), []
    for step in islice(walk, 3):
        watched.append(step.dataset.x)
        for seen in (rho, step.dataset):
            functional(seen)
    same = all(torch.equal(a, b) for a, b in zip(alone, watched, strict=True))
    require(same, "calling a functional between two steps of a flow must not change the flow")
