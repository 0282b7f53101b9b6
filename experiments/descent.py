"""Do ordinary flows descend? Fourteen setups with the default cost and solver, as flows were made
before and as they are.

"Before" is T(x) − x with steps that are made whatever comes; "after" is the exact gradient with
controlled steps. For each: the first, lowest and last value, how many steps rose by more than
rounding, and the status. The setups are those of the tests.

    python experiments/descent.py            # out/descent/descent.json and descent.md, the table of docs/flows.md
"""

from __future__ import annotations

import argparse
import json
import runpy
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import advect as ad
from advect.transport.notes import rounding

SETUPS = runpy.run_path(str(Path(__file__).parent.parent / "tests" / "setups.py"))["SETUPS"]
BEFORE = {"control": ad.FixedSteps(), "dynamics": ad.FeatureDriven(through_laws=False)}


def measured(result: ad.FlowResult) -> dict[str, Any]:
    allowed = rounding(result.dataset.x.dtype, max(map(abs, result.values)))
    rises = sum(after - before > allowed for before, after in pairwise(result.values))
    figures = {
        "first": result.values[0],
        "lowest": min(result.values),
        "last": result.values[-1],
        "rises": rises,
    }
    return {
        **figures,
        "steps": result.n_steps,
        "status": result.status,
        "notes": [note.what for note in result.diagnosis],
    }


def table(found: dict[str, dict[str, dict[str, Any]]]) -> str:
    """The figures as Markdown."""
    lines = [
        "| setup | first value | before: last (lowest), steps that rose | after: last, steps that "
        "rose |"
    ]
    lines += ["| --- | --- | --- | --- |"]
    for name, kinds in found.items():
        before, after = kinds["before"], kinds["after"]
        old = f"{before['last']:.4g} ({before['lowest']:.4g}), {before['rises']} of {before['steps']}, {before['status']}"
        new = f"{after['last']:.4g}, {after['rises']} of {after['steps']}, {after['status']}"
        lines.append(f"| {name} | {after['first']:.4g} | {old} | {new} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=120)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--out", type=Path, default=Path("out/descent"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name, setup in SETUPS.items():
        kinds = {
            "before": {**BEFORE, **{k: v for k, v in setup.options.items() if k == "dynamics"}},
            "after": {},
        }
        runs = {
            kind: setup.run(options.samples, options.steps, **more) for kind, more in kinds.items()
        }
        found[name] = {kind: measured(result) for kind, result in runs.items()}
        print(f"{name}: {runs['before']}, {runs['after']}", flush=True)
        for path, text in (
            ("descent.json", json.dumps(found, indent=2)),
            ("descent.md", table(found)),
        ):
            (options.out / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
