import importlib.util
import os
import sys

import numpy as np
import pytest

from az_cv.testing import (
    Banana,
    Funnel,
    Gaussian,
    GaussianMixture,
    Genz,
    LogisticRegression,
    StudentT,
)

COVARIANCE = np.array([[1.0, 0.9, 0.0], [0.9, 2.0, -0.5], [0.0, -0.5, 0.3]])
TARGETS = {
    "gaussian": Gaussian(COVARIANCE, mean=np.array([1.0, -2.0, 0.5])),
    "mixture": GaussianMixture(d=2, offset=1.2),
    "banana": Banana(),
    "funnel": Funnel(d=3, scale=0.7),
    "student_t": StudentT(d=2, freedom=7.0),
    "genz": Genz(),
    "logistic": LogisticRegression(),
}


# With AZ_CV_REQUIRE_ALL_DEPS=1 a skip is a failure: a dependency that goes missing is noticed.
REQUIRE_ALL = os.environ.get("AZ_CV_REQUIRE_ALL_DEPS", "0") not in ("", "0")
MAY_BE_SKIPPED = {
    # PyStan is not among the development tools: its wheels exist for x86_64 only.
    "test_fit_of_a_real_build",
}
if sys.version_info < (3, 12):
    # There arviz-plots needs an older matplotlib than everything else, and is left out.
    MAY_BE_SKIPPED.add("test_backends.py")


def _fail_if_skipped(report, name):
    skipped = report.outcome == "skipped" and not hasattr(report, "wasxfail")
    if REQUIRE_ALL and skipped and name not in MAY_BE_SKIPPED:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"AZ_CV_REQUIRE_ALL_DEPS is set, and {name} was skipped. {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    return _fail_if_skipped((yield), getattr(item, "originalname", item.name))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    return _fail_if_skipped((yield), collector.name)


@pytest.fixture(scope="session", autouse=True)
def compiled_once(tmp_path_factory):
    """Let tests share what JAX compiles: most of the time of training is compilation.

    Equal programs are compiled once in a run of the tests; nothing is kept for the next run.
    Without filelock JAX cannot guard the folder, and everything is compiled anew.
    """
    import jax

    if importlib.util.find_spec("filelock") is None:
        return
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # that of all the processes of this run
    jax.config.update("jax_compilation_cache_dir", str(folder / "compiled"))
    jax.config.update("jax_compilation_cache_max_size", 2**30)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


@pytest.fixture(params=TARGETS, scope="session")
def target(request):
    return TARGETS[request.param]


@pytest.fixture
def rng():
    return np.random.default_rng(20261115)
