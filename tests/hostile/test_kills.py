"""A trace that is being written survives the end of the process, a full disk, a closed folder."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import xarray as xr

import az_cv
from az_cv.containers.replacing import FileProblemError, replacing
from az_cv.containers.traces import open_trace

KILLS = 50
RUN = [sys.executable, "-c", "import sys; from az_cv.cli import main; sys.exit(main())"]
MU = ["--family", "polynomial", "--var-names", "mu"]


@pytest.mark.long
@pytest.mark.parametrize("onto", ["input", "new"])
@pytest.mark.parametrize("kind", ["netcdf", "zarr"])
def test_a_killed_writer_leaves_the_old_trace_or_the_new_one(tmp_path, kind, onto):
    script = Path(__file__).with_name("kill_writers.py")
    command = [sys.executable, script, tmp_path, kind, onto, str(KILLS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    outcomes = dict(re.findall(r"(\w+)=(\d+)", done.stdout))
    counts = {name: int(number) for name, number in outcomes.items()}
    assert counts["old"] + counts["new"] + counts["absent"] == KILLS
    # Some writers were killed before they were done, and onto the input nothing went missing.
    assert counts["finished"] < KILLS
    assert counts["absent" if onto == "input" else "old"] == 0


@pytest.fixture
def trace(tmp_path):
    """Return a folder with one trace of two kinds."""
    data = az_cv.load_eight_schools().isel(draw=slice(None, 60))
    data.to_netcdf(tmp_path / "trace.nc", engine="h5netcdf")
    data.to_zarr(tmp_path / "trace.zarr", zarr_format=2)
    return tmp_path


def untouched(folder, names):
    """Check that traces are readable and nothing else is left in the folder."""
    data = az_cv.load_eight_schools().isel(draw=slice(None, 60))
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    for name in names:
        xr.testing.assert_equal(
            open_trace(folder / name)["posterior"].to_dataset(), data["posterior"].to_dataset()
        )


@pytest.mark.parametrize("name", ["trace.nc", "trace.zarr"])
@pytest.mark.parametrize("output", ["trace", "new"])
def test_a_file_that_may_not_grow(trace, name, output):
    """A limit on the size of files stands in for a quota, and fails a write half way."""
    target = output + Path(name).suffix

    code = (
        "import resource, sys; from az_cv.cli import main; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048)); sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "summary", name, *MU, "--output", target],
        cwd=trace,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert f"az-cv: error: {target} cannot be written" in done.stderr
    assert "vrf_mean" in done.stdout  # the numbers are not lost
    untouched(trace, ["trace.nc", "trace.zarr"])


def _can_mount():
    try:
        command = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("name", ["trace.nc", "trace.zarr"])
def test_a_disk_that_is_full(trace, name):
    """With the right to mount, a real disk of 600 kB; else as above."""
    if not _can_mount():
        test_a_file_that_may_not_grow(trace, name, "trace")
        return
    disk = trace / "disk"
    disk.mkdir()
    kept = trace / "kept"
    code = (
        "mount -t tmpfs -o size=600k none disk && cp -r {name} disk/ && cd disk && "
        "head -c 1000000 /dev/zero > filler; {run} summary {name} {options} --output {name}; "
        "status=$?; rm filler; cp -r . {kept}; exit $status"
    ).format(
        name=name,
        run=f"{sys.executable} -c 'import sys; from az_cv.cli import main; sys.exit(main())'",
        options=" ".join(MU),
        kept=kept,
    )
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", code],
        cwd=trace,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "No space left on device. It was left as it was." in done.stderr
    untouched(kept, [name])


@pytest.mark.parametrize("name", ["trace.nc", "trace.zarr"])
@pytest.mark.parametrize("output", ["trace", "new"])
def test_a_folder_that_is_read_only(trace, name, output):
    target = output + Path(name).suffix
    # The superuser may write anywhere unless it gives that right up.
    drop = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"] if os.geteuid() == 0 else []
    trace.chmod(0o555)
    try:
        done = subprocess.run(
            [*drop, *RUN, "summary", name, *MU, "--output", target],
            cwd=trace,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        trace.chmod(0o755)
    assert done.returncode == 1
    state = "It was left as it was." if output == "trace" else "Nothing was written."
    assert f"{target} cannot be written: Permission denied. {state}" in done.stderr
    assert done.stdout == ""  # noticed before anything was computed
    untouched(trace, ["trace.nc", "trace.zarr"])


def test_a_file_system_without_exchange_keeps_a_trace(trace, monkeypatch):
    """Where two folders cannot change names in one step, the old one makes room."""
    monkeypatch.setattr("az_cv.containers.replacing._exchange", lambda first, second: False)
    from az_cv.cli import main

    monkeypatch.chdir(trace)
    assert main(["summary", "trace.zarr", *MU, "--output", "trace.zarr"]) == 0
    untouched(trace, ["trace.nc", "trace.zarr"])
    # The second step fails: the old folder comes back.
    rename = Path.rename

    def fail(self, target):
        if Path(target).name == "trace.zarr" and self.name == "trace.zarr":
            raise OSError(5, "Input/output error")
        return rename(self, target)

    # The second step is interrupted, and so is the way back: the old folder is kept aside.
    with monkeypatch.context() as patch:

        def interrupt(self, target):
            if Path(target).name == "trace.zarr":
                raise KeyboardInterrupt
            return rename(self, target)

        patch.setattr(Path, "rename", interrupt)
        assert main(["summary", "trace.zarr", *MU, "--output", "trace.zarr"]) == 1
    (aside,) = trace.glob(".az_cv-unfinished-*/.replaced")
    aside.rename(trace / "trace.zarr")
    shutil.rmtree(aside.parent)
    untouched(trace, ["trace.nc", "trace.zarr"])
    monkeypatch.setattr(Path, "rename", fail)
    assert main(["summary", "trace.zarr", *MU, "--output", "trace.zarr"]) == 1
    untouched(trace, ["trace.nc", "trace.zarr"])


def test_an_interrupt_while_writing_leaves_no_trace_of_it(trace, monkeypatch):
    def interrupt(*arguments, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr("az_cv.containers.replacing._flush_all", interrupt)
    from az_cv.cli import main

    monkeypatch.chdir(trace)
    for name in ("trace.nc", "trace.zarr"):
        assert main(["summary", name, *MU, "--output", name]) == 1
    untouched(trace, ["trace.nc", "trace.zarr"])
    shutil.rmtree(trace)


def test_threads_that_write_on_after_a_failure_leave_nothing(tmp_path):
    """Zarr writes from many threads; when the first fails the others are still under way."""

    def write_on(staged):
        for number in range(40):
            # What is removed between both lines fails as it would for any writer.
            with contextlib.suppress(FileNotFoundError):
                staged.mkdir(parents=True, exist_ok=True)
                (staged / f"chunk{number}").write_text("late")
            time.sleep(0.005)

    def fail(target):
        with replacing(target) as staged:
            writer = threading.Thread(target=write_on, args=(staged,))
            writer.start()
            writers.append(writer)
            raise OSError(28, "No space left on device")

    writers = []
    with pytest.raises(FileProblemError, match=r"No space left on device\. Nothing was written"):
        fail(tmp_path / "trace.zarr")
    for writer in writers:
        writer.join()
    assert list(tmp_path.iterdir()) == []
