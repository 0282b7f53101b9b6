"""Time, memory and error by route as n grows: digits to MNIST with noise, d = 784, 10 classes,
every row in a fresh process.

    python benchmarks/scale.py [--quick] [--sizes 1000 2000 5000 10000 20000 60000]

dense           ad.otdd as it comes, with all matrices in memory (up to 10,000 samples)
blocked         the same distance within 2 GiB (up to 20,000)
mini-batch      MiniBatch of 2000 with the same solver; its bias is the error printed
sliced          500 projections: a lower bound of another kind, whose ratio to the exact distance is printed

error           |value/exact − 1| at the same n where exact runs; beyond, on a part of the size of the largest dense run
growth          p of time, or memory, ~ n^p over the last sizes, which label distances of d × d (the same for all n) do not hide
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from common import additional_peak, clock, digits_and_mnist, growth, in_fresh_process, write_json

import advect as ad

SOLVER = ad.Sinkhorn(epsilon=ad.Relative(0.01), tol=1e-3)
LIMIT = "2GiB"
ROUTES = {
    "dense": (lambda a, b: ad.otdd(a, b, solver=SOLVER, memory_limit="1TiB").value, 10_000),
    "blocked": (lambda a, b: ad.otdd(a, b, solver=SOLVER, memory_limit=LIMIT).value, 20_000),
    "mini-batch": (
        lambda a, b: ad.otdd(a, b, solver=ad.MiniBatch(SOLVER, 2000), memory_limit=LIMIT).value,
        10**9,
    ),
    "sliced": (
        lambda a, b: ad.sliced_otdd(a, b, 500, generator=torch.Generator().manual_seed(0)).value,
        10**9,
    ),
}
FLOWS = {
    "dense": (lambda b: ad.OTDD(b, memory_limit="1TiB"), 5000),
    "blocked": (lambda b: ad.OTDD(b, memory_limit="256MiB"), 5000),
    "sliced": (lambda b: ad.SlicedOTDD(b, 100), 10**9),
}


def distance_row(route: str, n: int, part: int) -> dict[str, float]:
    """One distance between n and n samples, or between the first ``part`` of them."""
    source, target = (data.subset(torch.arange(part or n)) for data in digits_and_mnist(n))
    small = [
        data.sample(200, generator=torch.Generator().manual_seed(0)) for data in (source, target)
    ]
    call = ROUTES[route][0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a small rank does not converge, which the error shows
        call(*small)  # libraries and buffers loaded
        begun = clock()
        values = []
        peak = additional_peak(lambda: values.append(call(source, target)))
    return {"seconds": clock() - begun, "bytes": peak, "value": values[0]}


def flow_row(route: str, n: int, steps: int = 2) -> dict[str, float]:
    """Seconds of a flow step, after one that starts cold."""
    source, target = digits_and_mnist(n)
    walk = ad.iterate(source, FLOWS[route][0](target), integrator=ad.Euler(0.1))
    next(walk)
    seconds = []

    def some() -> None:
        for _ in range(steps):
            begun = clock()
            next(walk)
            seconds.append(clock() - begun)

    peak = additional_peak(some)
    return {"seconds": sum(seconds) / steps, "bytes": peak}


def fresh(*arguments: object) -> dict[str, float]:
    return json.loads(in_fresh_process(sys.argv[0], *map(str, arguments)))


def exponents(rows: dict[int, dict[str, float]]) -> str:
    sizes = sorted(rows)[-3:]
    if len(sizes) < 2:
        return ""
    powers = (
        growth(sizes, [max(rows[n][name], 1.0 if name == "bytes" else 1e-9) for n in sizes])
        for name in ("seconds", "bytes")
    )
    return "  growth over {} … {}: time n^{:.2f}, memory n^{:.2f}".format(
        sizes[0], sizes[-1], *powers
    )


def distances(sizes: list[int], largest_exact: int) -> list[dict[str, Any]]:
    print(f"{'route':15s} {'n':>6s} {'seconds':>9s} {'peak, MiB':>10s} {'value':>9s} {'error':>9s}")
    values: dict[tuple[str, int], float] = {}
    parts: dict[tuple[str, int, int], float] = {}
    found: list[dict[str, Any]] = []
    for route, (_, most) in ROUTES.items():
        rows = {}
        reference = "dense"
        for n in (n for n in sizes if n <= min(most, largest_exact if "dense" in route else most)):
            row = rows[n] = fresh("--distance", route, n, 0)
            values[route, n] = row["value"]
            if reference == "dense" and route == "blocked" and ("dense", n) not in values:
                values["dense", n] = row[
                    "value"
                ]  # the same distance, beyond where all matrices are kept
            exact = values.get((reference, n), math.nan)
            error, note = abs(row["value"] / exact - 1), ""
            if math.isnan(exact) and (
                known := [k for r, k in values if r == reference and k <= largest_exact]
            ):
                part = max(known)  # a part of that size, both ways
                if (reference, n, part) not in parts:
                    parts[reference, n, part] = fresh("--distance", reference, n, part)["value"]
                there = fresh("--distance", route, n, part)["value"]
                error, note = abs(there / parts[reference, n, part] - 1), f" (on {part})"
            columns = f"{row['seconds']:9.1f} {row['bytes'] / 2**20:10.0f} {row['value']:9.4f} {error:9.1e}{note}"
            print(f"{route:15s} {n:6d} {columns}", flush=True)
            kept = {} if math.isnan(error) or route.startswith("dense") else {"error": error}
            found.append({"route": route, "n": n, **row, **kept})
        print(exponents(rows) + "\n", flush=True)
    return found


def flows(sizes: list[int]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    print(f"{'flow step':15s} {'n':>6s} {'seconds':>9s} {'peak, MiB':>10s}")
    for route, (_, most) in FLOWS.items():
        rows = {}
        for n in (n for n in sizes if n <= most):
            row = rows[n] = fresh("--flow", route, n)
            print(
                f"{route:15s} {n:6d} {row['seconds']:9.2f} {row['bytes'] / 2**20:10.0f}", flush=True
            )
            found.append({"route": route, "n": n, **row})
        print(exponents(rows) + "\n", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[1000, 2000, 5000, 10_000, 20_000, 60_000]
    )
    parser.add_argument("--quick", action="store_true", help="1000, 2000 and 4000 samples")
    parser.add_argument("--json", type=Path, help="write the rows here too")
    parser.add_argument("--distance", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--flow", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.distance:
        print(
            json.dumps(
                distance_row(
                    options.distance[0], int(options.distance[1]), int(options.distance[2])
                )
            )
        )
    elif options.flow:
        print(json.dumps(flow_row(options.flow[0], int(options.flow[1]))))
    else:
        sizes = [1000, 2000, 4000] if options.quick else options.sizes
        print(
            f"{torch.get_num_threads()} threads, float32, epsilon = 1 % of the mean cost, marginal "
            "error 1e-3\n"
        )
        measured = {"distances": distances(sizes, 10_000), "flows": flows(sizes)}
        write_json(options.json, {"threads": torch.get_num_threads(), **measured})


if __name__ == "__main__":
    main()
