"""`python -m fuzz`: see `fuzz.cli`."""

import sys

import properties.interpreter  # noqa: F401 (before triton is imported)
from fuzz.cli import main

if __name__ == "__main__":
    sys.exit(main())
