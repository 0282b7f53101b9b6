"""What every integrator promises: steps that go down a bowl, state passed and returned."""

from __future__ import annotations

from itertools import islice

import torch

from advect.flows.integrators import Integrator
from advect.flows.loop import flow, iterate
from advect.functionals.potential import Potential
from advect.testing.problems import require, small_pair


def check_integrator(integrator: Integrator, *, n_steps: int = 20) -> None:
    """Try an integrator of one's own in a flow down ½‖x‖²: falling, repeatable, resumable.

    Args:
        integrator: what to try, with a step size below 1.
        n_steps: how many steps down the bowl it gets.

    Raises:
        AssertionError: says which promise is broken.

    Example:
        >>> import advect as ad
        >>> ad.testing.check_integrator(ad.Euler(0.2))
    """
    source = small_pair()[0]
    bowl = Potential(lambda x, y: x.square().sum(1) / 2)
    noisy = integrator.stochastic

    def walk() -> torch.Tensor:
        generator = torch.Generator().manual_seed(0)
        return flow(
            source, bowl, integrator=integrator, n_steps=n_steps, generator=generator
        ).dataset.x

    first = walk()
    require(bool(torch.isfinite(first).all()), "a small bowl must not make a step infinite")
    require(torch.equal(first, walk()), "two flows from one seed must be the same, bit for bit")
    if not noisy:
        fell = first.square().sum() < source.x.square().sum()
        require(bool(fell), f"{n_steps} steps must go down a bowl")
        steps = list(islice(iterate(source, bowl, integrator=integrator), 5))
        later = iterate(source, bowl, integrator=integrator, start=steps[2].snapshot)
        again = [step.dataset.x for step in islice(later, 3)]
        same = all(torch.equal(a.dataset.x, b) for a, b in zip(steps[2:], again, strict=True))
        require(same, "a flow resumed from a snapshot must go the same way, bit for bit")
