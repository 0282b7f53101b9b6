"""Ratios of benchmarks over time: a table that is kept in the repository, and what changed last.

    python benchmarks/history.py [FILE …] [--history benchmarks/results/history.jsonl] [--all]

Each FILE is what flow.py, distance.py or peers.py wrote with --json: its ratios are appended with the commit and the date that
stand in it, a line for each row. Without files nothing is appended. Then the last two entries of every row are printed side by
side, newest runs last; with --all also rows that have but one. A row is a benchmark, pair, n, case, weight of labels and number
of steps, on so many threads.

Errors are of the gradient for flows, else of the value. Ratios and errors only: seconds of one machine mean nothing to another.
Machines differ in their ratios too, less so, and a busy one in all of them: a change is a reason to look, with
benchmarks/versions.py, which compares two versions in turns. Nothing is gated.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

HISTORY = Path(__file__).parent / "results" / "history.jsonl"
ROW = ("benchmark", "pair", "n", "case", "label_weight", "steps", "threads")
Entry = dict[str, Any]


def entries(path: Path, commit: str | None = None, date: str | None = None) -> list[Entry]:
    """The rows of a file of results, as lines of the history."""
    facts = json.loads(path.read_text(encoding="utf-8"))
    about = {"date": date or facts.get("date"), "commit": commit or facts.get("commit")}
    if None in about.values():
        raise SystemExit(f"{path} does not say its commit and date: give --commit and --date")
    kind = facts.get("benchmark", path.stem)
    found = []
    for row in [*facts["rows"], *facts.get("others", [])]:
        case = {
            "flow": lambda row: row["dynamics"],
            "distance": lambda row: "distance",
            "peers": lambda row: f"{row['part']}: {row['peer']}",
        }[kind](row)
        if kind == "peers" and row["peer"] == "ours":
            continue  # ÷ itself
        own = {name: row[name] for name in ("date", "commit") if name in row}
        entry = (
            about
            | own
            | {
                "threads": row.get("threads", facts["threads"]),
                "benchmark": kind,
                "steps": row.get("steps", facts.get("steps")),
            }
        )
        entry |= {"pair": row.get("pair") or facts["pair"], "n": row["n"], "case": case}
        weight = 1.0 if kind != "peers" else None
        entry |= {"label_weight": row.get("label_weight", weight)}
        ratio = row["whole"] if kind == "distance" else row["ratio"]
        later = row.get("warm" if kind == "distance" else "later")
        kept = {"ratio": ratio, "later": later, "memory": row.get("memory")}
        kept |= {name: row.get(name) for name in ("value_error", "gradient_error")}
        kept |= {"marginal_error": row.get("marginal_error")}
        found.append(entry | {k: float(f"{v:.3g}") for k, v in kept.items() if v is not None})
    return found


def read(path: Path) -> list[Entry]:
    """All lines so far."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def append(path: Path, new: list[Entry]) -> int:
    """Write what is not there yet; how many lines that was."""
    known = {json.dumps(entry, sort_keys=True) for entry in read(path)}
    fresh = [entry for entry in new if json.dumps(entry, sort_keys=True) not in known]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(entry, ensure_ascii=False) + "\n" for entry in fresh)
    return len(fresh)


def last_two(history: list[Entry]) -> list[tuple[Entry | None, Entry]]:
    """For each row the entry before and the last one."""
    by_row: dict[str, list[Entry]] = {}
    for entry in history:
        by_row.setdefault(json.dumps([entry[name] for name in ROW]), []).append(entry)
    return [(each[-2] if len(each) > 1 else None, each[-1]) for each in by_row.values()]


def number(entry: Entry | None, name: str, form: str) -> str:
    if entry is None or name not in entry:
        return ""
    return f"{entry[name]:.0f}" if entry[name] >= 100 else f"{entry[name]:{form}}"


def show(history: list[Entry], *, single: bool) -> None:
    compared = [two for two in last_two(history) if single or two[0] is not None]
    if not compared:
        print("no row has two entries yet" + ("" if single else " (--all shows those with one)"))
        return
    print(
        f"{'pair':24s} {'n':>5s} {'case':26s} {'w':>2s} {'threads':>7s}  {'ratio':>6s} → {'ratio':6s} "
        f"{'change':>6s}   {'later':>5s} → {'later':5s}  {'error':>8s} → {'error':7s}  commits and dates"
    )
    for old, new in compared:
        change = "" if old is None else f"{100 * (new['ratio'] / old['ratio'] - 1):+.0f} %"
        weight = "" if new["label_weight"] is None else f"{new['label_weight']:g}"
        error = "gradient_error" if new["benchmark"] == "flow" else "value_error"
        runs = " → ".join(f"{entry['commit']} {entry['date']}" for entry in (old, new) if entry)
        print(
            f"{' → '.join(new['pair']):24s} {new['n']:5d} {new['case']:26s} {weight:>2s} {new['threads']:7d}"
            f"  {number(old, 'ratio', '.3g'):>6s} → {number(new, 'ratio', '.3g'):6s} {change:>6s}"
            f"   {number(old, 'later', '.3g'):>5s} → {number(new, 'later', '.3g'):5s}"
            f"  {number(old, error, '.0e'):>8s} → {number(new, error, '.0e'):7s}  {runs}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="*", help="written with --json")
    parser.add_argument("--history", type=Path, default=HISTORY)
    parser.add_argument("--all", action="store_true", help="rows with one entry too")
    parser.add_argument("--commit", help="of files that do not say it")
    parser.add_argument("--date", help="of files that do not say it")
    given = parser.parse_args()
    for path in given.files:
        added = append(given.history, entries(path, given.commit, given.date))
        print(f"{path}: {added} rows added to {given.history.name}")
    show(read(given.history), single=given.all)


if __name__ == "__main__":
    main()
