"""Summarises or writes scores of a store slowly, for test_stream_stops.py, until it is stopped.

    python stream_child.py FOLDER summary|scores

FOLDER holds ``trace.zarr``. A file ``begun`` appears there in the middle of the work, and a file
``go`` makes the work quick.
"""

import signal
import sys
import time
from pathlib import Path

import xarray as xr

import az_cv

QUICK = 6  # pieces that take no time, so that something is done when the rest is stopped


class Slowly:
    """Takes its time over pieces after the first few, unless told to go on."""

    def __init__(self, folder, sign):
        self.folder, self.sign, self.count = folder, sign, 0

    def __call__(self, x):
        self.count += x.size >= 2000  # others are looks at single draws
        if self.count > QUICK and not (self.folder / "go").exists():
            (self.folder / "begun").touch()
            time.sleep(0.5)
        return self.sign * x


def main(folder, what):
    with xr.open_datatree(folder / "trace.zarr", engine="zarr", chunks={}) as data:
        if what == "scores":
            posterior = data["posterior"].to_dataset()
            slowly = Slowly(folder, -1)
            scores = az_cv.sources.write_scores(
                posterior, folder / "scores.zarr", model=lambda x: slowly(x), rows=100
            )
            assert bool((scores["gradient"] == -scores["unconstrained_draw"]).all())
            return
        scores = data["cv_scores"].to_dataset()
        slowly = Slowly(folder, 1)
        gradient = scores["gradient"]
        slow = gradient.copy(data=gradient.data.map_blocks(lambda x: slowly(x), dtype=float))
        try:
            az_cv.summary(
                data, scores=scores.assign(gradient=slow), memory_limit="2MB", progressbar=False
            )
        finally:
            print("groups:", *sorted(data.children))


if __name__ == "__main__":
    # A shell starts its background jobs deaf to Ctrl-C, and their children are.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main(Path(sys.argv[1]), sys.argv[2])
