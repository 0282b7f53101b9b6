"""Ways to enlarge a few samples, and the choice among them: what each gives, that the better one is found where one
is better, and what is said where nothing can be held out."""

import pytest
import torch
from flow_cases import MEANS, clusters

import advect as ad
from advect.apps.few_shot import METHODS, Task
from advect.apps.training import FlowOptions, Logistic, half_and_half
from advect.apps.transfer import choose

FAST = {"n_steps": 5, "step_size": 0.5}


def stretched(n, means, names, seed, spread=(0.2, 4.0)):
    """Classes side by side that are long in the other direction."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % len(means)
    x = torch.tensor([[mean, 0.0] for mean in means])[y]
    x = x + torch.randn(n, 2, generator=generator) * torch.tensor(spread)
    return ad.LabeledDataset(x, [names[i] for i in y])


SOURCE = stretched(400, (-30.0, -20.0, -10.0, 0.0), "uvwx", 0)
APART = (50.0, 90.0, 130.0)
TARGET = stretched(400, (50.0, 51.5, 53.0), "abc", 1)


def task(few, source=SOURCE, **options):
    settings = {"n_steps": 30, "step_size": 0.2, "label_weight": 50.0, **options}
    return Task(source, few, Logistic, FlowOptions(**settings, label=ad.Bures()), 120)


def shots(n, seed=0, target=None):
    generator = torch.Generator().manual_seed(seed)
    return (TARGET if target is None else target).sample(n, balanced=True, generator=generator)


@pytest.mark.parametrize("way", list(METHODS))
@pytest.mark.parametrize("n", [3, 9])
def test_every_way_gives_samples_of_the_target(way, n):
    few, source = shots(n), SOURCE.replace(classes=tuple("abcd"))
    more = METHODS[way](task(few, source, n_steps=3))
    if way == "shots":
        assert more is None
        return
    assert more.classes == few.classes and more.sample_shape == few.sample_shape
    assert bool(torch.isfinite(more.x).all())
    if not way.startswith("source"):  # which lies where the source does
        assert (more.x[:, 0] > 0).all() or way == "final"
    again = METHODS[way](task(few, source, n_steps=3))
    assert torch.equal(more.x, again.x) and torch.equal(more.y, again.y)


@pytest.mark.slow
def test_diversity_is_chosen_where_it_helps_and_the_source_where_it_is_the_target():
    few = shots(12, 3)
    made = ad.apps.transfer(SOURCE, few, **FAST)
    assert made.choice.method == "calibrated" and made.choice.held_out == 12
    assert set(made.choice.accuracies) == {"calibrated", "shots"}  # the source has other names

    # a source that is the target: in many dimensions a few samples do not tell classes apart
    def wide(n, names):
        means = 0.6 * torch.eye(3).repeat(1, 14)[:, :40]
        noise = torch.randn(n, 40, generator=torch.Generator().manual_seed(n))
        return ad.LabeledDataset(noise + means[torch.arange(n) % 3], [*names] * (n // 3))

    same, few = wide(900, "abc"), wide(30, "abc")
    made = ad.apps.transfer(same, few, methods=("shots", "source"))
    assert made.choice.method == "source", str(made.choice)
    assert made.added is not None
    assert {made.added.classes[c] for c in made.added.y.tolist()} == {"a", "b", "c"}


def test_with_one_sample_of_a_class_the_first_method_is_chosen():
    found = choose(task(shots(3)), ("borrowed", "shots", "source"))
    assert found.method == "borrowed" and not found.accuracies and "held out" in found.reason


@pytest.mark.slow
def test_names_count_where_the_source_has_them_all_and_reads_the_few():
    few = stretched(3, APART, "abc", 1)
    twin = stretched(400, (*APART, 200.0), "abcd", 9)
    found = choose(task(few, twin), ("borrowed", "shots", "source"))
    assert found.method == "source" and "by name" in found.reason
    wrong = twin.replace(classes=("b", "c", "a", "d"))
    found = choose(task(few, wrong), ("borrowed", "shots", "source"))
    assert found.method != "source" and "source" not in found.accuracies
    several = stretched(9, APART, "abc", 1)
    found = choose(task(several, twin), ("borrowed", "source"))
    assert found.method == "source" and "by name" in found.reason
    assert choose(task(several, wrong), ("borrowed", "source")).method == "borrowed"


def test_few_samples_keep_their_share():
    few = shots(6)
    made = ad.apps.transfer(SOURCE, few, methods="borrowed", n=50)
    assert len(made.recommended) == 56
    assert made.recommended.weights[:6].sum() == pytest.approx(0.5)
    torch.testing.assert_close(made.recommended.x[:6], few.x)
    assert half_and_half(few, None) is few


@pytest.mark.slow
def test_samples_without_weight_are_none():
    few = shots(9)
    x, far = torch.cat([few.x, few.x[:3] + 1e4]), [1.0] * 9 + [0.0] * 3
    heavy = ad.LabeledDataset(x, [*few.labels, *few.labels[:3]], weights=far)
    made, plain = (ad.apps.transfer(SOURCE, part, **FAST) for part in (heavy, few))
    assert made.choice.method == plain.choice.method and made.choice.held_out == 9
    torch.testing.assert_close(made.added.x, plain.added.x)
    none = few.replace(weights=torch.tensor([0.0] * 3 + [1.0] * 6).double() / 6)
    assert ad.apps.transfer(SOURCE, none, **FAST).choice.held_out in (0, 6)


@pytest.mark.slow
class TestTransfer:
    source = clusters(n=120, seed=2, names=(0, 1, 2))
    target = clusters(0.5 * MEANS.flip(0) - 9.0, n=300, seed=3, names="abc", spread=0.3)

    def test_training_sets_lie_with_the_target_under_its_labels(self):
        sets = ad.apps.transfer(self.source, shots(9, target=self.target))
        mapped = sets.relabeled(sets.map.transform(clusters(n=60, seed=9, names=(0, 1, 2))))
        centres = self.target.laws().means
        for data in (sets.final, mapped):
            assert data.classes == ("a", "b", "c") and bool(data.labeled.all())
            nearest = torch.cdist(data.x, centres.to(data.x)).argmin(dim=1)
            assert (nearest == data.y).double().mean() > 0.95
        assert len(sets.path) == 3 * 120  # states 10, 20, 30
        assert torch.equal(sets.path.x[-120:], sets.final.x)
        assert sets.matching.hard == {0: "c", 1: "b", 2: "a"}
        torch.testing.assert_close(sets.path.weights.sum(), torch.tensor(1.0, dtype=torch.float64))

    def test_exact_transport_lands_on_the_samples(self):
        few = self.target.sample(12, balanced=True)  # ten samples of the source for each
        options = {"n_steps": 1, "step_size": 1.0, "solver": ad.ExactOT()}
        final = ad.apps.transfer(self.source, few, **options).final
        for name in "abc":
            from_here, samples = final.of_class(name).x.double(), few.of_class(name).x.double()
            assert torch.cdist(from_here, samples).min(dim=1).values.max() < 1e-4


class Odd(Logistic):
    def predict(self, x):
        return [code + 0.5 for code in super().predict(x).tolist()]


def test_errors():
    few = shots(6)
    wide = ad.LabeledDataset(torch.zeros(3, 5), ["a", "b", "c"])
    named, turned = (SOURCE.replace(columns=each) for each in (("u", "v"), ("v", "u")))
    for call, keyword in {
        lambda: ad.apps.transfer(SOURCE, TARGET, methods=("residuals",)): "borrowed",
        lambda: ad.apps.transfer(SOURCE, TARGET, methods=()): "methods",
        lambda: ad.apps.transfer(SOURCE, TARGET, methods="source"): "all classes of few",
        lambda: ad.apps.transfer(SOURCE, TARGET, n_steps=0): "n_steps",
        lambda: ad.apps.transfer(SOURCE, TARGET, n=0): "n",
        lambda: ad.apps.transfer(SOURCE, TARGET, bounds=(1.0, 0.0)): "low < high",
        lambda: ad.apps.transfer(SOURCE, wide): "feature space",
        lambda: ad.apps.transfer(named, turned): "same columns",
        lambda: ad.apps.transfer(ad.LabeledDataset(SOURCE.x), TARGET): "label for each sample",
        lambda: ad.apps.transfer(SOURCE.x, TARGET): "LabeledDataset",
        lambda: ad.apps.transfer(SOURCE, TARGET, step_size=1e30, methods="shots").final: "finite",
        lambda: ad.apps.transfer(SOURCE, few, classifier=Odd): "a class position",
    }.items():
        with pytest.raises(ad.InputError, match=keyword):
            call()
