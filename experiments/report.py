"""Write every measured number of the documentation from the files it was measured into.

    python experiments/report.py [--check]

docs/results.md is made from results.template.md. In README.md and the other pages of docs/, a block

    <!-- from a template, such as: a step takes {{ number }} times as long -->
    a step takes 11.8 times as long
    <!-- end -->

is written anew between its two comments. Templates are Jinja's, without code of their own: see
``words`` for what they can say. With --check nothing is written, and pages that would change are
named."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

import figures
import jinja2
import pages
import tables
from evidence import FOLDER

from advect._util.atomic import write_atomically

ROOT = FOLDER.parent
TEMPLATE = FOLDER / "results.template.md"
RESULTS = ROOT / "docs" / "results.md"
BLOCK = re.compile(
    r"(<!-- from\s(?P<template>.*?)-->\n)(?P<text>.*?)(?P<end><!-- end -->)", re.DOTALL
)


def words() -> dict[str, Any]:
    """What templates can say: ``read`` an experiment, its figure, and the tables of ``pages``."""
    return {
        "read": tables.Experiment.read,
        "figure": figures.reference,
        **pages.WORDS,
    }


def render(template: str) -> str:
    """A template with its numbers."""
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
    )
    environment.globals.update(words())
    return environment.from_string(template).render()


def rebuilt(page: Path) -> str:
    """A page as it has to be."""
    if page == RESULTS:
        head = "<!-- made by experiments/report.py from experiments/results.template.md -->\n\n"
        return head + render(TEMPLATE.read_text(encoding="utf-8")).rstrip() + "\n"

    def block(found: re.Match[str]) -> str:
        return f"{found[1]}{render(found['template'].strip()).strip()}\n{found['end']}"

    return BLOCK.sub(block, page.read_text(encoding="utf-8"))


def all_pages() -> list[Path]:
    """README.md and the guides."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def main(words: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--check", action="store_true", help="write nothing, name what differs")
    check = options.parse_args(words).check
    stale = []
    for page in all_pages():
        text = rebuilt(page)
        if page.read_text(encoding="utf-8") != text:
            stale.append(page)
            if not check:
                write_atomically(page, text.encode())
    stale += figures.stale() if check else figures.draw_all()
    for path in stale:
        print(f"{'stale' if check else 'wrote'} {path.relative_to(ROOT)}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
