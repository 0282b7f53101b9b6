"""Feature and label costs of one's own: what the docstrings promise, in every use of a cost."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from flow_cases import draw

import advect as ad

SCALES = torch.tensor([1.0, 3.0, 0.5], dtype=torch.float64)


def data(n, seed, shift=0.0):
    return ad.LabeledDataset(draw(n, 3, seed=seed) + shift, torch.arange(n) % 2)


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
class Whitened(ad.FeatureCost):
    """Fitted to the datasets once; a checkpoint keeps what was fitted."""

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
        costs = [ad.GroundCost(feature=feature, label=label) for feature in (Scaled(), SAME)]
        own, known = (ad.otdd(SOURCE, TARGET, cost=cost) for cost in costs)
        assert own.value == known.value
        np.testing.assert_array_equal(own.class_distances.values, known.class_distances.values)

    @pytest.mark.parametrize("feature", [Scaled(), SAME])
    def test_float32_goes_wide(self, feature):
        """Points count as given where float32 has not digits enough."""
        narrow = [side.to(dtype=torch.float32) for side in (SOURCE, TARGET)]
        narrow = [side.replace(x=side.x + 1000) for side in narrow]
        cost = ad.GroundCost(feature=feature, label=ad.NoLabels())
        found = ad.otdd(*narrow, cost=cost, solver=ad.ExactOT())
        points = [side.replace(x=(side.x * SCALES).float().double()) for side in narrow]
        wanted = ad.otdd(*points, cost=ad.GroundCost(label=ad.NoLabels()), solver=ad.ExactOT())
        assert found.energy == pytest.approx(wanted.energy, rel=1e-9)


def embedded(points):
    """A class with ``embed``, for points of a dataset."""
    return type("Own", (), {"embed": lambda self, data: points(data.x)})()


def measured(source=None, **parts):
    return lambda: ad.otdd(source or SOURCE, TARGET, cost=ad.GroundCost(**parts))


@pytest.mark.parametrize(
    ("call", "said"), [(measured(SOURCE.replace(law=SOURCE.laws()), feature=Scaled()), "not Gaussian laws"),
    (measured(feature=embedded(lambda x: x[:3])), "a row for each of the 24"),
    (measured(feature=embedded(lambda x: x * float("nan"))), "features must be finite"),
    (measured(feature=embedded(lambda x: x * float("inf"))), "features must be finite"),
    (measured(feature=Scaled), "feature must be a feature cost"),
    (measured(feature=torch.cdist), "feature must be a feature cost"), (lambda: ad.Embedding(3), "callable"),
    (lambda: ad.GroundCost(label_weight=-1), "label_weight"),
    (lambda: ad.otdd(SOURCE, TARGET, cost=Scaled()), r"GroundCost\(feature"),
    (lambda: ad.otdd(SOURCE, TARGET, cost=ad.MeansOnly()), r"GroundCost\(label"),
    (measured(label="bures"), "label must be a label cost"),
    (measured(ad.LabeledDataset(torch.zeros(4, 2), [0] * 4)), "dimensions 2 and 3 .*harmonize")],
)  # fmt: skip
def test_errors(call, said):
    with pytest.raises(ad.InputError, match=said):
        call()


def test_fitted_once_and_kept_by_a_checkpoint(tmp_path):
    energy, path = ad.OTDD(TARGET, cost=ad.GroundCost(feature=Whitened())), tmp_path / "half.ckpt"
    options = {"integrator": ad.Euler(0.1)}
    whole = ad.flow(SOURCE, energy, n_steps=4, **options)
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
            cost = ad.GroundCost(label=label)
            ad.otdd(SOURCE.replace(x=x), TARGET, cost=cost, solver=ad.ExactOT()).loss.backward()
            found.append(x.grad)
        torch.testing.assert_close(found[0], found[1], rtol=1e-8, atol=1e-10)

    @pytest.mark.parametrize("shape", [(2, 3), (2,), (1, 2), (24, 18), ()])
    def test_another_shape_is_said(self, shape):
        """A row of (1, 2) would be broadcast, another shape an error of torch."""
        with pytest.raises(ad.InputError, match=r"a matrix \(2, 2\).*shape"):
            ad.otdd(SOURCE, TARGET, cost=ad.GroundCost(label=lambda a, b: torch.ones(shape)))


def test_parameters_of_an_embedding_have_a_gradient():
    """The energy is quadratic in a scale of the features."""
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    cost = ad.GroundCost(feature=ad.Embedding(lambda x: scale * x), label=ad.NoLabels())
    found = ad.otdd(SOURCE, TARGET, cost=cost, solver=ad.ExactOT())
    found.loss.backward()
    assert float(scale.grad) == pytest.approx(2 * found.energy, rel=1e-9)
