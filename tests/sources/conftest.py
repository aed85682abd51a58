"""Models and draws that several tests of score sources share."""

import contextlib
import warnings

import numpy as np
import pytest

with warnings.catch_warnings(action="ignore"), contextlib.suppress(ImportError):
    import pymc as pm

EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


@pytest.fixture(scope="session")
def eight_schools():
    """Non-centered eight schools."""
    pytest.importorskip("pymc")
    with pm.Model(coords={"school": list("ABCDEFGH")}) as model:
        mu = pm.Normal("mu", 0, 5)
        tau = pm.HalfCauchy("tau", 5)
        z = pm.Normal("z", 0, 1, dims="school")
        theta = pm.Deterministic("theta", mu + tau * z, dims="school")
        pm.Normal("y", theta, ERRORS, observed=EFFECTS, dims="school")
    return model


def eight_schools_gradient(draws):
    """Gradient of the log density of ``eight_schools`` by hand, for draws (..., 10).

    Parameters are mu, log(tau), z_0, ..., z_7.
    """
    mu, tau, z = draws[..., 0], np.exp(draws[..., 1]), draws[..., 2:]
    pull = (EFFECTS - mu[..., None] - tau[..., None] * z) / ERRORS**2
    d_mu = -mu / 25 + pull.sum(-1)
    # HalfCauchy(5): log density -log(25 + tau^2); the Jacobian of tau = exp(.) adds 1.
    d_log_tau = tau * ((pull * z).sum(-1) - 2 * tau / (25 + tau**2)) + 1
    return np.concatenate(
        [d_mu[..., None], d_log_tau[..., None], -z + tau[..., None] * pull], axis=-1
    )


@pytest.fixture(scope="session")
def schools_gradient():
    """Hand-derived gradient of the eight schools model."""
    return eight_schools_gradient
