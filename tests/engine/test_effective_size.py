"""Effective sample sizes of all outputs at once are those of ArviZ, one by one."""

import numpy as np
import pytest
from arviz_stats.base import array_stats

from az_cv.engine.effective_size import effective_size


def by_arviz(chains):
    series = np.moveaxis(chains, 2, 0)
    ess = array_stats.ess(series, chain_axis=1, draw_axis=2, method="mean")
    return np.asarray(ess, dtype=float).reshape(chains.shape[2])


@pytest.mark.parametrize(
    "shape", [(4, 1000), (1, 4), (1, 5), (2, 6), (2, 7), (3, 9), (4, 11), (1, 50), (4, 101)]
)
def test_they_are_those_of_arviz(shape, rng):
    chains, draws = shape
    noise = rng.normal(size=(chains, draws, 60))
    persistence = np.linspace(-1, 1, 60)
    series = noise.copy()
    for t in range(1, draws):
        series[:, t] = persistence * series[:, t - 1] + noise[:, t]
    series[..., :10] = series[..., :10] > 1  # indicators, some of them constant
    series[..., 10] = np.arange(draws)
    series[..., 11] *= 1e-8
    np.testing.assert_allclose(effective_size(series), by_arviz(series), rtol=1e-11)


def test_what_is_constant_or_not_finite_counts_every_draw(rng):
    series = rng.normal(size=(4, 50, 3))
    series[..., 0] = 7.0
    series[1, 2, 1] = np.nan
    found = effective_size(series)
    np.testing.assert_array_equal(found[:2], 200)
    np.testing.assert_allclose(found[2], by_arviz(series[..., 2:])[0])
    np.testing.assert_array_equal(effective_size(series[:, :3]), 12)
    assert effective_size(series[..., :0]).shape == (0,)
