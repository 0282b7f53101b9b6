"""``advect drift``: what it says, its exit codes, its state and page; what is refused leaves everything
as it was.
"""

import json
from pathlib import Path

import pytest

import advect as ad
from advect.cli.app import main

REFERENCE, SAME = "toy:gaussians?n=120&classes=3", "toy:gaussians?n=120&classes=3&seed=4"
MOVED = "toy:gaussians?n=120&classes=3&seed=5&shift=3,0"


@pytest.fixture(autouse=True)
def empty(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADVECT_CACHE", str(tmp_path / ".cache"))
    monkeypatch.setattr("os.fsync", lambda _: None)


def content():
    return {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}


def test_no_drift_ends_with_0_and_drift_with_4(capsys):
    assert main(["drift", REFERENCE, SAME, "-q", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    library = ad.drift(ad.datasets.load(REFERENCE), ad.datasets.load(SAME), progress=False)
    assert facts["tests"]["joint"]["p_value"] == library["joint"].p_value
    assert facts["drifted"] is False and facts["labels"] == [120, 120] and not content()
    assert main(["drift", REFERENCE, MOVED, "-q", "--report", "page.html"]) == 4
    out = capsys.readouterr().out
    assert "There is drift" in out and "page.html" in out
    assert "drift found" in Path("page.html").read_text()


@pytest.mark.slow
def test_a_job_that_runs_every_day(capsys):
    words = ["drift", REFERENCE, "--state", "state.json", "--json", "-q"]
    assert main([*words[:2], SAME, *words[2:]]) == 0
    assert main([*words[:2], MOVED, *words[2:]]) == 4
    assert main([*words[:2], MOVED, *words[2:]]) == 4  # repeated, and not counted
    facts = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert facts["windows"] == 2 and facts["alarms"] == 1
    assert facts["level"] == pytest.approx(0.05 / 30)
    before = content()
    assert main([*words[:2], SAME, *words[2:], "--horizon", "7"]) == 2 and content() == before
    assert main(["drift", SAME, MOVED, *words[2:]]) == 2 and content() == before
    assert "another reference" in capsys.readouterr().err


def test_windows_without_labels(capsys):
    table = ad.datasets.load(SAME)
    rows = "\n".join(f"{a},{b}," for a, b in table.x.tolist())
    Path("today.csv").write_text(f"wide,high,kind\n{rows}\n")
    both = ad.datasets.load(REFERENCE)
    rows = "\n".join(f"{a},{b},{k}" for (a, b), k in zip(both.x.tolist(), both.labels, strict=True))
    Path("before.csv").write_text(f"wide,high,kind\n{rows}\n")
    words = ["drift", "csv:before.csv?label=kind", "csv:today.csv?label=kind", "--json", "-q"]
    assert main(words) == 0
    facts = json.loads(capsys.readouterr().out)
    assert list(facts["tests"]) == ["features"] and facts["labels"] == [120, 0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--report", "page.txt"], ".html"),
        (["--report", "there.html"], "--overwrite"),
        (["--state", "there.html"], "there.html"),
        (["--state", "."], "directory"),
        (["--level", "0"], "level"),
        (["--permutations", "10"], "99"),
        (["--embedding", "nothing"], "gradients"),
        (["--embedding", "gradients"], "images"),
        (["--state", "there.html/state.json"], "there.html"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_bad_input_ends_with_two_and_touches_nothing(more, said, capsys):
    Path("there.html").write_text("mine")
    before = content()
    assert main(["drift", REFERENCE, SAME, "-q", *more]) == 2
    assert said in capsys.readouterr().err and content() == before


@pytest.mark.parametrize("window", ["no-such-data", "digits?n=20", "toy:swiss_roll?n=40"])
def test_windows_that_do_not_fit(window, capsys):
    assert main(["drift", REFERENCE, window, "-q", "--state", "state.json"]) == 2
    assert capsys.readouterr().err and not content()
