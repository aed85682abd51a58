"""Processor seconds of a summary beside programs that keep every processor busy.

    python examples/benchmarks/busy.py [--repeats 3]

Each line is the posterior of eight schools, 4 x 1000 draws, in a process of its own: with the
settings that a user has, and with one thread for linear algebra. The ratio says what threads burn
that wait for a processor.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys

SUMMARY = """
import time, warnings
warnings.simplefilter("ignore")
import az_cv
data = az_cv.load_eight_schools()
began = time.process_time()
az_cv.summary(data, attach=False, progressbar=False)
print(time.process_time() - began)
"""


def seconds(**environment: str) -> float:
    """Return the processor seconds of a summary in a process of its own."""
    left = {name: value for name, value in os.environ.items() if "NUM_THREADS" not in name}
    run = subprocess.run(
        [sys.executable, "-c", SUMMARY],
        env={**left, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(run.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    count = os.cpu_count() or 1
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        rows = [
            (seconds(), seconds(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1"))
            for _ in range(options.repeats)
        ]
    finally:
        for process in busy:
            process.kill()
    default, single = (statistics.median(column) for column in zip(*rows))
    print(f"beside {count} busy processes: {default:.1f} processor seconds as it comes,")
    print(f"{single:.1f} with one thread, ratio {default / single:.2f}")


if __name__ == "__main__":
    main()
