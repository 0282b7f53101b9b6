"""``python -m advect`` is the command line."""

import sys

from advect.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
