"""
Two tables with categories, in their own units
==============================================

A data frame with numbers and categories is moved toward another one and given back as it came: in
its units, with its categories. For two laboratories that measure the same thing differently.
"""

# %%
# Wine, cut in two; in one half the alcohol reads high and half of what is rose is called dark.

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.datasets import load_wine

import advect as ad

wine = load_wine(as_frame=True).frame
frame = wine[["alcohol", "proline", "hue"]].assign(
    colour=pd.cut(wine["color_intensity"], 3, labels=["pale", "rose", "dark"]),
    cultivar=wine["target"].map({0: "Barolo", 1: "Grignolino", 2: "Barbera"}),
)
ours, theirs = frame.iloc[::2].copy(), frame.iloc[1::2].copy()
ours["alcohol"] += 1.5
rose = ours.index[ours["colour"] == "rose"]
ours.loc[rose[::2], "colour"] = "dark"

# %%
# Categories become columns of 0 and 1, all columns are standardized, and after the flow
# everything goes back.

load = {"label": "cultivar", "categorical": "onehot"}
source, target = (ad.LabeledDataset.from_frame(part, **load) for part in (ours, theirs))
space = ad.FeatureSpace.fit(source, target, scale="pooled")
a, b = space.apply(source), space.apply(target, side="target")
cost = ad.GroundCost(label=ad.ByName(plus=ad.Bures()))  # cultivars mean the same in both
result = ad.flow(a, ad.OTDD(b, cost=cost), integrator=ad.Euler(0.5), n_steps=12)
moved = space.invert(result.dataset).to_pandas()
print(moved.head(3))
before, after = (ad.otdd(data, b, cost=cost).value for data in (a, result.dataset))
print(f"OTDD {before:.2f} → {after:.2f}")

# %%

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
parts = {"ours": ours, "ours, moved": moved, "theirs": theirs}
for name, part in parts.items():
    left.hist(part["alcohol"], bins=20, range=(11, 17), histtype="step", linewidth=2, label=name)
left.set(title="alcohol", xlabel="per cent")
left.legend()
shares = pd.DataFrame({n: p["colour"].value_counts(normalize=True) for n, p in parts.items()})
shares.reindex(["pale", "rose", "dark"]).fillna(0).plot.bar(
    ax=right, rot=0, title="colour, share of samples"
)
