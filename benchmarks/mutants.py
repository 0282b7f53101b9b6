"""Mutation check: how many random faults in the numerical rooms does the default test suite find?

    python benchmarks/mutants.py                      # 60 mutants, seed 0, resumed where it stopped
    python benchmarks/mutants.py --count 10 --seed 1 --out out/mutants.json

A mutant is the package with one operator, comparison, constant, sign or condition changed. No file is
changed: pytest collects the tests once, and for each mutant a fork of that process gets the code of the
changed function and runs tests until one fails. The tests of the mutant's room run first, the fastest
oracles before the others (stage "room"); mutants that survive them meet the rest of the default suite
(stage "suite"). A run that exceeds its processor time counts as killed. Every verdict is written at once.
Tests that start other processes see the package unchanged.
"""

from __future__ import annotations

import argparse
import ast
import gc
import json
import os
import random
import resource
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType

import pytest

ROOT = Path(__file__).resolve().parents[1]
FIRST = {  # tests of a room, the fastest oracles first
    "ot": "ot/test_ot ot/test_unbalanced ot/test_scale ot/test_solver_honesty attack distributed",
    "cost": "cost/test_cost cost/test_targets cost/test_soft_labels cost/test_names cost transport",
    "transport": "transport/test_transport transport/test_notes cost/test_names cost/test_soft_labels transport distributed",
    "functionals": "functionals/test_functionals functionals/test_sliced functionals conformance",
    "flows": "flows/test_integrators flows/test_control flows functionals/test_theory conformance",
    "data/laws": "data/test_gaussians data/test_nuclear cost conformance",
    "maps": "maps/test_pair_sampler maps conformance/test_members",
}
ROOMS = tuple(FIRST)
SWAPS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.MatMult: ast.Mult,
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
CALLS = {"min": "max", "max": "min", "amin": "amax", "amax": "amin", "log": "exp", "exp": "log"}
SHOWN = ("__repr__", "__str__", "_repr_html_", "settings", "figures", "report")
LARGE = 1000  # whole numbers from here on are sizes of buffers and seeds: one more changes nothing
SAYING = ("warn", "Note", "InputError", "debug", "info", "warning")


# Mutants
# ----------------------------------------------------------------------------------------------------


def skipped(tree: ast.AST) -> set[ast.AST]:
    """Nodes whose change no test should judge: annotations, errors and other texts, imports, repr,
    sizes of buffers, ``strict`` of zip.
    """
    nodes: set[ast.AST] = set()
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        match node:
            case ast.Raise() | ast.JoinedStr() | ast.Import() | ast.ImportFrom():
                parts = [node]
            case ast.arg(annotation=annotation) | ast.AnnAssign(annotation=annotation):
                parts = [annotation]
            case ast.FunctionDef(name=name):
                parts = [node] if name in SHOWN else [node.returns, *node.decorator_list]
            case ast.Call(func=func) if ast.unparse(func).split(".")[-1] in SAYING:
                parts = [node]
            case ast.keyword(arg="strict"):
                parts = [node]
            case ast.Assign(targets=[ast.Name(id="__all__")]):
                parts = [node]
            case ast.If(test=test) if "TYPE_CHECKING" in ast.unparse(test):
                parts = [node]
            case ast.Constant(value=int(value)) if value >= LARGE:
                parts = [node]
        for part in parts:
            nodes |= set(ast.walk(part)) if part is not None else set()
    return nodes


def places(tree: ast.Module) -> list[ast.expr | ast.AugAssign]:
    """All nodes of a file that can be changed."""
    without: set[ast.AST] = skipped(tree)
    found: list[ast.expr | ast.AugAssign] = []
    for node in ast.walk(tree):
        if node in without:
            continue
        match node:
            case ast.BinOp() | ast.AugAssign() | ast.BoolOp() if type(node.op) in SWAPS:
                found.append(node)
            case ast.Compare(ops=[op, *_]) if type(op) in SWAPS:
                found.append(node)
            case ast.UnaryOp(op=ast.Not() | ast.USub()):
                found.append(node)
            case ast.Constant(value=value) if type(value) in (int, float, bool):
                found.append(node)
            case ast.Attribute(attr=attr) if attr in CALLS:
                found.append(node)
    return found


def changed(node: ast.expr | ast.AugAssign) -> str:
    """The source of a node after its change."""
    match node:
        case ast.Compare():
            node.ops[0] = SWAPS[type(node.ops[0])]()
        case ast.UnaryOp(op=ast.Not()):
            return f"({ast.unparse(node.operand)})"
        case ast.UnaryOp():
            node.op = ast.UAdd()
        case ast.Constant(value=bool()):
            node.value = not node.value
        case ast.Constant(value=int(value)):
            node.value = value + 1
        case ast.Constant(value=float(value)):
            node.value = value * 1.5 + 0.01
        case ast.Attribute():
            node.attr = CALLS[node.attr]
            return ast.unparse(node)
        case ast.BinOp() | ast.AugAssign() | ast.BoolOp():
            node.op = SWAPS[type(node.op)]()
    return ast.unparse(node) if isinstance(node, ast.AugAssign) else f"({ast.unparse(node)})"


def function_of(tree: ast.Module, node: ast.AST) -> str:
    """The qualified name of the outermost function whose body holds a node; "" if there is none."""

    def search(body: list[ast.stmt], prefix: str) -> str:
        for part in body:
            if isinstance(part, ast.ClassDef):
                found = search(part.body, f"{prefix}{part.name}.")
                if found:
                    return found
            elif isinstance(part, ast.FunctionDef) and any(
                node is inner for line in part.body for inner in ast.walk(line)
            ):
                return f"{prefix}{part.name}"
        return ""

    return search(tree.body, "")


def mutants(count: int, seed: int) -> list[dict]:
    """A random choice of mutants, each with the source of its file."""
    files = [path for room in ROOMS for path in sorted((ROOT / "src/advect" / room).rglob("*.py"))]
    every = [(path, k) for path in files for k in range(len(places(ast.parse(path.read_text()))))]
    made = []
    for path, k in random.Random(seed).sample(every, count):
        text = path.read_text()
        tree = ast.parse(text)
        node = places(tree)[k]
        lines = text.encode().splitlines(keepends=True)
        start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
        assert node.end_lineno is not None and node.end_col_offset is not None
        stop = sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset
        before, function = text.encode()[start:stop].decode(), function_of(tree, node)
        after = changed(node)
        source = text.encode()[:start] + after.encode() + text.encode()[stop:]
        ast.parse(source)
        name = path.relative_to(ROOT).as_posix()
        made.append(
            {"file": name, "line": node.lineno, "before": before, "after": after}
            | {"function": function, "source": source.decode()}
        )
    return made


# Tests
# ----------------------------------------------------------------------------------------------------


def files_in(*names: str) -> list[str]:
    """Files with tests or examples, in the order in which they or their folders are named."""
    found = []
    for name in names:
        path = ROOT / name
        inner = path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")]
        files = sorted(file.relative_to(ROOT).as_posix() for file in inner)
        found += [file for file in files if file.startswith("src") or "/test_" in file]
    return list(dict.fromkeys(found))


def every_file() -> list[str]:
    """All files with tests or examples."""
    return files_in("tests", "src")


def near(rooms: Iterable[str] = ROOMS) -> list[str]:
    """The tests of rooms."""
    return files_in(*(f"tests/{name}" for room in rooms for name in FIRST[room].split()))


def room_of(mutant: dict) -> str:
    return next(room for room in ROOMS if mutant["file"].startswith(f"src/advect/{room}/"))


# Verdicts
# ----------------------------------------------------------------------------------------------------


def codes(code: CodeType) -> Iterable[CodeType]:
    yield code
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from codes(part)


def inject(mutant: dict) -> None:
    """Give the functions of this process the code of a mutant."""
    path = str(ROOT / mutant["file"])
    parts = Path(mutant["file"]).with_suffix("").parts[1:]
    import_module(".".join(parts).removesuffix(".__init__"))  # some are imported at their first use
    module = compile(mutant["source"], path, "exec")
    (code,) = [each for each in codes(module) if each.co_qualname == mutant["function"]][:1]
    changed = {(each.co_qualname, each.co_firstlineno): each for each in codes(code)}
    functions = [
        each
        for each in gc.get_objects()
        if type(each) is FunctionType  # isinstance would ask proxies of objects that are gone
        and each.__code__.co_filename == path
        # functions within it too, which may have been made before
        and (each.__code__.co_qualname, each.__code__.co_firstlineno) in changed
    ]
    assert functions, "the function is not there"
    for each in functions:
        each.__code__ = changed[each.__code__.co_qualname, each.__code__.co_firstlineno]


class Judge:
    """A plugin of pytest: instead of the tests, mutants are run."""

    def __init__(self, stage: str, chosen: list[dict], verdicts: dict, options) -> None:
        self.stage, self.options = stage, options
        self.chosen, self.verdicts = chosen, verdicts

    def pytest_runtestloop(self, session) -> bool:
        by_file = defaultdict(list)
        for item in session.items:
            by_file[item.nodeid.split("::")[0]].append(item)
        waiting = [k for k, verdict in self.verdicts.items() if self.undecided(verdict)]
        running: dict[int, tuple[int, float, str]] = {}
        if self.run(session, session.items[:20], None, os.devnull) != 0:
            raise SystemExit("tests fail without a mutant")
        while waiting or running:
            while waiting and len(running) < self.options.jobs:
                k = waiting.pop(0)
                items = [item for file in self.files(k) for item in by_file[file]]
                report_path = tempfile.mkstemp()[1]
                running[self.start(session, items, self.chosen[k], report_path)] = (
                    k,
                    time.monotonic(),
                    report_path,
                )
            pid, status = os.wait()
            k, began, report_path = running.pop(pid)
            self.note(k, os.waitstatus_to_exitcode(status), time.monotonic() - began, report_path)
        return True

    def undecided(self, verdict: dict) -> bool:
        return not verdict["killed"] and self.stage not in verdict["survived"]

    def files(self, k: int) -> list[str]:
        room = near([room_of(self.chosen[k])])
        return room if self.stage == "room" else [f for f in every_file() if f not in room]

    def start(self, session, items: list, mutant: dict | None, report_path: str) -> int:
        pid = os.fork()
        if pid == 0:
            code = 2
            try:
                quiet = os.open(os.devnull, os.O_WRONLY)
                for stream in (1, 2):
                    os.dup2(quiet, stream)
                seconds = self.options.seconds
                resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
                code = self.failed(session, items, mutant, report_path)
            except Exception as error:
                Path(report_path).write_text(f"not run: {error!r}")
            finally:
                os._exit(code)
        return pid

    def run(self, session, items: list, mutant: dict | None, report_path: str) -> int:
        return os.waitstatus_to_exitcode(
            os.waitpid(self.start(session, items, mutant, report_path), 0)[1]
        )

    @staticmethod
    def failed(session, items: list, mutant: dict | None, report_path: str) -> int:
        """1 if a test fails, whose name is written to a file, and 0 if none does."""
        if mutant is not None:
            inject(mutant)
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed:
                Path(report_path).write_text(item.nodeid)
                return 1
        return 0

    def note(self, k: int, code: int, seconds: float, report_path: str) -> None:
        verdict, by = self.verdicts[k], Path(report_path).read_text()
        Path(report_path).unlink()
        if code == 0:
            verdict["survived"].append(self.stage)
        elif code == 2:
            verdict["by"] = by
        else:
            by = by or "the time limit"
            verdict |= {"killed": True, "stage": self.stage, "by": by}
        verdict["seconds"] = round(seconds, 1)
        self.verdicts[k] = verdict
        word = f"killed by {by}" if verdict["killed"] else "SURVIVED" if code == 0 else by
        change = " ".join(f"{verdict['before']}  →  {verdict['after']}".split())
        print(f"{verdict['file']}:{verdict['line']}  {change}: {word}", flush=True)
        write(self.options, self.verdicts)


def write(options, verdicts: dict[int, dict]) -> None:
    done = [each for each in verdicts.values() if each["killed"] or each["survived"]]
    killed = sum(each["killed"] for each in done)
    report = {"seed": options.seed, "count": options.count, "run": len(done), "killed": killed}
    report["survivors"] = [
        f"{each['file']}:{each['line']}  {each['before']}  →  {each['after']}"
        for each in done
        if not each["killed"]
    ]
    text = json.dumps(report | {"mutants": done}, indent=1, ensure_ascii=False) + "\n"
    part = options.out.with_suffix(".part")
    part.write_text(text)
    part.replace(options.out)


def main() -> None:
    parser = argparse.ArgumentParser(description="How many random faults do the tests find?")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=600, help="processor time for a mutant")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/mutants.json")
    parser.add_argument("--stages", default="room,suite", help="room alone is a first look")
    options = parser.parse_args()
    chosen = mutants(options.count, options.seed)
    names = ("file", "line", "before", "after")
    stored = json.loads(options.out.read_text())["mutants"] if options.out.exists() else []
    known = {tuple(each[name] for name in names): each for each in stored}
    fresh = {"killed": False, "stage": None, "by": None, "survived": []}
    verdicts = {}
    for k, mutant in enumerate(chosen):
        shown = {name: value for name, value in mutant.items() if name != "source"}
        key = tuple(mutant[name] for name in names)
        verdicts[k] = known.get(key, shown | fresh | {"survived": []})
        if not mutant["function"]:  # a constant of a module or of a class: read it by eye
            verdicts[k]["by"] = "not run"
    inside = {k: each for k, each in verdicts.items() if chosen[k]["function"]}
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT / "src"))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for stage in options.stages.split(","):
        files = near() if stage == "room" else every_file()
        plugin = Judge(stage, chosen, inside, options)
        pytest.main(
            ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--capture=sys", *files],
            plugins=[plugin],
        )
    done = [each for each in inside.values() if each["killed"] or each["survived"]]
    killed = sum(each["killed"] for each in done)
    print(f"{killed} of {len(done)} mutants killed ({killed / max(1, len(done)):.0%})")


if __name__ == "__main__":
    main()
