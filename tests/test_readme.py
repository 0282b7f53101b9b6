"""The README's Python runs as it stands, block after block, as a reader would type it."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_readme_snippets_run(capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert len(blocks) >= 5
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    assert names["distance"].converged
    assert capsys.readouterr().out


def test_readme_names_the_two_commands():
    text = (ROOT / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    for command in ("demo", "test"):
        assert f"make {command}" in text
        assert re.search(rf"^{command}:", makefile, flags=re.MULTILINE)


def test_ci_only_calls_the_test_command():
    assert (ROOT / ".ci" / "run").read_text().rstrip().splitlines()[-1] == "make test"


def test_demo_runs(capsys, tmp_path):
    from advect.demo import main

    main(["--particles", "100", "--steps", "3", "--out", str(tmp_path)])
    out = capsys.readouterr().out
    assert "the frozen model reads" in out
    assert {path.name for path in tmp_path.iterdir()} == {"digits-to-mnist.png", "class-distances.png", "report.html"}
