"""A whole flow step, full covariances, against the same step put together from textbook parts, as
one ratio of one run.

    python benchmarks/peers.py [--sizes 500 2000] [--steps 16]

ours        a step in the steady state (as in flow.py), label laws estimated anew at each, label distances within 1e-3 of exact
textbook    the parts that a step cannot do without, each at its best here: label distances of source to target and within
            the source through d × d roots (timed on a dozen pairs and scaled), and geomloss's debiased divergence under
            ready-made cost matrices. Moments, costs and gradients of that route are left out, which is to its advantage.
"""

from __future__ import annotations

import argparse
import math

import torch
from distance import SOLVER, geomloss_time, textbook_label_time
from flow import steady_state, step_time

import advect as ad

CASE = "fd, laws detached"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 2000])
    parser.add_argument("--steps", type=int, default=16)
    options = parser.parse_args()
    print(f"{torch.get_num_threads()} threads, float32, digits to MNIST, d = 784, 10 classes\n")
    print(
        "     n  our step, ms  roots / our step  geomloss / our step  (its marginal error, ours "
        "1e-3)  together"
    )
    for n in options.sizes:
        source, target = steady_state(n)
        ours = step_time(source, target, CASE, options.steps)
        pairs = len(source.classes) * len(target.classes) + math.comb(len(source.classes), 2)
        roots = textbook_label_time(source, target, matrices=len(source.classes), pairs=pairs)
        distance = ad.otdd(source, target, solver=SOLVER)
        solves, error = geomloss_time([pair.matrix() for pair in distance.pairs], distance.epsilon)
        ratios = f"{roots / ours:16.1f}  {solves / ours:19.1f}  {error:32.0e}  {(roots + solves) / ours:8.0f}"
        print(f"{n:6d}  {1e3 * ours:12.0f}  {ratios}", flush=True)


if __name__ == "__main__":
    main()
