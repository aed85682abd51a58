"""What a search computes of each system, against the whole fit."""

import numpy as np
import pytest

from az_cv import Exact, Kernel, Polynomial
from az_cv.engine.engine import Engine
from az_cv.engine.settings import Settings
from az_cv.solvers.linear import judging
from az_cv.solvers.linear.dual_system import factorise_dual
from az_cv.solvers.linear.inverse import assemble_gram
from az_cv.solvers.linear.primal_system import factorise_primal
from az_cv.solvers.linear.ridge_scan import scan_ridges

RIDGES = (1e-13, 1e-6, 1e-2)


@pytest.fixture
def problem(rng):
    x = rng.normal(size=(120, 3))
    outputs = np.column_stack([np.sin(x[:, 0]), x[:, 1] ** 2 + rng.normal(size=120)])
    return x, outputs, [np.array([i]) for i in range(120)]


@pytest.mark.parametrize("close", [1.0, 1e-5])
def test_a_scan_of_ridges_leaves_what_each_fit_leaves(problem, close):
    """Also where two features are nearly the same, so that a solution has to be refined."""
    x, outputs, singles = problem
    nearly = x[:, :1] + close * x[:, 1:2] ** 3
    features = np.hstack([Polynomial(2, degree_scale=1.0).features(x, -x), nearly])
    scan = scan_ridges(features, RIDGES)
    assert [one.well_conditioned for one in scan.ridges] == [close == 1.0, close == 1.0, True]
    for ridge, residual in zip(RIDGES, scan.residuals(outputs), strict=True):
        (fit,) = factorise_primal(features, singles, ridge=ridge).fit(outputs)
        np.testing.assert_allclose(residual, fit.residual, rtol=1e-8, atol=1e-10)


def test_a_scan_says_which_ridges_are_too_small(problem):
    x, outputs, _ = problem
    small, large = scan_ridges(np.hstack([x, x]), [0.0, 1e-2]).residuals(outputs)
    assert small is None
    assert large.shape == outputs.shape


def test_a_kernel_leaves_in_a_search_what_its_fit_leaves(problem):
    x, outputs, singles = problem
    gram = assemble_gram(Kernel(length_scale=1.5).gram, x, -x)
    system = factorise_dual(gram, singles, ridge=1e-6, exact_features=[None, x])
    for residual, fit in zip(system.residuals(outputs), system.fit(outputs), strict=True):
        np.testing.assert_allclose(residual, fit.residual, rtol=1e-12)


def test_a_second_block_of_outputs_makes_no_features_again(rng, monkeypatch):
    """Blocks of outputs share the systems of their searches."""
    x = rng.gamma(3.0, size=(4, 150, 6))
    made, scan = [], judging.scan_ridges

    def counted(features, ridges):
        made.append(features.shape)
        return scan(features, ridges)

    monkeypatch.setattr(judging, "scan_ridges", counted)
    engine = Engine(np.log(x), 3.0 - x, Settings(family=Polynomial(2), solver=Exact()))
    engine.estimate(np.sqrt(x))
    assert made
    made.clear()
    engine.estimate(np.tanh(x))
    assert not made
