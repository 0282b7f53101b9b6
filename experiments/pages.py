"""Tables of the documentation that are not plain accuracies: one function for each."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from statistics import fmean
from typing import Any

import automatic_tables
import compare_tables
import imbalanced_tables
import interval_tables
import numpy as np
import sliced_tables
from tables import NOT_RUN, Experiment, benchmark, markdown, mean_and_interval

from advect.apps.label_methods import wilson

Rows = list[dict[str, Any]]


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


def flow_matching() -> str:
    """Flow matching on several pairs, and maps that learn from a flow on the same draws."""
    found, others = Experiment.read("flow_matching"), Experiment.read("maps")
    rows = []
    for name in found.groups:
        read = [100 * each["without labels"] for each in found.facts(name, "read by the nearest")]
        mixed = [100 * each for each in found.facts(name, "pairs of other classes")]
        seconds = found.facts(name, "fit")
        if not seconds:
            continue
        row = [f"flow matching, {name}", f"{fmean(mixed):.1f} %"]
        row += [f"{found.mean(name, column)} %" for column in ("without labels", "with labels")]
        rows.append([*row, f"{fmean(read):.1f} %", f"{fmean(seconds):.1f}"])
    setting = next(iter(others.groups), "")
    times = others.facts(setting, "processor seconds of maps")
    for name in ("not mapped", "neural", "nearest particle", "entropic, not debiased"):
        each = [draw[name]["fit"] for draw in times if name in draw]
        fit = f"{fmean(each):.1f}, and the flow" if each else ""
        rows.append([name, "", f"{others.mean(setting, name)} %", "", "", fit])
    head = [
        "",
        "pairs of other classes",
        "read by the frozen LeNet-5",
        "the same, carried with labels",
        "by the nearest target image",
        "fit, s",
    ]
    return markdown(head, rows) if found.cells else f"*{found.draws}*"


def mixed_pairs() -> str:
    """Shares of pairs that mix classes, by label weight and size of the batch."""
    found = Experiment.read("mixed_pairs")
    setting = next(iter(found.groups), "")
    shares, sizes = found.facts(setting, "shares"), found.settings.get("SIZES", [])
    rows = [
        [name, *(f"{100 * fmean(d[f'{name}, {size}'] for d in shares):.1f} %" for size in sizes)]
        for name in found.settings.get("WEIGHTS", {})
    ]
    head = ["pairs of other classes", *(f"batches of {size}" for size in sizes)]
    return markdown(head, rows) if shares else f"*{found.draws}*"


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
            str(row["threads"]),
            str(row["steps"]),
            f"{row.get('label_weight', 1):g}",
            row["dynamics"],
            number(row, "ratio", ".1f"),
            number(row, "later", ".1f"),
            number(row, "exact", ".1f"),
            number(row, "value_error", ".0e"),
            number(row, "gradient_error", ".0e"),
            number(row, "error", ".0e"),
            number(row, "memory", ".1f"),
        ]
        for row in [*found["rows"], *found.get("others", [])]
    ]
    head = ["data", "n", "threads", "steps", "label weight", "dynamics", "step ÷ products"]
    head += ["later half", "exact ÷ default", "value error", "gradient error", "label error"]
    head += ["peak memory ÷ n² floats"]
    return markdown(head, rows)


def peers_table() -> str:
    """Other code for the same problems: time ÷ ours, and the accuracy that each reached."""

    def number(value: float | None, form: str) -> str:
        return "" if value is None or math.isnan(value) else f"{value:{form}}"

    rows = [
        [
            str(row["n"]),
            row["part"],
            row["peer"],
            number(row["ratio"], ".1f"),
            number(row["marginal_error"], ".0e"),
            number(row["value_error"], ".0e"),
        ]
        for row in benchmark("peers")["rows"]
    ]
    return markdown(["n", "part", "by", "time ÷ ours", "marginal error", "value error"], rows)


def step_ratio(dynamics: str, n: int) -> str:
    """How many times the unavoidable products a step takes."""
    rows: Rows = benchmark("flow")["rows"]
    chosen = [row["ratio"] for row in rows if row["n"] == n and row["dynamics"] == dynamics]
    return f"{chosen[0]:.1f}"


def steps_table() -> str:
    """Evaluations until flows have arrived, by integrator and step control."""
    found = benchmark("steps")
    by = {(_case(row), row["way"]): row for row in [*found["rows"], *found["others"]]}
    cases, ways = (list(dict.fromkeys(key[i] for key in by)) for i in (0, 1))
    rows = [[way, *(_arrival(by[case, way]) for case in cases)] for way in ways]
    return markdown(["", *cases], rows)


def _case(row: dict[str, Any]) -> str:
    return f"{' to '.join(row['pair'])}, {row['dynamics']}"


def _arrival(row: dict[str, Any]) -> str:
    """Evaluations to the value and to the accuracy, and how many steps rose."""
    each = [row[name]["evaluations"] if row[name] else "–" for name in ("value", "accuracy")]
    rose = f" ({row['rises']} of {row['steps']} rose)" if row["rises"] else ""
    return f"{each[0]}, {each[1]}{rose}"


def euler_steps(dynamics: str, control: str, what: str = "value", largest: int = 0) -> str:
    """Evaluations that Euler's steps take at best and at worst, over pairs and sizes, or over the
    largest sizes.
    """
    by = _euler(dynamics, control, what)
    chosen = [each for way in list(by)[-largest:] for each in by[way]]  # by size, as they were run
    most = f"more than {benchmark('steps')['most']}" if math.inf in chosen else max(chosen)
    return f"{min(chosen)} at best and {most} at worst"


def euler_best(dynamics: str, control: str, what: str = "value") -> str:
    """Evaluations that the best of Euler's sizes takes, for each pair."""
    pairs = zip(*_euler(dynamics, control, what).values(), strict=True)
    return " and ".join(str(min(each)) for each in pairs)


def _euler(dynamics: str, control: str, what: str) -> dict[str, list[float]]:
    """Evaluations on each pair, by way."""
    found = benchmark("steps")
    by: dict[str, list[float]] = {}
    for row in [*found["rows"], *found["others"]]:
        if row["dynamics"] == dynamics and re.fullmatch(rf"Euler\(.*\), {control}", row["way"]):
            reached = row[what]["evaluations"] if row[what] else math.inf
            by.setdefault(row["way"], []).append(reached)
    return by


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


def shifted_table() -> str:
    """Accuracy on the Simulated task of skada-bench, published and measured, with 95 % intervals."""
    found = benchmark("skada_bench")
    shifts = list(found["rows"]["Train Src"])
    rows = [
        [f"{name}, published", *map(str, row), f"{fmean(row[:3]):.1f}"]
        for name, row in found["published"].items()
    ]
    for name, row in found["rows"].items():
        cells = [row[shift] for shift in shifts]
        texts = [f"{mean:.1f} ± {(high - low) / 2:.1f}" for mean, low, high, _ in cells]
        rows.append([name, *texts, f"{fmean(cell[0] for cell in cells[:3]):.1f}"])
    return markdown(["", *shifts, "mean of the first three"], rows)


def drift_size(dataset: str = "mnist, n 200") -> str:
    """How often tests find a drift where there is none, with 95 % intervals."""
    found = Experiment.read("drift")
    cells = found.groups.get(f"{dataset}, none 0", [])
    runs = sum(cell["n"] for cell in cells)
    rows = []
    for column in [each for each in DRIFT_COLUMNS if each in found.columns]:
        hits = round(sum(cell["n"] * cell["accuracies"][column] for cell in cells))
        low, high = wilson(hits, runs)
        share = f"{100 * hits / runs:.1f} ({100 * low:.1f} to {100 * high:.1f})"
        rows.append([column, f"{hits} of {runs}", share])
    head = ["test", "pairs", "per cent, with its 95 % interval"]
    return markdown(head, rows) if runs else f"*{NOT_RUN}*"


def drift_size_said(dataset: str) -> str:
    """The same in a sentence, of the recommended test and the widest of the others."""
    found = Experiment.read("drift")
    cells = found.groups.get(f"{dataset}, none 0", [])
    runs = sum(cell["n"] for cell in cells)
    said = []
    for column in [each for each in DRIFT_COLUMNS if each in found.columns]:
        hits = round(sum(cell["n"] * cell["accuracies"][column] for cell in cells))
        said.append(f"{column} {hits}")
    return f"of {runs} pairs, {', '.join(said)}." if runs else f"*{NOT_RUN}*"


def drift_power(match: str) -> str:
    """Power of each test by kind and strength of a change, in per cent."""
    found = Experiment.read("drift")
    settings = [s for s in found.groups if match in s and ", none " not in s and found.groups[s]]
    rows = []
    for setting in settings:
        (cell,) = found.groups[setting]
        rates = [f"{100 * cell['accuracies'][column]:.0f}" for column in DRIFT_COLUMNS]
        name = setting.replace(match, "").strip(", ")
        rows.append([name, str(cell["n"]), f"**{rates[0]}**", *rates[1:]])
    head = ["change", "pairs", f"**{DRIFT_COLUMNS[0]}**", *DRIFT_COLUMNS[1:]]
    return markdown(head, rows) if rows else f"*{NOT_RUN}*"


def drift_study() -> str:
    """Statistics down, changes across: the share of pairs that are found to differ."""
    found = Experiment.read("drift_study")
    rows = [
        [way, *(found.mean(setting, way).partition(".")[0] for setting in found.groups)]
        for way in found.columns
        if way in DRIFT_STUDIED
    ]
    head = ["statistic", *(setting.rpartition(", ")[2] for setting in found.groups)]
    return markdown(head, rows) if rows else f"*{NOT_RUN}*"


DRIFT_COLUMNS = (
    *("ad.drift", "joint", "features", "shares", "labels", "classes"),
    *("MMD, features", "MMD, features and labels"),
    *("classifier, features", "classifier, features and labels"),
)
DRIFT_STUDIED = (
    *("features, MMD 1", "features, energy", "features, aggregated"),
    *("joint, MMD 1", "joint, MMD 0.5", "joint, energy, weight 0.5", "joint, energy, weight 8"),
    *("joint, sliced, pooled means", "joint, sliced, own means", "class means"),
    *("nearest neighbours disagree", "labels, groups of 10, MMD 0.5"),
    *("labels, groups of 10, disagreement", "labels, groups of 10, aggregated"),
    *("labels, groups of 40, aggregated", "joint, groups of 10, aggregated"),
    *("each class, energy", "each class, MMD 0.5", "shares"),
)


def nearest_scores() -> list[dict[str, dict[str, float]]]:
    """Scores of all ways for each draw, from cells that each hold a part."""
    import nearest

    found, draws = Experiment.read("nearest"), []
    for seed in found.settings.get("SEEDS", ()):
        parts = [f"{part}, draw {seed}" for part in ("thirty sets", "reranked", "other samples")]
        if not all(part in found.cells for part in parts):
            continue
        one, best, other = (found.cells[part] for part in parts)
        truth, again = nearest.matrix(one["exact"]), nearest.matrix(other["exact"])
        names = best["sets"]
        redrawn = nearest.scored(nearest.nearest(again), truth, names)
        redrawn["spearman"] = nearest.spearman(again, truth)
        reranked = nearest.scored(np.array(best["found"]), truth, names)
        reranked["seconds"] = best["processor seconds of all"]
        scores = {
            way: each | {"seconds": one["processor seconds of ways"][way]}
            for way, each in one["scores"].items()
        }
        first = {"exact OTDD": scores.pop("exact OTDD"), "exact OTDD, other samples": redrawn}
        first |= {found.recommended: reranked, "index": scores.pop("index")}
        draws.append(first | scores)
    return draws


def nearest_table() -> str:
    """How far an index agrees with exact distances, beside other summaries."""
    found, draws = Experiment.read("nearest"), nearest_scores()
    shuffled, rows = found.facts("labels", "right labels nearer"), []
    for way in draws[0] if draws else ():
        scores = [draw[way] for draw in draws]
        columns = ("recall@1", "recall@5", "same set")
        row = [_interval([100 * each[column] for each in scores], 1) for column in columns]
        row.append(_interval([each.get("spearman", math.nan) for each in scores], 2))
        noticed = [100 * each[way] for each in shuffled if way in each]
        row.append(f"{fmean(noticed):.0f}" if noticed else "")
        spent = [each["seconds"] for each in scores if "seconds" in each]
        row.append(f"{fmean(spent):.2g}" if spent else "")
        rows.append([f"**{way}**" if way == found.recommended else way, *row])
    head = ["", "recall@1, %", "recall@5, %", "same set first, %", "rank correlation"]
    head += ["labels noticed, %", "processor seconds"]
    return markdown(head, rows) if rows else f"*{found.draws}*"


def _interval(values: list[float], digits: int) -> str:
    if any(map(math.isnan, values)):
        return ""
    return mean_and_interval(values, digits)


def nearest_words() -> str:
    """What the table says against vectors, and for them."""
    found, draws = Experiment.read("nearest"), nearest_scores()
    if not draws:
        return ""

    def mean(way: str, column: str) -> float:
        return fmean(draw[way][column] for draw in draws)

    hidden = ("exact OTDD", "exact OTDD, other samples", found.recommended, "index")
    others = [way for way in draws[0] if way not in hidden]
    told = []
    for column, name in (("recall@1", "recall@1"), ("spearman", "rank correlation")):
        best = max(others, key=lambda way: mean(way, column))
        ahead = mean(best, column) > mean("index", column)
        told.append(
            f"By {name}, vectors alone are {'behind' if ahead else 'ahead of'} the best other "
            f"summary, *{best}*."
        )
    if mean("index", "same set") > mean("exact OTDD", "same set"):
        told.append(
            "Vectors alone find another draw of the same dataset more often than the exact distance "
            "does, which between so few samples has noise of its own. Where the question is which "
            "dataset samples come from, ask with `rerank=0`."
        )
    return " ".join(told)


def nearest_growth() -> str:
    """What it takes to index many sets, and to ask."""
    found, rows = Experiment.read("nearest"), []
    for count in found.settings.get("COUNTS", ()):
        for cell in found.groups.get(f"growth, {count} sets", []):
            times = cell["times"]
            named = ("adding", "asking", "asking, reranked", "all pairs")
            size = f"{cell['bytes'] / 2**20:.0f} MiB"
            rows.append([f"{count:,}", *(_duration(times[name]) for name in named), size])
    head = ["sets", "to index all", "to ask", "to ask, with exact distances"]
    head += ["all pairs, exact", "on disk"]
    return markdown(head, rows) if rows else f"*{found.draws}*"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.2g} min" if seconds < 7200 else f"{seconds / 3600:.2g} h"


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
            text = mean_and_interval(means[column])
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


def doubt_errors() -> str:
    """How far distances of labels with doubt δ are from those of labels, in per cent."""
    found = Experiment.read("soft_labels")
    if not any(found.groups.values()):
        return f"*{NOT_RUN}*"
    doubts, rows = list(map(str, found.of("DOUBTS"))), []
    for setting in found.groups:
        means = [100 * fmean(found.values(setting, doubt, part="errors")) for doubt in doubts]
        rows.append([f"{setting}, MNIST", *(f"{mean:.2g} %" for mean in means)])
    return markdown(["δ", *doubts], rows)


WORDS: dict[str, Callable[..., Any]] = {
    "doubt_errors": doubt_errors,
    "audit_table": audit_table,
    "audit_beaten": audit_beaten,
    "audit_rule": audit_rule,
    "bench": benchmark,
    "descent": descent,
    "nearest_table": nearest_table,
    "nearest_growth": nearest_growth,
    "nearest_words": nearest_words,
    "nearest_scores": nearest_scores,
    "maps": maps,
    "flow_matching": flow_matching,
    "mixed_pairs": mixed_pairs,
    "objective": objective,
    "agreement": agreement,
    "supervised": supervised,
    "clusterers": clusterers,
    "distance_table": distance_table,
    "flow_table": flow_table,
    "peers_table": peers_table,
    "step_ratio": step_ratio,
    "steps_table": steps_table,
    "euler_steps": euler_steps,
    "euler_best": euler_best,
    "scale_table": scale_table,
    "ranks_table": ranks_table,
    "shifted_table": shifted_table,
    "drift_size": drift_size,
    "drift_size_said": drift_size_said,
    "drift_power": drift_power,
    "drift_study": drift_study,
    **compare_tables.WORDS,
    **imbalanced_tables.WORDS,
    **sliced_tables.WORDS,
    **automatic_tables.WORDS,
    **interval_tables.WORDS,
}
