"""The ground cost: its matrix against explicit differences, its gradients against central differences."""

import math

import oracles
import ot as pot
import pytest
import torch
from flow_cases import draw

import advect as ad
from advect.data.laws import Full

LABEL_COSTS = {
    "bures": ad.Bures(),
    "diagonal": ad.Bures(diagonal=True),
    "means": ad.MeansOnly(),
    "exact": ad.ExactLabelOT(),
    "entropic": ad.ExactLabelOT(ad.Sinkhorn(epsilon=0.1)),
    "none": ad.NoLabels(),
}


def random_dataset(n=24, d=3, k=3, seed=0, shift=0.0, **options):
    return ad.LabeledDataset(draw(n, d, seed=seed) + shift, torch.arange(n) % k, **options)


class TestMatrix:
    @pytest.mark.parametrize("label", LABEL_COSTS.values(), ids=LABEL_COSTS.keys())
    @pytest.mark.parametrize("offset", [0.0, 1e4])
    def test_against_explicit_differences(self, label, offset):
        a, b = random_dataset(shift=offset), random_dataset(30, k=4, seed=1, shift=offset)
        matrix = ad.GroundCost(label=label, label_weight=0.7).between(a, b).matrix()
        expected = oracles.cost(a.x, b.x) + 0.35 * label(a, b)[a.y][:, b.y]
        torch.testing.assert_close(matrix, expected, rtol=1e-9, atol=1e-9)

    @pytest.mark.parametrize("dim", [2, 5, 30])
    def test_rounding_is_a_bound_and_not_far_from_what_there_is(self, dim):
        cost = ad.GroundCost(label=ad.NoLabels())
        narrow = [random_dataset(30, dim, seed=seed).to(dtype=torch.float32) for seed in (0, 1)]
        pair, wide = cost.between(*narrow), [data.to(dtype=torch.float64) for data in narrow]
        off = float((pair.matrix() - cost.between(*wide).matrix()).abs().max())
        assert off <= pair.rounding(torch.float32) <= 20 * off

    @pytest.mark.parametrize(("dtype", "u"), [(torch.float32, 2.0**-24), (torch.float64, 2.0**-53)])
    @pytest.mark.parametrize("within", [False, True])
    def test_bounds_by_hand(self, dtype, u, within):
        """Points up to 3 and 4 from their centre, two units of each; one without mass is left out."""
        x = torch.tensor([[0.0, 3.0], [0.0, -3.0], [90.0, 0.0]], dtype=dtype)
        a = ad.LabeledDataset(x, [0, 1, 1], weights=[1.0, 1.0, 0.0])
        b = ad.LabeledDataset(x[:2].flip(1) * 4 / 3, [0, 1])
        far, reach = (3.0, 6.0) if within else (4.0, 7.0)
        other = a if within else b
        pair = ad.GroundCost(label=ad.NoLabels()).between(a, other)
        features = u * (12 + math.sqrt(2) / 2) * reach**2 / 2
        assert pair.sizes.largest == pytest.approx(reach**2 / 2)
        assert pair.rounding(dtype) == pytest.approx(features)
        table = torch.tensor([[0.0, 8.0], [8.0, 0.0]], dtype=dtype)
        pair = ad.GroundCost(label=lambda *_: table, label_weight=3.0).between(a, other)
        labels, wide, single = 12.0, 2.0**-52, 4e-6 * (dtype == torch.float32)
        means = (2 * u + wide * math.sqrt(3)) * 2 * far
        wanted = features + (8 * u + 16 * wide) * 3 * reach**2 + (4 * u + single) * labels
        wanted += math.sqrt(2 * 3 * labels) * means + 3 / 2 * means**2
        assert pair.sizes.largest == pytest.approx(reach**2 / 2 + labels)
        assert pair.rounding(dtype) == pytest.approx(wanted, rel=1e-6)
        part = pair.select(torch.tensor([0]), torch.tensor([0]))
        assert part.sizes.largest == pair.sizes.largest
        assert part.rounding(dtype) == pair.rounding(dtype)
        assert pair.check_table(64.0) == 64  # two tables of 2 × 2 in float64
        with pytest.raises(ad.InputError, match="between 2 and 2 label laws"):
            pair.check_table(63.0)

    def test_embedding_moves_features_and_laws(self):
        a, b = random_dataset(), random_dataset(seed=1)
        cost = ad.GroundCost(feature=ad.Embedding(lambda x: x[:, :2] * 3))
        embedded = cost.between(a, b).matrix()
        sides = [z.replace(x=z.x[:, :2] * 3, sample_shape=(2,)) for z in (a, b)]
        torch.testing.assert_close(embedded, ad.GroundCost().between(*sides).matrix())
        assert cost.between(a, random_dataset(d=5, seed=1)).matrix().shape == (24, 24)


class TestLabelCosts:
    def test_exact_label_ot_against_pot(self):
        a, b = random_dataset(weights=torch.rand(24)), random_dataset(30, k=2, seed=1)
        got = ad.ExactLabelOT()(a, b)
        for i in range(3):
            for j in range(2):
                x, y = a.of_class(i), b.of_class(j)
                masses = x.weights.numpy(), y.weights.numpy()
                expected = 2 * pot.emd2(*masses, oracles.half_squared(x.x, y.x))
                assert float(got[i, j]) == pytest.approx(expected, abs=1e-9)

    def test_carried_laws_replace_estimates(self):
        a, b = random_dataset(), random_dataset(seed=1)
        unit = torch.eye(3, dtype=torch.float64).repeat(3, 1, 1)
        carried = a.replace(law=ad.Gaussians(torch.zeros_like(unit[0]), Full(unit)))
        assert not torch.allclose(ad.Bures()(carried, b), ad.Bures()(a, b))
        per_sample = carried.replace(law_index=torch.zeros(24, dtype=torch.int64))
        found, expected = (ad.otdd(data, b).value for data in (per_sample, carried))
        assert found == pytest.approx(expected, rel=1e-9)


def check_gradient(x, y, target, cost, solver, weights=None):
    """The gradient of the energy in the features, which is that of its differences."""

    def distance(points):
        data = ad.LabeledDataset(points, y, weights=weights)
        return ad.otdd(data, target, cost=cost, solver=solver)

    leaf = x.clone().requires_grad_()
    distance(leaf).loss.backward()
    value = lambda points: distance(points).energy
    got, expected = oracles.slopes_in_parts(value, x, leaf.grad, step=1e-5)
    torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-6)
    return leaf.grad


class TestGradients:
    @pytest.mark.parametrize("label", LABEL_COSTS.values(), ids=LABEL_COSTS.keys())
    @pytest.mark.parametrize(
        "solver", [ad.Sinkhorn(epsilon=0.3, tol=1e-11), ad.ExactOT()], ids=["sinkhorn", "exact"]
    )
    def test_features(self, label, solver):
        source, target = random_dataset(12, 2), random_dataset(15, 2, seed=1, shift=0.5)
        cost = ad.GroundCost(label=label, label_weight=2.0)
        check_gradient(source.x, source.y, target, cost, solver)

    @pytest.mark.slow
    @pytest.mark.parametrize("label", [ad.Bures(), ad.Bures(diagonal=True), ad.ExactLabelOT()])
    def test_rank_deficient_classes(self, label):
        """20 dimensions of which 4 are constant, 5 samples a class, and a class of one sample."""
        x, z = draw(2, 11, 20)
        x[:, 16:], z[:, 16:] = 0.25, -0.75
        y, solver = [0] * 5 + [1] * 5 + [2], ad.Sinkhorn(epsilon=5.0, tol=1e-11)
        check_gradient(x, y, ad.LabeledDataset(z + 1, y), ad.GroundCost(label=label), solver)

    def test_coinciding_points(self):
        # class 0 is one point, class 1 has three coinciding samples
        leaf = torch.tensor(
            [[0.0] * 3] * 4 + [[1.0] * 3] * 3 + [[0.5, 2.0, -1.0]], requires_grad=True
        )
        target = random_dataset(10, 3, k=2, seed=3)
        ad.otdd(ad.LabeledDataset(leaf, [0] * 4 + [1] * 4), target).loss.backward()
        assert bool(torch.isfinite(leaf.grad).all())

    @pytest.mark.parametrize("part", ["means", "covariances"])
    def test_laws(self, part):
        source, target = random_dataset(12, 3), random_dataset(15, 3, seed=1)
        law = source.laws()
        fixed = {"means": law.means, "covariances": law.covariances() + 0.5 * torch.eye(3)}
        solver = ad.Sinkhorn(epsilon=0.3, tol=1e-11)

        def distance(value):
            current = fixed | {part: value}
            covariances = (current["covariances"] + current["covariances"].mT) / 2
            law = ad.Gaussians(current["means"], Full(covariances))
            return ad.otdd(source.replace(law=law), target, solver=solver)

        leaf = fixed[part].clone().requires_grad_()
        distance(leaf).loss.backward()
        expected = oracles.central_differences(lambda t: distance(t).energy, fixed[part], step=1e-5)
        torch.testing.assert_close(leaf.grad, expected, atol=1e-6, rtol=1e-6)

    def test_both_sides_and_an_embedding(self):
        source, target = random_dataset(10, 3), random_dataset(12, 3, seed=1)
        mix = torch.randn(3, 2, dtype=torch.float64)
        cost = ad.GroundCost(feature=ad.Embedding(lambda x: torch.tanh(x @ mix)))
        options = {"cost": cost, "solver": ad.Sinkhorn(epsilon=0.1, tol=1e-11)}
        for start, loss in (
            (source.x, lambda x: ad.otdd(source.replace(x=x), target, **options).loss),
            (target.x, lambda x: ad.otdd(source, target.replace(x=x), **options).loss),
        ):
            got, expected = oracles.slopes(loss, start)
            assert got == pytest.approx(expected, abs=1e-6, rel=1e-6)

    def test_zero_weights_do_not_pull(self):
        source, target = random_dataset(12, 2), random_dataset(15, 2, seed=1)
        weights = torch.ones(12)
        weights[3] = 0
        solver = ad.Sinkhorn(epsilon=0.3, tol=1e-11)
        got = check_gradient(source.x, source.y, target, ad.GroundCost(), solver, weights=weights)
        assert float(got[3].abs().max()) == 0

    def test_a_step_of_one_lands_on_the_target(self):
        """With ½ in the cost, x − gradient / mass is the transport map: T(x)."""
        x = torch.randn(30, 2, dtype=torch.float64)
        target = ad.LabeledDataset(x[torch.randperm(30)] + 5, ["only"] * 30)
        leaf = x.clone().requires_grad_()
        source, cost = ad.LabeledDataset(leaf, ["only"] * 30), ad.GroundCost(label=ad.NoLabels())
        ad.otdd(source, target, cost=cost, solver=ad.ExactOT()).loss.backward()
        torch.testing.assert_close((x - 30 * leaf.grad).sort(dim=0)[0], target.x.sort(dim=0)[0])


def test_relative_epsilon_follows_the_cross_problem():
    a, b = random_dataset(), random_dataset(seed=1, shift=10.0)
    distance = ad.otdd(a, b, solver=ad.Sinkhorn(epsilon=ad.Relative(0.1)))
    mean = float(a.weights @ ad.GroundCost().between(a, b).matrix() @ b.weights)
    assert distance.epsilon == pytest.approx(0.1 * mean, rel=1e-9)
    assert distance.divergence.source.epsilon == distance.epsilon
