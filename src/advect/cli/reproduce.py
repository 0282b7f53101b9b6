"""``advect reproduce``: the experiments of a source checkout, by name."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from advect.cli.output import FAILED, TALK, TalkOptions, leave, say
from advect.errors import InputError


def reproduce(
    name: str | None = None,
    *arguments: Annotated[str, Parameter(allow_leading_hyphen=True)],
    talk: TalkOptions = TALK,
) -> None:
    """Run an experiment; without a name, list them.

    Args:
        name: Which experiment.
        arguments: Passed on to it, after --.
    """
    from advect._util.checks import check_known

    known = experiments()
    if name is None:
        width = max(map(len, known))
        lines = [f"{name:{width}}  {_first_line(path)}" for name, path in known.items()]
        talk.result(
            {"experiments": {name: _first_line(path) for name, path in known.items()}},
            "\n".join(lines),
        )
        return
    check_known("experiment", name, known)
    begun = time.perf_counter()
    # What the experiment prints is its result; with --json ours is, and what it prints goes to
    # stderr.
    done = subprocess.run(
        [sys.executable, *_command(known[name]), *arguments],
        stdout=sys.stderr if talk.as_json else None,
        check=False,
    )
    facts = {"experiment": name, "arguments": arguments, "exit": done.returncode}
    if talk.as_json:
        talk.result({**facts, "seconds": round(time.perf_counter() - begun, 1)}, "")
    if done.returncode:
        say(f"error: the experiment {name} ended with {done.returncode}")
        leave(FAILED)


def experiments() -> dict[str, Path]:
    """The scripts of a source checkout that can be run, and those whose cells run.py computes, by
    name.
    """
    folder = Path(__file__).resolve().parents[3] / "experiments"
    if not folder.is_dir() or not (folder.parent / "pyproject.toml").is_file():
        raise InputError(
            "experiments come with the sources of advect, not with the package",
            f"no {folder}",
            "Clone the repository, run pip install -e . there, and try again.",
        )
    return {
        path.stem: path
        for path in sorted(folder.glob("*.py"))
        if "__main__" in path.read_text(encoding="utf-8") or _has_cells(path)
    }


def _has_cells(path: Path) -> bool:
    return re.search(r"^NAME = ", path.read_text(encoding="utf-8"), re.MULTILINE) is not None


def _command(path: Path) -> list[str]:
    """What Python is to run: the script, or the runner of cells."""
    return [str(path.with_name("run.py")), path.stem] if _has_cells(path) else [str(path)]


def _first_line(path: Path) -> str:
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]
