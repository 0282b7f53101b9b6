"""Re-purposing by features of a model, without labels, with a classifier's posterior; and what it
recommends.
"""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

import advect as ad
from advect.apps.comparison import compared
from advect.apps.labelings import choose_labeling
from advect.apps.module_features import split_model

MEANS = torch.tensor([[0.0, 4.0], [4.0, 0.0], [-4.0, -1.0]])
QUICK = ad.apps.RepurposeOptions(n_steps=10, step_size=0.4, every=10)


def clusters(means=MEANS, n=90, seed=0, names=("p", "q", "r"), spread=0.5):
    y = torch.arange(n) % len(means)
    x = means[y] + spread * torch.randn(n, 2, generator=torch.Generator().manual_seed(seed))
    return ad.LabeledDataset(x, [names[i] for i in y], classes=tuple(names))


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


class Whole(nn.Module):
    """The same, not as a chain."""

    def __init__(self):
        super().__init__()
        self.body, self.classifier = chain()[0], chain()[1]

    def forward(self, x):
        return self.classifier(self.body(x))


class TestHalves:
    @pytest.mark.parametrize("name", ["0", "0.0", "0.1"])
    def test_halves_of_a_chain_make_the_whole(self, name):
        model = chain()
        halves = split_model(model, name)
        x = REFERENCE.x
        with torch.no_grad():
            assert torch.equal(halves.head.eval()(halves.features(x)), model.eval()(x))

    def test_layers_and_functions(self):
        model = Whole()
        expected = REFERENCE.x @ model.body[0].turn.detach()
        for features in ("body", model.body, "body.1", model.body.eval().forward):
            halves = split_model(model, features, "classifier")
            assert halves.head is model.classifier
            assert torch.allclose(halves.features(REFERENCE.x), expected)
        ready = split_model(lambda x: x, lambda x: x[:, :1], lambda z: z)
        assert ready.encoded(REFERENCE).sample_shape == (1,)
        assert ready.encoded(REFERENCE).labels == REFERENCE.labels

    def test_modes_of_layers_stay(self):
        model = Whole().train()
        split_model(model, "body", "classifier").features(REFERENCE.x)
        assert all(layer.training for layer in model.modules())
        assert not any(layer._forward_hooks for layer in model.modules())

    def test_what_cannot_be_cut(self):
        model = Whole()
        for match, arguments in {
            "Did you mean 'body'": (model, "bdy"),
            "head=…": (model, "body"),
            "Name one before": (chain(), "1"),
            "torch module only": (lambda x: x, "body"),
            "need what answers": (model, lambda x: x),
            "a head alone": (model, None, "classifier"),
            "unknown layer": (model, "body", "head"),
            "name of a layer": (model, 3),
        }.items():
            with pytest.raises(ad.InputError, match=match):
                split_model(*arguments)
        for bad in (lambda x: x[:1], lambda x: x * float("nan"), lambda x: 1 / 0):
            with pytest.raises(ad.InputError, match="features must"):
                ad.apps.repurpose(model, REFERENCE, FAR, QUICK, features=bad, head="classifier")


@pytest.mark.slow
def test_turned_features_change_nothing():
    """OTDD and squared distances do not see a rotation: neither may the answers."""
    plain = ad.apps.repurpose(chain(), REFERENCE, FAR, QUICK)
    inside = ad.apps.repurpose(chain(), REFERENCE, FAR, QUICK, features="0")
    assert inside.predictions == plain.predictions == FAR.labels
    turn = chain()[0][0].turn.detach()
    assert torch.allclose(inside.flowed.x, plain.flowed.x @ turn, atol=1e-3)
    fresh = clusters(0.4 * MEANS.flip(1) + 30.0, seed=7, names="abc", spread=0.2)
    assert inside.predict(fresh) == plain.predict(fresh)
    assert inside.predict(fresh.x.numpy(), "posterior") == fresh.labels


@pytest.mark.slow
def test_forms_and_shapes_of_new_samples():
    image = nn.Sequential(nn.Flatten(), nn.Unflatten(1, (2,)), *chain())
    reference, data = (one.replace(sample_shape=(1, 2)) for one in (REFERENCE, FAR))
    found = ad.apps.repurpose(image, reference, data, QUICK, features="1")
    expected = found.predict(data)
    for samples in (data.samples, data.x, data.x.numpy(), data.x.tolist()):
        for way in ("flow", "no flow", "posterior"):
            assert found.predict(samples, way) == found.predict(data, way)
    assert expected == data.labels
    plain = ad.apps.repurpose(image, reference, data, QUICK)
    for repurposed in (found, plain):
        for way in ("flow", "no flow", "posterior"):
            with pytest.raises(ad.InputError, match="shape"):
                repurposed.predict(torch.zeros(2, 3), way)


class TestWithoutLabels:
    def test_a_model_that_knows_the_data_is_asked_directly(self):
        found = ad.apps.repurpose(chain(), REFERENCE, bare(NEAR), QUICK)
        assert found.labeling is not None and found.labeling.kind == "answers"
        assert found.labeling.known and found.labeling.agreement > 0.9
        assert found.comparison.recommended == "no flow"
        assert found.recommendation.startswith("Do not flow: the model knows such data")
        for way in ("flow", "no flow", "posterior", "recommended"):
            assert np.mean(np.array(found.predict(NEAR.x, way)) == NEAR.labels) > 0.95

    def test_one_that_does_not_is_not(self):
        found = ad.apps.repurpose(chain(), REFERENCE, bare(FAR), QUICK)
        assert found.labeling is not None and found.labeling.kind == "clusters"
        assert found.accuracy is None and found.comparison.recommended == "flow"
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
        asked = model.eval()(data.x).argmax(1)
        assert 0.7 < float((asked == data.y).double().mean()) < 0.97
        found = ad.apps.repurpose(model, REFERENCE, bare(data), QUICK, features="0")
        assert found.labeling is not None and found.labeling.kind == "clusters of features"
        names = np.array(data.labels)
        by_posterior = np.mean(np.array(found.predict(data.x, "posterior")) == names)
        assert by_posterior > np.mean(np.array(found.predict(data.x, "no flow")) == names)

    def test_answers_that_are_all_one_class(self):
        one = np.zeros(len(FAR), dtype=np.int64)
        found = choose_labeling(bare(FAR), REFERENCE, bare(FAR), REFERENCE, one)
        assert found.kind == "clusters" and found.agreement == 0.0

    def test_labels_for_answers(self):
        found = ad.apps.repurpose(
            lambda x: [REFERENCE.classes[i] for i in torch.cdist(x, MEANS).argmin(1)],
            REFERENCE,
            bare(NEAR),
            QUICK,
        )
        assert found.predictions == found.answers.tolist()
        with pytest.raises(ad.InputError, match="must be reference classes.*who"):
            ad.apps.repurpose(lambda x: ["who"] * len(x), REFERENCE, bare(NEAR), QUICK)


class TestComparison:
    @pytest.mark.slow
    def test_no_label_kept_aside_is_used(self):
        """Labels are noise: whoever saw them would get more than chance right."""
        generator = torch.Generator().manual_seed(0)
        noise = ad.LabeledDataset(
            torch.randn(200, 2, generator=generator),
            torch.randint(2, (200,), generator=generator),
        )
        found = ad.apps.repurpose(
            lambda x: (x[:, 0] > x[:, 1]).long(),
            clusters(MEANS[:2], names=(0, 1)),
            noise,
            ad.apps.RepurposeOptions(n_steps=10, step_size=0.4, label_weight=100.0),
            posterior="nearest",
        )
        assert found.accuracy is not None and found.accuracy > 0.95  # the flow used them
        right = found.comparison
        assert right.n == 40 and set(right.accuracies) == {"flow", "no flow", "posterior"}
        assert all(0.2 < value < 0.8 for value in right.accuracies.values())

    def test_what_was_kept_aside_against_hand_made_answers(self):
        found = compared({"flow": "abcd", "posterior": "abcc", "no flow": "aaaa"}, "abcd")
        assert found.accuracies == {"no flow": 0.25, "posterior": 0.75, "flow": 1.0}
        assert found.recommended == "flow" and "of 4 samples kept aside 100.0 % right" in found.why
        truth = ["a"] * 100
        close = compared(
            {"flow": truth[:90] + ["b"] * 10, "posterior": truth[:89] + ["b"] * 11}, truth
        )
        assert close.recommended == "posterior"  # as good, and simpler
        assert "90.0 % right after the flow, 89.0 % by the posterior alone" in close.why

    def test_where_the_flow_is_the_better_one(self):
        """A classifier that guesses cannot be better than particles: a map without a posterior."""
        nearest = ad.apps.RepurposeOptions(
            n_steps=10, step_size=0.4, every=10, map=ad.maps.NearestMap()
        )
        found = ad.apps.repurpose(chain(), REFERENCE, FAR, nearest)
        assert (
            found.comparison.recommended == "flow"
            and "posterior" not in found.comparison.accuracies
        )
        assert found.comparison.accuracies["flow"] == 1.0 > found.comparison.accuracies["no flow"]
        assert found.map is not nearest.map  # which stays as it was
        with pytest.raises(ad.InputError, match="only an entropic map"):
            found.predict(FAR.x, "posterior")
        with pytest.raises(ad.InputError, match="a posterior and a map"):
            ad.apps.repurpose(chain(), REFERENCE, FAR, nearest, posterior="auto")

    def test_too_few_labels(self):
        few = FAR.subset(range(6))
        found = ad.apps.repurpose(chain(), REFERENCE, few, QUICK)
        assert (
            found.comparison.accuracies == {}
            and "6 labeled samples are too few" in found.recommendation
        )

    @pytest.mark.slow
    def test_a_class_of_one_label_is_not_kept_aside(self):
        """Nobody could name it; of ten such classes nothing can be said."""
        means = torch.randn(10, 2, generator=torch.Generator().manual_seed(0)) + 30
        alone = clusters(means, n=10, names=range(10))
        found = ad.apps.repurpose(chain(), REFERENCE, alone, QUICK)
        assert "10 labeled samples are too few" in found.recommendation
        more = FAR.subset(range(30))
        lone = ad.LabeledDataset(torch.cat([more.x, more.x[:3] + 9]), [*more.labels, "d", "e", "f"])
        found = ad.apps.repurpose(chain(), REFERENCE, lone, QUICK)
        assert 5 <= found.comparison.n <= 6
        assert found.comparison.accuracies["posterior"] == 1.0

    def test_all_right_of_a_few_is_not_certain(self):
        truth = ["a"] * 200
        found = compared({"flow": truth, "no flow": [*truth[:199], "b"]}, truth)
        assert found.recommended == "no flow"
        found = compared({"flow": truth, "no flow": truth[:180] + ["b"] * 20}, truth)
        assert found.recommended == "flow"

    def test_what_is_better_is_not_called_as_good(self):
        found = compared({"flow": "aaaa", "posterior": "abcd", "no flow": "aaaa"}, "abcd")
        assert "does better without the model" in found.why
        found = compared({"flow": "abcd", "posterior": "abcd", "no flow": "aaaa"}, "abcd")
        assert "does as well without the model" in found.why

    def test_columns_in_another_order_are_refused_by_every_way(self):
        named = [data.replace(columns=("u", "v")) for data in (REFERENCE, FAR)]
        found = ad.apps.repurpose(chain(), *named, QUICK)
        for way in ("flow", "no flow", "posterior"):
            with pytest.raises(ad.InputError, match="columns of the fit"):
                found.predict(FAR.replace(columns=("v", "u")), way)
            assert len(found.predict(named[1], way)) == len(FAR)

    def test_what_a_reference_is_not(self):
        for arguments in ((REFERENCE.x, FAR), (REFERENCE, FAR, ad.apps.TransferOptions())):
            with pytest.raises(ad.InputError, match="must be"):
                ad.apps.repurpose(chain(), *arguments)

    def test_unknown_way(self):
        found = ad.apps.repurpose(chain(), REFERENCE, FAR, QUICK)
        with pytest.raises(ad.InputError, match="Did you mean 'no flow'"):
            found.predict(FAR.x, "noflow")


@pytest.mark.slow
def test_posterior_reaches_the_map_and_the_rest_of_the_data():
    some = FAR.replace(y=torch.where(torch.arange(90) % 2 == 0, FAR.y, -1))
    found = ad.apps.repurpose(chain(), REFERENCE, some, QUICK, posterior=LogisticRegression())
    assert isinstance(found.map, ad.maps.EntropicMap)
    assert found.map.posterior_ == "LogisticRegression"
    assert found.predictions == FAR.labels
    with pytest.raises(ad.InputError, match="posterior"):
        ad.apps.repurpose(chain(), REFERENCE, FAR, QUICK, posterior="automatic")


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(8, 8), (1, 8, 8), (8, 8, 1)], ids=str)
def test_a_network_of_convolutions_needs_no_wrapper(shape):
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(1, 3, 3, 2), torch.nn.ReLU(), torch.nn.Flatten()]
    cnn = torch.nn.Sequential(*layers, torch.nn.Linear(27, 10))
    digits = ad.datasets.load("digits", n=80).replace(sample_shape=shape)
    reference, data = ad.harmonize(digits.subset(range(50)), digits.subset(range(50, 80)))
    options = ad.apps.RepurposeOptions(n_steps=1, progress=False)
    for part in (reference, digits.subset(range(50))):
        moved = data.replace(sample_shape=part.sample_shape)
        found = ad.apps.repurpose(cnn, part, moved, options)
        with torch.no_grad():
            plain = torch.softmax(cnn(found.flowed.x.reshape(-1, 1, 8, 8)), dim=1)
        assert np.allclose(found.answers, plain.numpy(), atol=1e-5)
        new = digits.samples[:3].reshape(3, *shape)
        assert found.predict(new) == found.predict(digits.x[:3])
        assert found.predict(digits.x[:1]) == found.predict(digits.x[:3])[:1]
