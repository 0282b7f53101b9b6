"""Labels that are probabilities: the cost against loops over its formula, POT, differences, and laws that must hold."""

import itertools

import numpy as np
import oracles
import pytest
import torch
from flow_cases import memberships

import advect as ad
from advect.data.laws import Full

COSTS = {
    "Bures": ad.GroundCost(label_weight=1.7),
    "Bures, diagonal": ad.GroundCost(label=ad.Bures(diagonal=True)),
    "MeansOnly": ad.GroundCost(label=ad.MeansOnly(), label_weight=0.3),
    "ExactLabelOT": ad.GroundCost(label=ad.ExactLabelOT()),
    "Embedding": ad.GroundCost(feature=ad.Embedding(lambda x: x[:, :2].sin() + x[:, 1:])),
}


def soft(n: int, k: int, seed: int, shift: float = 0.0, **options) -> ad.LabeledDataset:
    """Samples in three dimensions with weights and probabilities, some of them certain."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=draw, dtype=torch.float64)
    shares = torch.rand(n, k, generator=draw, dtype=torch.float64) ** 4
    shares = shares / shares.sum(dim=1, keepdim=True)
    certain = torch.rand(n, generator=draw) < 0.3
    shares[certain] = torch.eye(k, dtype=torch.float64)[shares[certain].argmax(dim=1)]
    x = x + 3 * shares @ torch.randn(k, 3, generator=draw, dtype=torch.float64) + shift
    weights = 0.5 + torch.rand(n, generator=draw, dtype=torch.float64)
    return ad.LabeledDataset(x, weights=weights, probabilities=shares, **options)


def by_loops(cost: ad.GroundCost, a: ad.LabeledDataset, b: ad.LabeledDataset) -> torch.Tensor:
    """The formula, entry by entry."""
    blind = ad.GroundCost(feature=cost.feature, label=ad.NoLabels()).between(a, b)
    matrix = blind.matrix().double().clone()
    sides = [cost.feature_cost.carry(data, cost.feature_cost.points(data)) for data in (a, b)]
    between, own, other = (
        cost.label_cost(*pair).double()
        for pair in (sides, (sides[0], sides[0]), (sides[1], sides[1]))
    )
    for i, j in itertools.product(range(len(a)), range(len(b))):
        p, q = memberships(a)[i], memberships(b)[j]
        paid = p @ between @ q - p @ own @ p / 2 - q @ other @ q / 2
        matrix[i, j] += cost.label_weight / 2 * paid
    return matrix


A, B = soft(14, 3, 0), soft(11, 4, 1, 2.0)


@pytest.mark.parametrize("name", COSTS)
@pytest.mark.parametrize("case", ["both", "source alone", "target alone", "itself"])
def test_matrix_and_contraction_are_those_of_the_formula(name, case):
    cost = COSTS[name]
    a = A.hard() if case == "target alone" else A
    b = {"source alone": B.hard(), "itself": a}.get(case, B)
    pair, wanted = cost.between(a, b), by_loops(cost, a, b)
    assert torch.allclose(pair.matrix(), wanted, rtol=0, atol=1e-12 * float(wanted.abs().max()))
    plan = torch.rand(wanted.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    plan = plan + plan.T if case == "itself" else plan  # as those of self-problems are
    assert float(pair.contract(plan)) == pytest.approx(float((plan * wanted).sum()), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    "label", [ad.Bures(), ad.Bures(diagonal=True), ad.MeansOnly(), ad.ExactLabelOT()]
)
def test_certain_probabilities_are_labels_to_the_last_digits(label):
    cost, solver = ad.GroundCost(label=label), ad.Sinkhorn(epsilon=0.3, tol=1e-10)
    a, b = A.hard(), B.hard()
    sides = [data.replace(probabilities=memberships(data)) for data in (a, b)]
    found = ad.otdd(*sides, cost=cost, solver=solver)
    known = ad.otdd(a, b, cost=cost, solver=solver)
    assert found.energy == pytest.approx(known.energy, rel=1e-12)
    assert np.allclose(found.class_coupling, known.class_coupling, atol=1e-12)
    assert np.allclose(found.class_distances, known.class_distances, atol=1e-12, equal_nan=True)
    gradients = []
    for source, target in ((a, b), sides):
        x = source.x.clone().requires_grad_()
        ad.OTDD(target, cost=cost, solver=solver)(source.replace(x=x)).backward()
        gradients.append(x.grad)
    assert torch.allclose(*gradients, rtol=0, atol=1e-12 * float(gradients[0].abs().max()))


@pytest.mark.parametrize("label", [ad.Bures(), ad.Bures(diagonal=True), ad.MeansOnly()])
@pytest.mark.parametrize("moving", ["source", "target", "itself"])
def test_gradients_pass_through_laws_as_differences_say(label, moving):
    """⟨P, C⟩ of any plan, with laws that are estimated from what moves."""
    cost = ad.GroundCost(label=label, label_weight=1.3)
    draw = torch.Generator().manual_seed(5)
    plan = torch.rand(len(A), len(A if moving == "itself" else B), generator=draw).double()
    plan = plan + plan.T if moving == "itself" else plan

    def value(x: torch.Tensor) -> torch.Tensor:
        if moving == "itself":
            moved = A.replace(x=x)
            return cost.between(moved, moved).contract(plan)
        a, b = (A.replace(x=x), B) if moving == "source" else (A, B.replace(x=x))
        return cost.between(a, b).contract(plan)

    start = (B if moving == "target" else A).x
    for seed in range(3):
        found, by_differences = oracles.slopes(value, start, seed=seed)
        assert found == pytest.approx(by_differences, rel=1e-6)


@pytest.mark.parametrize(
    "solver", [ad.ExactOT(), ad.Sinkhorn(epsilon=4.0, tol=1e-10)], ids=["exact", "sinkhorn"]
)
def test_distances_are_those_of_pot_on_the_explicit_cost(solver):
    costs = [by_loops(ad.GroundCost(), *pair) for pair in ((A, B), (A, A), (B, B))]
    wanted = oracles.pot_divergence(costs, A.weights, B.weights, solver.epsilon)
    assert ad.otdd(A, B, solver=solver).energy == pytest.approx(wanted, rel=1e-7)


def test_a_dataset_is_nowhere_else_whatever_its_order_and_names():
    other, classes = A.subset(torch.randperm(len(A))), torch.tensor([2, 0, 1])
    shares, y = other.probabilities[:, classes], classes.argsort()[other.y]
    renamed = other.replace(y=y, probabilities=shares, classes=("u", "v", "w"))
    for solver in (ad.Sinkhorn(), ad.ExactOT()):
        assert ad.otdd(A, A, solver=solver).value == 0
        found = ad.otdd(A, renamed, solver=solver)
        assert found.value == 0 and found.converged
        there, same = (ad.otdd(data, B, solver=solver).value for data in (A, renamed))
        assert same == pytest.approx(there, rel=1e-9)
    assert ad.otdd(A, A.replace(probabilities=0.9 * A.probabilities + 0.1 / 3)).value > 0


def test_laws_are_those_of_weighted_samples():
    """Means and covariances of each class by the formula for reliability weights."""
    laws = A.laws()
    for c in range(3):
        mass = (A.weights * A.probabilities[:, c]).numpy()
        wanted = np.cov(A.x.numpy().T, aweights=mass)
        assert np.allclose(laws.means[c], np.average(A.x.numpy(), axis=0, weights=mass))
        likely = A.probabilities[:, c]
        rest = likely[torch.arange(len(A)) != likely.argmax()] / likely.max()
        factor = 1 - float((1 - rest).prod())
        assert np.allclose(laws.covariances()[c], factor * wanted)
    assert torch.allclose(A.class_mass, A.weights @ A.probabilities)
    far = A.replace(x=A.x + 1e6).laws()
    assert torch.allclose(far.covariances(), laws.covariances(), rtol=1e-6)
    tiny = A.replace(x=1e-8 * A.x).laws()
    assert torch.allclose(1e16 * tiny.covariances(), laws.covariances(), rtol=1e-10)


def test_costs_may_fall_below_zero_where_covariances_turn_and_say_so(monkeypatch):
    """Full covariances around one mean, in directions that turn: W₂² is no squared distance of points."""
    angles = torch.arange(4, dtype=torch.float64) * torch.pi / 4
    axes = torch.stack([angles.cos(), angles.sin()], dim=1)
    laws = ad.Gaussians(torch.zeros(4, 2).double(), Full(axes[:, :, None] * axes[:, None, :]))
    apart = ad.bures(laws, laws)
    shares = torch.tensor([[0.5, 0, 0.5, 0], [0, 0.5, 0, 0.5]]).double()
    data = ad.LabeledDataset(0.1 * torch.eye(2).double(), probabilities=shares, law=laws)
    pair = ad.GroundCost().between(data, data)
    p, q = shares
    wanted = float(p @ apart @ q - p @ apart @ p / 2 - q @ apart @ q / 2) / 2 + 0.01
    assert wanted < -0.01 and float(pair.matrix()[0, 1]) == pytest.approx(wanted, rel=1e-12)
    with pytest.warns(
        ad.errors.ConvergenceWarning
    ):  # to swap is as good as to stay: they look the same
        found = ad.otdd(data, data.subset([0]), solver=ad.ExactOT())
    assert not found.converged
    assert found.divergence.source.value == pytest.approx(wanted)  # not to stay
    assert any("soft labels" in note.what for note in found.notes)
    far = data.replace(x=50 * data.x)
    assert ad.otdd(far, far.subset([0])).converged
    plain = ad.otdd(data, data.subset([0]), cost=ad.GroundCost(label=ad.Bures(diagonal=True)))
    assert not any("soft labels" in note.what for note in plain.notes)
    monkeypatch.setattr("advect.cost.labels._MAX_EIGEN", 3)  # of many laws, a rougher bound
    rough = ad.GroundCost().between(data, data).labels.floor
    assert rough <= pair.labels.floor <= wanted - 0.01
    assert rough == pytest.approx(-float(apart.max()) / 2)


def test_blocks_are_the_same_distance_and_flow():
    small = 2**21
    whole, blocks = (ad.otdd(A, B, memory_limit=limit) for limit in (None, small))
    assert blocks.energy == pytest.approx(whole.energy, rel=1e-6)
    energy = ad.OTDD(B, solver=ad.Sinkhorn(whole.epsilon), memory_limit=small)
    assert float(energy(A)) == pytest.approx(whole.energy, rel=1e-3)


def test_many_classes_and_float32():
    """Beyond the number of laws for which the label part is a thin product."""
    a, b = soft(90, 70, 2), soft(80, 66, 3, 1.0)
    plan = torch.rand(90, 80, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    points = ad.GroundCost(label=ad.Bures(diagonal=True)).between(a.hard(), b).law_coordinates()
    assert torch.equal(points[0], a.hard().laws().means[a.y]) and len(points[1]) == 90
    assert ad.GroundCost(label_weight=0.0).between(a, b).law_coordinates() == ()
    for cost in (ad.GroundCost(label=ad.Bures(diagonal=True)), ad.GroundCost()):
        for pair in (cost.between(a, b), cost.between(a.hard(), b.hard())):
            wanted = float((plan * pair.matrix()).sum())
            assert float(pair.contract(plan)) == pytest.approx(wanted, rel=1e-10)
        parts = a.subset(range(6)).replace(law=a.laws()), b.subset(range(5)).replace(law=b.laws())
        wanted = by_loops(cost, *parts)
        found = cost.between(a, b).matrix()[:6, :5]
        assert torch.allclose(found, wanted, rtol=0, atol=1e-10 * float(wanted.max()))
        narrow = cost.between(a.to(dtype=torch.float32), b.to(dtype=torch.float32)).matrix()[:6, :5]
        assert torch.allclose(narrow.double(), wanted, rtol=0, atol=1e-4 * float(wanted.max()))


def test_what_needs_one_label_says_so():
    for call in (
        lambda: ad.flow(A, ad.OTDD(B), dynamics=ad.JointVariableLabels(), n_steps=1),
        lambda: ad.SlicedOTDD(B)(A),
        lambda: ad.embed(A),
    ):
        with pytest.raises(ad.InputError, match=r"one label.*data\.hard"):
            call()
    # a target with doubt is fine for particles with laws of their own
    result = ad.flow(A.hard(), ad.OTDD(B), dynamics=ad.JointVariableLabels(), n_steps=2)
    assert result.values[-1] < result.values[0]
