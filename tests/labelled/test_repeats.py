"""Copies of draws are found, and copies of chains count once."""

import numpy as np
import pytest

import az_cv
from az_cv.sources.schema import scores_dataset

SETTINGS = {"family": "polynomial", "attach": False}


def summarise(x):
    fn = {"event": lambda post: post["x"][..., 0] > 1.0, "mean": lambda post: post["x"][..., 0]}
    return az_cv.summary({"x": x}, fn, scores=scores_dataset(x, -x), **SETTINGS)


@pytest.fixture
def draws():
    return np.random.default_rng(2).normal(size=(2, 300, 2))


def test_chains_that_are_copies_count_once(draws):
    expected = summarise(draws)
    with pytest.warns(UserWarning, match=r"count once: chain 2 of chain 0, chain 3 of chain 1\."):
        table = summarise(np.concatenate([draws, draws]))
    assert table.attrs["draws"] == "2 x 300"
    np.testing.assert_allclose(table, expected, rtol=1e-9, atol=1e-12)


def test_resampled_draws_are_counted_and_rejections_are_not(draws):
    rng = np.random.default_rng(3)
    resampled = draws[:, rng.integers(300, size=300)]
    with pytest.warns(UserWarning, match=r"3\d% of the draws are copies of draws elsewhere"):
        summarise(resampled)
    stuck = np.repeat(draws[:, :150], 2, axis=1)  # every other proposal was rejected
    assert not summarise(stuck).attrs["warnings"]
