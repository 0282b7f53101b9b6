"""A flow step against the four matrix products it cannot avoid, as ratios of one run: digits to MNIST, d = 784, 10 classes.

    python benchmarks/flow.py [--sizes 500 2000 5000] [--steps 16]

products    x yᵀ, x xᵀ, P y, P_xx x in float32
steady      each dynamics is timed from a state 13 Euler steps of size 0.5 down the flow, after --steps steps of size 0.1 of
            its own, as the mean over as many more
error       the worst of the label distances at that state, relative, against float64
"""

from __future__ import annotations

import argparse
import sys

import torch
from common import additional_peak, clock, digits_and_mnist, growth, in_fresh_process, product_time

import advect as ad
from advect._threads import side_by_side

FULL = ad.GroundCost()
CASES = {
    "fd, laws detached": (ad.FeatureDriven(through_laws=False), FULL),
    "fd, through laws": (ad.FeatureDriven(through_laws=True), FULL),
    "jd-fl, factored laws": (ad.JointFixedLabels(), FULL),
    "jd-vl, diagonal laws": (ad.JointVariableLabels(every=10), ad.GroundCost(label=ad.Bures(diagonal=True))),
}


def steady_state(n: int) -> tuple[ad.LabeledDataset, ad.LabeledDataset]:
    source, target = digits_and_mnist(n)
    return ad.flow(source, ad.OTDD(target, cost=FULL), integrator=ad.Euler(0.5), n_steps=13).dataset, target


def step_time(source: ad.LabeledDataset, target: ad.LabeledDataset, case: str, steps: int) -> float:
    dynamics, cost = CASES[case]
    walk = ad.iterate(source, ad.OTDD(target, cost=cost), dynamics=dynamics, integrator=ad.Euler(0.1))
    for _ in range(steps + 1):
        next(walk)
    start = clock()
    for _ in range(steps):
        next(walk)
    return (clock() - start) / steps


def label_error(source: ad.LabeledDataset, target: ad.LabeledDataset) -> float:
    """The worst relative error of a label distance between the classes of both, against float64."""
    exact = ad.Bures()(source.to(dtype=torch.float64), target.to(dtype=torch.float64))
    return float(((ad.Bures()(source, target) - exact).abs() / exact).max())


def memory(n: int, case: str) -> None:
    source, target = digits_and_mnist(n)
    dynamics, cost = CASES[case]
    small = [data.sample(60) for data in (source, target)]
    ad.flow(small[0], ad.OTDD(small[1], cost=cost), dynamics=dynamics, n_steps=1)  # libraries and buffers loaded
    side_by_side(torch.linalg.eigh, [torch.eye(200, dtype=torch.float64)] * 4, rows=200)  # those of other threads too
    print(additional_peak(lambda: ad.flow(source, ad.OTDD(target, cost=cost), dynamics=dynamics, n_steps=2)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 2000, 5000])
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--cases", default="", help="only dynamics whose name has this in it, such as jd-fl")
    parser.add_argument("--memory", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        return memory(int(options.memory[0]), options.memory[1])
    print(f"{torch.get_num_threads()} threads, float32, debiased, epsilon = 1 % of the mean cost, marginal error 1e-3\n")
    print("     n  dynamics                     step / products  worst label error  peak / n² floats")
    cases = [case for case in CASES if options.cases in case]
    times: dict[str, list[float]] = {case: [] for case in cases}
    peaks: dict[str, list[float]] = {case: [] for case in cases}
    for n in options.sizes:
        source, target = steady_state(n)
        plan = torch.rand(n, n)
        products = product_time([(source.x, target.x.T), (source.x, source.x.T), (plan, target.x), (plan, source.x)])
        del plan
        worst = label_error(source, target)
        for case in cases:
            seconds = step_time(source, target, case, options.steps)
            peak = float(in_fresh_process(sys.argv[0], "--memory", str(n), case))
            times[case].append(seconds)
            peaks[case].append(peak)
            print(f"{n:6d}  {case:27s}  {seconds / products:15.2f}  {worst:17.1e}  {peak / (4 * n * n):16.1f}", flush=True)
        print(f"        products: {1e3 * products:.0f} ms\n", flush=True)
    if len(options.sizes) > 1:
        for case in cases:
            time_power, memory_power = growth(options.sizes, times[case]), growth(options.sizes, peaks[case])
            print(f"growth of {case}: time n^{time_power:.2f}, memory n^{memory_power:.2f}")
    return None


if __name__ == "__main__":
    main()
