"""Mutation check: how many random faults in the numerical rooms does the default test suite find?

    python benchmarks/mutants.py                      # 60 mutants, seed 0, resumed where it stopped
    python benchmarks/mutants.py --count 10 --seed 1 --out out/mutants.json

A mutant is the package with one operator, comparison, constant, sign or condition changed. The script
works on copies of the tree. First it runs the default suite once, unchanged, and records how long each
test takes and which functions of the package it enters. A mutant then meets only tests that enter its
function, the fastest first: those of the numerical rooms (stage "room"), and if it survives these, the
others (stage "suite"). A run that takes too long counts as killed. Every verdict is written at once.
With --untraced the first run is left out, and whole files run instead.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FIRST = {  # tests of a room, the fastest oracles first
    "ot": "ot/test_ot ot/test_unbalanced ot/test_scale ot/test_solver_honesty attack",
    "cost": "cost/test_cost cost/test_targets cost/test_soft_labels cost/test_names cost transport",
    "transport": "transport/test_transport transport/test_notes transport/test_variation transport",
    "functionals": "functionals/test_functionals functionals/test_sliced functionals conformance",
    "flows": "flows/test_integrators flows/test_control flows functionals/test_theory conformance",
    "data/laws": "data/test_gaussians data/test_few_samples cost/test_sample_products cost conformance",
    "maps": "maps/test_pair_sampler maps conformance/test_members",
}
ROOMS = tuple(FIRST)
LEFT_OUT = (".venv", ".git", "out", "__pycache__", ".hypothesis", ".ruff_cache", "node_modules")
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


def function_of(tree: ast.Module, node: ast.AST) -> int:
    """The first line of the innermost function whose body holds a node; 0 if there is none."""
    line = 0
    for outer in ast.walk(tree):
        if isinstance(outer, ast.FunctionDef) and any(
            node is inner for part in outer.body for inner in ast.walk(part)
        ):
            first = min([outer.lineno, *(part.lineno for part in outer.decorator_list)])
            line = max(line, first)
    return line


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
            | {"function": f"{name}:{function}", "source": source.decode()}
        )
    return made


# Which tests enter which functions: a plugin of pytest, in each worker
# ----------------------------------------------------------------------------------------------------


class Tracer:
    """Writes a line for each test: its seconds, whether it passed, and the functions that it enters."""

    def __init__(self, folder: str, root: str) -> None:
        self.out = Path(folder, f"{os.getpid()}.jsonl")
        self.source, self.root = f"{root}/src/advect/", f"{root}/"
        self.entered: set[str] = set()
        self.loaded: dict[str, set[str]] = defaultdict(set)
        self.failed = False

    def call(self, frame, event, argument):
        name = frame.f_code.co_filename
        if name.startswith(self.source):
            self.entered.add(f"{name.removeprefix(self.root)}:{frame.f_code.co_firstlineno}")

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector):
        self.entered = set()
        sys.settrace(self.call)
        report = yield
        sys.settrace(None)
        self.loaded[collector.nodeid.split("::")[0]] |= self.entered
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        self.entered, self.failed, began = set(), False, time.process_time()
        sys.settrace(self.call)
        done = yield
        sys.settrace(None)
        record = {"test": item.nodeid, "seconds": round(time.process_time() - began, 3)}
        record["passed"] = not self.failed
        functions = self.entered | self.loaded[item.nodeid.split("::")[0]]
        with self.out.open("a") as file:
            print(json.dumps(record | {"functions": sorted(functions)}), file=file)
        return done

    def pytest_runtest_logreport(self, report):
        self.failed |= report.failed


def pytest_configure(config) -> None:
    folder = os.environ.get("MUTANTS_MAP")
    if folder and not config.pluginmanager.has_plugin("tracer"):
        config.pluginmanager.register(Tracer(folder, os.getcwd()), "tracer")


def copy_tree(folder: str | Path) -> Path:
    tree = Path(folder, "tree")
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*LEFT_OUT))
    return tree


def trace(targets: list[str], folder: Path) -> None:
    """Run tests unchanged, in a copy, and write what they enter to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as room:
        tree = copy_tree(room)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "mutants"]
        variables = {"PYTHONPATH": f"{tree / 'src'}:{tree / 'benchmarks'}"}
        variables |= {"MUTANTS_MAP": str(folder.resolve())}
        found = [name for name in targets if (tree / name).exists()]
        done = subprocess.run(
            [*command, "-n", "2", *found], cwd=tree, env=os.environ | variables, check=False
        )
    if done.returncode not in (0, 1):
        raise SystemExit(f"the tests could not be run (exit code {done.returncode})")
    (folder / "done").touch()


def files_in(*names: str) -> list[str]:
    """Files with tests or examples, in the order in which they or their folders are named."""
    found = []
    for name in names:
        path = ROOT / name
        inner = path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")]
        files = sorted(file.relative_to(ROOT).as_posix() for file in inner)
        found += [file for file in files if file.startswith("src") or "/test_" in file]
    return list(dict.fromkeys(found))


def near(rooms: Iterable[str] = ROOMS) -> list[str]:
    """The tests of rooms, and the examples of their docstrings."""
    tests = [f"tests/{name}" for room in rooms for name in FIRST[room].split()]
    return files_in(*tests, *(f"src/advect/{room}" for room in rooms))


def room_of(mutant: dict) -> str:
    return next(room for room in ROOMS if mutant["file"].startswith(f"src/advect/{room}/"))


def traced(folder: Path) -> list[dict]:
    """The tests of a stage that pass on the unchanged tree, the fastest first."""
    records = {}
    for path in folder.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            records[record["test"]] = record | {"functions": set(record["functions"])}
    kept = [each for each in records.values() if each["passed"] and "0x" not in each["test"]]
    return sorted(kept, key=lambda record: record["seconds"])


def entering(mutant: dict, tests: list[dict]) -> list[dict]:
    """Tests that enter the function of a mutant; its file, for one outside of functions."""
    file, _, line = mutant["function"].rpartition(":")
    if line != "0":
        return [test for test in tests if mutant["function"] in test["functions"]]
    return [test for test in tests if any(f.startswith(f"{file}:") for f in test["functions"])]


def whole_files(mutant: dict, stage: str) -> list[dict]:
    """The files of a stage, where tests were not traced."""
    room = near([room_of(mutant)])
    rest = [file for file in files_in("tests", "src") if file not in room]
    return [{"test": file, "seconds": 30.0} for file in (room if stage == "room" else rest)]


# Verdicts
# ----------------------------------------------------------------------------------------------------

RUNNER = """
import os, resource, sys
os.environ |= {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
import geomloss, hypothesis, matplotlib, numpy, ot, pandas, pytest, scipy.stats, sklearn.cluster, torch
torch.set_num_threads(1)
for line in sys.stdin:
    tree, listed, seconds = line.split()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))
        os.chdir(tree)
        sys.path[:0] = [f"{tree}/src"]
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1), os.dup2(quiet, 2)
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
        os._exit(int(pytest.main([*options, f"@{listed}"])))
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
LATE = 3600  # seconds for one run of tests, however busy the machine is


class Runner:
    """A process that has imported what tests need, but not the package; each run is a fork of it."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.tree = copy_tree(self.folder.name)
        variables = os.environ | {"PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", RUNNER]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, env=variables, cwd=self.tree, stdin=pipe, stdout=pipe, text=True
        )
        if self.killed([{"test": "tests/ot/test_ot.py", "seconds": 60.0}]):
            raise SystemExit("tests fail on a tree that was not changed")

    def killed(self, tests: list[dict]) -> str:
        """What kills a mutant in the tree: "a failure", "the time limit", or "" if nothing does."""
        assert self.process.stdin and self.process.stdout
        listed = Path(self.folder.name, "tests.txt")
        listed.write_text("\n".join(test["test"] for test in tests))
        seconds = 60 + 5 * round(sum(test["seconds"] for test in tests))  # of the processor
        print(self.tree, listed, seconds, file=self.process.stdin, flush=True)
        pid = int(self.process.stdout.readline())
        limit = threading.Timer(LATE, os.killpg, (pid, signal.SIGKILL))
        limit.start()
        code = int(self.process.stdout.readline())
        limit.cancel()
        return "" if code == 0 else "a failure" if code > 0 else "the time limit"

    def judge(self, mutant: dict, stages: dict[str, list[dict]], known: dict) -> dict:
        """Run the tests that may see a mutant, of stages that it has not survived before."""
        path = self.tree / mutant["file"]
        original, began = path.read_text(), time.monotonic()
        verdict = {"killed": False, "stage": None, "by": None, "tests": known.get("tests", 0)}
        verdict["survived"] = known.get("survived", [])
        path.write_text(mutant["source"])
        try:
            for stage, tests in stages.items():
                if stage in verdict["survived"]:
                    continue
                chosen = entering(mutant, tests) if tests else whole_files(mutant, stage)
                verdict["tests"] += len(chosen)
                quick = [test for test in chosen if test["seconds"] < 0.5][:60]
                rest = [test for test in chosen if test not in quick]
                by = next(filter(None, (self.killed(part) for part in (quick, rest) if part)), "")
                if by:
                    verdict |= {"killed": True, "stage": stage, "by": by}
                    break
                verdict["survived"] = [*verdict["survived"], stage]
        finally:
            path.write_text(original)
        shown = {name: value for name, value in mutant.items() if name != "source"}
        return shown | verdict | {"seconds": round(time.monotonic() - began, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description="How many random faults do the tests find?")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/mutants.json")
    parser.add_argument(
        "--map", type=Path, default=ROOT / "out/mutants", help="where tests are traced"
    )
    parser.add_argument("--stages", default="room,suite", help="room alone is a first look")
    parser.add_argument(
        "--untraced", action="store_true", help="run whole files, in the order of FIRST"
    )
    options = parser.parse_args()
    chosen = mutants(options.count, options.seed)
    stages = {}
    for stage in options.stages.split(","):
        if not options.untraced and not (options.map / stage / "done").exists():
            rest = [file for file in files_in("tests", "src") if file not in near()]
            trace(near() if stage == "room" else rest, options.map / stage)
        stages[stage] = [] if options.untraced else traced(options.map / stage)
    stored = json.loads(options.out.read_text())["mutants"] if options.out.exists() else []
    known = {(each["file"], each["line"], each["before"], each["after"]): each for each in stored}
    lock, runners, verdicts = threading.Lock(), threading.local(), {}

    def write() -> None:
        done = [verdicts[k] for k in sorted(verdicts)]
        killed = sum(each["killed"] for each in done)
        report = {"seed": options.seed, "stages": list(stages), "run": len(done), "killed": killed}
        report["survivors"] = [
            f"{each['file']}:{each['line']}  {each['before']}  →  {each['after']}"
            for each in done
            if not each["killed"]
        ]
        text = json.dumps(report | {"mutants": done}, indent=1, ensure_ascii=False) + "\n"
        part = options.out.with_suffix(".part")
        part.write_text(text)
        part.replace(options.out)

    def judge(k: int) -> None:
        mutant = chosen[k]
        key = tuple(mutant[name] for name in ("file", "line", "before", "after"))
        verdict = known.get(key, {"killed": False, "survived": []})
        if not verdict["killed"] and not set(stages) <= set(verdict["survived"]):
            if not hasattr(runners, "own"):
                runners.own = Runner()
            verdict = runners.own.judge(mutant, stages, verdict)
        with lock:
            verdicts[k] = verdict
            write()
        word = f"killed ({verdict['stage']})" if verdict["killed"] else "SURVIVED"
        where = f"{verdict['file']}:{verdict['line']}"
        change = " ".join(f"{verdict['before']}  →  {verdict['after']}".split())
        print(f"{len(verdicts)}/{len(chosen)} {word} {where}  {change}", flush=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(judge, range(len(chosen))))
    killed = sum(each["killed"] for each in verdicts.values())
    print(f"{killed} of {len(verdicts)} mutants killed ({killed / max(1, len(verdicts)):.0%})")


if __name__ == "__main__":
    main()
