"""Proposals: maps that invert each other, densities that integrate to one, scores of them."""

import numpy as np
import pytest
import scipy.integrate

from az_cv.engine.proposals import fit_gaussian, mixture_candidates, normal_candidates


def skew_draws(d):
    rng = np.random.default_rng(0)
    x = np.log(rng.gamma(2.0, size=(2000, d)))
    return x @ (np.eye(d) + 0.3), 2.0 - np.exp(x)


@pytest.fixture(scope="module")
def proposals():
    x, s = skew_draws(3)
    return [*normal_candidates(x, s), *mixture_candidates(x)]


def test_every_kind_is_fitted(proposals):
    assert [proposal.label for proposal in proposals] == [
        "Gaussian",
        "Gaussian of the scores",
        "warped Gaussian",
        "warped Gaussian of the scores",
        "mixture of 2 Gaussians",
        "mixture of 3 Gaussians",
    ]


def test_maps_invert_each_other_and_know_their_derivatives(proposals):
    rng = np.random.default_rng(1)
    z = rng.normal(size=(5, 3))
    for proposal in proposals:
        x, log_determinant = proposal.parameters(z)
        back, _, same = proposal.coordinates(x, np.zeros_like(x))
        np.testing.assert_allclose(back, z, atol=1e-10)
        np.testing.assert_allclose(same, log_determinant, atol=1e-10)
        step = 1e-6
        for row in range(len(z)):
            columns = [
                (proposal.parameters(z[[row]] + h)[0] - proposal.parameters(z[[row]] - h)[0])[0]
                for h in step * np.eye(3)
            ]
            _, expected = np.linalg.slogdet(np.array(columns) / (2 * step))
            assert log_determinant[row] == pytest.approx(expected, abs=1e-6)


def test_scores_are_derivatives_in_the_coordinates(proposals):
    """Of the target, whose log density gains the log determinant, and of the proposal itself."""
    rng = np.random.default_rng(2)
    z, step = rng.normal(size=(4, 3)), 1e-6

    def target(points):
        return -0.5 * (points**2).sum(axis=1) - points[:, 0] ** 4

    for proposal in proposals:
        x, _ = proposal.parameters(z)
        target_score = -x - 4 * np.eye(3)[0] * x**3
        _, pulled, _ = proposal.coordinates(x, target_score)
        own = proposal.base.score(z)
        for j, h in enumerate(step * np.eye(3)):
            (ahead, up), (behind, down) = (proposal.parameters(z + e) for e in (h, -h))
            change = target(ahead) + up - target(behind) - down
            np.testing.assert_allclose(pulled[:, j], change / (2 * step), rtol=1e-5, atol=1e-5)
            change = proposal.base.log_density(z + h) - proposal.base.log_density(z - h)
            np.testing.assert_allclose(own[:, j], change / (2 * step), atol=1e-6)


def test_densities_integrate_to_one():
    x, s = skew_draws(1)
    for proposal in [*normal_candidates(x, s), *mixture_candidates(x)]:

        def density(point, proposal=proposal):
            z, _, log_determinant = proposal.coordinates(np.array([[point]]), np.zeros((1, 1)))
            return np.exp(proposal.base.log_density(z) - log_determinant)[0]

        total = scipy.integrate.quad(density, -30, 15, limit=200, points=[-5, 0, 3])[0]
        assert total == pytest.approx(1, abs=1e-6), proposal.label


def test_a_gaussian_of_the_scores_is_exact_where_the_posterior_is_gaussian():
    rng = np.random.default_rng(3)
    factor = np.array([[2.0, 0.0], [1.5, 0.3]])
    x = 5 + rng.normal(size=(200, 2)) @ factor.T
    s = -(x - 5) @ np.linalg.inv(factor @ factor.T)
    by_scores = normal_candidates(x, s)[1]
    points, _ = by_scores.parameters(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
    np.testing.assert_allclose(points[0], 5, rtol=1e-9)
    spans = points[1:] - points[0]
    np.testing.assert_allclose(spans.T @ spans, factor @ factor.T, rtol=1e-8)


def test_draws_without_a_density_are_refused():
    x = np.random.default_rng(4).normal(size=(100, 2))
    with (
        pytest.warns(UserWarning, match="1 of 2 unconstrained directions"),
        pytest.raises(ValueError, match="they have no density"),
    ):
        fit_gaussian(np.column_stack([x[:, 0], x[:, 0]]))
