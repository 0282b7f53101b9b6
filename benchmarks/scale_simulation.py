"""A step on p machines as a schedule: every machine works, then all exchange, message by message; some are late.

Machines are simulated one by one. An exchange is halving and doubling over a hypercube: in each phase a machine
waits for its partner, so that one late machine delays its partner first and all in the end. Without noise the
schedule takes what ``cost_model.predict`` says."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from cost_model import Evaluation, Message, Prediction, Rates, Shape, Wires, predict

# of so many machines, seconds that a piece of work takes, given what it should take
Noise = Callable[[np.random.Generator, int, float], np.ndarray]

MACHINES = (8, 64, 512, 4096, 8192)
SAMPLES, DIM = 10**7, 784
SEED, DRAWS = 0, 3
JITTER = 0.1  # of the logarithm of the time of a piece of work
EVERY, PAUSE = 3600.0, 10.0  # seconds between pauses of a machine, and of a pause
OLD, SLOW = 1e-3, 2.0  # share of machines that are slow for good, and how many times as slow


def exchange(ready: np.ndarray, message: Message, wires: Wires) -> np.ndarray:
    """When each of 2^k machines has the result, given when each is ready."""
    size, at = len(ready), np.arange(len(ready))
    hops = int(math.log2(size))
    if 1 << hops != size:
        raise ValueError(f"a hypercube has 2^k machines; got {size}")
    # a sum: halves go to the partner, then halves of these; then all of it back
    sent = [message.size / (1 << (hop + 1)) for hop in range(hops)]
    halving = [] if message.kind == "gather" else [(1 << hop, sent[hop]) for hop in range(hops)]
    doubling = [(1 << hop, sent[hop]) for hop in reversed(range(hops))]
    for distance, amount in (*halving, *doubling):
        ready = np.maximum(ready, ready[at ^ distance]) + wires.latency + amount / wires.bandwidth
    return ready


def simulate(
    prediction: Prediction,
    machines: int,
    wires: Wires,
    noise: Noise | None = None,
    seed: int = 0,
    *,
    once: bool = False,
) -> float:
    """Seconds until the last machine is done. Work is cut evenly between the messages; with ``once`` all of it is
    done before machines wait for each other.
    """
    generator = np.random.default_rng(seed)
    said = [Message(each.kind, each.size) for each in prediction.said for _ in range(each.count)]
    pieces, clock = max(len(said), 1), np.zeros(machines)
    piece = prediction.work / pieces
    for index in range(pieces):
        clock = clock + (piece if noise is None else noise(generator, machines, piece))
        if said and not once:
            clock = exchange(clock, said[index], wires)
    for message in said if once else ():
        clock = exchange(clock, message, wires)
    return float(clock.max())


def jitter(generator: np.random.Generator, machines: int, seconds: float) -> np.ndarray:
    """A little, all the time: lognormal of mean 1."""
    return seconds * np.exp(JITTER * generator.standard_normal(machines) - JITTER**2 / 2)


def pauses(generator: np.random.Generator, machines: int, seconds: float) -> np.ndarray:
    """Much, seldom."""
    return seconds + PAUSE * generator.poisson(seconds / EVERY, machines)


def old(generator: np.random.Generator, machines: int, seconds: float) -> np.ndarray:
    """Some machines always: the first ones."""
    return np.where(np.arange(machines) < round(OLD * machines), SLOW, 1.0) * seconds


def stragglers(rates: Rates, wires: Wires, across: int, within: int) -> list[dict[str, Any]]:
    """How many times as long a step takes with machines that are late as without, by how many there are; where
    all wait for all at every message, and where they wait once.
    """
    rows = []
    for machines in MACHINES:
        shape = Shape(SAMPLES, SAMPLES, DIM, ranks=machines, kept=False)
        step = predict(shape, Evaluation.steady(across, within), rates, wires)
        exact = simulate(step, machines, wires)
        row: dict[str, Any] = {"machines": machines, "seconds": step.seconds, "exact": exact}
        for name, noise in (("jitter", jitter), ("pauses", pauses), ("old", old)):
            for way in ("often", "once"):
                drawn = [
                    simulate(step, machines, wires, noise, SEED + i, once=way == "once")
                    for i in range(DRAWS)
                ]
                row[f"{name}, {way}"] = float(np.mean(drawn)) / exact
        rows.append(row)
    return rows
