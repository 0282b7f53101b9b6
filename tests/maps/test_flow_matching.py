"""Flow matching: velocities and steps against closed forms, pairs without a flow, labels, export."""

import math
from itertools import pairwise

import pytest
import torch
from flow_cases import draw, labeled
from oracles import optimal_matrix, root
from torch import nn

import advect as ad
from advect.maps import FlowMatchingMap
from advect.maps.neural import Carrier

QUICK = {"updates": 20, "width": 32, "progress": False}


class Turning(nn.Module):
    """dx/dt = (1 + cos t) A x, whose solution is exp((1 + sin 1) A) x."""

    matrix = torch.tensor([[0.1, -0.8], [0.7, -0.2]], dtype=torch.float64)

    def forward(self, x, t, y):
        return (1 + t.cos())[:, None] * (x @ self.matrix.T.to(x.dtype))


class TestSteps:
    def test_are_of_second_order(self):
        x = draw(5, 2)
        exact = x @ torch.linalg.matrix_exp((1 + math.sin(1)) * Turning.matrix).T
        zero, one = torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)

        class Double(Carrier):
            def standard(self, x, t, codes):  # the step, without the rounding of the network
                return self.network(x, t, codes)

        carriers = [Double(Turning(), 0, steps, zero, one, zero, one) for steps in (8, 16, 32)]
        errors = [float((carrier(x) - exact).norm()) for carrier in carriers]
        ratios = [a / b for a, b in pairwise(errors)]
        assert all(3.6 < ratio < 4.4 for ratio in ratios), ratios

    def test_units(self):
        # f in standard units is v in those of the data: v = shift + spread f((x − centre)/scale)
        centre, scale, shift, spread = draw(4, 2).abs() + 0.5
        carrier = Carrier(Turning(), 0, 3, centre, scale, shift, spread)
        x, t = draw(6, 2), torch.full((6,), 0.3, dtype=torch.float64)
        found = carrier.standard(x, t, torch.full((6,), -1))
        assert torch.allclose(found.double(), Turning()((x - centre) / scale, t, None), atol=1e-6)


class TestFit:
    first = torch.tensor([[1.0, 0.4], [0.4, 0.6]], dtype=torch.float64)
    last = torch.tensor([[0.5, -0.3], [-0.3, 2.0]], dtype=torch.float64)
    mean = torch.tensor([4.0, 2.0], dtype=torch.float64)

    @pytest.mark.slow
    def test_between_gaussians_it_is_the_optimal_map(self):
        # pairs of large batches are nearly those of the optimal map, A = S^-½ (S^½ T S^½)^½ S^-½
        half, optimal = root(self.first), optimal_matrix(self.first, self.last)
        source = ad.LabeledDataset(draw(1000, 2) @ half)
        target = ad.LabeledDataset(self.mean + draw(1000, 2, seed=1) @ root(self.last))
        pairs = ad.PairSampler(source, target, label_weight=0.0)
        fitted = FlowMatchingMap(updates=200, width=64, progress=False)
        fitted.fit(pairs)
        new = draw(500, 2, seed=9) @ half
        moved = fitted.transform(new)
        error = (moved - self.mean - new @ optimal).norm(dim=1).mean()
        assert error < 0.15 * (moved - self.mean).norm(dim=1).mean()
        assert torch.allclose(moved.mean(0), self.mean, atol=0.15)
        assert torch.allclose(moved.T.cov(), self.last, atol=0.25)

    @pytest.mark.slow
    def test_labels_where_they_are_known(self):
        # both classes start at one place and go to opposite sides
        y = torch.arange(2).repeat(300)
        source = ad.LabeledDataset(0.1 * draw(600, 2), y.numpy())
        side = torch.tensor([[5.0, 0.0], [-5.0, 0.0]], dtype=torch.float64)
        target = ad.LabeledDataset(0.1 * draw(600, 2, seed=1) + side[y], y.numpy())
        fitted = FlowMatchingMap(updates=150, width=64, progress=False)
        fitted.fit(ad.PairSampler(source, target))
        new = 0.1 * draw(80, 2, seed=5)
        known = fitted.transform(new, [0, 1] * 40)
        assert float((known - side[torch.arange(2).repeat(40)]).norm(dim=1).mean()) < 0.6
        # without a label nobody knows which side
        blind = fitted.transform(new)
        assert float((blind - known).norm(dim=1).mean()) > 1.0
        mixed = fitted.transform(new, [0, None] * 40)
        assert torch.allclose(mixed[::2], fitted.transform(new[::2], [0] * 40), atol=1e-6)
        assert torch.allclose(mixed[1::2], blind[1::2], atol=1e-6)

    def test_other_sizes_shapes_and_classes(self):
        source = labeled([30, 40], 4, 0).replace(sample_shape=(2, 2), classes=("a", "b"))
        target = labeled([50, 20, 30], 4, 1).replace(classes=("x", "y", "z"))
        fitted = FlowMatchingMap(**QUICK).fit(ad.PairSampler(source, target))
        assert fitted.sample_shape_ == (2, 2) and fitted.classes_ == ("a", "b")
        assert fitted.transform(source).sample_shape == (2, 2)
        assert fitted.transform(draw(3, 2, 2), ["a", None, "b"]).shape == (3, 2, 2)
        with pytest.raises(ad.InputError, match="classes of the fit"):
            fitted.transform(draw(1, 2, 2), ["x"])

    def test_noise_is_around_the_paths(self, monkeypatch):
        """In standard deviations of the samples: 1 and 2 here, of all paths from (1, 2) to (3, 6)."""
        seen, standard = [], Carrier.standard

        def look(carrier, x, t, codes):
            assert t[0] >= 0 and t[-1] <= 1 and torch.allclose(t.diff(), torch.tensor(1 / len(t)))
            seen.append((x - t[:, None] * torch.tensor([2.0, 4.0])) / torch.tensor([1.0, 2.0]) - 1)
            return standard(carrier, x, t, codes)

        monkeypatch.setattr(Carrier, "standard", look)
        start = torch.tensor([[1.0, 2.0]]).repeat(9, 1)
        FlowMatchingMap(updates=8, width=4, noise=0.5, progress=False).fit(start, 3 * start)
        noise = torch.cat(seen).double()
        torch.testing.assert_close(noise.T.cov(), 0.25 * torch.eye(2).double(), rtol=0, atol=0.03)

    def test_no_updates_carry_by_the_mean(self):
        source, target = labeled([40, 40], 2, 0), labeled([40, 40], 2, 1, shift=5.0)
        fitted = FlowMatchingMap(updates=0, progress=False).fit(ad.PairSampler(source, target))
        shift = fitted.transform(source).x - source.x
        assert torch.allclose(shift, shift[:1].expand_as(shift))
        assert torch.allclose(shift[0], (target.x - source.x).mean(0), atol=0.3)

    def test_errors(self):
        data = labeled([9, 9], 2, 0)
        for bad, said in {
            lambda: FlowMatchingMap().fit(ad.PairSampler(data, data), data): "takes no end",
            lambda: FlowMatchingMap(updates=-1): "updates",
            lambda: FlowMatchingMap(noise=-1.0): "noise",
        }.items():
            with pytest.raises(ad.InputError, match=said):
                bad()


@pytest.mark.slow
@pytest.mark.parametrize("labels", [True, False])
def test_the_network_can_be_exported(labels):
    data = labeled([20, 25], 3, 0).to(dtype=torch.float32)
    data = data if labels else ad.LabeledDataset(data.samples)
    fitted = FlowMatchingMap(**QUICK).fit(data, data.replace(x=data.x.flip(0)))
    inputs = (data.x, data.y) if labels else (data.x,)
    sizes = ({0: torch.export.Dim("n")},) * len(inputs)
    program = torch.export.export(fitted.network_, inputs, dynamic_shapes=sizes).module()
    for n in (2, 20):  # any number of samples
        codes = [data.y[:n]] if labels else []
        expected = fitted.transform(data.subset(slice(n))).x
        assert torch.allclose(program(data.x[:n], *codes), expected, atol=1e-5)
