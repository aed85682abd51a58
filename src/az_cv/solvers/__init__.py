"""Solvers: exact linear algebra and stochastic gradients."""

from az_cv.solvers.linear.exact import Exact
from az_cv.solvers.training.schedules import inverse_schedule
from az_cv.solvers.training.sgd import SGD

__all__ = ["SGD", "Exact", "inverse_schedule"]
