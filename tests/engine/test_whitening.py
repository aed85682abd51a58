import numpy as np
import pytest

from az_cv.engine.whitening import fit_whitening


def test_whitened_draws_have_unit_covariance(rng):
    x = 3 + rng.normal(size=(400, 4)) @ rng.normal(size=(4, 4)) * np.array([1e-6, 1, 1e6, 10])
    white = fit_whitening(x).draws(x)
    np.testing.assert_allclose(np.cov(white.T), np.eye(4), atol=1e-8)


def test_scores_transform_so_that_the_stein_identity_holds(rng):
    # E[x s'] = -I is invariant: in whitened coordinates the scores of a Gaussian are -x.
    factor = rng.normal(size=(3, 3))
    x = rng.normal(size=(100_000, 3)) @ factor.T
    s = -np.linalg.solve(factor @ factor.T, x.T).T
    whitening = fit_whitening(x)
    moments = whitening.draws(x).T @ whitening.scores(s) / len(x)
    np.testing.assert_allclose(moments, -np.eye(3), atol=0.02)


def test_constant_and_duplicated_coordinates_are_dropped_with_a_warning(rng):
    z = rng.normal(size=(200, 2))
    x = np.column_stack([z, np.full(200, 0.1), z[:, 0]])
    with pytest.warns(UserWarning, match=r"2 of 4 .*\(1 constant, 1 linear combinations"):
        whitening = fit_whitening(x)
    white = whitening.draws(x)
    assert white.shape == (200, 2)
    np.testing.assert_allclose(np.cov(white.T), np.eye(2), atol=1e-8)
    assert np.isfinite(whitening.scores(x)).all()


def test_fewer_draws_than_dimensions_shrink_with_a_warning(rng):
    x = rng.normal(size=(8, 20))
    with pytest.warns(UserWarning, match="8 draws for 20 parameters"):
        whitening = fit_whitening(x)
    assert whitening.scale.shape == (20, 20)
    assert np.isfinite(whitening.draws(x)).all()
    # Half of the covariance is left, and all of the variance.
    expected = 0.5 * np.cov(x.T) + 0.5 * np.diag(x.var(axis=0, ddof=1))
    np.testing.assert_allclose(whitening.scale @ whitening.scale.T, expected, atol=1e-12)


def test_two_draws_for_each_dimension_are_enough(rng):
    x = rng.normal(size=(40, 20))
    np.testing.assert_allclose(np.cov(fit_whitening(x).draws(x).T), np.eye(20), atol=1e-8)


def test_all_constant_is_an_error():
    with pytest.raises(
        ValueError, match="All 2 unconstrained parameters are constant over 30 draws"
    ):
        fit_whitening(np.ones((30, 2)))
