"""Two hospitals measure in different units, and cells are missing. Train on patients moved from A to B."""

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

import advect as ad

rng = np.random.default_rng(0)
kind = rng.integers(3, size=2400)
columns = ["age", "pressure", "glucose", "creatinine"]
values = rng.normal(size=(2400, 4)) + 2 * np.eye(4)[kind] @ rng.normal(size=(4, 4))
frame = pd.DataFrame(values, columns=columns).assign(kind=np.array(["a", "b", "c"])[kind])
a, b, fresh = frame[:600], frame[600:1200].copy(), frame[1200:].copy()
for part in (b, fresh):  # mmol/L for mg/dL, another assay, another cuff
    part["glucose"], part["creatinine"] = part["glucose"] / 18, 88.4 * part["creatinine"] + 60
    part["pressure"] = 1.3 * part["pressure"] + 0.8 * part["age"]
a.mask(rng.random(a.shape) < 0.05)[columns].assign(kind=a["kind"]).to_csv("a.csv", index=False)
b.to_csv("b.csv", index=False)

source, target = (ad.datasets.load(f"csv:{x}.csv?label=kind&missing=median") for x in "ab")
space = ad.FeatureSpace.fit(source, target, scale="each")
moved = space.invert(ad.flow(space.apply(source), space.apply(target, side="target")).dataset)
for name, data in {"as they are": source, "moved": moved}.items():
    model = LogisticRegression(max_iter=5000).fit(space.apply(data).x, data.labels)
    print(name, model.score(space.apply(ad.LabeledDataset(fresh[columns].to_numpy())).x, fresh["kind"]))
