"""``python -m advect``, and the command ``advect``: the command line, which Ctrl-C may end while it
is being loaded.
"""

from __future__ import annotations

import sys

from advect.cli.interrupt import NotedInterrupt, obey
from advect.cli.loading import saying


def main() -> int:
    """Run the command line that the shell gave, and give its exit code."""
    with NotedInterrupt() as noted:
        try:
            with saying("loading …"):
                from advect.cli.app import main as run

            obey()
            return run()
        except (KeyboardInterrupt, Exception):
            if not noted.came:
                raise
            print("interrupted", file=sys.stderr)
            return 130


if __name__ == "__main__":
    sys.exit(main())
