"""Maps with a classifier: its answers against scikit-learn's own, what it does to the map, choices by
cross-validation, files."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import PredefinedSplit, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import advect as ad
from advect.maps import EntropicMap
from advect.maps.entropic import KINDS, _estimator, folds_of, out_of_fold

NAMES = ("low", ("a", 1), 7)


def classes(counts=(30, 25, 20), d=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    y = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    means = 2.0 * torch.randn(len(counts), d, generator=torch.Generator().manual_seed(9))
    x = means[y] + torch.randn(len(y), d, generator=generator)
    return ad.LabeledDataset(x.double(), y, classes=NAMES[: len(counts)])


START = classes()
END = START.replace(x=START.x.flip(1) * 2 + 5)
NEW = classes(seed=3)


def fitted(posterior, start=START, end=END, **options):
    return EntropicMap(posterior=posterior, **options).fit(start, end)


CLASSIFIERS = {
    "nearest": KNeighborsClassifier(1),
    "logistic": make_pipeline(StandardScaler(), LogisticRegression(C=60 / 75, max_iter=1000)),
    "forest": RandomForestClassifier(random_state=0),
}


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_kinds_are_those_of_scikit_learn(kind):
    centre, unit = START.x.mean(0), float((START.x - START.x.mean(0)).abs().max())
    standard, new = (START.x - centre) / unit, (NEW.x - centre) / unit
    expected = CLASSIFIERS[kind].fit(standard, START.y).predict_proba(new)
    np.testing.assert_allclose(fitted(kind).posterior(NEW.x), expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["nearest", "logistic"])
def test_held_out_samples_are_answered_from_other_folds(kind):
    x, y = START.x.numpy(), START.y.numpy()
    split = PredefinedSplit(folds_of(y))
    model = _estimator(kind, 60)  # four of five folds
    expected = cross_val_predict(model, x, y, cv=split, method="predict_proba")
    np.testing.assert_allclose(out_of_fold(kind, 1.0, x, y, 3), expected, atol=1e-6)


def test_folds_hold_every_class_as_evenly_as_can_be():
    y = np.repeat([0, 1, 2, 3], [50, 12, 3, 1])
    folds = folds_of(y)
    assert np.ptp(np.bincount(folds)) <= 1
    for code in range(4):
        assert np.ptp(np.bincount(folds[y == code], minlength=5)) <= 1


@pytest.mark.parametrize("debias", [True, False])
def test_a_sample_is_moved_as_one_of_the_most_likely_class(debias):
    found = fitted("logistic", label_weight=3.0, debias=debias)
    names = [found.classes_[code] for code in found.posterior(NEW.x).argmax(1)]
    assert torch.equal(found.transform(NEW.x), found.transform(NEW.x, names))
    plain = EntropicMap(label_weight=3.0, debias=debias).fit(START, END)
    assert torch.equal(found.transform(NEW).x, plain.transform(NEW).x)  # known labels stay
    assert not torch.allclose(plain.transform(NEW.x), plain.transform(NEW.x, NEW.labels))


def test_the_default_is_particles():
    plain, named = EntropicMap().fit(START, END), fitted("particles")
    assert plain.posterior_ == named.posterior_ == "particles"
    assert torch.equal(plain.transform(NEW.x), named.transform(NEW.x))
    assert repr(plain) == "EntropicMap(epsilon=Relative(share=0.01), label_weight=1.0, debias=True)"
    assert repr(named).endswith("posterior='particles')")


def test_auto_takes_the_best_and_says_so():
    x = torch.randn(120, 20, generator=torch.Generator().manual_seed(0))
    data = ad.LabeledDataset(x, (x.sum(dim=1) > 0).long())  # a line through noise
    found = fitted("auto", data, data)
    assert found.posterior_ == "logistic" and tuple(found.posterior_scores_) == KINDS
    assert max(found.posterior_scores_.values()) == found.posterior_scores_["logistic"]
    assert min(found.posterior_scores_.values()) > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("counts", [(1,), (5,), (1, 1, 1), (12, 1, 2), (2, 2)])
def test_few_samples(counts):
    data = classes(counts)
    for posterior in ("auto", "logistic") if len(counts) > 2 else ("nearest", "logistic"):
        found = fitted(posterior, data, data)
        rows = found.posterior(NEW.x)
        assert rows.shape[1] == len(counts)
        assert torch.allclose(rows.sum(1), torch.ones(len(rows)).to(rows))
        assert bool(torch.isfinite(found.transform(NEW.x)).all())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["auto", "particles", "nearest", "logistic", "mean"])
def test_files_are_the_same_to_the_last_bit(kind, tmp_path):
    dtype = torch.float64 if kind == "auto" else torch.float32
    found = fitted(kind, START.to(dtype=dtype), END.to(dtype=dtype), debias=False)
    again = ad.maps.load(found.save(tmp_path / "map.safetensors"))
    assert isinstance(again, EntropicMap) and repr(again) == repr(found)
    assert (again.posterior_, again.epsilon_) == (found.posterior_, found.epsilon_)
    with pytest.raises(ad.InputError, match="kind nearest"):
        ad.maps.NearestMap.load(tmp_path / "map.safetensors")
    assert again.posterior_scores_ == found.posterior_scores_
    assert torch.equal(again.transform(NEW.x), found.transform(NEW.x))


def test_errors():
    for bad in (3, "logistics", object()):
        with pytest.raises(ad.InputError, match="posterior"):
            EntropicMap(posterior=bad)
    with pytest.raises(ad.InputError, match="posterior needs"):
        fitted("auto", START.x, END.x)
