"""Python files are run only if the user names them, or passes --run-code: hostile settings and
runs, at every door.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

import advect
from advect.cli.app import main
from advect.cli.code import Permission, load_object
from advect.errors import InputError

A, B = "toy:gaussians?n=12&classes=2&seed=1", "toy:gaussians?n=12&classes=2&seed=2"
SHORT = ["--n-steps", "1", "--no-report", "-q"]
EVIL = """
from pathlib import Path
Path(__file__).with_name("ran").touch()
import torch
import advect as ad
made = ad.Potential(ad.norm())
def f(rho):
    return 1.0
def embed(x):
    return x
"""
NAMES = ("evil.py", "ev?il.py", "ev*il.py", 'ev"il.py', "ev=il.py", "ev il.py")
NAMES += ("{evil.py", "evil.py:x.py", "0.5*evil.py", ".py")


@pytest.fixture(autouse=True)
def elsewhere(empty, tmp_path):
    """A directory with hostile files under every name, and whether one of them ran."""
    place = tmp_path / "elsewhere"
    place.mkdir()
    for name in NAMES:
        (place / name).write_text(EVIL)
    (tmp_path / ".py").write_text(EVIL)
    yield place
    assert not list(tmp_path.rglob("ran"))


def toml(text):
    return json.dumps(text)  # a basic string of TOML is one of JSON


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "line",
    [
        "metric = [{}]",
        "functional = [{}]",
        "functional = [{{name = {}}}]",
        "[cost]\nembedding = {}",
        "[space]\nencoder = {}",
        "[space]\nencoder = 'net.onnx'\ndecoder = {}",
    ],
)
def test_settings_do_not_run_code(line, name, refused):
    attribute = {"m": "f", "[": "embed"}.get(line[0], "made")
    Path("flow.toml").write_text(line.format(toml(f"elsewhere/{name}:{attribute}")))
    refused("", "flow", A, B, "-c", "flow.toml", "-o", "run", "--n-steps", "1", "--no-report")
    assert not Path("run").exists()


@pytest.mark.parametrize("command", ["distance", "matrix", "transfer"])
def test_an_embedding_of_settings_is_not_run(command, refused):
    more = ["-o", "out"] if command == "transfer" else []
    for option in ("[cost]\nembedding", "[space]\nencoder", "[space]\ndecoder"):
        Path("ask.toml").write_text(f"{option} = {toml('elsewhere/ev?il.py:embed')}")
        refused("", command, A, B, "-c", "ask.toml", *more)


@pytest.mark.slow
@pytest.mark.parametrize("metric", [False, True])
@pytest.mark.parametrize("command", ["resume", "report", "show", "map fit", "flow"])
def test_a_run_does_not_run_code(command, metric, elsewhere, refused):
    assert main(["flow", A, B, "-o", "run", "--n-steps", "2", "--no-report", "-q"]) == 0
    config = Path("run/config.toml")
    name = f"{elsewhere}/evil.py:made"
    if metric:
        line = f"metric = [{toml(name.replace('evil.py:made', 'ev?il.py:f'))}]"
        text = config.read_text().replace("metric = []", line)
    else:
        text = config.read_text().replace('functional = ["otdd"]', f"functional = [{toml(name)}]")
    assert text != config.read_text()
    config.write_text(text)
    if command == "resume":
        refused("", "resume", "run", "--n-steps", "3", "--no-report")
    elif command == "flow":
        refused("", "flow", "-c", config, "-o", "other", "--no-report")
    else:
        more = ["-o", "map", "--map", "nearest"] if command == "map fit" else []
        assert main([*command.split(), "run", *more, "-q"]) == 0  # its code is not needed


@pytest.mark.parametrize("line", ["run_code = true", "run-code = true", '"run-code" = "true"'])
def test_a_file_does_not_permit_itself(line, refused):
    Path("flow.toml").write_text(f"{line}\nmetric = ['elsewhere/evil.py:f']\n")
    assert "cannot permit" in refused(
        "", "flow", A, B, "-c", "flow.toml", "-o", "run", "--no-report"
    )


def test_the_environment_names_no_code(monkeypatch, refused):
    monkeypatch.setenv("ADVECT_METRIC", "elsewhere/evil.py:f")
    monkeypatch.setenv("ADVECT_COST_EMBEDDING", "elsewhere/evil.py:embed")
    refused("", "flow", A, B, "-o", "run", "--no-report")


def test_a_name_that_was_typed_permits_only_itself(elsewhere, refused):
    (elsewhere / "mine.py").write_text("import advect as ad\nmade = ad.Potential(ad.norm())\n")
    Path("flow.toml").write_text("metric = ['elsewhere/evil.py:f']\n")
    for out in ("run", "evil.py:f"):
        words = ["-c", "flow.toml", "-f", "elsewhere/mine.py:made", "-o", out, "--no-report"]
        refused("--run-code", "flow", A, *words)
    assert main(["flow", A, "-f", "2*elsewhere/mine.py:made", "-o", "run", *SHORT]) == 0
    odd = Path("odd?dir%41")
    odd.mkdir()
    (odd / "mine.py").write_text((elsewhere / "mine.py").read_text())
    assert main(["flow", A, "-f", f"{quote(str(odd))}/mine.py:made", "-o", "other", *SHORT]) == 0
    words = ["resume", "other", "--n-steps", "2", "--no-report", "-q"]
    refused("--run-code", *words)
    assert main([*words, "--run-code"]) == 0  # found by its absolute path


def test_only_options_that_take_code_name_it(elsewhere, refused):
    """A run directory, a configuration, a dataset or a place to write may be called like an object
    in a Python file.
    """
    Path("evil.py").write_text(EVIL)
    assert main(["flow", A, B, "-o", "evil.py:f", *SHORT]) == 0
    config, metric = Path("evil.py:f/config.toml"), toml(str(Path("evil.py:f").absolute()))
    config.write_text(config.read_text().replace("metric = []", f"metric = [{metric}]"))
    refused("", "resume", "evil.py:f", "--n-steps", "2", "--no-report")
    Path("sub").mkdir()
    Path("sub/evil.py").write_text(EVIL)
    Path("sub/evil.py:toml").write_text("metric = ['sub/evil.py:toml']\n")
    for words in (["-c", "sub/evil.py:toml"], ["--config=sub/evil.py:toml"]):
        refused("", "flow", A, B, *words, "-o", "run", "--no-report")
    Path("flow.toml").write_text("metric = ['evil.py:f']\n[cost]\nembedding = 'evil.py:f'\n")
    for words in (
        ["-o", "evil.py:f"],
        ["--out=evil.py:f"],
        ["-o", "run", "evil.py:f"],
        ["-o", "run", "--device", "evil.py:f"],
    ):
        refused("", "flow", A, *words, "-c", "flow.toml", "--no-report", "--resume")
    refused("", "transfer", A, B, "--extra", "evil.py:f", "-c", "flow.toml", "-o", "out")


@pytest.mark.parametrize("value", ["1", "true", "0"])
def test_a_variable_does_not_permit_code(value, monkeypatch, refused):
    Path("flow.toml").write_text("metric = ['elsewhere/evil.py:f']\n")
    monkeypatch.setenv("ADVECT_RUN_CODE", value)
    err = refused("", "flow", A, B, "-c", "flow.toml", "-o", "run", "--no-report")
    assert "ADVECT_RUN_CODE" in err and "--run-code" in err
    monkeypatch.delenv("ADVECT_RUN_CODE")
    monkeypatch.setenv("ADVECT_METRIC", "elsewhere/evil.py:f")  # nor does it name any
    refused("", "flow", A, B, "-o", "run", "--no-report")


def test_every_option_that_takes_code_names_it():
    Path("mine.py").write_text("def f(rho):\n    return 1.0\n\n\ndef embed(x):\n    return x\n")
    words = ["--metric", "mine.py:f", "--cost.embedding=mine.py:embed"]
    assert main(["flow", A, B, "-o", "run", *words, *SHORT]) == 0


def test_the_loader_itself_asks(elsewhere):
    for name in NAMES:
        with pytest.raises(InputError, match="only if you name it"):
            load_object(f"{elsewhere}/{name}:f", "a metric", Permission())
    with pytest.raises(InputError, match="only if you name it"):
        load_object("f", "a metric", Permission())


@pytest.mark.parametrize("code", [0, 3, "'bye'"])
def test_a_file_that_ends_the_program_is_told(code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("ends.py").write_text(f"import sys\nsys.exit({code})\n")
    assert main(["flow", A, B, "-o", "run", "-f", "ends.py:f", *SHORT]) == 2
    assert "SystemExit" in capsys.readouterr().err and not Path("run").exists()


def test_a_file_may_change_folders_and_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path)
    Path("mine.py").write_text("import os, sys\nos.chdir('/')\nsys.path = []\nf = 5\n")
    assert load_object("mine.py:f", "a metric", Permission(everything=True)) == 5
    assert Path.cwd() == tmp_path


DOORS = ("spec_from_file", "runpy", "exec(", "eval(", "__import__", "SourceFileLoader", "os.system")
DOORS += ("popen", "subprocess", "pickle.load", "torch.load(", "joblib.load(", "allow_pickle=True")
DOORS += ("trust_remote_code",)
KNOWN = {("cli/code.py", "spec_from_file"), ("io/formats/registry.py", "import")}
IMPORT = re.compile(r"import_module\((?!\"[a-z.A-Z]+\"|module\))")  # not of a constant name


def test_code_is_loaded_in_one_place():
    """Whatever else could run a file by name would be a second door."""
    root = Path(advect.__file__).parent
    found = set()
    for path in root.rglob("*.py"):
        lines = [
            line.replace(".eval()", "") for line in path.read_text(encoding="utf-8").splitlines()
        ]
        code = "\n".join(line for line in lines if not line.lstrip().startswith((">>>", "#")))
        found |= {(path.relative_to(root).as_posix(), door) for door in DOORS if door in code}
        found |= {(path.relative_to(root).as_posix(), "import") for _ in IMPORT.finditer(code)}
    assert found == KNOWN


@pytest.mark.slow
def test_a_hostile_run_in_a_process(elsewhere):
    """The same through the real door."""
    Path("flow.toml").write_text(f"metric = [{toml('elsewhere/ev?il.py:f')}]\n")
    done = subprocess.run(
        [sys.executable, "-m", "advect", "flow", A, B, "-c", "flow.toml", "-o", "run"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and "--run-code" in done.stderr and not (elsewhere / "ran").exists()
