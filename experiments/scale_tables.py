"""Tables of ``benchmarks/scale_model.py``: the model of time and traffic beside what was measured, and where it leads."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

from figures import FIGURES
from tables import NOT_RUN, benchmark, markdown

WAYS = {
    "rows": "rows, as it is built",
    "grid": "blocks of rows and columns",
    "condensed": "a condensed target",
    "batches": "mini-batches",
    "low rank": "a low-rank kernel",
    "sliced": "slices",
    "gaussian": "class statistics, a Gaussian map (all of it)",
}
PARTS = {
    "costs": "costs, once",
    "anew": "costs and kernels, made anew",
    "plans": "products with plans",
    "kernels": "other passes",
    "labels": "label laws",
    "vectors": "vectors",
    "rest": "the rest",
    "messages": "messages",
}


def _checked(fresh: bool) -> list[dict[str, Any]]:
    found = benchmark("scale_model")
    return found["fresh"]["rows"] if fresh else found["rows"]


def model_checks(fresh: bool = False) -> str:
    """Measured beside predicted."""
    rows = []
    for row in _checked(fresh):
        step, first = row["step"], row["first"]
        across, within = row["products"]
        rows.append(
            [
                f"{row['n']:,}",
                str(row["d"]),
                "kept" if row["kept"] else "made anew",
                str(row["ranks"]),
                f"{across:.0f}, {within:.0f}",
                *_beside(step, "seconds"),
                *_beside(step, "work"),
                _off(first, "seconds"),
                f"{row['bytes']['counted'][-1] / 1e6:.2f} MB",
            ]
        )
    head = ["n = m", "d", "matrices", "ranks", "products across, within"]
    head += ["a step by the clock", "by the model", "off"]
    head += ["processor of a rank", "by the model", "off", "a distance, off", "payload of a step"]
    return markdown(head, rows)


def _beside(part: dict[str, Any], name: str) -> list[str]:
    return [_time(part["measured"][name]), _time(part["model"][name]), _off(part, name)]


def _off(part: dict[str, Any], name: str) -> str:
    return f"{100 * part['off'][name]:+.0f} %"


def model_verdict(fresh: bool = False) -> str:
    """How far it is off at most, and whether bytes agree."""
    rows = _checked(fresh)
    said = []
    for name, title in (("seconds", "by the clock"), ("work", "of a rank's processor")):
        off = [abs(row["step"]["off"][name]) for row in rows]
        near = sum(each <= 1 / 4 for each in off)
        said.append(
            f"The time of a step {title} is within a quarter of the model's in {near} of {len(off)} cases, "
            f"and at most {100 * max(off):.0f} % off."
        )
    same = sum(row["bytes"]["counted"] == row["bytes"]["model"] for row in rows)
    said.append(f"Bytes are the same, every one of them, in {same} of {len(rows)}.")
    return " ".join(said)


def model_origin() -> str:
    """When and where it was measured, and what is against it."""
    found = benchmark("scale_model")
    code, cores, load = found["code"], found["cores"], found["load"]
    told = (
        f"Measured {code['date']} at {code['commit']} on {cores} cores; medians over {found['rounds']} rounds of "
        f"{found['steps']} steps. "
    )
    waits = [
        f"{_time(of['latency'])} and {100 * of['late']:.0f} % with {p} ranks"
        for p, of in found["waits"].items()
    ]
    told += f"Latency of a message and lateness: {', '.join(waits)}. "
    told += f"Other tenants of the host took {100 * found['taken']:.0f} % of the cores' time."
    if load > cores / 2:
        told += f" The load of the machine was {load:g} in the minute before it began."
    if found["sizes"] != "all":
        told += " **Small sizes, to see that it runs: rates, and all that follows from them, are preliminary.**"
    return told


def model_rates() -> str:
    """What one rank takes, alone and while all cores are busy."""
    rates = benchmark("scale_model")["rates"]
    lines: dict[str, Callable[[dict[str, Any]], str]] = {
        "product of features, a flop": lambda r: _small(r["flop"]["costs"][-1][1]),
        "an entry of a cost, beside it": lambda r: _small(r["entry"]["costs"][-1][1]),
        "an entry of a kernel (its exponential)": lambda r: _small(r["entry"]["fill"][-1][1]),
        "an entry of K v": lambda r: _small(r["entry"]["times"][-1][1]),
        "an entry of both products in one call": lambda r: _small(r["entry"]["sweep"][-1][1]),
        "an entry made anew, beside the product": lambda r: _small(r["entry"]["anew"][-1][1]),
        "a distance of two laws": lambda r: (
            f"{_time(r['pair'][-1][1])} (rank {r['pair'][-1][0]:.0f})"
        ),
        "a number of the features, all of the rest": lambda r: _small(r["feature"]),
        "a call of the kernel, beside its products": lambda r: _time(r["call"]),
    }
    head = ["seconds of", *(f"{count} at once" if count != "1" else "alone" for count in rates)]
    return markdown(
        head, [[name, *(line(r) for r in rates.values())] for name, line in lines.items()]
    )


def model_messages() -> str:
    """What an exchange takes here."""
    found = benchmark("scale_model")["messages"]
    kinds = sorted({(each["ranks"], each["kind"]) for each in found})
    sizes = sorted({each["size"] for each in found})
    by: dict[tuple[int, str, int], list[float]] = {}
    for each in found:
        by.setdefault((each["ranks"], each["kind"], each["size"]), []).append(each["seconds"])
    rows = [
        [_bytes(size), *(_time(sum(by[*kind, size]) / len(by[*kind, size])) for kind in kinds)]
        for size in sizes
    ]
    return markdown(["payload", *(f"{kind}, {ranks} ranks" for ranks, kind in kinds)], rows)


def model_assumed() -> str:
    """What a machine is, and what a step asks."""
    of = benchmark("scale_model")["routes"]["assumed"]
    return (
        f"A machine is assumed to be {of['cores']} cores like the one that was measured with all of them busy, "
        f"{_bytes(of['memory'])} of memory, and a link of {8 * of['bandwidth'] / 1e9:.0f} Gbit/s with "
        f"{_time(of['latency'])} of latency. Datasets have d = {of['d']} and {of['classes']} classes, in float32. A step asks "
        f"for {of['across']} products across and {of['within']} within, as the largest check did; how many a billion samples "
        f"take is not known. Features and what a step makes of them take {of['copies']:.0f} bytes for each sample × dimension, "
        "measured."
    )


def model_settings() -> str:
    """What the ways were reckoned with."""
    of = benchmark("scale_model")["routes"]["assumed"]
    return (
        f"(A condensed dataset has {of['few']:,} points, a mini-batch {of['batch']:,} samples, every sample once in a "
        f"step, a low-rank kernel has rank {of['rank']:,}, and there are {of['slices']} slices.)"
    )


def model_far(way: str) -> str:
    """A step of one way: samples down, machines across."""
    table = [row for row in benchmark("scale_model")["routes"]["table"] if row["way"] == way]
    machines = sorted({row["machines"] for row in table})
    by = {(row["n"], row["machines"]): row for row in table}
    rows = [
        [_power(n), *(_three(by[n, p]) for p in machines)] for n in sorted({r["n"] for r in table})
    ]
    return markdown(["n = m", *(f"{p:,} machines" for p in machines)], rows)


def model_ways(machines: int) -> str:
    """All ways on some machines: samples across."""
    table = benchmark("scale_model")["routes"]["table"]
    by = {(row["way"], row["n"]): row for row in table if row["machines"] == machines}
    samples = sorted({n for _, n in by})
    rows = [[title, *(_three(by[way, n]) for n in samples)] for way, title in WAYS.items()]
    return markdown(["a step", *(f"n = {_power(n)}" for n in samples)], rows)


def _three(row: dict[str, Any]) -> str:
    return f"{_time(row['seconds'])}, {_bytes(row['memory'])}, {_bytes(row['payload'])}"


def model_parts() -> str:
    """Where the time of a step goes."""
    found = benchmark("scale_model")["routes"]["parts"]
    rows = [[f"n = {_power(row['n'])}", *(_time(row[name]) for name in PARTS)] for row in found]
    return markdown(["", *PARTS.values()], rows)


def model_limits() -> str:
    """From how many samples on something breaks."""
    limits = benchmark("scale_model")["routes"]["limits"]
    names = list(next(iter(limits.values())))
    rows = [[name, *(_about(each[name]) for each in limits.values())] for name in names]
    return markdown(["from n on", *(f"{int(p):,} machines" for p in limits)], rows)


def model_stragglers() -> str:
    """How many times as long a step takes."""
    rows = []
    for row in benchmark("scale_model")["stragglers"]:
        each = [
            f"{row[f'{name}, {way}']:.2f}"
            for name in ("jitter", "pauses", "old")
            for way in ("often", "once")
        ]
        rows.append([f"{row['machines']:,}", _time(row["exact"]), *each])
    head = ["machines", "a step without noise"]
    for name in ("a little, always", "a pause, seldom", "slow machines"):
        head += [f"{name}: ×", "waiting once: ×"]
    return markdown(head, rows)


def _small(seconds: float) -> str:
    return f"{1e12 * seconds:.0f} ps" if seconds < 1e-9 else f"{1e9 * seconds:.1f} ns"


def _time(seconds: float) -> str:
    for size, name in ((86_400 * 365, "years"), (86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return (
                f"{seconds / size:,.3g} {name}"
                if seconds < 1000 * size
                else f"{seconds / size:,.0f} {name}"
            )
    if seconds == 0:
        return "–"
    for size, name in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= size:
            return f"{seconds / size:.3g} {name}"
    return f"{1e6 * seconds:.0f} µs"


def _bytes(size: float) -> str:
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return (
                f"{size / unit:.3g} {name}" if size < 1000 * unit else f"{size / unit:,.0f} {name}"
            )
    return f"{size:.0f} B"


def _power(n: float) -> str:
    return "10" + str(round(math.log10(n))).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _about(n: float) -> str:
    for unit, name in ((1e9, "billion"), (1e6, "million")):
        if n >= unit:
            return f"{n / unit:.3g} {name}"
    return f"{n:,.0f}"


def model_figure() -> str:
    """The figure, where it was drawn."""
    if not (FIGURES / "scale-model.png").exists():
        return f"*{NOT_RUN}*"
    return "![time of a step over samples](figures/scale-model.png)"


def _if_run(table: Callable[..., str]) -> Callable[..., str]:
    """A table, or that there is none yet."""

    @wraps(table)
    def found(*arguments: Any) -> str:
        try:
            return table(*arguments)
        except FileNotFoundError:
            return f"*{NOT_RUN}*"

    return found


WORDS: dict[str, Callable[..., str]] = {
    table.__name__: _if_run(table)
    for table in (
        *(model_assumed, model_settings, model_checks, model_verdict, model_origin, model_rates),
        *(model_messages, model_far, model_ways, model_parts, model_limits, model_stragglers),
        model_figure,
    )
}
