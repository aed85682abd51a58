"""Solvers: exact linear algebra, selection of features, and stochastic gradients."""

from az_cv.solvers.base import Fitted, Fitter, Member, Solver, Task
from az_cv.solvers.linear.exact import Exact
from az_cv.solvers.sparse.lasso import Lasso
from az_cv.solvers.sparse.random_subsets import RandomSubsets
from az_cv.solvers.training.schedules import inverse_schedule
from az_cv.solvers.training.sgd import SGD

__all__ = [
    "SGD",
    "Exact",
    "Fitted",
    "Fitter",
    "Lasso",
    "Member",
    "RandomSubsets",
    "Solver",
    "Task",
    "inverse_schedule",
]
