"""Two versions of the code, one after the other in turns, so that the machine's moods fall on both alike.

    python benchmarks/versions.py path/to/other/src [--small] [--repeats 5] [--json FILE]

Each case runs in a process of its own, this version and the other in turns. A row gives the median over repeats of the time
of a step (or a distance) of each, and their ratio: this version over the other, below 1 where this one is faster; and how
far the ratios of single turns are apart, since a ratio within that is no difference. With --small the problems
are five Gaussian classes in 2 and 64 dimensions with 20 to 200 samples: a distance, a step of a flow, and a pair
of ``pairwise`` on five datasets.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
DYNAMICS = ("fd, laws detached", "fd, through laws", "jd-fl, factored laws", "jd-vl, diagonal laws")


def small(case: str, n: int, dim: int) -> float:
    """Seconds of the fastest of many small problems."""
    import torch

    import advect as ad

    centres = 3 * torch.randn(5, dim, generator=torch.Generator().manual_seed(7))
    labels = torch.arange(n) % 5

    def draw(seed: int, shift: float) -> ad.LabeledDataset:
        noise = torch.randn(n, dim, generator=torch.Generator().manual_seed(seed))
        return ad.LabeledDataset(centres[labels] + noise + shift, labels.tolist())

    sets = [draw(seed, 0.3 * seed) for seed in range(5)]
    steps = iter(ad.iterate(sets[0], ad.OTDD(sets[3]), integrator=ad.Euler(0.2)))
    runs = {
        "distance": (lambda: ad.otdd(sets[0].replace(), sets[3].replace()).value, 1, 40),
        "step": (lambda: next(steps), 1, 40),
        "pairwise": (
            lambda: ad.pairwise([data.replace() for data in sets], progress=False),
            10,
            6,
        ),
    }
    run, parts, repeats = runs[case]
    run(), run()  # imports, and the first steps
    times = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        times.append((time.process_time() - start) / parts)
    return min(times)


def measure(case: str, n: int) -> float:
    """Seconds of a step of a flow, or of a distance; in a process that does nothing else.

    Only public names are used, which both versions have.
    """
    import torch

    import advect as ad

    if " d=" in case:
        kind, dim = case.split(" d=")
        return small(kind, n, int(dim))
    # of the processor on one thread, where other programs do not count, and of the wall on several
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    names = ["fashion_mnist", "mnist"] if os.environ.get("ADVECT_DATA") else ["digits", "mnist"]
    source, target = ad.harmonize(*(ad.datasets.load(name, n=n) for name in names))
    if case == "distance":
        times = []
        for _ in range(4):
            start = clock()
            ad.otdd(source, target, solver=ad.Sinkhorn(tol=1e-3))
            times.append(clock() - start)
        return min(times[1:])
    dynamics = {
        "fd, laws detached": ad.FeatureDriven(through_laws=False),
        "fd, through laws": ad.FeatureDriven(through_laws=True),
        "jd-fl, factored laws": ad.JointFixedLabels(),
        "jd-vl, diagonal laws": ad.JointVariableLabels(every=10),
    }[case]
    cost = ad.GroundCost(label=ad.Bures(diagonal="diagonal" in case))
    steps, start = 10, clock()
    for step in ad.iterate(
        source, ad.OTDD(target, cost=cost), dynamics=dynamics, integrator=ad.Euler(0.2)
    ):
        if step.index == steps - 1:
            break
    return (clock() - start) / steps


def run(source: Path, case: str, n: int) -> float:
    environment = {**os.environ, "PYTHONPATH": str(source)}
    command = [sys.executable, __file__, str(source), "--measure", case, str(n)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path, help="the src folder of the other version")
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 2000])
    parser.add_argument("--small", action="store_true", help="20 to 200 samples")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the rows here too")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(measure(options.measure[0], int(options.measure[1])))
        return
    sizes, cases = options.sizes, (*DYNAMICS, "distance")
    if options.small:
        sizes = [20, 100, 200]
        cases = [f"{kind} d={dim}" for kind in ("distance", "step", "pairwise") for dim in (2, 64)]
    rows = []
    print(
        f"{'n':>6}  {'case':24}{'this, ms':>10}{'other, ms':>11}{'this / other':>14}  ratios of single turns"
    )
    for n in sizes:
        for case in cases:
            turns = [
                (run(HERE.parent / "src", case, n), run(options.other.resolve(), case, n))
                for _ in range(options.repeats)
            ]
            this, other = (statistics.median(side) for side in zip(*turns, strict=True))
            single = sorted(a / b for a, b in turns)
            rows.append(
                {
                    "n": n,
                    "case": case,
                    "this": this,
                    "other": other,
                    "ratio": statistics.median(single),
                    "turns": single,
                }
            )
            print(
                f"{n:6}  {case:24}{1e3 * this:10.1f}{1e3 * other:11.1f}{statistics.median(single):14.3f}"
                f"  {single[0]:.2f} to {single[-1]:.2f}",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
