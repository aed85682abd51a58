"""Starts writers and kills them, for test_kills.py; prints what each left behind.

    python kill_writers.py FOLDER netcdf|zarr input|new COUNT

The writer does what ``az-cv summary --output`` does once the numbers are there. Processes are
forked from one that has imported everything, so that the moments of death are spread over the
writing, and not over imports.
"""

import os
import random
import shutil
import signal
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

from az_cv.cli.files import write_result
from az_cv.containers.traces import different_groups, open_trace


def trace(value):
    """Return a trace of a few MB with one number everywhere."""
    draws = np.full((4, 1000, 40), float(value))
    coords = {"chain": range(4), "draw": range(1000), "k": [f"label {i}" for i in range(40)]}
    group = xr.Dataset({"theta": (("chain", "draw", "k"), draws)}, coords)
    return xr.DataTree.from_dict({"posterior": group, "cv_draws": group * 2})


def write(data, target):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            write_result(pd.DataFrame(), data, target)
            status = 0
        finally:
            os._exit(status)
    return pid


def main(folder, kind, onto, count):
    warnings.simplefilter("ignore")
    suffix = ".nc" if kind == "netcdf" else ".zarr"
    old, new = trace(1), trace(2)
    target = Path(folder) / f"trace{suffix}"
    rng = random.Random(20261117)
    # How long a whole write takes, not knowing the file system.
    start = time.perf_counter()
    for _ in range(3):
        assert os.waitpid(write(old, target), 0)[1] == 0
    duration = (time.perf_counter() - start) / 3
    outcomes = {"old": 0, "new": 0, "absent": 0, "finished": 0}
    for _ in range(count):
        if onto == "new" and target.exists():
            shutil.rmtree(target) if target.is_dir() else target.unlink()
        elif onto == "input" and (not target.exists() or not is_equal(target, old)):
            os.waitpid(write(old, target), 0)
        pid = write(new, target)
        time.sleep(rng.uniform(0, 1.3) * duration)
        os.kill(pid, signal.SIGKILL)
        if os.waitpid(pid, 0)[1] == 0:
            outcomes["finished"] += 1
        if not target.exists():
            outcomes["absent"] += 1
        elif is_equal(target, old):
            outcomes["old"] += 1
        elif is_equal(target, new):
            outcomes["new"] += 1
        else:
            raise AssertionError(f"{target} is neither old nor new")
        for rest in Path(folder).glob(".az_cv-unfinished-*"):
            shutil.rmtree(rest)
    print(" ".join(f"{name}={number}" for name, number in outcomes.items()))


def is_equal(path, data):
    return not different_groups(open_trace(path), data)


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]))
