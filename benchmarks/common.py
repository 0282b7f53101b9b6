"""What the benchmarks share: data of any size, medians, peak memory in a process of its own."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import advect as ad


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
