"""The distance between two tables of a million rows each: read once, compare a sample, with an interval."""

import numpy as np
import pandas as pd

import advect as ad

rng = np.random.default_rng(0)
for name, shift in (("january", 0.0), ("june", 1.0)):
    kind = rng.integers(5, size=1_000_000)
    table = {f"x{k}": rng.normal(size=len(kind)) + 3 * (kind == k) for k in range(5)}
    table["x0"] += shift * (kind == 2)  # only class 2 moves
    pd.DataFrame(table | {"kind": kind}).astype("float32").to_parquet(f"{name}.parquet")

sets = [ad.datasets.load(f"parquet:{name}.parquet?label=kind") for name in ("january", "june")]
print(sum(map(len, sets)), "rows")
a, b = (data.sample(1000) for data in sets)
distance = ad.otdd(a, b)
low, high = distance.interval()
print(f"distance {distance.value:.2f}, between {low:.2f} and {high:.2f}")
drift = ad.drift(*sets, max_samples=1500)
print("changed classes:", [str(name) for name in drift.changed_classes])
