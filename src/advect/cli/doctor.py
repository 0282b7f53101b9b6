"""``advect doctor``: versions, devices, data and a self-test."""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform

import advect as ad
from advect.cli.options import TALK, Talk
from advect.cli.session import FAILED, Exit, Facts, session


def doctor(*, talk: Talk = TALK) -> None:
    """Show versions, devices and data, and run a short self-test.

    Example:
        advect doctor
    """
    with session(talk) as running:
        import torch

        packages = ("torch", "numpy", "scipy", "scikit-learn", "POT", "pandas", "pyarrow")
        data = ad.LabeledDataset([[0.0], [1.0], [8.0], [9.0]], ["a", "a", "b", "b"])
        moved = data.replace(x=data.x + 3)  # samples and class means move by 3: √(3² + 3²)
        distance = ad.otdd(data, moved, solver=ad.ExactOT()).value
        features = ad.GroundCost(label=ad.NoLabels())
        energy = ad.OTDD(moved, cost=features, solver=ad.ExactOT())
        # an Euler step of size τ scales ½ W₂² by (1 − τ)²
        value = ad.flow(data, energy, integrator=ad.Euler(0.5), n_steps=3).values[-1]
        healthy = math.isclose(distance, 3 * math.sqrt(2), rel_tol=1e-6)
        healthy = healthy and math.isclose(value, 4.5 * 0.5**6, rel_tol=1e-4)
        devices = ["cpu", *(f"cuda:{k}" for k in range(torch.cuda.device_count()))]
        names = ad.datasets.names()
        facts = {
            "advect": ad.__version__,
            "python": platform.python_version(),
            "platform": platform.platform(),
            "packages": {name: importlib.metadata.version(name) for name in packages},
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "devices": [*devices, *(["mps"] if torch.backends.mps.is_available() else [])],
            "data": [row.name for row in names if row.ready],
            "missing_data": [row.name for row in names if not row.ready],
            "self_test": "passed" if healthy else "failed: install advect again",
        }
        running.finish(Facts(facts))
        if not healthy:
            raise Exit(FAILED)
