"""Who types a command is told what to type, not what to write in Python."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image

from advect.cli.app import main

PYTHON = re.compile(r"""\w=["'\[]|\w+\(|True|False|n_steps|\bad\.|to_dict|side=""")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, header in {"a": "u,v,label", "b": "v,w,label", "c": "s,t,label"}.items():
        Path(f"{name}.csv").write_text(
            f"{header}\n" + "".join(f"{i},{i * i},{'xy'[i % 2]}\n" for i in range(8))
        )
    Path("text.csv").write_text("u,the town\n1,Bern\n2,Chur\n")
    Path("numbers.csv").write_text("1,2\n3,4\n")
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words, "-q"]) == 2
    text = capsys.readouterr().err
    assert PYTHON.search(text) is None, text
    return text


def test_columns_and_files(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, "distance", "a.csv", "b.csv")
    assert (
        "--space.columns common" in text
        and "--space.columns union" in text
        and "--space.project k" in text
    )
    assert "--space.columns union" in told(
        capsys, "distance", "a.csv", "c.csv", "--space.columns", "common"
    )
    text = told(capsys, "data", "info", "text.csv")
    assert (
        "?categorical=onehot" in text
        and "?label=the%20town" in text
        and "file.csv?key=value" in text
    )
    assert "--cost none" in told(capsys, "distance", "text.csv?columns=u", "text.csv?columns=u")
    assert "?header=false" in told(capsys, "data", "info", "numbers.csv")


def test_images(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for kind, mode in (("x", "L"), ("y", "RGB")):
        Path("images", kind).mkdir(parents=True)
        Image.new(mode, (4, 4)).save(f"images/{kind}/0.png")
    assert "?channels=rgb" in told(capsys, "data", "info", "images")


def test_runs_and_maps(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flow = [
        "flow",
        "a.csv",
        "b.csv",
        "--space.columns",
        "union",
        "--steps",
        "3",
        "--no-report",
        "-q",
        "-o",
        "run",
    ]
    assert (
        main(flow) == 0 and main(["map", "fit", "run", "-o", "map", "--name", "nearest", "-q"]) == 0
    )
    capsys.readouterr()
    assert "--steps 2" in told(capsys, "resume", "run", "--steps", "2")
    assert "Samples are taken as of the source here" in told(
        capsys, "map", "apply", "map", "c.csv", "-o", "no.csv"
    )
    assert "advect flow -o" in told(capsys, "data", "info", "run:map")
    for place, words in (
        ("run", ["data", "info", "run:run"]),
        ("map", ["map", "apply", "map", "a.csv", "-o", "no.csv"]),
    ):
        Path(place, "space.json").write_text('{"kind": "other"}')
        assert str(Path(place, "space.json")) in told(capsys, *words)


@pytest.mark.parametrize("n", ["1e12", "99999999999999999999", "1e300"])
def test_more_samples_than_memory_holds(n: str, capsys: pytest.CaptureFixture[str]) -> None:
    for kind in ("gaussians", "moons", "rings", "swiss_roll"):
        assert "does not fit into memory" in told(capsys, "data", "info", f"toy:{kind}?n={n}")


def test_targets_and_shapes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "file.csv?target=column" in told(
        capsys, "distance", "a.csv", "a.csv", "--cost", "values"
    )
    text = told(capsys, "distance", "a.csv", "digits?n=20")
    assert "--space.align auto" in text and "an array (n, H, W)" in text


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("distance toy:moons", "TARGET is missing: advect distance SOURCE TARGET [OPTIONS]."),
        ("distance A B --solver.epsilon -1", "--solver.epsilon must be a finite number above 0"),
        ("distance A B --cost.label-weight abc", "--cost.label-weight must be a number; got 'abc'"),
        (
            "distance A B --standard-error 1",
            "--standard-error must be a whole number of at least 2",
        ),
        ("matrix A B --jobs 0", "--jobs must be other than 0"),
        ("flow A B -o r --steps 2.5", "--steps must be a whole number; got '2.5'"),
        ("flow A B -o r --steps -3", "--steps must be greater than or equal to 0; got '-3'"),
        ("flow A B -o r --integrator.step-size 0", "--integrator.step-size must be a finite"),
        ("flow A B -o r --dynamics.bounds 3,1", "--dynamics.bounds takes 2 values, one after"),
        ("index near nothere A", "Make one with advect index add."),
        ("data info notes.txt", "unknown suffix of notes.txt; got '.txt'"),
    ],
)
def test_what_was_wrong_has_the_name_that_was_typed(line, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("hello")
    sets = {"A": "toy:moons?n=20", "B": "toy:rings?n=20&classes=2"}
    assert main([sets.get(word, word) for word in line.split()]) == 2
    assert said in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
