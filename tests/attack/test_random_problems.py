"""Random problems of every size and kind against an independent oracle: within the stated error, or not converged."""

import warnings

import numpy as np
import pytest
import torch
from attack import oracle
from internals import float32_iterations

import advect as ad

DEFAULT, ALL = 100, 1100
UNDECIDED = "the oracle did not solve"


def draw(rng, dtype, kind):
    """Two point sets with labels: far from the origin or not, of any scale, with what real data has in odd corners."""
    d = int(rng.choice([1, 2, 3, 12]))
    sizes = [int(rng.choice([1, 2, 7, 18, 30])) for _ in range(2)]
    scale = 10.0 ** (0 if kind == "ordinary" else rng.integers(-6, 7))
    offset = 0.0 if kind == "ordinary" else scale * float(rng.choice([0.0, 0.0, 10.0, 1e3, 1e5]))
    sets = []
    for side, n in enumerate(sizes):
        labels = rng.integers(0, int(rng.choice([1, 2, 4])), n)
        labels = np.unique(labels, return_inverse=True)[1]
        x = rng.normal(size=(n, d)) + 2 * rng.normal(size=(8, d))[labels]
        x += side * rng.normal(size=d)
        if kind == "degenerate":
            x = np.round(x) if rng.random() < 0.5 else x @ np.diag(np.arange(d) < max(1, d // 3))
            x[labels == 0] = x[0]  # a blank class
        sets.append((torch.as_tensor(scale * x + offset, dtype=dtype), labels))
    if kind == "close":
        x, labels = sets[0]
        noise = 10.0 ** rng.integers(-9, -1) * scale * torch.as_tensor(rng.normal(size=x.shape))
        sets[1] = ((x.double() + noise).to(dtype), labels)
    return sets


def attempt(seed, monkeypatch):
    """Solve one problem, by the library and by the oracle: whether it is an ordinary one, whether it converged, and what is
    wrong."""
    rng = np.random.default_rng(seed)
    kind = str(rng.choice(["ordinary", "any", "any", "degenerate", "close"]))
    dtype = torch.float32 if rng.random() < 0.6 else torch.float64
    (x, first), (y, second) = draw(rng, dtype, kind)
    label = str(rng.choice(["bures", "means", "none"]))
    weights = [None, None]
    if label == "none" and rng.random() < 0.6:
        weights = [rng.random(n) * (rng.random(n) < 0.8) + 1e-3 for n in (len(x), len(y))]
        weights[0][: len(x) // 3] = 0
    share = 0.01 if kind == "ordinary" or rng.random() < 0.3 else 10.0 ** rng.uniform(-5, 5)
    choice = rng.random()
    tol = 1e-3 if kind != "ordinary" and choice < 0.15 else None
    solver = ad.ExactOT() if choice > 0.85 else ad.Sinkhorn(ad.Relative(share), tol=tol)
    if rng.random() < 0.5:  # iterate in float32, as large problems do
        float32_iterations(monkeypatch)
    gradient = rng.random() < 0.4 and label == "none"
    limit = None
    if not isinstance(solver, ad.ExactOT) and rng.random() < 0.25:
        sizes = len(x), len(y)  # in blocks
        limit = 300 * max(sizes) * dtype.itemsize + 64 * sum(sizes) * x.shape[1] + 10_000
    labels = {"bures": ad.Bures(), "means": ad.MeansOnly(), "none": ad.NoLabels()}
    cost, moving = ad.GroundCost(label=labels[label], label_weight=0.7), x.clone()
    parts = zip((moving.requires_grad_(gradient), y), (first, second), weights, strict=True)
    data = [ad.LabeledDataset(*part) for part in parts]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ad.errors.ConvergenceWarning)
        found = ad.otdd(*data, cost=cost, solver=solver, memory_limit=limit)
        pull = None
        if gradient:
            found.loss.backward()
            pull = moving.grad.double().numpy()
    wrong = judge(found, data, (x, y, first, second), label, pull) if found.converged else None
    return kind == "ordinary", bool(found.converged), wrong


def judge(found, data, sets, label, pull):
    """What is wrong with a converged answer; None if nothing is."""
    x, y, first, second = sets
    a, b = (part.weights.numpy() for part in data)
    points = [(x.numpy(), first), (y.numpy(), second)]
    pairs = [(points[0], points[1]), (points[0], points[0]), (points[1], points[1])]
    costs = [oracle.ground_cost(p, q, label, 0.7, i, j) for (p, i), (q, j) in pairs]
    truth, plans, doubt = oracle.energy(costs, a, b, found.epsilon)
    stated = found.error
    if doubt > max(stated, 1e-3 * abs(truth)) and stated > 0:
        return UNDECIDED
    if abs(found.energy - truth) > stated + doubt:
        return f"energy {found.energy:.6e}, true {truth:.6e}, stated error {stated:.1e}"
    if found.energy == 0 and truth > doubt:
        return f"zero between different datasets ({truth:.1e})"
    if pull is None or found.epsilon == 0:
        return None
    return gradient_fault(pull, (x, y), (a, b), plans, found.marginal_error)


def gradient_fault(pull, points, masses, plans, marginal):
    """Σ_j P_ij (x_i − y_j) − Σ_j P^aa_ij (x_i − x_j), against what the loss gave."""
    a, b = (part > 0 for part in masses)
    x, y = (part.double().numpy().astype(oracle.LONG) for part in points)
    expected, inner, other = np.zeros(pull.shape), x[a], y[b]
    moved = (plans[0][:, :, None] * (inner[:, None] - other[None])).sum(axis=1)
    expected[a] = moved - (plans[1][:, :, None] * (inner[:, None] - inner[None])).sum(axis=1)
    reach = float(np.abs(np.concatenate([inner, other]) - inner.mean(axis=0)).max())
    unit = marginal + 4 * torch.finfo(points[0].dtype).eps
    allowed, off = 0.01 * np.abs(expected).max() + unit * reach, np.abs(pull - expected).max()
    return f"gradient off by {off:.1e} where {allowed:.1e} is allowed" if off > allowed else None


@pytest.mark.parametrize(
    "seeds", [range(DEFAULT), pytest.param(range(DEFAULT, ALL), marks=pytest.mark.slow)]
)
def test_answers_are_as_good_as_they_say(seeds, monkeypatch):
    refused, faults, undecided = [], {}, 0
    for seed in seeds:
        with monkeypatch.context() as patch:
            ordinary, converged, wrong = attempt(seed, patch)
        undecided += wrong == UNDECIDED
        if wrong and wrong != UNDECIDED:
            faults[seed] = wrong
        if not converged:
            refused.append(ordinary)
    counts = f"{len(refused)} not converged, {undecided} undecided"
    print(f"\n{len(seeds)} problems: {counts}, {len(faults)} silent wrong values")
    assert not faults and undecided <= 0.01 * len(seeds)
    # one that refuses everything is no answer
    assert not any(refused) and len(refused) <= 0.1 * len(seeds)
