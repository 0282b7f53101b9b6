"""The guide to the command line runs as it stands: its files are written, its lines typed one after the other."""

import os
import re
import shlex
from pathlib import Path

import pytest

from advect.cli.app import main

GUIDE = Path(__file__).parents[2] / "docs" / "command-line.md"
BLOCK = re.compile(r"```(sh|py|toml)\n(.*?)```", re.DOTALL)


@pytest.mark.slow
def test_guide_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADVECT_DATA", "")
    monkeypatch.setattr(os, "fsync", lambda _: None)
    blocks = BLOCK.findall(GUIDE.read_text(encoding="utf-8"))
    assert len(blocks) > 10
    for kind, text in blocks:
        if kind != "sh":
            name = re.match(r"# (\S+)\n", text)
            assert name is not None, "a file of the guide begins with its name"
            Path(name[1]).write_text(text, encoding="utf-8")
            continue
        for line in text.splitlines():
            run(line, monkeypatch, capsys)


def run(line, monkeypatch, capsys):
    words = shlex.split(line)
    with monkeypatch.context() as settings:
        while "=" in words[0]:
            settings.setenv(*words.pop(0).split("=", 1))
        assert words[0] == "advect", line
        code = main([*words[1:], *([] if "--help" in words or ".py:" in words[1] else ["-q"])])
    captured = capsys.readouterr()
    assert code == 0, f"{line}\n{captured.err}"
    assert captured.out.strip(), line
