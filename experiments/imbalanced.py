"""A source whose classes are imbalanced, ten to one, flowed to MNIST in several ways.

not moved       the images as they were drawn
as it is        the flow with the weights that the draw has
balanced        every class of the source has the same mass
label shift     shares of classes as ``class_shares`` finds them, without labels of the target, in the
                features of the frozen model
unbalanced      the weights of the draw, and a solver with a reach: mass may be left behind
true shares     those of the target, where classes have the same names: nobody knows them

Every second class of the source is rare; the target is uniform, or rare where the source is not
("reversed"). A LeNet-5 trained on MNIST reads the flowed images, right when it is the digit that the
image's class corresponds to: by name for USPS, else as the final plan couples classes one to one.
Accuracies are means over classes, whatever their shares, and over all images: those that did not move
are read as they are. Mass that changed class is the share of the carried mass that the final plan
sends to a class that does not correspond. Values are OTDD energies to the target with the weights
of the way, without a reach. Beside it: how far shares are off, in total variation, with two
estimates by logistic regression, black-box shift estimation and EM (Saerens et al. 2002), that see
what ``class_shares`` sees. Reach, steps and label weight were chosen on draws 0 and 1."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from lenet import features, frozen, halves, predictions
from scipy.optimize import linear_sum_assignment, nnls

import advect as ad

NAME = "imbalanced"
SAMPLES, RATIO, DRAWS, EPOCHS = 400, 10, 5, 3
STEPS, STEP_SIZE, LABEL_WEIGHT, REACH = 12, 0.25, 5.0, 10.0
LAYER = "9"  # of the frozen model, whose features shares are estimated in
SETTINGS = {
    "USPS, uniform target": ("usps", "uniform"),
    "USPS, reversed target": ("usps", "reversed"),
    "Fashion-MNIST, uniform target": ("fashion_mnist", "uniform"),
}
COLUMNS = ["not moved", "as it is", "balanced", "label shift", "unbalanced", "true shares"]
RECOMMENDED, BASELINE = "label shift", "as it is"


def cells() -> dict[str, dict[str, Any]]:
    return {
        f"{shown}, draw {seed}": {"name": name, "target": target, "seed": seed}
        for seed in range(1000, 1000 + DRAWS)
        for shown, (name, target) in SETTINGS.items()
    }


def run(name: str, target: str, seed: int, reach: float = REACH) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    images, digits = ad.harmonize(ad.datasets.load(name), ad.datasets.load("mnist"), size=28)
    common = np.where(np.arange(10) % 2 == 0, RATIO, 1.0)
    source = drawn(images, common, generator)
    onto = {"uniform": np.ones(10), "reversed": common[::-1]}[target]
    aim = drawn(digits, onto, generator)
    body, _ = halves(frozen("mnist", EPOCHS), LAYER)
    bare = ad.LabeledDataset(aim.samples)
    pixels = ad.class_shares(source, bare)
    shares = ad.class_shares(features(body, source), features(body, bare))
    ways: dict[str, tuple[ad.LabeledDataset, float | None]] = {
        "not moved": (source, None),
        "as it is": (source, None),
        "balanced": (source.balanced(), None),
        "label shift": (source.reweighted(shares.shares), None),
        "unbalanced": (source, reach),
    }
    if name == "usps":
        ways["true shares"] = (source.reweighted(aim.class_mass), None)
    found: dict[str, Any] = {"accuracies": {}, "value": {}, "changed": {}, "left": {}}
    for way, (start, limit) in ways.items():
        steps = 0 if way == "not moved" else STEPS
        for key, number in flowed(start, aim, limit, steps, name == "usps").items():
            found[key][way] = number
    truth = aim.class_mass.numpy()
    guesses = {
        "the source's own": source.class_mass.numpy(),
        "class_shares, pixels": pixels.shares,
        "class_shares, features": shares.shares,
    }
    guesses |= by_regression(source, aim, "pixels")
    guesses |= by_regression(features(body, source), features(body, aim), "features")
    found["shares off"] = {
        way: float(np.abs(each - truth).sum() / 2) for way, each in guesses.items()
    }
    return found | {"misfit": {"pixels": pixels.misfit, "features": shares.misfit}}


def drawn(data: ad.LabeledDataset, shares: np.ndarray, generator: Any) -> ad.LabeledDataset:
    """So many samples of each class, in all about ``SAMPLES``."""
    counts = np.maximum(2, np.rint(SAMPLES * shares / shares.sum())).astype(int)
    rows = []
    for code, count in enumerate(counts):
        own = (data.y == code).nonzero()[:, 0]
        rows.append(own[torch.randperm(len(own), generator=generator)[:count]])
    return data.subset(torch.cat(rows))


def flowed(
    start: ad.LabeledDataset, aim: ad.LabeledDataset, reach: float | None, steps: int, named: bool
) -> dict[str, float]:
    """One way: where it ends, and who reads it."""
    cost = ad.GroundCost(label_weight=LABEL_WEIGHT)
    solver = ad.Sinkhorn(tol=1e-3, reach=reach)
    end = start
    if steps:
        end = ad.flow(
            start,
            ad.OTDD(aim, cost=cost, solver=solver),
            dynamics=ad.FeatureDriven(through_laws=False, bounds=(0.0, 1.0)),
            integrator=ad.Euler(STEP_SIZE),
            n_steps=steps,
            control=ad.FixedSteps(),
        ).dataset
    last = ad.otdd(end, aim, cost=cost, solver=solver)
    coupling = last.class_coupling.values
    to = np.arange(10) if named else linear_sum_assignment(-coupling)[1]
    right = predictions(frozen("mnist", EPOCHS), end.samples) == torch.as_tensor(to)[end.y]
    plain = last if reach is None else ad.otdd(end, aim, cost=cost)
    kept = coupling[np.arange(10), to].sum() / coupling.sum()
    return {
        "accuracies": float(np.mean([right[end.y == c].double().mean() for c in range(10)])),
        "value": plain.energy,
        "changed": float(1 - kept),
        "left": last.mass_left,
    }


def by_regression(
    source: ad.LabeledDataset, aim: ad.LabeledDataset, where: str
) -> dict[str, np.ndarray]:
    """Shares by a logistic regression of the source: corrected by its confusion, and by EM."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict

    x, y = source.x.numpy(), source.y.numpy()
    model, prior = LogisticRegression(C=0.1, max_iter=300), source.class_mass.numpy()
    folds = cross_val_predict(model, x, y, method="predict_proba", cv=5)
    confusion = np.stack([folds[y == c].mean(axis=0) for c in range(10)])
    answers = model.fit(x, y).predict_proba(aim.x.numpy())
    mixed, _ = nnls(
        np.vstack([confusion.T, np.full(10, 1e3)]), np.append(answers.mean(axis=0), 1e3)
    )
    shares = prior.copy()
    for _ in range(1000):
        odds = answers * (shares / prior)
        shares = (odds / odds.sum(axis=1, keepdims=True)).mean(axis=0)
    return {f"BBSE, {where}": mixed / mixed.sum(), f"EM, {where}": shares}


if __name__ == "__main__":
    for limit in map(float, sys.argv[1:] or [REACH]):
        for each in SETTINGS.values():
            for draw in (0, 1):
                print(limit, *each, draw, run(*each, draw, reach=limit), flush=True)
