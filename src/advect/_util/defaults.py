"""The defaults of flows; docs/flows.md has a table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FlowDefaults:
    """Euler steps, label weight, epsilon over the mean cost, and the tolerance of transport.

    ``LOOK`` is for ``ad.OTDD`` and flows of explicit functionals, ``USE`` for ``ad.flow(source, target)``,
    where epsilon is a share of the mean feature cost, and ``FEW`` for ``ad.apps.transfer``.
    """

    n_steps: int
    step_size: float
    label_weight: float
    epsilon: float
    tol: float


LOOK = FlowDefaults(n_steps=100, step_size=0.1, label_weight=1.0, epsilon=0.01, tol=1e-3)
USE = FlowDefaults(n_steps=30, step_size=0.5, label_weight=2.0, epsilon=0.03, tol=1e-3)
FEW = FlowDefaults(n_steps=30, step_size=0.2, label_weight=50.0, epsilon=0.001, tol=1e-3)
