"""Evaluations of the energy and its gradient until a flow has arrived: fixed steps beside controlled ones.

    python benchmarks/steps.py [--pairs fashion_mnist:mnist …] [--n 500] [--weights 5] [--most 200]
                               [--dynamics through …] [--ways controlled …] [--quick] [--json FILE]

data        Fashion-MNIST → MNIST and USPS → MNIST where ADVECT_DATA has them, else digits → MNIST; classes of equal size
flow        features within 0..1, as images that are flowed are kept, along the exact gradient ("through laws", the
            default of flows) or along T(x) − x ("laws detached", that of applications)
value       evaluations, and seconds of the processor in brackets, until the value is 1 % of the first one
accuracy    the same until a network that was trained on the target and is frozen reads 99 % of the moved samples right,
            its answers taken through the class matching; asking it does not count
rose        how many of the steps that were made ended on a higher value, by more than rounding
lowest      the lowest value ÷ the first, and the best accuracy, as far as the flow went: until it has reached both, to --most
            evaluations, to a value a thousand times the first, or until no step can be made

An evaluation is one value with its gradient, wherever it was asked for: at places that Heun's scheme or the search of
an implicit step looks at and at those that step control rejects too. Counts do not depend on the machine. Nothing is gated.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from common import DIGITS, Pair, by_first, clock, code, pair, write_json

import advect as ad
from advect.errors import ConvergenceWarning
from advect.transport.transport import rounding

PAIRS: list[Pair] = [("fashion_mnist", "mnist"), ("usps", "mnist")]
SHARE, RIGHT = 0.01, 0.99  # of the first value; of the samples
LOST = 1000.0  # times the first value: such a flow does not come back
EPOCHS, SIZE = 20, 28
DYNAMICS = {
    "fd, through laws": ad.FeatureDriven(bounds=(0.0, 1.0)),
    "fd, laws detached": ad.FeatureDriven(through_laws=False, bounds=(0.0, 1.0)),
}
LENET = runpy.run_path(str(Path(__file__).parents[1] / "experiments" / "lenet.py"))


@dataclass(frozen=True)
class Way:
    """An integrator and a step control, with the name under which a row has them."""

    name: str
    integrator: ad.Integrator
    control: ad.FixedSteps | ad.Backtracking


FIXED: list[ad.Integrator] = [
    *map(ad.Euler, (0.1, 0.2, 0.5, 1.0)),
    *map(ad.Heun, (0.2, 0.5)),
    *map(ad.Momentum, (0.02, 0.05)),
    ad.Momentum(0.05, nesterov=True),
    *map(ad.Adam, (0.01, 0.05)),
]
CONTROLLED: list[ad.Integrator] = [
    *map(ad.Euler, (0.1, 0.2, 0.5, 1.0, 2.0)),
    ad.Heun(0.5),
    ad.Momentum(0.05),
]


def name_of(integrator: ad.Integrator) -> str:
    """Such as Euler(0.1)."""
    more = ", nesterov" if getattr(integrator, "nesterov", False) else ""
    more += ", order 2" if getattr(integrator, "order", 1) == 2 else ""
    return f"{type(integrator).__name__}({vars(integrator)['step_size']:g}{more})"


def ways() -> list[Way]:
    """All that are compared."""
    fixed = [Way(f"{name_of(each)}, fixed", each, ad.FixedSteps()) for each in FIXED]
    return fixed + [
        Way(f"{name_of(each)}, controlled", each, ad.Backtracking()) for each in CONTROLLED
    ]


class Counted(ad.OTDD):
    """The energy, which counts how often it is evaluated."""

    evaluations = 0

    def terms(self, rho: ad.LabeledDataset, state: Any) -> Any:
        self.evaluations += 1
        return super().terms(rho, state)


@dataclass
class Walk:
    """How far a flow has come, and what it took."""

    energy: Counted
    seconds: float = 0.0
    values: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    reached: dict[str, dict[str, float] | None] = field(
        default_factory=lambda: {"value": None, "accuracy": None}
    )

    def add(self, value: float, accuracy: float) -> None:
        """A state that was evaluated."""
        self.values.append(value)
        self.accuracies.append(accuracy)
        there = {"value": value <= SHARE * self.values[0], "accuracy": accuracy >= RIGHT}
        for name, yes in there.items():
            if yes and self.reached[name] is None:
                spent = {"evaluations": self.energy.evaluations, "seconds": self.seconds}
                self.reached[name] = spent

    @property
    def ended(self) -> str | None:
        """Why there is no reason to go on."""
        if None not in self.reached.values():
            return "reached"
        return "grew" if self.values[-1] > LOST * self.values[0] else None

    def row(self, ended: str) -> dict[str, Any]:
        """What is kept."""
        largest = max(map(abs, self.values))
        rises = [
            after - before > rounding(torch.float32, largest, abs(before))
            for before, after in pairwise(self.values)
        ]
        return {
            **self.reached,
            "rises": sum(rises),
            "steps": len(rises),
            "evaluations": self.energy.evaluations,
            "seconds": self.seconds,
            "lowest": min(self.values) / self.values[0],
            "most_right": max(self.accuracies),
            "ended": ended,
        }


def walk(
    way: Way,
    energy: Counted,
    source: ad.LabeledDataset,
    dynamics: ad.FeatureDriven,
    most: int,
    accuracy: Callable[[ad.LabeledDataset], float],
) -> dict[str, Any]:
    """One flow, until it has arrived or will not."""
    found = Walk(energy)
    steps = ad.iterate(
        source.replace(),
        energy,
        dynamics=dynamics,
        integrator=way.integrator,
        control=way.control,
    )
    while True:
        start = clock()
        try:
            step = next(steps)
        except ArithmeticError as error:  # a flow that has nowhere to go
            return found.row(type(error).__name__)
        found.seconds += clock() - start
        if energy.evaluations > most:
            return found.row("most")
        found.add(step.value, accuracy(step.dataset))
        if found.ended:
            return found.row(found.ended)


def reader(name: str, target: ad.LabeledDataset) -> Callable[[ad.LabeledDataset], float]:
    """The share of samples that a frozen model of the target's dataset reads right."""
    model = LENET["frozen"](name, EPOCHS)

    def accuracy(rho: ad.LabeledDataset) -> float:
        answers = torch.softmax(LENET["scores"](model, rho.samples), dim=1)
        said = ad.ClassMatching.between(rho, target).predict(answers, unknown=None)
        return sum(one == other for one, other in zip(said, rho.labels, strict=True)) / len(rho)

    return accuracy


def drawn(names: Pair, n: int) -> tuple[ad.LabeledDataset, ad.LabeledDataset]:
    """n samples a side, classes of equal size, as images of 28 × 28."""
    generator = torch.Generator().manual_seed(0)
    sides = [ad.datasets.load(name).sample(n, balanced=True, generator=generator) for name in names]
    return ad.harmonize(*sides, size=SIZE)


def told(reached: dict[str, float] | None) -> str:
    if reached is None:
        return "not reached"
    return f"{reached['evaluations']:.0f} ({reached['seconds']:.1f} s)"


def show(row: dict[str, Any]) -> None:
    rose = f"{row['rises']} of {row['steps']}"
    print(
        f"{row['way']:31s}  {told(row['value']):>13s}  {told(row['accuracy']):>13s}  {rose:>10s}"
        f"  {row['lowest']:8.2g}  {100 * row['most_right']:6.1f} %  {row['ended']}",
        flush=True,
    )


def table(given: argparse.Namespace, names: Pair) -> list[dict[str, Any]]:
    """All rows of a pair of datasets."""
    source, target = drawn(names, given.n)
    accuracy = reader(names[1], target)
    rows = []
    for weight in given.weights:
        cost = ad.GroundCost(label_weight=weight)
        for case in (case for case in DYNAMICS if any(part in case for part in given.dynamics)):
            print(f"\n{' → '.join(names)}, {len(source)} samples, label weight {weight:g}, {case}")
            print(f"{'':31s}  {'value':>13s}  {'accuracy':>13s}  {'rose':>10s}    lowest      best")
            few = [data.sample(60) for data in (source, target)]
            walk(ways()[0], Counted(few[1], cost=cost), few[0], DYNAMICS[case], 2, accuracy)
            for way in ways():
                if not any(part in way.name for part in given.ways):
                    continue
                energy = Counted(target.replace(), cost=cost)  # copies remember nothing
                row = walk(way, energy, source, DYNAMICS[case], given.most, accuracy)
                about = {"pair": list(names), "n": len(source), "m": len(target), "d": source.dim}
                about |= {"label_weight": weight, "dynamics": case, "way": way.name}
                rows.append(about | row)
                show(rows[-1])
    return rows


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=pair, nargs="+", help="source:target, by name")
    parser.add_argument("--n", type=int, default=500, help="samples a side")
    parser.add_argument("--weights", type=float, nargs="+", default=[5.0], help="of labels")
    parser.add_argument("--most", type=int, default=200, help="evaluations")
    parser.add_argument("--dynamics", nargs="+", default=[""], help="parts of names")
    parser.add_argument("--ways", nargs="+", default=[""], help="parts of names, such as Euler")
    parser.add_argument("--quick", action="store_true", help="one pair, 200 samples")
    parser.add_argument("--json", type=Path, help="write the rows here too")
    given = parser.parse_args()
    known = PAIRS if os.environ.get("ADVECT_DATA") else [DIGITS]
    given.pairs = given.pairs or known[: 1 if given.quick else None]
    given.n = min(given.n, 200) if given.quick else given.n
    return given


def main() -> None:
    given, rows = options(), []
    print(f"{torch.get_num_threads()} threads; at most {given.most} evaluations", file=sys.stderr)
    warnings.simplefilter("ignore", ConvergenceWarning)
    for names in given.pairs:
        rows += table(given, names)
        facts = {"benchmark": "steps", **code(), "most": given.most}
        facts |= {"share": SHARE, "right": RIGHT, "epochs": EPOCHS}
        write_json(given.json, facts | by_first(rows))


if __name__ == "__main__":
    main()
