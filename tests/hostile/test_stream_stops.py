"""Ctrl-C and full disks beyond memory: the input is untouched, and the next call goes on."""

import hashlib
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import az_cv

pytest.importorskip("dask")
pytest.importorskip("zarr")

CHILD = Path(__file__).with_name("stream_child.py")
WRITE = (
    "import sys, resource, xarray as xr, az_cv\n"
    "limit = int(sys.argv[3])\n"
    "if limit: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))\n"
    "with xr.open_datatree(sys.argv[1], engine='zarr', chunks={}) as data:\n"
    "    az_cv.sources.write_scores(data['posterior'].to_dataset(), sys.argv[2], "
    "model=lambda x: -x, rows=100, progressbar=False)\n"
)


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a store: a chain of zeros, which takes little room, and one of noise."""
    x = np.random.default_rng(0).normal(size=(2, 2000, 20))
    labels = {"chain": range(2), "draw": range(2000)}
    scores = az_cv.scores_dataset(x, -x, coords=labels)
    written = np.stack([np.zeros_like(x[0]), x[1]])
    posterior = xr.Dataset({"x": (("chain", "draw", "k"), written)}, coords=labels)
    tree = {"posterior": posterior.chunk(draw=100), "cv_scores": scores.chunk(draw=100)}
    xr.DataTree.from_dict(tree).to_zarr(tmp_path / "trace.zarr", zarr_format=2)
    return tmp_path


def fingerprint(store):
    digest = hashlib.sha256()
    for path in sorted(store.rglob("*")):
        digest.update(str(path.relative_to(store)).encode())
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


def stopped(folder, what):
    """Start a process, press Ctrl-C in the middle of its work, return how it ended."""
    command = [sys.executable, CHILD, folder, what]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 100
    while not (folder / "begun").exists() and child.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    out, errors = child.communicate(timeout=60)
    return child.returncode, out, errors


@pytest.mark.long
def test_ctrl_c_in_the_middle_of_a_summary_leaves_the_store_and_the_tree(folder):
    before = fingerprint(folder / "trace.zarr")
    status, out, errors = stopped(folder, "summary")
    assert status == -signal.SIGINT, errors
    assert errors.splitlines()[-1].startswith("KeyboardInterrupt")
    assert out.split() == ["groups:", "cv_scores", "posterior"]
    assert fingerprint(folder / "trace.zarr") == before
    (folder / "go").touch()
    again = subprocess.run(
        [sys.executable, CHILD, folder, "summary"], capture_output=True, text=True, check=True
    )
    assert again.stdout.split() == ["groups:", "cv_draws", "cv_scores", "cv_summary", "posterior"]
    assert fingerprint(folder / "trace.zarr") == before


@pytest.mark.long
def test_ctrl_c_in_the_middle_of_writing_scores_keeps_what_is_written(folder):
    before = fingerprint(folder / "trace.zarr")
    status, _, errors = stopped(folder, "scores")
    assert status == -signal.SIGINT, errors
    last = errors.splitlines()[-1]
    assert last.startswith("KeyboardInterrupt: Stopped after ") and "of 40 pieces" in last
    assert "call again" in last
    marks = xr.open_zarr(folder / "scores.zarr", consolidated=False)["written"].values == 1
    assert 0 < marks.sum() < 40
    written = sorted((folder / "scores.zarr" / "gradient").glob("[0-9]*"))
    times = {path: path.stat().st_mtime_ns for path in written}
    (folder / "go").touch()
    subprocess.run([sys.executable, CHILD, folder, "scores"], check=True)
    # What was written is not written again.
    assert sum(path.stat().st_mtime_ns == times[path] for path in times) >= marks.sum()
    assert fingerprint(folder / "trace.zarr") == before


def check_resumed(folder, store, errors, before):
    last = errors.splitlines()[-1]
    assert "OSError" in last and "of 40 pieces" in last and "Make room" in last, errors
    assert " 0 of 40" not in last  # it failed half way
    assert fingerprint(folder / "trace.zarr") == before
    scores = xr.open_zarr(store, consolidated=False)
    assert bool((scores["written"] == 1).all())
    np.testing.assert_array_equal(scores["gradient"], -scores["unconstrained_draw"])
    trace = xr.open_datatree(folder / "trace.zarr", engine="zarr")
    np.testing.assert_array_equal(scores["unconstrained_draw"], trace["posterior/x"])


@pytest.mark.long
def test_a_quota_stops_scores_half_way_and_the_next_call_goes_on(folder):
    """Files may not exceed 8 kB: pieces of zeros are smaller, pieces of noise larger."""
    before, store = fingerprint(folder / "trace.zarr"), folder / "scores.zarr"
    command = [sys.executable, "-c", WRITE, folder / "trace.zarr", store]
    first = subprocess.run([*command, "8192"], capture_output=True, text=True, check=False)
    assert first.returncode == 1 and "File too large" in first.stderr, first.stderr
    subprocess.run([*command, "0"], check=True)
    check_resumed(folder, store, first.stderr, before)


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="mounts a file system of Linux")
def test_a_full_disk_stops_scores_half_way_and_the_next_call_goes_on(folder):
    """With the right to mount, a real disk of 400 kB, which then grows; else a quota, as above."""
    probe = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        test_a_quota_stops_scores_half_way_and_the_next_call_goes_on(folder)
        return
    before = fingerprint(folder / "trace.zarr")
    (folder / "disk").mkdir()
    (folder / "write.py").write_text(WRITE)
    run = f"{sys.executable} write.py trace.zarr disk/scores.zarr 0"
    code = (
        f"mount -t tmpfs -o size=400k none disk; {run} 2> first.txt; echo $? > status.txt; "
        f"mount -o remount,size=20m disk; {run} && cp -r disk/scores.zarr kept.zarr"
    )
    subprocess.run(["unshare", "--mount", "bash", "-c", code], cwd=folder, check=True)
    assert (folder / "status.txt").read_text().strip() == "1"
    errors = (folder / "first.txt").read_text()
    assert "No space left on device" in errors.splitlines()[-1]
    check_resumed(folder, folder / "kept.zarr", errors, before)


def test_a_disk_without_room_for_the_first_file_is_left_empty(folder):
    """A store that is half made would be taken for another one."""
    before, store = fingerprint(folder / "trace.zarr"), folder / "scores.zarr"
    command = [sys.executable, "-c", WRITE, folder / "trace.zarr", store]
    first = subprocess.run([*command, "100"], capture_output=True, text=True, check=False)
    assert first.returncode == 1
    assert "scores.zarr cannot be written: File too large. Nothing was written." in first.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["trace.zarr"]
    subprocess.run([*command, "0"], check=True)
    assert bool((xr.open_zarr(store, consolidated=False)["written"] == 1).all())
    assert fingerprint(folder / "trace.zarr") == before
