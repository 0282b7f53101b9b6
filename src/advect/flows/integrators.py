"""Integrators: how far to go along a velocity (paper, eqs. 16 and 17 and section 5.4).

Most schemes define ``displace``, which turns velocities into displacements, dictionaries of tensors
``{"x": …}`` or ``{"x": …, "mean": …}``. A scheme that looks ahead defines ``step(field, current, state)`` and
evaluates ``trial = field.move(current, displacement)``. The state is a flat dictionary of tensors, so that
a checkpoint can hold it. ``step_size`` is flow time, whatever the number of particles.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from advect._util import check_non_negative, check_positive, defaults, refuse_if
from advect.flows.field import EvaluatedState, Field, first_order_decrease
from advect.flows.law_motion import Tensors

StepSize = float | Callable[[int], float]


class Integrator:
    """Base class of integrators. A subclass defines ``displace`` or ``step``, and ``init`` if it has a state.

    Attributes:
        descends: whether a small enough step decreases the value whatever the state is; flows then
            control the steps by default.
        descends_at_first: whether a small enough step decreases the value from the initial state.
        stochastic: whether a step is random.

    Example:
        >>> import advect as ad
        >>> class Careful(ad.Integrator):                    # rejects a step that rises
        ...     def step(self, field, current, state):
        ...         size = 1.0
        ...         while True:
        ...             trial = field.move(current, {name: size * v for name, v in current.velocity.items()})
        ...             if trial.value < current.value or size < 1e-9:
        ...                 return trial, state
        ...             size /= 4
        >>> data = ad.LabeledDataset([[1.0]], ["a"])
        >>> steep = ad.Potential(lambda x, y: 2 * x.square().sum(1))
        >>> ad.flow(data, steep, integrator=Careful(), n_steps=2).values
        [2.0, 0.0, 0.0]
    """

    descends: ClassVar[bool] = False
    descends_at_first: ClassVar[bool] = False
    stochastic: ClassVar[bool] = False

    def init(self, parameters: Tensors) -> Tensors:
        """The state before the first step."""
        return {}

    def displace(
        self, velocity: Tensors, state: Tensors, step: int, generator: torch.Generator | None
    ) -> tuple[Tensors, Tensors]:
        """Displacements for one step, and the state after it."""
        raise NotImplementedError(
            "an integrator needs displace or step(self, field, current, state)"
        )

    def step(
        self, field: Field, current: EvaluatedState, state: Tensors
    ) -> tuple[EvaluatedState, Tensors]:
        """The evaluation after one step, and the state after it."""
        displacement, state = self.displace(current.velocity, state, current.index, field.generator)
        return field.move(current, displacement), state


@dataclass(frozen=True)
class Decay:
    """A step-size schedule: ``first`` halved every ``half_life`` steps, and not below ``last``.

    Any function from the number of the step to a size is a schedule too.

    Example:
        >>> import advect as ad
        >>> schedule = ad.Decay(first=0.4, half_life=10, last=0.05)
        >>> schedule(0), schedule(10), schedule(1000)
        (0.4, 0.2, 0.05)
    """

    first: float
    half_life: float
    last: float = 0.0

    def __post_init__(self) -> None:
        check_positive("first", self.first)
        check_positive("half_life", self.half_life)
        check_non_negative("last", self.last)

    def __call__(self, step: int) -> float:
        return max(self.first * 0.5 ** (step / self.half_life), self.last)


@dataclass(frozen=True)
class _Sized(Integrator):
    """An integrator with a step size: a positive number, or a schedule."""

    step_size: StepSize = defaults.LOOK.step_size
    # Names of further options, each with its check.
    _checks: ClassVar[tuple[tuple[str, Callable[[str, float], object]], ...]] = ()

    def __post_init__(self) -> None:
        if not callable(self.step_size):
            check_positive("step_size", self.step_size)
        for name, check in self._checks:
            check(name, getattr(self, name))

    def size_at(self, step: int) -> float:
        """The step size at a step, counted from 0."""
        if callable(self.step_size):
            return check_positive(f"step_size at step {step}", self.step_size(step))
        return self.step_size


def _check_share(name: str, value: float) -> None:
    is_share = check_non_negative(name, value) < 1
    refuse_if(not is_share, f"{name} must be at least 0 and below 1", value, "0.9 is usual.")


@dataclass(frozen=True)
class Euler(_Sized):
    """z ← z + step_size · v(z): plain gradient descent, called sgd in the paper.

    Args:
        step_size: flow time of a step; or a schedule such as ``Decay(0.4, 10)``.

    Example:
        >>> import torch, advect as ad
        >>> displacement, _ = ad.Euler(0.1).displace({"x": torch.tensor([2.0])}, {}, 0, None)
        >>> round(displacement["x"].item(), 6)
        0.2
    """

    descends = True

    def displace(
        self, velocity: Tensors, state: Tensors, step: int, generator: torch.Generator | None
    ) -> tuple[Tensors, Tensors]:
        size = self.size_at(step)
        return {name: size * v for name, v in velocity.items()}, state


@dataclass(frozen=True)
class Heun(_Sized):
    """z ← z + step_size · ½(v(z) + v(z + step_size · v(z))): second order, two evaluations a step.

    Use it when the path matters: at the same error its steps may be much longer than those of
    ``Euler``. Covariances that move along curves (``laws="bures"``) stay first order.

    Args:
        step_size: flow time of a step; or a schedule such as ``Decay(0.4, 10)``.

    Example:
        >>> import math, advect as ad
        >>> data, bowl = ad.LabeledDataset([[1.0]], ["a"]), ad.Potential(lambda x, y: x.square().sum(1) / 2)
        >>> for method in (ad.Euler(0.1), ad.Heun(0.1)):     # dx = −x dt
        ...     x = ad.flow(data, bowl, integrator=method, n_steps=10).dataset.x
        ...     print(f"{abs(x.item() - math.exp(-1)):.0e}")
        2e-02
        7e-04
    """

    descends = True

    def step(
        self, field: Field, current: EvaluatedState, state: Tensors
    ) -> tuple[EvaluatedState, Tensors]:
        size, v = self.size_at(current.index), current.velocity
        # Predictor: an Euler step. Corrector: the mean of the velocities at both of its ends.
        predicted = field.move(current, {name: size * v[name] for name in v})
        v_end = predicted.velocity
        corrected = field.move(current, {name: size / 2 * (v[name] + v_end[name]) for name in v})
        # Where the field turns back, the corrector is short and its own first-order decrease is as small
        # as what it gains. A step control therefore compares with the decrease along the predictor.
        return replace(corrected, expected_decrease=first_order_decrease(current, predicted)), state


@dataclass(frozen=True)
class EulerMaruyama(_Sized):
    """z ← z + step_size · v(z) + √(2 step_size temperature) ξ on the features, ξ standard normal.

    The noise is the flow of the entropy, temperature · ∫ρ log ρ (paper, section 4). With a potential V
    this is Langevin dynamics with stationary law ∝ exp(−V / temperature).

    Args:
        step_size: flow time of a step; or a schedule such as ``Decay(0.4, 10)``.
        temperature: of the noise; 0 is ``Euler``.

    Example:
        >>> import torch, advect as ad
        >>> noisy = ad.EulerMaruyama(0.5, temperature=1.0)
        >>> still = {"x": torch.zeros(100_000)}
        >>> displacement, _ = noisy.displace(still, {}, 0, torch.Generator().manual_seed(0))
        >>> round(displacement["x"].std().item(), 1)
        1.0
    """

    stochastic = True
    _checks = (("temperature", check_non_negative),)
    temperature: float = 1.0

    def displace(
        self, velocity: Tensors, state: Tensors, step: int, generator: torch.Generator | None
    ) -> tuple[Tensors, Tensors]:
        size, x = self.size_at(step), velocity["x"]
        device = generator.device if generator else x.device
        noise = torch.randn(x.shape, generator=generator, dtype=x.dtype, device=device).to(x.device)
        # Brownian motion of variance 2 · temperature · time is the flow of the entropy.
        spread = math.sqrt(2 * size * self.temperature)
        displacement = {name: size * v for name, v in velocity.items()}
        return displacement | {"x": displacement["x"] + spread * noise}, state


@dataclass(frozen=True)
class Momentum(_Sized):
    """Heavy-ball momentum: m ← momentum · m + v, z ← z + step_size · m.

    Args:
        step_size: flow time of a step; or a schedule such as ``Decay(0.4, 10)``.
        momentum: factor of the previous direction.
        nesterov: look ahead along m.

    Example:
        >>> import torch, advect as ad
        >>> method, v = ad.Momentum(0.1, momentum=0.5), {"x": torch.tensor([1.0])}
        >>> state = method.init(v)
        >>> for step in range(2):
        ...     displacement, state = method.displace(v, state, step, None)
        >>> round(displacement["x"].item(), 6)
        0.15
    """

    descends_at_first = True
    _checks = (("momentum", _check_share),)
    momentum: float = 0.9
    nesterov: bool = False

    def init(self, parameters: Tensors) -> Tensors:
        return {name: torch.zeros_like(value) for name, value in parameters.items()}

    def displace(
        self, velocity: Tensors, state: Tensors, step: int, generator: torch.Generator | None
    ) -> tuple[Tensors, Tensors]:
        size = self.size_at(step)
        state = {name: self.momentum * state[name] + v for name, v in velocity.items()}
        direction = state
        if self.nesterov:
            direction = {name: v + self.momentum * state[name] for name, v in velocity.items()}
        return {name: size * m for name, m in direction.items()}, state


@dataclass(frozen=True)
class Adam(_Sized):
    """Adam (Kingma and Ba 2015): each coordinate moves by about ``step_size`` whatever its velocity.

    Args:
        step_size: a length in the units of the features, or a schedule.
        beta1: decay of the mean velocity.
        beta2: decay of the mean squared velocity.
        floor: added to the root of that mean.

    Example:
        >>> import torch, advect as ad
        >>> method, v = ad.Adam(0.1), {"x": torch.tensor([1.0, 1e3])}
        >>> [round(d, 6) for d in method.displace(v, method.init(v), 0, None)[0]["x"].tolist()]
        [0.1, 0.1]
    """

    descends_at_first = True
    _checks = (("beta1", _check_share), ("beta2", _check_share), ("floor", check_positive))
    beta1: float = 0.9
    beta2: float = 0.999
    floor: float = 1e-8

    def init(self, parameters: Tensors) -> Tensors:
        parts = [(part, name) for part in ("first", "second") for name in parameters]
        return {f"{part}.{name}": torch.zeros_like(parameters[name]) for part, name in parts}

    def displace(
        self, velocity: Tensors, state: Tensors, step: int, generator: torch.Generator | None
    ) -> tuple[Tensors, Tensors]:
        size = self.size_at(step)
        displacement, after = {}, {}
        for name, v in velocity.items():
            # Running means of v and v² start at 0; dividing by 1 − βᵗ removes that bias.
            first = self.beta1 * state[f"first.{name}"] + (1 - self.beta1) * v
            second = self.beta2 * state[f"second.{name}"] + (1 - self.beta2) * v.square()
            root = (second / (1 - self.beta2 ** (step + 1))).sqrt()
            mean = first / (1 - self.beta1 ** (step + 1))
            displacement[name] = size * mean / (root + self.floor)
            after |= {f"first.{name}": first, f"second.{name}": second}
        return displacement, after
