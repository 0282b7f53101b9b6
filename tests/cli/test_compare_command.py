"""``advect compare``: tables, pages, JSON; what is refused leaves everything as it was."""

import csv
import json
from pathlib import Path

import pytest

from advect.cli.app import main

FAKE, REAL = "toy:gaussians?n=60&classes=3", "toy:gaussians?n=60&classes=3&seed=5"
BASE = ("compare", FAKE, REAL, "--repeats", "3", "-q")


@pytest.fixture(autouse=True)
def empty(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADVECT_CACHE", str(tmp_path / ".cache"))
    monkeypatch.setattr("os.fsync", lambda _: None)


def content():
    return {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}


def test_numbers_a_table_and_a_page(capsys):
    words = ["-o", "out.csv", "--report", "page.html", "--json"]
    assert main([*BASE, *words]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert set(facts["verdicts"]) == set(facts["columns"]) and facts["synthetic"] == FAKE
    rows = list(csv.DictReader(Path("out.csv").read_text().splitlines()))
    overall = {row["column"]: float(row["value"]) for row in rows if row["class"] == "all"}
    for name, column in facts["columns"].items():
        assert overall[name] == pytest.approx(column["overall"]["value"])
    assert "Verdicts" in Path("page.html").read_text()
    before = content()
    assert main([*BASE, *words]) == 2 and content() == before
    assert main([*BASE, *words, "--overwrite"]) == 0


@pytest.mark.slow
def test_copies_and_a_dropped_class_are_told(capsys):
    assert main([*BASE[:2], BASE[1], *BASE[3:]]) == 0  # the training set itself
    text = capsys.readouterr().out
    assert "Beyond its floor: memorised" in text and "100.0 %" in text
    assert main(["data", "convert", REAL, "-o", "real.csv"]) == 0
    lines = Path("real.csv").read_text().splitlines()
    Path("fake.csv").write_text("\n".join(line for line in lines if not line.endswith(",2")) + "\n")
    capsys.readouterr()
    reference = [f"csv:{name}.csv?label=label" for name in ("fake", "real")]
    assert main(["compare", *reference, "--held-out", FAKE, "--repeats", "3", "-q"]) == 0
    assert "2: real samples but no synthetic one: dropped." in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([*BASE, "-o", "x.txt"], ".csv"),
        ([*BASE, "--report", "page.txt"], ".html"),
        ([*BASE, "-o", "there.csv"], "--overwrite"),
        ([*BASE, "-o", "x.csv", "--report", "there.html"], "--overwrite"),
        ([*BASE, "-o", "there.csv/x.csv"], "there.csv"),
        ([*BASE, "--level", "1"], "level"),
        ([*BASE, "-o", "x.csv", "--held-out", "no-such-data"], "no-such-data"),
        ([*BASE, "-o", "x.csv", "--held-out", "toy:gaussians?n=9&dim=3"], "dim"),
        (["compare", FAKE, "no-such-data", "-o", "x.csv"], "no-such-data"),
        (["compare", FAKE, "digits?n=20", "-o", "x.csv"], "vector"),
        (["compare", FAKE, "nolabels.csv", "-o", "x.csv"], "label"),
    ],
    ids=lambda value: " ".join(value[-3:]) if isinstance(value, list) else value,
)
def test_bad_input_ends_with_two_and_touches_nothing(words, said, capsys):
    Path("there.csv").write_text("mine")
    Path("there.html").write_text("mine")
    Path("nolabels.csv").write_text("a,b\n1,2\n3,4\n")
    before = content()
    assert main(words) == 2
    assert said in capsys.readouterr().err and content() == before
