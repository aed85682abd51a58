import numpy as np  # noqa: F401 - its pool has to be there
import pytest
import scipy.linalg  # noqa: F401

from az_cv.solvers.linear import threads


def counts(pool):
    return [library.num_threads for library in pool.lib_controllers]


def test_pools_are_limited_inside_and_restored_after():
    before = counts(threads._numpy_pool()), counts(threads._scipy_pool())
    with threads.lapack_first(), threads.few_threads():
        assert all(count == 1 for count in counts(threads._numpy_pool()))
        inside = counts(threads._scipy_pool())
        assert all(count <= was and count <= threads.FEW for count, was in zip(inside, before[1]))
    assert (counts(threads._numpy_pool()), counts(threads._scipy_pool())) == before


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
