"""Sums over coordinates: what they learn where a kernel of distances learns nothing."""

import numpy as np
import pytest
from scipy.special import ndtr

from az_cv import Exact, Kernel
from az_cv.engine import choices
from az_cv.engine.choices import default_stack
from az_cv.engine.engine import run_engine
from az_cv.families.description import describe

D = 12


@pytest.fixture(scope="module")
def draws():
    """Draws of a standard Gaussian in twelve dimensions: x, s and a product of bounded factors."""
    x = np.random.default_rng(3).normal(size=(4, 150, D))
    return x, -x, (1 / (1 + (ndtr(x) - 0.5) ** 2)).prod(axis=2, keepdims=True)


TRUTH = (2 * np.arctan(0.5)) ** D


def test_nearly_additive_integrands_gain_in_many_dimensions(draws):
    anova = run_engine(*draws, family=Kernel("anova")).estimate
    radial = run_engine(*draws, family=Kernel()).estimate
    default = run_engine(*draws).estimate
    assert anova.adjusted.std() < 0.5 * radial.adjusted.std()
    assert default.adjusted.std() < 0.5 * radial.adjusted.std()
    for estimate in (anova, radial, default):
        assert abs(estimate.mean[0] - TRUTH) < 3 * estimate.mcse[0]


def test_interactions_help_with_products(draws):
    x, s, f = draws
    spread = {
        weight: run_engine(
            x,
            s,
            f,
            family=Kernel("anova", length_scale=2.5, interaction=weight),
            solver=Exact(ridge=1e-3),
        ).estimate.adjusted.std()
        for weight in (0.0, 0.2)
    }
    assert spread[0.2] < 0.8 * spread[0.0]


def test_without_interactions_it_is_a_sum_over_coordinates(rng):
    x, s, y, t = rng.normal(size=(4, 6, 3))
    kernel = Kernel("anova", length_scale=1.3, interaction=0.0)
    parts = [kernel.gram(*(a[:, [j]] for a in (x, s, y, t))) for j in range(3)]
    np.testing.assert_allclose(kernel.gram(x, s, y, t), sum(parts), rtol=1e-12)


def test_auto_has_it_in_some_dimensions():
    def has_it(n, d):
        return "anova kernel" in [describe(member) for member in default_stack(n, d)]

    assert has_it(1000, 5) and has_it(1000, 20) and has_it(4000, 10)
    assert not has_it(1000, 4)
    assert not has_it(500, 61)
    assert not has_it(100_000, 10)


def logistic_variables(rng):
    """Return independent variables: sums over coordinates fit them best."""
    x = rng.logistic(size=(4, 110, 6))
    return x, -np.tanh(x / 2)


def spherical_variables(rng, freedom=8.0):
    """Return a Student t, of which only the distance from the centre matters."""
    scale = np.sqrt(rng.chisquare(freedom, size=(4, 110, 1)) / freedom)
    x = rng.normal(size=(4, 110, 6)) / scale
    return x, -(freedom + 6) * x / (freedom + (x**2).sum(axis=2, keepdims=True))


@pytest.mark.parametrize(
    ("target", "is_taken"), [(logistic_variables, True), (spherical_variables, False)]
)
def test_many_draws_take_it_only_where_it_promises_more_than_other_kernels(
    target, is_taken, monkeypatch, rng
):
    x, s = target(rng)
    outputs = np.tanh(x).sum(axis=2, keepdims=True)
    few = run_engine(x, s, outputs).estimate
    monkeypatch.setattr(choices, "MANY_TERMS", 0)
    many = run_engine(x, s, outputs).estimate
    assert "anova kernel" in few.weights
    assert ("anova kernel" in many.weights) == is_taken
    if is_taken:
        np.testing.assert_array_equal(many.mcse, few.mcse)
