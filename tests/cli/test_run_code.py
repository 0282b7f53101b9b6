"""Python files run only if the user types their names or passes --run-code: hostile configuration files
and run directories.
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
    """A directory with hostile files under every name; none of them may run."""
    place = tmp_path / "elsewhere"
    place.mkdir()
    for name in NAMES:
        (place / name).write_text(EVIL)
    (tmp_path / ".py").write_text(EVIL)
    yield place
    assert not list(tmp_path.rglob("ran"))


def toml(text):
    return json.dumps(text)  # a basic string of TOML is one of JSON


@pytest.mark.parametrize("name", [*NAMES, "evil%2Epy", "ev%69l.py"])
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
def test_a_configuration_does_not_run_code(line, name, refused):
    attribute = {"m": "f", "[": "embed"}.get(line[0], "made")
    Path("flow.toml").write_text(line.format(toml(f"elsewhere/{name}:{attribute}")))
    refused("", "flow", A, B, "-c", "flow.toml", "-o", "run", "--n-steps", "1", "--no-report")
    assert not Path("run").exists()
    if line.startswith("["):
        refused("", "transfer", A, B, "-c", "flow.toml", "-o", "sets")


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
def test_a_configuration_does_not_permit_itself(line, refused):
    Path("flow.toml").write_text(f"{line}\nmetric = ['elsewhere/evil.py:f']\n")
    assert "permit" in refused("", "flow", A, B, "-c", "flow.toml", "-o", "run", "--no-report")


def test_a_typed_name_permits_only_itself(elsewhere, refused):
    (elsewhere / "mine.py").write_text("import advect as ad\nmade = ad.Potential(ad.norm())\n")
    Path("flow.toml").write_text("metric = ['elsewhere/evil.py:f']\n")
    words = ["-c", "flow.toml", "-f", "elsewhere/mine.py:made", "--no-report"]
    for out in ("run", "evil.py:f"):
        refused("--run-code", "flow", A, *words, "-o", out)
    refused("--run-code", "flow", A, *words, "-o", "run", "--device", "elsewhere/evil.py:f")
    assert main(["flow", A, "-f", "2*elsewhere/mine.py:made", "-o", "run", *SHORT]) == 0
    odd = Path("odd?dir%41")
    odd.mkdir()
    (odd / "mine.py").write_text((elsewhere / "mine.py").read_text())
    assert main(["flow", A, "-f", f"{quote(str(odd))}/mine.py:made", "-o", "other", *SHORT]) == 0
    words = ["resume", "other", "--n-steps", "2", "--no-report", "-q"]
    refused("--run-code", *words)
    assert main([*words, "--run-code"]) == 0  # found by its absolute path
    again = ["flow", "-c", "other/config.toml", "-o", "again", *SHORT]
    refused("--run-code", *again)
    assert main([*again, "--run-code"]) == 0


def test_every_option_that_takes_code():
    Path("mine.py").write_text("def f(rho):\n    return 1.0\n\n\ndef embed(x):\n    return x\n")
    words = ["--metric", "mine.py:f", "--cost.embedding=mine.py:embed"]
    assert main(["flow", A, B, "-o", "run", *words, *SHORT]) == 0


@pytest.mark.parametrize(
    ("text", "term", "word"),
    [
        ("import sys\nsys.exit(0)\n", "mine.py:f", "SystemExit"),
        ("f = 5\n", "mine.py:f", "cannot be made"),
        ("f = 5\n", "mine.py:g", "Name one of these"),
        ("f = 5\n", "mine.py:f.g", "path.py:name"),
        ("def f(a):\n    return a\n", "mine.py:f?a=1", "must be a Functional"),
        ("def f(a):\n    return a\n", "mine.py:f?b=1", "unknown option"),
        ("import advect as ad\nf = ad.Potential(ad.norm())\n", "mine.py:f?a=1", "not a class"),
    ],
)
def test_files_that_cannot_be_used_are_named(text, term, word, refused):
    Path("mine.py").write_text(text)
    assert word in refused("mine.py", "flow", A, B, "-o", "run", "-f", term, *SHORT)
    assert not Path("run").exists()


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
def test_a_hostile_configuration_in_a_process(elsewhere):
    Path("flow.toml").write_text(f"metric = [{toml('elsewhere/ev?il.py:f')}]\n")
    done = subprocess.run(
        [sys.executable, "-m", "advect", "flow", A, B, "-c", "flow.toml", "-o", "run"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and "--run-code" in done.stderr and not (elsewhere / "ran").exists()
