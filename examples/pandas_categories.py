"""A data frame with numbers and categories, moved toward another one and given back as it came."""

from pathlib import Path

import pandas as pd
from sklearn.datasets import load_wine

import advect as ad
from advect import viz

out = Path("out/examples")
out.mkdir(parents=True, exist_ok=True)
wine = load_wine(as_frame=True).frame
frame = pd.DataFrame(
    {
        "alcohol": wine["alcohol"],
        "proline": wine["proline"],
        "colour": pd.cut(wine["color_intensity"], 3, labels=["pale", "rose", "dark"]),
        "cultivar": wine["target"].map({0: "Barolo", 1: "Grignolino", 2: "Barbera"}),
    }
)
ours = frame.iloc[::2].assign(alcohol=lambda f: f["alcohol"] + 1.5)
theirs = frame.iloc[1::2]

load = {"label": "cultivar", "categorical": "onehot"}
source, target = (ad.LabeledDataset.from_frame(part, **load) for part in (ours, theirs))
space = ad.FeatureSpace.fit(source, target, scale="pooled")
a, b = space.apply(source), space.apply(target, side="target")
result = ad.flow(a, ad.OTDD(b), integrator=ad.Euler(0.5), n_steps=10)
moved = space.invert(result.dataset).to_pandas()

print(moved.head(3))
for name, part in {"ours": ours, "moved": moved, "theirs": theirs}.items():
    dark = (part["colour"] == "dark").mean()
    print(f"{name}: alcohol {part['alcohol'].mean():.2f}, dark {dark:.0%}")
viz.save(viz.particles(result, b), out / "pandas_categories.png")
