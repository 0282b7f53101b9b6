"""A flow on 1, 2 and 4 ranks: what each rank does and says at every step; digits to MNIST, d = 784,
10 classes, gloo.

    python benchmarks/ranks.py [--n 2000] [--ranks 1 2 4] [--steps 4]

work        processor time of a rank's own thread in a step, one thread each, mean over steps and ranks: it does not
            count waiting, so that it can be measured with more ranks than cores
rows        of the n × m matrices on the busiest rank
iterations  of the problem to the target, I (each sums m numbers over ranks and gathers n), and within, J (each gathers n)
payload     bytes of all collectives of a step, counted; and what it should be up to a few numbers, 4 ((n + m) I + n J + n d)
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from common import digits_and_mnist, side_by_side, write_json

import advect as ad
import advect.distributed


def measure(n: int, steps: int) -> None:
    """One rank: walk, and print what the steps after the first took."""
    source, target = digits_and_mnist(n)
    with advect.distributed.group() as group:
        functional = ad.OTDD(target, group=group)
        walk = ad.iterate(source, functional, integrator=ad.Euler(0.3))
        next(walk)
        sent = group.sent
        begun = time.thread_time()
        states = [next(walk).state for _ in range(steps)]
        seconds = (time.thread_time() - begun) / steps
        payload = (group.sent - sent) / steps
        names = ("iterations", "self_iterations")
        mean = {name: sum(float(state[name]) for state in states) / steps for name in names}
        rows = group.rows(len(source))
        mean |= {"rows": rows.stop - rows.start, "seconds": seconds, "payload": payload}
        print(json.dumps({**mean, "m": len(target), "d": source.dim}))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=2000)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--json", type=Path, help="write the rows here too")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        return measure(options.n, options.steps)
    print(
        f"n = m = {options.n}, float32, epsilon = 1 % of the mean cost, marginal error 1e-3, laws "
        "detached\n"
    )
    print(
        "ranks   rows  work of a rank  of one rank's  iterations  payload, MB a step  by the "
        "formula"
    )
    first, kept = None, []
    for size in options.ranks:
        command = [__file__, "--measure", "--n", str(options.n), "--steps", str(options.steps)]
        found = side_by_side(command, size)
        work = sum(rank["seconds"] for rank in found) / size
        first = first or work
        one, rows = found[0], max(rank["rows"] for rank in found)
        across, within = one["iterations"], one["self_iterations"]
        formula = 4 * ((options.n + one["m"]) * across + options.n * (within + one["d"]))
        print(
            f"{size:5d}  {rows:5.0f}  {work:12.2f} s  {work / first:13.2f}  {across:5.1f} "
            f"{within:4.1f}"
            f"  {one['payload'] / 1e6:18.2f}  {formula / 1e6 if size > 1 else 0:14.2f}",
            flush=True,
        )
        row = {"ranks": size, "rows": round(rows), "seconds": work, "of one": work / first}
        row |= {"iterations": f"{across:.0f}, {within:.0f}", "payload": one["payload"]}
        kept.append(row | {"formula": formula if size > 1 else 0})
    write_json(options.json, {"n": options.n, "rows": kept})
    return None


if __name__ == "__main__":
    main()
