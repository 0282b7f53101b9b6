"""What the benchmarks share: pairs of datasets, medians, where the time of a run goes, peak memory
in a process of its own, and which code it was."""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any

import torch

import advect as ad
from advect.cost.pair import PairCost

Pair = tuple[str, str]
REAL: list[Pair] = [
    ("fashion_mnist", "mnist"),
    ("kmnist", "mnist"),
    ("cifar10", "stl10"),
    ("emnist_letters", "mnist"),
]
DIGITS: Pair = ("digits", "mnist")
PARTS = ("products", "kernels and solves", "label laws", "gradients", "rest")


def default_pairs() -> list[Pair]:
    """Real images where ADVECT_DATA is set, with digits beside them; else digits alone."""
    return [*REAL, DIGITS] if os.environ.get("ADVECT_DATA") else [DIGITS]


def pair(text: str) -> Pair:
    """A pair from the command line, such as fashion_mnist:mnist."""
    source, _, target = text.partition(":")
    if not source or not target:
        raise ValueError(f"a pair is source:target; got {text!r}")
    return source, target


def images(names: Pair, n: int) -> tuple[ad.LabeledDataset, ad.LabeledDataset]:
    """n samples of each in one feature space, or all where a dataset has fewer; digits and the
    embedded MNIST repeat with noise instead.
    """
    if names == DIGITS:
        return digits_and_mnist(n)
    source, target = (ad.datasets.load(name, max_samples=n) for name in names)
    return ad.harmonize(source, target)


def digits_and_mnist(n: int, seed: int = 0) -> tuple[ad.LabeledDataset, ad.LabeledDataset]:
    """n digits and n MNIST images in 784 dimensions; past what is embedded, rows repeat with noise
    at their own size.
    """
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for name in ("digits", "mnist"):
        data = ad.datasets.load(name)
        order = torch.randperm(len(data), generator=generator)
        order = order.repeat(-(-n // len(data)))[:n]
        data = data.subset(order)
        noise = (
            0.02
            * torch.randn(data.x.shape, generator=generator)
            * (n > len(ad.datasets.load(name)))
        )
        parts.append(data.replace(x=data.x + noise))
    source, target = ad.harmonize(*parts)
    return source, target


def clock() -> float:
    """Seconds: of the processor on one thread, where other programs do not count, and of the wall
    on several.
    """
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def median_time(function: Callable[[], object], repeats: int = 5) -> float:
    """Median seconds of a call, after one call that is not counted."""
    function()
    times = []
    for _ in range(repeats):
        start = clock()
        function()
        times.append(clock() - start)
    return statistics.median(times)


def product_time(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """The time of given matrix products, written into memory that is there already: the limit to
    compare with.
    """
    outs = [torch.empty(a.shape[0], b.shape[1], dtype=a.dtype) for a, b in pairs]

    def run() -> None:
        for (a, b), out in zip(pairs, outs, strict=True):
            torch.mm(a, b, out=out)

    return median_time(run)


@contextmanager
def split(wrapped: list[tuple[str, Any, str]] | None = None) -> Iterator[dict[str, float]]:
    """Seconds by part of what runs inside, in a dictionary that is filled at the end: of functions
    given as (part, class or module, name), or of these.

    Functions are wrapped for as long as it lasts. Each counts its own time, without that of a
    wrapped one that it calls:

    products            cost matrices (PairCost.matrix) and plans contracted with features
                        (PairCost.contract: P y and P_xx x), with what labels add to both
    kernels and solves  Sinkhorn: kernels, iterations, certificates; costs that are made in blocks
                        are made in there, and count there
    label laws          moments of classes, and distances between laws: the way forward
    gradients           all of autograd: the way back through label laws is most of it
    rest                everything else: moves, checks, bounds of rounding, step control

    A function that a version of the code does not have is left out, with a word, and its time falls
    to what calls it. Calls in other threads than this one count where they are waited for.
    """
    wrapped = _parts_of_a_step() if wrapped is None else wrapped
    seconds = dict.fromkeys([*(part for part, _, _ in wrapped), "rest"], 0.0)
    own, thread = [0.0], threading.get_ident()

    def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            if threading.get_ident() != thread:
                return function(*args, **options)
            start = clock()
            own.append(0.0)
            try:
                return function(*args, **options)
            finally:
                whole = clock() - start
                seconds[part] += whole - own.pop()
                own[-1] += whole

        return call

    there = [entry for entry in wrapped if hasattr(entry[1], entry[2])]
    for _, owner, name in (entry for entry in wrapped if entry not in there):
        print(f"(not timed, as it is not there: {owner.__name__}.{name})", file=sys.stderr)
    before = [(owner, name, vars(owner).get(name)) for _, owner, name in there]
    for part, owner, name in there:
        setattr(owner, name, timed(part, getattr(owner, name)))
    start = clock()
    try:
        yield seconds
    finally:
        seconds["rest"] = clock() - start - own[0]
        for owner, name, function in before:
            delattr(owner, name) if function is None else setattr(owner, name, function)


def _parts_of_a_step() -> list[tuple[str, Any, str]]:
    labels = (ad.Bures, ad.MeansOnly, ad.NoLabels, ad.ExactLabelOT)
    laws = ("laws", "moments", "with_class_laws", "with_shared_laws")
    solver = ("prepare", "certify", "solve", "solve_self")
    products, solves, law, gradients, _ = PARTS
    return [
        *((products, PairCost, name) for name in ("matrix", "contracted")),
        *((solves, ad.Sinkhorn, name) for name in solver),
        *((law, ad.LabeledDataset, name) for name in laws),
        *((law, kind, name) for kind in labels for name in ("__call__", "hinted")),
        *((gradients, torch.autograd, name) for name in ("grad", "backward")),
    ]


def additional_peak(function: Callable[[], object]) -> int:
    """Bytes by which the resident size rises at most during a call (Linux: the kernel's own
    high-water mark).
    """

    def field(name: str) -> int:
        status = Path("/proc/self/status").read_text()
        return next(
            int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(name)
        )

    before = field("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the mark
    function()
    return field("VmHWM") - before


def in_fresh_process(script: str, *arguments: str) -> str:
    """Run a benchmark script again with other arguments and return what it prints.

    glibc's allocator is told to give large blocks back at once, so that peaks count what is in use
    and not what it keeps."""
    command, quiet = (
        [sys.executable, script, *arguments],
        os.environ | {"MALLOC_MMAP_THRESHOLD_": "1000000"},
    )
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env=quiet
    ).stdout.strip()


def side_by_side(
    command: list[str], count: int, *, joined: bool = True, **environment: str
) -> list[Any]:
    """What a command prints as its last line, as JSON, from several processes at once, of one thread
    each: ranks of one group, or each alone.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    shared = {"OMP_NUM_THREADS": "1", "WORLD_SIZE": str(count if joined else 1)}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port} | environment
    started = [
        subprocess.Popen(
            [sys.executable, *command],
            env=os.environ | shared | {"RANK": str(rank if joined else 0)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    said = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise RuntimeError(f"a process of {' '.join(command)} failed; see above")
    return [json.loads(each.splitlines()[-1]) for each in said]


def code() -> dict[str, Any]:
    """The date, the commit of the code that is measured ("+" where files of it are changed), and
    the threads.
    """
    folder = Path(ad.__file__).parent

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = bool(git("status", "--porcelain", "--", "."))
        commit = git("rev-parse", "--short", "HEAD") + "+" * changed
    except (OSError, subprocess.CalledProcessError):
        commit = "unknown"
    date = datetime.now(UTC).date().isoformat()
    return {"commit": commit, "date": date, "threads": torch.get_num_threads()}


def by_first(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Rows of the first pair (and weight of labels) as "rows", which the documentation reads, and
    all others.
    """
    keys = [(row["pair"], row.get("label_weight")) for row in rows]
    first = [row for row, key in zip(rows, keys, strict=True) if key == keys[0]]
    others = [row for row, key in zip(rows, keys, strict=True) if key != keys[0]]
    return {"pair": keys[0][0], "rows": first, "others": others}


def write_json(path: Path | None, facts: dict[str, Any]) -> None:
    """Keep what was measured, where a place is given: documentation takes its numbers from there."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def growth(sizes: list[int], values: list[float]) -> float:
    """The exponent p of values ~ sizes^p, by least squares in logarithms."""
    x, y = torch.tensor(sizes).double().log(), torch.tensor(values).double().log()
    x, y = x - x.mean(), y - y.mean()
    return float((x * y).sum() / (x * x).sum())
