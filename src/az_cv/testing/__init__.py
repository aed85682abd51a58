"""Analytic targets with known expectations, for tests and for trying things out.

Each target draws independent samples, knows its score, and offers integrands whose expectations are
known exactly (the logistic regression: from quadrature or a long run of importance sampling).
"""

from az_cv.testing.curved import Banana, Funnel, StudentT
from az_cv.testing.genz import Genz
from az_cv.testing.logistic import LogisticRegression
from az_cv.testing.normal import Gaussian, GaussianMixture
from az_cv.testing.target import Target, as_datatree

__all__ = [
    "Banana",
    "Funnel",
    "Gaussian",
    "GaussianMixture",
    "Genz",
    "LogisticRegression",
    "StudentT",
    "Target",
    "as_datatree",
]
