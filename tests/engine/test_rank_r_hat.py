"""R-hat of all outputs at once is that of ArviZ, one by one."""

import numpy as np
import pytest
from arviz_stats.base import array_stats

from az_cv.engine.rank_r_hat import rank_r_hat


@pytest.mark.parametrize("shape", [(4, 1000), (1, 50), (2, 7), (3, 9), (4, 251), (2, 4)])
def test_it_is_that_of_arviz(shape, rng):
    chains, draws = shape
    series = rng.normal(size=(chains, draws, 40))
    persistence = np.linspace(-1, 1, 40)
    for t in range(1, draws):
        series[:, t] += persistence * series[:, t - 1]
    series[..., :8] = np.round(series[..., :8])  # draws that are equal
    series[..., 8] = series[..., 9] > 1
    series[0, :, 10] += 3.0
    series[0, :, 11] *= 5.0
    with np.errstate(all="ignore"):
        expected = array_stats.rhat(
            np.moveaxis(series, 2, 0), method="rank", chain_axis=1, draw_axis=2
        )
    np.testing.assert_allclose(rank_r_hat(series), np.ravel(expected), rtol=1e-11)


def test_constants_and_what_is_not_finite(rng):
    series = rng.normal(size=(4, 60, 3))
    series[..., 0] = 7.0
    series[1, 2, 1] = np.inf
    np.testing.assert_array_equal(np.isnan(rank_r_hat(series)), [True, True, False])
    assert np.isnan(rank_r_hat(series[:, :3])).all()
    assert rank_r_hat(series[..., :0]).shape == (0,)
