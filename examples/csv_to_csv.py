"""A table moved toward another one, and written back in its own units.

One laboratory measures otherwise than another: the flow is of standardized columns, the file has those that came in."""

from pathlib import Path

from sklearn.datasets import load_wine

import advect as ad
from advect import viz

out = Path("out/examples")
out.mkdir(parents=True, exist_ok=True)
wine = load_wine(as_frame=True).frame.rename(columns={"target": "cultivar"})
ours, theirs = wine.iloc[::2].copy(), wine.iloc[1::2].copy()
ours["proline"] = ours["proline"] * 1.4 + 100  # another instrument
ours["hue"] = ours["hue"] - 0.2
ours.to_csv(out / "ours.csv", index=False)
theirs.to_csv(out / "theirs.csv", index=False)

source = ad.datasets.load(f"csv:{out}/ours.csv?label=cultivar")
target = ad.datasets.load(f"csv:{out}/theirs.csv?label=cultivar")
space = ad.FeatureSpace.fit(source, target, scale="pooled")
a, b = space.apply(source), space.apply(target, side="target")
result = ad.flow(a, ad.OTDD(b), integrator=ad.Euler(0.5), n_steps=10)
moved = space.invert(result.dataset)
moved.save(out / "moved.csv", overwrite=True)

for name, frame in {"ours": ours, "moved": moved.to_pandas(), "theirs": theirs}.items():
    print(f"{name}: proline {frame['proline'].mean():.0f}, hue {frame['hue'].mean():.2f}")
print("distance", ad.otdd(a, b).value, "→", ad.otdd(result.dataset, b).value)
viz.save(viz.particles(result, b), out / "csv_to_csv.png")
