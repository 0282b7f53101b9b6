"""A whole flow from its start, a step against the four matrix products it cannot avoid, as ratios
of one run.

    python benchmarks/flow.py [--sizes 500 2000] [--steps 20] [--pair digits mnist] [--json FILE]

data        Fashion-MNIST to MNIST where ADVECT_DATA has them, else digits to MNIST; d = 784, 10 classes, full covariances
products    x yᵀ, x xᵀ, P y, P_xx x in float32
step        the mean over --steps Euler steps of 0.2 from the start: the first, cold evaluation counts, as it does for users
error       the worst label distance of the first, a middle and the last state, relative, against float64
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import torch
from common import additional_peak, clock, digits_and_mnist, growth, in_fresh_process, product_time

import advect as ad
from advect._util.threads import side_by_side

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


def images(names: list[str], n: int) -> tuple[ad.LabeledDataset, ad.LabeledDataset]:
    if names == ["digits", "mnist"]:
        return digits_and_mnist(n)
    source, target = ad.harmonize(*(ad.datasets.load(name, n=n) for name in names))
    return source, target


def step_time(
    source: ad.LabeledDataset, target: ad.LabeledDataset, case: str, steps: int
) -> tuple[float, float]:
    """Seconds of a step, and the worst label error of three states."""
    dynamics, cost = CASES[case]
    states, start = [], clock()
    for step in ad.iterate(
        source, ad.OTDD(target, cost=cost), dynamics=dynamics, integrator=ad.Euler(0.2)
    ):
        states += [step.dataset] if step.index in (0, steps // 2, steps - 1) else []
        if step.index == steps - 1:
            break
    seconds = (clock() - start) / steps
    return seconds, max(
        label_error(state.replace(law=None, law_index=None), target) for state in states
    )


def label_error(source: ad.LabeledDataset, target: ad.LabeledDataset) -> float:
    """The worst relative error of a label distance between the classes of both, against float64."""
    exact = ad.Bures()(source.to(dtype=torch.float64), target.to(dtype=torch.float64))
    return float(((ad.Bures()(source, target) - exact).abs() / exact).max())


def memory(names: list[str], n: int, case: str) -> None:
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    real = "ADVECT_DATA" in os.environ
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 2000])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument(
        "--pair", nargs=2, default=["fashion_mnist", "mnist"] if real else ["digits", "mnist"]
    )
    parser.add_argument(
        "--cases", default="", help="only dynamics whose name has this in it, such as jd-fl"
    )
    parser.add_argument("--json", type=Path, help="write the rows here too")
    parser.add_argument("--memory", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        return memory(options.pair, int(options.memory[0]), options.memory[1])
    print(
        f"{' → '.join(options.pair)}, {torch.get_num_threads()} threads, float32, debiased, "
        "epsilon = 1 % of the mean cost\n"
    )
    print(
        "     n  dynamics                     step / products  worst label error  peak / n² floats"
    )
    cases = [case for case in CASES if options.cases in case]
    rows = []
    for n in options.sizes:
        source, target = images(options.pair, n)
        plan = torch.rand(n, n)
        products = product_time(
            [(source.x, target.x.T), (source.x, source.x.T), (plan, target.x), (plan, source.x)]
        )
        del plan
        for case in cases:
            seconds, worst = step_time(source, target, case, options.steps)
            peak = float(
                in_fresh_process(sys.argv[0], "--pair", *options.pair, "--memory", str(n), case)
            )
            row = {
                "n": n,
                "dynamics": case,
                "ratio": seconds / products,
                "error": worst,
                "memory": peak / (4 * n * n),
            }
            rows.append(row | {"seconds": seconds, "bytes": peak})
            print(
                f"{n:6d}  {case:27s}  {row['ratio']:15.2f}  {worst:17.1e}  {row['memory']:16.1f}",
                flush=True,
            )
        print(f"        products: {1e3 * products:.0f} ms\n", flush=True)
    for case in cases if len(options.sizes) > 1 else []:
        own = [row for row in rows if row["dynamics"] == case]
        time_power, memory_power = (
            growth(options.sizes, [row[name] for row in own]) for name in ("seconds", "bytes")
        )
        print(f"growth of {case}: time n^{time_power:.2f}, memory n^{memory_power:.2f}")
    if options.json is not None:
        facts = {
            "pair": options.pair,
            "steps": options.steps,
            "step_size": 0.2,
            "threads": torch.get_num_threads(),
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(facts | {"rows": rows}, indent=1) + "\n")
    return None


if __name__ == "__main__":
    main()
