"""Only what advect wrote is ever removed to make room: whatever else is in a directory stays, and
the command says so.
"""

import os
import shutil
from pathlib import Path

import pytest

import advect as ad
from advect.cli.app import main
from advect.cli.flow import _run as make
from advect.cli.rundir import foreign_file

S, T = "toy:gaussians?n=12&classes=2", "toy:gaussians?n=12&classes=2&seed=3"
SHORT = ("--n-steps", "1", "--no-report", "-q")
FIT = ("map", "fit", "run", "-o", "map", "--map", "nearest", "-q")
TRANSFER = ("transfer", S, T, "-o", "sets", "--n-steps", "1", "-q")


pytestmark = pytest.mark.usefixtures("empty")


@pytest.fixture
def kept(refused, content):
    """A command that is refused and touches nothing."""

    def run(named, *words):
        before = content()
        err = refused(named, *words)
        assert content() == before
        return err

    return run


BLOGS = {
    "hugo": 'baseURL = "https://example.org"\ntitle = "Mine"\n',
    "settings": f'source = "{S}"\ntarget = "{T}"\nsteps = 5\n',  # written by hand, for -c
    "text": "no toml at all",
}


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--resume", "--overwrite"])
@pytest.mark.parametrize("blog", BLOGS)
def test_a_directory_of_others_is_not_replaced(blog, option, kept):
    """That it holds a config.toml makes it no run."""
    Path("site/posts").mkdir(parents=True)
    Path("site/config.toml").write_text(BLOGS[blog])
    kept("site/", "flow", S, T, "-o", "site", option, *SHORT)
    Path("site/posts/first.md").write_text("…")
    kept("site/", "flow", S, T, "-o", "site", option, *SHORT)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["notes.txt", "mine/thesis.tex", "frames/mine.png", "mine/", "link"]
)
def test_files_of_yours_in_a_run_stay(name, kept):
    assert main(["flow", S, T, "-o", "run", *SHORT]) == 0
    put("run", name)
    words = ("flow", S, T, "-o", "run", *SHORT)
    err = kept(str(Path("run", name.partition("/t")[0])), *words, "--overwrite")
    assert "move" in err
    for checkpoint in Path("run").glob("checkpoint-*"):
        checkpoint.unlink()
    kept("run/", *words, "--resume")
    shutil.rmtree("run")
    assert main([*words]) == 0 and main([*words, "--overwrite"]) == 0


def put(directory, name):
    path = Path(directory, name)
    path.parent.mkdir(exist_ok=True)
    if name.endswith("/"):
        path.mkdir()
    elif name == "link":
        path.symlink_to("/")
    else:
        path.write_text("mine")


@pytest.mark.slow
def test_files_of_yours_in_maps_and_transfers_stay(kept):
    assert main(["flow", S, T, "-o", "run", *SHORT]) == 0
    for words, place in ((FIT, "map"), (TRANSFER, "sets")):
        assert main([*words]) == 0 and main([*words, "--overwrite"]) == 0
        put(place, "notes.txt")
        kept(f"{place}/notes.txt", *words, "--overwrite")
        shutil.rmtree(place)
    for words, name in ((FIT, "map/map.safetensors"), (TRANSFER, "sets/result.json")):
        Path(name).parent.mkdir()
        Path(name).write_text("")  # the name alone proves nothing
        kept(name, *words, "--overwrite")


@pytest.mark.slow
def test_what_the_library_recorded_is_not_taken_for_a_flow_that_was_killed(kept):
    watch = [ad.Recorder(directory="run")]
    ad.flow(ad.LabeledDataset([[4.0]], ["a"]), ad.Potential(ad.norm()), n_steps=1, callbacks=watch)
    kept("run", "flow", S, T, "-o", "run", "--resume", *SHORT)
    assert main(["flow", S, T, "-o", "run", "--overwrite", *SHORT]) == 0
    Path("video").mkdir()
    Path("video/frames.jsonl").write_text('{"frame": 1, "seconds": 0.04}\n')
    kept("video/frames.jsonl", "flow", S, T, "-o", "video", "--overwrite", *SHORT)


@pytest.mark.slow
def test_a_flow_that_was_killed_before_its_first_checkpoint_is_begun_anew():
    assert main(["flow", S, T, "-o", "run", *SHORT]) == 0
    for path in [
        *Path("run").glob("checkpoint-*"),
        *Path("run").glob("*.jsonl"),
        Path("run/result.json"),
    ]:
        path.unlink()
    Path("run/.frames.jsonl.0123abcd-4711-0123456789ab.tmp").write_text("torn")
    assert main(["flow", S, T, "-o", "run", "--resume", *SHORT]) == 0
    assert foreign_file(Path("run"))[0] is None and not [*Path("run").glob(".*")]
    assert os.listdir() == ["run"]


@pytest.mark.slow
def test_what_comes_while_a_flow_replaces_another_stays(monkeypatch, capsys, content):
    assert main(["flow", S, T, "-o", "run", *SHORT]) == 0
    before = content("run")

    def slow(*given, **named):
        Path("run/notes.txt").write_text("mine")
        return make(*given, **named)

    monkeypatch.setattr("advect.cli.flow._run", slow)
    assert main(["flow", S, T, "-o", "run", "--overwrite", *SHORT]) == 2
    assert "run/notes.txt" in capsys.readouterr().err
    assert content("run") == before | {Path("notes.txt"): b"mine"}
    assert foreign_file(Path(".run.next"))[0] is None


@pytest.mark.slow
def test_the_directory_that_one_is_in_is_not_replaced(monkeypatch, kept):
    assert main(["flow", S, T, "-o", "run", *SHORT]) == 0
    monkeypatch.chdir("run/frames")
    for place in ("..", "../../run"):
        kept("cannot be replaced", "flow", S, T, "-o", place, "--overwrite", *SHORT)
    Path("../empty").mkdir()
    monkeypatch.chdir("../empty")
    assert main(["flow", S, T, "-o", ".", *SHORT]) == 0


def test_layouts_know_all_that_is_written():
    assert main(["flow", S, T, "-o", "run", "--n-steps", "2", "-q"]) == 0
    assert main([*FIT]) == 0 and main([*TRANSFER]) == 0
    for kind, place in (("run", "run"), ("map", "map"), ("sets", "sets")):
        assert foreign_file(Path(place), kind)[0] is None, place
