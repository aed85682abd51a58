"""The conditional normal distribution, learned from noisy scores."""

import numpy as np

from az_cv.families.hierarchy.conditional import exponentials
from az_cv.families.hierarchy.conditional_fit import fit_conditional


def precision_at(found, top):
    """Return the precision in the coordinates of the draws."""
    r, m = found.shifts.shape[1], found.precisions.shape[1]
    turned = np.eye(r)
    turned[:m, :m] = np.tensordot(exponentials(top, found.steps)[0], found.precisions, 1)
    back = np.linalg.inv(found.basis)
    return back.T @ turned @ back


def test_noise_in_one_score_does_not_spoil_the_others():
    rng = np.random.default_rng(0)
    n, r, c = 1000, 40, 0.5
    top, z = rng.normal(size=(n, 1)), rng.normal(size=(n, r))
    noisy = np.ones(r) / np.sqrt(r)
    size = 9 * np.exp(2 * c * top)
    rest = z - (1 - 1 / np.sqrt(1 + size)) * np.outer(z @ noisy, noisy)
    noise = 5 * (rng.normal(size=(n, 1)) ** 2 - 1)
    score = -rest + (noise - size * (rest @ noisy)[:, None]) * noisy
    found = fit_conditional(top, rest, score, np.empty((n, 0)), np.array([c]))
    across = np.eye(r) - np.outer(noisy, noisy)
    precision = across @ precision_at(found, np.zeros((1, 1))) @ across
    assert np.linalg.norm(precision - across, 2) < 0.05


def test_the_precision_changes_in_few_directions_where_that_is_all():
    rng = np.random.default_rng(1)
    n, r, c = 1500, 32, 0.5
    top, z = rng.normal(size=(n, 1)), rng.normal(size=(n, r))
    directions = np.linalg.qr(rng.normal(size=(r, 2)))[0]
    size = 4 * np.exp(2 * c * top)
    rest = z - (1 - 1 / np.sqrt(1 + size)) * (z @ directions) @ directions.T
    score = -rest - size * (rest @ directions) @ directions.T
    score += 0.1 * rng.normal(size=(n, r)) ** 3
    found = fit_conditional(top, rest, score, np.empty((n, 0)), np.array([c]))
    assert 2 <= found.precisions.shape[1] <= 8
    for place in (-1.0, 1.0):
        expected = np.eye(r) + 4 * np.exp(2 * c * place) * directions @ directions.T
        error = precision_at(found, np.array([[place]])) - expected
        assert np.linalg.norm(error, 2) < 0.1 * np.linalg.norm(expected, 2)
