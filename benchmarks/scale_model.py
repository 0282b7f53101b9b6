"""A model of what a step takes on p ranks, from rates of one: calibrated, and checked against 1, 2 and 4 ranks here.

    python benchmarks/scale_model.py [--quick] [--ranks 1 2 4] [--json benchmarks/results/scale_model.json]

rates     of a rank alone, and of 2 and 4 at work at once. Sizes and dimensions are others than those of the checks
messages  of 2 and 4 ranks over gloo on this machine: what bytes take, by an exchange of some sizes, between which it goes
          along powers; latency, and how long ranks wait for the last, by flows of these other sizes
check     the clock of some steps after the first evaluation, and of that one (a whole distance, from nothing), on
          1, 2 and 4 ranks, of which more than there are cores share them; as measured, and by the model, which is given
          how many products the solves asked for
bytes     of all messages, counted, and by the model: equal
fresh     (--fresh) other sizes once more, by rates and waits that are in the file already
All of it is done in rounds, of which medians are taken; the file is written after each. The model then goes where nothing
was measured (scale_routes.py), and docs/internet-scale.md says what it finds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import scale_probe
import torch
from common import code, side_by_side, write_json
from cost_model import Evaluation, Measured, Prediction, Rates, Shape, predict
from scale_rates import exchanges, fit, network, restored, told
from scale_routes import CORES, WIRES, routes
from scale_simulation import stragglers

import advect.distributed

# matrices of more than 32 MiB are new pages at each use, and those of less are not: n = 2800 and 3000 are on either side
CELLS = [(1000, 32, True), (1000, 512, True), (2800, 32, True), (2800, 512, True)]
CELLS += [(3000, 32, True), (6000, 32, True)]
CELLS += [(1000, 32, False), (1500, 32, False), (1500, 512, False), (2400, 32, False)]
JOINED = [
    (1000, 32, True),
    (2800, 32, True),
    (2800, 512, True),
    (6000, 32, True),
    (1500, 32, False),
]
LABELS = [(60, 512), (150, 512), (300, 512), (640, 512), (300, 32), (400, 128), (4000, 128)]
CHECKS = [(2000, 64, True), (4000, 64, True), (8000, 64, True), (2000, 64, False)]
CHECKS += [(2000, 784, True), (4000, 784, True)]
FRESH = [(3300, 100, True), (5000, 300, True), (2300, 150, False), (1600, 400, True)]
SIZES = [8, 1 << 12, 1 << 15, 1 << 18, 1 << 21, 1 << 24]
STEPS = 3
QUICK_CELLS = [(600, 8, True), (600, 24, True), (800, 8, True), (600, 8, False), (600, 24, False)]
QUICK_JOINED = [(600, 8, True), (600, 8, False)]
QUICK_LABELS = [(20, 24), (40, 24), (90, 24)]
QUICK_CHECKS = [(701, 12, True), (701, 12, False)]
Facts = dict[str, Any]


def task(given: Facts) -> Any:
    """What a process of its own does, as one rank or alone."""
    kind = given["task"]
    if kind == "peak":
        return scale_probe.peak(Shape(**given["shape"]))
    if kind == "calibrate":
        return calibrated(given["cells"], given["labels"])
    with advect.distributed.group() as group:
        warm_up(group)
        said = scale_probe.message_times(given["sizes"], group) if group.size > 1 else []
        walks = [scale_probe.walk(Shape(**each), STEPS, group) for each in given["shapes"]]
        return {"messages": said, "walks": walks}


def warm_up(group: Any) -> None:
    """What is loaded at first use is no part of a step."""
    scale_probe.walk(Shape(600, 600, 8, ranks=group.size), 1, group)


def calibrated(cells: list[tuple[int, int, bool]], labels: list[tuple[int, int]]) -> Facts:
    """All that rates are made of, measured by one process."""
    alone = advect.distributed.Group()
    warm_up(alone)
    walked = []
    for n, d, kept in cells:
        records = scale_probe.walk(Shape(n, n, d, kept=kept), STEPS, alone, parts=True)
        walked.append({"n": n, "d": d, "kept": kept, "records": records})
    laws = [scale_probe.label_times(size, d) for size, d in labels]
    return {
        "cells": walked,
        "labels": laws,
        "mark": scale_probe.mark_time(),
        "sort": scale_probe.sort_time(),
    }


def launch(count: int, given: Facts, **options: Any) -> list[Any]:
    """The same task in several processes at once."""
    return side_by_side([__file__, "--task", json.dumps(given)], count, **options)


def averaged(found: list[Facts]) -> Rates:
    """Rates from several calibrations of the same cells: all of them are fitted at once."""
    cells = [cell for each in found for cell in each["cells"]]
    merged: dict[tuple[int, int, bool], Facts] = {}
    for cell in cells:
        known = merged.setdefault((cell["n"], cell["d"], cell["kept"]), cell | {"records": []})
        known["records"] += cell["records"]
    labels: dict[tuple[int, int], list[Facts]] = {}
    for each in (law for one in found for law in one["labels"]):
        labels.setdefault((each["size"], each["d"]), []).append(each)
    laws = [
        {"size": size, "d": d}
        | {name: statistics.median(e[name] for e in of) for name in ("pair", "law")}
        for (size, d), of in labels.items()
    ]
    beside = [statistics.median(each[name] for each in found) for name in ("mark", "sort")]
    return fit(list(merged.values()), laws, *beside)


@dataclass
class Round:
    """One measurement of everything: rates and waits of each number of ranks, and the records of each walk,
    rank by rank.
    """

    rates: dict[int, Rates]
    wires: dict[int, Measured]
    walks: dict[Shape, list[list[Facts]]]

    def predictions(self, shape: Shape, cores: int) -> list[Prediction]:
        records = self.walks[shape][0]
        wires = self.wires.get(shape.ranks)
        every = [Evaluation.read(record) for record in records]
        return [predict(shape, each, self.rates[shape.ranks], wires, cores) for each in every]


def compared(shape: Shape, rounds: list[Round], cores: int) -> Facts:
    """Measured beside predicted, for the steps after the first evaluation and for that one."""
    row: Facts = {"n": shape.n, "d": shape.d, "ranks": shape.ranks, "kept": shape.kept}
    said = [each.predictions(shape, cores) for each in rounds]
    walks = [each.walks[shape] for each in rounds]
    row |= {
        "step": _beside(walks, said, slice(1, None)),
        "first": _beside(walks, said, slice(0, 1)),
    }
    counted = [sum(size for _, size in record["traffic"].values()) for record in walks[-1][0]]
    row["bytes"] = {"counted": counted, "model": [each.payload for each in said[-1]]}
    steps = [Evaluation.read(record) for walk in walks for record in walk[0][1:]]
    row["products"] = [
        statistics.fmean(each.iterations(side) for each in steps) for side in ("cross", "source")
    ]
    return row


def _beside(walks: list[list[list[Facts]]], said: list[list[Prediction]], which: slice) -> Facts:
    """Means over evaluations and ranks, and of these the medians over rounds."""
    measured: dict[str, float] = {}
    model: dict[str, float] = {}
    for name in ("seconds", "work"):
        of = [[record[name] for rank in walk for record in rank[which]] for walk in walks]
        measured[name] = statistics.median(map(statistics.fmean, of))
        told = [[getattr(one, name) for one in each[which]] for each in said]
        model[name] = statistics.median(map(statistics.fmean, told))
    last = said[-1][which]
    parts = {name: statistics.fmean(p.parts[name] for p in last) for name in last[0].parts}
    parts["messages"] = statistics.fmean(p.waiting for p in last)
    off = {name: model[name] / measured[name] - 1 for name in measured}
    return {"measured": measured, "model": model, "off": off, "parts": parts}


def bytes_of_a_number(quick: bool) -> float:
    """Of memory, for each sample × dimension: two runs that differ in dimensions alone."""
    n, few, many = (600, 8, 200) if quick else (2000, 32, 1032)
    given = [{"task": "peak", "shape": vars(Shape(n, n, d))} for d in (few, many)]
    low, high = (launch(1, each, MALLOC_MMAP_THRESHOLD_="1000000")[0] for each in given)
    return (high - low) / (n * (many - few))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--most", type=int, default=10**9, help="samples of the largest check")
    parser.add_argument("--rounds", type=int, help="how often all is measured; 3, quick 1")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--json", type=Path, help="write what was found here too")
    parser.add_argument("--fresh", action="store_true", help="other sizes, by what --json holds")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.task:
        print(json.dumps(task(json.loads(options.task))))
        return
    cores, load = len(os.sched_getaffinity(0)), round(os.getloadavg()[0], 1)  # before its own
    if options.fresh:
        fresh(options.json, options.ranks, cores, load)
        return
    cells, labels = (QUICK_CELLS, QUICK_LABELS) if options.quick else (CELLS, LABELS)
    checks = QUICK_CHECKS if options.quick else [c for c in CHECKS if c[0] <= options.most]
    sizes = SIZES[:4] if options.quick else SIZES
    joined = QUICK_JOINED if options.quick else JOINED
    several = [p for p in options.ranks if p > 1]
    shapes = [Shape(n, n, d, ranks=p, kept=kept) for n, d, kept in checks for p in options.ranks]
    others = [Shape(n, n, d, ranks=p, kept=kept) for n, d, kept in joined for p in several]
    copies, before, rounds = bytes_of_a_number(options.quick), host_times(), []
    calibrations: dict[int, list[Facts]] = {p: [] for p in options.ranks}
    messages: list[Facts] = []
    for done in range(1, 1 + (options.rounds or (1 if options.quick else 3))):
        one = Round({}, {}, {})
        for p in options.ranks:
            alone = launch(p, {"task": "calibrate", "cells": cells, "labels": labels}, joined=False)
            own = [shape for shape in (*others, *shapes) if shape.ranks == p]
            given = {"task": "walks", "shapes": [vars(shape) for shape in own], "sizes": sizes}
            found = launch(p, given)
            calibrations[p] += alone
            messages += found[0]["messages"]
            one.rates[p] = averaged(alone)
            one.walks |= {s: [rank["walks"][k] for rank in found] for k, s in enumerate(own)}
            if p > 1:
                free = [{"shape": s, "ranks": one.walks[s]} for s in own if s in others]
                one.wires[p] = network(found[0]["messages"], free, cores)
        rounds.append(one)
        rows = [compared(shape, rounds, cores) for shape in shapes]
        show(rows)
        rates = {p: averaged(each) for p, each in calibrations.items()}
        facts: Facts = {
            "code": code(),
            "cores": cores,
            "rows": rows,
            "steps": STEPS,
            "rounds": done,
        }
        taken, whole = (now - then for now, then in zip(host_times(), before, strict=True))
        facts |= {
            "load": load,
            "taken": taken / whole,
            "sizes": "small" if options.quick else "all",
        }
        facts |= {"rates": {str(p): told(each) for p, each in rates.items()}, "messages": messages}
        facts["waits"] = {
            str(p): {
                name: statistics.median(getattr(each.wires[p], name) for each in rounds)
                for name in ("latency", "late")
            }
            for p in several
        }
        facts["calibrated at"] = {"rates": cells, "messages": joined}
        busiest = rates[min(options.ranks, key=lambda p: (abs(p - cores), p))]
        write_json(options.json, facts | far(rows, busiest, copies))


def fresh(path: Path, ranks: list[int], cores: int, load: float) -> None:
    """Sizes that nothing was ever fitted or looked at with: measured now, and added to the file."""
    kept, rows = json.loads(path.read_text()), []
    for p in ranks:
        shapes = [Shape(n, n, d, ranks=p, kept=made) for n, d, made in FRESH]
        given = {"task": "walks", "shapes": [vars(shape) for shape in shapes], "sizes": [8]}
        found = launch(p, given)
        one = Round({p: restored(kept["rates"][str(p)])}, {}, {})
        if p > 1:
            said = exchanges([each for each in kept["messages"] if each["ranks"] == p])
            one.wires[p] = replace(said, **kept["waits"][str(p)])
        one.walks = {s: [rank["walks"][k] for rank in found] for k, s in enumerate(shapes)}
        rows += [compared(shape, [one], cores) for shape in shapes]
    show(rows)
    write_json(path, kept | {"fresh": {"rows": rows, "code": code(), "load": load}})


def host_times() -> tuple[int, int]:
    """Of the cores' time, what the host gave to others, and all of it (Linux, since it was started)."""
    times = list(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]))
    return times[7], sum(times)


def far(rows: list[Facts], rates: Rates, copies: float) -> Facts:
    """Where nothing was measured: a step that asks for as many products as that of the largest check."""
    largest = max(rows, key=lambda row: row["n"] * row["d"])
    across, within = (round(each) for each in largest["products"])
    return {
        "routes": routes(rates, across, within, copies),
        "stragglers": stragglers(rates.scaled(CORES), WIRES, across, within),
    }


def show(rows: list[Facts]) -> None:
    print(
        "   n    d  ranks  kept   step: clock  model   off   work  model   off   first: off  bytes"
    )
    for row in rows:
        step, first, sent = row["step"], row["first"], row["bytes"]
        print(
            f"{row['n']:5d} {row['d']:4d} {row['ranks']:5d}   {'yes' if row['kept'] else 'no ':3}"
            f"  {step['measured']['seconds']:10.3f} {step['model']['seconds']:7.3f}"
            f" {100 * step['off']['seconds']:+4.0f} %"
            f" {step['measured']['work']:6.3f} {step['model']['work']:6.3f}"
            f" {100 * step['off']['work']:+4.0f} %    {100 * first['off']['work']:+4.0f} %"
            f"   {'equal' if sent['counted'] == sent['model'] else 'OTHER'}"
        )


if __name__ == "__main__":
    main()
