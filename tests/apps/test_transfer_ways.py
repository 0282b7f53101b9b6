"""Ways to enlarge a few samples, and the choice among them: what each gives, that the better one is
found where one is better, and what is said where nothing can be held out.
"""

import sys
import warnings

import pytest
import torch

import advect as ad
from advect.apps.choice import choose
from advect.apps.training import Logistic, shared
from advect.apps.ways import WAYS, Task, by_votes

FAST = ad.apps.TransferOptions(n_steps=5, step_size=0.5)


def stretched(n, means, names, seed, spread=(0.2, 4.0)):
    """Classes side by side that are long in the other direction."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % len(means)
    x = torch.tensor([[mean, 0.0] for mean in means])[y]
    return ad.LabeledDataset(
        x + torch.randn(n, 2, generator=generator) * torch.tensor(spread), [names[i] for i in y]
    )


SOURCE = stretched(400, (-30.0, -20.0, -10.0, 0.0), "uvwx", 0)
APART = (50.0, 90.0, 130.0)
TARGET = stretched(400, (50.0, 51.5, 53.0), "abc", 1)


def task(few, source=SOURCE, **options):
    return Task(source, few, Logistic, ad.apps.TransferOptions(**options), 120)


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("shots", [1, 3])
def test_every_way_gives_samples_of_the_target(way, shots):
    few = TARGET.sample(3 * shots, balanced=True, generator=torch.Generator().manual_seed(0))
    more = WAYS[way](task(few, n_steps=3))
    if way == "shots":
        assert more is None
        return
    assert more.classes == few.classes and more.sample_shape == few.sample_shape
    assert bool(torch.isfinite(more.x).all())
    if not way.startswith("source"):  # which lies where the source does
        assert (more.x[:, 0] > 0).all() or way in ("final", "smoothed")
    again = WAYS[way](task(few, n_steps=3))
    assert torch.equal(more.x, again.x) and torch.equal(more.y, again.y)


def test_borrowed_samples_vary_as_the_source_does():
    few = TARGET.sample(3, balanced=True, generator=torch.Generator().manual_seed(0))
    more = WAYS["borrowed"](task(few))
    spread = (more.x - few.x[[few.y.tolist().index(c) for c in more.y.tolist()]]).std(dim=0)
    assert 0.1 < spread[0] < 0.3 and 3.0 < spread[1] < 5.0


def test_bounds_hold_for_what_is_added():
    few = TARGET.sample(6, balanced=True, generator=torch.Generator().manual_seed(0))
    for way in ("borrowed", "mixed", "gaussian"):
        more = WAYS[way](task(few, bounds=(0.0, 52.0)))
        assert more.x.min() >= 0 and more.x.max() <= 52


@pytest.mark.slow
def test_diversity_is_chosen_where_it_helps_and_the_source_where_it_is_the_target():
    few = TARGET.sample(12, balanced=True, generator=torch.Generator().manual_seed(3))
    made = ad.apps.transfer(SOURCE, few, options=FAST)
    assert made.choice.way in ("calibrated", "mixed") and made.choice.held_out == 12
    assert "source + borrowed" in made.choice.accuracies
    # a source that is the target: in many dimensions a few samples do not tell classes apart
    same, few = (
        ad.LabeledDataset(
            torch.randn(n, 40, generator=torch.Generator().manual_seed(n))
            + 0.6
            * (torch.arange(n) % 3 == torch.arange(3)[:, None]).T.float().repeat(1, 14)[:, :40],
            [names[i % 3] for i in range(n)],
        )
        for n, names in ((900, "pqr"), (30, "abc"))
    )
    options = ad.apps.TransferOptions(among=("shots", "source"))
    made = ad.apps.transfer(same, few, options=options)
    assert made.choice.way == "source", str(made.choice)
    assert made.added is not None
    assert {made.added.classes[c] for c in made.added.y.tolist()} == {"a", "b", "c"}


def test_one_sample_of_a_class_is_chosen_for_by_plays_of_the_source():
    few = TARGET.sample(3, balanced=True, generator=torch.Generator().manual_seed(0))
    found = choose(task(few), ("borrowed", "shots", "source"))
    assert set(found.accuracies) == {"borrowed", "shots"} and "played" in found.reason
    small = SOURCE.subset([label in "uv" for label in SOURCE.labels])
    found = choose(task(few, small), ("borrowed", "shots"))
    assert found.way == "borrowed" and not found.accuracies and "held out" in found.reason


@pytest.mark.slow
def test_names_count_where_the_source_has_them_all_and_reads_the_few():
    few = stretched(3, APART, "abc", 1)
    twin = stretched(400, (*APART, 200.0), "abcd", 9)
    found = choose(task(few, twin), ("borrowed", "shots", "source"))
    assert found.way == "source" and "by name" in found.reason
    wrong = twin.replace(classes=("b", "c", "a", "d"))
    found = choose(task(few, wrong), ("borrowed", "shots", "source"))
    assert found.way != "source" and "source" not in found.accuracies
    several = stretched(9, APART, "abc", 1)
    found = choose(task(several, twin), ("borrowed", "source"))
    assert found.way == "source" and "by name" in found.reason
    assert choose(task(several, wrong), ("borrowed", "source")).way == "borrowed"


def test_votes_decide_and_means_where_they_do_not():
    few = ad.LabeledDataset([[1.0], [2.0], [6.0]], ["a", "a", "b"])
    source = ad.LabeledDataset([[0.0], [5.0], [9.0]], ["u", "v", "w"])
    assert by_votes(source, few, torch.tensor([2, 2, 0])) == {"u": "b", "w": "a"}
    assert by_votes(source, few, torch.tensor([1, 1, 1])) == {"u": "a", "v": "b"}
    fewer = ad.LabeledDataset([[5.0]], ["u"])
    assert by_votes(fewer, few, torch.tensor([0, 0, 0])) == {"u": "b"}


def test_few_samples_keep_their_share():
    few = TARGET.sample(6, balanced=True, generator=torch.Generator().manual_seed(0))
    options = ad.apps.TransferOptions(among=("borrowed",), few_share=0.3, n=50)
    made = ad.apps.transfer(SOURCE, few, options=options)
    assert len(made.recommended) == 56
    assert made.recommended.weights[:6].sum() == pytest.approx(0.3)
    torch.testing.assert_close(made.recommended.x[:6], few.x)
    assert shared(few, []) is few


def test_no_flow_runs_until_it_is_asked_for(monkeypatch):
    few = TARGET.sample(6, balanced=True, generator=torch.Generator().manual_seed(0))

    def refuse(*_):
        raise AssertionError("a flow")

    monkeypatch.setattr(sys.modules["advect.apps.transfer"], "carry", refuse)
    made = ad.apps.transfer(SOURCE, few, options=ad.apps.TransferOptions(among=("borrowed",)))
    with pytest.raises(AssertionError, match="a flow"):
        print(made.final)


@pytest.mark.slow
def test_copies_of_the_few_are_told():
    few = stretched(3, APART, "abc", 1)
    options = ad.apps.TransferOptions(among=("borrowed",))
    three = SOURCE.subset([label != "x" for label in SOURCE.labels])
    with pytest.warns(UserWarning, match="copies of these"):
        assert ad.apps.transfer(three, few, options=options).landed > 0.9
    many = TARGET.sample(300, balanced=True, generator=torch.Generator().manual_seed(0))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*copies of these")
        short = ad.apps.TransferOptions(among=("borrowed",), n_steps=2, step_size=0.1)
        warnings.filterwarnings("ignore", message=".*classes have mixed")
        assert ad.apps.transfer(SOURCE, many, options=short).landed < 0.5


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"among": ("residuals",)}, "borrowed"),
        ({"among": ()}, "must name a way"),
        ({"among": None}, "must name a way"),
        ({"few_share": 1.0}, "few_share"),
        ({"few_share": "half"}, "few_share must be a number"),
        ({"n": 0}, "n"),
        ({"bounds": (1.0, 0.0)}, "low < high"),
    ],
)
def test_options_that_are_none(options, said):
    with pytest.raises(ad.InputError, match=said):
        ad.apps.TransferOptions(**options)


def test_one_way_may_be_named_by_itself():
    assert ad.apps.TransferOptions(among="borrowed").among == ("borrowed",)


def test_ways_that_no_play_can_compare():
    few = TARGET.sample(3, balanced=True, generator=torch.Generator().manual_seed(0))
    found = choose(task(few), ("source", "source + borrowed"))
    assert found.way == "source" and "played" not in found.reason
    single = SOURCE.subset([0, 1, 2, 3])  # four classes, and nothing left to test with
    found = choose(task(few, single), ("borrowed", "shots"))
    assert found.way == "borrowed" and "no four classes of more than 1 " in found.reason


class Weighing(Logistic):
    """Notes which share of the mass the first three samples have."""

    seen: list = []  # noqa: RUF012 (of all that are made)

    def fit(self, x, y, sample_weight=None):
        assert x.dtype == torch.float32
        self.seen.append(float(sample_weight[:3].sum() / sample_weight.sum()))
        return super().fit(x, y, sample_weight)


@pytest.mark.slow
def test_ways_are_compared_with_the_share_that_is_recommended():
    """In float32, as the few are, whatever the source is in."""
    few = TARGET.sample(6, balanced=True, generator=torch.Generator().manual_seed(0))
    source = SOURCE.subset([label in "uvw" for label in SOURCE.labels]).to(dtype=torch.float64)
    for made in (source, source.replace(classes=("a", "b", "c", "x"))):  # matched, or by name
        Weighing.seen.clear()
        options = ad.apps.TransferOptions(among=("borrowed", "source"), few_share=0.3)
        ad.apps.transfer(made, few, options=options, classifier=Weighing)
        shares = [share for share in Weighing.seen if share > 0.1]  # of folds: three are left
        assert len(shares) >= 4 and shares == pytest.approx([0.3] * len(shares), rel=1e-5)


def test_features_of_another_kind_are_refused_before_anything_runs():
    few = TARGET.sample(3, balanced=True, generator=torch.Generator().manual_seed(0))
    twin = SOURCE.replace(classes=("a", "b", "c", "d"))
    wide = ad.LabeledDataset(torch.zeros(3, 5), ["a", "b", "c"])
    turned = few.replace(columns=("second", "first"))
    only = ad.apps.TransferOptions(among=("source",))
    for bad, said in (
        (lambda: ad.apps.transfer(twin, wide), "source and few must be in one feature space"),
        (lambda: ad.apps.transfer(SOURCE, few, extra=wide), "extra and few"),
        (lambda: ad.apps.transfer(SOURCE, few, extra=few.x), "extra must be a LabeledDataset"),
        (
            lambda: ad.apps.transfer(
                twin.replace(columns=("first", "second")), turned, options=only
            ),
            "same columns",
        ),
        (
            lambda: ad.apps.transfer(SOURCE, few, options=ad.apps.RepurposeOptions()),
            "TransferOptions",
        ),
    ):
        with pytest.raises(ad.InputError, match=said):
            bad()


@pytest.mark.parametrize("answer", [str, float, lambda code: code + 0.5])
def test_answers_that_are_no_positions(answer):
    class Odd(Logistic):
        def predict(self, x):
            return [answer(code) for code in super().predict(x).tolist()]

    few = TARGET.sample(6, balanced=True, generator=torch.Generator().manual_seed(0))
    options = ad.apps.TransferOptions(among=("borrowed", "source"))
    if answer is float:  # whole numbers, as some libraries give
        assert ad.apps.transfer(SOURCE, few, options=options, classifier=Odd).choice.accuracies
        return
    with pytest.raises(ad.InputError, match="a class position"):
        ad.apps.transfer(SOURCE, few, options=options, classifier=Odd)


@pytest.mark.slow
def test_copies_are_not_said_to_be_fewer_than_nothing():
    few = stretched(3, APART, "abc", 1)
    three = SOURCE.subset([label != "x" for label in SOURCE.labels])
    options = ad.apps.TransferOptions(among=("shots",))
    with pytest.warns(UserWarning, match="copies of these") as told:
        assert ad.apps.transfer(three, few, options=options).landed > 0.9
    assert not any("recommended" in str(one.message) for one in told)


def test_a_trainer_is_no_classifier_of_seeds():
    few = TARGET.sample(3, balanced=True, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ad.InputError, match="from a seed to a new trainer"):
        ad.apps.transfer(SOURCE, few, classifier=Logistic())
    with pytest.raises(ad.InputError, match="from a seed to a new trainer"):
        ad.apps.evaluate_transfer(SOURCE, TARGET, TARGET, None, shots=1)


@pytest.mark.slow
def test_samples_without_weight_are_none():
    few = TARGET.sample(9, balanced=True, generator=torch.Generator().manual_seed(0))
    x, far = torch.cat([few.x, few.x[:3] + 1e4]), [1.0] * 9 + [0.0] * 3
    heavy = ad.LabeledDataset(x, [*few.labels, *few.labels[:3]], weights=far)
    made, plain = (ad.apps.transfer(SOURCE, part, options=FAST) for part in (heavy, few))
    assert made.choice.way == plain.choice.way and made.choice.held_out == 9
    torch.testing.assert_close(made.added.x, plain.added.x)
    none = few.replace(weights=torch.tensor([0.0] * 3 + [1.0] * 6).double() / 6)
    assert ad.apps.transfer(SOURCE, none, options=FAST).choice.held_out in (0, 6)
