"""Solvers: exact linear algebra and stochastic gradients."""

from az_cv.solvers.exact import Exact
from az_cv.solvers.schedules import inverse_schedule
from az_cv.solvers.sgd import SGD

__all__ = ["SGD", "Exact", "inverse_schedule"]
