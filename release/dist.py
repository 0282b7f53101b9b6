"""Build what is released and try it as a stranger would: ``make dist``.

Wheel and source archive are built and checked, the wheel goes into an environment of its own in an
empty folder, and ``advect data list`` and a flow run there. The first thing that fails ends it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> None:
    """Run a command, and end here if it fails."""
    words = [str(word) for word in command]
    print("$", " ".join(Path(words[0]).name if word is words[0] else word for word in words))
    # neither this checkout nor the data of this machine is there
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "ADVECT_DATA")}
    done = subprocess.run(words, cwd=cwd, env=kept | environment)
    if done.returncode:
        sys.exit(f"make dist: `{' '.join(words)}` ended with {done.returncode}")


def build() -> tuple[Path, Path]:
    """The source archive, and the wheel made from it."""
    for old in DIST.glob("advect-*"):
        old.unlink()
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", DIST)
    run(sys.executable, "-m", "twine", "check", "--strict", *sorted(DIST.glob("advect-*")))
    (wheel,), (archive,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    return wheel, archive


def check_contents(wheel: Path, archive: Path) -> None:
    """Every file of the package is in both, and nothing else."""
    listed = subprocess.run(
        ["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    files = {line.removeprefix("src/") for line in listed.stdout.splitlines()}
    with zipfile.ZipFile(wheel) as packed:
        inside = {name for name in packed.namelist() if ".dist-info/" not in name}
    compared("wheel", inside, files)
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    inside = {name.removeprefix("src/") for name in names if name.startswith("src/")}
    compared("source archive", inside, files)


def compared(what: str, inside: set[str], files: set[str]) -> None:
    missing, more = sorted(files - inside), sorted(inside - files)
    if missing or more:
        sys.exit(f"make dist: the {what} lacks {missing[:5]} and has {more[:5]} besides")
    print(f"the {what} has the {len(files)} files of the package")


def try_it(wheel: Path) -> None:
    """Install the wheel where nothing is, and use it."""
    with tempfile.TemporaryDirectory(prefix="advect-dist-") as folder:
        place = Path(folder)
        venv.create(place / "env", with_pip=True)
        python = place / "env" / "bin" / "python"
        run(
            *(python, "-m", "pip", "install", "-qq", "--disable-pip-version-check"),
            *("--constraint", ROOT / "constraints.txt", wheel),
        )
        advect, work = place / "env" / "bin" / "advect", place / "work"
        work.mkdir()
        run(advect, "--version", cwd=work)
        run(advect, "data", "list", cwd=work)
        flow = ("flow", "toy:gaussians?n=60", "toy:moons?n=60", "--n-steps", "5", "-o", "run")
        run(advect, *flow, cwd=work)
        run(advect, "report", "run", cwd=work)
        run(advect, "show", "run", cwd=work)


def main() -> None:
    wheel, archive = build()
    check_contents(wheel, archive)
    try_it(wheel)
    for path in (wheel, archive):
        print(f"dist/{path.name}: {path.stat().st_size / 1024:.0f} kB")


if __name__ == "__main__":
    main()
