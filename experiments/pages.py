"""Tables of the documentation that are not plain accuracies: one function for each."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from statistics import fmean
from typing import Any

from evidence import FOLDER
from tables import NOT_RUN, Experiment, markdown

from advect.apps import TransferScores

Rows = list[dict[str, Any]]


def benchmark(name: str) -> dict[str, Any]:
    """A file of benchmarks/results."""
    path = FOLDER.parent / "benchmarks" / "results" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))


def descent() -> str:
    """Values of flows before and after steps were controlled."""
    rows = []
    for name, cells in Experiment.read("descent").groups.items():
        if not cells:
            continue
        cell = cells[0]
        before, after = cell["before"], cell["after"]
        old = f"{before['last']:.4g} ({before['lowest']:.4g}), {_rises(before)}"
        rows.append([name, f"{after['first']:.4g}", old, f"{after['last']:.4g}, {_rises(after)}"])
    head = [
        "setup",
        "first value",
        "before: last (lowest), steps that rose",
        "after: last, steps that rose",
    ]
    return markdown(head, rows) if rows else f"*{NOT_RUN}*"


def _rises(flow: dict[str, Any]) -> str:
    return f"{flow['rises']} of {flow['steps']}, {flow['status']}"


def maps() -> str:
    """Errors and accuracies of maps, over the draws."""
    found = Experiment.read("maps")
    setting = next(iter(found.groups), "")
    seconds = found.facts(setting, "processor seconds of maps")

    def time(name: str, part: str) -> str:
        each = [draw[name][part] for draw in seconds if name in draw]
        return f"{fmean(each):.1f}" if each else ""

    rows = []
    for name in found.columns:
        errors = [draw[name] for draw in found.facts(setting, "squared errors")]
        row = [name, f"{fmean(errors):.4f}", f"{found.mean(setting, name)} %"]
        rows.append([*row, time(name, "fit"), time(name, "carry")])
    head = [
        "map",
        "mean squared error to the same images flowed properly",
        "read by the frozen LeNet-5",
        "fit, s",
        "carry, s",
    ]
    return markdown(head, rows) if rows else f"*{NOT_RUN}*"


def objective() -> str:
    """Accuracy at the end, and correlation along the flow, by regularisation."""
    found = Experiment.read("objective")
    epsilons = found.settings.get("EPSILONS", [])

    def cell(pair: str, epsilon: float) -> str:
        setting = f"{pair}, epsilon {epsilon}"
        ranks = [rho for rho in found.facts(setting, "spearman") if not math.isnan(rho)]
        if not found.groups.get(setting):
            return NOT_RUN
        return f"{found.mean(setting, 'after')}" + (f" (ρ {fmean(ranks):+.2f})" if ranks else "")

    rows = []
    for source, target in found.settings.get("PAIRS", []):
        pair = f"{source} → {target}"
        before = [found.mean(f"{pair}, epsilon {each}", "before") for each in epsilons]
        first = next((each for each in before if each != NOT_RUN), NOT_RUN)
        rows.append([pair, first, *(cell(pair, each) for each in epsilons)])
    head = ["flow", "before", *(f"epsilon {each}" for each in epsilons)]
    return markdown(head, rows) if rows else f"*{found.draws}*"


def agreement(low: bool) -> str:
    """In how many draws objective and accuracy rise and fall together, for small or large
    epsilons.
    """
    found = Experiment.read("objective")
    ranks = [
        cell["spearman"]
        for cell in found.cells.values()
        if (cell["arguments"]["epsilon"] <= 1 / 100) == low
    ]
    return f"{sum(rho > 1 / 2 for rho in ranks)} of {len(ranks)}"


def supervised() -> str:
    """Table 1 of the paper, its supervised row, ours beside it."""
    found = Experiment.read("supervised")
    rows = []
    for setting in found.groups:
        paper = found.settings["PAPER"][setting]
        ours = [found.mean(setting, column) for column in ("before", "after")]
        rows.append([setting, ours[0], str(paper[0]), ours[1], str(paper[1])])
    head = ["", "before", "before, paper", "after the flow", "after, paper"]
    return markdown(head, rows) if rows else f"*{found.draws}*"


def clusterers() -> str:
    """Accuracy of clusters: methods down, datasets across."""
    found = Experiment.read("clusterers")
    if not found.groups:
        return f"*{found.draws}*"
    rows = [[way, *(found.mean(each, way) for each in found.groups)] for way in found.columns]
    return markdown(["", *found.groups], rows)


def distance_table() -> str:
    """What a distance takes beside products, a peer and the textbook's label distances."""

    def ratio(row: dict[str, Any], name: str, form: str) -> str:
        return "" if row.get(name) is None or math.isnan(row[name]) else f"{row[name]:{form}}"

    columns = {
        "whole": ".1f",
        "geomloss": ".1f",
        "peer_error": ".0e",
        "textbook": ".0f",
        "memory": ".1f",
    }
    rows = [
        [str(row["n"]), *(ratio(row, name, form) for name, form in columns.items())]
        for row in benchmark("distance")["rows"]
    ]
    head = [
        "n",
        "distance ÷ three products",
        "geomloss ÷ our solves",
        "its marginal error",
        "textbook ÷ our label distances",
        "peak memory ÷ n² floats",
    ]
    return markdown(head, rows)


def flow_table() -> str:
    """What a step takes beside products, and how far it is off."""

    def number(row: dict[str, Any], name: str, form: str) -> str:
        value = row.get(name)
        return "" if value is None or math.isnan(value) else f"{value:{form}}"

    found = benchmark("flow")
    rows = [
        [
            " to ".join(row.get("pair", found["pair"])),
            str(row["n"]),
            f"{row.get('label_weight', 1):g}",
            row["dynamics"],
            number(row, "ratio", ".1f"),
            number(row, "later", ".1f"),
            number(row, "value_error", ".0e"),
            number(row, "gradient_error", ".0e"),
            number(row, "error", ".0e"),
            number(row, "memory", ".1f"),
        ]
        for row in [*found["rows"], *found.get("others", [])]
    ]
    head = ["data", "n", "label weight", "dynamics", "step ÷ products", "later half"]
    head += ["value error", "gradient error", "label error", "peak memory ÷ n² floats"]
    return markdown(head, rows)


def step_ratio(dynamics: str, n: int) -> str:
    """How many times the unavoidable products a step takes."""
    rows: Rows = benchmark("flow")["rows"]
    chosen = [row["ratio"] for row in rows if row["n"] == n and row["dynamics"] == dynamics]
    return f"{chosen[0]:.1f}"


def scale_table(part: str, titles: dict[str, str]) -> str:
    """Seconds and memory of each route by n, and how they grow over the last three sizes."""
    found: Rows = benchmark("scale")[part]
    by = {(row["route"], row["n"]): row for row in found}
    sizes = sorted({row["n"] for row in found})
    rows = [[f"{n:,}", *(_cost(by.get((route, n))) for route in titles)] for n in sizes]
    for title, name in (("growth of time", "seconds"), ("growth of memory", "bytes")):
        rows.append([title, *(_power(by, route, sizes, name) for route in titles)])
    if part == "distances":
        rows.append(["error, at n", *(_error(by, route, sizes) for route in titles)])
    return markdown(["n", *titles.values()], rows)


def _cost(row: dict[str, Any] | None) -> str:
    return "" if row is None else f"{row['seconds']:.1f} s, {row['bytes'] / 2**20:,.0f} MiB"


def _power(by: dict[tuple[str, int], Any], route: str, sizes: list[int], name: str) -> str:
    there = [n for n in sizes if (route, n) in by][-3:]
    x = [math.log(n) for n in there]
    y = [math.log(max(by[route, n][name], 1e-9)) for n in there]
    slope = sum((a - fmean(x)) * (b - fmean(y)) for a, b in zip(x, y, strict=True))
    return f"n^{slope / sum((a - fmean(x)) ** 2 for a in x):.2f}"


def _error(by: dict[tuple[str, int], Any], route: str, sizes: list[int]) -> str:
    known = [(n, by[route, n]["error"]) for n in sizes if by.get((route, n), {}).get("error")]
    return f"{known[-1][1]:.1e} ({known[-1][0]:,})" if known else ""


def ranks_table() -> str:
    """Work and traffic of ranks."""
    rows = []
    for row in benchmark("ranks")["rows"]:
        work = [f"{row['seconds']:.2f} s", f"{row['of one']:.2f}", row["iterations"]]
        payload = [f"{row[name] / 1e6:.2f} MB" for name in ("payload", "formula")]
        rows.append([str(row["ranks"]), str(row["rows"]), *work, *payload])
    head = [
        "ranks",
        "rows of a rank",
        "processor time of a rank in a step",
        "of one rank's",
        "I, J",
        "payload of a step",
        "by the formula",
    ]
    return markdown(head, rows)


def audit_table(part: str = "accuracies", per: str = "kind") -> str:
    """Damage of each kind and share (or each dataset) down, ways across: the mean over datasets in each
    draw, and half its 95 % interval over draws. The best of those without a reference is bold.
    """
    found, rows = Experiment.read("audit"), []
    groups: dict[str, dict[str, dict[int, list[float]]]] = {}
    for cell in found.cells.values():
        given = cell["arguments"]
        name = f"{given['kind']}, {given['share']} %" if per == "kind" else given["dataset"]
        for column, value in cell.get(part, {}).items():
            draws = groups.setdefault(name, {}).setdefault(column, {})
            draws.setdefault(given["seed"], []).append(100 * value)
    for name, columns in groups.items():
        whole = max(len(each) for draws in columns.values() for each in draws.values())
        means = {  # of draws that have all datasets
            column: [fmean(each) for each in draws.values() if len(each) == whole]
            for column, draws in columns.items()
        }
        alone = [fmean(means[column]) for column in found.columns if "reference" not in column]
        row = []
        for column in found.columns:
            scores = TransferScores({column: means[column]})
            half = f" ± {scores.interval(column):.1f}" if len(means[column]) > 1 else ""
            text = f"{scores.mean(column):.1f}{half}"
            best = "reference" not in column and fmean(means[column]) == max(alone)
            row.append(f"**{text}**" if best else text)
        rows.append([name, *row])
    return (
        markdown(["damage" if per == "kind" else "data", *found.columns], rows)
        if rows
        else f"*{found.draws}*"
    )


def audit_beaten() -> str:
    """Kinds and shares of damage where the best way without a reference is not ours, by how much."""
    found, told = Experiment.read("audit"), []
    for kind in found.settings.get("KINDS", []):
        for share in found.settings.get("SHARES", []):
            draws: dict[int, list[dict[str, float]]] = {}
            for cell in found.cells.values():
                given = cell["arguments"]
                if (given["kind"], given["share"]) == (kind, share):
                    draws.setdefault(given["seed"], []).append(cell["accuracies"])
            whole = max(map(len, draws.values()), default=0)  # draws that have all datasets
            cells = [one for each in draws.values() if len(each) == whole for one in each]
            alone = [column for column in found.columns if "reference" not in column]
            if cells:
                means = {column: 100 * fmean(each[column] for each in cells) for column in alone}
                best = max(means, key=lambda column: means[column])
                ahead = means[best] - means[found.recommended]
                if ahead >= 1 / 20:
                    told.append(f"{kind} at {share} % ({best}, by {ahead:.1f} points)")
    return "; ".join(told) if told else "nowhere" if found.cells else NOT_RUN


def audit_rule() -> str:
    """What the rule marks: precision and recall where there is damage, and how much of clean data."""
    found, rows = Experiment.read("audit"), []
    for dataset in [*found.settings.get("IMAGES", []), *found.settings.get("TABLES", [])]:
        cells = [cell for cell in found.cells.values() if cell["arguments"]["dataset"] == dataset]
        clean = [cell["flagged"]["audit"] for cell in cells if "rule" not in cell]
        row = [dataset]
        for name in ("wrong", "odd", "copies"):
            row.append(f"{100 * fmean(each[name] for each in clean):.1f} %" if clean else NOT_RUN)
        for kinds in (
            ("flipped labels", "flipped by class"),
            ("noise",),
            ("other data",),
            ("duplicates",),
        ):
            ruled = [
                cell["rule"]
                for cell in cells
                if cell["arguments"]["kind"] in kinds and cell["arguments"]["share"] == 5
            ]
            right = [each["precision"] for each in ruled if each["precision"] is not None]
            recall = [each["recall"] for each in ruled]
            row.append(f"{100 * fmean(right):.0f} / {100 * fmean(recall):.0f}" if right else "")
        rows.append(row)
    head = ["data", "clean, in doubt", "clean, odd", "clean, copies"]
    head += ["flipped labels", "noise", "other data", "duplicates"]
    return markdown(head, rows) if found.cells else f"*{found.draws}*"


WORDS: dict[str, Callable[..., Any]] = {
    "audit_table": audit_table,
    "audit_beaten": audit_beaten,
    "audit_rule": audit_rule,
    "bench": benchmark,
    "descent": descent,
    "maps": maps,
    "objective": objective,
    "agreement": agreement,
    "supervised": supervised,
    "clusterers": clusterers,
    "distance_table": distance_table,
    "flow_table": flow_table,
    "step_ratio": step_ratio,
    "scale_table": scale_table,
    "ranks_table": ranks_table,
}
