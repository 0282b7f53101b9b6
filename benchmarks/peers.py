"""Other code for the same problems, against ours: time as ratios of one run, and the accuracy each reached.

    python benchmarks/peers.py [--pairs fashion_mnist:mnist …] [--sizes 500 2000] [--quick] [--json FILE]

solve       entropic transport between source and target under one ready-made float32 cost matrix, epsilon 1 % of its mean, to
            a marginal error of 1e-3 (L1), or the best that a peer reaches:
              POT kernel      ot.sinkhorn(method="sinkhorn"), in float64, where the kernel does not vanish
              POT stabilised  ot.sinkhorn(method="sinkhorn_stabilized"), in float64
              geomloss        SamplesLoss, tensorized, float32, at the coarsest of its scalings that will do; else 0.99
labels      all label distances of a distance (three tables) from laws that are estimated anew, against d × d roots of
            covariances that are ready: S^½ once for each class, then for each pair (timed on a few, scaled to all)
              roots, eigh     torch.linalg.eigh and eigvalsh in float64
              roots, sqrtm    scipy.linalg.sqrtm in float64; up to 1000 dimensions
points      the same solve between 100 to 2000 Gaussian samples in 64 dimensions, all in float64, to a marginal error of 1e-6
            (L1): POT's time over ours, where POT runs to the same error; --points runs this part alone
distance    ad.otdd from scratch, against the parts that it could not do without elsewhere: roots by eigh for the labels and
            geomloss's debiased divergence. Moments and costs of that route are left out, which is to its advantage.

marginal    L1 error of both marginals of the plan, as it was handed out
value       for solves ⟨P, C⟩ + ε KL(P | a ⊗ b) of that plan, relative to a float64 solve to 1e-10; for labels the worst W₂² of
            the pairs that were timed, relative to ad.Bures in float64
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ot
import scipy.linalg
import torch
from common import Pair, clock, code, default_pairs, images, median_time, pair, write_json
from torch import Tensor

import advect as ad

TOL = 1e-3
SOLVER = ad.Sinkhorn(epsilon=ad.Relative(0.01), tol=TOL)
SCALINGS = (0.5, 0.8, 0.9, 0.95, 0.99)
Timed = tuple[float, Tensor]  # seconds, and the plan


def marginal_error(plan: Tensor) -> float:
    n, m = plan.shape
    plan = plan.double()
    return float((plan.sum(1) - 1 / n).abs().sum() + (plan.sum(0) - 1 / m).abs().sum())


def entropic_value(plan: Tensor, cost: Tensor, epsilon: float) -> float:
    """⟨P, C⟩ + ε KL(P | a ⊗ b) for uniform a and b, in float64."""
    plan = plan.double()
    entropy = torch.special.xlogy(plan, plan * plan.numel()).sum() - plan.sum() + 1
    return float((plan * cost.double()).sum() + epsilon * entropy)


def pot(method: str, cost: Tensor, epsilon: float) -> Timed:
    n, m = cost.shape
    a, b = (torch.full((k,), 1 / k, dtype=torch.float64).numpy() for k in (n, m))
    wide = cost.double().numpy()
    start = clock()
    # its errors are of the second marginal, in L2
    options = {"method": method, "stopThr": TOL / math.sqrt(m), "numItermax": 10_000}
    plan = ot.sinkhorn(a, b, wide, epsilon, **options)
    return clock() - start, torch.from_numpy(plan)


def geomloss(costs: list[Tensor], epsilon: float) -> tuple[Timed, Callable[[], object]]:
    """The cheapest run on the first cost that meets our tolerance, or its best; and a call of the
    debiased loss of all three at the same scaling.
    """
    from geomloss import SamplesLoss

    cross, within_source, within_target = costs
    n, m = cross.shape
    # these say which side a cloud is, since geomloss wants points
    tags = torch.zeros(1, n, 1), torch.ones(1, m, 1)

    def cost(x: Tensor, y: Tensor) -> Tensor:
        left, right = bool(x[0, 0, 0]), bool(y[0, 0, 0])
        sides = {(0, 0): within_source, (1, 1): within_target, (0, 1): cross, (1, 0): cross.T}
        return sides[left, right][None]

    a, b = torch.full((1, n), 1 / n), torch.full((1, m), 1 / m)
    options = {"loss": "sinkhorn", "p": 2, "blur": math.sqrt(epsilon), "cost": cost}
    options |= {"backend": "tensorized", "diameter": math.sqrt(2 * float(cross.max()))}
    for scaling in SCALINGS:
        loss = SamplesLoss(**options, scaling=scaling, debias=False, potentials=True)
        start = clock()
        f, g = loss(a, tags[0], b, tags[1])
        seconds = clock() - start
        plan = torch.exp((f[0][:, None] + g[0][None, :] - cross) / epsilon) / (n * m)
        if marginal_error(plan) <= TOL:
            break
    whole = SamplesLoss(**options, scaling=scaling, debias=True)
    return (seconds, plan), lambda: whole(a, tags[0], b, tags[1])


def eigh_root(matrix: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values.clamp_min(0).sqrt()) @ vectors.T


def sqrtm_root(matrix: Tensor) -> Tensor:
    return torch.as_tensor(scipy.linalg.sqrtm(matrix.numpy())).real.double()


ROOTS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "eigh": (eigh_root, lambda m: torch.linalg.eigvalsh(m).clamp_min(0).sqrt().sum()),
    "sqrtm": (sqrtm_root, lambda m: sqrtm_root(m).trace()),
}


def roots(way: str, source: ad.LabeledDataset, target: ad.LabeledDataset) -> tuple[float, float]:
    """Seconds of all three tables of label distances through d × d roots, and the worst relative
    error of those that were computed.
    """
    laws = [data.to(dtype=torch.float64).laws() for data in (source, target)]
    k = [len(of) for of in laws]
    few = 6 if source.dim <= 1000 else 2
    chosen = [(i % k[0], (7 * i + 3) % k[1]) for i in range(few)]
    root, trace = ROOTS[way]
    exact = ad.Bures()(*(data.to(dtype=torch.float64) for data in (source, target)))
    rooting, pairing, worst = [], [], 0.0
    for i, j in chosen:
        s, t = (
            of.take(torch.tensor([at])).covariances()[0]
            for of, at in zip(laws, (i, j), strict=True)
        )
        start = clock()
        half = root(s)
        rooting.append(clock() - start)
        start = clock()
        cross = trace(half @ t @ half)
        pairing.append(clock() - start)
        gap = (laws[0].means[i] - laws[1].means[j]).square().sum()
        found = gap + s.trace() + t.trace() - 2 * cross
        worst = max(worst, float(abs(found / exact[i, j] - 1)))
    pairs = k[0] * k[1] + math.comb(k[0], 2) + math.comb(k[1], 2)
    return sum(rooting) / few * sum(k) + sum(pairing) / few * pairs, worst


def label_tables(source: ad.LabeledDataset, target: ad.LabeledDataset) -> None:
    """Label distances of a distance, all three tables, from laws that are estimated anew."""
    source, target = source.replace(), target.replace()
    for sides in ((source, target), (source, source), (target, target)):
        ad.Bures()(*sides)


def measure(names: Pair, n: int) -> list[dict[str, Any]]:
    source, target = images(names, n)
    distance = ad.otdd(source, target, solver=SOLVER)
    costs, epsilon = [part.matrix() for part in distance.pairs], distance.epsilon
    solver = ad.Sinkhorn(epsilon=epsilon, tol=TOL)
    tight = ad.Sinkhorn(epsilon=epsilon, tol=1e-10).solve(costs[0].double()).plan()
    exact = entropic_value(tight, costs[0], epsilon)
    del tight
    rows: list[dict[str, Any]] = []

    def add(
        part: str, peer: str, ratio: float, marginal: float | None, value: float | None
    ) -> None:
        row = {"pair": list(names), "n": n, "part": part, "peer": peer, "ratio": ratio}
        rows.append(row | {"marginal_error": marginal, "value_error": value})
        errors = "  ".join(f"{'' if e is None else f'{e:.0e}':>8s}" for e in (marginal, value))
        print(f"{n:6d}  {part:9s}  {peer:15s}  {ratio:11.1f}  {errors}", flush=True)

    def solved(peer: str, ratio: float, plan: Tensor) -> None:
        value = abs(entropic_value(plan, costs[0], epsilon) / exact - 1)
        add("solve", peer, ratio, marginal_error(plan), value)

    ours = median_time(lambda: solver.solve(costs[0]), 3)
    solved("ours", 1.0, solver.solve(costs[0]).plan())
    for peer, method in (("POT kernel", "sinkhorn"), ("POT stabilised", "sinkhorn_stabilized")):
        seconds, plan = pot(method, costs[0], epsilon)
        solved(peer, seconds / ours, plan)
    debiased = None
    try:
        (seconds, plan), run = geomloss(costs, epsilon)
        solved("geomloss", seconds / ours, plan)
        start = clock()
        run()
        debiased = clock() - start
    except ImportError as error:
        print(f"        geomloss does not run here: {error}")
    own = median_time(lambda: label_tables(source, target), 3)
    wide = ad.Bures()(*(data.to(dtype=torch.float64) for data in (source, target)))
    add("labels", "ours", 1.0, None, float((ad.Bures()(source, target) / wide - 1).abs().max()))
    eigh, worst = roots("eigh", source, target)
    add("labels", "roots, eigh", eigh / own, None, worst)
    if source.dim <= 1000:
        seconds, worst = roots("sqrtm", source, target)
        add("labels", "roots, sqrtm", seconds / own, None, worst)
    if debiased is not None:
        fresh = lambda: ad.otdd(source.replace(), target.replace(), solver=SOLVER)
        add("distance", "eigh, geomloss", (eigh + debiased) / median_time(fresh, 3), None, None)
    return rows


def points(n: int, dim: int = 64, tol: float = 1e-6) -> list[dict[str, Any]]:
    """A solve in float64 between Gaussian samples, against POT's ``sinkhorn`` to the same marginal error."""
    generator = torch.Generator().manual_seed(n)
    x, y = (torch.randn(n, dim, generator=generator, dtype=torch.float64) for _ in range(2))
    cost = torch.cdist(x, y + 0.5).square() / 2
    weights, matrix = torch.full((n,), 1 / n, dtype=torch.float64).numpy(), cost.numpy()
    rows: list[dict[str, Any]] = []
    for share in (0.05, 0.02):
        epsilon = share * float(cost.mean())
        solver, repeats = ad.Sinkhorn(epsilon=epsilon, tol=tol), 10 if n < 1000 else 3
        # POT stops by the L2 error of one marginal: the loosest threshold that meets the L1 error
        for threshold in (1e-6, 1e-7, 1e-8, 1e-9, 1e-10):
            options = {"stopThr": threshold, "numItermax": 100_000}
            plan = ot.sinkhorn(weights, weights, matrix, epsilon, **options)
            error = marginal_error(torch.from_numpy(plan))
            if error <= tol:
                break
        problem = weights, weights, matrix, epsilon
        theirs = median_time(lambda: ot.sinkhorn(*problem, **options), repeats)  # noqa: B023
        ours = median_time(lambda: solver.solve(cost).plan(), repeats)  # noqa: B023
        reached = marginal_error(solver.solve(cost).plan())
        print(
            f"{n:6d}  points     POT, eps {share:4.0%}   {theirs / ours:11.2f}  {error:8.0e}  (ours {reached:.0e})"
        )
        rows.append(
            {"part": "points", "peer": "POT kernel", "n": n, "epsilon_share": share}
            | {"ratio": theirs / ours, "marginal_error": error, "own_marginal_error": reached}
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=pair, nargs="+", help="source:target, by name")
    parser.add_argument("--sizes", type=int, nargs="+")
    parser.add_argument("--quick", action="store_true", help="one pair, 500 samples")
    parser.add_argument("--points", action="store_true", help="solves of Gaussian samples alone")
    parser.add_argument("--json", type=Path, help="write the rows here too")
    given = parser.parse_args()
    if given.points:
        rows = [row for n in (100, 500, 2000) for row in points(n)]
        write_json(given.json, {"benchmark": "peers, points", **code(), "rows": rows})
        return
    pairs = given.pairs or default_pairs()[: 1 if given.quick else None]
    print(f"{torch.get_num_threads()} threads, epsilon = 1 % of the mean cost")
    rows = []
    for names in pairs:
        print(
            f"\n{' → '.join(names)}\n     n  part       peer             time ÷ ours  marginal     value"
        )
        for n in given.sizes or ([500] if given.quick else [500, 2000]):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of peers that do not converge, as the error shows
                rows += measure(names, n)
            write_json(given.json, {"benchmark": "peers", **code(), "rows": rows})


if __name__ == "__main__":
    main()
