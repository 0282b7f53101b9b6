"""Notes: said where they are true, silent where they are not; and the standard error of a
distance.
"""

import dataclasses

import pytest
import torch
from flow_cases import draw, labeled

import advect as ad
from advect.transport.notes import ended_above, of_mixing, of_values


def words(notes):
    return " ".join(note.what for note in notes)


def blobs(sizes, seed=0, dim=2, shift=0.0, apart=8.0):
    return labeled(sizes, dim, seed, shift=shift, apart=apart)


class TestDistance:
    def test_silent_where_all_is_well(self):
        assert ad.otdd(blobs([20, 20]), blobs([20, 20], 1, shift=1.0)).notes == ()

    def test_every_note_has_a_remedy(self):
        scale = torch.tensor([1.0, 1e4], dtype=torch.float64)
        a, b = blobs([2, 10]), blobs([30, 10, 5], 1)
        notes = ad.otdd(a.replace(x=a.x * scale), b.replace(x=b.x * scale)).notes
        assert len(notes) == 3 and all(
            len(note.remedy) > 10 and str(note).endswith(note.remedy) for note in notes
        )

    @pytest.mark.parametrize("name", [None, "income"])
    def test_one_column(self, name):
        a, b = blobs([20, 20]), blobs([20, 20], 1)
        if name:
            a, b = (ad.LabeledDataset(data.x, data.y, columns=("age", name)) for data in (a, b))
        scale = torch.tensor([1.0, 30.0], dtype=torch.float64)
        notes = ad.otdd(a.replace(x=a.x * scale), b.replace(x=b.x * scale)).notes
        assert repr(name or "feature 2") in words(notes) and "99." in words(notes)
        assert not ad.otdd(a, b).notes
        through = ad.GroundCost(
            feature=ad.Embedding(lambda x: x / scale.to(x))
        )  # columns are not what is compared
        assert not ad.otdd(a.replace(x=a.x * scale), b.replace(x=b.x * scale), cost=through).notes

    def test_few_samples(self):
        a, b = blobs([4, 20], dim=5), blobs([20, 3], 1, dim=5)
        assert "1 of 2 classes of the source and 1 of 2 classes of the target" in words(
            ad.otdd(a, b).notes
        )
        assert "as few as 3" in words(ad.otdd(a, b).notes)
        for label in (ad.Bures(diagonal=True), ad.MeansOnly(), ad.NoLabels()):
            assert "estimated" not in words(ad.otdd(a, b, cost=ad.GroundCost(label=label)).notes)

    @pytest.mark.parametrize(
        ("a", "b", "share"),
        [([30, 10], [10, 30], None), ([30, 10], [20, 20], "25%"), ([20, 20], [20, 20, 20], "33%")],
    )
    def test_shares(self, a, b, share):
        """The least mass over all ways to match classes: none where shares are only in another
        order.
        """
        said = words(ad.otdd(blobs(a), blobs(b, 1)).notes)
        assert (f"at least {share}" in said) if share else said == ""

    def test_shares_count_weights(self):
        source = blobs([30, 10])
        weights = torch.where(source.y == 0, 1 / 60, 1 / 20).double()
        assert ad.otdd(source.replace(weights=weights), blobs([20, 20], 1)).notes == ()

    @pytest.mark.parametrize("far", [1e6, 1e15])
    def test_samples_without_mass_say_nothing(self, far):
        """Neither in notes nor in the error, wherever they are."""
        a, b = blobs([20, 20]), blobs([20, 20], 1, shift=1.0)
        x = torch.cat([a.x, torch.tensor([[far, 0.0]], dtype=a.x.dtype)])
        weights = torch.cat([a.weights, a.weights.new_zeros(1)])
        with_one = ad.otdd(ad.LabeledDataset(x, torch.cat([a.y, a.y[:1]]), weights=weights), b)
        assert with_one.converged and with_one.notes == ()
        assert with_one.error == pytest.approx(ad.otdd(a, b).error, rel=0.1)

    def test_few_samples_with_mass(self):
        a = blobs([20, 20], dim=5)
        weights = torch.where(torch.arange(40) < 16, 0.0, a.weights)
        said = words(
            ad.otdd(a.replace(weights=weights / weights.sum()), blobs([4, 20], 1, dim=5)).notes
        )
        assert "1 of 2 classes of the source" in said and "as few as 4" in said

    @pytest.mark.filterwarnings("ignore::advect.ConvergenceWarning")
    def test_not_converged(self):
        distance = ad.otdd(
            blobs([20, 20]), blobs([20, 20], 1), solver=ad.Sinkhorn(epsilon=1e-3, max_iter=3)
        )
        assert not distance.converged and "did not converge" in distance.notes[0].what

    def test_epsilon_far_above_the_costs(self):
        """A distance of 0 between datasets that are not the same is warned of, and what is advised
        helps.
        """
        a, b = blobs([20, 20]), blobs([20, 20], 1, shift=1.0)
        with pytest.warns(ad.ConvergenceWarning, match="smaller epsilon"):
            lost = ad.otdd(a, b, solver=ad.Sinkhorn(epsilon=1e15))
        assert not lost.converged and lost.error > ad.otdd(a, b).energy
        assert lost.notes[0].remedy.startswith("Lower epsilon")
        assert ad.otdd(a, b, solver=ad.Sinkhorn(epsilon=1e3)).notes == ()

    @pytest.mark.filterwarnings("ignore::advect.ConvergenceWarning")
    def test_too_close(self):
        a = blobs([20, 20])
        note = ad.otdd(a, a.replace(x=a.x + 1e-9)).notes[0]
        assert "known to" in note.what and "float64" in note.remedy and "epsilon" not in note.remedy


class TestParts:
    @pytest.mark.slow
    def test_error_holds_the_spread_of_parts_and_a_note_the_bias(self):
        a, b = blobs([50, 50]), blobs([50, 50], 1, shift=1.0)
        whole = ad.otdd(a, b)
        for seed in range(5):
            found = ad.otdd(a, b, solver=ad.MiniBatch(size=20, seed=seed))
            assert found.error > found.divergence.standard_error > 0.01 * whole.energy
            assert (
                found.converged
                and "larger than" in words(found.notes)
                and "size" in found.notes[0].remedy
            )

    def test_one_part_does_not_know_its_spread(self):
        found = ad.otdd(
            blobs([20, 20]), blobs([20, 20], 1), solver=ad.MiniBatch(size=10, batches=1)
        )
        assert found.error == float("inf") and "one batch only" in words(found.notes)

    def test_parts_that_are_all_there_is(self):
        a, b = blobs([20, 20]), blobs([20, 20], 1, shift=1.0)
        found = ad.otdd(a, b, solver=ad.MiniBatch(size=40))
        assert found.notes == () and found.error == pytest.approx(ad.otdd(a, b).error, rel=0.01)

    @pytest.mark.parametrize(
        "order", [None, range(40), range(39, -1, -1)], ids=["itself", "copy", "reversed"]
    )
    def test_a_dataset_and_itself(self, order):
        a = blobs([20, 20])
        b = a if order is None else a.subset(torch.tensor(order))
        found = ad.otdd(
            a, b, solver=ad.MiniBatch(size=10)
        )  # without a warning: they are errors here
        assert found.energy > 0 and found.error == found.energy and not found.converged
        assert len(found.notes) == 1 and "random batches" in words(found.notes)


class TestStandardError:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("solver", "shares"),
        [(None, "fixed"), (None, "drawn"), (ad.ExactOT(), "fixed")],
        ids=["sinkhorn", "drawn", "exact"],
    )
    def test_is_the_spread_over_fresh_draws(self, solver, shares):
        """Within a factor: 40 fresh draws know their spread to 11 %, a bootstrap of 40 as well, and
        it is one of one draw.
        """

        def distance(seed):
            generator = torch.Generator().manual_seed(seed)
            a = ad.datasets.gaussians(300, generator=generator)
            b = ad.datasets.gaussians(300, shift=(4.0, 1.0), generator=generator)
            if shares == "fixed":
                a, b = (data.sample(60, balanced=True, generator=generator) for data in (a, b))
            else:
                a, b = (
                    data.subset(torch.randperm(300, generator=generator)[:60]) for data in (a, b)
                )
            return ad.otdd(a, b, solver=solver)

        fresh = float(torch.tensor([distance(seed).value for seed in range(40)]).std())
        guess = [
            distance(seed).standard_error(
                40, class_shares=shares, generator=torch.Generator().manual_seed(seed)
            )
            for seed in (100, 101, 102)
        ]
        assert 0.7 < sum(guess) / 3 / fresh < 1.4

    @pytest.mark.slow
    def test_falls_with_the_root_of_the_samples(self):
        def error(n):
            a, b = blobs([n, n]), blobs([n, n], 1, shift=3.0)
            return ad.otdd(a, b).standard_error(30, generator=torch.Generator().manual_seed(0))

        assert 1.4 < error(20) / error(80) < 2.9

    def test_repeatable_and_weighted(self):
        a, b = labeled([9, 9], 2, 0, weighted=True), blobs([9, 9], 1)
        errors = [
            ad.otdd(a, b).standard_error(3, generator=torch.Generator().manual_seed(1))
            for _ in range(2)
        ]
        assert errors[0] == errors[1] > 0
        with pytest.raises(ad.InputError, match="n must"):
            ad.otdd(a, b).standard_error(1)

    @pytest.mark.slow
    @pytest.mark.parametrize("shares", ["fixed", "drawn"])
    def test_one_sample_tells_nothing(self, shares):
        # Once 0.0 without a word: every draw was the same.
        if shares == "fixed":
            a = ad.LabeledDataset([[0.0], [1.0], [9.0]], ["a", "b", "b"], weights=[1.0, 2.0, 0.0])
        else:
            a = ad.LabeledDataset([[0.0]], ["a"])
        b = a.replace(x=a.x + 3)
        with pytest.raises(ad.InputError, match="more samples"):
            ad.otdd(a, b).standard_error(3, class_shares=shares)
        more = ad.LabeledDataset([[0.0], [1.0], [5.0]], ["a", "b", "b"])
        generator = torch.Generator().manual_seed(0)
        assert ad.otdd(a, more).standard_error(9, class_shares=shares, generator=generator) > 0


class TestFlow:
    def test_silent_where_all_is_well(self):
        result = ad.flow(blobs([20, 20]), ad.OTDD(blobs([20, 20], 1, shift=1.0)), n_steps=5)
        assert result.notes == () and result.status == "completed" and result.best.index == 5

    @pytest.mark.parametrize(
        ("values", "said", "above"),
        [
            ([3.0, 2.0, 1.0], "", False),
            ([3.0, 2.0, 2.0 + 1e-15], "", False),
            (
                [3.0, 2.0, 2.1, 1.0],
                "rose in 1 of 3 steps, first at step 7, and ended at 1, its lowest",
                False,
            ),
            (
                [3.0, 1.0, 2.0, 2.5],
                "rose in 2 of 3 steps, first at step 7, and ended at 2.5, above its lowest of 1 at "
                "step 6",
                True,
            ),
            ([3.0], "", False),
        ],
    )
    def test_values(self, values, said, above):
        assert said in words(of_values(values, 5, torch.float64)) and bool(said) == bool(
            of_values(values, 5, torch.float64)
        )
        assert bool(ended_above(values, torch.float64)) == above

    @pytest.mark.filterwarnings("ignore::advect.ConvergenceWarning")
    def test_solver_that_did_not_converge(self):
        energy = ad.OTDD(blobs([20, 20], 1), solver=ad.Sinkhorn(epsilon=1e-3, max_iter=3))
        result = ad.flow(
            blobs([20, 20]), energy + ad.Potential(ad.norm()), n_steps=3, control=ad.FixedSteps()
        )
        assert result.unconverged == 4 and "in 4 of 4 evaluations" in words(result.notes)

    def test_mixed(self):
        """Two classes that are drawn into one place are mixed; those that stay apart are not, nor
        those never apart.
        """
        apart = blobs([50, 50], apart=9.0)
        one_place = apart.replace(x=draw(100, 2, seed=3))
        assert "have mixed" in words(of_mixing(apart, one_place))
        assert not of_mixing(apart, apart.replace(x=0.1 * apart.x + 5)) and not of_mixing(
            one_place, one_place
        )

    def test_not_mixed_where_the_target_asks_for_it(self):
        """Classes that overlap in the target as they do in the end, or that are fewer there, are
        where they should be.
        """
        apart = blobs([50, 50], apart=9.0)
        end, overlapping = (apart.replace(x=draw(100, 2, seed=seed)) for seed in (3, 4))
        one, none = (
            ad.LabeledDataset(draw(100, 2, seed=5), labels) for labels in (["only"] * 100, None)
        )
        assert not of_mixing(apart, end, overlapping) and not of_mixing(apart, end, one)
        assert not of_mixing(apart, end, none)
        said = of_mixing(apart, end, apart)
        assert "(in the target 100.0%)" in words(said) and "label_weight" in said[0].remedy
        assert "label_weight" not in of_mixing(apart, end)[0].remedy  # nothing that it would weigh

    def test_mixed_where_labels_alternate(self):
        """Rows that are looked at are of all classes, whatever the order of labels."""
        n = 1200
        labels = torch.arange(n) % 2
        apart = ad.LabeledDataset(draw(n, 2) + 9.0 * labels[:, None], labels)
        assert "have mixed" in words(of_mixing(apart, apart.replace(x=draw(n, 2, seed=3))))


def test_a_term_of_some_steps_only_is_no_obstacle():
    result = ad.flow(
        ad.LabeledDataset([[4.0], [8.0]], ["a", "b"]), ad.Potential(ad.norm()), n_steps=3
    )
    late = dataclasses.replace(result, terms={**result.terms, "late": [1.0]})
    assert late.notes == result.notes


def test_one_of_many_columns_that_carries_most_is_named():
    draw = torch.Generator().manual_seed(0)
    a, b = (torch.randn(50, 6, generator=draw) for _ in range(2))
    scale = torch.tensor([1.0, 1.0, 6.0, 1.0, 1.0, 1.0])  # 36 of 41
    one, two = (ad.LabeledDataset(x * scale, [0] * 50) for x in (a, b))
    notes = [note.what for note in ad.otdd(one, two).notes if "Column" in note.what]
    assert len(notes) == 1 and "'feature 3' carries 8" in notes[0]
    few = [data.replace(x=data.x[:, 1:3], sample_shape=(2,)) for data in (one, two)]
    assert not any("Column" in note.what for note in ad.otdd(*few).notes)
