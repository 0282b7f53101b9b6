"""How long until a command says its first word, until it says its first number, and what it costs.

    python benchmarks/first_word.py [path/to/other/src] [--repeats 5] [--json FILE]

Each command runs in a terminal of its own (a pty), this version and the other in turns. The first word is the first character
that is not blank, on whichever of stdout and stderr; the first number the first digit that the result has, on stdout alone, so
that neither progress nor a loading line counts. Seconds of the processor are those of the command and its children, and do not
depend on what else the machine does, as the others do. A row gives medians over repeats.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import re
import resource
import select
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
FLOW = (
    "flow digits mnist --max-samples 200 --n-steps 10 --integrator.step-size 0.2 -o run --overwrite"
)
COMMANDS = {
    "--help": "--help",
    "data list": "data list",
    "distance": "distance digits mnist --max-samples 200",
    "flow": FLOW,
    "show": "show run",  # of the flow before it
}
CONTROLS = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\s")
MEASURES = ("first word", "first number", "end", "processor")


def measure(source: Path, words: list[str], folder: Path) -> dict[str, float]:
    """Seconds to the first word, the first number and the end, and of the processor."""
    environment = {**os.environ, "PYTHONPATH": str(source), "ADVECT_DATA": "", "TERM": "xterm"}
    line = [sys.executable, "-m", "advect", *words]
    (out, their_out), (err, their_err) = pty.openpty(), pty.openpty()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    process = subprocess.Popen(
        line, stdout=their_out, stderr=their_err, cwd=folder, env=environment
    )
    os.close(their_out)
    os.close(their_err)
    found: dict[str, float] = {}
    said, open_ends = {out: b"", err: b""}, {out, err}
    while open_ends:
        for end in select.select(list(open_ends), [], [])[0]:
            try:
                part = os.read(end, 65536)
            except OSError:  # closed on the other side
                part = b""
            if not part:
                open_ends.discard(end)
                os.close(end)
                continue
            said[end] += part
            now = time.perf_counter() - begun
            if CONTROLS.sub(b"", said[end]):
                found.setdefault("first word", now)
            if end == out and re.search(rb"\d", CONTROLS.sub(b"", said[end])):
                found.setdefault("first number", now)
    if process.wait():
        sys.exit(f"{' '.join(line)} ended with {process.returncode}: {said[err].decode()}")
    found["end"] = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found["processor"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return found


def compare(versions: dict[str, Path], repeats: int) -> list[dict[str, object]]:
    """A row for each command and version."""
    times: dict[tuple[str, str], list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        places = {version: Path(folder, version) for version in versions}
        for place in places.values():
            place.mkdir()
        for _ in range(repeats):
            for command, line in COMMANDS.items():
                for version, source in versions.items():
                    one = measure(source, line.split(), places[version])
                    times.setdefault((command, version), []).append(one)
    return [
        {
            "command": command,
            "version": version,
            "repeats": repeats,
            **{
                name: round(statistics.median(values), 3)
                for name in MEASURES
                if (values := [one[name] for one in turns if name in one])
            },
        }
        for (command, version), turns in times.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path, nargs="?", help="the src folder of another version")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the rows here too")
    options = parser.parse_args()
    versions = {"after": HERE.parent / "src"}
    if options.other:
        versions = {"before": options.other.resolve(), **versions}
    rows = compare(versions, options.repeats)
    print(f"{'command':12}{'version':9}" + "".join(f"{name + ', s':>17}" for name in MEASURES))
    for row in rows:
        numbers = (f"{row[name]:17.2f}" if name in row else f"{'':17}" for name in MEASURES)
        print(f"{row['command']:12}{row['version']:9}" + "".join(numbers))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
