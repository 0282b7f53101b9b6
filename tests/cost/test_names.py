"""Classes by name: what equal names, other names and none in common do to costs, distances and flows."""

import math

import numpy as np
import oracles
import ot
import pytest
import torch
from flow_cases import draw

import advect as ad

NAMES, BOTH = ad.ByName(), ad.ByName(plus=ad.Bures())
TIGHT = ad.Sinkhorn(epsilon=0.5, tol=1e-10)


def drawn(n, seed, names, shift=0.0):
    return ad.LabeledDataset(
        draw(n, 3, seed=seed) + shift, [names[i % len(names)] for i in range(n)]
    )


def by(label, weight=1.0):
    return ad.GroundCost(label=label, label_weight=weight)


A, B = drawn(24, 0, ("ant", "bee", "cow")), drawn(20, 1, ("bee", "cow", "dog"), shift=0.5)


def test_costs_are_those_of_the_definition():
    """½(‖x − y‖² + w (W₂² + p [names differ])), entry by entry."""
    squared = torch.cdist(A.x, B.x).square()
    differ = torch.tensor([[float(a != b) for b in B.labels] for a in A.labels])
    laws = ad.bures(A.laws(), B.laws())[A.y][:, B.y]
    for plus, expected in ((None, 0.0), (ad.Bures(), laws)):
        label = ad.ByName(7.0) if plus is None else ad.ByName(7.0, plus=plus)
        found = by(label, 0.4).between(A, B).matrix()
        torch.testing.assert_close(found, (squared + 0.4 * (expected + 7.0 * differ)) / 2)


def test_a_share_is_of_the_mean_squared_distance_about_the_means():
    fitted = by(ad.ByName(ad.Relative(2.0))).fitted(A, B)
    a, b = A.x - A.x.mean(0), B.x - B.x.mean(0)
    mean = float(torch.cdist(a, b).square().mean())
    assert fitted.label_cost.penalty == pytest.approx(2 * mean, rel=1e-12)
    assert fitted.fitted(B, B) == fitted  # once
    # where features are embedded, of their points
    half = ad.GroundCost(feature=ad.Embedding(lambda x: x / 2), label=NAMES).fitted(A, B)
    assert half.label_cost.penalty == pytest.approx(mean / 4, rel=1e-12)


@pytest.mark.parametrize(("shift", "scale"), [(1e6, 1.0), (0.0, 1e-8), (0.0, 1e8), (1e6, 1e-8)])
def test_shares_follow_the_scale_and_no_offset(shift, scale):
    plain = by(NAMES).fitted(A, B).label_cost.penalty
    moved = [data.replace(x=scale * (data.x + shift)) for data in (A, B)]
    assert by(NAMES).fitted(*moved).label_cost.penalty == pytest.approx(scale**2 * plain, rel=1e-7)


@pytest.mark.parametrize("label", [NAMES, BOTH, ad.ByName(0.0)], ids=repr)
def test_a_dataset_is_no_distance_from_itself(label):
    shuffled = A.subset(torch.randperm(len(A), generator=torch.Generator().manual_seed(2)))
    for other in (A, shuffled):
        assert ad.otdd(A, other, cost=by(label)).value == 0
    assert ad.otdd(A, A.replace(x=A.x.clone()), cost=by(label), solver=ad.ExactOT()).value == 0
    # names are compared as they are written
    numbers, texts = (A.replace(classes=names) for names in ((1, 2, 3), ("1", 2.0, "3")))
    assert ad.otdd(numbers, texts, cost=by(label)).value == 0


def test_other_names_of_the_same_samples_are_a_distance():
    turned = A.replace(classes=("bee", "cow", "ant"))
    assert ad.otdd(A, turned).value == 0  # laws alone do not see it
    for label in (NAMES, BOTH):
        found = ad.otdd(A, turned, cost=by(label))
        assert found.value > 0.1 and found.converged and not found.same
    assert not ad.otdd(A, turned, cost=by(NAMES), solver=ad.MiniBatch(size=12, batches=3)).same
    for other in (A.replace(x=A.x + 1), A.replace(y=0 * A.y, classes=("all",))):
        assert not ad.otdd(A, other, solver=ad.MiniBatch(size=12)).same  # nor where parts are drawn


@pytest.mark.parametrize("label", [NAMES, ad.ByName(3.0), BOTH], ids=repr)
@pytest.mark.parametrize("solver", [ad.ExactOT(), TIGHT], ids=repr)
def test_distances_are_those_of_pot_and_symmetric(label, solver):
    cost = by(label).fitted(A, B)
    costs = [cost.between(*pair).matrix() for pair in ((A, B), (A, A), (B, B))]
    expected = oracles.pot_divergence(costs, A.weights, B.weights, solver.epsilon)
    found = ad.otdd(A, B, cost=by(label), solver=solver)
    assert found.energy == pytest.approx(expected, rel=1e-6) and found.energy > 0
    assert ad.otdd(B, A, cost=by(label), solver=solver).energy == pytest.approx(expected, rel=1e-6)


def test_a_large_penalty_keeps_names_and_transports_within_them():
    """Balanced classes of the same names: the energy is the mean of the classes' own."""
    a, b = drawn(30, 0, ("u", "v", "w")), drawn(30, 1, ("w", "u", "v"), shift=1.0)
    found = ad.otdd(a, b, cost=by(ad.ByName(1e4)), solver=ad.ExactOT())
    for name in a.classes:
        assert found.class_coupling[name, name] == pytest.approx(1 / 3)
    parts = [(a.of_class(name).x, b.of_class(name).x) for name in a.classes]
    each = [ot.emd2([], [], oracles.half_squared(*pair)) for pair in parts]
    assert found.energy == pytest.approx(np.mean(each), rel=1e-9)


def test_notes_name_classes_without_a_namesake():
    def notes(one, other):
        return " ".join(map(str, ad.otdd(one, other, cost=by(NAMES)).notes))

    strangers = B.replace(classes=("x", "y", "z"))
    assert "ant" in notes(A, B) and "dog" in notes(A, B)
    assert "No class name" in notes(A, strangers)
    assert "name" not in notes(A, A.replace(x=A.x + 1))
    assert "(a, b, c, d, e, … and x, y, z)" in notes(drawn(24, 0, tuple("abcdefgh")), strangers)
    flowed = ad.flow(A, ad.OTDD(strangers, cost=by(NAMES)), n_steps=1)
    assert any("No class name" in note.what for note in flowed.notes)


@pytest.mark.parametrize("label", [NAMES, BOTH, ad.ByName(5.0, plus=ad.MeansOnly())], ids=repr)
def test_gradients_are_differences(label):
    target = drawn(9, 1, ("bee", "cow", "dog"), shift=0.5)
    source = drawn(8, 0, ("ant", "bee"))
    cost = by(label).fitted(source, target)
    energy = ad.OTDD(target, cost=cost, solver=ad.Sinkhorn(epsilon=0.5, tol=1e-11))
    for seed in range(3):
        found, expected = oracles.slopes(lambda x: energy(source.replace(x=x)), source.x, seed=seed)
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-8)


EACH = ad.JointVariableLabels()  # laws of single samples, which have no names


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ad.ByName(-1.0), "penalty must be a finite number"),
        (lambda: ad.ByName(math.inf), "penalty must be a finite number"),
        (lambda: ad.ByName("names"), "penalty must be a number"),
        (lambda: ad.ByName(plus="bures"), "plus must be a label cost"),
        (lambda: ad.otdd(ad.LabeledDataset(A.x), B, cost=by(NAMES)), "label for each sample"),
        (lambda: ad.otdd(EACH.start(A), B, cost=by(NAMES)), "class_laws"),
        (lambda: ad.flow(A, ad.OTDD(B, cost=by(NAMES)), dynamics=EACH), "JointFixedLabels"),
    ],
)
def test_errors(make, said):
    with pytest.raises(ad.InputError, match=said):
        make()
