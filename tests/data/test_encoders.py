"""Feature spaces of encoders: every kind against the plain computation, and saved spaces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from small_networks import Layer

import advect as ad
from advect.errors import InputError
from advect.spaces import FeatureSpace, encoding


def images(n: int, side: int = 6, seed: int = 0, dtype: torch.dtype = torch.float32):
    draws = torch.Generator().manual_seed(seed)
    x = torch.rand(n, side, side, generator=draws, dtype=dtype)
    return ad.LabeledDataset(x, [row % 3 for row in range(n)])


def network(seed: int = 0, side: int = 6, out: int = 4) -> torch.nn.Sequential:
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, side)),
        torch.nn.Conv2d(1, 3, 3),
        torch.nn.BatchNorm2d(3),
        torch.nn.Tanh(),
        torch.nn.Flatten(),
        torch.nn.Dropout(0.5),
        torch.nn.Linear(3 * (side - 2) ** 2, out),
    )


def saved(space: FeatureSpace, **given: Any) -> FeatureSpace:
    return FeatureSpace.from_dict(json.loads(json.dumps(space.to_dict())), **given)


def squares(samples: torch.Tensor) -> torch.Tensor:
    return samples.flatten(1)[:, :5] ** 2


def test_a_module_is_asked_in_evaluation_mode_and_left_as_it_was() -> None:
    net, a, b = network(), images(30), images(20, seed=1)
    net.train()
    net[2].eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    first, second = ad.harmonize(a, b, encoder=net)
    assert [layer.training for layer in net] == [True, True, False, True, True, True, True]
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    net.eval()
    with torch.no_grad():
        torch.testing.assert_close(first.x, net(a.samples))
        torch.testing.assert_close(second.x, net(b.samples))
    assert not first.x.requires_grad and first.sample_shape == (4,)
    assert first.labels == a.labels


def test_a_module_of_another_dtype_and_gradients_of_samples() -> None:
    a, b = images(8, dtype=torch.float64), images(8, seed=1, dtype=torch.float64)
    net = network()
    space = FeatureSpace.fit(a, b, encoder=net)
    assert space.dtype is torch.float64 and space.apply(a).x.dtype is torch.float64
    moving = a.samples.clone().requires_grad_()
    (slope,) = torch.autograd.grad(space.apply(moving).sum(), moving)
    expected = a.samples.float().requires_grad_()
    (wanted,) = torch.autograd.grad(net.eval()(expected).sum(), expected)
    torch.testing.assert_close(slope.float(), wanted)
    assert all(parameter.grad is None for parameter in net.parameters())


@pytest.mark.parametrize("scale", ["standardize", "standardize-target", "unit"])
def test_scale_and_project_are_of_the_embedding(scale: str) -> None:
    a, b, net = images(40), images(30, seed=1), network().eval()
    with torch.no_grad():
        rows = [ad.LabeledDataset(net(data.samples), data.labels) for data in (a, b)]
    expected = ad.harmonize(*rows, scale=scale, project=2)
    found = ad.harmonize(a, b, encoder=net, scale=scale, project=2)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.x, other.x, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("shape", "batch"), [((6, 6), "n"), ((1, 6, 6), 4), ((36,), "n"), ((6, 6, 1), 1), ((6, 6), 100)]
)
def test_an_onnx_file_gives_what_the_function_gives(
    shape: tuple[int, ...], batch: Any, tmp_path: Path
) -> None:
    a, b, layer = images(30), images(20, seed=1), Layer()
    path = layer.export(tmp_path / "net.onnx", shape, batch)
    torch.testing.assert_close(ad.harmonize(a, b, encoder=path)[0].x, layer(a.samples))
    with pytest.raises(InputError, match="samples"):
        ad.harmonize(a, b, size=5, encoder=path)


def test_batches_are_bounded_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, seen = images(50), images(50, seed=1), []

    def watch(samples: torch.Tensor) -> torch.Tensor:
        seen.append(len(samples))
        return squares(samples)

    whole = ad.harmonize(a, b, encoder=watch)[0].x
    monkeypatch.setattr(encoding, "_NUMBERS", 36 * 7)
    seen.clear()
    assert torch.equal(ad.harmonize(a, b, encoder=watch)[0].x, whole)
    assert max(seen) == 7 and sum(seen) == 102  # 50 each, and 2 to try it
    done = []
    ad.harmonize(a, b, encoder=squares, progress=lambda k, of: done.append((k, of)))
    assert done[-1] == (50, 50) and len(done) == 16


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (lambda x: x[:1], "for each of the 2 samples"),
        (lambda x: x.flatten(1).log() * 0 / 0, "finite"),
        (lambda x: x.flatten(1) * 1j, "real numbers"),
        (lambda x: x @ torch.zeros(9, 9), "must accept batches"),
        (torch.nn.Conv2d(1, 2, 3), "Unflatten"),
        (PCA, "the class PCA"),
        ("net.pt", "ONNX"),
        ("nowhere.onnx", "no such file"),
        (PCA(2), "torch module"),
    ],
)
def test_bad_encoders(encoder: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ad.harmonize(images(9), images(8, seed=1), encoder=encoder)


def test_no_way_back_without_a_decoder() -> None:
    a, b = images(9), images(8, seed=1)
    space = FeatureSpace.fit(a, b, encoder=squares)
    assert not space.invertible("source")
    with pytest.raises(InputError, match="decoder"):
        space.invert(space.apply(a))
    for options in ({}, {"encoder": squares}):
        with pytest.raises(InputError, match="decoder"):
            FeatureSpace.fit(a, b, **options, decoder=squares)


def test_decoders() -> None:
    a, b = images(60, dtype=torch.float64), images(50, seed=1, dtype=torch.float64)
    mix = torch.randn(36, 36, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    encode, decode = lambda x: x.flatten(1) @ mix, lambda z: z @ torch.linalg.inv(mix)
    space = FeatureSpace.fit(a, b, encoder=encode, decoder=decode, scale="standardize")
    torch.testing.assert_close(space.invert(space.apply(a)).x, a.x)
    pca = PCA(10, svd_solver="full").fit(np.concatenate([a.x, b.x]))
    coders = {"encoder": lambda x: pca.transform(x.flatten(1)), "decoder": pca.inverse_transform}
    rows = FeatureSpace.fit(a, b, **coders, project=10)
    wanted = pca.inverse_transform(pca.transform(a.x.numpy()))
    np.testing.assert_allclose(rows.invert(rows.apply(a)).x, wanted, atol=1e-10)
    assert rows.kinds("source") == ("encode", "project")


def test_saved_spaces_ask_for_their_encoder_and_refuse_another() -> None:
    a, b, net = images(30), images(20, seed=1), network()
    space = FeatureSpace.fit(a, b, encoder=net, scale="standardize")
    again = saved(space, encoder=network().train())  # another object with the same numbers
    assert torch.equal(again.apply(a).x, space.apply(a).x)
    waiting = saved(space)
    assert waiting.describe() == space.describe() and waiting.digests() == space.digests()
    assert waiting.to_dict() == space.to_dict()
    with pytest.raises(InputError, match="needs its encoder again"):
        waiting.apply(a)
    with pytest.raises(InputError, match="another version of it"):
        saved(space, encoder=network(seed=1))
    with pytest.raises(InputError, match="squares"):
        saved(space, encoder=squares)
    with pytest.raises(InputError, match="fitted without"):
        saved(space, encoder=net, decoder=squares)
    with pytest.raises(InputError, match="fitted without"):
        saved(FeatureSpace.fit(a, b), encoder=net)
    named = FeatureSpace.fit(a, b, encoder=squares)
    assert torch.equal(saved(named, encoder=squares).apply(a).x, named.apply(a).x)


@pytest.mark.slow
def test_an_onnx_file_is_opened_again_and_checked(tmp_path: Path) -> None:
    a, b, path = images(30), images(20, seed=1), Layer().export(tmp_path / "net.onnx")
    space = FeatureSpace.fit(a, b, encoder=str(path), scale="standardize")
    expected = space.apply(a).x
    assert torch.equal(saved(space).apply(a).x, expected)
    path = path.rename(tmp_path / "else.onnx")
    with pytest.raises(InputError, match="needs its encoder again"):
        saved(space).apply(a)
    assert torch.equal(saved(space, encoder=path).apply(a).x, expected)
    Layer(seed=1).export(tmp_path / "net.onnx")
    with pytest.raises(InputError, match="needs its encoder again"):
        saved(space).apply(a)
    with pytest.raises(InputError, match="another version"):
        saved(space, encoder=tmp_path / "net.onnx")
    torch_weights = tmp_path / "else.onnx.data"  # part of the model, as torch.onnx writes it
    torch_weights.write_bytes(b"other weights")
    with pytest.raises(InputError, match="must be the one"):
        saved(space, encoder=path)


@pytest.mark.parametrize("change", [{"encoder": 3}, {"dim": 0}, {"decoder": {"kind": "torch"}}])
def test_damage_is_refused(change: dict[str, Any]) -> None:
    facts = FeatureSpace.fit(images(9), images(8), encoder=network()).to_dict()
    facts["source"]["steps"][0] |= change
    with pytest.raises(InputError, match="saved feature space"):
        FeatureSpace.from_dict(facts)
