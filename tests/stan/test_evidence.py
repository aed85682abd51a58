"""The evidence of Stan models: constants of `~` kept by BridgeStan, refused elsewhere."""

import numpy as np
import pytest
import xarray as xr

import az_cv

pytestmark = [pytest.mark.stan]

EFFECT = [28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0]
ERROR = [15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]
TRUTH = -31.311347  # of eight schools with a half-Cauchy prior, by quadrature


def test_eight_schools_lack_the_factor_that_the_program_leaves_out(stan_model):
    """``tau ~ cauchy(0, 5)`` of a positive tau has half the mass of a half-Cauchy prior."""
    draws = az_cv.load_eight_schools()["cv_scores"]["unconstrained_draw"].values[:, ::4]
    dims = ("chain", "draw")
    posterior = xr.Dataset(
        {
            "mu": (dims, draws[..., 0]),
            "tau": (dims, np.exp(draws[..., 1])),
            "z": ((*dims, "z_dim_0"), draws[..., 2:]),
        }
    )
    model = stan_model("eight_schools", {"J": 8, "y": EFFECT, "sigma": ERROR})
    found = az_cv.log_evidence(posterior, model=model, family="polynomial", progressbar=False)
    assert abs(found.log_evidence + np.log(2) - TRUTH) < 4 * found.mcse


def test_fits_of_cmdstan_are_refused(plain_fit):
    with pytest.raises(TypeError, match="without the constants"):
        az_cv.log_evidence(plain_fit, progressbar=False)
