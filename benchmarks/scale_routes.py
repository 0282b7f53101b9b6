"""Where nothing was measured: a step on p machines for a million to a billion samples, as it is built and by other routes.

A machine is ``CORES`` cores like the one that was measured, each with a rank's rates, ``MEMORY`` bytes, and a link
of ``WIRES``: assumptions, which are in the file with the figures. Iterations are those of the largest check: how many a billion
samples take is not known."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from cost_model import WIDE, Calls, Evaluation, Message, Prediction, Rates, Shape, Wires, predict

CORES, MEMORY = 64, 256e9
WIRES = Wires(latency=20e-6, bandwidth=25e9 / 8)
SAMPLES = (10**6, 10**7, 10**8, 10**9)
MACHINES = (8, 100, 1000, 10_000)
DIM, CLASSES, ITEM = 784, 10, 4
BATCH = 4096  # samples of a mini-batch
FEW = 10_000  # points of a condensed dataset
RANK = 1000  # of a low-rank kernel
SLICES = 100  # directions of a sliced distance
HOUR = 3600.0


@dataclass(frozen=True)
class Cost:
    """Of one step, on each machine: seconds of work and of messages, bytes of memory and of payload."""

    work: float
    messages: float
    memory: float
    payload: float

    @property
    def seconds(self) -> float:
        return self.work + self.messages

    def told(self) -> dict[str, float]:
        return vars(self) | {"seconds": self.seconds}


@dataclass(frozen=True)
class Machines:
    """p of them, with what a step asks: iterations across and within, and bytes of memory for each
    sample × dimension beside the matrices.
    """

    rates: Rates
    count: int
    across: int
    within: int
    copies: float

    def features(self, n: float) -> float:
        """Bytes of n samples and of what a step makes of them."""
        return n * DIM * self.copies

    def said(self, *messages: Message) -> tuple[float, float]:
        """Seconds and bytes of messages of all machines."""
        seconds = sum(each.count * WIRES.seconds(each, self.count) for each in messages)
        return seconds, float(sum(each.count * each.size for each in messages))

    def flops(self, number: float) -> float:
        """Seconds of so many operations of products of features."""
        return number * self.rates.flop["anew"](math.inf)

    def rows(self, n: int) -> Cost:
        """As it is built: rows of every matrix on each, features on all."""
        found, matrices = self.step(n)
        return Cost(found.work, found.waiting, self.features(n) + matrices, found.payload)

    def step(self, n: int) -> tuple[Prediction, float]:
        """As it is built, by part, and bytes of the matrices that are kept."""
        shape = Shape(n, n, DIM, CLASSES, ranks=self.count)
        matrices = 2.0 * ITEM * shape.entries("cross")
        if matrices + self.features(n) > MEMORY:
            shape, matrices = replace(shape, kept=False), 0.0
        steady = Evaluation.steady(self.across, self.within)
        return predict(shape, steady, self.rates, WIRES), matrices

    def grid(self, n: int) -> Cost:
        """Blocks of rows and columns: features of n/√p rows and of n/√p columns on each, sums along rows and
        along columns of machines. The entries that each makes are as many as before.
        """
        side = max(1, math.isqrt(self.count))
        own = n // side
        shape = Shape(n, n, DIM, CLASSES, ranks=side * side, kept=False)
        found = predict(shape, Evaluation.steady(self.across, self.within), self.rates, None)
        whole = predict(replace(shape, n=1, m=1), Evaluation.steady(0, 0), self.rates, None)
        cut = found.parts["rest"] + found.parts["labels"] + found.parts["vectors"]
        cut -= whole.parts["labels"]  # pairs of classes are dealt out already
        work = found.work - cut * (1 - 1 / side)
        lines = replace(self, count=side)
        seconds, sent = lines.said(
            Message("sum", own * ITEM, 2 * self.across + self.within),
            Message("sum", own * DIM * ITEM),
        )
        return Cost(work, seconds, self.features(2 * n / side), sent)

    def batches(self, n: int) -> Cost:
        """Mini-batches, every sample once: a machine's own samples with its own part of the target; class
        moments of all.
        """
        shape = Shape(BATCH, BATCH, DIM, CLASSES)
        one = predict(shape, Evaluation.steady(self.across, self.within), self.rates, None)
        labels = one.parts["labels"]  # laws are of the whole, once
        work = math.ceil(n / BATCH / self.count) * (one.work - labels) + self._laws(n) + labels
        moments = Message("sum", CLASSES * DIM**2 * WIDE)
        seconds, sent = self.said(moments)
        held = self.features(2 * n / self.count) + 2 * CORES * BATCH**2 * ITEM
        return Cost(work, seconds, held, sent)

    def condensed(self, n: int) -> Cost:
        """The target as few weighted points, and the source's own problem against as few of its own."""
        shape = Shape(-(-n // self.count), FEW, DIM, CLASSES, kept=False)
        calls = {"cross": (Calls(sweep=self.across),), "source": (Calls(times=self.within),)}
        square = replace(shape, n=FEW)  # stands for the columns of both problems
        both = predict(square, Evaluation(calls), self.rates, None)
        entries = both.parts["costs"] + both.parts["plans"] + both.parts["kernels"]
        work = entries * shape.n / FEW + self._laws(n) + self.rates.feature * shape.n * DIM
        seconds, sent = self.said(
            Message("sum", FEW * ITEM, self.across), Message("sum", CLASSES * DIM**2 * WIDE)
        )
        return Cost(work, seconds, self.features(n / self.count + 2 * FEW), sent)

    def low_rank(self, n: int) -> Cost:
        """A kernel of rank r (Nyström): n × r features of the kernel once, products of n r for each pass."""
        own = -(-n // self.count)
        passes = 2 * self.across + self.within + 2
        per_entry = self.rates.entry["times"](math.inf)
        made = 2 * (
            self.flops(2 * own * RANK * DIM) + own * RANK * self.rates.entry["fill"](math.inf)
        )
        work = made + passes * own * RANK * per_entry + self._laws(n)
        sums = Message("sum", RANK * ITEM, passes)
        seconds, sent = self.said(sums, Message("sum", CLASSES * DIM**2 * WIDE))
        held = self.features(2 * own) + 2 * own * RANK * ITEM
        return Cost(work, seconds, held, sent)

    def sliced(self, n: int) -> Cost:
        """Projections on some directions, sorted by all machines, and steps along them."""
        own = -(-n // self.count)
        sorting = SLICES * own * math.log2(n) * self.rates.sort
        work = 2 * (self.flops(2 * own * DIM * SLICES) + sorting)
        seconds, sent = self.said(Message("gather", 2 * own * SLICES * ITEM))  # each its own parts
        return Cost(work, seconds, self.features(own) + 2 * own * SLICES * ITEM, sent)

    def gaussian(self, n: int) -> Cost:
        """Class statistics in one pass over the data, and an affine map for each class: one pass more. No
        iteration: this is all of it, and not a step.
        """
        own = -(-n // self.count)
        decompositions = 2 * CLASSES**2 * self.rates.pair(DIM) / min(self.count, CLASSES**2)
        work = self.flops(3 * 2 * own * DIM**2) + decompositions
        seconds, sent = self.said(Message("sum", 2 * CLASSES * DIM**2 * WIDE))
        chunk = 65_536  # samples at a time
        return Cost(work, seconds, 3 * CLASSES * DIM**2 * WIDE + chunk * DIM * ITEM, sent)

    def _laws(self, n: int) -> float:
        """Moments of all classes, of which each machine sums its own samples."""
        return self.flops(2 * n / self.count * DIM**2)


WAYS: dict[str, Callable[[Machines, int], Cost]] = {
    "rows": Machines.rows,
    "grid": Machines.grid,
    "condensed": Machines.condensed,
    "batches": Machines.batches,
    "low rank": Machines.low_rank,
    "sliced": Machines.sliced,
    "gaussian": Machines.gaussian,
}


def routes(rates: Rates, across: int, within: int, copies: float) -> dict[str, Any]:
    """Costs of a step of every way for every number of samples and machines, and what breaks first."""
    machine = rates.scaled(CORES)
    every = {p: Machines(machine, p, across, within, copies) for p in MACHINES}
    table = [
        {"way": name, "n": n, "machines": p} | way(machines, n).told()
        for name, way in WAYS.items()
        for n in SAMPLES
        for p, machines in every.items()
    ]
    steps = {n: every[MACHINES[2]].step(n)[0] for n in SAMPLES}
    parts = [{"n": n, "messages": one.waiting} | dict(one.parts) for n, one in steps.items()]
    assumed = {"cores": CORES, "memory": MEMORY, **vars(WIRES), "d": DIM, "classes": CLASSES}
    assumed |= {"batch": BATCH, "few": FEW, "rank": RANK, "slices": SLICES}
    assumed |= {"across": across, "within": within, "copies": copies}
    limits = {str(p): broken(machines) for p, machines in every.items()}
    return {"assumed": assumed, "table": table, "parts": parts, "limits": limits}


def broken(machines: Machines) -> dict[str, float]:
    """From how many samples on something no longer works, as it is built."""
    return {
        "a rank's matrices fit no more": math.sqrt(MEMORY * machines.count / (2 * ITEM)),
        "features fit no more": MEMORY / (DIM * machines.copies),
        "a step takes an hour": _least(lambda n: machines.rows(n).seconds > HOUR),
        "messages take an hour": _least(lambda n: machines.rows(n).messages > HOUR),
        "a frame has a terabyte": 1e12 / (DIM * ITEM),
    }


def _least(holds: Callable[[int], bool]) -> float:
    """The least number of samples for which it holds, to a hundredth."""
    low, high = 1e3, 1e13
    while high / low > 1.01:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(int(middle)) else (middle, high)
    return high
