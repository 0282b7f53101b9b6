"""A flow step against the four matrix products it cannot avoid, as ratios of one run: digits to MNIST, d = 784, 10 classes.

    python benchmarks/flow.py [--sizes 500 2000 5000] [--steps 16]

products    x yᵀ, x xᵀ, P y, P_xx x in float32
steady      each dynamics is timed from a state 13 Euler steps of size 0.5 down the flow, after --steps steps of size 0.1 of
            its own, as the mean over as many more (refreshes of label distances included)
lagged      label distances within 1e-3 of exact (Bures(tolerance=1e-3)); the worst relative error of any pair of classes at any
            step is printed, from the same steps walked again with an exact distance beside each (every n/1000-th of them)
exact       every label distance decomposed at every step: all steps cost the same, and a few are timed
"""

from __future__ import annotations

import argparse
import sys

import torch
from common import additional_peak, clock, digits_and_mnist, growth, in_fresh_process, product_time

import advect as ad
from advect._threads import side_by_side
from advect.cost.lagged import LaggedBures

LAGGED, EXACT = ad.GroundCost(label=ad.Bures(tolerance=1e-3)), ad.GroundCost(label=ad.Bures())
CASES = {
    "fd, laws detached, lagged": (ad.FeatureDriven(), LAGGED),
    "fd, laws detached, exact": (ad.FeatureDriven(), EXACT),
    "fd, through laws, lagged": (ad.FeatureDriven(through_laws=True), LAGGED),
    "fd, through laws, exact": (ad.FeatureDriven(through_laws=True), EXACT),
    "jd-fl, factored laws": (ad.JointFixedLabels(), EXACT),
    "jd-vl, diagonal laws": (ad.JointVariableLabels(every=10), ad.GroundCost(label=ad.Bures(diagonal=True))),
}


def steady_state(n: int) -> tuple[ad.LabeledDataset, ad.LabeledDataset]:
    source, target = digits_and_mnist(n)
    return ad.flow(source, ad.OTDD(target, cost=LAGGED), integrator=ad.Euler(0.5), n_steps=13).dataset, target


def step_time(source: ad.LabeledDataset, target: ad.LabeledDataset, case: str, steps: int) -> float:
    dynamics, cost = CASES[case]
    walk = ad.iterate(source, ad.OTDD(target, cost=cost), dynamics=dynamics, integrator=ad.Euler(0.1))
    steps = steps if cost is not EXACT else max(1, steps // 5)
    for _ in range(steps + 1):
        next(walk)
    start = clock()
    for _ in range(steps):
        next(walk)
    return (clock() - start) / steps


def worst_error(source: ad.LabeledDataset, target: ad.LabeledDataset, case: str, steps: int) -> float:
    """Of the label distances used in the same steps again, each against an exact one (not timed)."""
    dynamics, cost = CASES[case]
    if cost is not LAGGED:
        return 0.0
    errors, calls = [], 0

    class Checked(LaggedBures):
        def distances(self, source: ad.LabeledDataset, target: ad.LabeledDataset, product: torch.Tensor) -> torch.Tensor:
            nonlocal calls
            calls += 1
            used = super().distances(source, target, product)
            if calls // 2 % max(1, len(source) // 1000):  # two calls a step
                return used
            a = source.replace(x=source.x.detach().double(), fixed_laws=True)
            exact = ad.Bures()(a, a if self.symmetric else target.to(dtype=torch.float64))
            gaps = (used.detach() - exact).abs() / exact.clamp_min(1e-30)
            errors.append(float(gaps.fill_diagonal_(0).max() if self.symmetric else gaps.max()))
            return used

    functional = ad.OTDD(target, cost=cost)
    functional._lags = {side: Checked(1e-3, symmetric=side == "self") for side in ("cross", "self")}
    functional.reset = lambda: None
    walk = ad.iterate(source, functional, dynamics=dynamics, integrator=ad.Euler(0.1))
    for _ in range(2 * steps + 1):
        next(walk)
    return max(errors)


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
    parser.add_argument("--cases", default="", help="only dynamics whose name has this in it, such as lagged")
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
        for case in cases:
            seconds, worst = step_time(source, target, case, options.steps), worst_error(source, target, case, options.steps)
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
