"""The README's Python and commands run as they stand, as a reader would type them, and print what is shown below them."""

import re
import runpy
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()
SAID = re.compile(r"```(?:python|sh)\n((?:(?!```).)*)```\n\n```text\n((?:(?!```).)*)```", re.DOTALL)


def same(shown: str, got: str) -> bool:
    """Whether words and numbers are those that are shown: numbers to rounding, and ... for anything.

    >>> same("value 2.50 in ... s", "value 2.5001 in 33.1 s"), same("value 2.5", "value 2.6")
    (True, False)
    >>> same("a\\n...", "a b"), same("a ... c", "a b"), same("...\\nend", "end x")
    (True, False, False)
    """
    words, parts = got.split(), [part.split() for part in shown.split("...")]
    if not alike(parts[0], words[: len(parts[0])]):
        return False
    at = len(parts[0])
    for part in parts[1:]:
        places = range(at, len(words) - len(part) + 1)
        found = [place for place in places if alike(part, words[place : place + len(part)])]
        if not found:
            return False
        at = (found[0] if part is not parts[-1] or not part else found[-1]) + len(part)
    return at == len(words) or not parts[-1]


def alike(shown: list[str], got: list[str]) -> bool:
    return len(shown) == len(got) and all(map(word_alike, shown, got))


def word_alike(shown: str, got: str) -> bool:
    try:
        return float(got) == pytest.approx(float(shown), rel=5e-3, abs=1e-9)
    except ValueError:
        return shown == got


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """An empty directory, and no data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADVECT_DATA", "")
    return tmp_path


def test_readme_snippets_run_and_say_what_is_shown(capsys, outside):
    blocks, shown = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL), dict(SAID.findall(TEXT))
    assert blocks and blocks[0] in shown
    names: dict[str, object] = {}
    for block in blocks:
        capsys.readouterr()
        exec(compile(block, "README.md", "exec"), names)
        got = capsys.readouterr().out
        assert block not in shown or same(shown[block], got), got
    assert names["result"].status == "completed"


def test_readme_command_lines_run_and_say_what_is_shown(capsys, outside):
    from advect.cli.app import main

    commands = {a: b for a, b in SAID.findall(TEXT) if a.startswith("advect ")}
    assert len(commands) >= 3
    for line, shown in commands.items():
        assert main(shlex.split(line)[1:]) == 0
        got = capsys.readouterr().out
        assert same(shown, got), got
    assert len(re.findall("^advect ", TEXT, re.M)) == len(commands)  # each with what it prints
    assert (outside / "out" / "run" / "report.html").exists()


def test_demo_runs(capsys, tmp_path):
    demo = runpy.run_path(str(ROOT / "examples" / "demo" / "digits_to_mnist.py"))
    demo["main"](["--particles", "100", "--steps", "3", "--epochs", "1", "--out", str(tmp_path)])
    assert "the frozen model reads" in capsys.readouterr().out
    names = {"digits-to-mnist.png", "class-distances.png", "report.html"}
    assert {path.name for path in tmp_path.iterdir()} == names
