"""The conditional normal distribution, learned from noisy scores."""

import numpy as np

from az_cv.families.hierarchy.conditional_fit import fit_conditional


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
    precision = across @ found.precisions.sum(axis=0) @ across
    assert np.linalg.norm(precision - across, 2) < 0.05
