"""Feature and label costs of one's own: what the docstrings promise, in every use of a cost."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

import advect as ad

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
        own, known = (
            ad.otdd(SOURCE, TARGET, cost=ad.GroundCost(feature=feature, label=label))
            for feature in (Scaled(), SAME)
        )
        assert own.value == known.value
        np.testing.assert_array_equal(own.class_distances.values, known.class_distances.values)

    def test_in_blocks(self):
        cost = ad.GroundCost(feature=Scaled())
        whole = ad.otdd(SOURCE, TARGET, cost=cost)
        blocks = ad.otdd(SOURCE, TARGET, cost=cost, memory_limit="64KiB")
        assert blocks.value == pytest.approx(whole.value, rel=1e-6)

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
            cost = ad.GroundCost(label=label)
            ad.otdd(SOURCE.replace(x=x), TARGET, cost=cost, solver=ad.ExactOT()).loss.backward()
            found.append(x.grad)
        torch.testing.assert_close(found[0], found[1], rtol=1e-8, atol=1e-10)

    @pytest.mark.parametrize("shape", [(2, 3), (2,), (1, 2), (24, 18), ()])
    def test_another_shape_is_said(self, shape):
        """A row of (1, 2) would be broadcast, another shape an error of torch."""
        for label in (lambda a, b: torch.ones(shape), Shaped(shape)):
            with pytest.raises(ad.InputError, match=r"a matrix \(2, 2\).*shape"):
                ad.otdd(SOURCE, TARGET, cost=ad.GroundCost(label=label))

    def test_a_part_in_place_of_a_cost(self):
        with pytest.raises(ad.InputError, match=r"GroundCost\(label"):
            ad.otdd(SOURCE, TARGET, cost=ad.MeansOnly())
        with pytest.raises(ad.InputError, match="label must be a label cost"):
            ad.GroundCost(label="bures")


def test_parameters_of_an_embedding_have_a_gradient():
    """The energy is quadratic in a scale of the features."""
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    cost = ad.GroundCost(feature=ad.Embedding(lambda x: scale * x), label=ad.NoLabels())
    found = ad.otdd(SOURCE, TARGET, cost=cost, solver=ad.ExactOT())
    found.loss.backward()
    assert float(scale.grad) == pytest.approx(2 * found.energy, rel=1e-9)


def test_parts_as_large_as_the_whole_are_contracted_where_they_lie():
    """A batch of all samples comes in an order of its own. Once: the order was not seen."""
    found = []
    for solver in (ad.ExactOT(), ad.MiniBatch(ad.ExactOT(), size=24)):
        x = SOURCE.x.clone().requires_grad_()
        cost = ad.GroundCost(feature=ad.Embedding(lambda x: x**3))
        target = SOURCE.replace(x=SOURCE.x.flip(0) + 1)
        ad.OTDD(target, cost=cost, solver=solver)(SOURCE.replace(x=x)).backward()
        found.append(x.grad)
    torch.testing.assert_close(found[1], found[0], rtol=1e-9, atol=1e-12)
