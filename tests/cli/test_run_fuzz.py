"""Every file of a run, damaged in every way: an answer, or one sentence about the file; never a traceback, never a hang."""

import json
import random
import shutil
import warnings
from pathlib import Path

import pytest
import torch
from deadlines import within

import advect as ad
from advect.cli.app import main
from advect.cli.rundir import RunConfig, read_json
from advect.data.store import read_tensors, write_tensors
from advect.flows.snapshots import load_snapshot
from advect.io.logs import read_lines

A, B = "toy:gaussians?n=12&classes=2&seed=1", "toy:gaussians?n=10&classes=2&seed=2"
NEVER = (b"", b"\0" * 64, b"[" * 100_000, b'{"a":' * 50_000, b"\xff\xfe", b"1" * 5000)
NEVER += (b"{}", b"[]", b"null", b'"x"', b"NaN")
ODD = (None, True, -1, 0, 1e308, float("nan"), 10**30, "", "x", "\ud800", [], {}, [[]])
ODD += ({"tuple": 3}, [1, "a"])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run and a map on it: all that is written."""
    place = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setattr("os.fsync", lambda _: None)
        words = "--n-steps 4 --record-every 1 --checkpoint-every 2 --dynamics jd-fl --no-report -q"
        assert main(["flow", A, B, "-o", "run", *words.split()]) == 0
        frames = ad.Trajectory.open("run")
        ad.maps.EntropicMap().fit(frames[0].dataset, frames[-1].dataset).save("map.safetensors")
        index = ad.DatasetIndex(ad.datasets.load(A), n_directions=3, n_levels=4)
        index.add("a", ad.datasets.load(A))
        index.add("b", ad.datasets.load(B))
        index.save("sets.index")
    return place


@pytest.fixture(autouse=True)
def place(made, tmp_path, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda _: None)
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def cli(*words):
    return lambda: main([*words, "-q"])


SHOW, RESUME = cli("show", "run"), cli("resume", "run", "--n-steps", "4", "--no-report")
REPORT = cli("report", "run", "-o", "page.html", "--overwrite")
CONVERT = cli("data", "convert", "run:run@-1", "-o", "out.npz", "--overwrite")
COMMANDS = (SHOW, RESUME, REPORT, CONVERT)


def frames():
    return [frame.dataset.labels for frame in ad.Trajectory.open("run")]


def load(function, path):
    return lambda: function(Path(path))


def nearest():
    index = ad.DatasetIndex.load("sets.index")
    index.nearest(ad.datasets.load(A))
    index.save("again.index")


FILES = {  # each with the doors through which it is read
    "run/config.toml": [SHOW, RESUME, REPORT, load(RunConfig.read, "run")],
    "run/env.json": [RESUME, load(read_json, "run/env.json")],
    "run/result.json": [SHOW, REPORT],
    "run/space.json": [RESUME, CONVERT],
    "run/frames.jsonl": [SHOW, RESUME, REPORT, frames],
    "run/metrics.jsonl": [SHOW, RESUME, REPORT, load(read_lines, "run/metrics.jsonl")],
    "run/frames/000004.safetensors": [REPORT, CONVERT, frames],
    "run/checkpoint-a.safetensors": [SHOW, RESUME],
    "run/checkpoint-b.safetensors": [SHOW, RESUME, load(load_snapshot, "run")],
    "map.safetensors": [load(ad.maps.load, "map.safetensors")],
    "sets.index": [nearest],
}


def changed_bytes(content, draw):
    """One of the ways in which a disk, a network or an editor damages a file."""
    at, size = draw.randrange(len(content)), draw.choice((1, 1, 2, 8, 100))
    before, after = content[:at], content[at:]
    flipped, other = content[at] ^ (1 << draw.randrange(8)), draw.randrange(256)
    sign = draw.choice((b"\n", b'"', b"}", b",", b"9", b"-", b"\0", b"e"))
    return draw.choice(
        (
            *(before + new + after[1:] for new in (bytes([flipped]), bytes([other]), sign)),
            *(before + new + after[size:] for new in (b"", bytes(size))),
            *(before + new + after for new in (draw.randbytes(size), draw.choice(NEVER))),
            before + content[max(0, at - size) :],
            *(before, draw.choice(NEVER)),
        )
    )


def changed_value(value, draw):
    """The same with one entry, somewhere inside, that is odd or missing."""
    if isinstance(value, dict) and value and draw.random() < 0.8:
        name = draw.choice(sorted(value))
        rest = {key: part for key, part in value.items() if key != name}
        return rest if draw.random() < 0.2 else {**value, name: changed_value(value[name], draw)}
    if isinstance(value, list) and value and draw.random() < 0.8:
        at = draw.randrange(len(value))
        return [*value[:at], changed_value(value[at], draw), *value[at + 1 :]]
    return draw.choice(ODD)


def damage(path, content, draw):
    """Damage a file in place; where it has parts, also those, with all checks around them right."""
    if path.suffix in (".safetensors", ".index") and draw.random() < 0.4:
        path.write_bytes(content)
        tensors, facts = read_tensors(path)
        if draw.random() < 0.6:
            facts = changed_value(facts, draw)
        else:
            name = draw.choice(sorted(tensors))
            kept = tensors[name]
            odd = (kept.flatten()[:1], kept.double(), kept.flatten()[:0], kept.long() - 9, kept * 0)
            tensors = {key: part for key, part in tensors.items() if key != name}
            tensors |= {} if draw.random() < 0.2 else {name: draw.choice(odd)}
        try:
            write_tensors(path, tensors, facts)
        except UnicodeEncodeError:
            path.write_bytes(changed_bytes(content, draw))
    elif path.suffix == ".json" and draw.random() < 0.6:
        path.write_text(json.dumps(changed_value(json.loads(content), draw)))
    else:
        path.write_bytes(changed_bytes(content, draw))


def unexpected(door, capsys):
    """What came that should not have; None if an answer did, or an error that names what is wrong."""
    try:
        with within(30), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = door()
    except ad.InputError:
        return None
    except BaseException as error:
        return repr(error)
    err = capsys.readouterr().err
    bad = "Traceback" in err or "failed:" in err or (isinstance(code, int) and code not in (0, 2))
    return f"exit {code}: {err[-300:]}" if bad else None


def attack(name, count, capsys, place):
    """Damage a file so often and go through all doors; what came that should not have, by the number of the damage."""
    path, found = Path(name), {}
    content = path.read_bytes()
    whole = place.with_name("whole")
    shutil.copytree(place, whole, symlinks=True, dirs_exist_ok=True)
    for number in range(count):
        draw = random.Random(f"{name} {number}")
        damage(path, content, draw)
        broken = path.read_bytes()
        for at, door in enumerate(FILES[name]):
            if number >= 50 and door in COMMANDS:
                continue
            if why := unexpected(door, capsys):
                found[number, at] = why
            if door is RESUME:
                shutil.rmtree("run")
                shutil.copytree(whole / "run", "run")
            path.write_bytes(broken)
    path.write_bytes(content)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_damage_is_an_answer_or_a_sentence(name, capsys, place):
    """50 times through the commands, 300 times through the readers."""
    assert attack(name, 300, capsys, place) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run/frames.jsonl", "run/metrics.jsonl"])
def test_one_bad_byte_of_a_log_costs_a_line(name, capsys):
    """Frames and checkpoints are whole: all that looks at a run goes on, and says which line is bad."""
    path = Path(name)
    content = path.read_bytes()
    draw = random.Random(0)
    for door in (SHOW, REPORT, RESUME):
        for at in draw.sample(range(len(content) - 1), 6 if door is REPORT else 20):
            path.write_bytes(content[:at] + bytes([content[at] ^ 0x15]) + content[at + 1 :])
            assert door() == 0, (at, capsys.readouterr().err)
            if door is RESUME and name == "run/frames.jsonl":
                assert set(path.read_bytes().split(b"\n")) <= set(content.split(b"\n"))
    path.write_bytes(content.replace(b'"index": 2', b'"index": 7', 1))
    line = 1 + content[: content.index(b'"index": 2')].count(b"\n")
    assert main(["show", "run"]) == 0
    said = capsys.readouterr()
    assert f"skipped: line {line}" in said.err
    if path.name == "frames.jsonl":
        assert "0, 1, 3, 4\n" in said.out


def test_a_damaged_frame_costs_itself(capsys):
    path = Path("run/frames/000002.safetensors")
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    assert main(["report", "run", "-o", "page.html"]) == 0
    assert "000002.safetensors" in capsys.readouterr().err
    assert "000002.safetensors" in Path("page.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run/frames/000004", "run/checkpoint-a", "map"])
def test_the_checksum_covers_every_byte(name):
    """A file with one changed byte is refused, or says what it said before."""
    path = Path(f"{name}.safetensors")
    content, (tensors, facts) = path.read_bytes(), read_tensors(path)
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        try:
            changed_tensors, changed_facts = read_tensors(path)
        except ad.InputError:
            continue
        assert changed_facts == facts and changed_tensors.keys() == tensors.keys(), at
        assert all(torch.equal(changed_tensors[key], tensors[key]) for key in tensors), at


@pytest.mark.slow
def test_the_same_run_gives_the_same_bytes(place):
    words = ["--n-steps", "4", "--record-every", "1", "--no-report", "-q", "--dynamics", "jd-fl"]
    for name in ("one", "two"):
        assert main(["flow", A, B, "-o", name, *words]) == 0
    files = ["frames.jsonl", "space.json", "config.toml"]
    files += [f"frames/{path.name}" for path in Path("one/frames").iterdir()]
    assert len(files) == 8
    for name in files:
        assert Path("one", name).read_bytes() == Path("two", name).read_bytes(), name


def test_changed_data_is_refused(capsys):
    assert main(["data", "convert", A, "-o", "a.npz", "-q"]) == 0
    assert main(["flow", "a.npz", B, "-o", "moved", "--n-steps", "1", "--no-report", "-q"]) == 0
    assert main(["data", "convert", B, "-o", "a.npz", "--overwrite", "-q"]) == 0
    assert main(["resume", "moved", "--n-steps", "2", "-q"]) == 2
    assert "changed" in capsys.readouterr().err
