"""Pin the development environment: ``make lock`` writes constraints.txt (versions, for any machine)
and requirements-dev.lock (versions and hashes, for this kind of machine).

pip resolves; what is pinned already stays unless ``--upgrade`` is given. The lock has the files that
pip took here, so it holds for one platform and one Python, which its first line names; everywhere
else constraints.txt gives the same versions.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from advect._util.atomic import write_atomically

ROOT = Path(__file__).parents[1]
CONSTRAINTS, LOCK = ROOT / "constraints.txt", ROOT / "requirements-dev.lock"
EXTRAS = "dev,docs,data,frames,release"
KEPT = ("torch",)  # newer releases bring gigabytes for GPUs: raised by hand


def resolved(pins: dict[str, str]) -> list[dict]:
    """What pip would install for development: names, versions, hashes."""
    command = [sys.executable, "-m", "pip", "install", "-qq", "--dry-run", "--ignore-installed"]
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder, "constraints.txt")
        given.write_text(listed(pins))
        command += ["--disable-pip-version-check", "--report", "-", "--constraint", str(given)]
        done = subprocess.run([*command, f"{ROOT}[{EXTRAS}]"], stdout=subprocess.PIPE, check=True)
    rows = json.loads(done.stdout)["install"]
    return [row for row in rows if row["metadata"]["name"] != "advect"]


def pinned(text: str) -> dict[str, str]:
    """Lines name==version as a dictionary, names as pip compares them.

    >>> pinned("PyYAML==6.0.3\\nml_dtypes==0.6.0 \\\\\\n    --hash=sha256:00\\n# a remark")
    {'pyyaml': '6.0.3', 'ml-dtypes': '0.6.0'}
    """
    pairs = (line.split("==", 1) for line in text.splitlines() if "==" in line)
    return {canonical(name): version.split()[0] for name, version in pairs}


def listed(pins: dict[str, str]) -> str:
    """One line name==version for each, in the order of names."""
    return "".join(f"{name}=={pins[name]}\n" for name in sorted(pins, key=canonical))


def canonical(name: str) -> str:
    return name.strip().lower().replace("_", "-").replace(".", "-")


def write(path: Path, text: str) -> None:
    """Write what is new: a file that stays as it is keeps its date, and make installs nothing again."""
    if path.read_text() != text:
        write_atomically(path, text.encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions")
    options = parser.parse_args()
    before = pinned(CONSTRAINTS.read_text())
    kept = {name: before[name] for name in KEPT}
    rows = resolved(kept if options.upgrade else before)
    versions = {row["metadata"]["name"]: row["metadata"]["version"] for row in rows}
    # a build of torch ("+cpu") is chosen by the machine
    versions = {name: version.split("+")[0] for name, version in versions.items()}
    known = {canonical(name) for name in versions}
    versions |= {name: version for name, version in before.items() if name not in known}
    write(CONSTRAINTS, listed(versions))
    where = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    lines = [
        f"# {where}, torch for the CPU. Made by `make lock`; used by",
        "# `pip install --require-hashes --requirement requirements-dev.lock`, then `pip install --no-deps --editable .`",
    ]
    for row in sorted(rows, key=lambda row: canonical(row["metadata"]["name"])):
        name, version = row["metadata"]["name"], row["metadata"]["version"]
        digest = row["download_info"]["archive_info"]["hashes"]["sha256"]
        lines.append(f"{name}=={version} \\\n    --hash=sha256:{digest}")
    write(LOCK, "\n".join(lines) + "\n")
    print(f"{len(rows)} packages in {LOCK.name}, {len(versions)} in {CONSTRAINTS.name}")


if __name__ == "__main__":
    main()
