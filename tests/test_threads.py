import subprocess
import sys
import threading
import time
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
import scipy.linalg  # noqa: F401

from az_cv import threads
from az_cv.notices import notify, silenced
from az_cv.solvers.time_limit import leave_out, remaining, time_limit


def counts(pool):
    return [library.num_threads for library in pool.lib_controllers]


def test_pools_are_limited_inside_and_restored_after():
    before = counts(threads._numpy_pool()), counts(threads._scipy_pool())
    with threads.lapack_first():
        assert all(count == 1 for count in counts(threads._numpy_pool()))
        assert counts(threads._scipy_pool()) == before[1]
    assert (counts(threads._numpy_pool()), counts(threads._scipy_pool())) == before


def test_items_run_side_by_side_on_one_thread_each():
    both = Barrier(2)

    def work(item):
        both.wait(timeout=60)  # passes only if two items are under way at once
        return item, counts(threads._pools())

    with threads._scipy_pool().limit(limits=2):
        inside = counts(threads._pools())
        found = threads.side_by_side(work, [3, 1, 4, 1], rows=1000)
        assert counts(threads._pools()) == inside
    assert [item for item, _ in found] == [3, 1, 4, 1]
    assert all(set(own) == {1} for _, own in found)


def test_small_items_take_turns():
    under_way, most = set(), []

    def work(item):
        under_way.add(item)
        most.append((len(under_way), *counts(threads._pools())))
        under_way.remove(item)

    with threads._scipy_pool().limit(limits=2):
        threads.side_by_side(work, range(20), rows=threads.SMALL - 1)
    assert set(sum(most, ())) == {1}


def test_what_fails_side_by_side_fails():
    with threads._scipy_pool().limit(limits=2), pytest.raises(ZeroDivisionError):
        threads.side_by_side(lambda item: 1 / item, [1, 0], rows=1000)


def test_threads_share_the_time_limit_and_the_notices_of_their_call():
    def work(item):
        leave_out(item)
        notify(item)
        return remaining() <= 60

    with (
        threads._scipy_pool().limit(limits=2),
        time_limit(60) as limit,
        silenced() as notices,
    ):
        assert all(threads.side_by_side(work, ["kernels", "networks"], rows=1000))
    assert sorted(limit.left_out) == ["kernels", "networks"]
    assert sorted(notice.message for notice in notices) == ["kernels", "networks"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/env/lib/python3.11/site-packages/numpy.libs/libscipy_openblas64_-7.so", True),
        ("/env/lib/python3.11/site-packages/numpy/.dylibs/libscipy_openblas64_.dylib", True),
        ("/env/lib/python3.11/site-packages/scipy.libs/libscipy_openblas-c.so", False),
        ("/opt/conda/envs/numpyro/lib/libopenblasp-r0.3.27.so", False),
    ],
)
def test_libraries_are_told_apart_by_their_folder(path, expected):
    assert threads._belongs_to_numpy(path) is expected


def test_no_thread_waits_for_a_processor_that_others_use():
    """Real processes keep every processor busy."""
    spinning = "print('up', flush=True)\nwhile True: pass"
    count = threads._processors()
    busy = [
        subprocess.Popen([sys.executable, "-c", spinning], stdout=subprocess.PIPE)
        for _ in range(count)
    ]
    try:
        for process in busy:
            process.stdout.readline()
        threads._free_lately.cache_clear()
        with threads.considerate_threads(4000):
            inside = counts(threads._numpy_pool()) + counts(threads._scipy_pool())
    finally:
        for process in busy:
            process.kill()
            process.communicate()
    assert inside and set(inside) == {1}


def test_many_small_matrices_take_one_thread():
    with threads._pools().limit(limits=2):
        before = counts(threads._pools())
        with threads.one_thread():
            assert set(counts(threads._pools())) == {1}
        assert counts(threads._pools()) == before


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what threads do")
def test_a_thread_that_waits_is_told_from_one_that_runs():
    released = threading.Event()
    waiting = threading.Thread(target=released.wait)
    waiting.start()
    while threads._runs(str(waiting.native_id)):
        time.sleep(0.01)
    assert threads._runs(str(threading.get_native_id()))
    released.set()
    waiting.join()
    assert not threads._runs(str(waiting.native_id))  # it has ended


def test_what_the_user_set_is_not_raised():
    with threads._pools().limit(limits=1), threads.considerate_threads(4000):
        assert set(counts(threads._numpy_pool()) + counts(threads._scipy_pool())) == {1}


def test_few_draws_take_one_thread():
    @threads.considerate
    def inside(x):
        return set(counts(threads._numpy_pool()) + counts(threads._scipy_pool()))

    assert inside(np.zeros((4, 100, 2))) == {1}


@pytest.mark.parametrize(
    "elsewhere, stolen, free", [(0, 0.0, 8), (3, 0.0, 5), (20, 0.0, 1), (0, 0.6, 3), (2, 0.5, 2)]
)
def test_free_processors(monkeypatch, elsewhere, stolen, free):
    monkeypatch.setattr(threads, "_processors", lambda: 8)
    monkeypatch.setattr(threads._stolen, "share", lambda: stolen)
    monkeypatch.setattr(threads, "_running_elsewhere", lambda: elsewhere)
    assert threads.free_processors() == free


def test_systems_that_say_nothing_are_taken_for_idle(monkeypatch):
    monkeypatch.setattr(threads, "Path", lambda name: Path("/nowhere") / name.strip("/"))
    assert threads._running_elsewhere() == 0


def test_time_that_the_host_of_a_virtual_machine_takes_counts_as_taken(monkeypatch, tmp_path):
    """No test can make a host take time, so the system's file is one of ours."""
    stat = tmp_path / "stat"
    monkeypatch.setattr(threads, "Path", lambda name: stat)
    stat.write_text("cpu  1000 0 500 9000 10 0 20 100 0 0\ncpu0 ...\n")
    taken = threads.StolenTime()
    stat.write_text("cpu  1020 0 505 9100 10 0 20 105 0 0\n")
    assert taken.share() == 0  # too little has passed
    stat.write_text("cpu  1060 0 510 9500 10 0 20 230 0 0\n")
    assert taken.share() == pytest.approx(130 / 200)
    stat.unlink()
    assert taken.share() == pytest.approx(130 / 200)
    assert threads.StolenTime().share() == 0
