"""The switch that turns skipped tests into failures."""

from pathlib import Path

pytest_plugins = ["pytester"]

TESTS = """
import pytest

def test_imports():
    pytest.importorskip("no_such_library")

@pytest.mark.skipif(True, reason="on this platform")
def test_marked():
    pass

@pytest.mark.skipif(True, reason="no wheel")
def test_fit_of_a_real_build():
    pass

@pytest.mark.xfail(strict=True)
def test_known_fault():
    assert False
"""


def run(pytester, monkeypatch, value):
    monkeypatch.setenv("AZ_CV_REQUIRE_ALL_DEPS", value)
    pytester.makeconftest(Path(__file__).with_name("conftest.py").read_text())
    pytester.makepyfile(TESTS)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-rfs")


def test_skips_fail_where_every_dependency_is_required(pytester, monkeypatch):
    result = run(pytester, monkeypatch, "1")
    result.assert_outcomes(failed=1, errors=1, skipped=1, xfailed=1)  # a mark acts at setup
    result.stdout.fnmatch_lines(["*test_imports was skipped*no_such_library*"])


def test_skips_are_skips_otherwise(pytester, monkeypatch):
    run(pytester, monkeypatch, "0").assert_outcomes(skipped=3, xfailed=1)


def test_a_module_that_is_skipped_as_a_whole_fails_too(pytester, monkeypatch):
    pytester.makepyfile(test_whole="import pytest; pytest.importorskip('no_such_library')")
    result = run(pytester, monkeypatch, "1")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*test_whole.py was skipped*no_such_library*"])
