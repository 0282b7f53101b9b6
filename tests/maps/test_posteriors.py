"""Maps with classifiers: their answers against scikit-learn's own, what they do to the map, files."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import advect as ad
from advect.maps import EntropicMap

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


def test_the_mean_is_that_of_particles_and_scikit_learns_classifiers():
    centre, unit = START.x.mean(0), float((START.x - START.x.mean(0)).abs().max())
    standard, new = (START.x - centre) / unit, (NEW.x - centre) / unit
    regression = LogisticRegression(C=60 / 75, max_iter=1000)
    models = make_pipeline(StandardScaler(), regression), RandomForestClassifier(random_state=0)
    answers = [model.fit(standard, START.y).predict_proba(new) for model in models]
    answers.append(fitted("particles").posterior(NEW.x).numpy())
    np.testing.assert_allclose(fitted("mean").posterior(NEW.x), np.mean(answers, axis=0), atol=1e-6)


@pytest.mark.parametrize("debias", [True, False])
def test_a_sample_is_moved_as_one_of_the_most_likely_class(debias):
    found = fitted("mean", label_weight=3.0, debias=debias)
    names = [found.classes_[code] for code in found.posterior(NEW.x).argmax(1)]
    assert torch.equal(found.transform(NEW.x), found.transform(NEW.x, names))
    plain = EntropicMap(label_weight=3.0, debias=debias).fit(START, END)
    assert torch.equal(found.transform(NEW).x, plain.transform(NEW).x)  # known labels stay
    assert not torch.allclose(plain.transform(NEW.x), plain.transform(NEW.x, NEW.labels))


def test_the_default_is_particles():
    plain, named = EntropicMap().fit(START, END), fitted("particles")
    assert torch.equal(plain.transform(NEW.x), named.transform(NEW.x))
    text = "EntropicMap(epsilon=Relative(share=0.01), label_weight=1.0, debias=True, posterior='particles')"
    assert repr(plain) == repr(named) == text


@pytest.mark.slow
@pytest.mark.parametrize("counts", [(1,), (5,), (1, 1, 1), (12, 1, 2), (2, 2)])
def test_few_samples(counts):
    data = classes(counts)
    for posterior in ("particles", "mean"):
        found = fitted(posterior, data, data)
        rows = found.posterior(NEW.x)
        assert rows.shape[1] == len(counts)
        assert torch.allclose(rows.sum(1), torch.ones(len(rows)).to(rows))
        assert bool(torch.isfinite(found.transform(NEW.x)).all())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["particles", "mean"])
def test_files_are_the_same_to_the_last_bit(kind, tmp_path):
    dtype = torch.float64 if kind == "mean" else torch.float32
    found = fitted(kind, START.to(dtype=dtype), END.to(dtype=dtype), debias=False)
    again = ad.maps.load(found.save(tmp_path / "map.safetensors"))
    assert isinstance(again, EntropicMap) and repr(again) == repr(found)
    with pytest.raises(ad.InputError, match="kind nearest"):
        ad.maps.NearestMap.load(tmp_path / "map.safetensors")
    assert torch.equal(again.transform(NEW.x), found.transform(NEW.x))


def test_errors():
    for bad in (3, "auto", object()):
        with pytest.raises(ad.InputError, match="posterior"):
            EntropicMap(posterior=bad)
    with pytest.raises(ad.InputError, match="posterior needs"):
        fitted("mean", START.x, END.x)
