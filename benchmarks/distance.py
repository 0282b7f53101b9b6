"""OTDD against the machine's limit and its peers, as ratios taken in one run.

    python benchmarks/distance.py [--pairs fashion_mnist:mnist …] [--sizes 500 1000 2000 5000]
                                  [--weights 1 5] [--quick] [--json FILE]

data        four pairs of real images where ADVECT_DATA has them, with digits → MNIST beside them; else those alone
products    the three float32 matrix products x yᵀ, x xᵀ, y yᵀ that the costs cannot avoid
cold        ad.otdd of datasets that it has not seen; full covariances, debiased, marginal error 1e-3
warm        the same once more: datasets remember the moments of their classes
split       where a cold call goes (common.split says what counts where), in units of the products
value       relative to float64 with exact label distances, the same epsilon and a marginal error of 1e-8; up to 2000 samples
geomloss    the same three solves under the same cost matrices, handed to it ready-made, to the same marginal error or its
            best, ÷ our solves; up to 2000 samples, and at the first weight only, as what follows
textbook    label distances through d × d roots by eigh (timed on a few pairs and scaled to all) ÷ ours; at 500 and 2000 samples
peak        resident memory that a distance adds at label weight 1, in n² floats
"""

from __future__ import annotations

import argparse
import math
import sys
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
    median_time,
    pair,
    product_time,
    split,
    write_json,
)
from peers import SOLVER, geomloss, label_tables, marginal_error, roots

import advect as ad
from advect.ot.solver import divergence
from advect.transport.distance import Distance

LARGEST_REFERENCE = 2000  # samples; a single call of geomloss takes minutes beyond
COLUMNS = (
    ("whole", " cold", ".1f"),
    ("warm", " warm", ".1f"),
    *((part, part, ".1f") for part in PARTS),
    ("value_error", "  value", ".0e"),
    ("error", "marginal", ".0e"),
    ("iterations", "iterations", ".0f"),
    ("geomloss", "geomloss ÷ solves", ".1f"),
    ("peer_error", "its error", ".0e"),
    ("textbook", "textbook ÷ labels", ".1f"),
    ("memory", "peak", ".1f"),
)


def measure(
    source: ad.LabeledDataset, target: ad.LabeledDataset, weight: float, *, peers: bool
) -> dict[str, Any]:
    """One row of the table, without memory."""
    n, x, y = len(source), source.x, target.x
    small = max(n, len(target)) <= LARGEST_REFERENCE
    cost = ad.GroundCost(label_weight=weight)
    products = product_time([(x, y.T), (x, x.T), (y, y.T)])

    def cold() -> None:  # copies have no remembered moments
        ad.otdd(source.replace(), target.replace(), cost=cost, solver=SOLVER)

    whole = median_time(cold, 3)
    with split() as parts:
        cold()
    warm = median_time(lambda: ad.otdd(source, target, cost=cost, solver=SOLVER), 3)
    distance = ad.otdd(source, target, cost=cost, solver=SOLVER)
    row: dict[str, Any] = {
        "products_ms": 1e3 * products,
        "whole": whole / products,
        "warm": warm / products,
        "split": {part: parts[part] / products for part in PARTS},
        "value_error": reference_error(distance, source, target, cost) if small else math.nan,
        "error": distance.marginal_error,
        "iterations": distance.n_iter,
        "seconds": whole,
    }
    return row | (against_peers(distance, source, target, small=small) if peers else {})


def reference_error(
    distance: Distance,
    source: ad.LabeledDataset,
    target: ad.LabeledDataset,
    cost: ad.GroundCost,
) -> float:
    """How far the value is from that in float64, relative."""
    tight = ad.Sinkhorn(epsilon=distance.epsilon, tol=1e-8)
    sides = (data.to(dtype=torch.float64) for data in (source, target))
    return abs(distance.value / ad.otdd(*sides, cost=cost, solver=tight).value - 1)


def against_peers(
    distance: Distance, source: ad.LabeledDataset, target: ad.LabeledDataset, *, small: bool
) -> dict[str, float]:
    """Our parts, and those of others beside them."""
    costs = [part.matrix() for part in distance.pairs]
    solver = ad.Sinkhorn(epsilon=distance.epsilon, tol=SOLVER.tol)
    solves = median_time(lambda: divergence(*costs, solver=solver), 3)
    labels = median_time(lambda: label_tables(source, target), 3)
    peer = peer_error = textbook = math.nan
    if small:
        (_, plan), run = geomloss(costs, distance.epsilon)
        peer_error, start = marginal_error(plan), clock()
        run()
        peer = clock() - start
    if len(source) in (500, 2000):
        textbook, _ = roots("eigh", source, target)
    return {
        "geomloss": peer / solves,
        "peer_error": peer_error,
        "textbook": textbook / labels,
    }


def memory(names: Pair, n: int) -> None:
    source, target = images(names, n)
    ad.otdd(
        *(data.sample(50) for data in (source, target)), solver=SOLVER
    )  # libraries and buffers loaded
    print(additional_peak(lambda: ad.otdd(source, target, solver=SOLVER)))


def show(row: dict[str, Any]) -> str:
    flat = row | row["split"]
    each = [
        ("" if flat.get(name) is None else f"{flat[name]:{form}}").rjust(len(title))
        for name, title, form in COLUMNS
    ]
    return f"{row['n']:6d}  {row['label_weight']:6g}  " + "  ".join(each)


def table(names: Pair, sizes: list[int], weights: list[float]) -> list[dict[str, Any]]:
    """All rows of a pair of datasets."""
    rows = []
    for n in sizes:
        source, target = images(names, n)
        for weight in weights:
            first = weight == weights[0]
            row = measure(source, target, weight, peers=first)
            peak = None
            if first:
                arguments = ("--pairs", ":".join(names), "--memory", str(n))
                peak = float(in_fresh_process(sys.argv[0], *arguments))
            row |= {"memory": None if peak is None else peak / (4 * n * n), "bytes": peak}
            row = {k: None if v != v else v for k, v in row.items()}
            about = {"pair": list(names), "n": n, "m": len(target), "d": source.dim}
            rows.append(about | {"label_weight": weight} | row)
            print(show(rows[-1]), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=pair, nargs="+", help="source:target, by name")
    parser.add_argument("--sizes", type=int, nargs="+")
    parser.add_argument("--weights", type=float, nargs="+", help="of labels")
    parser.add_argument("--quick", action="store_true", help="one pair, 500 samples")
    parser.add_argument("--json", type=Path, help="write the rows here too")
    parser.add_argument("--memory", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    pairs = given.pairs or default_pairs()[: 1 if given.quick else None]
    if given.memory:
        return memory(pairs[0], given.memory)
    sizes = given.sizes or ([500] if given.quick else [500, 1000, 2000, 5000])
    weights = given.weights or ([1.0] if given.quick else [1.0, 5.0])
    print(
        f"{torch.get_num_threads()} threads; epsilon = 1 % of the mean cost, marginal error 1e-3, "
        "float32; our times ÷ the three products"
    )
    rows: list[dict[str, Any]] = []
    for names in pairs:
        print(f"\n{' → '.join(names)}\n     n  weight  " + "  ".join(t for _, t, _ in COLUMNS))
        own = table(names, sizes, weights)
        rows += own
        write_json(given.json, {"benchmark": "distance", **code(), **by_first(rows)})
        if len(sizes) > 1:
            first = [row for row in own if row["bytes"] is not None]
            powers = [growth(sizes, [row[name] for row in first]) for name in ("seconds", "bytes")]
            print(f"growth with n: time n^{powers[0]:.2f}, memory n^{powers[1]:.2f}")
    return None


if __name__ == "__main__":
    main()
