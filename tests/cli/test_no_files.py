"""What has the name of a file and is none (a pipe, a folder, a link to a device) is named; nothing hangs, nothing is
lost."""

import os
import shutil
from pathlib import Path

import pytest
from deadlines import within
from flow_cases import content

import advect as ad
from advect.cli.app import main
from advect.io.logs import append_line

S, T = "toy:gaussians?n=12&classes=2", "toy:gaussians?n=12&classes=2&seed=3"
NAMES = ("config.toml", "env.json", "result.json", "space.json", "frames.jsonl", "metrics.jsonl")
COMMANDS = (
    ("show", "run"),
    ("resume", "run", "--n-steps", "2", "--no-report"),
    ("report", "run"),
)
KINDS = {"pipe": os.mkfifo, "folder": os.mkdir, "device": lambda path: path.symlink_to("/dev/zero")}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    place = tmp_path_factory.mktemp("made") / "run"
    assert main(["flow", S, T, "-o", str(place), "--n-steps", "1", "--no-report", "-q"]) == 0
    return place


pytestmark = pytest.mark.usefixtures("empty")


@pytest.fixture
def stopped(refused):
    """A command that is refused, and does not hang."""

    def run(named, *words):
        with within(10):
            refused(named, *words, "-q")

    return run


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_file_in_a_run_is_named(name, kind, made, stopped):
    shutil.copytree(made, "run")
    path = Path("run", name)
    path.unlink()
    KINDS[kind](path)
    for words in COMMANDS:
        if (name, words[0]) != ("space.json", "report"):  # which does not read it
            stopped(path, *words)
    stopped("run", "flow", S, T, "-o", "run", "--overwrite", "--no-report")
    assert not path.is_file()


@pytest.mark.parametrize("name", ["frames.jsonl", "metrics.jsonl", "space.json"])
def test_from_python_too(name, made):
    shutil.copytree(made, "run")
    path = Path("run", name)
    path.unlink()
    os.mkfifo(path)
    use = ad.datasets.load if name != "metrics.jsonl" else lambda _: append_line(path, {})
    with within(10), pytest.raises(ad.InputError, match=f"not a file.*{name}"):
        use("run:run@-1")


LINKS = ("metrics.jsonl", "frames.jsonl", "frames", "frames/000001.safetensors", "report.html")


@pytest.mark.parametrize("name", [*LINKS, "checkpoint-a.safetensors"])
def test_links_in_a_run_are_not_followed(name, made, stopped):
    shutil.copytree(made, "run")
    path, mine = Path("run", name), Path("mine").absolute()
    path.rename(mine) if path.exists() else mine.write_text("a page")
    if name.endswith("jsonl"):
        mine.write_bytes(mine.read_bytes() + b"secret")  # would be cut off as a torn line
    path.symlink_to(mine)
    before = content(mine.parent) | content("mine")
    if name.startswith("frames/"):
        stopped(path, "data", "convert", "run:run@-1", "-o", "out.npz")
    else:
        stopped(path, "resume", "run", "--n-steps", "3")
    assert (content(mine.parent) | content("mine")) == before


@pytest.mark.parametrize("option", [(), ("--overwrite",)])
def test_pipes_and_devices_are_not_written_over(option, made, stopped):
    os.mkfifo("ff.csv")
    Path("zero.npz").symlink_to("/dev/zero")
    for name in ("ff.csv", "zero.npz"):
        stopped(name, "data", "convert", S, "-o", name, *option)
    os.mkfifo("page.html")
    stopped("page.html", "report", str(made), "-o", "page.html", *option)
    assert Path("ff.csv").is_fifo() and Path("page.html").is_fifo()
    assert Path("zero.npz").is_symlink()


@pytest.mark.parametrize(
    "words",
    [("flow", S, T, "-o", "/"), ("resume", "/"), ("show", "/"), ("transfer", S, T, "-o", "/")],
)
def test_the_root_is_no_place_for_results(words, stopped):
    stopped("/", *words)
