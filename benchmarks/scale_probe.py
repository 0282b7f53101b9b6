"""One rank of ``scale_model.py``: evaluations of a flow with what each took, asked of the kernel and said;
label distances; messages."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from common import additional_peak, median_time, split
from cost_model import PRODUCTS, Calls, Evaluation, Shape

import advect as ad
from advect._util import ranks as ranks_module
from advect.ot.sharded import ShardedCost, ShardedKernel
from advect.transport import ranks as sharded

COUNTED = (*PRODUCTS, "fill", "softmins")
PARTS: list[tuple[str, Any, str]] = [
    ("costs", ad.PairCost, "matrix"),
    ("plans", ad.PairCost, "contracted"),
    *((name, ShardedKernel, name) for name in COUNTED),
    ("extremes", ShardedCost, "extremes"),
    ("labels", sharded, "own_distances"),
    ("vectors", ad.Sinkhorn, "solve"),
    ("vectors", ad.Sinkhorn, "solve_self"),
]
Record = dict[str, Any]


def drawn(n: int, d: int, classes: int, seed: int, shift: float = 0.0) -> ad.LabeledDataset:
    """Gaussian classes whose spread falls along the axes."""
    generator = torch.Generator().manual_seed(seed)
    spread = torch.linspace(0, -2, d).exp()
    y = torch.arange(n) % classes
    means = 2 * torch.randn(classes, d, generator=generator) * spread
    return ad.LabeledDataset(torch.randn(n, d, generator=generator) * spread + means[y] + shift, y)


@contextmanager
def counted() -> Iterator[dict[tuple[str, int], Counter[str]]]:
    """How often each problem ("cross", …) asks its kernel for what, by bytes of its numbers."""
    found: dict[tuple[str, int], Counter[str]] = {}
    before = {name: getattr(ShardedKernel, name) for name in COUNTED}
    make = sharded.ShardedProblem.make

    def made(self: Any, side: str) -> Any:
        cost = make(self, side)
        cost.side = side
        return cost

    def counting(name: str) -> Callable[..., Any]:
        def call(self: Any, *args: Any, **options: Any) -> Any:
            of = found.setdefault((self.cost.side, self.dtype.itemsize), Counter())
            of[name] += 1
            return before[name](self, *args, **options)

        return call

    sharded.ShardedProblem.make = made
    for name in COUNTED:
        setattr(ShardedKernel, name, counting(name))
    try:
        yield found
    finally:
        sharded.ShardedProblem.make = make
        for name, function in before.items():
            setattr(ShardedKernel, name, function)


def limit(shape: Shape) -> int:
    """Bytes for a step that keeps its matrices, or does not."""
    if shape.kept:
        return 1 << 40
    matrix = shape.rows("cross") * max(shape.n, shape.m) * shape.item
    found = 6 * matrix // 10 + 4 * (shape.n + shape.m) * shape.d * shape.item
    if found >= 4 * matrix:  # what the library asks for before it keeps them
        raise ValueError(f"features take more than matrices, which would be kept; got {shape}")
    return found


def walk(shape: Shape, steps: int, group: Any, parts: bool = False) -> list[Record]:
    """The first evaluation and some steps: the clock, this thread's processor, calls, and traffic; with
    seconds by part where there is nobody else.
    """
    source = drawn(shape.n, shape.d, shape.classes, 0)
    target = drawn(shape.m, shape.d, shape.classes, 1, 0.3)
    energy = ad.OTDD(target, group=group, memory_limit=limit(shape))
    dynamics = ad.FeatureDriven(through_laws=False)
    states = ad.iterate(source, energy, integrator=ad.Euler(0.3), dynamics=dynamics)
    kept: list[Record] = []
    for index in range(steps + 1):
        sent = {kind: (each.calls, each.bytes) for kind, each in group.traffic.items()}
        with counted() as calls, split(PARTS if parts else []) as seconds:
            begun = time.perf_counter(), time.thread_time()
            next(states)
            spent = time.perf_counter() - begun[0], time.thread_time() - begun[1]
        traffic = {
            kind: [each.calls - sent[kind][0], each.bytes - sent[kind][1]]
            for kind, each in group.traffic.items()
        }
        sides: dict[str, list[Calls]] = {}
        for (side, item), of in calls.items():
            sides.setdefault(side, []).append(Calls(**of, item=item))
        evaluation = Evaluation({k: tuple(v) for k, v in sides.items()}, first=index == 0)
        record = evaluation.stored() | {"seconds": spent[0], "work": spent[1], "traffic": traffic}
        kept.append(record | ({"parts": dict(seconds)} if parts else {}))
    return kept


def label_times(size: int, d: int, classes: int = 4) -> Record:
    """Seconds of a pair of label laws, and of one law before it is compared, for classes of ``size``."""
    data = [drawn(size * classes, d, classes, seed) for seed in (0, 1)]
    every = torch.ones(classes, classes, dtype=torch.bool)
    each = torch.eye(classes, dtype=torch.bool)  # all laws, and few pairs

    def distances(wanted: torch.Tensor) -> float:
        fresh = lambda: ad.Bures().of_pairs(data[0].replace(), data[1].replace(), wanted)
        return median_time(fresh, 3)

    few, all_pairs = distances(each), distances(every)
    pair = (all_pairs - few) / (classes**2 - classes)
    return {"size": size, "d": d, "pair": pair, "law": max(few - classes * pair, 0) / (2 * classes)}


def mark_time(numbers: int = 2_000_000) -> float:
    """Seconds for each number of the comparison of the ranks' data."""
    x = (torch.randn(numbers),)
    return median_time(lambda: ranks_module._fingerprint(x), 3) / numbers


def sort_time(numbers: int = 1_000_000) -> float:
    """Seconds of sorting, for each n log₂ n."""
    x = torch.randn(numbers)
    return median_time(lambda: torch.sort(x), 3) / (numbers * math.log2(numbers))


def message_times(sizes: list[int], group: Any) -> list[Record]:
    """Seconds of a collective by kind and bytes of payload: the clock (a median) and this thread's processor,
    one message after the other, without work between them.
    """
    found = []
    for kind, size in itertools.product(("sum", "gather"), sizes):
        own = max(1, size // 4 // (group.size if kind == "gather" else 1))
        values, times = torch.ones(own), []
        begun = time.thread_time()
        for _ in range(60 if size < 1 << 20 else 12):
            start = time.perf_counter()
            group.sum(values) if kind == "sum" else group.gather(values, own * group.size)
            times.append(time.perf_counter() - start)
        work = (time.thread_time() - begun) / len(times)
        middle = statistics.median(times)
        one = {"kind": kind, "size": size, "ranks": group.size}
        found.append(one | {"seconds": middle, "work": work})
    return found


def peak(shape: Shape) -> int:
    """Bytes that datasets, a distance and a step add at most to a process that does nothing else."""
    group = ad.distributed.Group()
    walk(Shape(600, 600, 8), 1, group)  # what is loaded once
    return additional_peak(lambda: walk(shape, 1, group))
