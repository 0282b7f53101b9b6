"""Condensed datasets: against k-means, closed forms and what anybody may pass."""

import json

import numpy as np
import pytest
import torch
from flow_cases import draw, labeled
from sklearn.cluster import KMeans

import advect as ad
from advect import testing
from advect.apps.class_energy import ClassEnergy
from advect.cli.app import main

DATA = labeled([30, 20, 25], 3, 1, apart=4.0, weighted=True)
EXACT = ad.ExactOT()


def made(data=DATA, per_class=3, **options):
    return ad.apps.condense(data, per_class, progress=False, **options)


class TestClassEnergy:
    def test_is_the_sum_of_classes(self):
        """Against transport of each class alone."""
        few = labeled([3, 2, 4], 3, 5, apart=4.0, weighted=True)
        want = sum(
            float(DATA.class_mass[code])
            * ad.otdd(
                *(data.subset(data.y == code) for data in (few, DATA)),
                cost=ad.GroundCost(label=ad.NoLabels()),
                solver=EXACT,
            ).energy
            for code in range(3)
        )
        assert ClassEnergy(DATA, solver=EXACT)(few).item() == pytest.approx(want, rel=1e-9)

    def test_nothing_to_itself(self):
        assert ClassEnergy(DATA, solver=EXACT)(DATA).item() == pytest.approx(0, abs=1e-9)

    @pytest.mark.slow
    @pytest.mark.parametrize("solver", [EXACT, ad.Sinkhorn(epsilon=0.5, tol=1e-9)], ids=repr)
    def test_keeps_its_promises(self, solver):
        """Gradients by differences, state passed and returned."""
        testing.check_functional(
            ClassEnergy(DATA, solver=solver), labeled([3, 2, 4], 3, 5, apart=4.0), rtol=1e-4
        )

    @pytest.mark.slow
    def test_resumes(self, tmp_path):
        few, energy = labeled([3, 2, 4], 3, 5, apart=4.0), ClassEnergy(DATA, solver=ad.Sinkhorn())
        alone = ad.flow(few, energy, n_steps=4)
        ad.flow(few, energy, n_steps=2, callbacks=[ad.Checkpoint(tmp_path)])
        again = ad.flow(few, energy, n_steps=4, resume=tmp_path)
        assert torch.equal(again.dataset.x, alone.dataset.x)


class TestCondense:
    @pytest.mark.slow
    def test_one_of_each_class_is_the_mean(self):
        """Nothing is nearer to a class than its weighted mean: the flow stays there."""
        one = made(per_class=1, solver=EXACT)
        means = torch.stack(
            [
                (DATA.weights[rows, None] * DATA.x[rows]).sum(0) / DATA.weights[rows].sum()
                for rows in (DATA.y == code for code in range(3))
            ]
        )
        torch.testing.assert_close(one.dataset.x, means, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(one.dataset.weights, DATA.class_mass, rtol=1e-12, atol=0)

    @pytest.mark.slow
    def test_starts_from_weighted_k_means(self):
        """The same inertia as scikit-learn's, and weights that are the mass of the clusters."""
        few = made(n_steps=0)
        assert torch.equal(few.dataset.x, few.start.x)
        for code in range(3):
            rows, centres = DATA.y == code, few.start.y == code
            x, weights = DATA.x[rows], DATA.weights[rows]
            theirs = KMeans(3, n_init=4, random_state=0).fit(x, sample_weight=weights)
            squares, nearest = torch.cdist(x, few.start.x[centres]).square().min(dim=1)
            assert (weights * squares).sum().item() == pytest.approx(theirs.inertia_)
            mass = torch.zeros(3, dtype=torch.float64).index_add_(0, nearest, weights)
            torch.testing.assert_close(few.start.weights[centres], mass, rtol=1e-9, atol=1e-12)

    @pytest.mark.slow
    def test_falls_and_keeps_labels(self):
        few = made()
        assert few.result.values[-1] < few.result.values[0]
        assert torch.equal(few.dataset.y, few.start.y) and few.dataset.classes == DATA.classes
        assert few.dataset.counts == {0: 3, 1: 3, 2: 3}
        torch.testing.assert_close(few.dataset.class_mass, DATA.class_mass)

    @pytest.mark.slow
    def test_same_seed_same_set(self):
        assert torch.equal(made(seed=3).dataset.x, made(seed=3).dataset.x)

    @pytest.mark.slow
    def test_through_an_embedding(self):
        """Only what the map sees moves."""
        few = made(embedding=lambda x: 5 * x[:, :1].tanh())
        assert few.result.values[-1] < few.result.values[0]
        assert torch.equal(few.dataset.x[:, 1:], few.start.x[:, 1:])

    @pytest.mark.slow
    def test_images_stay_images(self):
        few = made(ad.datasets.load("digits", n=200), 2)
        assert few.dataset.sample_shape == (8, 8)
        assert few.dataset.x.min() >= 0 and few.dataset.x.max() <= 1

    @pytest.mark.slow
    def test_medoids_and_random_are_samples(self):
        few = made()
        for part in (few.medoids, few.random()):
            same = (part.x[:, None] == DATA.x[None]).all(-1) & (part.y[:, None] == DATA.y[None])
            assert bool(same.any(1).all())
            torch.testing.assert_close(part.class_mass, DATA.class_mass)

    @pytest.mark.slow
    def test_evaluate(self):
        data, test = DATA, labeled([20, 20, 20], 3, 9, apart=4.0)
        scores = made(data).evaluate(test)
        assert min(scores.values()) > 0.8
        with pytest.raises(ad.InputError, match="classes and sample shape"):
            made(data).evaluate(labeled([5, 5], 3, 1))


class TestOrdinaryInputs:
    @pytest.mark.slow
    def test_small_classes_are_kept_whole(self):
        data = labeled([20, 2, 1], 2, 1)
        few = made(data, 5)
        assert few.dataset.counts == {0: 5, 1: 2, 2: 1}
        assert few.notes == (
            "Classes with fewer than 5 distinct samples are kept whole: 1 (2), 2 (1).",
        )
        torch.testing.assert_close(few.dataset.x[5:], data.x[20:], rtol=1e-5, atol=1e-5)

    @pytest.mark.slow
    def test_samples_that_coincide(self):
        data = ad.LabeledDataset([[0.0], [0.0], [0.0], [4.0], [7.0]], list("aaaab"))
        few = made(data, 3)
        assert few.dataset.counts == {"a": 2, "b": 1}
        assert few.dataset.weights.tolist() == pytest.approx([0.6, 0.2, 0.2])

    @pytest.mark.slow
    @pytest.mark.parametrize(("offset", "scale"), [(1e6, 1.0), (0.0, 1e8), (0.0, 1e-8)])
    def test_offsets_and_scales(self, offset, scale):
        moved = DATA.replace(x=offset + scale * DATA.x)
        few = made(moved, n_steps=3)
        x = (few.start.x - offset) / scale
        torch.testing.assert_close(x, made(n_steps=0).start.x, rtol=1e-6, atol=1e-8)
        assert few.result.values[-1] <= few.result.values[0]

    @pytest.mark.slow
    def test_rows_without_mass_and_classes_without_samples(self):
        weights = DATA.weights.clone()
        weights[DATA.y == 1] = 0
        few = made(DATA.replace(weights=weights / weights.sum()))
        assert few.dataset.counts == {0: 3, 1: 0, 2: 3}
        few.evaluate(DATA)

    @pytest.mark.parametrize(
        ("data", "options", "words"),
        [
            (DATA, {"per_class": 0}, "per_class"),
            (DATA, {"step_size": 0.0}, "step_size"),
            (DATA, {"n_steps": -1}, "n_steps"),
            (DATA, {"bounds": (1.0, 0.0)}, "bounds"),
            (DATA, {"embedding": 3}, "embedding"),
            (ad.LabeledDataset(draw(4, 2), [0, 1, None, 1]), {}, "label"),
            (np.zeros((3, 2)), {}, "LabeledDataset"),
        ],
    )
    def test_errors(self, data, options, words):
        with pytest.raises(ad.InputError, match=words):
            made(data, **{"per_class": 2, **options})


class TestCommand:
    def test_writes_a_dataset(self, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        words = ["condense", "digits?n=200", "--per-class", "2", "--steps", "3", "-o", "few.npz"]
        assert main([*words, "--test", "digits?n=100&seed=1", "--json"]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert facts["n"] == 20 and set(facts["accuracies"]) > {"condensed", "k-means", "random"}
        few = ad.datasets.load("few.npz")
        assert len(few) == 20 and len(set(few.weights.tolist())) > 1
        assert main(words) == 2  # it is there
        assert "few.npz" in capsys.readouterr().err

    @pytest.mark.parametrize(
        "words",
        [
            ["digits?n=50", "-o", "few.txt"],
            ["digits?n=50", "--per-class", "0", "-o", "few.npz"],
            ["nowhere.npz", "-o", "few.npz"],
            ["digits?n=50", "--embedding", "maps.py:f", "-o", "few.npz"],
        ],
    )
    def test_bad_input(self, words, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert main(["condense", *words]) == 2
        assert not any(tmp_path.iterdir())
