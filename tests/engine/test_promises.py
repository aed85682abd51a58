"""Members of the default that cost much are fitted where they promise something."""

from dataclasses import dataclass

import numpy as np
import pytest

import az_cv
from az_cv.engine import choices, promises
from az_cv.engine.engine import Engine
from az_cv.engine.promises import MANY_STEPS, serving_many_steps, worth_fitting
from az_cv.families import Ensemble, HierarchicalKernel, Kernel, Polynomial
from az_cv.solvers.base import Fitted, Member
from az_cv.solvers.error_model import ERROR_MODEL

DISTANCES = Ensemble([Polynomial(order=2), Kernel()], semi_exact="auto")
LED = [Polynomial(order=1), DISTANCES, HierarchicalKernel(top=(0,))]
FULL = (4000, 10)


@dataclass(frozen=True)
class Promising:
    """A fitter that promises errors, and leaves a share of indicators."""

    errors: np.ndarray | None = None
    left: float = 1.0
    has_witnesses: bool = True

    def errors_of_guide(self, *, chosen=False):
        return self.errors

    def error_of_steps(self):
        return None if self.errors is None else 0.0

    def fit(self, outputs, *, steps=False):
        residual = self.left * np.random.default_rng(len(outputs)).normal(size=outputs.shape)
        q = outputs.shape[1]
        return Fitted([Member("one", np.zeros(q), residual.reshape(4, -1, q), np.zeros(q))])

    worse_fits = fits_to_parts = fit


@pytest.mark.parametrize(
    ("ahead", "is_fitted"),
    [
        (np.full(20, np.log(2.1)), False),
        (np.full(20, np.log(1.9)), True),
        # Better for one of the functions.
        (np.r_[np.full(19, 2.0), -0.5], True),
    ],
)
def test_distances_are_left_to_a_hierarchy_that_promises_more_for_everything(ahead, is_fitted):
    """`ahead`: by how much the logarithms of the errors of the hierarchical kernel are smaller."""
    fitters = [Promising(), Promising(np.zeros(20)), Promising(-ahead)]
    assert worth_fitting(LED, fitters, FULL) == [True, is_fitted, True]


def test_distances_are_fitted_where_nothing_else_judges_errors():
    fitters = [Promising(), Promising(np.zeros(20)), Promising(-np.ones(20), has_witnesses=False)]
    assert worth_fitting(LED, fitters, FULL) == [True] * 3


def test_everything_is_fitted_to_few_draws_and_without_a_hierarchy():
    fitters = [Promising(), Promising(np.zeros(20)), Promising(-np.ones(20))]
    assert worth_fitting(LED, fitters, (1000, 10)) == [True] * 3
    assert worth_fitting(LED[:2], fitters[:2], FULL) == [True] * 2


def test_errors_of_eight_schools_are_judged_by_the_kernel_that_is_fitted(monkeypatch):
    scores = az_cv.scores(az_cv.load_eight_schools()).isel(draw=slice(None, None, 3))
    x, s = scores["unconstrained_draw"].values, scores["gradient"].values
    monkeypatch.setattr(choices, "MANY_TERMS", 0)
    monkeypatch.setattr(promises, "OUTDONE", 0.5)
    engine = Engine(x, s)
    found = engine.estimate(x)
    assert engine._is_worth_it[-3:] == [False, False, True]
    assert engine._witness is engine._fitters[-1]
    assert not any("imq" in label for label in found.weights)
    assert (found.mcse < found.plain_mcse).all()


@pytest.mark.parametrize(("left", "is_fitted"), [(0.3, True), (3.0, False)])
def test_kernels_are_fitted_to_many_indicators_where_they_help(rng, left, is_fitted):
    typical = rng.normal(size=(400, 6))
    fitters = [Promising(left=0.7), Promising(np.zeros(6), left)]
    found = serving_many_steps(
        fitters, [True, True], typical, lambda rows: rows.reshape(4, 100, -1), 6, ERROR_MODEL
    )
    assert found == [True, is_fitted]


def test_many_indicators_cost_no_kernel_that_does_not_help(rng):
    """Tails of a sum of logistic variables are for polynomials; a handful is fitted as ever."""
    x = rng.logistic(size=(4, 200, 6))
    s = -np.tanh(x / 2)
    engine = Engine(x, s)
    sums = x @ rng.normal(size=(6, MANY_STEPS))
    steps = (sums <= np.quantile(sums, 0.1, axis=(0, 1))).astype(float)
    many, few = (engine.estimate(steps[..., :q], steps=True) for q in (MANY_STEPS, 5))
    gain = (many.mcse[:5] / few.mcse) ** 2
    assert abs(gain.mean() - 1) < 0.1
