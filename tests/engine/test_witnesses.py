"""Errors are widened where those of worse fits, or of single chains, turn out too small."""

from dataclasses import replace

import numpy as np
import pytest

from az_cv import Kernel
from az_cv.engine.combination import combine
from az_cv.engine.engine import Engine
from az_cv.engine.errors import standard_error
from az_cv.engine.settings import Settings
from az_cv.engine.witnesses import Witnesses, factor_of_parts, parts_of
from az_cv.solvers.base import Member
from az_cv.solvers.error_model import ERROR_MODEL
from az_cv.testing import StudentT

UNJUDGED = replace(ERROR_MODEL, judged_draws=0, judged_least=10**9)


def member(rng, estimate, sd, shape=(4, 250)):
    """Return a fit with residuals of this size, whose average is the estimate."""
    draws = rng.normal(size=(*shape, 1))
    draws = sd * (draws - draws.mean()) / draws.std()
    return Member("fit", np.array([estimate]), draws + estimate, np.zeros(1))


@pytest.mark.parametrize(("away", "factor"), [(0.5, 1.0), (3.0, 3.0), (-8.0, 8.0)])
def test_an_error_is_widened_as_the_error_of_a_worse_fit_should_have_been(rng, away, factor):
    best = member(rng, 0.0, 0.01)
    worse = member(rng, 0.0, 0.2)
    error, own = (standard_error(m.adjusted, m.tail, ERROR_MODEL) for m in (worse, best))
    worse = member(rng, away * np.sqrt(error**2 - own**2)[0], 0.2)
    outputs = rng.normal(size=(4, 250, 1))
    apart = combine(outputs, [best], 3, ERROR_MODEL)
    judged = combine(outputs, [best], 3, ERROR_MODEL, witnesses=Witnesses([worse]))
    assert judged.mean == apart.mean
    assert judged.mcse / apart.mcse == pytest.approx(factor, rel=0.15)


def test_a_fit_that_is_as_good_as_the_estimate_judges_nothing(rng):
    best, other = member(rng, 0.0, 0.01), member(rng, 0.01, 0.015)
    mcse = np.array([0.01 / np.sqrt(1000)])
    missing = Witnesses([other]).missing(best.estimate, mcse, np.ones(1), ERROR_MODEL)
    assert missing == 0


def test_parts_are_chains_or_cut_from_them():
    assert [len(p) for p in parts_of((4, 100), ERROR_MODEL)] == [100] * 4
    assert [len(p) for p in parts_of((1, 403), ERROR_MODEL)] == [101, 101, 101, 100]
    assert np.array_equal(np.concatenate(parts_of((3, 100), ERROR_MODEL)), np.arange(300))
    assert parts_of((4, ERROR_MODEL.judged_least - 1), ERROR_MODEL) == []


def test_parts_that_differ_by_more_than_they_say_are_counted(rng):
    whole = member(rng, 0.0, 0.01)
    claimed = 0.1 / np.sqrt(250)
    for times in (1.0, 5.0):
        places = times * claimed * np.array([1.0, -1.0, 1.0, -1.0])
        parts = [member(rng, place, 0.1, (1, 250)) for place in places]
        assert factor_of_parts(whole, parts, ERROR_MODEL) == pytest.approx(times, rel=0.2)


def test_heavy_tails_that_few_draws_hide_are_in_the_error():
    """Second moments of Student's t from 400 draws: worse fits are off by many of their errors."""
    target = StudentT(5, 5.0)
    truth = np.array([target.expectations()[f"x{j}^2"] for j in range(5)])
    z = {}
    for errors in (UNJUDGED, ERROR_MODEL):
        found = []
        for seed in range(5):
            x = target.sample(np.random.default_rng([0, seed]), 400)
            draws = x.reshape(4, 100, 5), target.score(x).reshape(4, 100, 5)
            estimate = Engine(*draws, Settings(errors=errors)).estimate(draws[0] ** 2)
            found.append((estimate.mean - truth) / estimate.mcse)
        z[errors] = np.sqrt(np.mean(np.square(found)))
    assert z[UNJUDGED] > 2
    assert z[ERROR_MODEL] < 1.5


def test_doubts_do_not_depend_on_what_else_is_asked(rng):
    x = rng.standard_t(4.0, size=(4, 80, 2))
    s = -5 * x / (4 + x**2)
    asked = x[..., :1] ** 2
    more = np.concatenate([asked, np.cos(x)], axis=2)
    kernel = Kernel(length_scale="auto")
    engines = [
        Engine(x, s, Settings(family=kernel, errors=errors), guide=more)
        for errors in (ERROR_MODEL, UNJUDGED)
    ]
    alone = [engine.estimate(asked).mcse[0] for engine in engines]
    together = [engine.estimate(more).mcse[0] for engine in engines]
    assert alone[0] > 1.01 * alone[1]
    assert together == pytest.approx(alone, rel=1e-6)
