"""Feature and label costs of one's own: what the docstrings promise, in every use of a cost."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

import advect as ad
from advect.cost import SquaredEuclidean
from advect.cost.labels import as_label_cost
from advect.ot.plan import DensePlan, Plan, ScatteredPlan

SCALES = torch.tensor([1.0, 3.0, 0.5], dtype=torch.float64)


def data(n, seed, shift=0.0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=generator, dtype=torch.float64) + shift
    return ad.LabeledDataset(x, [i % 2 for i in range(n)])


class Scaled:
    """No subclass, nothing but ``embed``."""

    def embed(self, data):
        return data.x * SCALES


class ByClassNumber:
    """No subclass, nothing but ``__call__``; symmetric, and 0 where classes agree."""

    def __call__(self, source, target):
        names = [torch.tensor(side.classes, dtype=torch.float64) for side in (source, target)]
        return (names[0][:, None] - names[1]).square()


@dataclass(frozen=True)
class Shaped(ad.LabelCost):
    shape: tuple

    def __call__(self, source, target):
        return torch.ones(self.shape)


@dataclass(frozen=True)
class Whitened(ad.FeatureCost):
    """Fitted to the datasets once, as a sketch is; a checkpoint keeps what was fitted."""

    scales: torch.Tensor | None = None

    def embed(self, data):
        assert self.scales is not None
        return data.x / self.scales

    def fitted(self, source, target):
        scales = torch.cat([source.x, target.x]).detach().std(dim=0)
        return self if self.scales is not None else Whitened(scales)

    def state(self):
        return {} if self.scales is None else {"whitened.scales": self.scales}

    def with_state(self, state):
        scales = state.get("whitened.scales")
        return self if scales is None else Whitened(scales)


SOURCE, TARGET = data(24, 0), data(18, 1, shift=1.0)
SAME = ad.Embedding(lambda samples: samples * SCALES)


class TestEmbed:
    @pytest.mark.parametrize("label", [ad.Bures(), ad.MeansOnly(), ad.ExactLabelOT()])
    def test_distance(self, label):
        own, known = (
            ad.otdd(SOURCE, TARGET, cost=ad.GroundCost(feature=feature, label=label))
            for feature in (Scaled(), SAME)
        )
        assert own.value == known.value
        np.testing.assert_array_equal(own.class_distances.values, known.class_distances.values)

    def test_in_blocks(self):
        pair = ad.GroundCost(feature=Scaled()).between(SOURCE, TARGET)
        torch.testing.assert_close(
            pair.blocked(limit=2**20).rows(slice(2, 9)), pair.matrix()[2:9], rtol=1e-12, atol=1e-12
        )
        cost = ad.GroundCost(feature=Scaled())
        whole = ad.otdd(SOURCE, TARGET, cost=cost)
        assert ad.otdd(SOURCE, TARGET, cost=cost, memory_limit="64KiB").value == pytest.approx(
            whole.value, rel=1e-6
        )

    def test_float32_goes_wide(self):
        """Points count as given where float32 has not digits enough."""
        narrow = [side.to(dtype=torch.float32) for side in (SOURCE, TARGET)]
        narrow = [side.replace(x=side.x + 1000) for side in narrow]
        for feature in (Scaled(), SAME):
            cost = ad.GroundCost(feature=feature, label=ad.NoLabels())
            wide, first, second = cost.widened(*narrow)
            assert first.x.dtype == second.x.dtype == torch.float64
            expected = (
                torch.cdist(*((side.x * SCALES).float().double() for side in narrow)) ** 2 / 2
            )
            torch.testing.assert_close(
                wide.between(first, second).matrix(), expected, rtol=1e-9, atol=1e-9
            )

    def test_laws_are_refused_and_errors_say_why(self):
        cost = ad.GroundCost(feature=Scaled())
        with pytest.raises(ad.InputError, match="carries samples, not Gaussian laws"):
            ad.otdd(SOURCE.replace(law=SOURCE.laws()), TARGET, cost=cost)
        short = type("Short", (), {"embed": lambda self, data: data.x[:3]})()
        with pytest.raises(ad.InputError, match="a row for each of the 24"):
            ad.GroundCost(feature=short).between(SOURCE, TARGET).matrix()
        for bad in (float("nan"), float("inf")):
            far = type(
                "Far", (ad.FeatureCost,), {"embed": lambda self, data, by=bad: data.x * by}
            )()
            with pytest.raises(ad.InputError, match="embedded features must be finite"):
                ad.otdd(SOURCE, TARGET, cost=ad.GroundCost(feature=far))
        with pytest.raises(ad.InputError, match="feature must be a feature cost"):
            ad.GroundCost(feature=Scaled)
        with pytest.raises(ad.InputError, match=r"GroundCost\(feature"):
            ad.otdd(SOURCE, TARGET, cost=Scaled())


class TestFitted:
    def test_fitted_once_and_kept_by_a_checkpoint(self, tmp_path):
        energy = ad.OTDD(TARGET, cost=ad.GroundCost(feature=Whitened()))
        options = {"integrator": ad.Euler(0.1)}
        whole = ad.flow(SOURCE, energy, n_steps=4, **options)
        path = tmp_path / "half.ckpt"
        ad.flow(SOURCE, energy, n_steps=2, callbacks=[ad.Checkpoint(path)], **options)
        rest = ad.flow(SOURCE, energy, n_steps=4, resume=path, **options)
        assert whole.values[-1] < whole.values[0]
        assert torch.equal(whole.dataset.x, rest.dataset.x)


class TestLabels:
    @pytest.mark.parametrize("own", [ByClassNumber(), lambda a, b: ByClassNumber()(a, b)])
    def test_matrix_distance_and_flow(self, own):
        cost = ad.GroundCost(label=own, label_weight=4.0)
        matrix = cost.between(SOURCE, TARGET).matrix()
        apart = (SOURCE.y[:, None] != TARGET.y).double()
        expected = torch.cdist(SOURCE.x, TARGET.x) ** 2 / 2 + 2 * apart
        torch.testing.assert_close(matrix, expected, rtol=1e-9, atol=1e-9)
        assert ad.otdd(SOURCE, SOURCE, cost=cost).value == 0
        run = ad.flow(SOURCE, ad.OTDD(TARGET, cost=cost), integrator=ad.Euler(0.1), n_steps=3)
        assert run.values[-1] < run.values[0]

    def test_gradients_reach_what_the_distances_come_from(self):
        def means(a, b):
            return torch.cdist(a.laws().means, b.laws().means) ** 2

        found = []
        for label in (means, ad.MeansOnly()):
            x = SOURCE.x.clone().requires_grad_()
            pair = ad.GroundCost(label=label).between(SOURCE.replace(x=x), TARGET)
            pair.contract(torch.ones(24, 18, dtype=torch.float64) / 432).backward()
            found.append(x.grad)
        torch.testing.assert_close(found[0], found[1], rtol=1e-8, atol=1e-10)

    @pytest.mark.parametrize("shape", [(2, 3), (2,), (1, 2), (24, 18), ()])
    def test_another_shape_is_said(self, shape):
        """A row of (1, 2) would be broadcast, another shape an error of torch."""
        for label in (lambda a, b: torch.ones(shape), Shaped(shape)):
            with pytest.raises(ad.InputError, match=r"a matrix \(2, 2\).*shape"):
                ad.otdd(SOURCE, TARGET, cost=ad.GroundCost(label=label))
            with pytest.raises(ad.InputError, match=r"a matrix \(2, 2\).*shape"):
                as_label_cost(label).of_pairs(SOURCE, TARGET, torch.ones(2, 2) > 0)

    def test_a_part_in_place_of_a_cost(self):
        with pytest.raises(ad.InputError, match=r"GroundCost\(label"):
            ad.otdd(SOURCE, TARGET, cost=ad.MeansOnly())
        with pytest.raises(ad.InputError, match="label must be a label cost"):
            ad.GroundCost(label="bures")


class InPieces(Plan):
    """A matrix, some rows and columns at a time."""

    def __init__(self, matrix):
        self.matrix, self.shape = matrix, tuple(matrix.shape)
        self.dtype, self.device = matrix.dtype, matrix.device

    def pieces(self):
        for rows in (slice(0, 10), slice(10, 24)):
            for columns in (slice(0, 7), slice(7, 18)):
                yield rows, columns, self.matrix[rows, columns]


class TestOneContraction:
    """Plans in one piece and in many give the same number and the same gradients."""

    @pytest.mark.parametrize(
        "feature",
        [
            SquaredEuclidean(),
            lambda x, y: torch.cdist(x, y) ** 2,
            lambda x, y: torch.cdist(x, y).detach() ** 2,
        ],
        ids=["points", "a function", "a function without a graph"],
    )
    @pytest.mark.parametrize("label", [ad.Bures(), ad.NoLabels()])
    def test_pieces(self, feature, label):
        cost, found = ad.GroundCost(feature=feature, label=label), []
        solver = ad.Sinkhorn(epsilon=0.5)
        for kind in ("matrix", "blocked", "pieces"):
            x, y = (side.x.clone().requires_grad_() for side in (SOURCE, TARGET))
            pair = cost.between(SOURCE.replace(x=x), TARGET.replace(x=y))
            given = pair.blocked(limit=2**20) if kind == "blocked" else pair.matrix()
            plan = solver.solve(given, SOURCE.weights, TARGET.weights).coupling
            value = pair.contract(InPieces(plan.dense()) if kind == "pieces" else plan)
            ends, moves = (x, y), value.requires_grad
            pulls = torch.autograd.grad(value, ends, allow_unused=True) if moves else (None,) * 2
            pulls = [
                pull if pull is not None else 0 * x for x, pull in zip(ends, pulls, strict=True)
            ]
            found.append((value.detach(), *pulls))
        torch.testing.assert_close(found[0], found[1], rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(found[0], found[2], rtol=1e-6, atol=1e-8)

    def test_parameters_of_a_function_have_a_gradient(self):
        scale = torch.ones((), dtype=torch.float64, requires_grad=True)
        cost = ad.GroundCost(
            feature=lambda x, y: scale * torch.cdist(x, y) ** 2, label=ad.NoLabels()
        )
        plan = torch.rand(24, 18, dtype=torch.float64)
        cost.between(SOURCE, TARGET).contract(plan).backward()
        expected = (plan * torch.cdist(SOURCE.x, TARGET.x) ** 2).sum() / 2
        torch.testing.assert_close(scale.grad, expected)


def test_a_cost_with_other_parts_is_another():
    cost = ad.GroundCost(feature=Scaled())
    assert replace(cost, label=ad.NoLabels()).has_labels is False
    assert cost.has_labels and not replace(cost, label_weight=0.0).has_labels


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
@pytest.mark.parametrize("twice", [False, True])
def test_parts_of_a_plan_as_large_as_the_whole_are_contracted_where_they_lie(order, twice):
    """A batch of all samples comes in an order of its own; and there may be several. Once: the order was
    not seen, and the first part taken for the whole."""
    x = torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([[0.5], [4.0], [2.0]], dtype=torch.float64)
    part = torch.arange(1.0, 10.0, dtype=torch.float64).reshape(3, 3)
    rows, columns = torch.tensor(order), torch.tensor(order[::-1])
    one = DensePlan(part)
    every = torch.arange(3)
    parts = [(0.25, rows, columns, one)] + [(0.75, every, every, one)] * twice
    plan = ScatteredPlan(parts, (3, 3))
    cost = ad.GroundCost(feature=lambda a, b: (a - b.T).abs() ** 3, label=ad.NoLabels())
    pair = cost.between(ad.LabeledDataset(x, [0, 1, 2]), ad.LabeledDataset(y, [0, 1, 2]))
    value = pair.contract(plan)
    matrix = plan.dense()
    apart = x.detach() - y.T
    assert float(value.detach()) == pytest.approx(float((matrix * apart.abs() ** 3).sum()) / 2)
    (found,) = torch.autograd.grad(value, x)
    expected = (matrix * 3 * apart.abs() ** 2 * apart.sign()).sum(dim=1) / 2
    torch.testing.assert_close(found[:, 0], expected)
