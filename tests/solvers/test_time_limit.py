"""A time for a call: what does not fit into it is left out, and named."""

import math
import threading

import numpy as np
import pytest

import az_cv
from az_cv.engine.engine import Engine
from az_cv.engine.settings import Settings
from az_cv.families import Kernel, NeuralNetwork
from az_cv.solvers.linear.parts import affordable_parts
from az_cv.solvers.time_limit import leave_out, remaining, time_limit


def test_a_limit_within_another_is_the_shorter_one():
    with time_limit(100) as outer:
        with time_limit(1000):
            assert 99 < remaining() <= 100
        with time_limit(10) as inner:
            assert 9 < remaining() <= 10
            leave_out("a kernel")
        with time_limit(None):
            assert 99 < remaining() <= 100
    assert outer.left_out is inner.left_out == ["a kernel"]
    assert remaining() == math.inf


def test_threads_have_limits_of_their_own():
    seen = []
    with time_limit(1):
        thread = threading.Thread(target=lambda: seen.append(remaining()))
        thread.start()
        thread.join()
    assert seen == [math.inf]


def test_systems_are_split_as_far_as_time_asks_for():
    with time_limit(10) as limit:
        assert affordable_parts(1, lambda parts: 1.0, "kernel") == 1
        assert affordable_parts(1, lambda parts: 32.0 / parts**2, "kernel") == 2
        assert affordable_parts(2, lambda parts: 1e9, "kernel") is None
    assert limit.left_out == ["kernel in one piece (in 2)", "kernel"]


@pytest.fixture
def draws(rng):
    return rng.normal(size=(4, 400, 3))


def test_a_kernel_in_parts_is_unbiased_and_named(draws, monkeypatch):
    """One that would take minutes is solved in parts of as many draws as there is time for."""
    engine = Engine(draws, -draws, Settings(family=Kernel()))
    whole = engine.estimate(np.exp(draws))
    monkeypatch.setattr(engine._fitters[0].systems._cost, "predict", lambda n: 60 * (n / 1600) ** 3)
    with time_limit(60) as limit:
        parts = engine.estimate(np.sin(draws) + draws**4)
    (label,) = limit.left_out
    assert label.startswith("imq kernel in one piece (in ")
    assert (abs(parts.mean - 3) < 4 * parts.mcse).all()
    assert (parts.mcse < parts.plain_mcse).all()
    np.testing.assert_array_equal(engine.estimate(np.exp(draws)).mean, whole.mean)


def test_networks_that_have_no_time_are_not_begun(draws):
    engine = Engine(draws, -draws, Settings(family=NeuralNetwork(), random_seed=1))
    with time_limit(0.5) as limit:
        found = engine.estimate(np.exp(draws))
    assert limit.left_out == ["silu network 512"]
    np.testing.assert_allclose(found.mean, np.exp(draws).mean(axis=(0, 1)))


def test_a_table_without_any_time_is_the_plain_one():
    data = az_cv.load_eight_schools().isel(draw=slice(100))
    table = az_cv.summary(data, var_names=["mu", "tau"], max_time=1e-9)
    assert "corrected ends of intervals" in table.attrs["left_out"]
    assert "no time for: polynomial order 1" in str(table)
    assert (table["vrf_mean"] == 1).all()
    plain = [float(data.posterior[name].mean()) for name in ("mu", "tau")]
    np.testing.assert_allclose(table["mean"], plain, atol=0.1)


def test_an_hour_changes_nothing():
    data = az_cv.load_eight_schools().isel(draw=slice(100))
    result = az_cv.fit(data, var_names=["mu"], max_time=3600, progressbar=False)
    assert "left_out" not in result.settings
    same = az_cv.fit(data, var_names=["mu"], progressbar=False)
    np.testing.assert_array_equal(result.estimates["mu"], same.estimates["mu"])


@pytest.mark.parametrize("max_time", [0, -1.0, "10", True])
def test_what_is_no_time_is_refused(max_time):
    data = az_cv.load_eight_schools().isel(draw=slice(20))
    with pytest.raises(ValueError, match="max_time must be a positive number of seconds"):
        az_cv.fit(data, max_time=max_time)
    with pytest.raises(ValueError, match="max_time must be a positive number of seconds"):
        az_cv.summary(data, max_time=max_time)
