"""Modes that no draws connect, against algebra and against truth."""

from dataclasses import replace

import numpy as np
import pytest

from az_cv.engine.combination import Levels, combine
from az_cv.engine.engine import Engine
from az_cv.engine.modes import find_modes
from az_cv.engine.settings import Settings
from az_cv.engine.whitening import fit_whitening
from az_cv.solvers.base import Member
from az_cv.solvers.error_model import ERROR_MODEL
from az_cv.testing import Banana, Funnel, GaussianMixture, LogisticRegression, StudentT

WITHOUT = replace(ERROR_MODEL, most_modes=1)


def gaussians(rng, n, away):
    """Return draws of unit Gaussians, so many in each, scores as if each were alone, and truth."""
    centres = np.repeat(away, n, axis=0)
    z = rng.normal(size=centres.shape)
    order = rng.permutation(len(z))
    return (centres + z)[order], -z[order], np.repeat(np.arange(len(n)), n)[order]


def found(x, s, visit=1, errors=ERROR_MODEL):
    whitening = fit_whitening(x)
    return find_modes(whitening.draws(x), whitening.scores(s), visit, errors)


@pytest.mark.parametrize("d", [2, 3, 5, 10])
@pytest.mark.parametrize("few", [1, 2, 10, 150])
@pytest.mark.filterwarnings("ignore:4.. draws for")
def test_every_draw_finds_its_mode(d, few, rng):
    away = np.zeros((2, d))
    away[1] = 6 / np.sqrt(d)
    x, s, truth = gaussians(rng, [390, few], away)
    shape = np.tril(rng.normal(size=(d, d)), -1) + np.diag(rng.uniform(0.1, 10, size=d))
    modes = found(x @ shape.T + 100, np.linalg.solve(shape.T, s.T).T)
    assert modes is not None
    np.testing.assert_array_equal(modes.label, truth)
    np.testing.assert_array_equal(modes.counts, [390, few])


@pytest.mark.parametrize(
    "places",
    [[6.4], [3.5, 3.4], [4.76, 3.56, 3.51, 3.47]],
    ids=["beyond its centre", "between both", "on both sides"],
)
def test_draws_of_a_mode_four_sds_away_are_no_tail(places, rng):
    """Their scores point to the larger mode, and they say so with less force than a tail."""
    x = rng.normal(size=(1000, 3))
    x[: len(places), 0] = places
    odds = np.log(0.005 / 0.995) + 4 * x[:, 0] - 8
    s = -x
    s[:, 0] += 4 / (1 + np.exp(-odds))
    assert found(x, s).counts[1] == len(places)


def test_several_modes_are_told_apart(rng):
    away = np.array([[0, 0, 0], [9, 0, 0], [0, 9, 0], [0, 0, -9]])
    x, s, truth = gaussians(rng, [200, 150, 40, 10], away)
    modes = found(x, s)
    np.testing.assert_array_equal(modes.label, truth)
    assert found(x, s, errors=WITHOUT) is None


def ring(rng, n):
    """Return draws around a circle: one mode, and no density at its centre."""
    radius, angle = 8 + rng.normal(size=n), rng.uniform(0, 2 * np.pi, size=n)
    x = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return x, -x * ((radius - 8) / radius + 1 / radius**2)[:, None]


TARGETS = {
    "banana": Banana(),
    "funnel": Funnel(d=3, scale=1.5),
    "heavy tails": StudentT(d=2, freedom=3.0),
    "tails": StudentT(d=5, freedom=8.0),
    "light tails": StudentT(d=10, freedom=30.0),
    "logistic": LogisticRegression(),
    "two modes that meet": GaussianMixture(d=2, offset=1.2),
}


@pytest.mark.parametrize("name", [*TARGETS, "ring"])
@pytest.mark.parametrize("n", [100, 400, 2000])
def test_one_mode_stays_one(name, n):
    for seed in range(10):
        rng = np.random.default_rng([seed, n])
        if name == "ring":
            x, s = ring(rng, n)
        else:
            x = TARGETS[name].sample(rng, n)
            s = TARGETS[name].score(x)
        assert found(x, s) is None


def test_one_mode_keeps_its_numbers():
    """To the last digit."""
    x = Banana().sample(np.random.default_rng(0), 400).reshape(4, 100, 2)
    s = Banana().score(x.reshape(-1, 2)).reshape(x.shape)
    outputs = np.concatenate([x, x**2], axis=2)
    one, other = (
        Engine(x, s, Settings(errors=errors)).estimate(outputs) for errors in (ERROR_MODEL, WITHOUT)
    )
    np.testing.assert_array_equal(one.mean, other.mean)
    np.testing.assert_array_equal(one.mcse, other.mcse)


def test_averages_in_gaussian_modes_are_exact(rng):
    x, s, label = gaussians(rng, [380, 20], np.array([[0.0, 0], [7, 0]]))
    whitening = fit_whitening(x)
    modes = find_modes(whitening.draws(x), whitening.scores(s), 1, ERROR_MODEL)
    outputs = np.column_stack([x, x[:, 0] ** 2, x[:, 0] * x[:, 1], 0 * label])
    levels, unknown = modes.levels(outputs)
    truth = np.outer(label, [7.0, 0, 49, 0, 0])
    np.testing.assert_allclose(levels, truth, atol=1e-9)
    np.testing.assert_allclose(unknown, truth.max(axis=0) / 400, atol=1e-9)


def test_averages_that_are_not_known_count_as_error(rng):
    """The share of the mode times the error of the difference of both averages."""
    x, s, _ = gaussians(rng, [360, 40], np.array([[0.0, 0], [7, 0]]))
    noise = rng.normal(size=(400, 200))
    once, slow = (found(x, s, visit).levels(noise)[1] for visit in (1, 4))
    expected = 0.1 * np.sqrt(1 / 40 + 1 / 360)
    np.testing.assert_allclose(once.mean(), expected, rtol=0.1)
    np.testing.assert_allclose(slow, 2 * once, rtol=0.02)


@pytest.mark.filterwarnings("ignore:The draws lie in 2 modes")
@pytest.mark.parametrize("family", ["polynomial", "kernel"])
def test_shares_are_known_as_well_as_counts_and_no_better(family, rng):
    x, s, _ = gaussians(rng, [388, 12], np.array([[0.0, 0], [6, 0]]))
    x, s = x.reshape(4, 100, 2), s.reshape(4, 100, 2)
    estimate = Engine(x, s, Settings(family=family)).estimate(x)
    np.testing.assert_allclose(estimate.mean, [6 * 12 / 400, 0], atol=1e-3)
    count = 6 * np.sqrt(0.03 * 0.97 / 400)
    assert 0.99 * count < estimate.mcse[0] < 1.2 * count
    assert estimate.mcse[1] < 1e-6


@pytest.mark.filterwarnings("ignore:The draws lie in 2 modes")
def test_a_rare_mode_is_within_its_errors():
    """Without the rule the mean is dozens of errors away, in draws of which 13 lie there."""
    rng = np.random.default_rng([2, 2, 100, 30, 6])
    share, distance = 0.03, 6.0
    where = distance * (rng.uniform(size=(400, 1)) < share)
    away = np.array([1.0, 0.0])
    x = rng.normal(size=(400, 2)) + away * where
    odds = np.log(share / (1 - share)) + distance * x[:, :1] - distance**2 / 2
    s = (away * distance / (1 + np.exp(-odds)) - x).reshape(4, 100, 2)
    x = x.reshape(4, 100, 2)
    outputs = np.stack([x[..., 0], x[..., 0] ** 2], axis=2)
    truth = np.array([share * distance, 1 + share * distance**2])
    found, before = (
        Engine(x, s, Settings(errors=errors)).estimate(outputs) for errors in (ERROR_MODEL, WITHOUT)
    )
    assert (np.abs(found.mean - truth) < 3 * found.mcse).all()
    assert (np.abs(before.mean - truth) > 6 * before.mcse).any()


def test_weights_do_not_cancel_a_level(rng):
    """A member that is wrong by just that much in a rare mode is no help."""
    rest = rng.normal(size=(4, 100, 1))
    level = np.zeros((4, 100, 1))
    level[0, :4] = 20.0
    outputs = rest + level
    good, odd = 1e-3 * rest, 1e-3 * rest - level
    members = [Member(k, m.mean(axis=(0, 1)), m, np.zeros(1)) for k, m in [("a", good), ("b", odd)]]
    count = 20 * np.sqrt(0.01 * 0.99 / 400)
    for some in (members[:1], members[1:], members):
        found = combine(outputs, some, 2, ERROR_MODEL, Levels(level, np.zeros(1)))
        assert found.mcse[0] > 0.99 * count
        np.testing.assert_allclose(found.adjusted.mean(), found.mean[0], atol=1e-12)


def test_modes_are_mentioned_where_they_matter(rng):
    x, s, _ = gaussians(rng, [380, 20], np.array([[0.0, 0], [7, 0]]))
    x, s = x.reshape(4, 100, 2), s.reshape(4, 100, 2)
    engine = Engine(x, s, Settings(family="polynomial"))
    engine.estimate(x[..., 1:])  # the same in both, and warnings are errors
    with pytest.warns(UserWarning, match=r"2 modes that no draw connects \(380, 20 draws\)"):
        engine.estimate(x[..., :1])
