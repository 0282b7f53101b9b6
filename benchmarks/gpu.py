"""Steps of flows on a GPU: the table that docs/gpu.md asks for.

    python benchmarks/gpu.py [--device cuda] [--sizes 1000 5000 20000] [--dims 784 3072] [--steps 8]
                             [--quick] [--json benchmarks/results/gpu.json]

device      its name, products in GFLOP/s and bandwidth in GB/s as measured here, before anything else
step        seconds of a steady step: the mean of the later half of --steps, the device waited for
ratio       ÷ the four matrix products x yᵀ, x xᵀ, P y, P_xx x on the same device
roofline    the least time of a step by the measured products and bandwidth ÷ the step (benchmarks/roofline.py)
waits       of the program for the device in a steady step: as torch reports them on CUDA; on a
            processor, of the same step on a pretended device (advect.testing.Waits)
peak        bytes on the device at most; only CUDA tells

Without a GPU it runs too, --device cpu, and says so. Data are Gaussian classes, so that any size and
dimension can be had. --quick is one small case of each, in seconds.
"""

from __future__ import annotations

import argparse
import platform
import time
import warnings
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import roofline
import torch
from common import code, write_json

import advect as ad
from advect.testing import Waits

CLASSES, STEP = 10, 0.05
DYNAMICS = {
    "fd, laws detached": ad.FeatureDriven(through_laws=False),
    "fd, through laws": ad.FeatureDriven(),
    "jd-fl": ad.JointFixedLabels(),
    "jd-vl": ad.JointVariableLabels(every=10),
}
LABELS = {
    "none": ad.NoLabels(),
    "means": ad.MeansOnly(),
    "Bures, diagonal": ad.Bures(diagonal=True),
    "Bures": ad.Bures(),
}
# with every label cost features move; with the costs of the paper, laws too
CASES = [("fd, through laws", label) for label in LABELS] + [
    ("fd, laws detached", "Bures"),
    ("jd-fl", "Bures"),
    ("jd-vl", "Bures, diagonal"),
]


def pair(n: int, d: int, device: torch.device) -> tuple[ad.LabeledDataset, ad.LabeledDataset]:
    """Two sets of Gaussian classes, float32."""
    generator = torch.Generator().manual_seed(0)
    sets = []
    for shift in (0.0, 1.0):
        y = torch.arange(n) % CLASSES
        centres = 2 * torch.randn(CLASSES, d, generator=generator)
        x = centres[y] + torch.randn(n, d, generator=generator) + shift
        sets.append(ad.LabeledDataset(x, y).to(device))
    return sets[0], sets[1]


def settled(device: torch.device) -> None:
    """Wait until the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(work: Callable[[], object], device: torch.device, repeats: int = 5) -> float:
    """Median seconds of a call, the device waited for, after one that is not counted."""
    found = []
    for _ in range(repeats + 1):
        settled(device)
        start = time.perf_counter()
        work()
        settled(device)
        found.append(time.perf_counter() - start)
    return sorted(found[1:])[repeats // 2]


def measured(device: torch.device, size: int) -> dict[str, float]:
    """Products and bandwidth of the device, per second."""
    a, b = (torch.randn(size, size, device=device) for _ in range(2))
    out, large = torch.empty_like(a), torch.empty(16 * size * size, device=device)
    flops = 2 * size**3 / timed(lambda: torch.mm(a, b, out=out), device)
    wide = a.double()
    double = 2 * size**3 / timed(lambda: torch.mm(wide, wide), device, 3)
    bandwidth = 2 * 4 * large.numel() / timed(lambda: large.add_(1.0), device)
    return {"fp32": flops, "tf32": flops, "fp64": double, "bandwidth": bandwidth}


def four_products(n: int, d: int, device: torch.device) -> float:
    x, plan = torch.randn(n, d, device=device), torch.rand(n, n, device=device)
    square, thin = torch.empty_like(plan), torch.empty_like(x)

    def run() -> None:
        for _ in range(2):
            torch.mm(x, x.T, out=square)
            torch.mm(plan, x, out=thin)

    return timed(run, device, 3)


def walk(dynamics: str, label: str, sets: tuple[ad.LabeledDataset, ad.LabeledDataset]) -> Any:
    energy = ad.OTDD(sets[1], cost=ad.GroundCost(label=LABELS[label]))
    return ad.iterate(
        sets[0],
        energy,
        dynamics=DYNAMICS[dynamics],
        integrator=ad.Euler(STEP),
        control=ad.FixedSteps(),
    )


def waits_on_cuda(step: Callable[[], object]) -> int:
    """What torch itself calls a synchronisation."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(word.message) for word in said)


def waits_pretended(dynamics: str, label: str, d: int = 12, n: int = 40) -> int:
    """Those of a steady step on a device that is not there; they do not depend on sizes."""
    with Waits() as waits:
        sets = [
            data.replace(**{k: waits.on_device(getattr(data, k)) for k in ("x", "y", "weights")})
            for data in pair(n, d, torch.device("cpu"))
        ]
        steps = walk(dynamics, label, (sets[0], sets[1]))
        list(islice(steps, 3))
        waits.clear()
        next(steps)
    return waits.count


def case(
    dynamics: str,
    label: str,
    n: int,
    d: int,
    device: torch.device,
    steps: int,
    peaks: dict[str, float],
) -> dict[str, Any]:
    sets = pair(n, d, device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    found, run, times = {}, walk(dynamics, label, sets), []
    for _ in range(steps):
        settled(device)
        start = time.perf_counter()
        next(run)
        settled(device)
        times.append(time.perf_counter() - start)
    later = times[steps // 2 :]
    step, products = sum(later) / len(later), four_products(n, d, device)
    least = roofline.seconds(roofline.work(n, d, CLASSES), peaks)
    parts = ["products", "matrices", "iterations", *(["labels"] if label == "Bures" else [])]
    found |= {"first": times[0], "step": step, "products": products, "ratio": step / products}
    found["roofline"] = sum(least[part] for part in parts) / step
    if device.type == "cuda":
        found["waits"] = waits_on_cuda(lambda: next(run))
        found["peak"] = torch.cuda.max_memory_allocated(device)
    return {"dynamics": dynamics, "label": label, "n": n, "d": d, "dtype": "float32", **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 5000, 20000])
    parser.add_argument("--dims", type=int, nargs="+", default=[784, 3072])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--cases", type=int, default=len(CASES), help="only the first so many")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.sizes, options.dims, options.steps = [100], [16], 4
    try:
        device = torch.empty(0, device=options.device).device
    except (RuntimeError, AssertionError) as error:
        parser.error(f"--device {options.device} is not there ({str(error).partition(chr(10))[0]})")
    name = (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else platform.processor() or "cpu"
    )
    peaks = measured(device, 512 if options.quick else 4096 if device.type == "cuda" else 1024)
    if device.type != "cuda":
        print("no GPU: these are times of a processor, and waits those of a pretended device")
    print(f"{name}: {peaks['fp32'] / 1e9:.0f} GFLOP/s, {peaks['bandwidth'] / 1e9:.0f} GB/s")
    rows = []
    for dynamics, label in CASES[: options.cases]:
        pretended = None if device.type == "cuda" else waits_pretended(dynamics, label)
        for n, d in ((n, d) for n in options.sizes for d in options.dims):
            row = case(dynamics, label, n, d, device, options.steps, peaks)
            row.setdefault("waits", pretended)
            rows.append(row)
            print(
                f"{dynamics:18s} {label:16s} n {n:6d} d {d:5d}  {row['step']:8.4f} s  "
                f"{row['ratio']:6.1f} products  {100 * row['roofline']:5.1f} % of the roofline  {row['waits']} waits"
            )
    facts = {"device": name, "kind": device.type, "torch": torch.__version__, "measured": peaks}
    facts["tf32"] = torch.backends.cuda.matmul.allow_tf32
    write_json(options.json, {"benchmark": "gpu", **code(), **facts, "rows": rows})


if __name__ == "__main__":
    main()
