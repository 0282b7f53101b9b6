"""The defaults of flows; docs/flows.md has a table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FlowDefaults:
    """Euler steps, label weight, epsilon over the mean cost, and the tolerance of transport."""

    n_steps: int
    step_size: float
    label_weight: float
    epsilon: float
    tol: float


LOOK = FlowDefaults(n_steps=100, step_size=0.1, label_weight=1.0, epsilon=0.01, tol=1e-3)
USE = FlowDefaults(n_steps=30, step_size=0.2, label_weight=5.0, epsilon=0.01, tol=1e-3)
FEW = FlowDefaults(n_steps=30, step_size=0.2, label_weight=50.0, epsilon=0.001, tol=1e-3)
