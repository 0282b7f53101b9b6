"""OTDD against the machine's limit and its peers, as ratios taken in one run: digits to MNIST, d =
784, 10 classes.

    python benchmarks/distance.py [--sizes 500 1000 2000 5000]

products    the three float32 matrix products x yᵀ, x xᵀ, y yᵀ that the costs cannot avoid
geomloss    the same three solves under the same cost matrices, handed to it ready-made, to the same marginal error
textbook    label distances through d × d roots: S^½ once for each class, eigenvalues of S^½ S' S^½ for each pair (timed on a
            dozen pairs and scaled to all)
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import torch
from common import (
    additional_peak,
    digits_and_mnist,
    growth,
    in_fresh_process,
    median_time,
    product_time,
    write_json,
)

import advect as ad
from advect.ot import divergence

SOLVER = ad.Sinkhorn(epsilon=ad.Relative(0.01), tol=1e-3)


def geomloss_time(costs: list[torch.Tensor], epsilon: float) -> tuple[float, float]:
    """Seconds and marginal error of the cheapest geomloss run that meets our tolerance."""
    from geomloss import SamplesLoss

    cross, within_source, within_target = costs
    n, m = cross.shape
    tags = (
        torch.zeros(1, n, 1),
        torch.ones(1, m, 1),
    )  # say which side a cloud is, since geomloss wants points

    def cost(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        left, right = bool(x[0, 0, 0]), bool(y[0, 0, 0])
        return {(0, 0): within_source, (1, 1): within_target, (0, 1): cross, (1, 0): cross.T}[
            left, right
        ][None]

    a, b = torch.full((1, n), 1 / n), torch.full((1, m), 1 / m)
    options = {
        "loss": "sinkhorn",
        "p": 2,
        "blur": math.sqrt(epsilon),
        "cost": cost,
        "backend": "tensorized",
    }
    options["diameter"] = math.sqrt(2 * float(cross.max()))
    for scaling in (0.5, 0.8, 0.9, 0.95, 0.99):
        f, g = SamplesLoss(**options, scaling=scaling, debias=False, potentials=True)(
            a, tags[0], b, tags[1]
        )
        plan = torch.exp((f[0][:, None] + g[0][None, :] - cross) / epsilon) / (n * m)
        error = float((plan.sum(0) - b[0]).abs().sum() + (plan.sum(1) - a[0]).abs().sum())
        if error <= 1e-3 or scaling == 0.99:
            loss = SamplesLoss(**options, scaling=scaling, debias=True)
            return median_time(lambda loss=loss: loss(a, tags[0], b, tags[1]), 1), error
    raise AssertionError


def textbook_label_time(
    source: ad.LabeledDataset,
    target: ad.LabeledDataset,
    *,
    matrices: int,
    pairs: int,
    sample: int = 12,
) -> float:
    """Seconds for so many roots of d × d covariances and so many label distances by them."""
    covariances = torch.cat([data.moments().covariances().double() for data in (source, target)])
    k = len(covariances)
    jitter = 1e-9 * torch.eye(source.dim, dtype=torch.float64)

    def root(matrix: torch.Tensor) -> torch.Tensor:
        values, vectors = torch.linalg.eigh(matrix + jitter)
        return (vectors * values.clamp_min(0).sqrt()) @ vectors.T

    roots = median_time(lambda: [root(c) for c in covariances[:2]], 1) / 2 * matrices
    chosen = [(i % k, (7 * i + 3) % k) for i in range(sample)]
    ready = {i: root(covariances[i]) for i, _ in chosen}
    each = (
        median_time(
            lambda: [
                torch.linalg.eigvalsh(ready[i] @ covariances[j] @ ready[i]) for i, j in chosen
            ],
            1,
        )
        / sample
    )
    return roots + each * pairs


def fresh(data: ad.LabeledDataset) -> ad.LabeledDataset:
    return data.replace()  # without remembered moments


def label_distances(source: ad.LabeledDataset, target: ad.LabeledDataset) -> None:
    bures, source, target = ad.Bures(), fresh(source), fresh(target)
    for pair in ((source, target), (source, source), (target, target)):
        bures(*pair)


def measure(n: int) -> dict[str, float]:
    source, target = digits_and_mnist(n)
    x, y = source.x, target.x
    products = product_time([(x, y.T), (x, x.T), (y, y.T)])
    whole = median_time(lambda: ad.otdd(fresh(source), fresh(target), solver=SOLVER), 3)
    distance = ad.otdd(source, target, solver=SOLVER)
    costs = [pair.matrix() for pair in distance.pairs]
    solver = ad.Sinkhorn(epsilon=distance.epsilon, tol=1e-3)
    solves = median_time(lambda: divergence(*costs, solver=solver), 3)
    labels = median_time(lambda: label_distances(source, target), 3)
    # minutes for a single call beyond this size
    peer, peer_error = geomloss_time(costs, distance.epsilon) if n <= 2000 else (math.nan, math.nan)
    k = len(source.classes)
    pairs = k * k + 2 * math.comb(k, 2)  # of the three problems
    textbook = (
        textbook_label_time(source, target, matrices=2 * k, pairs=pairs)
        if n in (500, 2000)
        else math.nan
    )
    memory = float(in_fresh_process(sys.argv[0], "--memory", str(n)))
    return {
        "products_ms": 1e3 * products,
        "whole": whole / products,
        "solves": solves / products,
        "labels": labels / products,
        "iterations": distance.n_iter,
        "error": distance.marginal_error,
        "geomloss": peer / solves,
        "peer_error": peer_error,
        "textbook": textbook / labels,
        "memory": memory / (4 * n * n),
        "seconds": whole,
        "bytes": memory,
    }


def memory(n: int) -> None:
    source, target = digits_and_mnist(n)
    ad.otdd(
        *(data.sample(50) for data in (source, target)), solver=SOLVER
    )  # libraries and buffers loaded
    print(additional_peak(lambda: ad.otdd(source, target, solver=SOLVER)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 1000, 2000, 5000])
    parser.add_argument("--json", type=Path, help="write the rows here too")
    parser.add_argument("--memory", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        return memory(options.memory)
    print(
        f"{torch.get_num_threads()} threads; epsilon = 1 % of the mean cost, marginal error 1e-3, "
        "float32\n"
    )
    columns = (
        ("products_ms", "products, ms", "8.1f"),
        ("whole", "distance / products", ".2f"),
        ("solves", "solves / products", ".2f"),
        ("labels", "labels / products", ".2f"),
        ("geomloss", "geomloss / solves", ".1f"),
        ("peer_error", "its error", ".0e"),
        ("textbook", "textbook / labels", ".1f"),
        ("memory", "peak / n² floats", ".1f"),
        ("iterations", "iterations", ".0f"),
        ("error", "error", ".0e"),
    )
    print("     n  " + "  ".join(title for _, title, _ in columns))
    rows = {}
    for n in options.sizes:
        row = rows[n] = measure(n)
        print(
            f"{n:6d}  "
            + "  ".join(f"{row[name]:{form}}".rjust(len(title)) for name, title, form in columns),
            flush=True,
        )
    each = [
        {"n": n, **{k: None if v != v else v for k, v in row.items()}} for n, row in rows.items()
    ]
    write_json(options.json, {"threads": torch.get_num_threads(), "rows": each})
    if len(rows) > 1:
        sizes = list(rows)
        print(
            f"\ngrowth with n: time n^{growth(sizes, [rows[n]['seconds'] for n in sizes]):.2f},",
            end=" ",
        )
        print(f"memory n^{growth(sizes, [rows[n]['bytes'] for n in sizes]):.2f}")
    return None


if __name__ == "__main__":
    main()
