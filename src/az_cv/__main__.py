"""`python -m az_cv` is the `az-cv` command."""

import sys

from az_cv.cli import main

if __name__ == "__main__":
    sys.exit(main())
