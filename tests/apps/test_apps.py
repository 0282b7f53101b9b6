"""Re-purposing a frozen model: what it must read right, black boxes of every kind, models that
misbehave.
"""

import warnings

import numpy as np
import pytest
import torch

import advect as ad
from advect.apps.query import query

MEANS = torch.tensor([[0.0, 4.0], [4.0, 0.0], [-4.0, -1.0]])


def clusters(means=MEANS, n=90, seed=0, names=(0, 1, 2), spread=0.5):
    y = torch.arange(n) % len(means)
    x = means[y] + spread * torch.randn(n, 2, generator=torch.Generator().manual_seed(seed))
    return ad.LabeledDataset(x, [names[i] for i in y])


REFERENCE = clusters()
FAR = clusters(0.4 * MEANS.flip(1) + 30.0, seed=1, names="abc", spread=0.2)
QUICK = ad.apps.RepurposeOptions(n_steps=20, every=5)


def scores(x):
    return -torch.cdist(x, MEANS).square()


def labels(x):
    return scores(x).argmax(dim=1).tolist()


class Estimator:
    def predict_proba(self, x):
        assert isinstance(x, np.ndarray) and x.ndim == 2
        return torch.softmax(scores(torch.from_numpy(x)), dim=1).numpy()


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.means = torch.nn.Parameter(MEANS.clone())
        self.drop = torch.nn.Dropout(0.9)

    def forward(self, x):
        return -torch.cdist(self.drop(x), self.means).square()


@pytest.mark.parametrize(
    "model",
    [scores, labels, Estimator(), Network()],
    ids=["logits", "labels", "estimator", "module"],
)
def test_black_boxes_read_far_data(model):
    found = ad.apps.repurpose(model, REFERENCE, FAR, QUICK)
    assert found.accuracy == 1.0 and found.predictions == FAR.labels
    assert found.accuracies[0][1] < 0.7 and found.accuracies[-1] == (20, 1.0)
    fresh = clusters(
        0.4 * MEANS.flip(1) + 30.0, seed=7, names="abc", spread=0.2
    )  # nobody used these
    assert np.mean([a == b for a, b in zip(found.predict(fresh), fresh.labels, strict=True)]) > 0.95


def test_a_module_stays_as_it_was():
    network = Network().train()
    ad.apps.repurpose(network, REFERENCE, FAR, ad.apps.RepurposeOptions(n_steps=2))
    assert network.training and network.means.grad is None and torch.equal(network.means, MEANS)


class Fixed(torch.nn.Module):
    """A common way to keep a layer out of training for good."""

    def train(self, mode=True):
        return super().train(False)

    def forward(self, x):
        return x


@pytest.mark.parametrize("fails", [False, True])
def test_frozen_layers_stay_frozen(fails):
    inner = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.BatchNorm1d(2))
    network = torch.nn.Sequential(
        torch.nn.BatchNorm1d(2), inner, torch.nn.Linear(2, 2), Fixed()
    ).train()
    network[0].eval()
    inner[1].eval()
    before = {name: layer.training for name, layer in network.named_modules()}
    assert sorted(before.values()) == [False] * 3 + [True] * 4
    modes = []
    for layer in network.modules():
        layer.register_forward_pre_hook(lambda layer, _: modes.append(layer.training))
    if fails:
        with pytest.raises(ad.InputError, match="samples like these"):
            query(network, torch.zeros(3, 5))
    else:
        query(network, torch.zeros(3, 2))
    assert modes and not any(modes)  # asked in evaluation mode
    assert {name: layer.training for name, layer in network.named_modules()} == before


@pytest.mark.slow
def test_an_answer_that_the_reference_does_not_know_costs_one_prediction():
    """A rare class of a frozen model: neither a wrong class in silence, nor a lost flow."""
    reference = ad.LabeledDataset(REFERENCE.x, REFERENCE.y, classes=(0, 1, 2, "rare"))

    def sometimes_rare(x):
        return np.array([*labels(x)[:-1], "rare"], dtype=object)

    with pytest.warns(UserWarning, match="for 1 of 90 samples.*no samples in the reference"):
        found = ad.apps.repurpose(sometimes_rare, reference, FAR, QUICK)
    assert found.predictions == [*FAR.labels[:-1], None] and found.accuracy == pytest.approx(
        89 / 90
    )
    with pytest.warns(UserWarning, match="for 1 of 3 samples"):
        assert found.predict(FAR.x[:3]) == [*FAR.labels[:2], None]


@pytest.mark.slow
def test_without_labels_clusters_are_predicted():
    found = ad.apps.repurpose(scores, REFERENCE, ad.LabeledDataset(FAR.x), QUICK)
    assert found.accuracy is None and found.pseudo is not None and found.pseudo.n_clusters == 3
    pairs = {(cluster, name) for cluster, name in zip(found.predictions, FAR.labels, strict=True)}
    assert len(pairs) == 3  # each cluster is one class


@pytest.mark.slow
def test_some_labels_are_enough():
    some = FAR.replace(y=torch.where(torch.arange(90) % 2 == 0, FAR.y, -1))
    found = ad.apps.repurpose(scores, REFERENCE, some, QUICK)
    hidden = ~some.labeled
    right = [
        a == b
        for a, b, use in zip(found.predictions, FAR.labels, hidden.tolist(), strict=True)
        if use
    ]
    assert len(right) == 45 and np.mean(right) > 0.95
    assert found.flowed.labels == some.labels


@pytest.mark.slow
def test_several_datasets_share_the_model():
    found = ad.apps.repurpose(scores, REFERENCE, {"far": FAR, "near": REFERENCE}, QUICK)
    assert list(found) == ["far", "near"] and found["near"].accuracy == 1.0


def test_more_and_fewer_classes_than_the_model():
    fine = ad.LabeledDataset(FAR.x, [(name, i // 3 % 2) for i, name in enumerate(FAR.labels)])
    found = ad.apps.repurpose(scores, REFERENCE, fine, ad.apps.RepurposeOptions(n_steps=5))
    assert found.matching.weights.shape == (6, 3)
    coarse = FAR.subset(FAR.y < 2).replace(classes=("a", "b"))
    assert ad.apps.repurpose(
        scores, REFERENCE, coarse, ad.apps.RepurposeOptions(n_steps=5)
    ).matching.weights.shape == (2, 3)


def raising(x):
    raise RuntimeError("out of paper")


BAD = {
    "out of paper": raising,
    "finite": lambda x: torch.full((len(x), 3), float("nan")),
    "3 reference classes": lambda x: torch.zeros(len(x), 5),
    "label for each": lambda x: torch.zeros(len(x) + 1, 3),
    "must be reference classes": lambda x: ["who"] * len(x),
    "callable": "no model",
    "shape": lambda x: torch.zeros(len(x), 2, 2),
}


@pytest.mark.parametrize("what", BAD)
def test_models_that_misbehave(what):
    with pytest.raises(ad.InputError, match=what):
        ad.apps.repurpose(BAD[what], REFERENCE, FAR, ad.apps.RepurposeOptions(n_steps=1))


def test_bad_data():
    with pytest.raises(ad.InputError, match="reference of a model"):
        ad.apps.repurpose(scores, ad.LabeledDataset(REFERENCE.x), FAR)
    with pytest.raises(ad.InputError, match="LabeledDataset"):
        ad.apps.repurpose(scores, REFERENCE, FAR.x)  # pyright: ignore
    with pytest.raises(ad.InputError, match="n_steps"):
        ad.apps.RepurposeOptions(n_steps=0)


class TestTransfer:
    source = clusters(n=120, seed=2)
    target = clusters(0.5 * MEANS.flip(0) - 9.0, n=300, seed=3, names="abc", spread=0.3)

    @pytest.mark.slow
    def test_training_sets_lie_with_the_target_under_its_labels(self):
        few = self.target.sample(9, balanced=True, generator=torch.Generator().manual_seed(0))
        sets = ad.apps.transfer(self.source, few, extra=clusters(n=60, seed=9))
        centres = self.target.moments().means
        for data in (sets.final, sets.mapped):
            assert data.classes == ("a", "b", "c") and data.complete
            nearest = torch.cdist(data.x, centres.to(data.x)).argmin(dim=1)
            assert (nearest == data.y).double().mean() > 0.95
        assert len(sets.way) == 3 * 120 and torch.equal(
            sets.way.x[-120:], sets.final.x
        )  # states 10, 20, 30
        assert sets.matching.hard == {0: "c", 1: "b", 2: "a"}
        torch.testing.assert_close(sets.way.weights.sum(), torch.tensor(1.0, dtype=torch.float64))

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore:.*classes have mixed")  # seven steps do not part them
    def test_last_state_is_on_the_way_once(self):
        few = self.target.sample(6, balanced=True)
        options = ad.apps.TransferOptions(n_steps=7, every=3)
        assert (
            len(ad.apps.transfer(self.source, few, options=options).way) == 3 * 120
        )  # states 3, 6, 7

    @pytest.mark.slow
    def test_mixed_classes_are_told(self):
        few = self.target.sample(9, balanced=True)
        turned = clusters(MEANS, n=120, seed=2)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*classes have mixed")
            assert ad.apps.transfer(turned, few).purity > 0.95
        # labels that say nothing of the features: without a label cost every class goes everywhere
        mixed = turned.replace(
            y=turned.y[torch.randperm(120, generator=torch.Generator().manual_seed(0))]
        )
        options = ad.apps.TransferOptions(label=ad.NoLabels(), n_steps=5, step_size=1.0)
        with pytest.warns(UserWarning, match="classes have mixed"):
            assert ad.apps.transfer(mixed, few, options=options).purity < 0.6

    @pytest.mark.slow
    def test_half_a_flow_is_not_trained_on(self, monkeypatch):
        few = self.target.sample(6, balanced=True)
        options = ad.apps.TransferOptions(step_size=1e30)
        with pytest.raises(ad.InputError, match="did not stay finite"):
            print(ad.apps.transfer(self.source, few, options=options).final)
        calls, terms = [], ad.OTDD.terms

        def interrupted(functional, rho, state):
            calls.append(rho)
            if len(calls) == 4:
                raise KeyboardInterrupt
            return terms(functional, rho, state)

        monkeypatch.setattr(ad.OTDD, "terms", interrupted)
        with pytest.raises(KeyboardInterrupt):
            print(ad.apps.transfer(self.source, few).final)

    def test_exact_transport_lands_on_the_samples(self):
        few = self.target.sample(
            12, balanced=True
        )  # ten of the source's samples for each, so that no mass is split
        options = ad.apps.TransferOptions(n_steps=1, step_size=1.0, solver=ad.ExactOT())
        final = ad.apps.transfer(self.source, few, options=options).final
        for name in "abc":
            from_here, samples = final.of_class(name).x.double(), few.of_class(name).x.double()
            assert torch.cdist(from_here, samples).min(dim=1).values.max() < 1e-4

    def test_evaluation_against_hand_made_trainings(self):
        seen = []

        class Trainer:
            def __init__(self, seed):
                self.log = [seed]
                seen.append(self.log)

            def fit(self, x, y):
                self.log.append(len(x))
                self.means = torch.stack([x[y == code].mean(dim=0) for code in range(3)])

            def fine_tune(self, x, y):
                self.log.append(-len(x))
                self.means = torch.stack([x[y == code].mean(dim=0) for code in range(3)])

            def predict(self, x):
                return torch.cdist(x, self.means).argmin(dim=1).numpy()

        train, test = self.target.split(0.5, generator=torch.Generator().manual_seed(0))
        scores = ad.apps.evaluate_transfer(
            self.source,
            train,
            test,
            Trainer,
            shots=2,
            draws=2,
            extra=clusters(n=30, seed=9),
            seed=5,
            progress=False,
            ways=("target only", "+ source", "+ final", "+ way", "+ mapped", "fine-tuned"),
        )
        assert list(scores.accuracies) == [
            "target only",
            "+ source",
            "+ final",
            "+ way",
            "+ mapped",
            "fine-tuned",
        ]
        assert (
            seen[:6] == [[5, 6], [5, 126], [5, 126], [5, 366], [5, 156], [5, 120, -6]]
            and seen[6][0] == 6
        )
        assert (
            scores.mean("+ final") > 0.95
            and scores.accuracies["fine-tuned"] == scores.accuracies["target only"]
        )

    @pytest.mark.slow
    def test_the_few_keep_their_share_of_the_mass(self):
        masses = []

        class Trainer:
            def __init__(self, seed):
                pass

            def fit(self, x, y, sample_weight):
                assert float(sample_weight.sum()) == pytest.approx(len(y))
                masses.append(float(sample_weight[:6].sum() / sample_weight.sum()))

            def predict(self, x):
                return torch.zeros(len(x), dtype=torch.long)

        train, test = self.target.split(0.5, generator=torch.Generator().manual_seed(0))
        ad.apps.evaluate_transfer(
            self.source,
            train,
            test,
            Trainer,
            shots=2,
            draws=1,
            few_share=0.25,
            progress=False,
            ways=("target only", "+ way"),
        )
        assert masses == pytest.approx([1.0, 0.25], rel=1e-5)
        masses.clear()
        own = ad.apps.TransferOptions(among=("borrowed",), few_share=0.4)
        ad.apps.evaluate_transfer(
            self.source,
            train,
            test,
            Trainer,
            shots=2,
            draws=1,
            options=own,
            progress=False,
            ways="+ recommended",
        )
        assert masses == pytest.approx([0.4], rel=1e-5)

    def test_intervals_against_scipy(self):
        from scipy.stats import t

        values = [0.4, 0.5, 0.9]
        low, high = t.interval(
            0.95, 2, loc=np.mean(values), scale=np.std(values, ddof=1) / np.sqrt(3)
        )
        assert ad.apps.TransferScores({"way": values}).interval("way") == pytest.approx(
            (high - low) / 2
        )
        assert ad.apps.TransferScores({"way": [0.5]}).interval("way") == float("inf")

    def test_gains_are_paired(self):
        from scipy.stats import ttest_rel

        alone, other = [0.5, 0.62, 0.71, 0.4], [0.53, 0.63, 0.75, 0.41]
        mean, half = ad.apps.TransferScores({"target only": alone, "+ way": other}).gain("+ way")
        interval = ttest_rel(other, alone).confidence_interval(0.95)
        assert (mean - half, mean + half) == pytest.approx((interval.low, interval.high))

    def test_bad_input(self):
        with pytest.raises(ad.InputError, match="label for each sample"):
            ad.apps.transfer(ad.LabeledDataset(self.source.x), self.target)
        with pytest.raises(ad.InputError, match="LabeledDataset"):
            ad.apps.transfer(self.source.x, self.target)
        with pytest.raises(ad.InputError, match="same classes"):
            ad.apps.evaluate_transfer(
                self.source, self.target, self.source, lambda seed: None, shots=1
            )
        with pytest.raises(ad.InputError, match="ways of training"):
            ad.apps.evaluate_transfer(
                self.source, self.target, self.target, lambda seed: None, shots=1, ways=["+ magic"]
            )
        with pytest.raises(ad.InputError, match="few_share"):
            ad.apps.evaluate_transfer(
                self.source, self.target, self.target, lambda seed: None, shots=1, few_share=1.0
            )
        for extra in (None, ad.LabeledDataset(self.source.x)):
            with pytest.raises(ad.InputError, match="extra samples with labels"):
                ad.apps.evaluate_transfer(
                    self.source,
                    self.target,
                    self.target,
                    lambda seed: None,
                    shots=1,
                    extra=extra,
                    ways="+ mapped",
                )
        with pytest.raises(ad.InputError, match="to join"):
            ad.apps.joined([self.source, self.target])


def test_applications_say_how_far_they_are():
    generator = torch.Generator().manual_seed(0)
    source = ad.datasets.gaussians(30, generator=generator)
    target = ad.datasets.gaussians(30, shift=(4.0, 0.0), generator=generator)
    told, seen = [], []
    options = ad.apps.RepurposeOptions(
        n_steps=4, progress=lambda *done: told.append(done), callbacks=(seen.append,)
    )

    def model(x):
        return -torch.cdist(x, target.moments().means.float())

    ad.apps.repurpose(model, target, source, options)
    assert told[-1] == (4, 4) and [done for done, _ in told] == sorted(done for done, _ in told)
    assert [step.index for step in seen] == [0, 1, 2, 3, 4]
