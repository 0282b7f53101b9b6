"""``python -m advect`` and the command ``advect``."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line and return its exit code."""
    try:
        from advect.cli.app import main as run

        return run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
