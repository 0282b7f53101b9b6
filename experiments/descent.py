"""Do ordinary flows descend? Fourteen setups with the default cost and solver, as flows were made
before and as they are.

"Before" is T(x) − x with steps that are made whatever comes; "after" is the exact gradient with
controlled steps. For each: the first, lowest and last value, how many steps rose by more than
rounding, and the status. The setups are those of the tests; nothing in them is drawn anew, so that
each is one cell."""

from __future__ import annotations

import runpy
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import advect as ad
from advect.flows.loop import FlowResult
from advect.transport.transport import rounding

NAME = "descent"
SAMPLES, STEPS = 120, 40

_SETUPS = runpy.run_path(str(Path(__file__).parent.parent / "tests" / "setups.py"))["SETUPS"]
_BEFORE = {"control": ad.FixedSteps(), "dynamics": ad.FeatureDriven(through_laws=False)}


def cells() -> dict[str, dict[str, Any]]:
    return {name: {"setup": name} for name in _SETUPS}


def run(setup: str) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    chosen = _SETUPS[setup]
    own = {key: value for key, value in chosen.options.items() if key == "dynamics"}
    before = chosen.run(SAMPLES, STEPS, **{**_BEFORE, **own})
    return {"before": measured(before), "after": measured(chosen.run(SAMPLES, STEPS))}


def measured(result: FlowResult) -> dict[str, Any]:
    """What the values of a flow did."""
    largest, dtype = max(map(abs, result.values)), result.dataset.x.dtype
    return {
        "first": result.values[0],
        "lowest": min(result.values),
        "last": result.values[-1],
        "rises": sum(
            after - before > rounding(dtype, largest, abs(before))
            for before, after in pairwise(result.values)
        ),
        "steps": result.n_steps,
        "status": result.status,
    }
