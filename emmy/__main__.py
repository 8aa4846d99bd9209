"""`python -m emmy` is the `emmy` command."""

import sys

from emmy.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
