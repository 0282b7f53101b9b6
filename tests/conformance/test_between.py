"""Whatever pairs samples, what is between has the masses of both ends, and the labels and laws of its
pairs."""

import warnings

import pytest
import torch
from flow_cases import labeled

import advect as ad

SOURCE, TARGET = labeled([7, 6], 2, 1), labeled([6, 8], 2, 2, shift=1.5)
SOLVERS = (
    ad.ExactOT(),
    ad.Sinkhorn(),
    ad.Sinkhorn(epsilon=0.1),
    ad.NystromSinkhorn(epsilon=9.0, rank=12),
    ad.MiniBatch(ad.ExactOT(), size=6),
)
COSTS = {
    "ground": ad.GroundCost(),
    "diagonal": ad.GroundCost(label=ad.Bures(diagonal=True)),
    "means": ad.GroundCost(label=ad.MeansOnly()),
    "none": ad.GroundCost(label=ad.NoLabels()),
    "samples": ad.GroundCost(label=ad.ExactLabelOT()),
    "a sketch": ad.GroundCost(feature=ad.Sketch(1)),
    "an embedding": ad.GroundCost(feature=ad.Embedding(torch.tanh)),
    "a function": ad.GroundCost(feature=lambda x, y: torch.cdist(x, y, p=1).square()),
}


def check(between, t):
    data = between.dataset
    off = between.distance.divergence.cross.marginal_error
    for side, end in enumerate((SOURCE, TARGET)):
        rows = between.rows[:, side]
        mass = torch.zeros(len(end), dtype=torch.float64).index_add(0, rows, data.weights)
        assert float((mass - end.weights).abs().sum()) <= 2 * off + 1e-9
    i, j = between.rows.T
    assert torch.allclose(data.x, (1 - t) * SOURCE.x[i] + t * TARGET.x[j])
    assert torch.allclose(between.probabilities.sum(dim=1), torch.ones(len(data)).double())
    assert between.laws is not None
    means = between.laws.means[data.law_rows]
    ends = SOURCE.laws().means[SOURCE.y[i]], TARGET.laws().means[TARGET.y[j]]
    assert torch.allclose(means, ((1 - t) * ends[0] + t * ends[1]).double(), atol=1e-6)


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_solvers(solver):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ad.ConvergenceWarning)
        check(ad.interpolate(SOURCE, TARGET, 0.25, solver=solver), 0.25)
        found = ad.barycenter([SOURCE, TARGET, SOURCE], solver=solver, max_iterations=2)
    assert all(b <= a for a, b in zip(found.values, found.values[1:], strict=False))
    assert torch.isfinite(found.dataset.x).all()


@pytest.mark.parametrize("name", COSTS)
def test_costs(name):
    check(ad.interpolate(SOURCE, TARGET, 0.25, cost=COSTS[name]), 0.25)
    if COSTS[name].by_columns and name != "samples":
        found = ad.barycenter([SOURCE, TARGET, SOURCE], cost=COSTS[name], max_iterations=3)
        assert all(b <= a for a, b in zip(found.values, found.values[1:], strict=False))
        return
    with pytest.raises(ad.InputError, match="squared Euclidean|Gaussian laws"):
        ad.barycenter([SOURCE, TARGET, SOURCE], cost=COSTS[name])


@pytest.mark.parametrize(
    "dynamics", [ad.FeatureDriven(), ad.JointFixedLabels(), ad.JointVariableLabels()]
)
def test_flows_go_on_from_there(dynamics):
    """What is between is a dataset like any other: it flows, with the laws that it carries."""
    start = ad.interpolate(SOURCE, TARGET, 0.5).dataset
    result = ad.flow(start, ad.OTDD(TARGET), dynamics=dynamics, n_steps=2)
    assert result.values[-1] < result.values[0]
