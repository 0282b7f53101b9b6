"""Two hospitals measure in different units, and cells are missing. Train on patients moved from A to B."""

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

import advect as ad

rng = np.random.default_rng(0)
columns, centres = ["age", "pressure", "glucose", "creatinine"], 2 * rng.normal(size=(3, 4))
kind = rng.integers(3, size=2400)
frame = pd.DataFrame(centres[kind] + rng.normal(size=(2400, 4)), columns=columns)
frame["kind"] = np.array(["heart", "lung", "liver"])[kind]
b = frame[600:].copy()  # mmol/L instead of mg/dL, another assay, another cuff
b["glucose"], b["creatinine"] = b["glucose"] / 18, 88.4 * b["creatinine"] + 60
b["pressure"] += 3 * (b["kind"] == "heart")  # heart patients are measured after exercise
b["age"] -= 2 * (b["kind"] == "lung")  # and the lung ward is for children
frame[:600].mask(rng.random((600, 5)) < [0.05] * 4 + [0]).to_csv("a.csv", index=False)
b[:600].to_csv("b.csv", index=False)
source, target = (ad.datasets.load(f"csv:{x}.csv?label=kind&missing=median") for x in "ab")
space = ad.FeatureSpace.fit(source, target, scale="each")
first, last = space.apply(source), space.apply(target, side="target")
fresh = space.apply(ad.LabeledDataset.from_frame(b[600:], label="kind"), side="target")
for name, data in {"as they are": first, "moved": ad.flow(first, last).dataset}.items():
    print(name, LogisticRegression().fit(data.x, data.labels).score(fresh.x, fresh.labels))
