"""Solvers: exact linear algebra and stochastic gradients."""

from az_cv.solvers.base import Fitted, Fitter, Member, Solver, Task
from az_cv.solvers.linear.exact import Exact
from az_cv.solvers.training.schedules import inverse_schedule
from az_cv.solvers.training.sgd import SGD

__all__ = ["SGD", "Exact", "Fitted", "Fitter", "Member", "Solver", "Task", "inverse_schedule"]
