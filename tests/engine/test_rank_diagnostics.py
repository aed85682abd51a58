"""Diagnostics of ranks of all outputs at once are those of ArviZ, one by one."""

import numpy as np
import pytest
from arviz_stats.base import array_stats

from az_cv.engine.rank_diagnostics import rank_diagnostics, rank_r_hat


def by_arviz(chains):
    series = np.moveaxis(chains, 2, 0)
    axes = {"chain_axis": 1, "draw_axis": 2}
    with np.errstate(all="ignore"):
        found = (
            array_stats.ess(series, method="bulk", **axes),
            array_stats.ess(series, method="tail", prob=(0.05, 0.95), **axes),
            array_stats.rhat(series, method="rank", **axes),
        )
    return [np.asarray(values, dtype=float).reshape(chains.shape[2]) for values in found]


def tails(chains):
    return np.quantile(chains, (0.05, 0.95), axis=(0, 1))


@pytest.mark.parametrize("shape", [(4, 1000), (1, 50), (2, 7), (3, 9), (4, 251), (2, 4)])
def test_they_are_those_of_arviz(shape, rng):
    chains, draws = shape
    series = rng.normal(size=(chains, draws, 40))
    persistence = np.linspace(-1, 1, 40)
    for t in range(1, draws):
        series[:, t] += persistence * series[:, t - 1]
    series[..., :8] = np.round(series[..., :8])  # draws that are equal
    series[..., 8] = series[..., 9] > 1
    series[0, :, 10] += 3.0
    series[0, :, 11] *= 5.0
    ours = rank_diagnostics(series, tails(series))
    for found, expected in zip(ours, by_arviz(series), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-11)
    np.testing.assert_array_equal(rank_r_hat(series), ours[2])


def test_constants_and_what_is_not_finite(rng):
    series = rng.normal(size=(4, 60, 3))
    series[..., 0] = 7.0
    series[1, 2, 1] = np.inf
    bulk, tail, r_hat = rank_diagnostics(series, tails(series))
    np.testing.assert_array_equal([bulk[0], tail[0]], [240, 240])
    np.testing.assert_array_equal(np.isnan([bulk, tail, r_hat])[:, :2], [[0, 1], [0, 1], [1, 1]])
    np.testing.assert_array_equal(np.isnan(rank_r_hat(series)), [True, True, False])
    assert np.isnan(rank_diagnostics(series[:, :3], tails(series))).all()
    assert rank_r_hat(series[:, :, :0]).shape == (0,)
