import numpy as np
import pytest

from az_cv.datasets import EIGHT_SCHOOLS_MEANS

EFFECT = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERROR = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def test_exact_means_of_eight_schools_are_those_of_quadrature():
    """Given tau everything is Gaussian, so that one integral over tau is left."""
    tau = np.linspace(0, 1, 200_001)[1:-1]
    tau, jacobian = tau / (1 - tau), (1 - tau) ** -2.0  # from (0, 1) onto (0, inf)
    variance = tau[:, None] ** 2 + ERROR**2
    precision = 1 / 25 + (1 / variance).sum(axis=1)
    mu = (EFFECT / variance).sum(axis=1) / precision
    # Density of the data given tau, mu integrated out, times the half-Cauchy prior of tau.
    log_density = (
        -0.5 * np.log(variance).sum(axis=1)
        - 0.5 * np.log(precision)
        - 0.5 * (EFFECT**2 / variance).sum(axis=1)
        + 0.5 * precision * mu**2
        - np.log1p((tau / 5) ** 2)
    )
    weight = np.exp(log_density - log_density.max()) * jacobian
    weight /= weight.sum()
    shrinkage = tau**2 / variance[:, 0]
    exact = {
        "mu": weight @ mu,
        "tau": weight @ tau,
        "theta[Choate]": weight @ (shrinkage * EFFECT[0] + (1 - shrinkage) * mu),
    }
    assert exact == pytest.approx(EIGHT_SCHOOLS_MEANS, abs=5e-5)
