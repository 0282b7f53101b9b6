"""
Custom functionals
==================

A functional is a class with ``__call__``, from a dataset to a number. The flow computes its gradient by
automatic differentiation. Use it for objectives such as the loss of a model.
"""

# %%
# One functional penalizes the displacement, the other one is the loss of a frozen classifier.

import torch
from sklearn.linear_model import LogisticRegression

import advect as ad
from advect import viz


class Displacement(ad.Functional):
    def __init__(self, start):
        self.start = start

    def __call__(self, rho):
        return (rho.weights * (rho.x - self.start).square().sum(1)).sum() / 2


class ModelLoss(ad.Functional):
    """The cross entropy of a frozen linear model."""

    def __init__(self, model):
        self.weight, self.bias = (
            torch.tensor(part, dtype=torch.float32) for part in (model.coef_, model.intercept_)
        )

    def __call__(self, rho):
        scores = rho.x @ self.weight.T + self.bias
        losses = torch.nn.functional.cross_entropy(scores, rho.y, reduction="none")
        return (rho.weights * losses).sum()


ad.testing.check_functional(Displacement(0.0))  # checks value, gradient and state
source = ad.datasets.load("toy:gaussians?n=120")
target = ad.datasets.load("toy:gaussians?n=120&shift=8,0&separation=2&seed=1")
model = LogisticRegression().fit(target.x, target.y)
objectives = {
    "OTDD": ad.OTDD(target),
    "OTDD + ½ Displacement": ad.OTDD(target) + 0.5 * Displacement(source.x),
    "OTDD + 5 ModelLoss": ad.OTDD(target) + 5 * ModelLoss(model),
}
moved = {}
for name, objective in objectives.items():
    moved[name] = ad.flow(source, objective, integrator=ad.Euler(0.2), n_steps=20).dataset
    print(f"{name:22} accuracy of the frozen model: {model.score(moved[name].x, source.y):.1%}")

# %%
# The loss of the model separates the classes.

shown = ("OTDD", "OTDD + 5 ModelLoss")
figure = viz.particles([moved[name] for name in shown], target, titles=shown, ellipses=False)
