"""``ad.suggest``, ``advect suggest`` and the one place of defaults."""

import json
import tomllib

import numpy as np
import pytest
import torch

import advect as ad
from advect._util import defaults, signatures
from advect.apps.suggest import _some_of
from advect.cli.app import main

GENERATOR = np.random.default_rng(0)


def blobs(counts, shift=0.0, scale=1.0, dim=3):
    rows = [
        GENERATOR.normal(size=(n, dim)) + 4.0 * k * np.eye(dim)[0] for k, n in enumerate(counts)
    ]
    labels = [f"class {k}" for k, n in enumerate(counts) for _ in range(n)]
    return ad.LabeledDataset(scale * (np.concatenate(rows) + shift), labels)


def chosen(found, option):
    return next(one for one in found.advice if one.option == option)


def test_every_choice_has_a_reason():
    found = ad.suggest(blobs([20, 20]), blobs([20, 20], shift=3.0))
    assert len({one.option for one in found.advice}) == len(found.advice) == 8
    assert all(len(one.reason) > 10 for one in found.advice)
    assert all(one.reason in str(found) and one.option in str(found) for one in found.advice)
    assert "n_steps" in found._repr_html_()


def test_classes_get_equal_mass_where_their_shares_differ():
    even = ad.suggest(blobs([20, 20]), blobs([30, 30]))
    uneven = ad.suggest(blobs([5, 45]), blobs([30, 30]))
    assert not even.equal_mass and uneven.equal_mass
    assert torch.allclose(uneven.source.class_mass, torch.full((2,), 0.5, dtype=torch.float64))
    assert "10.0%" in chosen(uneven, "equal_mass").reason


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_epsilon_follows_the_units_and_not_the_place(scale):
    source, target = blobs([20, 20]), blobs([20, 20], shift=3.0)
    one = ad.suggest(source, target).solver.epsilon
    moved = [data.replace(x=scale * (data.x + 7.0)) for data in (source, target)]
    assert ad.suggest(*moved).solver.epsilon == pytest.approx(scale**2 * one, rel=0.01)


def test_epsilon_is_a_share_of_the_mean_feature_cost():
    source, target = blobs([20, 20]), blobs([20, 20], shift=3.0)
    mean = torch.cdist(source.x, target.x).square().mean().item() / 2
    assert ad.suggest(source, target).solver.epsilon == pytest.approx(0.03 * mean, rel=0.01)


def test_labels_that_are_numbers_missing_or_single():
    numbers = ad.LabeledDataset(GENERATOR.normal(size=(20, 2)), targets=np.arange(20.0))
    assert isinstance(ad.suggest(numbers, numbers).cost.label, ad.TargetValues)
    bare = ad.LabeledDataset(GENERATOR.normal(size=(20, 3)))
    without = ad.suggest(blobs([10, 10]), bare)
    assert isinstance(without.cost.label, ad.NoLabels) and "pseudo_labels" in str(without.hints[0])
    single = ad.LabeledDataset(GENERATOR.normal(size=(8, 3)), range(8))
    assert isinstance(ad.suggest(single, single).cost.label, ad.MeansOnly)
    for found in (ad.suggest(numbers, numbers), without, ad.suggest(single, single)):
        assert found.flow(n_steps=2).values[-1] <= found.objective(found.source).item() + 1e-9


def test_large_classes_in_many_dimensions_get_diagonals_and_many_samples_parts():
    wide = ad.LabeledDataset(torch.zeros(13_000, 1300), torch.arange(13_000) % 10)
    assert ad.suggest(wide, wide).cost.label == ad.Bures(diagonal=True)
    many = ad.LabeledDataset(torch.zeros(20_001, 2), torch.arange(20_001) % 2)
    assert isinstance(ad.suggest(many, many).solver, ad.MiniBatch)


def test_names_that_both_have_are_hinted_at():
    assert "ByName" in str(ad.suggest(blobs([9, 9]), blobs([9, 9])).hints[0])
    other = blobs([9, 9]).replace(classes=("x", "y"))
    assert not ad.suggest(blobs([9, 9]), other).hints


def test_coinciding_points_can_flow():
    same = ad.LabeledDataset(np.ones((6, 2)), ["a", "a", "a", "b", "b", "b"])
    assert ad.suggest(same, same).flow(n_steps=1).values == [0.0, 0.0]


def test_its_code_does_what_it_does():
    source, target = blobs([5, 25]), blobs([20, 20], shift=3.0)
    found = ad.suggest(source, target)
    place = {"ad": ad, "source": source, "target": target}
    exec(found.code, place)
    assert torch.equal(place["result"].dataset.x, found.flow().dataset.x)


def test_code_for_points_that_coincide_runs_and_keeps_the_memory_limit():
    same = ad.LabeledDataset(np.ones((6, 2)), ["a", "a", "a", "b", "b", "b"])
    found = ad.suggest(same, same, memory_limit="1GiB")
    place = {"ad": ad, "source": same, "target": same}
    exec(found.code.replace("n_steps=30", "n_steps=1"), place)
    assert place["result"].values == [0.0, 0.0]
    limits = [each.transport.memory_limit for each in (place["objective"], found.objective)]
    assert limits == ["1GiB", "1GiB"]


def test_samples_without_mass_are_not_looked_at():
    data, target = blobs([20, 20]), blobs([20, 20], shift=3.0)
    weights = torch.cat([torch.ones(40), torch.zeros(1)])
    x = torch.cat([data.x, torch.full((1, 3), 1e6, dtype=data.x.dtype)])
    far = ad.LabeledDataset(x, [*data.labels, "class 0"], weights=weights)
    found = ad.suggest(far, target)
    assert found.solver.epsilon == ad.suggest(data, target).solver.epsilon
    assert len(found.source) == 41


def test_targets_that_one_side_has_can_flow_by_features():
    x = GENERATOR.normal(size=(12, 3))
    one = ad.LabeledDataset(x, targets=x[:, 0])
    for other in (blobs([6, 6]), ad.LabeledDataset(x), ad.LabeledDataset(x, targets=x[:, :2])):
        found = ad.suggest(one, other)
        assert isinstance(found.cost.label, ad.NoLabels) and "Targets" in str(found.hints[0])
        found.flow(n_steps=1)
    assert not ad.suggest(one, one).hints


def test_the_last_of_very_many_samples_is_one_of_them():
    assert _some_of(2**24 + 4).max() == 2**24 + 3


def test_what_it_cannot_take():
    with pytest.raises(ad.InputError, match=r"one feature space.*3 and 2 features.*harmonize"):
        ad.suggest(blobs([5, 5]), blobs([5, 5], dim=2))
    with pytest.raises(ad.InputError, match="LabeledDataset"):
        ad.suggest(np.ones((3, 2)), blobs([5, 5]))


def test_the_command_prints_a_configuration_that_flow_takes(tmp_path, capsys):
    ends = ["toy:gaussians?n=40", "toy:moons?n=40"]
    assert main(["suggest", *ends]) == 0
    text = capsys.readouterr().out
    settings = tomllib.loads(text)
    assert settings["steps"] == 30 and settings["cost"]["label_weight"] == 2.0 and "# " in text
    place = tmp_path / "flow.toml"
    assert main(["suggest", *ends, "-o", str(place), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert {one["option"] for one in facts["advice"]} >= {"solver.epsilon", "equal_mass"}
    run = tmp_path / "run"
    assert (
        main(["flow", "-c", str(place), "-o", str(run), "--steps", "3", "--no-report", "-q"]) == 0
    )
    made = tomllib.loads((run / "config.toml").read_text())
    assert made["solver"]["epsilon"] == settings["solver"]["epsilon"]
    assert made["integrator"]["step_size"] == 0.5 and made["equal_mass"] == settings["equal_mass"]
    flowed = ad.suggest(*(ad.datasets.load(ref, seed=0) for ref in ends)).flow(n_steps=3)
    kept = ad.datasets.load(f"run:{run}@-1")
    assert torch.allclose(kept.x, flowed.dataset.x, atol=1e-5)


def test_the_command_does_not_write_over_what_is_there(tmp_path, capsys):
    place = tmp_path / "flow.toml"
    place.write_text("steps = 1")
    assert main(["suggest", "toy:moons", "toy:moons", "-o", str(place)]) == 2
    assert place.read_text() == "steps = 1" and "--overwrite" in capsys.readouterr().err
    assert main(["suggest", "toy:moons", "toy:moons", "-o", str(tmp_path / "flow.txt")]) == 2


def test_each_value_has_its_reason_and_the_next_command_can_be_pasted(tmp_path, capsys):
    same = tmp_path / "same.csv"
    same.write_text("a,label\n1,x\n1,x\n")
    place = tmp_path / "my flow.toml"
    assert main(["suggest", str(same), str(same), "-o", str(place)]) == 0
    assert f"advect flow -c '{place}' -o run" in capsys.readouterr().out
    assert "relative_epsilon = 0.01 # all samples are in one place" in place.read_text()


def test_code_and_wishes_are_written_so_that_they_hold_elsewhere(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def doubled(x):\n    return 2 * x\n")
    ends, place = ["toy:moons?n=20", "toy:moons?n=20"], tmp_path / "sub" / "flow.toml"
    more = ["--space.encoder", "mine.py:doubled", "--equal-mass"]
    assert main(["suggest", *ends, *more, "-o", str(place)]) == 0
    assert capsys.readouterr().out.rstrip().endswith(f"-c {place} -o run --run-code")
    text = place.read_text()
    assert tomllib.loads(text)["space"]["encoder"] == f"{tmp_path / 'mine.py'}:doubled"
    assert "equal_mass = true # as it was asked for" in text


def test_equal_mass_on_the_command_line(tmp_path, capsys):
    few, other = tmp_path / "few.csv", tmp_path / "other.csv"
    few.write_text("a,label\n0,x\n0,x\n0,x\n8,y\n")
    other.write_text("a,label\n0,x\n8,y\n")
    options = ["--solver.name", "exact", "--cost.label", "none", "--json"]
    energies = []
    for more in ([], ["--equal-mass"]):
        assert main(["distance", str(few), str(other), *options, *more]) == 0
        energies.append(json.loads(capsys.readouterr().out)["energy"])
    assert energies == pytest.approx([0.25 * 8**2 / 2, 0])  # a quarter of the mass goes from 0 to 8
    bare = tmp_path / "bare.csv"
    bare.write_text("a\n0\n1\n")
    assert main(["distance", f"{bare}?label=false", str(few), "--equal-mass"]) == 2
    assert "--equal-mass" in capsys.readouterr().err


def test_defaults_stand_in_one_place():
    assert signatures.of_source("flow")["n_steps"].default == defaults.LOOK.n_steps
    assert signatures.of_source("Euler")["step_size"].default == defaults.LOOK.step_size
    assert (
        signatures.of_source("Sinkhorn")["epsilon"].default == f"Relative({defaults.LOOK.epsilon})"
    )
    assert (
        ad.DatasetTransport().n_steps == ad.apps.RepurposeOptions().n_steps == defaults.USE.n_steps
    )
    assert ad.DatasetTransport().label_weight == ad.apps.RepurposeOptions().label_weight
    assert ad.apps.TransferOptions().label_weight == defaults.FEW.label_weight
    assert ad.apps.TransferOptions().solver.epsilon == ad.Relative(defaults.FEW.epsilon)
    for one, other in ((defaults.USE, defaults.LOOK), (defaults.FEW, defaults.LOOK)):
        assert set(one.differences(other)) == set(one.reasons)


@pytest.mark.parametrize(
    ("command", "held"),
    [("flow", defaults.LOOK), ("repurpose", defaults.USE), ("transfer", defaults.FEW)],
)
def test_help_shows_the_defaults(command, held, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main([command, "--help"]) == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for option, value in {
        "--steps INT": held.n_steps,
        "--cost.label-weight FLOAT": held.label_weight,
        "--solver.relative-epsilon FLOAT": held.epsilon,
    }.items():
        said = text.split(option)[1].split("--")[0]
        assert f"{value:g}" in said.replace(".0]", "]"), (option, said)
