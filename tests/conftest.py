import numpy as np
import pytest

from az_cv.testing import (
    Banana,
    Funnel,
    Gaussian,
    GaussianMixture,
    Genz,
    LogisticRegression,
    StudentT,
)

COVARIANCE = np.array([[1.0, 0.9, 0.0], [0.9, 2.0, -0.5], [0.0, -0.5, 0.3]])
TARGETS = {
    "gaussian": Gaussian(COVARIANCE, mean=np.array([1.0, -2.0, 0.5])),
    "mixture": GaussianMixture(d=2, offset=1.2),
    "banana": Banana(),
    "funnel": Funnel(d=3, scale=0.7),
    "student_t": StudentT(d=2, freedom=7.0),
    "genz": Genz(),
    "logistic": LogisticRegression(),
}


@pytest.fixture(params=TARGETS, scope="session")
def target(request):
    return TARGETS[request.param]


@pytest.fixture
def rng():
    return np.random.default_rng(20261115)
