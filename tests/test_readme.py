"""The README's Python runs as it stands, block after block, as a reader would type it."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_readme_snippets_run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert len(blocks) >= 5
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    assert names["distance"].converged
    assert capsys.readouterr().out


def test_readme_command_lines_run(capsys, tmp_path, monkeypatch):
    from advect.cli.app import main

    monkeypatch.chdir(tmp_path)
    lines = re.findall(r"^advect (.*)$", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
    assert len(lines) >= 3
    for line in lines:
        assert main(shlex.split(line)) == 0
        assert capsys.readouterr().out.strip()
    assert (tmp_path / "out" / "run" / "report.html").exists()


def test_readme_names_the_two_commands():
    text = (ROOT / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    for command in ("demo", "test"):
        assert f"make {command}" in text
        assert re.search(rf"^{command}:", makefile, flags=re.MULTILINE)


def test_ci_only_calls_the_test_command():
    assert (ROOT / ".ci" / "run").read_text().rstrip().splitlines()[-1] == "make test"


def test_demo_runs(capsys, tmp_path):
    from advect.cli.demo import main

    main(["--particles", "100", "--steps", "3", "--epochs", "1", "--out", str(tmp_path)])
    out = capsys.readouterr().out
    assert "the frozen model reads" in out
    assert {path.name for path in tmp_path.iterdir()} == {
        "digits-to-mnist.png",
        "class-distances.png",
        "report.html",
    }
