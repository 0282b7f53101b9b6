"""What a user brought comes back: units, columns, dtypes, categories, names; images stay images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import advect as ad
from advect.cli.app import main
from advect.data.formats.kinds import Column, Table
from advect.errors import InputError


def pets(n: int = 12, shift: float = 0.0) -> pd.DataFrame:
    """A table with every kind of column, in no particular units."""
    rng = np.random.default_rng(int(shift) + n)
    return pd.DataFrame(
        {
            "weight": rng.normal(4000 + shift, 500, n),
            "indoors": rng.random(n) < 0.5,
            "age": rng.integers(1, 15, n),
            "coat": pd.Categorical(
                np.resize(["short", "long"], n), categories=["short", "long", "none"]
            ),
            "town": np.resize(["Bern", "Basel", "Chur"], n),
            "kind": np.resize(["cat", "dog"], n),
        }
    )


def same_table(frame: pd.DataFrame, other: pd.DataFrame, *, exact: bool = True) -> None:
    assert list(frame.columns) == list(other.columns)
    for name in frame.columns:
        if exact or name != "weight":
            assert frame[name].tolist() == other[name].tolist(), name


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_frame_comes_back_as_it_was() -> None:
    frame = pets()
    data = ad.LabeledDataset.from_pandas(frame, label="kind", categorical="onehot")
    back = data.to_pandas()
    same_table(frame, back)
    assert back.drop(columns="kind").dtypes.to_dict() == frame.drop(columns="kind").dtypes.to_dict()
    assert list(back.coat.cat.categories) == ["short", "long", "none"]
    numbers = data.replace(table=None).to_pandas(label=None)
    assert list(numbers.columns) == list(data.columns or ()) and "coat=none" in numbers


@pytest.mark.parametrize("name", ["a.parquet", "a.npz"])
def test_files_that_keep_everything_need_no_options(name: str, here: Path) -> None:
    frame = pets()
    data = ad.LabeledDataset.from_pandas(
        frame, label="kind", weights="weight", categorical="onehot"
    )
    data.save(name)
    again = ad.datasets.load(name)
    assert (again.columns, again.labels, again.table) == (data.columns, data.labels, data.table)
    assert torch.equal(again.x, data.x) and torch.allclose(again.weights, data.weights)
    same_table(frame[["indoors", "age", "coat", "town", "kind"]], again.to_pandas())
    if name.endswith(".parquet"):  # others see the table too
        same_table(frame, pd.read_parquet(name)[list(frame.columns)], exact=False)


@pytest.mark.parametrize("name", ["b.csv", "b.csv.gz", "b.tsv"])
def test_a_table_of_text_is_written_as_it_was(name: str, here: Path) -> None:
    frame = pets()
    frame.to_csv("a.csv", index=False)
    data = ad.datasets.load("csv:a.csv?label=kind&categorical=onehot&dtype=float64")
    data.save(name)
    same_table(frame, pd.read_csv(name, sep="\t" if name.endswith(".tsv") else ","))
    again = ad.datasets.load(name, label="kind", categorical="onehot", dtype="float64")
    assert (
        torch.equal(again.x, data.x) and again.table == data.table and again.labels == data.labels
    )


def test_parquet_of_others_comes_back_as_it_was(here: Path) -> None:
    frame = pets()
    frame["count"] = np.arange(len(frame), dtype=np.uint8)
    frame.to_parquet("a.parquet")
    data = ad.datasets.load("parquet:a.parquet?label=kind&categorical=onehot")
    data.save("b.parquet")
    again = pd.read_parquet("b.parquet")[list(frame.columns)]
    same_table(frame, again)
    assert (
        again["count"].dtype == np.uint8
        and again.indoors.dtype == bool
        and again.age.dtype == np.int64
    )


def test_moved_numbers_become_the_nearest() -> None:
    table = Table(
        (
            Column("n", "uint8"),
            Column("b", "bool"),
            Column("c", "category", ("u", "v")),
            Column("big", "int64"),
        )
    )
    x = np.array([[-3.0, 0.4, 0.2, 0.3, 1e18], [300.0, 0.6, 0.9, 0.3, 5.0]])
    cells = {
        one.name: one.numbers.tolist() for one in table.cells(("n", "b", "c=u", "c=v", "big"), x)
    }
    assert cells == {"n": [0, 255], "b": [False, True], "c": [1, 0], "big": [1e18, 5.0]}
    part = [one.name for one in table.cells(("n", "c=v", "other"), x[:, :3])]
    assert part == ["n", "c=v", "other"]  # half a category stays a number
    assert Table.from_dict(json.loads(json.dumps(table.to_dict()))) == table


DATES: list[Any] = [
    pd.to_datetime(pd.date_range("2024-01-01", periods=6)),
    pd.Series(pd.date_range("2024-01-01", periods=6).date),
    pd.to_timedelta(np.arange(6), "D"),
    pd.period_range("2024-01", periods=6, freq="M"),
    pd.Categorical(pd.date_range("2024-01-01", periods=6)),
    pd.date_range("2024-01-01", periods=6).strftime("%Y-%m-%d %H:%M"),
]


@pytest.mark.parametrize("when", DATES, ids=lambda when: str(getattr(when, "dtype", "")))
def test_a_date_is_no_category(when: Any, here: Path) -> None:
    frame = pd.DataFrame({"u": np.arange(6.0), "when": when})
    with pytest.raises(InputError, match=r"date or time must become a number.*'when'.*Timedelta"):
        ad.LabeledDataset.from_pandas(frame, label=None, categorical="onehot")
    frame.to_csv("a.csv", index=False)
    if str(frame.when.dtype).startswith(("datetime", "object", "str", "category")):
        with pytest.raises(InputError, match=r"date or time must become a number.*'when'"):
            ad.datasets.load("a.csv", categorical="onehot")
    if str(frame.when.dtype).startswith(("datetime", "timedelta")):
        frame.to_parquet("a.parquet")
        with pytest.raises(InputError, match=r"date or time must become a number.*'when'"):
            ad.datasets.load("a.parquet", categorical="onehot")


def cli(*words: str) -> None:
    assert main([*words, "-q"]) == 0


@pytest.fixture
def run(here: Path) -> Path:
    """A flow between tables whose categories differ, scaled."""
    pets(12).to_csv("a.csv", index=False)
    pets(15, 3000.0).replace({"town": {"Chur": "Genf"}}).to_csv("b.csv", index=False)
    ends = [
        f"csv:{name}?label=kind&categorical=onehot&dtype=float64" for name in ("a.csv", "b.csv")
    ]
    space = ["--space.scale", "standardize", "--space.columns", "union"]
    cli(
        "flow",
        *ends,
        *space,
        "--steps",
        "4",
        "--integrator.step-size",
        "0.5",
        "--no-report",
        "-o",
        "run",
    )
    return here / "run"


def test_frames_come_back_in_the_units_of_the_source(run: Path) -> None:
    frame = pets(12)
    cli("data", "convert", "run:run@0", "-o", "first.csv")
    first = pd.read_csv("first.csv")
    same_table(frame, first, exact=False)
    np.testing.assert_allclose(first.weight, frame.weight)
    cli("data", "convert", "run:run@-1", "-o", "last.parquet")
    last = pd.read_parquet("last.parquet")
    assert (
        set(last.columns) == set(frame.columns)
        and last.indoors.dtype == bool
        and last.age.dtype == np.int64
    )
    assert set(last.town) <= {"Bern", "Basel", "Chur"}
    assert 4500 < last.weight.mean() < 7000  # on the way from 4000 to 7000
    assert ad.datasets.load("run:run@-1").x.dtype == torch.float64


@pytest.mark.slow
def test_scaled_ones_come_when_asked(run: Path) -> None:
    scaled = ad.datasets.load("run:run@0?units=common")
    assert (
        torch.equal(scaled.x, ad.Trajectory.open(run)[0].dataset.x)
        and float(scaled.x.abs().max()) < 10
    )
    target = ad.datasets.load("run:run@-1", units="target")
    assert "town=Genf" in (target.columns or ()) and "town=Chur" not in (target.columns or ())
    with pytest.raises(InputError, match="unknown units; got 'sauce'. Did you mean 'source'"):
        ad.datasets.load("run:run@0?units=sauce")


@pytest.mark.slow
def test_a_map_gives_the_units_back(run: Path) -> None:
    cli("map", "fit", "run", "-o", "map", "--name", "nearest")
    ref = "csv:a.csv?label=kind&categorical=onehot&dtype=float64"
    cli("map", "apply", "map", ref, "-o", "there.csv")
    cli("map", "apply", "map", ref, "-o", "scaled.npz", "--units", "common")
    there = pd.read_csv("there.csv")
    assert list(there.columns) == list(pets().columns) and 4500 < there.weight.mean() < 7000
    assert float(ad.datasets.load("scaled.npz").x.abs().max()) < 10


def test_the_way_back_in_python() -> None:
    first, second = (
        ad.LabeledDataset.from_pandas(pets(n, s), label="kind", categorical="onehot")
        for n, s in ((12, 0), (9, 2))
    )
    space = ad.FeatureSpace.fit(first, second, scale="standardize")
    again = ad.FeatureSpace.from_dict(json.loads(json.dumps(space.to_dict())))
    back = again.invert(again.apply(first)).to_pandas()
    same_table(pets(12), back, exact=False)
    np.testing.assert_allclose(back.weight, pets(12).weight)


def test_a_run_without_a_space_is_as_it_is(here: Path) -> None:
    cli("flow", "toy:moons?n=20", "-f", "norm", "--steps", "2", "--no-report", "-o", "run")
    assert torch.equal(ad.datasets.load("run:run").x, ad.datasets.load("run:run?units=common").x)
    with pytest.raises(InputError, match="no feature space to go back by; got units=target"):
        ad.datasets.load("run:run?units=target")


@pytest.mark.parametrize("scale", [None, "standardize", "standardize-target", "unit"])
def test_an_absent_category_is_none_of_it(scale: str | None) -> None:
    """coat=none occurs on one side only: on the other no sample has it, so it is 0 there, not the
    mean of those that have.
    """
    first = pd.DataFrame({"u": [0.0, 1.0, 2.0], "coat": ["short", "long", "short"]})
    second = pd.DataFrame({"u": [0.0, 1.0, 5.0, 9.0], "coat": ["none", "none", "none", "short"]})
    sides = [
        ad.LabeledDataset.from_pandas(frame, label=None, categorical="onehot")
        for frame in (first, second)
    ]
    space = ad.FeatureSpace.fit(sides[0], sides[1], columns="union", scale=scale)
    columns = space.columns or ()
    both = torch.cat([space.apply(sides[0]).x, space.apply(sides[1], side="target").x])
    none, where = both[:, columns.index("coat=none")], torch.tensor([0, 0, 0, 1, 1, 1, 0.0])
    if scale != "unit":  # where each side has a scale of its own
        assert len(none[where == 0].unique()) == 1 and len(none[where == 1].unique()) == 1
        assert bool((none[where == 1] > none[where == 0].max()).all())
    elsewhere = ad.LabeledDataset([[1.0], [2.0]], columns=["u"])  # nothing is known of its coats
    free = ad.FeatureSpace.fit(elsewhere, sides[1], columns="union")
    assert free.apply(elsewhere).x[0, (free.columns or ()).index("coat=none")] == 0.75


@pytest.mark.slow
@pytest.mark.parametrize("entry", ["digits", "digits.npz", "moons", "moons.csv"])
def test_a_name_says_what_it_stands_for(
    entry: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(entry).mkdir()
    name = entry.partition(".")[0]
    with pytest.warns(
        UserWarning,
        match=rf"'{name}' is the dataset of that name, not '{entry}' .*'./{entry}'.*'name:{name}'",
    ):
        ad.datasets.load(name, n=10)
    assert len(ad.datasets.load(f"name:{name}?n=10")) == 10
    assert main(["data", "info", f"{name}?n=10"]) == 0
    assert f"write './{entry}'" in capsys.readouterr().err
    with pytest.raises(InputError):
        ad.datasets.load(f"./{entry}")
    with pytest.raises(InputError, match="unknown dataset; got 'digit'. Did you mean 'digits'"):
        ad.datasets.load("name:digit")


@pytest.mark.slow
def test_images_stay_images(here: Path) -> None:
    far = ["--integrator.step-size", "3", "--steps", "3", "--no-report"]
    cli("flow", "digits?n=30", "mnist?n=30", *far, "-o", "run")
    frames = ad.Trajectory.open("run")
    assert all(
        float(frame.dataset.x.min()) >= 0 and float(frame.dataset.x.max()) <= 1 for frame in frames
    )
    for units, side in (("source", 8), ("target", 28), ("common", 28)):
        back = ad.datasets.load("run:run@-1", units=units)
        assert (
            back.sample_shape == (side, side)
            and float(back.x.min()) >= 0
            and float(back.x.max()) <= 1
        )
        cli("data", "convert", f"run:run@-1?units={units}", "-o", units)
        files = list(Path(units).rglob("*.png"))
        assert len(files) == 30 and Image.open(files[0]).size == (side, side)
    cli("flow", "digits?n=30", "mnist?n=30", *far, "--dynamics.bounds", "-inf", "inf", "-o", "free")
    assert float(ad.Trajectory.open("free")[-1].dataset.x.min()) < 0


def test_only_images_are_bound(here: Path) -> None:
    from advect.data.spaces.images import brightness_range

    x = torch.rand(5, 4)
    assert brightness_range(((2, 2), x), ((4, 1, 1), x)) == (0, 1)
    assert brightness_range(((2, 2), x), ((4,), x)) is None
    assert brightness_range(((2, 2), (255 * x).round())) == (0, 255)
    assert brightness_range(((2, 2), 255 * x)) is None
    assert brightness_range(((2, 2), x - 0.5)) is None


def test_what_passes_the_range_is_clipped_and_said(here: Path) -> None:
    x = np.full((2, 3, 3), 0.5)
    x[0, 0, 0], x[1, 0, 0] = -0.25, 1.5
    with pytest.warns(
        UserWarning,
        match=r"11.11% of the pixels lie outside 0 … 1 \(-0.25 to 1.5\) and are clipped",
    ):
        ad.LabeledDataset(x, ["a", "b"]).save("images")
    back = ad.datasets.load("images").samples
    assert back[0, 0, 0] == 0 and back[1, 0, 0] == 1


@pytest.mark.slow
def test_without_its_space_a_run_has_no_units(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scaled numbers are never rounded to the user's whole numbers and truth values."""
    cli("map", "fit", "run", "-o", "map", "--name", "nearest")
    (run / "space.json").unlink()
    for words in (
        ("data", "convert", "run:run@0", "-o", "no.csv"),
        ("map", "fit", "run", "-o", "no", "--name", "nearest"),
    ):
        assert main([*words, "-q"]) == 2
    told = capsys.readouterr().err
    assert "units=common" in told and told.count("space.json is missing") == 2
    (run / "env.json").unlink()  # config.toml says it too
    assert main(["data", "convert", "run:run@0", "-o", "no.csv", "-q"]) == 2
    cli("data", "convert", "run:run@0?units=common", "-o", "scaled.csv")
    scaled = pd.read_csv("scaled.csv")
    assert "kind" in scaled and all(
        scaled[name].dtype == np.float64 for name in ("age", "indoors", "coat=long")
    )
    (Path("map") / "space.json").unlink()
    assert (
        main(
            ["map", "apply", "map", "csv:a.csv?label=kind&categorical=onehot", "-o", "no.csv", "-q"]
        )
        == 2
    )
    assert not Path("no.csv").exists() and not Path("no").exists()


def test_kinds_belong_to_the_units_of_the_table() -> None:
    first, second = (
        ad.LabeledDataset.from_pandas(pets(n), label="kind", categorical="onehot") for n in (12, 9)
    )
    scaled = ad.FeatureSpace.fit(first, second, scale="standardize").apply(first).to_pandas()
    assert (
        scaled.age.nunique() == pets().age.nunique()
        and abs(scaled.age.mean()) < 0.9
        and "kind" in scaled
    )


@pytest.fixture
def narrow(here: Path) -> Path:
    """A flow between tables that share some columns, of which the source has the whole number and
    the truth value alone.
    """
    pets(12).drop(columns=["coat", "town"]).to_csv("a.csv", index=False)
    pets(15, 30.0).drop(columns=["coat", "town", "indoors"]).to_csv("b.csv", index=False)
    words = ["--space.columns", "common", "--steps", "2", "--no-report", "-o", "run"]
    cli("flow", *(f"csv:{name}?label=kind" for name in ("a.csv", "b.csv")), *words)
    return here / "run"


@pytest.mark.slow
def test_columns_that_the_flow_never_saw_are_left_out(
    narrow: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "convert", "run:run@0", "-o", "first.csv"]) == 0
    assert "left out: 'indoors'" in capsys.readouterr().err
    first = pd.read_csv("first.csv")
    assert (
        list(first.columns) == ["weight", "age", "kind"]
        and first.age.tolist() == pets().age.tolist()
    )
    cli("map", "fit", "run", "-o", "map", "--name", "nearest")
    assert main(["map", "apply", "map", "csv:a.csv?label=kind", "-o", "there.csv"]) == 0
    assert "left out: 'indoors'" in capsys.readouterr().err and "indoors" not in pd.read_csv(
        "there.csv"
    )


@pytest.mark.slow
def test_principal_components_are_said_to_be_less(here: Path) -> None:
    cli(
        "flow",
        "digits?n=30",
        "digits?n=30&seed=1",
        "--space.project",
        "3",
        "--steps",
        "1",
        "--no-report",
        "-o",
        "run",
    )
    with pytest.warns(UserWarning, match="only 3 principal components of 64 dimensions"):
        ad.datasets.load("run:run@0")


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_long_whole_numbers_come_back(name: str, here: Path) -> None:
    """float32 has no 16777217: a table with such numbers is float64, and one in float32 does not
    say that it is whole.
    """
    frame = pd.DataFrame({"id": [16777217, -16777219, 3], "x": [1, 2, 3]})
    frame.to_csv(name, index=False) if name.endswith("csv") else frame.to_parquet(name, index=False)
    data = ad.datasets.load(name)
    assert data.x.dtype == torch.float64
    data.save("b.csv")
    same_table(frame, pd.read_csv("b.csv"))
    with pytest.warns(
        UserWarning, match=r"float32 rounds whole numbers from 2\*\*24 on.*column 'id'"
    ):
        narrow = ad.datasets.load(name, dtype="float32")
    narrow.save("c.csv")
    back = pd.read_csv("c.csv")
    assert (
        narrow.x.dtype == torch.float32 and back.id.dtype == np.float64 and back.x.dtype == np.int64
    )
    frame.assign(id=[2**24 - 1, 5, 6]).to_csv("small.csv", index=False)
    assert ad.datasets.load("small.csv").x.dtype == torch.float32


def test_long_whole_numbers_from_python(here: Path) -> None:
    frame = pd.DataFrame({"id": [16777217, 16777219], "x": [1, 2]})
    same_table(frame, ad.LabeledDataset.from_pandas(frame, label=None).to_pandas(label=None))
    assert ad.LabeledDataset([[16777217], [1]]).x.tolist() == [[16777217.0], [1.0]]
    assert ad.LabeledDataset(np.array([[2**24 - 1]])).x.dtype == torch.float32
    np.savez("a.npz", x=frame.to_numpy())
    with pytest.warns(UserWarning, match="float32 rounds"):
        ad.datasets.load("a.npz")
    Path("ids.csv").write_text("id\n9007199254740993\n1\n")
    with pytest.warns(UserWarning, match=r"float64 rounds whole numbers from 2\*\*53"):
        ad.datasets.load("ids.csv")


@pytest.mark.parametrize(
    "labels",
    [["007", "1", "1.0"], ["1", "007", "1"], [1, 2, 1], ["1", "1", "1"], ["1.0", "a", "1"]],
)
def test_labels_come_back_by_the_same_options(labels: list[Any], here: Path) -> None:
    data = ad.LabeledDataset([[1.0], [2.0], [3.0]], labels, columns=["u"], table=Table((), "kind"))
    data.save("a.csv")
    again = ad.datasets.load("csv:a.csv?label=kind")
    assert (
        again.labels == data.labels
        and again.classes == data.classes
        and again.table == Table((), "kind")
    )
    plain = labels != ["1"] * 3  # which nothing in the file would tell from numbers
    assert Path("a.csv").read_text().splitlines()[0] == ("u,kind" if plain else "u,kind:json")
    again.save("b.csv")
    assert Path("a.csv").read_bytes() == Path("b.csv").read_bytes()


def test_labels_that_differ_in_spaces_are_one_class_and_it_is_said(here: Path) -> None:
    Path("a.csv").write_text('x,label\n1,"a "\n2,a\n3, a\n4, b\n')
    with pytest.warns(UserWarning, match="differ in spaces alone are one class: 'a ', 'a', ' a'$"):
        assert ad.datasets.load("a.csv").counts == {"a": 3, "b": 1}
