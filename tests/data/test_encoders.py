"""Feature spaces of encoders: every kind against the plain computation, saved by what it is known by,
and looked at through nearest samples.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.cluster import MiniBatchKMeans
from sklearn.decomposition import PCA, KernelPCA, TruncatedSVD
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomTreesEmbedding
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.random_projection import GaussianRandomProjection
from small_networks import Layer

import advect as ad
from advect.data.spaces import FeatureSpace, encoding
from advect.errors import InputError


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


def saved(space: FeatureSpace, folder: Path | None = None, **given: Any) -> FeatureSpace:
    return FeatureSpace.from_dict(
        json.loads(json.dumps(space.to_dict(folder))), folder=folder, **given
    )


def squares(samples: torch.Tensor) -> torch.Tensor:
    return samples.flatten(1)[:, :5] ** 2


# Every kind gives what it gives


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


def test_images_are_resized_before_they_are_encoded() -> None:
    small, large = images(10, side=4), images(12, side=6, seed=1)
    first, second = ad.harmonize(small, large, encoder=squares)
    plain = ad.harmonize(small, large)
    torch.testing.assert_close(first.x, squares(plain[0].samples))
    torch.testing.assert_close(second.x, squares(plain[1].samples))
    colour = ad.harmonize(small, large, channels="rgb", encoder=lambda x: x.mean(dim=(1, 2)))
    assert colour[0].sample_shape == (3,)


@pytest.mark.parametrize("scale", ["standardize", "standardize-target", "unit"])
def test_scale_and_project_are_of_the_embedding(scale: str) -> None:
    a, b, net = images(40), images(30, seed=1), network().eval()
    with torch.no_grad():
        rows = [ad.LabeledDataset(net(data.samples), data.labels) for data in (a, b)]
    expected = ad.harmonize(*rows, scale=scale, project=2)
    found = ad.harmonize(a, b, encoder=net, scale=scale, project=2)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.x, other.x, atol=2e-5, rtol=1e-5)


def test_transformers_fitted_or_not() -> None:
    a, b = images(40), images(30, seed=1)
    both = np.concatenate([a.x, b.x])
    pca = PCA(5, svd_solver="full")
    space = FeatureSpace.fit(a, b, encoder=pca)
    assert not hasattr(pca, "components_") and hasattr(space.encoder, "components_")
    np.testing.assert_allclose(
        space.apply(a).x, PCA(5, svd_solver="full").fit(both).transform(a.x.numpy()), atol=1e-5
    )
    target = FeatureSpace.fit(a, b, encoder=StandardScaler(), scale="standardize-target")
    np.testing.assert_allclose(target.encoder.mean_, b.x.double().mean(0), atol=1e-6)
    own = TruncatedSVD(3, random_state=0).fit(a.x.numpy())
    assert FeatureSpace.fit(a, b, encoder=own).encoder is own
    trees = RandomTreesEmbedding(n_estimators=3, random_state=0).fit(a.x.numpy())
    assert FeatureSpace.fit(a, b, encoder=trees).apply(a).x.sum(dim=1).unique().tolist() == [3]
    with pytest.raises(InputError, match="Fit it yourself"):
        FeatureSpace.fit(a, b, encoder=LinearDiscriminantAnalysis())


def test_an_onnx_file_gives_what_the_function_gives(tmp_path: Path) -> None:
    a, b, layer = images(30), images(20, seed=1), Layer()
    path = layer.export(tmp_path / "net.onnx")
    found = ad.harmonize(a, b, encoder=path, scale="standardize")
    plain = ad.harmonize(a, b, encoder=layer, scale="standardize")
    for one, other in zip(found, plain, strict=True):
        torch.testing.assert_close(one.x, other.x, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "batch"), [((1, 6, 6), 4), ((36,), "n"), ((6, 6, 1), 1), ((6, 6), 100)]
)
def test_an_onnx_file_of_another_shape(shape: tuple[int, ...], batch: Any, tmp_path: Path) -> None:
    a, b, layer = images(30), images(20, seed=1), Layer()
    path = layer.export(tmp_path / "net.onnx", shape, batch)
    torch.testing.assert_close(ad.harmonize(a, b, encoder=path)[0].x, layer(a.samples))
    with pytest.raises(InputError, match="must take samples like these"):
        ad.harmonize(a, b, size=5, encoder=path)


@pytest.mark.slow
def test_an_onnx_file_of_channels_first(tmp_path: Path) -> None:
    a, b, layer = images(30, side=7), images(20, side=7, seed=1), Layer(inputs=3 * 49)
    colour = [
        data.replace(x=data.x.repeat_interleave(3, 1) * 0.5, sample_shape=(7, 7, 3))
        for data in (a, b)
    ]
    colour = [data.replace(x=data.x + torch.arange(3).repeat(49) / 9) for data in colour]
    path = layer.export(tmp_path / "net.onnx", (3, 7, 7))
    found = ad.harmonize(*colour, encoder=path)[0].x
    torch.testing.assert_close(found, layer(colour[0].samples.movedim(3, 1)))


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


# Errors


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (lambda x: x.mean(), "a row for each of 2 samples"),
        (lambda x: x[:1], "a row for each of 2 samples"),
        (lambda x: x.flatten(1).log() * 0 / 0, "must be finite"),
        (lambda x: x.flatten(1)[:, :0], "at least one for each sample"),
        (lambda x: x.flatten(1) * 1j, "real numbers"),
        (lambda x: x @ torch.zeros(9, 9), r"on a batch of shape \(2, 6, 6\)"),
        (torch.nn.Conv2d(1, 2, 3), r"Unflatten\(1, \(1, 6\)\)"),
        (3, "a torch module, a function"),
        (PCA, "the class PCA"),
        ("net.pt", "must be an ONNX file"),
        ("nowhere.onnx", "no such file for the encoder"),
        (PCA(2).fit(np.random.default_rng(0).normal(size=(9, 7))), "must take samples like these"),
    ],
)
def test_what_cannot_encode_says_so(encoder: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ad.harmonize(images(9), images(8, seed=1), encoder=encoder)


def test_no_way_back_without_a_decoder() -> None:
    a, b = images(9), images(8, seed=1)
    space = FeatureSpace.fit(a, b, encoder=squares)
    assert not space.invertible("source")
    with pytest.raises(InputError, match="no way back without a decoder"):
        space.invert(space.apply(a))
    with pytest.raises(InputError, match="Pass both, or neither"):
        FeatureSpace.fit(a, b, decoder=squares)
    with pytest.raises(InputError, match="decoder must return 36 numbers"):
        FeatureSpace.fit(a, b, encoder=squares, decoder=squares)


# The way back


def test_decoders() -> None:
    a, b = images(60, dtype=torch.float64), images(50, seed=1, dtype=torch.float64)
    mix = torch.randn(36, 36, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    space = FeatureSpace.fit(
        a,
        b,
        encoder=lambda x: x.flatten(1) @ mix,
        decoder=lambda z: (z @ torch.linalg.inv(mix)).reshape(-1, 6, 6),
        scale="standardize",
    )
    torch.testing.assert_close(space.invert(space.apply(a)).x, a.x)
    rows = FeatureSpace.fit(a, b, encoder=PCA(10, svd_solver="full"), project=10)
    pca = PCA(10, svd_solver="full").fit(np.concatenate([a.x, b.x]))
    wanted = pca.inverse_transform(pca.transform(a.x.numpy()))
    np.testing.assert_allclose(rows.invert(rows.apply(a)).x, wanted, atol=1e-10)
    assert rows.loses("source") == "only the 10 features of PCA"


@pytest.mark.parametrize(
    "encoder",
    [KernelPCA(3), GaussianRandomProjection(3, random_state=0), FunctionTransformer(np.sqrt)],
    ids=lambda encoder: type(encoder).__name__,
)
def test_ways_back_in_name_alone_are_none(encoder: Any) -> None:
    a, b = images(20), images(15, seed=1)
    space = FeatureSpace.fit(a, b, encoder=encoder)
    if isinstance(encoder, GaussianRandomProjection):  # by the pseudo-inverse
        back = space.invert(space.apply(a))
        torch.testing.assert_close(space.apply(back).x, space.apply(a).x, atol=1e-4, rtol=1e-4)
    else:
        assert not space.invertible("source")
    assert torch.equal(saved(space, encoder=space.encoder).apply(a).x, space.apply(a).x)


# Saved by what it is known by


def test_saved_spaces_ask_for_their_encoder_and_refuse_another(tmp_path: Path) -> None:
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
    with pytest.raises(InputError, match=r"got test_encoders\.squares|squares \(function"):
        saved(space, encoder=squares)
    with pytest.raises(InputError, match="fitted with one"):
        saved(space, encoder=net, decoder=squares)
    with pytest.raises(InputError, match="fitted with one"):
        saved(FeatureSpace.fit(a, b), encoder=net)
    named = FeatureSpace.fit(a, b, encoder=squares)
    assert torch.equal(saved(named, encoder=squares).apply(a).x, named.apply(a).x)


def test_a_frozen_or_trained_flag_is_not_part_of_a_module() -> None:
    a, b, net = images(9), images(8, seed=1), network()
    known = FeatureSpace.fit(a, b, encoder=net).digests()
    net.eval().requires_grad_(False)
    assert FeatureSpace.fit(a, b, encoder=net).digests() == known
    with torch.no_grad():
        net[-1].bias += 1e-3
    assert FeatureSpace.fit(a, b, encoder=net).digests() != known


def test_saved_transformers() -> None:
    a, b = images(30), images(20, seed=1)
    space = FeatureSpace.fit(a, b, encoder=PCA(4))
    again = saved(space, encoder=space.encoder)
    assert torch.equal(again.invert(again.apply(a)).x, space.invert(space.apply(a)).x)
    same = PCA(4).fit(np.concatenate([a.x, b.x]))
    assert torch.equal(saved(space, encoder=same).apply(a).x, space.apply(a).x)
    with pytest.raises(InputError, match="another version"):
        saved(space, encoder=PCA(4).fit(a.x.numpy()))
    with pytest.raises(InputError, match="needs its encoder again"):
        saved(space).invert(space.apply(a))
    clusters = FeatureSpace.fit(a, b, encoder=MiniBatchKMeans(3, n_init=1, random_state=0))
    assert saved(clusters, encoder=clusters.encoder).digests() == clusters.digests()


@pytest.mark.slow
def test_an_onnx_file_is_opened_again_and_checked(tmp_path: Path) -> None:
    a, b = images(30), images(20, seed=1)
    (tmp_path / "one" / "run").mkdir(parents=True)
    path = Layer().export(tmp_path / "one" / "net.onnx")
    space = FeatureSpace.fit(a, b, encoder=str(path), scale="standardize")
    folder, expected = tmp_path / "one" / "run", space.apply(a).x
    facts = json.dumps(space.to_dict(folder))
    assert '"../net.onnx"' in facts
    assert torch.equal(saved(space).apply(a).x, expected)
    (tmp_path / "one").rename(tmp_path / "two")  # both moved
    moved = FeatureSpace.from_dict(json.loads(facts), folder=tmp_path / "two" / "run")
    assert torch.equal(moved.apply(a).x, expected)
    gone = FeatureSpace.from_dict(json.loads(facts))
    with pytest.raises(InputError, match="no file"):
        gone.apply(a)
    given = FeatureSpace.from_dict(json.loads(facts), encoder=tmp_path / "two" / "net.onnx")
    assert torch.equal(given.apply(a).x, expected)
    Layer(seed=1).export(tmp_path / "two" / "net.onnx")
    other = FeatureSpace.from_dict(json.loads(facts), folder=tmp_path / "two" / "run")
    with pytest.raises(InputError, match="another version"):
        other.apply(a)
    with pytest.raises(InputError, match="another version"):
        FeatureSpace.from_dict(json.loads(facts), encoder=tmp_path / "two" / "net.onnx")


@pytest.mark.slow
def test_weights_in_a_file_beside_count(tmp_path: Path) -> None:
    from advect._util.onnx import file_digest

    beside = tmp_path / f"{'long name ' * 15}.data"
    where = {"location": beside.name, "save_as_external_data": True, "size_threshold": 0}
    path = Layer().export(tmp_path / "big.onnx", **where)
    assert beside.exists()
    a = images(9)
    torch.testing.assert_close(ad.harmonize(a, a, encoder=path)[0].x, Layer()(a.samples))
    known = file_digest(path)
    content = bytearray(beside.read_bytes())
    content[-1] ^= 1
    beside.write_bytes(content)
    assert file_digest(path) != known


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"encoder": {"kind": "pickle", "name": "x", "digest": "0"}}, "kind must be one of"),
        ({"encoder": {"kind": "torch", "name": "x", "digest": None}}, "a name and a digest"),
        ({"encoder": 3}, "must be a dictionary"),
        ({"dim": 0}, "whole number"),
        ({"decoder": {"kind": "torch"}}, "'name' must be there"),
    ],
)
def test_damage_is_named(change: dict[str, Any], message: str) -> None:
    facts = FeatureSpace.fit(images(9), images(8), encoder=network()).to_dict()
    facts["source"]["steps"][0] |= change
    with pytest.raises(InputError, match=message):
        FeatureSpace.from_dict(facts)


# Pictures


def test_each_particle_looks_like_its_nearest_real_sample() -> None:
    small, large = images(25, side=4), images(30, seed=1)
    space = FeatureSpace.fit(small, large, encoder=squares, scale="standardize")
    pictures = space.pictures(small, large)
    assert pictures.sample_shape == (6, 6) and "nearest of 55" in pictures.how
    torch.testing.assert_close(pictures(space.apply(large, side="target")).x, large.x)
    torch.testing.assert_close(
        pictures(space.apply(small)).x, FeatureSpace.fit(small, large).apply(small).x
    )
    rows = torch.cat([space.apply(small).x, space.apply(large, side="target").x])
    looks = torch.cat([ad.harmonize(small, large)[0].x, large.x])
    draws = torch.randn(40, 5, generator=torch.Generator().manual_seed(3))
    nearest = torch.cdist(draws, rows).argmin(dim=1)
    torch.testing.assert_close(pictures(ad.LabeledDataset(draws, [0] * 40)).x, looks[nearest])
    with pytest.raises(InputError, match="samples of the common space"):
        pictures(large)


def test_pictures_through_a_way_back() -> None:
    a, b = images(30), images(20, seed=1)
    decoded = FeatureSpace.fit(a, b, encoder=PCA(36))
    torch.testing.assert_close(decoded.pictures(a)(decoded.apply(a)).x, a.x, atol=1e-4, rtol=1e-4)
    assert "decoder" in decoded.pictures(a).how
    scaled = FeatureSpace.fit(a, b, scale="standardize").pictures(a, b)
    assert scaled.how == "" and scaled.sample_shape == (6, 6)


# All the rest works there


def test_flow_laws_and_maps_in_an_embedding() -> None:
    a, b, net = images(30), images(36, seed=1), network()
    space = FeatureSpace.fit(a, b.replace(x=1 - b.x / 2), encoder=net, scale="standardize")
    source, target = space.apply(a), space.apply(b.replace(x=1 - b.x / 2), side="target")
    result = ad.flow(source, ad.OTDD(target), n_steps=5, callbacks=[ad.Recorder()])
    assert result.values[-1] < result.values[0] and result.dataset.sample_shape == (4,)
    assert source.moments().means.shape == (3, 4)
    carried = ad.maps.NearestMap(k=2).fit(source, result.dataset).transform(space.apply(images(5)))
    assert carried.sample_shape == (4,) and ad.otdd(source, target).value > 0


@pytest.mark.slow
def test_flowed_features_teach_a_head_about_the_target(tmp_path: Path) -> None:
    """MNIST to USPS in the 120 features of a LeNet-5 that knows MNIST alone."""
    from sklearn.linear_model import LogisticRegression

    try:
        mnist, usps = ad.datasets.load("mnist?split=train"), ad.datasets.load("usps?split=train")
    except InputError:
        pytest.skip("needs the images of MNIST and USPS (ADVECT_DATA)")
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, 28)),
        torch.nn.Conv2d(1, 6, 5, padding=2),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(6, 16, 5),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(400, 120),
        torch.nn.ReLU(),
        torch.nn.Linear(120, 10),
    )
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    for _ in range(300):
        rows = torch.randint(len(mnist), (64,))
        loss = torch.nn.functional.cross_entropy(net(mnist.samples[rows]), mnist.y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    draws = torch.Generator().manual_seed(1)
    some, few = (data.sample(300, balanced=True, generator=draws) for data in (mnist, usps))
    space = FeatureSpace.fit(some, few, size=28, encoder=net[:-1], scale="standardize")
    source, target = space.apply(some), space.apply(few, side="target")
    result = ad.flow(
        source, ad.OTDD(target), integrator=ad.Euler(0.2), n_steps=20, callbacks=[ad.Recorder(5)]
    )
    test = space.apply(ad.datasets.load("usps?split=test"), side="target")
    scores = [
        LogisticRegression(max_iter=1000).fit(data.x, data.labels).score(test.x, test.labels)
        for data in (source, result.dataset)
    ]
    assert scores[1] > scores[0] + 0.05
    page = result.report(tmp_path / "flow.html", pictures=space.pictures(some, few))
    assert "nearest of 600 real samples" in page.read_text(encoding="utf-8")
