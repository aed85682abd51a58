"""The cost model says how long a stream takes, and what that depends on."""

import os
from dataclasses import replace

import numpy as np
import pytest

from az_cv.engine.settings import Settings
from az_cv.engine.streaming.cost import Load, Speed, expected_seconds, measured_speed, processors
from az_cv.engine.streaming.pieces import Draws, cut
from az_cv.engine.streaming.plan import Size, make_plan
from az_cv.engine.streaming.solve import RIDGES
from az_cv.engine.streaming.stream import stream

pytest.importorskip("dask")

LOAD = Load(10**6, 10**6, 20, 10, 230, 2000, 5, 1, 16_000, 400, reading=(3.0, 1.0))
SPEED = Speed(products=2e10, numbers=1e9)


def total(load, processors=1):
    return sum(expected_seconds(load, SPEED, processors).values())


def test_products_of_features_take_what_counting_says():
    """Without kernel, outputs and reading: n p^2 sums, and p^3 / 3 for each fold and ridge."""
    load = Load(10**6, 10**6, 1, 0, 1999, 0, 2, 1, 0, 0)
    parts = expected_seconds(load, SPEED, 1)
    assert parts["products"] == pytest.approx(1e6 * 2000**2 / 2e10)
    fits = 2 * len(RIDGES)
    assert parts["solving"] == pytest.approx(fits * (2000**3 / 3 / 2e10 + 8 * 2000**2 / 1e9))


@pytest.mark.parametrize(
    ("change", "exponent"),
    [
        ({"draws": 10**7, "fitted": 10**7}, 1.0),
        ({"sections": 20_000}, 2.0),
        ({"outputs": 10_000, "blocks": 1000}, 1.0),
    ],
)
def test_seconds_grow_with_what_there_is_to_do(change, exponent):
    times = next(iter(change.values())) / getattr(LOAD, next(iter(change)))
    growth = np.log(total(replace(LOAD, **change)) / total(LOAD)) / np.log(times)
    assert exponent - 0.35 < growth < exponent + 0.35


def test_a_fit_to_some_of_the_draws_takes_less():
    """Products of features are of those draws alone; all draws are looked at once in any case."""
    some = expected_seconds(replace(LOAD, fitted=10**5), SPEED, 1)
    every = expected_seconds(LOAD, SPEED, 1)
    assert some["products"] < 0.15 * every["products"]
    assert 0.1 * every["features"] < some["features"] < 0.6 * every["features"]


def test_processors_share_the_work():
    assert 1.7 < total(LOAD) / total(LOAD, processors=2) < 2


def test_pieces_smaller_than_chunks_read_them_again():
    parts = [expected_seconds(replace(LOAD, again=k), SPEED, 1)["reading"] for k in (1.0, 3.0)]
    # Three passes over draws and scores, two of them over outputs, two more times each.
    assert parts[1] - parts[0] == pytest.approx(2 * (3 * 3.0 + 2 * 1.0))


def test_a_stream_says_what_it_expects():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(4, 4000, 8))
    x, s = z.copy(), -z
    x[..., 1:] += 0.3 * (z[..., :1] ** 2 - 1)
    s[..., 0] += 0.6 * z[..., 0] * z[..., 1:].sum(axis=-1)
    draws = Draws(x, s, x)
    found = stream(draws, Draws(x[:, ::4], s[:, ::4], x[:, ::4]), Settings(), memory=10**9)
    assert found.plan.sections > 0
    assert found.plan.seconds > 0
    assert f"{found.plan.seconds:.2g} s expected" in found.plan.describe_cost()


def plan_of(draws=250_000, max_time=None, **settings):
    size = Size(4, draws, 10, 10, 10_000, 8 * 10**9)
    return make_plan(size, Settings(**settings), max_time)


def test_time_that_is_given_is_kept():
    plans = [plan_of(max_time=seconds) for seconds in (10, 30, 100)]
    assert [plan.features for plan in plans] == sorted({plan.features for plan in plans})
    for plan, seconds in zip(plans, (10, 30, 100)):
        assert plan.seconds < 1.5 * seconds  # machines are measured anew, and scatter


def test_scores_are_used_however_short_the_time():
    plan = plan_of(max_time=1e-3)
    assert plan.order == 1 and plan.features == 10 and "time" in plan.reason


def test_without_a_limit_of_time_the_answer_does_not_depend_on_the_machine(monkeypatch):
    many = 2_500_000
    before = plan_of(many)
    slow = Speed(measured_speed().products / 100, measured_speed().numbers / 100)
    monkeypatch.setattr("az_cv.engine.streaming.plan.measured_speed", lambda: slow)
    monkeypatch.setattr("az_cv.engine.streaming.plan.processors", lambda: 1)
    after = plan_of(many)
    assert (after.features, after.rows, after.folds) == (before.features, before.rows, before.folds)
    assert after.seconds > 20 * before.seconds
    assert "time" in after.reason


def test_a_piece_lies_in_one_chunk():
    x = np.zeros((4, 10_000, 10))
    plan = make_plan(Size(4, 10_000, 10, 3000, 2500, 2 * 10**9), Settings(family="polynomial"))
    assert plan.rows < 2500
    segments = cut(Draws(x, x, x), plan.folds, plan.rows, plan.segments, 2500)
    pieces = [piece for segment in segments for piece in segment]
    assert sum(map(len, pieces)) == 4 * 10_000
    for piece in pieces:
        assert piece.start // 2500 == (piece.start + len(piece) - 1) // 2500


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="Linux")
def test_processors_are_those_that_this_process_may_use():
    assert processors() == len(os.sched_getaffinity(0))
