"""The `az-cv` command."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Examples
    --------
    >>> main(["--version"])
    Traceback (most recent call last):
    SystemExit: 0
    """
    import az_cv

    parser = argparse.ArgumentParser(
        prog="az-cv",
        description="Variance-reduced posterior summaries.",
        epilog="Example: az-cv demo",
    )
    parser.add_argument("--version", action="version", version=f"az-cv {az_cv.__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("demo", help="summarise the eight schools posterior that ships with az_cv")
    parser.parse_args(arguments)
    return run_demo()


def run_demo() -> int:
    """Print plain and variance-reduced summaries of eight schools."""
    import az_cv

    data = az_cv.load_eight_schools()
    start = time.perf_counter()
    table = az_cv.summary(data)
    seconds = time.perf_counter() - start
    print("Eight schools, 4 chains x 1,000 draws: az_cv.summary(data)\n")
    print(table.to_string())
    print(f"\nfamily  {table.attrs['family']}")
    print(f"folds   {table.attrs['folds']}")
    print(f"time    {seconds:.1f} s")
    gain = table["vrf_mean"].median()
    print(
        f"\nvrf is the variance reduction factor: with a median of {gain:.0f}, plain averages "
        f"would need {gain:.0f} times as many draws for these errors."
    )
    return 0
