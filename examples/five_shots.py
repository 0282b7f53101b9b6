"""Five labeled samples of each class and a large dataset of another kind: what to train on?"""

from pathlib import Path

import torch
from sklearn.linear_model import LogisticRegression

import advect as ad
from advect import viz

out = Path("out/examples")
out.mkdir(parents=True, exist_ok=True)
source, pool = ad.harmonize(ad.datasets.load("digits", n=1000), ad.datasets.load("mnist", n=1500))
few, test = pool.split(1 / 30, generator=torch.Generator().manual_seed(0))

made = ad.apps.transfer(source, few)
print(made.choice)


def score(data):
    model = LogisticRegression(max_iter=300).fit(
        data.x, data.y, sample_weight=data.weights * len(data)
    )
    return model.score(test.x, test.y)


few_alone, named = score(few), made.recommended
print(
    f"right of {len(test)} others: {few_alone:.1%} by the few, {score(named):.1%} by what is recommended"
)
viz.save(viz.image_grid([made.recommended.subset(range(40))]), out / "five_shots.png")
