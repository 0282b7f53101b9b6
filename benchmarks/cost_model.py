"""What one evaluation of a flow over p ranks does, says and takes: counts from the algorithm, seconds from measured rates.

An evaluation makes costs, solves two problems (between source and target, and within the source; the first one
also that within the target), contracts the plans and adds up gradients. How many products with the kernel the
solves ask for depends on the data, and is given (``Calls``). All else follows from the sizes: which matrices a
rank makes, which messages it sends, to the byte. Rates are those of one rank (``Rates``) and of a message."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Protocol

WIDE = 8  # bytes of a number in float64
PRODUCTS = ("times", "transposed", "sweep")  # K v, Kᵀ u, and both
ENTRYWISE = ("costs", "plans", "fill", "softmins", *PRODUCTS, "extremes")
MULTIPLIED = ("costs", "plans", "anew")  # passes that hold a product of features


@dataclass(frozen=True)
class Shape:
    """Sizes of a flow: samples of source and target, dimensions, classes of each, ranks.

    ``kept`` says that a rank's rows of costs and kernel stay in memory; else every pass makes them anew.
    """

    n: int
    m: int
    d: int
    classes: int = 10
    ranks: int = 1
    kept: bool = True
    item: int = 4  # bytes of a feature

    def sides(self, first: bool) -> dict[str, tuple[int, int]]:
        """Rows and columns of each problem."""
        both = {"cross": (self.n, self.m), "source": (self.n, self.n)}
        return both | ({"target": (self.m, self.m)} if first else {})

    def rows(self, side: str) -> int:
        """Of the busiest rank."""
        return -(-(self.m if side == "target" else self.n) // self.ranks)

    def entries(self, side: str) -> int:
        """Of a matrix on the busiest rank."""
        return self.rows(side) * self.sides(True)[side][1]

    @property
    def class_rank(self) -> float:
        """Of a label law: the smaller of samples of a class and dimensions."""
        return min(self.n / self.classes, self.d)


@dataclass(frozen=True)
class Calls:
    """Products with the kernel of one problem that a solve asked for; ``item`` is bytes of their numbers."""

    times: int = 0
    transposed: int = 0
    sweep: int = 0
    fill: int = 0
    softmins: int = 0
    item: int = 4

    @property
    def products(self) -> int:
        return self.times + self.transposed + self.sweep


@dataclass(frozen=True)
class Evaluation:
    """What the solves of one evaluation asked for, by problem; ``first`` is one from nothing: a distance."""

    calls: Mapping[str, tuple[Calls, ...]]
    first: bool = False

    @classmethod
    def steady(cls, across: int, within: int) -> Evaluation:
        """A step of ``across`` iterations to the target and ``within`` in the source, each a product with
        K and, to the target, one with its transpose; the kernel is filled once for each problem.
        """
        return cls(
            {"cross": (Calls(sweep=across, fill=1),), "source": (Calls(times=within, fill=1),)}
        )

    @classmethod
    def read(cls, kept: Mapping[str, Any]) -> Evaluation:
        calls = {side: tuple(Calls(**each) for each in of) for side, of in kept["calls"].items()}
        return cls(calls, kept["first"])

    def stored(self) -> dict[str, Any]:
        calls = {side: [asdict(each) for each in of] for side, of in self.calls.items()}
        return {"calls": calls, "first": self.first}

    def iterations(self, side: str) -> int:
        return sum(each.products for each in self.calls[side])


class Message(NamedTuple):
    """A collective of all ranks: its kind, bytes of payload, and how often it is called."""

    kind: str
    size: int
    count: int = 1


def messages(shape: Shape, evaluation: Evaluation) -> list[Message]:
    """All that is said in an evaluation; nothing where there is one rank."""
    if shape.ranks == 1:
        return []
    p, first = shape.ranks, evaluation.first
    said = [Message("max", WIDE)]  # how much memory there is
    said.append(Message("gather", WIDE * p))  # whether all hold the same data
    if not shape.kept:
        said.append(Message("max", WIDE))  # a bound of the costs, without looking at all
    if first:
        said.append(Message("sum", WIDE))  # the mean cost, of which epsilon is a share
    for side, (rows, columns) in shape.sides(first).items():
        said.append(Message("sum", shape.item * shape.classes**2))  # label distances, dealt out
        said.append(Message("max", WIDE, 4))  # refusals, extremes of the cost, its rounding
        gathered = p * -(-rows // p)  # shorter shards are padded
        for calls in evaluation.calls[side]:
            item = calls.item
            said += [
                Message("gather", gathered * item, calls.times),
                Message("sum", columns * item, calls.transposed),
                Message("sum", (rows + columns) * item, calls.sweep),
                Message("max", WIDE, calls.fill),
                Message("max", columns * WIDE, calls.softmins),
                Message("sum", columns * WIDE, calls.softmins),
                Message("gather", gathered * WIDE, calls.softmins),
            ]
    said.append(Message("sum", shape.n * shape.d * shape.item))  # gradients
    return [each for each in said if each.count]


def payload(said: Iterable[Message]) -> int:
    """Bytes, as ``Group.traffic`` counts them."""
    return sum(each.size * each.count for each in said)


@dataclass(frozen=True)
class Curve:
    """A rate by size: between measured points along powers of the size, before and after them constant, or
    after the last one along the power ``beyond``.
    """

    points: tuple[tuple[float, float], ...]
    beyond: float = 0.0

    def __call__(self, size: float) -> float:
        points = sorted(self.points)
        if size <= points[0][0]:
            return points[0][1]
        for (x, y), (next_x, next_y) in itertools.pairwise(points):
            if size <= next_x:
                share = math.log(size / x) / math.log(next_x / x)
                return y ** (1 - share) * next_y**share
        return points[-1][1] * (size / points[-1][0]) ** self.beyond


@dataclass(frozen=True)
class Rates:
    """Seconds of one rank.

    Attributes:
        entry: for each kind of pass over a matrix, of one entry, by bytes of the rank's matrix.
            "anew" is a pass whose rows of the kernel are made on the way, products included.
        flop: of costs, of plans and of such a pass, of one operation of the product of features.
        pair: of a distance between two label laws, by their rank.  law: of one law, for each
            sample × dimension.  squeeze, root: of a law of more samples than dimensions d besides,
            for each sample × d², and for each d³.
        call, number: beside the products, of a call of the kernel, and of each number of its vectors.
        feature, sample, fixed: of all the rest, for each n × d, for each n, and once.
        mark: of the comparison of the ranks' data, for each number.
        sort: of n numbers, for each n log₂ n.
    """

    entry: Mapping[str, Curve]
    flop: Mapping[str, Curve]
    pair: Curve
    law: float
    squeeze: float
    root: float
    call: float
    number: float
    feature: float
    sample: float
    fixed: float
    mark: float
    sort: float

    def scaled(self, speed: float) -> Rates:
        """Of a machine that does everything so many times as fast."""

        def slower(rate: Any) -> Any:
            if isinstance(rate, Mapping):
                return {name: slower(each) for name, each in rate.items()}
            if isinstance(rate, Curve):
                return Curve(tuple((x, y / speed) for x, y in rate.points), rate.beyond)
            return rate / speed

        return Rates(**{name: slower(getattr(self, name)) for name in self.__dataclass_fields__})


def passes(shape: Shape, evaluation: Evaluation, side: str) -> dict[str, int]:
    """How often each kind of pass goes over the rank's matrix of a problem."""
    found = dict.fromkeys(ENTRYWISE, 0) | {"extremes": 1, "plans": int(side != "target")}
    for calls in evaluation.calls[side]:
        for name in (*PRODUCTS, "softmins", "fill"):
            found[name] += getattr(calls, name)
    if shape.kept:
        return found | {"costs": 1}
    others = found["plans"] + found["softmins"] + found["extremes"]
    anew = sum(found[name] for name in PRODUCTS) + others
    return found | dict.fromkeys(("costs", "fill", *PRODUCTS), 0) | {"anew": anew}


def work(shape: Shape, evaluation: Evaluation, rates: Rates) -> dict[str, float]:
    """Seconds of the busiest rank's processor by part, with nobody to wait for."""
    seconds = dict.fromkeys(("costs", "plans", "anew", "kernels", "vectors", "labels", "rest"), 0.0)
    first, classes = evaluation.first, shape.classes
    for side, (rows, columns) in shape.sides(first).items():
        entries = shape.entries(side)
        size = 4.0 * entries
        for name, count in passes(shape, evaluation, side).items():
            part = name if name in seconds else "kernels"
            seconds[part] += count * entries * rates.entry[name](size)
            if name in MULTIPLIED:
                seconds[part] += count * entries * 2 * shape.d * rates.flop[name](size)
        for calls in evaluation.calls[side]:
            number = calls.products * (rows + columns)
            seconds["vectors"] += calls.products * rates.call + number * rates.number
        pairs = classes**2 if side == "cross" else classes * (classes - 1) // 2
        seconds["labels"] += -(-pairs // shape.ranks) * rates.pair(shape.class_rank)
        samples, laws = (rows + columns, 2 * classes) if side == "cross" else (rows, classes)
        seconds["labels"] += samples * shape.d * rates.law
        if shape.n / classes > shape.d:  # on every rank, whatever their number
            wide = samples * rates.squeeze + laws * shape.d * rates.root
            seconds["labels"] += wide * shape.d**2
    numbers = shape.n * shape.d
    seconds["rest"] = numbers * rates.feature + shape.n * rates.sample + rates.fixed
    if shape.ranks > 1:
        seconds["rest"] += rates.mark * numbers * (2 if first else 1)
    return seconds


class Network(Protocol):
    """How long a collective takes by the clock, and how much of that a rank's processor works; and for how
    much longer than they work ranks wait for the last of them, as a share of their work.
    """

    late: float

    def seconds(self, message: Message, ranks: int) -> float: ...

    def work(self, message: Message, ranks: int) -> float: ...


@dataclass(frozen=True)
class Measured:
    """By what was measured with so many ranks: a latency, and of each kind what bytes add to the shortest
    message, for some sizes.
    """

    clock: Mapping[str, Curve]
    processor: Mapping[str, Curve]
    latency: float = 0.0
    late: float = 0.0

    def seconds(self, message: Message, ranks: int) -> float:
        curve = self.clock[message.kind]
        return self.latency + max(0.0, curve(message.size) - curve(0))

    def work(self, message: Message, ranks: int) -> float:
        return self.processor[message.kind](message.size)


@dataclass(frozen=True)
class Wires:
    """By latency (s) and bandwidth (bytes/s) of every machine's link: the better of a ring, and of halving and
    doubling over a hypercube.
    """

    latency: float
    bandwidth: float
    late: float = 0.0

    def work(self, message: Message, ranks: int) -> float:
        return 0.0  # a card does it

    def seconds(self, message: Message, ranks: int) -> float:
        return min(self.ring(message, ranks), self.hypercube(message, ranks))

    def ring(self, message: Message, ranks: int) -> float:
        return self._phases(message) * (ranks - 1) * self.latency + self._bytes(message, ranks)

    def hypercube(self, message: Message, ranks: int) -> float:
        hops = math.ceil(math.log2(ranks))
        return self._phases(message) * hops * self.latency + self._bytes(message, ranks)

    @staticmethod
    def _phases(message: Message) -> int:
        return 1 if message.kind == "gather" else 2  # a sum is scattered, then gathered

    def _bytes(self, message: Message, ranks: int) -> float:
        return self._phases(message) * (ranks - 1) / ranks * message.size / self.bandwidth


@dataclass(frozen=True)
class Prediction:
    """Seconds of an evaluation, by part, with messages beside, and bytes of payload."""

    parts: Mapping[str, float]
    waiting: float  # in messages
    payload: int
    share: float = 1.0  # of a core that a rank has
    late: float = 0.0  # what ranks wait for the last of them, as a share of their work
    talking: float = 0.0  # of a rank's processor, in messages
    said: list[Message] = field(default_factory=list)

    @property
    def work(self) -> float:
        """Of the processor, of one rank."""
        return sum(self.parts.values()) + self.talking

    @property
    def seconds(self) -> float:
        """By the clock."""
        return self.work / self.share * (1 + self.late) + self.waiting


def predict(
    shape: Shape, evaluation: Evaluation, rates: Rates, network: Network | None, cores: int = 0
) -> Prediction:
    """An evaluation, where ``cores`` are shared by all ranks; 0 where each has its own."""
    said, parts = messages(shape, evaluation), work(shape, evaluation, rates)
    share = min(1.0, cores / shape.ranks) if cores else 1.0
    if network is None or not said:
        return Prediction(parts, 0.0, payload(said), share, said=said)
    waiting = sum(each.count * network.seconds(each, shape.ranks) for each in said)
    talking = sum(each.count * network.work(each, shape.ranks) for each in said)
    return Prediction(parts, waiting, payload(said), share, network.late, talking, said)
