"""The commands in the documentation run: those of the guide to the command line in order, with its files, and those of
other pages on small files of the names that they use."""

import os
import re
import shlex
from pathlib import Path

import pandas as pd
import pytest
import torch

import advect as ad
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


COMMAND = re.compile(r"^(?:\$ )?(advect .*)$", re.MULTILINE)
FENCE = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)


def typed(page):
    """The lines of a page that begin with advect, in blocks of a shell."""
    shells = [
        text for kind, text in FENCE.findall(page.read_text()) if kind in ("", "sh", "console")
    ]
    return COMMAND.findall("\n".join(shells))


OTHERS = {
    page: lines
    for page in sorted(GUIDE.parent.glob("*.md"))
    if page != GUIDE and (lines := typed(page))
}


@pytest.mark.slow
@pytest.mark.parametrize("page", OTHERS, ids=lambda page: page.stem)
def test_commands_of_other_pages_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    data = ad.datasets.load("toy:gaussians?n=60")
    pool = ad.LabeledDataset(data.samples)
    chances = 0.7 * torch.eye(3)[data.y] + 0.1
    votes = torch.cat([data.x, chances], dim=1).numpy()
    columns = ["x[0]", "x[1]", "p_cat", "p_dog", "p_fox"]
    pd.DataFrame(votes, columns=columns).to_csv("votes.csv", index=False)
    for line in OTHERS[page]:
        if "target=price" in line:
            data = data.replace(targets=data.x[:, 0], target_columns=["price"])
        for name in re.findall(r"(?<!-o )(?<!ed )\b[\w-]+\.(?:npz|csv|parquet)", line):
            if not Path(name).exists():
                (pool if name == "pool.npz" else data).save(name)
        assert main(shlex.split(line.replace("cuda", "cpu"), comments=True)[1:]) in (0, 4), line
        assert capsys.readouterr().out, line


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
