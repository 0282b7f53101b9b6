"""``--overwrite`` removes only what advect wrote: whatever else is in a directory stays, and the command says so."""

import shutil
from pathlib import Path

import pytest
from flow_cases import content

import advect as ad
from advect.cli.app import main

S, T = "toy:gaussians?n=12&classes=2", "toy:gaussians?n=12&classes=2&seed=3"
SHORT = ("--n-steps", "1", "--no-report", "-q")
FLOW = ("flow", S, T, "-o", "run", *SHORT)
TRANSFER = ("transfer", S, T, "-o", "sets", "--n-steps", "1", "-q")


pytestmark = pytest.mark.usefixtures("empty")


@pytest.fixture
def kept(refused):
    """A command that is refused and touches nothing."""

    def run(named, *words):
        before = content()
        err = refused(named, *words)
        assert content() == before
        return err

    return run


FOREIGN = {  # a file of somebody else whose name is one of ours
    "config.toml": 'baseURL = "https://example.org"\ntitle = "Mine"\n',
    "config.toml ": f'source = "{S}"\ntarget = "{T}"\nsteps = 5\n',  # written by hand, for -c
    "env.json": '{"python": "3.12"}',
    "result.json": "no json at all",
    "frames.jsonl": '{"frame": 1, "seconds": 0.04}\n',
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_directory_of_others_is_not_replaced(name, kept):
    Path("run").mkdir()
    Path("run", name.strip()).write_text(FOREIGN[name])
    kept("run/", *FLOW, "--overwrite")
    Path("run/posts").mkdir()
    Path("run/posts/first.md").write_text("…")
    kept("run/", *FLOW, "--overwrite")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["notes.txt", "mine/thesis.tex", "frames/mine.png", "mine/", "link"]
)
def test_files_of_yours_in_a_run_stay(name, kept):
    assert main([*FLOW]) == 0
    put("run", name)
    assert "move" in kept(str(Path("run", name.partition("/t")[0])), *FLOW, "--overwrite")
    shutil.rmtree("run")
    assert main([*FLOW]) == 0 and main([*FLOW, "--overwrite"]) == 0


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
def test_files_of_yours_in_transfers_stay(kept):
    assert main([*TRANSFER]) == 0 and main([*TRANSFER, "--overwrite"]) == 0
    put("sets", "notes.txt")
    kept("sets/notes.txt", *TRANSFER, "--overwrite")
    shutil.rmtree("sets")
    Path("sets").mkdir()
    Path("sets/result.json").write_text("")  # the name alone proves nothing
    kept("sets/result.json", *TRANSFER, "--overwrite")


def test_overwrite_starts_anew_and_bad_input_keeps_the_old_run(kept, monkeypatch):
    assert main(["flow", S, T, "-o", "run", "--n-steps", "3", "--no-report", "-q"]) == 0
    Path("run/.frames.jsonl.0123abcd-4711-0123456789ab.tmp").write_text("torn")
    for bad in (["-f", "ball?radius=1"], ["--n-steps", "-1"], ["--record-every", "-2"]):
        kept("", "flow", S, T, "-o", "run", "--overwrite", *bad)
    kept("resume", *FLOW)
    before = content("run")
    with monkeypatch.context() as patch:  # an error at the first step
        patch.setattr("advect.flows.callbacks.save_snapshot", lambda *_: 1 / 0)
        assert main([*FLOW, "--overwrite"]) == 1 and content("run") == before
    assert main([*FLOW, "--overwrite"]) == 0
    assert ad.Trajectory.open("run").indices == [0, 1] and not [*Path("run").glob(".*")]


@pytest.mark.slow
def test_the_directory_that_one_is_in_is_not_replaced(monkeypatch, kept):
    assert main([*FLOW]) == 0
    monkeypatch.chdir("run/frames")
    for place in ("..", "../../run"):
        kept("cannot be replaced", "flow", S, T, "-o", place, "--overwrite", *SHORT)
    Path("../empty").mkdir()
    monkeypatch.chdir("../empty")
    assert main(["flow", S, T, "-o", ".", *SHORT]) == 0
