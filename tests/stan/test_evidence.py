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


def test_unit_vectors_are_refused(stan_model):
    model = stan_model("structured")
    rng = np.random.default_rng(0)
    points = rng.normal(size=(2, 4, model.param_unc_num()))
    flat = np.array([[model.param_constrain(u) for u in chain] for chain in points])
    names = ("share", "L", "R", "direction")
    shapes = {"share": (2, 3), "L": (3, 3), "R": (3, 3), "direction": (2, 3)}
    columns = {name: [i for i, n in enumerate(model.param_names()) if n.startswith(f"{name}.")]
               for name in names}  # fmt: skip
    posterior = {
        # Stan's flat order has the last index slowest.
        name: flat[..., columns[name]].reshape(2, 4, *shapes[name][::-1]).swapaxes(2, 3)
        for name in names
    }
    with pytest.raises(ValueError, match="unit vectors, whose lengths have a density"):
        az_cv.log_evidence(posterior, model=model, progressbar=False)
