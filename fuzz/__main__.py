"""`python -m fuzz`: see `fuzz.cli`."""

import sys

from fuzz.cli import main

if __name__ == "__main__":
    sys.exit(main())
