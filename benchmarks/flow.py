"""Whole flows, a step against the four matrix products it cannot avoid, as ratios of one run.

    python benchmarks/flow.py [--pairs fashion_mnist:mnist …] [--sizes 500 2000] [--weights 1 5]
                              [--cases jd-fl …] [--steps 20] [--exact 4] [--tight] [--quick] [--json FILE] [--add]

data        four pairs of real images where ADVECT_DATA has them, with digits → MNIST beside them; else those alone
products    x yᵀ, x xᵀ, P y, P_xx x in float32
whole       the mean over --steps Euler steps of 0.2 from the start: the first, cold evaluation counts, as it does for users
first       that evaluation alone, which solves the target's own problem too
later       the mean over the later half of the steps, from potentials of the step before
exact       the first --exact steps with every label distance by singular values in float64, ÷ those of the default
split       where a step of another whole run goes (common.split says what counts where), in units of the products
error       of the value, and the worst of all gradients (of features and laws that move, ‖g − g'‖ ÷ ‖g'‖), at the first, a
            middle and the last state, against those with every label distance by singular values in float64, both
            solved to 1e-5; and of the worst label distance, relative. With --tight also against float64 solved
            to a marginal error of 1e-8: most of that is the flow's own tolerance, 1e-3 by default
peak        resident memory that two steps add at label weight 1, in n² floats; printed beside the first weight
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import warnings
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from common import (
    PARTS,
    Pair,
    additional_peak,
    by_first,
    clock,
    code,
    default_pairs,
    growth,
    images,
    in_fresh_process,
    pair,
    product_time,
    split,
    write_json,
)

import advect as ad
from advect._util.threads import side_by_side
from advect.errors import ConvergenceWarning
from advect.flows.steps import Step

STEP_SIZE = 0.2
FULL = ad.GroundCost()
CASES = {
    "fd, laws detached": (ad.FeatureDriven(through_laws=False), FULL),
    "fd, through laws": (ad.FeatureDriven(through_laws=True), FULL),
    "jd-fl, factored laws": (ad.JointFixedLabels(), FULL),
    "jd-vl, diagonal laws": (
        ad.JointVariableLabels(every=10),
        ad.GroundCost(label=ad.Bures(diagonal=True)),
    ),
}


@dataclass(frozen=True)
class ExactBures(ad.Bures):
    """Every distance by singular values in float64."""

    def hinted(
        self, source: ad.LabeledDataset, target: ad.LabeledDataset, hints: Any
    ) -> torch.Tensor:
        laws = [d.laws().diagonal() if self.diagonal else d.laws() for d in (source, target)]
        laws = [laws[0], laws[0] if source is target else laws[1]]
        return ad.bures(*laws).to(source.x.dtype)


Operands = list[tuple[torch.Tensor, torch.Tensor]]


class Case:
    """A flow that is measured: its dynamics and cost, between two datasets."""

    def __init__(
        self, name: str, weight: float, source: ad.LabeledDataset, target: ad.LabeledDataset
    ) -> None:
        self.dynamics, cost = CASES[name]
        self.cost = replace(cost, label_weight=weight)
        self.source, self.target = source, target

    def walk(self, steps: int, wanted: tuple[int, ...] = ()) -> tuple[list[float], list[Step]]:
        """Seconds of each step from the start, and the steps that are wanted."""
        # copies, so that nothing is remembered of an earlier run
        functional = ad.OTDD(self.target.replace(), cost=self.cost)
        kept, seconds, start = [], [], clock()
        walk = ad.iterate(
            self.source.replace(),
            functional,
            dynamics=self.dynamics,
            integrator=ad.Euler(STEP_SIZE),
        )
        try:
            for step in islice(walk, steps):
                seconds.append(clock() - start)
                kept += [step] if step.index in wanted else []
                start = clock()
        except ArithmeticError as error:  # a flow that has nowhere to go, which is said
            print(f"(the next row is of {len(seconds)} steps: {error})", file=sys.stderr)
        return seconds, kept

    def label_error(self, step: Step) -> float:
        """Of the worst label distance of a step, relative, against float64."""
        found, wide = step.dataset.replace(law=None, law_index=None), torch.float64
        exact = self.cost.label(found.to(dtype=wide), self.target.to(dtype=wide))
        return float(((self.cost.label(found, self.target) - exact).abs() / exact).max())

    def exactly(self) -> Case:
        """The same with every label distance by singular values in float64."""
        case = Case.__new__(Case)
        case.dynamics, case.source, case.target = self.dynamics, self.source, self.target
        case.cost = replace(self.cost, label=ExactBures(self.cost.label.diagonal))
        return case

    def label_effect(self, step: Step) -> tuple[float, float]:
        """How far value and worst gradient are from those with exact label distances."""
        # closely enough that one iteration more or less does not show
        solver = ad.Sinkhorn(epsilon=float(step.state["epsilon"]), tol=1e-5)
        found, exact = (
            next(
                ad.iterate(
                    step.dataset.replace(),
                    ad.OTDD(case.target.replace(), cost=case.cost, solver=solver),
                    dynamics=case.dynamics,
                )
            )
            for case in (self, self.exactly())
        )
        gradients = [_relative(found.velocity[name], of) for name, of in exact.velocity.items()]
        return abs(found.value / exact.value - 1), max(gradients)

    def errors(self, step: Step) -> tuple[float, float]:
        """How far the value and the worst gradient of a step are from those in float64."""
        state, target = (data.to(dtype=torch.float64) for data in (step.dataset, self.target))
        tight = ad.Sinkhorn(epsilon=float(step.state["epsilon"]), tol=1e-8)
        functional = ad.OTDD(target, cost=self.cost, solver=tight)
        exact = next(ad.iterate(state, functional, dynamics=self.dynamics))
        # velocities are gradients ÷ mass, and the masses are equal
        gradients = [_relative(step.velocity[name], of) for name, of in exact.velocity.items()]
        return abs(step.value / exact.value - 1), max(gradients)


def _relative(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.double() - exact.double()).norm() / exact.double().norm())


def measure(case: Case, given: argparse.Namespace, operands: Operands) -> dict[str, Any]:
    """One row of the table, without memory. Products are timed before and after: other machines on
    the same host come and go.
    """
    steps, before = given.steps, product_time(operands)
    wanted = tuple(sorted({0, steps // 2, steps - 1}))
    seconds, kept = case.walk(steps, wanted)
    products = (before + product_time(operands)) / 2
    steps = len(seconds)
    later = seconds[steps // 2 :]
    with split() as parts:
        case.walk(steps)
    row: dict[str, Any] = {
        "ratio": sum(seconds) / steps / products,
        "first": seconds[0] / products,
        "later": sum(later) / len(later) / products,
        "split": {part: parts[part] / steps / products for part in PARTS},
        "seconds": sum(seconds) / steps,
        "products": products,
        "threads": torch.get_num_threads(),
    }
    row["error"] = max(map(case.label_error, kept))
    each = [case.label_effect(step) for step in kept]
    row["value_error"], row["gradient_error"] = map(max, zip(*each, strict=True))
    few = min(given.exact, steps)
    row["exact"] = sum(case.exactly().walk(few)[0]) / sum(seconds[:few]) if few else math.nan
    each = [case.errors(step) for step in kept] if given.tight else [(math.nan, math.nan)]
    row["tight_value_error"], row["tight_gradient_error"] = map(max, zip(*each, strict=True))
    return row


def memory(names: Pair, n: int, case: str) -> None:
    source, target = images(names, n)
    dynamics, cost = CASES[case]
    small = [data.sample(60) for data in (source, target)]
    ad.flow(
        small[0], ad.OTDD(small[1], cost=cost), dynamics=dynamics, n_steps=1
    )  # libraries and buffers loaded
    side_by_side(
        torch.linalg.eigh, [torch.eye(200, dtype=torch.float64)] * 4, rows=200
    )  # those of other threads too
    print(
        additional_peak(
            lambda: ad.flow(source, ad.OTDD(target, cost=cost), dynamics=dynamics, n_steps=2)
        )
    )


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=pair, nargs="+", help="source:target, by name")
    parser.add_argument("--sizes", type=int, nargs="+")
    parser.add_argument("--weights", type=float, nargs="+", help="of labels")
    parser.add_argument("--cases", nargs="+", default=[""], help="parts of names, such as jd-fl")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--exact", type=int, default=4, help="steps with exact label distances")
    parser.add_argument("--tight", action="store_true", help="errors against a tight solve too")
    parser.add_argument("--quick", action="store_true", help="one pair, 500 samples, 6 steps")
    parser.add_argument("--json", type=Path, help="write the rows here too")
    parser.add_argument("--add", action="store_true", help="keep the other rows of that file")
    parser.add_argument("--memory", nargs=2, help=argparse.SUPPRESS)
    given, quick = parser.parse_args(), parser.parse_args().quick
    given.pairs = given.pairs or default_pairs()[: 1 if quick else None]
    given.sizes = given.sizes or ([500] if quick else [500, 2000])
    given.weights = given.weights or ([1.0] if quick else [1.0, 5.0])
    given.steps = given.steps or (6 if quick else 20)
    return given


def show(row: dict[str, Any]) -> None:
    peak = "" if row["memory"] is None else f"{row['memory']:.1f}"
    parts = "  ".join(f"{row['split'][part]:{len(part)}.1f}" for part in PARTS)
    errors = (row[name] for name in ("value_error", "gradient_error", "error"))
    print(
        f"{row['n']:6d}  {row['label_weight']:6g}  {row['dynamics']:20s}  {row['ratio']:5.1f}  {row['first']:5.1f}"
        f"  {row['later']:5.1f}  {row['exact']:5.1f}  | {parts} |  "
        + "  ".join(f"{e:7.0e}" for e in errors),
        f" {peak:>6s}",
        flush=True,
    )


def table(given: argparse.Namespace, names: Pair, cases: list[str]) -> list[dict[str, Any]]:
    """All rows of a pair of datasets."""
    rows = []
    for n in given.sizes:
        source, target = images(names, n)
        x, y, plan = source.x, target.x, torch.rand(len(source), len(target))
        own = torch.rand(len(source), len(source))
        operands = [(x, y.T), (x, x.T), (plan, y), (own, x)]
        for case in cases:
            for weight in given.weights:
                Case(case, weight, source.sample(60), target.sample(60)).walk(1)  # libraries loaded
                row = measure(Case(case, weight, source, target), given, operands)
                peak = None
                if weight == given.weights[0]:
                    arguments = ("--pairs", ":".join(names), "--memory", str(n), case)
                    peak = float(in_fresh_process(sys.argv[0], *arguments))
                about = {"pair": list(names), "n": n, "m": len(target), "d": source.dim}
                about |= {"dynamics": case, "label_weight": weight}
                row |= {"memory": None if peak is None else peak / (4 * n * n), "bytes": peak}
                rows.append(about | {k: None if v != v else v for k, v in row.items()})
                show(about | row)
        print(flush=True)
    return rows


def _kept(path: Path | None) -> list[dict[str, Any]]:
    """The rows of a file of an earlier run."""
    found = json.loads(path.read_text()) if path and path.exists() else {}
    return [*found.get("rows", []), *found.get("others", [])]


def _setting(row: dict[str, Any]) -> tuple[Any, ...]:
    return (*row["pair"], row["n"], row["dynamics"], row["label_weight"])


def main() -> None:
    given = options()
    if given.memory:
        return memory(given.pairs[0], int(given.memory[0]), given.memory[1])
    cases = [case for case in CASES if any(part in case for part in given.cases)]
    print(
        f"{torch.get_num_threads()} threads, float32, debiased, epsilon = 1 % of the mean cost; "
        f"{given.steps} steps; all times ÷ the four products\n"
    )
    kept = _kept(given.json) if given.add else []
    rows = []
    for names in given.pairs:
        print(
            f"{' → '.join(names)}\n     n  weight  {'dynamics':20s}  whole  first  later  exact",
            end="",
        )
        print(f"  | {'  '.join(PARTS)} |    value  gradient  labels    peak")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            own = table(given, names, cases)
        rows += own
        facts = {"benchmark": "flow", **code(), "steps": given.steps, "step_size": STEP_SIZE}
        for row in own:
            row |= {"steps": given.steps, "commit": facts["commit"], "date": facts["date"]}
        new = {_setting(row) for row in rows}
        old = [row for row in kept if _setting(row) not in new]
        write_json(given.json, facts | by_first([*old, *rows]))
        for case in cases if len(given.sizes) > 1 else []:
            chosen = [r for r in own if r["dynamics"] == case and r["bytes"] is not None]
            powers = [
                growth(given.sizes, [r[name] for r in chosen]) for name in ("seconds", "bytes")
            ]
            print(f"growth of {case}: time n^{powers[0]:.2f}, memory n^{powers[1]:.2f}")
    return None


if __name__ == "__main__":
    main()
