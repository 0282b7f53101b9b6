"""The flow that plays on the landing page: handwritten digits of 8 × 8 pixels become MNIST's."""

from __future__ import annotations

from pathlib import Path

import torch

import advect as ad

SAMPLES, STEPS = 200, 20


def write(path: Path) -> None:
    """The report page, unless it is newer than everything that makes it."""
    sources = [Path(__file__), *Path(ad.__path__[0]).rglob("*.*")]
    newest = max(one.stat().st_mtime for one in sources if one.suffix != ".pyc")
    if path.exists() and path.stat().st_mtime > newest:
        return
    draw = torch.Generator().manual_seed(0)
    source, target = ad.harmonize(ad.datasets.load("digits"), ad.datasets.load("mnist"))
    source, target = (
        data.sample(SAMPLES, balanced=True, generator=draw) for data in (source, target)
    )
    objective = ad.OTDD(target, cost=ad.GroundCost(label=ad.ByName()))  # a three is a three
    result = ad.flow(
        source,
        objective,
        dynamics=ad.FeatureDriven(bounds=(0.0, 1.0)),
        integrator=ad.Euler(0.2),
        n_steps=STEPS,
        callbacks=[ad.Recorder()],
    )
    result.report(path, title="Digits → MNIST", names=("digits", "MNIST"))
