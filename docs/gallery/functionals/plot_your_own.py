"""
A functional of your own
========================

A class with ``__call__`` is a functional: it takes a dataset and gives a number, and the flow
takes its gradient. For what no library knows, such as staying near where you were, or a model's
loss.
"""

# %%
# Two of them: one that holds samples back, one that makes a frozen classifier sure.

import torch
from sklearn.linear_model import LogisticRegression

import advect as ad
from advect import viz


class StayNear(ad.Functional):
    def __init__(self, anchor):
        self.anchor = anchor

    def __call__(self, rho):
        return (rho.weights * (rho.x - self.anchor).square().sum(1)).sum() / 2


class ReadBy(ad.Functional):
    """The cross entropy of a frozen linear model."""

    def __init__(self, model):
        self.weight, self.bias = (
            torch.tensor(part, dtype=torch.float32) for part in (model.coef_, model.intercept_)
        )

    def __call__(self, rho):
        scores = rho.x @ self.weight.T + self.bias
        return (
            rho.weights * torch.nn.functional.cross_entropy(scores, rho.y, reduction="none")
        ).sum()


ad.testing.check_functional(StayNear(0.0))  # value, gradient, that looking changes nothing
source = ad.datasets.load("toy:gaussians?n=150")
target = ad.datasets.load("toy:gaussians?n=150&shift=8,0&separation=2&seed=1")
model = LogisticRegression().fit(target.x, target.y)
goals = {
    "OTDD": ad.OTDD(target),
    "OTDD + ½ StayNear": ad.OTDD(target) + 0.5 * StayNear(source.x),
    "OTDD + 5 ReadBy": ad.OTDD(target) + 5 * ReadBy(model),
}
moved = {}
for name, goal in goals.items():
    moved[name] = ad.flow(source, goal, integrator=ad.Euler(0.2), n_steps=25).dataset
    print(f"{name:18} accuracy of the frozen model: {model.score(moved[name].x, source.y):.1%}")

# %%
figure = viz.particles([source, *moved.values()], target, titles=["before", *moved], ellipses=False)
