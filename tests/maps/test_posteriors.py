"""Maps that are given a classifier: its answers against scikit-learn's own, what it does to the
map, choices by cross-validation, files.
"""

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import PredefinedSplit, cross_val_predict
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

import advect as ad
from advect.maps import EntropicMap
from advect.maps.posteriors import _classifier, folds_of

NAMES = ("low", ("a", 1), 7)


def classes(counts=(30, 25, 20), d=2, seed=0, spread=1.0, names=NAMES):
    generator = torch.Generator().manual_seed(seed)
    y = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    means = 2.0 * torch.randn(len(counts), d, generator=torch.Generator().manual_seed(9))
    x = means[y] + spread * torch.randn(len(y), d, generator=generator)
    return ad.LabeledDataset(x.double(), y, classes=names[: len(counts)])


START = classes()
END = START.replace(x=START.x.flip(1) * 2 + 5)
NEW = classes(seed=3)


def fitted(posterior, start=START, end=END, **options):
    return EntropicMap(posterior=posterior, **options).fit(start, end)


@pytest.mark.parametrize(
    "estimator", [LinearDiscriminantAnalysis(), DecisionTreeClassifier(random_state=0)]
)
def test_posterior_is_that_of_the_classifier(estimator):
    found = fitted(estimator)
    assert not hasattr(estimator, "classes_")  # it is copied
    expected = estimator.fit(START.x.numpy(), START.y.numpy()).predict_proba(NEW.x.numpy())
    np.testing.assert_allclose(found.posterior(NEW.x), expected, atol=1e-6)
    assert found.posterior_ == type(estimator).__name__ and found.posterior_scores_ == {}


@pytest.mark.parametrize("kind", ["nearest", "logistic", "forest"])
def test_kinds_are_those_of_scikit_learn(kind):
    standard = (START.x - START.x.mean(0)) / float((START.x - START.x.mean(0)).abs().max())
    new = (NEW.x - START.x.mean(0)) / float((START.x - START.x.mean(0)).abs().max())
    expected = _classifier(kind, len(START)).fit(standard, START.y).predict_proba(new)
    np.testing.assert_allclose(fitted(kind).posterior(NEW.x), expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("posterior", ["nearest", "logistic", LinearDiscriminantAnalysis()])
def test_own_samples_are_answered_from_other_folds(posterior):
    start = START.replace(
        x=(START.x - START.x.mean(0)) / float((START.x - START.x.mean(0)).abs().max())
    )  # which are standard units, so that all see the same
    named = isinstance(posterior, str)
    one = _classifier(posterior, 60) if named else posterior  # four of five folds are 60
    x, y = start.x.numpy(), start.y.numpy()
    split = PredefinedSplit(folds_of(y))
    expected = cross_val_predict(one, x, y, cv=split, method="predict_proba")
    found = fitted(posterior, start, start)
    np.testing.assert_allclose(found.own_posterior(), expected, atol=1e-6)
    if posterior == "nearest":
        assert bool((found.posterior(start.x).argmax(1) == start.y).all())  # learned by heart
        assert not bool((found.own_posterior().argmax(1) == start.y).all())


def test_folds_hold_every_class_as_evenly_as_can_be():
    y = np.repeat([0, 1, 2, 3], [50, 12, 3, 1])
    folds = folds_of(y)
    assert np.ptp(np.bincount(folds)) <= 1
    for code in range(4):
        counts = np.bincount(folds[y == code], minlength=5)
        assert np.ptp(counts) <= 1


class Oracle:
    """Knows the label of each of these samples for certain."""

    def __init__(self, data):
        self.known = {
            tuple(np.round(row, 6)): int(y) for row, y in zip(data.x.numpy(), data.y, strict=True)
        }

    def fit(self, x, y):
        return self

    def predict(self, x):
        return np.array([self.known[tuple(np.round(row, 6))] for row in x])


@pytest.mark.parametrize("debias", [True, False])
def test_a_certain_posterior_carries_as_the_label_does(debias):
    found = fitted(Oracle(NEW), label_weight=3.0, debias=debias)
    plain = EntropicMap(label_weight=3.0, debias=debias).fit(START, END)
    assert torch.equal(found.transform(NEW.x), plain.transform(NEW.x, NEW.labels))
    assert torch.equal(found.transform(NEW).x, plain.transform(NEW).x)  # labels that are known stay
    assert not torch.allclose(plain.transform(NEW.x), plain.transform(NEW.x, NEW.labels))


def test_without_a_choice_the_particles_say():
    plain, named = EntropicMap().fit(START, END), fitted("particles")
    assert plain.posterior_ == named.posterior_ == "particles"
    assert torch.equal(plain.transform(NEW.x), named.transform(NEW.x).to(plain.transform(NEW.x)))
    assert repr(plain) == "EntropicMap(epsilon=Relative(share=0.01), label_weight=1.0, debias=True)"
    assert repr(named).endswith("posterior='particles')")


def test_carried_as_the_most_likely_class():
    found = fitted(LinearDiscriminantAnalysis(), label_weight=3.0)
    codes = found.posterior(NEW.x).argmax(1)
    names = [found.classes_[code] for code in codes]
    assert torch.equal(found.transform(NEW.x), found.transform(NEW.x, names))


class TestAuto:
    @pytest.mark.slow
    def test_takes_the_best_and_says_so(self):
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(300, 30, generator=generator)  # a line through noise: for a linear model
        y = (x.sum(dim=1) > 0).long()
        data = ad.LabeledDataset(x, y)
        found = fitted("auto", data, data)
        assert found.posterior_ == "logistic"
        assert list(found.posterior_scores_) == [
            "particles",
            "nearest",
            "logistic",
            "forest",
            "mean",
        ]
        assert max(found.posterior_scores_.values()) == found.posterior_scores_["logistic"]
        own = found.own_posterior().argmax(1) == y
        assert float(own.double().mean()) == pytest.approx(found.posterior_scores_["logistic"])

    @pytest.mark.slow
    @pytest.mark.parametrize("counts", [(1,), (5,), (1, 1, 1), (12, 1, 2), (2, 2)])
    def test_few_samples(self, counts):
        data = classes(counts)
        for posterior in ("auto", "logistic") if len(counts) > 2 else ("nearest", "logistic"):
            found = fitted(posterior, data, data)
            for rows in (found.posterior(NEW.x), found.own_posterior()):
                assert rows.shape[1] == len(counts)
                assert torch.allclose(rows.sum(1), torch.ones(len(rows)).to(rows))
            assert bool(torch.isfinite(found.transform(NEW.x)).all())


class TestFiles:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("kind", "dtype"),
        [
            ("auto", torch.float64),
            ("particles", torch.float32),
            ("nearest", torch.float32),
            ("logistic", torch.float32),
            ("mean", torch.float32),
        ],
    )
    def test_same_to_the_last_bit(self, kind, dtype, tmp_path):
        start, end = START.to(dtype=dtype), END.to(dtype=dtype)
        found = fitted(kind, start, end, debias=False)
        again = ad.maps.load(found.save(tmp_path / "map.safetensors"))
        assert isinstance(again, EntropicMap) and repr(again) == repr(found)
        assert again.posterior_ == found.posterior_
        assert again.posterior_scores_ == found.posterior_scores_
        assert torch.equal(again.transform(NEW.x), found.transform(NEW.x))
        if kind != "mean":  # which takes its time
            assert torch.equal(again.own_posterior(), found.own_posterior())

    def test_a_classifier_of_ones_own_is_not_pickled(self, tmp_path):
        with pytest.raises(ad.InputError, match=r"cannot be saved.*LinearDiscr.*\"logistic\""):
            fitted(LinearDiscriminantAnalysis()).save(tmp_path / "map.safetensors")
        assert list(tmp_path.iterdir()) == []


class Silent(LogisticRegression):
    def predict_proba(self, x):
        return np.full((len(x), 3), np.nan)


def test_what_is_no_classifier():
    for bad in (3, "logistics", LogisticRegression, object(), lambda x: x):
        with pytest.raises(ad.InputError, match="posterior"):
            EntropicMap(posterior=bad)
    with pytest.raises(ad.InputError, match="Did you mean 'logistic'"):
        EntropicMap(posterior="logistics")
    with pytest.raises(ad.InputError, match="posterior needs"):
        fitted("auto", START.x, END.x)
    with pytest.raises(ad.InputError, match="probabilities"):
        fitted(Silent()).transform(NEW.x)


def test_certain_answers_where_there_are_no_probabilities():
    rows = fitted(LinearSVC(random_state=0)).posterior(NEW.x)
    assert set(rows.unique().tolist()) == {0.0, 1.0} and bool((rows.sum(1) == 1).all())
