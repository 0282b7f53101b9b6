"""Re-purposing by features of a model, without labels, with a classifier's posterior; and what it recommends."""

import numpy as np
import pytest
import torch
from flow_cases import MEANS, clusters
from torch import nn

import advect as ad
from advect.apps.models import choose_labeling, query
from advect.apps.repurpose import compared

QUICK = {"n_steps": 10, "step_size": 0.4}
REFERENCE = clusters()
FAR = clusters(0.4 * MEANS.flip(1) + 30.0, seed=1, names="abc", spread=0.2)
NEAR = clusters(seed=2, names=REFERENCE.classes, spread=0.6)


def bare(data):
    return ad.LabeledDataset(data.samples)


class Turned(nn.Module):
    """x ↦ x·turn: features are the samples in other axes."""

    def __init__(self):
        super().__init__()
        self.turn = nn.Parameter(torch.tensor([[0.6, 0.8], [-0.8, 0.6]]))

    def forward(self, x):
        return x @ self.turn


class Nearest(nn.Module):
    def __init__(self, means):
        super().__init__()
        self.means = nn.Parameter(means.clone())

    def forward(self, x):
        return -torch.cdist(x, self.means).square()


def chain():
    first = Turned()
    head = Nearest((MEANS @ first.turn).detach())
    return nn.Sequential(nn.Sequential(first, nn.Dropout(0.9)), head).train()


@pytest.mark.slow
def test_turned_features_change_nothing():
    """OTDD and squared distances do not see a rotation: neither may the answers."""
    plain = ad.apps.repurpose(chain(), REFERENCE, FAR, **QUICK)
    body, head = chain()
    inside = ad.apps.repurpose(head, REFERENCE, FAR, **QUICK, encoder=body)
    assert inside.predictions == plain.predictions == FAR.labels
    turn = chain()[0][0].turn.detach()
    # A flow solves to a marginal error of 1e-3: particles are off by this share of the extent.
    extent = float((plain.flowed.x.amax(dim=0) - plain.flowed.x.amin(dim=0)).norm())
    assert torch.allclose(inside.flowed.x, plain.flowed.x @ turn, rtol=0, atol=1e-3 * extent)
    fresh = clusters(0.4 * MEANS.flip(1) + 30.0, seed=7, names="abc", spread=0.2)
    assert inside.predict(fresh) == plain.predict(fresh)
    assert inside.predict(fresh.x.numpy(), "posterior") == fresh.labels


@pytest.mark.slow
def test_forms_and_shapes_of_new_samples():
    image = nn.Sequential(nn.Flatten(), nn.Unflatten(1, (2,)), *chain())
    reference, data = (one.replace(sample_shape=(1, 2)) for one in (REFERENCE, FAR))
    found = ad.apps.repurpose(image[2:], reference, data, **QUICK, encoder=image[:2])
    expected = found.predict(data)
    for samples in (data.samples, data.x, data.x.numpy(), data.x.tolist()):
        for way in ("flow", "no flow", "posterior"):
            assert found.predict(samples, way) == found.predict(data, way)
    assert expected == data.labels
    plain = ad.apps.repurpose(image, reference, data, **QUICK)
    for repurposed in (found, plain):
        for way in ("flow", "no flow", "posterior"):
            with pytest.raises(ad.InputError, match="shape"):
                repurposed.predict(torch.zeros(2, 3), way)


class TestWithoutLabels:
    def test_a_model_that_knows_the_data_is_asked_directly(self):
        found = ad.apps.repurpose(chain(), REFERENCE, bare(NEAR), **QUICK)
        assert found.labeling is not None and found.labeling.kind == "answers"
        assert found.labeling.agreement > 0.9
        assert found.comparison.method == "no flow"
        assert found.comparison.reason.startswith("Do not flow")
        for way in ("flow", "no flow", "posterior", "recommended"):
            assert np.mean(np.array(found.predict(NEAR.x, way)) == NEAR.labels) > 0.95

    def test_one_that_does_not_is_not(self):
        found = ad.apps.repurpose(chain(), REFERENCE, bare(FAR), **QUICK)
        assert found.labeling is not None and found.labeling.kind == "clusters"
        assert found.accuracy is None and found.comparison.method == "flow"
        assert set(found.predictions) == {"p", "q", "r"}  # never a bare cluster number
        assert len(set(zip(found.predictions, FAR.labels, strict=True))) == 3
        assert set(found.predict(FAR.x[:9], "posterior")) <= {"p", "q", "r"}
        assert found.predict(FAR.x, "posterior") == found.predictions

    def test_features_that_tell_more_than_the_answers(self):
        """The head is off: answers cut across a class that features hold together."""
        model = chain()
        with torch.no_grad():
            model[1].means.add_(torch.tensor([2.2, 0.0]))
        data = clusters(seed=2, spread=0.6, n=150)
        assert 0.7 < float((model.eval()(data.x).argmax(1) == data.y).double().mean()) < 0.97
        found = ad.apps.repurpose(model[1], REFERENCE, bare(data), **QUICK, encoder=model[0])
        assert found.labeling is not None and found.labeling.kind == "clusters of features"
        names = np.array(data.labels)
        by_posterior = np.mean(np.array(found.predict(data.x, "posterior")) == names)
        assert by_posterior > np.mean(np.array(found.predict(data.x, "no flow")) == names)

    def test_answers_that_are_all_one_class(self):
        one = np.zeros(len(FAR), dtype=np.int64)
        found = choose_labeling(bare(FAR), REFERENCE, bare(FAR), REFERENCE, one)
        assert found.kind == "clusters" and found.agreement == 0.0


class TestComparison:
    @pytest.mark.slow
    def test_no_label_kept_aside_is_used(self):
        """Labels are noise: whoever saw them would get more than chance right."""
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(200, 2, generator=generator)
        noise = ad.LabeledDataset(x, torch.randint(2, (200,), generator=generator))
        options = {"label_weight": 100.0, "posterior": "mean", **QUICK}
        model, reference = lambda x: (x[:, 0] > x[:, 1]).long(), clusters(MEANS[:2], names=(0, 1))
        found = ad.apps.repurpose(model, reference, noise, **options)
        assert found.accuracy is not None and found.accuracy > 0.95  # the flow used them
        right = found.comparison
        assert right.held_out == 40 and set(right.accuracies) == {"flow", "no flow", "posterior"}
        assert all(0.2 < value < 0.8 for value in right.accuracies.values())

    def test_what_was_kept_aside_against_hand_made_answers(self):
        found = compared({"flow": "abcd", "posterior": "abcc", "no flow": "aaaa"}, "abcd")
        assert found.accuracies == {"no flow": 0.25, "posterior": 0.75, "flow": 1.0}
        assert found.method == "flow" and "flow 100.0%" in found.reason
        truth = ["a"] * 100
        close = {"flow": truth[:90] + ["b"] * 10, "posterior": truth[:89] + ["b"] * 11}
        assert compared(close, truth).method == "posterior"  # as good, and simpler

    def test_columns_in_another_order_are_refused_by_every_way(self):
        named = [data.replace(columns=("u", "v")) for data in (REFERENCE, FAR)]
        found = ad.apps.repurpose(chain(), *named, **QUICK)
        for way in ("flow", "no flow", "posterior"):
            with pytest.raises(ad.InputError, match="columns of the fit"):
                found.predict(FAR.replace(columns=("v", "u")), way)
            assert len(found.predict(named[1], way)) == len(FAR)


@pytest.mark.slow
def test_posterior_reaches_the_map_and_the_rest_of_the_data():
    some = FAR.replace(y=torch.where(torch.arange(90) % 2 == 0, FAR.y, -1))
    found = ad.apps.repurpose(chain(), REFERENCE, some, **QUICK, posterior="mean")
    assert "'mean'" in repr(found.map)
    assert found.predictions == FAR.labels
    with pytest.raises(ad.InputError, match="posterior"):
        ad.apps.repurpose(chain(), REFERENCE, FAR, **QUICK, posterior="automatic")


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(8, 8), (1, 8, 8), (8, 8, 1)], ids=str)
def test_images_with_and_without_a_channel_axis(shape):
    torch.manual_seed(0)
    layers = [nn.Flatten(), nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 3, 3, 2), nn.Flatten()]
    cnn = nn.Sequential(*layers, nn.Linear(27, 10))
    digits = ad.datasets.load("digits", n=80).replace(sample_shape=shape)
    reference, data = ad.harmonize(digits.subset(range(50)), digits.subset(range(50, 80)))
    for part in (reference, digits.subset(range(50))):
        moved = data.replace(sample_shape=part.sample_shape)
        found = ad.apps.repurpose(cnn, part, moved, n_steps=1, progress=False)
        with torch.no_grad():
            plain = torch.softmax(cnn(found.flowed.x.reshape(-1, 1, 8, 8)), dim=1)
        assert np.allclose(found.answers, plain.numpy(), atol=1e-5)
        assert found.predict(digits.samples[:3].reshape(3, *shape)) == found.predict(digits.x[:3])
        assert found.predict(digits.x[:1]) == found.predict(digits.x[:3])[:1]


def scores(x):
    return -torch.cdist(x, MEANS).square()


def labels(x):
    return [REFERENCE.classes[code] for code in scores(x).argmax(dim=1)]


class Estimator:
    def predict_proba(self, x):
        assert isinstance(x, np.ndarray) and x.ndim == 2
        return torch.softmax(scores(torch.from_numpy(x)), dim=1).numpy()


MODELS = {"logits": scores, "labels": labels, "estimator": Estimator(), "module": chain()}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_black_boxes_read_far_data(model):
    found = ad.apps.repurpose(model, REFERENCE, FAR, n_steps=20)
    assert found.accuracy == 1.0 and found.predictions == FAR.labels
    before = found.predict(FAR, "no flow")
    assert np.mean([a == b for a, b in zip(before, FAR.labels, strict=True)]) < 0.7
    fresh = clusters(0.4 * MEANS.flip(1) + 30.0, seed=7, names="abc", spread=0.2)
    assert np.mean([a == b for a, b in zip(found.predict(fresh), fresh.labels, strict=True)]) > 0.95


@pytest.mark.slow
def test_an_answer_that_the_reference_does_not_know_costs_one_prediction():
    """A rare class of a frozen model: neither a wrong class in silence, nor a lost flow."""
    reference = ad.LabeledDataset(REFERENCE.x, REFERENCE.y, classes=(*REFERENCE.classes, "rare"))

    def sometimes_rare(x):
        return np.array([*labels(x)[:-1], "rare"], dtype=object)

    with pytest.warns(UserWarning, match="1 of 90"):
        found = ad.apps.repurpose(sometimes_rare, reference, FAR, **QUICK)
    assert found.predictions == [*FAR.labels[:-1], None]
    assert found.accuracy == pytest.approx(89 / 90)
    with pytest.warns(UserWarning, match="1 of 3"):
        assert found.predict(FAR.x[:3]) == [*FAR.labels[:2], None]


BAD = {
    "out of paper": lambda x: {}["out of paper"],
    "finite": lambda x: torch.full((len(x), 3), float("nan")),
    "reference classes, or": lambda x: torch.zeros(len(x), 5),
    "label for each": lambda x: torch.zeros(len(x) + 1, 3),
    "reference classes": lambda x: ["who"] * len(x),
    "callable": "no model",
    "torch module": 3,
    "shape": lambda x: torch.zeros(len(x), 2, 2),
}


@pytest.mark.parametrize("what", BAD)
def test_models_that_misbehave(what):
    with pytest.raises(ad.InputError, match=what):
        ad.apps.repurpose(BAD[what], REFERENCE, FAR, n_steps=1)


def test_errors():
    def broken(encoder):
        return ad.apps.repurpose(chain()[1], REFERENCE, FAR, **QUICK, encoder=encoder)

    for call, keyword in {
        lambda: broken(lambda x: x[:1]): "encoder",
        lambda: broken(lambda x: x * float("nan")): "finite",
        lambda: broken(lambda x: x @ x): "encoder",
        lambda: broken("0"): "encoder",
        lambda: ad.apps.repurpose(scores, ad.LabeledDataset(REFERENCE.x), FAR): "reference",
        lambda: ad.apps.repurpose(scores, REFERENCE, FAR.x): "LabeledDataset",
        lambda: ad.apps.repurpose(scores, REFERENCE, FAR, n_steps=0): "n_steps",
    }.items():
        with pytest.raises(ad.InputError, match=keyword):
            call()


@pytest.mark.parametrize("fails", [False, True])
def test_modes_of_layers_are_restored(fails):
    inner = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(2).eval())
    network = nn.Sequential(nn.BatchNorm1d(2).eval(), inner, nn.Linear(2, 2))
    before, modes = [layer.training for layer in network.modules()], []
    for layer in network.modules():
        layer.register_forward_pre_hook(lambda layer, _: modes.append(layer.training))
    if fails:
        with pytest.raises(ad.InputError, match="samples like these"):
            query(network, torch.zeros(3, 5))
    else:
        query(network, torch.zeros(3, 2))
    assert modes and not any(modes)  # asked in evaluation mode
    assert [layer.training for layer in network.modules()] == before


def test_a_class_of_one_label_is_not_held_out():
    few = FAR.subset(range(30))
    lone = ad.LabeledDataset(torch.cat([few.x, few.x[:3] + 9]), [*few.labels, "d", "e", "f"])
    found = ad.apps.repurpose(chain(), REFERENCE, lone, **QUICK)
    assert 5 <= found.comparison.held_out <= 6
    assert found.comparison.accuracies["posterior"] == 1.0
    alone = ad.LabeledDataset(few.x[:9], range(9))
    assert "too few" in ad.apps.repurpose(chain(), REFERENCE, alone, **QUICK).comparison.reason


def test_progress_and_callbacks():
    told, seen = [], []
    options = {"progress": lambda *done: told.append(done), "callbacks": [seen.append]}
    ad.apps.repurpose(scores, REFERENCE, FAR, n_steps=4, **options)
    assert told[-1] == (4, 4) and told == sorted(told)
    assert [step.index for step in seen] == [0, 1, 2, 3, 4]
