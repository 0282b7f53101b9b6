"""Every label cost × feature cost × solver × dynamics × dtype: a value, with its gradient, that an independent reference
confirms, or a refusal with a true reason and a remedy that works.

References are written out in numpy: costs by explicit differences, laws by ``numpy.cov`` and matrix roots, transport by a
plain Sinkhorn loop or by assignment. A mini-batch of all samples is the whole problem, and so is a kernel of full rank."""

import itertools
import math
from functools import lru_cache

import numpy as np
import oracles
import pytest
import torch
from flow_cases import draw
from scipy.optimize import linear_sum_assignment

import advect as ad

SHARE, INNER = 0.3, 5.0  # epsilon of the mean cost, and that of label transport


def samples(seed, shift):
    """Three classes of eight samples, whose covariances have full rank in all spaces below."""
    y = np.repeat(np.arange(3), 8)
    return draw(24, 3, seed=seed).numpy() + 1.5 * y[:, None] + shift, y


LABELS = {
    "full laws": ad.Bures(),
    "diagonal laws": ad.Bures(diagonal=True),
    "means": ad.MeansOnly(),
    "no labels": ad.NoLabels(),
    "label transport": ad.ExactLabelOT(),
    "entropic label transport": ad.ExactLabelOT(ad.Sinkhorn(epsilon=INNER, tol=1e-10)),
}
CURVED = ad.Embedding(lambda x: torch.cat([x, x.sin()], dim=1))
FEATURES = {"squared": ad.SquaredEuclidean(), "embedding": CURVED}
SOLVERS = {
    "sinkhorn": ad.Sinkhorn(ad.Relative(SHARE), tol=1e-9),
    "exact": ad.ExactOT(),
    "mini-batch": ad.MiniBatch(ad.Sinkhorn(ad.Relative(SHARE), tol=1e-9), size=24),
}
DYNAMICS = {
    "fd": ad.FeatureDriven(),
    "fd through laws": ad.FeatureDriven(through_laws=True),
    "jd-fl": ad.JointFixedLabels(),
    "jd-vl": ad.JointVariableLabels(),
}
DTYPES = {"float64": torch.float64, "float32": torch.float32}
SETS = [samples(1, 0.0), samples(2, 2.0)]


def refusal(label, feature, solver, dynamics):
    """The true reason why a combination cannot be, with its remedy; None if it must run."""
    joint = dynamics.startswith("jd")
    if joint and "transport" in label:
        return "not Gaussian laws"
    if joint and feature == "embedding" and label != "no labels":
        return "an Embedding maps samples"
    return None


def energy(label, feature, solver, dtype="float64"):
    source, target = (ad.LabeledDataset(torch.as_tensor(x).to(DTYPES[dtype]), y) for x, y in SETS)
    cost = ad.GroundCost(feature=FEATURES[feature], label=LABELS[label])
    return source, ad.OTDD(target, cost=cost, solver=SOLVERS[solver])


# References


def points(feature):
    """Both datasets where features are compared."""
    x, u = SETS[0][0], SETS[1][0]
    if feature == "embedding":
        return [np.concatenate([part, np.sin(part)], axis=1) for part in (x, u)]
    return [x, u]


def label_distance(label, a, b):
    """W₂² of the laws of two classes, from their samples."""
    if label == "no labels":
        return 0.0
    means, covariances = [part.mean(axis=0) for part in (a, b)], [np.cov(part.T) for part in (a, b)]
    if label == "means":
        return float(((means[0] - means[1]) ** 2).sum())
    if label == "diagonal laws":
        covariances = [np.diag(np.diag(part)) for part in covariances]
    if "laws" in label:
        return oracles.bures_by_roots(means[0], covariances[0], means[1], covariances[1])
    costs = [oracles.half_squared(*pair) for pair in ((a, b), (a, a), (b, b))]
    even = np.full(8, 1 / 8)
    if label == "label transport":
        return 2 * float(costs[0][linear_sum_assignment(costs[0])].mean())
    return 2 * oracles.divergence_loop(*costs, even, even, INNER)


@lru_cache
def reference(label, feature, exact):
    """½ OTDD² between the two datasets."""
    embedded, even = points(feature), np.full(24, 1 / 24)
    parts = [[x[y == c] for c in range(3)] for x, (_, y) in zip(embedded, SETS, strict=True)]
    costs = []
    for i, j in ((0, 1), (0, 0), (1, 1)):
        squared = 2 * oracles.half_squared(embedded[i], embedded[j])
        pairs = itertools.product(parts[i], parts[j])
        table = [0.0 if a is b else label_distance(label, a, b) for a, b in pairs]
        costs.append((squared + np.reshape(table, (3, 3))[SETS[i][1]][:, SETS[j][1]]) / 2)
    if exact:
        return float(costs[0][linear_sum_assignment(costs[0])].mean())  # the self terms vanish
    return oracles.divergence_loop(*costs, even, even, SHARE * costs[0].mean())


# The table


def check(label, feature, solver, dynamics, dtype):
    """The combination runs and agrees with its reference, or is refused, as it must be."""
    source, functional = energy(label, feature, solver, dtype)
    walk = {"dynamics": DYNAMICS[dynamics], "integrator": ad.Euler(0.1), "n_steps": 1}
    said = refusal(label, feature, solver, dynamics)
    if said is not None:
        with pytest.raises(ad.InputError, match=said):
            ad.flow(source, functional, **walk)
        return
    result = ad.flow(source, functional, **walk)
    wanted = reference(label, feature, solver == "exact")
    assert result.values[0] == pytest.approx(wanted, rel=1e-6 if dtype == "float64" else 1e-4)
    assert all(map(math.isfinite, result.values)) and bool(result.dataset.x.isfinite().all())


def check_gradient(label, feature, solver, dynamics):
    """The derivative along a random direction of all that moves, against central differences."""
    if refusal(label, feature, solver, dynamics) is not None:
        return
    source, functional = energy(label, feature, solver)
    rho = DYNAMICS[dynamics].start(source)
    parameters = DYNAMICS[dynamics].parameters(rho)
    leaves = {name: part.detach().clone().requires_grad_() for name, part in parameters.items()}
    along = {name: draw(*value.shape, seed=5) for name, value in leaves.items()}
    # covariances stay symmetric
    along |= {name: value + value.mT for name, value in along.items() if value.ndim == 3}
    here = DYNAMICS[dynamics].attach(rho, leaves)
    terms, state = functional.terms(here, functional.begin(here))  # fixes a relative epsilon
    options = {"allow_unused": True, "materialize_grads": True}
    found = torch.autograd.grad(sum(terms.values()), list(leaves.values()), **options)
    slope = sum(float((part * way).sum()) for part, way in zip(found, along.values(), strict=True))

    def at(step):
        moved = {name: leaf.detach() + step * along[name] for name, leaf in leaves.items()}
        terms, _ = functional.terms(DYNAMICS[dynamics].attach(rho, moved), state)
        return float(sum(terms.values()))

    assert slope == pytest.approx((at(1e-5) - at(-1e-5)) / 2e-5, rel=2e-4, abs=1e-6)


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("label", LABELS)
class TestTable:
    @pytest.mark.slow
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_runs_and_agrees_or_refuses_with_a_reason(self, label, feature, dtype):
        for solver, dynamics in itertools.product(SOLVERS, DYNAMICS):
            check(label, feature, solver, dynamics, dtype)

    def test_gradients(self, label, feature):
        check_gradient(label, feature, "sinkhorn", "jd-vl")
        check_gradient(label, feature, "sinkhorn", "fd through laws")

    @pytest.mark.slow
    def test_gradients_by_every_solver(self, label, feature):
        for solver, dynamics in itertools.product(SOLVERS, ("fd through laws", "jd-fl", "jd-vl")):
            check_gradient(label, feature, solver, dynamics)
