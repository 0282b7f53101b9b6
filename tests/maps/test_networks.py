"""Networks of maps: layers of the paper, formulas of the modules, and what a fit keeps."""

import itertools

import numpy as np
import pytest
import torch
from flow_cases import draw, labeled
from torch import nn

from advect.maps import NeuralMap
from advect.maps.neural import Autoencoder, Carrier, Pushforward, Velocity, is_image, standard_units


@pytest.mark.parametrize(
    ("shape", "inner"), [((28, 28), [(14, 14), (7, 7)]), ((9, 6, 3), [(5, 3), (3, 2)])]
)
def test_the_autoencoder_is_that_of_the_paper(shape, inner):
    """Two convolutions that halve an image, five fully connected layers, and the same in reverse."""
    network, colours = Autoencoder(shape), shape[2] if len(shape) == 3 else 1
    kinds, sizes = (nn.Conv2d, nn.ConvTranspose2d), []
    layers = [layer for layer in network.modules() if isinstance(layer, kinds)]
    for layer in layers:
        layer.register_forward_hook(lambda _, given, made: sizes.append(tuple(made.shape[1:])))
    assert network(torch.zeros(2, *shape)).shape == (2, *shape)
    assert sizes == [(16, *inner[0]), (32, *inner[1]), (16, *inner[0]), (colours, *shape[:2])]
    assert [layer.kernel_size for layer in layers] == [(3, 3)] * 4
    widths = [32 * inner[1][0] * inner[1][1], 512, 256, 256, 128, 128]
    linear = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    found = [(layer.in_features, layer.out_features) for layer in linear]
    assert found == [*itertools.pairwise(widths), *itertools.pairwise(widths[::-1])]
    x = draw(2, *shape).float()  # colours are the channels of the convolutions
    image = x.permute(0, 3, 1, 2) if colours == 3 else x[:, None]
    expected = network.decoder(network.encoder(image))
    expected = expected.permute(0, 2, 3, 1) if colours == 3 else expected[:, 0]
    torch.testing.assert_close(network(x), expected)


def test_which_samples_are_images():
    shapes = (4, 4), (3, 4), (4, 3), (4, 5, 3), (4, 4, 1), (4, 4, 4), (2, 3, 3), (16,), (4, 4, 3, 3)
    assert [is_image(shape) for shape in shapes] == [True, False, False, True] + 5 * [False]


def test_the_velocity_by_hand():
    """Time as t, cos kπt and sin kπt; two layers with skips after the sum of features, time and label."""
    network = Velocity((2, 2), 3, 8)
    x, t, y = draw(5, 2, 2).float(), torch.linspace(0, 1, 5), torch.tensor([0, 1, 2, 3, 0])
    assert not network(x, t, y).any()  # it starts at zero
    nn.init.normal_(network.last.weight)
    nn.init.normal_(network.last.bias)
    angles = np.pi * np.outer(t, [1, 2, 3, 4])
    waves = np.concatenate([t[:, None], np.cos(angles), np.sin(angles)], axis=1)
    h = network.first(x.reshape(5, 4)) + network.label(y)
    h = h + network.time(torch.tensor(waves).float())
    assert len(network.inner) == 2 and len(network.label.weight) == 4
    for layer in network.inner:
        h = h + layer(h * torch.sigmoid(h))
    expected = network.last(h * torch.sigmoid(h)).reshape(5, 2, 2)
    torch.testing.assert_close(network(x, t, y), expected, rtol=1e-5, atol=1e-5)


def test_modules_in_units_of_the_data():
    """h(x) = [x +] shift + spread · f((x − centre)/scale), and codes of no class are the last."""
    x, (centre, scale, shift, spread) = draw(6, 2), draw(4, 2, seed=1).abs() + 0.5
    inside = shift + spread * torch.tanh((x - centre) / scale)
    for residual in (False, True):
        module = Pushforward(nn.Tanh(), residual, centre, scale, shift, spread)
        torch.testing.assert_close(module(x), x * residual + inside, rtol=1e-5, atol=1e-5)

    class Codes(nn.Module):
        def forward(self, x, t, y):
            return y[:, None] + 0 * x

    carrier = Carrier(Codes(), 3, 2, *torch.tensor([0.0, 1.0, 0.0, 1.0]).double()[:, None])
    moved = carrier(torch.zeros(6, 1), torch.tensor([-2, -1, 0, 2, 3, 7]))[:, 0]
    assert moved.tolist() == [3.0, 3.0, 0.0, 2.0, 3.0, 3.0]
    assert carrier(torch.zeros(1, 1)).tolist() == [[3.0]]


def test_standard_units():
    """Deviations of each feature, those of all where a feature is constant, one for all pixels of images."""
    x, y = draw(50, 3) * torch.tensor([1.0, 5.0, 1e-9]) + 7, torch.ones(50, 3).double()
    centre, scale, shift, spread = standard_units(x, y, torch.float64)
    own = x.numpy().std(axis=0)
    whole = np.sqrt((own**2).mean())
    np.testing.assert_allclose(centre, x.mean(dim=0))
    np.testing.assert_allclose(scale, [own[0], own[1], whole])
    assert shift.tolist() == spread.tolist() == [1.0] * 3
    image = draw(9, 4, 4)
    wanted = pytest.approx([float(image.var(dim=0, correction=0).mean().sqrt())])
    assert standard_units(image, image, torch.float32)[1].unique().tolist() == wanted


class TestFit:
    def fit(self, n=20, **options):
        start = labeled([n // 2, n - n // 2], 2, 0, weighted=True)
        end = start.replace(x=start.x.square() + 1)
        calls = []
        fitted = NeuralMap(progress=lambda *call: calls.append(call), **options).fit(start, end)
        return start, end, fitted, calls

    def test_without_epochs_it_adds_the_mean_displacement(self):
        start, end, fitted, _ = self.fit(epochs=0)
        torch.testing.assert_close(fitted.transform(start.x), start.x + (end.x - start.x).mean(0))

    @pytest.mark.parametrize("epochs", [0, 12])
    def test_the_held_out_error_is_that_of_a_tenth_of_the_pairs(self, epochs):
        """By weight, of the network that is kept."""
        start, end, fitted, _ = self.fit(epochs=epochs, restarts=2)
        each = (fitted.transform(start.x) - end.x).square().mean(dim=1)
        pairs = [torch.tensor(pair) for pair in itertools.combinations(range(20), 2)]
        errors = [float(start.weights[p] @ each[p] / start.weights[p].sum()) for p in pairs]
        assert min(abs(error / fitted.held_out_error_ - 1) for error in errors) < 1e-6

    def test_more_epochs_and_restarts_never_keep_a_worse_network(self):
        errors = [
            self.fit(epochs=e, restarts=r)[2].held_out_error_ for e, r in ((0, 1), (3, 1), (3, 2))
        ]
        assert errors[0] > errors[1] >= errors[2]

    def test_a_start_ends_after_five_epochs_without_improvement(self):
        """Where there is nothing to learn, the first network is the best."""
        calls = []
        start = draw(30, 2)
        fitted = NeuralMap(epochs=9, restarts=2, progress=lambda *call: calls.append(call))
        fitted.fit(start, start + 3)
        assert fitted.held_out_error_ < 1e-12 and calls[-1] == (18, 18)
        assert len(calls) <= 2 * (5 + 1) + 1
