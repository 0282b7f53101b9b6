"""What a step of a flow moves and multiplies, and what that would take on published peak numbers.

    python benchmarks/roofline.py [--json benchmarks/results/roofline.json]

Nothing here is measured: it is arithmetic. A step with n samples on either side in d dimensions and
float32, whose matrices are kept, with k classes of r = min(n/k, d) rows in a factor:

products    4 · 2 n² d          x yᵀ, x xᵀ, P y, P_xx x
matrices    12 · 4 n²           bytes: two costs written, read for their extremes and for K, K written, plans read
iterations  2 · 4 n² t + 4 n² s bytes: K and Kᵀ for each of t ticks of the cross problem, K for each of s of the self-problem
labels      9 · (2r)³ · 1.5 k²  in float64: eigenvectors of 2r × 2r for all pairs of classes, and those within the source
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from common import write_json

TICKS, SELF = 40, 10  # of a steady step: what tests/util/test_device.py and benchmarks/gpu.py see
CLASSES = 10
SHAPES = [(1000, 784), (5000, 784), (20000, 784), (5000, 3072), (20000, 3072)]
# per second, dense, as the makers' data sheets state them; bandwidth in bytes
DEVICES = {
    "A100 80GB SXM": {"fp32": 19.5e12, "tf32": 156e12, "fp64": 19.5e12, "bandwidth": 2.039e12},
    "H100 80GB SXM": {"fp32": 67e12, "tf32": 494.7e12, "fp64": 67e12, "bandwidth": 3.35e12},
}
SOURCE = "data sheets: NVIDIA A100 (2021), NVIDIA H100 (2023); float64 with tensor cores"


def work(n: int, d: int, k: int = CLASSES) -> dict[str, float]:
    """Flops and bytes of a steady step."""
    rows = min(n // k, d)
    return {
        "products": 8.0 * n * n * d,
        "matrices": 48.0 * n * n,
        "iterations": 8.0 * n * n * TICKS + 4.0 * n * n * SELF,
        "labels": 9.0 * (2 * rows) ** 3 * 1.5 * k * k,
        "memory": 4.0 * n * n * 4 + 4.0 * n * d * 5,
    }


def seconds(found: dict[str, float], device: dict[str, float]) -> dict[str, float]:
    """The least time of each part on a device, at its peak."""
    return {
        "products": found["products"] / device["fp32"],
        "products, tf32": found["products"] / device["tf32"],
        "matrices": found["matrices"] / device["bandwidth"],
        "iterations": found["iterations"] / device["bandwidth"],
        "labels": found["labels"] / device["fp64"],
    }


def rows() -> list[dict[str, Any]]:
    found = []
    for n, d in SHAPES:
        parts = work(n, d)
        for name, peaks in DEVICES.items():
            least = seconds(parts, peaks)
            bound = {key: least[key] for key in ("products", "matrices", "iterations", "labels")}
            found.append(
                {
                    "n": n,
                    "d": d,
                    "device": name,
                    "memory": parts["memory"],
                    "milliseconds": {key: 1e3 * value for key, value in least.items()},
                    "step": 1e3 * sum(bound.values()),
                    "bound": max(bound, key=lambda key: bound[key]),
                }
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = rows()
    for row in found:
        print(
            f"n {row['n']:6d}  d {row['d']:5d}  {row['device']:14s} {row['step']:9.2f} ms  {row['bound']}"
        )
    facts = {"ticks": TICKS, "self": SELF, "classes": CLASSES, "source": SOURCE, "devices": DEVICES}
    write_json(options.json, {"benchmark": "roofline", **facts, "rows": found})


if __name__ == "__main__":
    main()
